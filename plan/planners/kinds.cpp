#include "plan/planners/kinds.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/list_scheduler.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "plan/planners/even_search.h"
#include "plan/planners/layers.h"
#include "plan/planners/mixed_search.h"
#include "plan/planners/score.h"
#include "plan/planners/step_choice.h"
#include "plan/planners/sweep.h"

namespace automap::planners {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;
using pipeline::StageVariant;

constexpr const char* kEvenGridKind = "best even grid (Megatron)";

bool always(const Question&) {
  return true;
}

// The question with only its batch fixed, answered quickly and without bounds.
Question quickly(const Question& question) {
  Question quick = question;
  quick.step = {};
  quick.step.batch = question.step.batch;
  quick.request.lower_bound = false;
  quick.request.all_planners = false;
  quick.request.effort = plan_effort(Effort::kQuick);
  return quick;
}

// A ZeRO level, with recomputation and without as far as the question allows either.
std::vector<StageVariant> at_zero(const Question& question, int zero) {
  std::vector<StageVariant> variants;
  for (const StageVariant& one : question.options.variants) {
    const StageVariant variant = {zero, one.recompute};
    if (std::find(variants.begin(), variants.end(), variant) == variants.end()) variants.push_back(variant);
  }
  return variants;
}

// Of replicas of one device.
Candidate searched(Question quick, const std::vector<StageVariant>& variants, const char* name) {
  pipeline::Profile narrow = quick.profile();
  narrow.widths.clear();
  quick.set_profile(std::move(narrow));
  quick.options.variants = variants;
  Candidate one = candidate_of(name, plan_step(quick));
  one.found_by = name;
  return one;
}

Candidate data_parallel(const KindTurn& turn, int zero, const char* name) {
  Question quick = quickly(turn.question);
  quick.request.planner = PlannerKind::kDataParallel;
  quick.request.stages = 1;
  const std::vector<StageVariant> variants = at_zero(quick, zero);
  return searched(std::move(quick), variants, name);
}

std::optional<Candidate> plain_data_parallel(const KindTurn& turn, const char* name) {
  return data_parallel(turn, 0, name);
}
std::optional<Candidate> sharded_optimizer(const KindTurn& turn, const char* name) {
  return data_parallel(turn, 1, name);
}
std::optional<Candidate> fully_sharded(const KindTurn& turn, const char* name) {
  return data_parallel(turn, 3, name);
}

std::optional<Candidate> paper_pipeline(const KindTurn& turn, const char* name) {
  Question quick = quickly(turn.question);
  quick.request.stages = 0;
  const std::vector<StageVariant> variants = at_zero(quick, 0);
  return searched(std::move(quick), variants, name);
}

Candidate of_layout(const Question& quick, const Layout& layout, const char* name) {
  ScoredPlan scored = score_layout(layout, quick);
  // A stage without a variable is no plan of ours, but frameworks run it.
  if (scored.missing_bytes > 0) return no_candidate(name, scored.infeasible);
  return candidate_of(name, std::shared_ptr<const pipeline::Problem>(std::move(scored.problem)),
                      std::move(scored.plan));
}

Candidate grid_from(const KindTurn& turn, int min_stages, const char* name) {
  const Question quick = quickly(turn.question);
  SweepRequest request;
  request.schedules = quick.request.schedules;
  request.only_best = true;
  request.limits = quick.request.time_limits();
  if (!turn.grids) turn.grids = sweep_layouts(quick, request);
  const std::vector<SweptLayout>& layouts = turn.grids->layouts;
  const auto best =
      std::find_if(layouts.begin(), layouts.end(), [&](const SweptLayout& one) { return one.layout.pp >= min_stages; });
  if (best == layouts.end()) return no_candidate(name, "no grid of several stages divides devices, batch and layers");
  if (best->missing_bytes > 0) return no_candidate(name, "no grid fits into memory");
  Candidate one = of_layout(quick, best->layout, name);
  one.layout = best->layout.text();
  return one;
}

std::optional<Candidate> even_grid(const KindTurn& turn, const char* name) {
  return grid_from(turn, 1, name);
}

// Beside a best grid of one stage: what a pipeline would take.
std::optional<Candidate> grid_of_stages(const KindTurn& turn, const char* name) {
  const Question& question = turn.question;
  const PlanRequest& request = question.request;
  const bool several = request.stages == 0 ? request.max_stages > 1 : request.stages > 1;
  if (!several || question.cluster.num_devices() == 1 || most_layout_stages(question.profile()) == 1) {
    return std::nullopt;
  }
  const std::vector<Candidate>& earlier = turn.earlier;
  if (std::any_of(earlier.begin(), earlier.end(), [](const Candidate& one) {
        return one.kind == kEvenGridKind && one.found() && one.num_stages() > 1;
      })) {
    return std::nullopt;
  }
  return grid_from(turn, 2, name);
}

// The best of one stage over every micro-batch that a layout of so many replicas of a width may have.
class OneStage {
 public:
  OneStage(const Question& quick, const char* name) : quick_(quick), best_(no_candidate(name, "")), name_(name) {}

