#include "plan/planners/kinds.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "plan/planners/even_search.h"
#include "plan/planners/layers.h"
#include "plan/planners/mixed_search.h"
#include "plan/planners/order_search.h"
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

// Searches plans with replicas of one device.
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

// Searches parts that end at one of `ends`, ascending: the search sees one position for each, and its plans are priced
// on the instructions. Empty ends: anywhere.
std::vector<EvenChoice> best_cut_at(const Question& asked, const std::vector<StepSize>& sizes, const EvenShape& shape,
                                    std::vector<int> ends) {
  if (ends.empty()) return best_even(asked, sizes, shape);
  Question question = asked;
  ends.push_back(asked.profile().size());
  question.set_profile(pipeline::coarse_profile(asked.profile(), ends));
  std::vector<EvenChoice> fitting;
  for (EvenChoice& one : best_even(question, sizes, shape)) {
    for (int& cut : one.plan.cuts) cut = ends[at(cut - 1)];
    one.problem = problem_of(asked, one.size, asked.options);
    one.simulated_step_ms = simulate_step_ms(place(*one.problem, one.plan));
    if (feasible(*one.problem, one.plan)) fitting.push_back(std::move(one));
  }
  return fitting;
}

// Splits whose parts are cut anywhere, of those that whole layers put first.
constexpr std::size_t kCutAnywhere = 4;

// Returns the best plan of the schedule; searched orders start from those nearly as good. If the framework cuts
// anywhere, whole layers are tried first, since they are few enough to try all.
Candidate of_schedule(const KindTurn& turn, const EvenShape& shape, const char* name, const char* why_none) {
  Question question = turn.question;
  drop_widths(shape.least_groups, question);
  const pipeline::Profile& profile = question.profile();
  const bool anywhere = question.framework->cuts == FrameworkCuts::kInstructions;
  const std::vector<int> layers = anywhere ? layer_cuts(profile) : part_ends(question);
  if (layers.empty() && question.framework->cuts == FrameworkCuts::kStackLayers && !layer_cuts(profile).empty()) {
    return no_candidate(name, "the model is not one stack of layers");
  }
  std::vector<StepSize> sizes = even_sizes(question);
  std::vector<EvenChoice> choices;
  if (!layers.empty()) {
    choices = best_cut_at(question, sizes, shape, layers);
    if (!choices.empty()) {
      sizes.clear();
      for (const EvenChoice& one : choices) {
        if (sizes.size() < kCutAnywhere) sizes.push_back(one.size);
      }
    }
  }
  if (anywhere || layers.empty()) {
    std::vector<EvenChoice> more = best_cut_at(question, sizes, shape, {});
    std::move(more.begin(), more.end(), std::back_inserter(choices));
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const EvenChoice& a, const EvenChoice& b) { return a.simulated_step_ms < b.simulated_step_ms; });
  std::optional<Candidate> best;
  for (const EvenChoice& one : choices) {
    Candidate plan = candidate_of(name, one.problem, one.plan);
    if (!expresses(*question.framework, plan, profile)) continue;
    if (best) {
      turn.starts.push_back(std::move(plan));
    } else {
      best = std::move(plan);
    }
  }
  if (best) return *std::move(best);
  // The caller says which property of the shortest plan the framework lacks.
  return choices.empty() ? no_candidate(name, why_none)
                         : candidate_of(name, choices.front().problem, choices.front().plan);
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

std::optional<Candidate> different_widths(const KindTurn& turn, const char* name) {
  std::optional<Candidate> best = best_mixed(name, turn.question, turn.best, turn.bounds);
  return best ? best : no_candidate(name, "no plan with stages of different widths was found");
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