  void look(int dp, int tp, const std::vector<StageVariant>& variants) {
    const std::int64_t of_replica = quick_.step.batch / dp;
    const std::vector<std::int64_t> sizes = replica_sizes(of_replica, quick_.profile(), kMostChosenMicroBatches);
    for (const StageVariant& variant : variants) {
      MoreMicroBatches more(false);
      for (const std::int64_t samples : sizes) {
        if (!more.worth_a_look(of_replica / samples)) break;
        if (quick_.request.stopped()) return;
        Layout layout;
        layout.dp = dp;
        layout.tp = tp;
        layout.micro_batch_size = samples;
        layout.variant = variant;
        layout.schedule = usual_schedule(*quick_.framework, 1);
        more.saw(take(layout));
      }
    }
  }
  Candidate best() { return std::move(best_); }

 private:
  // The step; kInfinity: it does not fit.
  double take(const Layout& layout) {
    Candidate one = no_candidate(name_, "");
    try {
      one = of_layout(quick_, layout, name_);
      if (layout.dp > 1) one.layout = layout.text();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kInfeasible) throw;
      one.why = e.what();
    }
    const bool better =
        one.found() ? !best_.found() || one.simulated_step_ms < best_.simulated_step_ms : !best_.found();
    const double step_ms = one.found() ? one.simulated_step_ms : kInfinity;
    if (better) best_ = std::move(one);
    return step_ms;
  }

  const Question& quick_;
  Candidate best_;
  const char* name_;
};

// One replica as wide as a server.
std::optional<Candidate> operators_split(const KindTurn& turn, const char* name) {
  const Question quick = quickly(turn.question);
  if (quick.profile().widths.empty()) return no_candidate(name, "no width splits anything of it");
  OneStage stage(quick, name);
  for (const pipeline::WidthColumns& columns : quick.profile().widths) stage.look(1, columns.width, at_zero(quick, 0));
  return stage.best();
}

// Replicas of several devices, as many as can share the batch.
std::optional<Candidate> tensor_and_data(const KindTurn& turn, const char* name) {
  const Question quick = quickly(turn.question);
  OneStage stage(quick, name);
  for (const pipeline::WidthColumns& columns : quick.profile().widths) {
    const int replicas = machine::replicas_of(quick.cluster, columns.width).num_devices();
    int dp = replicas;
    while (dp > 1 && quick.step.batch % dp != 0) --dp;
    if (dp > 1) stage.look(dp, columns.width, quick.options.variants);
  }
  Candidate best = stage.best();
  if (!best.found() && best.why.empty()) best.why = "no two replicas of several devices share the batch";
  return best;
}

bool knows_widths(const Question& question) {
  return !question.profile().widths.empty();
}
template <Schedule kSchedule>
bool wants(const Question& question) {
  return question.beside.wants(kSchedule);
}
bool wants_mixed_widths(const Question& question) {
  return question.beside.mixed_widths && !question.profile().widths.empty() && !question.step.equal_replicas &&
         !question.step.lone_replicas;
}

// Of parts that end at one of `ends`, ascending: the search sees one position for each, and its plan is counted on the
// instructions. Empty ends: anywhere.
std::optional<Candidate> best_cut_at(const KindTurn& turn, const EvenShape& shape, const char* name,
                                     std::vector<int> ends) {
  Question question = turn.question;
  const pipeline::Profile& profile = turn.question.profile();
  if (!ends.empty()) {
    ends.push_back(profile.size());
    question.set_profile(pipeline::coarse_profile(profile, ends));
  }
  std::optional<EvenChoice> best = best_even(question, turn.best.size.width, shape);
  if (!best) return std::nullopt;
  std::shared_ptr<const Problem> problem = std::move(best->problem);
  if (!ends.empty()) {
    for (int& cut : best->plan.cuts) cut = ends[at(cut - 1)];
    const pipeline::ProblemOptions options = problem->options();
    const StepSize size{problem->micro_batch_samples(), options.micro_batches, 0, options.group_size, options.width};
    problem = problem_of(turn.question, size, options);
    if (!feasible(*problem, best->plan)) return std::nullopt;
  }
  return candidate_of(name, std::move(problem), best->plan);
}

// Where the framework cuts parts of a stage's: in front of layers that hold variables, since those are the modules that
// its words name. Empty: anywhere.
std::vector<int> part_ends(const Question& question) {
  const pipeline::Profile& profile = question.profile();
  const auto holds = [&](int p0, int p1) {
    const auto begin = profile.w_bytes.begin();
    return std::any_of(begin + p0, begin + p1, [](double bytes) { return bytes > 0; });
  };
  const std::vector<int> all = framework_cuts(*question.framework, profile);
  std::vector<int> ends;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int next = i + 1 < all.size() ? all[i + 1] : profile.size();
    if (holds(0, all[i]) && holds(all[i], next)) ends.push_back(all[i]);
  }
  return ends;
}

// Where the framework cuts anywhere, whole layers are looked at, too: few places of which all are tried.
Candidate of_schedule(const KindTurn& turn, const EvenShape& shape, const char* name, const char* why_none) {
  const Question& question = turn.question;
  const pipeline::Profile& profile = question.profile();
  const bool anywhere = question.framework->cuts == FrameworkCuts::kInstructions;
  const std::vector<int> layers = anywhere ? layer_cuts(profile) : part_ends(question);
  if (layers.empty() && question.framework->cuts == FrameworkCuts::kStackLayers && !layer_cuts(profile).empty()) {
    return no_candidate(name, "the model is not one stack of layers");
  }
  std::optional<Candidate> best;
  if (!layers.empty()) best = best_cut_at(turn, shape, name, layers);
  if (anywhere || layers.empty()) {
    std::optional<Candidate> other = best_cut_at(turn, shape, name, {});
    if (other && (!best || other->simulated_step_ms < best->simulated_step_ms)) best = std::move(other);
  }
  return best ? *std::move(best) : no_candidate(name, why_none);
}

std::optional<Candidate> interleaved(const KindTurn& turn, const char* name) {
  return of_schedule(turn, {Schedule::kInterleaved, turn.question.beside.chunks, kLeastInterleavedStages}, name,
                     "no even groups of devices, three or more, can run it: the micro-batches have to be a multiple of "
                     "them");
}

template <Schedule kSchedule>
std::optional<Candidate> zero_bubble(const KindTurn& turn, const char* name) {
  const std::vector<StageVariant>& variants = turn.question.options.variants;
  if (std::none_of(variants.begin(), variants.end(), pipeline::splits_backward)) {
    return no_candidate(name,
                        "a backward in two passes is told for stages that recompute nothing and shard no gradients");
  }
  return of_schedule(turn, {kSchedule, {pipeline::shape_of(kSchedule)->chunks}, 2}, name,
                     !tells_weights_apart(turn.question.profile())
                         ? "what of the backward makes gradients of weights is not told apart here"
                     : kSchedule == Schedule::kZbV
                         ? "no even groups of devices, two or more, can run it within memory, with at least twice as "
                           "many micro-batches"
                         : "no even groups of devices, two or more, can run it within memory");
}

// The plan of one width as it stands, but that a backward goes first whenever one can.
std::optional<Candidate> eager(const KindTurn& turn, const char* name) {
  const Candidate& best = turn.best;
  if (best.num_stages() < 2) {
    if (turn.question.beside.only == Schedule::kEager) return no_candidate(name, "the best plan has one stage");
    return std::nullopt;
  }
  Plan plan = best.plan;
  plan.schedule = Schedule::kEager;
  plan.warmup = chosen_warmup(place(*best.problem, plan));
  const auto step_ms = [&] { return simulate_step_ms(place(*best.problem, plan)); };
  // As few in flight as a step so long needs, the last stage first: no stage has fewer than the one behind it.
  const double longest = step_ms() * (1 + pipeline::kWarmupSlack);
  for (std::size_t s = plan.warmup.size(); s-- > 0;) {
    int& k = plan.warmup[s];
    int low = s + 1 < plan.warmup.size() ? plan.warmup[s + 1] : 1;
    while (low < k) {
      const int most = k;
      k = low + (k - low) / 2;
      if (step_ms() <= longest) continue;
      low = k + 1;
      k = most;
    }
  }
  return candidate_of(name, best.problem, plan);
}

// Lists of work for a plan whose parts stand: the row of the schedule that it is of, if any, and what is searched.
class OrderSearch {
 public:
  OrderSearch(const KindTurn& turn, const char* name)
      : turn_(turn), work_(limits_of(turn.question.request)), best_(no_candidate(name, "")), name_(name) {}

  // Of a plan: linear, as a V and round robin, with the backward in one pass and in two.
  void look(const Candidate& one) {
    const std::shared_ptr<const Problem>& problem = one.problem;
    const Plan& plan = one.plan;
    const bool splits = turn_.question.beside.split_backward && can_split(*problem, plan);
    for (const bool split : {false, true}) {
      if (split && !splits) continue;
      Plan linear = plan;
      linear.split_backward = split;
      if (plan.chunks != 2) take(problem, linear);
      if (!alike(*problem, plan)) continue;
      for (const pipeline::Placement placement : {pipeline::Placement::kV, pipeline::Placement::kRoundRobin}) {
        Plan parts = plan;
        parts.split_backward = split;
        parts.chunks = 2;
        parts.placement = placement;
        const bool as_given = plan.chunks == 2 && placement == plan.placement;
        if (as_given || balance(one, &parts)) take(problem, parts);
      }
    }
  }
  Candidate best() {
    if (!best_.found() && best_.why.empty()) best_.why = "no order of several stages is shorter than the best plan's";
    return std::move(best_);
  }

 private:
  static WorkLimits limits_of(const PlanRequest& request) {
    WorkLimits limits = request.time_limits();
    if (request.effort.units < WorkLimits::kNoEnd) limits.units = request.effort.units / 2;
    return limits;
  }

  // Parts of about equal compute that end where the framework cuts.
  bool balance(const Candidate& one, Plan* parts) const {
    const Question& question = turn_.question;
    const int stages = one.num_stages();
    std::vector<int> ends = part_ends(question);
    if (ends.empty()) return balance_parts(*one.problem, stages, parts);
    ends.push_back(question.profile().size());
    Question coarse = question;
    coarse.set_profile(pipeline::coarse_profile(question.profile(), ends));
    if (!balance_parts(*problem_of(coarse, one.size, one.problem->options()), stages, parts)) return false;
    for (int& cut : parts->cuts) cut = ends[at(cut - 1)];
    return true;
  }

  static bool can_split(const Problem& problem, const Plan& plan) {
    for (int s = 1; s <= plan.num_stages(); ++s) {
      if (!splits_backward(problem.variant(plan.variant(s)))) return false;
    }
    return problem.weight_share(0, problem.num_instructions()) > 0;
  }

  static bool alike(const Problem& problem, const Plan& plan) {
    const int stages = plan.num_stages(), size = problem.num_devices() / stages;
    for (int s = 1; s < stages; ++s) {
      if (plan.device_cuts[at(s - 1)] != s * size || plan.variant(s) != plan.variant(s + 1)) return false;
    }
    return size * stages == problem.num_devices();
  }

  void take(const std::shared_ptr<const Problem>& problem, Plan plan) {
    if (work_.over()) return;
    const int micro_batches = problem->micro_batches();
    plan.schedule = Schedule::kSearched;
    plan.warmup.clear();
    plan.order = std::make_shared<const pipeline::WorkOrder>();
    const pipeline::PlacedPlan placed = place(*problem, plan);
    const pipeline::WorkTimes times = work_times(placed);
    const double others = turn_.question.beside.only ? kInfinity : shortest_so_far();
    const double hopeless = std::min(best_.found() ? best_.simulated_step_ms : kInfinity, others);
    if (!(any_order_bound_ms(times, micro_batches) < hopeless * (1 - kProvenGap))) return;
    pipeline::SearchedOrder found = search_order(times, micro_batches, named_orders(placed, times, own_warmup(plan)),
                                                 turn_.question.request.effort.order_tries, &work_);
    if (!(found.step_ms < hopeless)) return;
    keep_less(times, micro_batches, found);
    plan.order = std::make_shared<const pipeline::WorkOrder>(std::move(found.order));
    if (feasible(*problem, plan)) best_ = candidate_of(name_, problem, std::move(plan));
  }

  // In as little memory as a step hardly longer needs, by halves of what there is.
  void keep_less(const pipeline::WorkTimes& times, int micro_batches, pipeline::SearchedOrder& found) {
    if (!(*std::max_element(times.room_bytes.begin(), times.room_bytes.end()) < kInfinity)) return;
    const double longest = found.step_ms * (1 + pipeline::kWarmupSlack);
    const int tries = turn_.question.request.effort.order_tries / 4;
    // Room for what the order found keeps, and less.
    pipeline::WorkTimes narrow = times;
    for (std::size_t g = 0; g < narrow.room_bytes.size(); ++g) {
      narrow.room_bytes[g] = kept_at_most(found.order[g], times.stash_bytes, times.split_backward()).bytes;
    }
    const auto fits_in = [&](double share) {
      pipeline::WorkTimes less = narrow;
      for (double& room : less.room_bytes) room *= share;
      pipeline::SearchedOrder leaner = search_order(less, micro_batches, {}, tries, &work_);
      if (!(leaner.step_ms <= longest)) return false;
      found = std::move(leaner);
      return true;
    };
    double share = 1;
    while (!work_.over() && share > 1e-3 && fits_in(share / 2)) share /= 2;
    if (!work_.over()) fits_in(0.75 * share);
  }

  // That of the best alternating plan, where these are its stages.
  std::vector<int> own_warmup(const Plan& plan) const {
    const Candidate& best = turn_.best;
    return best.of_one_width() && best.plan.cuts == plan.cuts ? in_flight_of(best.placed) : std::vector<int>();
  }

  double shortest_so_far() const {
    double ms = turn_.best.simulated_step_ms;
    for (const Candidate& one : turn_.earlier) {
      if (one.ordered()) ms = std::min(ms, one.simulated_step_ms);
    }
    return ms;
  }

  // Those of the other rows of schedules that fit into memory.
  static std::vector<pipeline::WorkOrder> named_orders(const pipeline::PlacedPlan& placed,
                                                       const pipeline::WorkTimes& times,
                                                       const std::vector<int>& adaptive) {
    const int stages = placed.num_stages(), micro_batches = placed.problem().micro_batches();
    const Plan& plan = placed.plan;
    std::vector<pipeline::WorkOrder> orders;
    if (plan.chunks == 1 && !plan.split_backward) {
      orders.push_back(pipeline::alternating_order(most_in_flight(placed), micro_batches));
      if (adaptive.size() == at(stages)) orders.push_back(pipeline::alternating_order(adaptive, micro_batches));
    }
    for (const Schedule named : {Schedule::kInterleaved, Schedule::kZbH1, Schedule::kZbV}) {
      Plan as_named = plan;
      as_named.schedule = named;
      if (plan.chunks == 1 && named == Schedule::kInterleaved) continue;  // it is 1F1B
      if (!shape_expected(as_named).empty() || !micro_batches_fault(named, stages, micro_batches).empty()) continue;
      pipeline::PlacedPlan other = placed;
      other.plan = std::move(as_named);
      orders.push_back(order_of(other, times));
    }
    const auto too_large = [&](const pipeline::WorkOrder& order) {
      for (std::size_t g = 0; g < order.size(); ++g) {
        if (kept_at_most(order[g], times.stash_bytes, times.split_backward()).bytes > times.room_bytes[g]) return true;
      }
      return false;
    };
    orders.erase(std::remove_if(orders.begin(), orders.end(), too_large), orders.end());
    return orders;
  }

  const KindTurn& turn_;
  Work work_;
  Candidate best_;
  const char* name_;
};

std::optional<Candidate> searched_order(const KindTurn& turn, const char* name) {
  OrderSearch search(turn, name);
  bool several = turn.best.num_stages() > 1;
  if (several) search.look(turn.best);
  for (const Candidate& one : turn.earlier) {
    if (!one.ordered() || !one.of_one_width() || one.num_stages() < 2) continue;
    several = true;
    search.look(one);
  }
  if (several) return search.best();
  if (turn.question.beside.only == Schedule::kSearched) return no_candidate(name, "the best plans have one stage");
  return std::nullopt;
}

std::optional<Candidate> different_widths(const KindTurn& turn, const char* name) {
  std::optional<MixedChoice> best = best_mixed(turn.question, turn.best, turn.bounds);
  if (!best) return no_candidate(name, "no plan with stages of different widths was found");
  return candidate_of(name, std::shared_ptr<const pipeline::MixedProblem>(std::move(best->problem)), best->plan);
}

}  // namespace

const std::vector<KindRow>& uniform_kinds() {
  static const std::vector<KindRow> rows = {
      {"data parallel", always, plain_data_parallel, false},
      {"data parallel, ZeRO 1", always, sharded_optimizer, false},
      {kFullyShardedKind, always, fully_sharded, false},
      {"operators split, one replica", always, operators_split, false},
      {"tensor x data, one stage", knows_widths, tensor_and_data, false},
      {"pipeline (the paper's)", always, paper_pipeline, false},
      {kEvenGridKind, always, even_grid, false},
      {kSeveralStagesKind, always, grid_of_stages, false},
  };
  return rows;
}

const std::vector<KindRow>& beside_kinds() {
  static const std::vector<KindRow> rows = {
      {"interleaved 1F1B (even)", wants<Schedule::kInterleaved>, interleaved, false, Schedule::kInterleaved},
      {"zero bubble, ZB-H1 (even)", wants<Schedule::kZbH1>, zero_bubble<Schedule::kZbH1>, false, Schedule::kZbH1},
      {"zero bubble, ZB-V (even)", wants<Schedule::kZbV>, zero_bubble<Schedule::kZbV>, false, Schedule::kZbV},
      {"backward first (eager)", wants<Schedule::kEager>, eager, false, Schedule::kEager},
      {"searched order", wants<Schedule::kSearched>, searched_order, false, Schedule::kSearched},
      {"stages of different widths", wants_mixed_widths, different_widths, true},
  };
  return rows;
}

bool open_question(const Question& question) {
  const StepRequest& step = question.step;
  return !step.equal_replicas && !step.lone_replicas && step.micro_batch == 0 && step.micro_batches == 0;
}

}  // namespace automap::planners
