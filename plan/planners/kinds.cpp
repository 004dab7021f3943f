#include "plan/planners/kinds.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/coarse_profile.h"
#include "plan/planners/even_search.h"
#include "plan/planners/layers.h"
#include "plan/planners/mixed_search.h"
#include "plan/planners/score.h"
#include "plan/planners/step_choice.h"
#include "plan/planners/sweep.h"

namespace automap::planners {
namespace {

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
  request.min_stages = min_stages;
  request.schedules = quick.request.schedules;
  request.limits = quick.request.time_limits();
  const Sweep sweep = sweep_layouts(quick, request);
  const SweptLayout& best = sweep.layouts.front();
  if (best.missing_bytes > 0) return no_candidate(name, "no grid fits into memory");
  Candidate one = of_layout(quick, best.layout, name);
  one.layout = best.layout.text();
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
bool wants_chunks(const Question& question) {
  return !question.beside.chunks.empty();
}
bool wants_zero_bubble(const Question& question) {
  return question.beside.zero_bubble;
}
bool wants_mixed_widths(const Question& question) {
  return question.beside.mixed_widths && !question.profile().widths.empty() && !question.step.equal_replicas &&
         !question.step.lone_replicas;
}

// Where the framework cuts between layers the search sees one position for each, and its plan is counted on the
// instructions.
Candidate of_schedule(const KindTurn& turn, const EvenSchedule& schedule, const char* name, const char* why_none) {
  Question question = turn.question;
  const pipeline::Profile& profile = turn.question.profile();
  std::vector<int> ends;
  if (question.framework->cuts != FrameworkCuts::kInstructions) ends = framework_cuts(*question.framework, profile);
  if (ends.empty() && question.framework->cuts == FrameworkCuts::kStackLayers && !layer_cuts(profile).empty()) {
    return no_candidate(name, "the model is not one stack of layers");
  }
  if (!ends.empty()) {
    ends.push_back(profile.size());
    question.set_profile(pipeline::coarse_profile(profile, ends));
  }
  std::optional<EvenChoice> best = best_even(question, turn.best.size.width, schedule);
  if (!best) return no_candidate(name, why_none);
  std::shared_ptr<const pipeline::Problem> problem = std::move(best->problem);
  if (!ends.empty()) {
    for (int& cut : best->plan.cuts) cut = ends[at(cut - 1)];
    const pipeline::ProblemOptions options = problem->options();
    const StepSize size{problem->micro_batch_samples(), options.micro_batches, 0, options.group_size, options.width};
    problem = problem_of(turn.question, size, options);
    if (!even_feasible(*problem, best->plan)) return no_candidate(name, why_none);
  }
  return candidate_of(name, std::move(problem), best->plan);
}

std::optional<Candidate> interleaved(const KindTurn& turn, const char* name) {
  return of_schedule(turn, {turn.question.beside.chunks, false}, name,
                     "no even groups of devices, three or more, can run it: the micro-batches have to be a multiple of "
                     "them");
}

std::optional<Candidate> zero_bubble(const KindTurn& turn, const char* name) {
  const std::vector<double>& shares = turn.question.profile().weight_share;
  const bool known = std::any_of(shares.begin(), shares.end(), [](double share) { return share > 0; });
  return of_schedule(turn, {{1}, true}, name,
                     known ? "no even groups of devices, two or more, can run it within memory"
                           : "what of the backward makes gradients of weights is not told apart here");
}

std::optional<Candidate> different_widths(const KindTurn& turn, const char* name) {
  std::optional<MixedChoice> best = best_mixed(turn.question, turn.best, turn.bounds);
  if (!best) return no_candidate(name, "no plan with stages of different widths was found");
  return candidate_of(name, std::shared_ptr<const pipeline::MixedProblem>(std::move(best->problem)), best->plan);
}

}  // namespace

const std::vector<KindRow>& uniform_kinds() {
  static const std::vector<KindRow> rows = {
      {"data parallel", always, plain_data_parallel, false, nullptr},
      {"data parallel, ZeRO 1", always, sharded_optimizer, false, nullptr},
      {kFullyShardedKind, always, fully_sharded, false, nullptr},
      {"operators split, one replica", always, operators_split, false, nullptr},
      {"tensor x data, one stage", knows_widths, tensor_and_data, false, nullptr},
      {"pipeline (the paper's)", always, paper_pipeline, false, nullptr},
      {kEvenGridKind, always, even_grid, false, nullptr},
      {kSeveralStagesKind, always, grid_of_stages, false, nullptr},
  };
  return rows;
}

const std::vector<KindRow>& beside_kinds() {
  constexpr const char* kSchedule = "no plan of AutoMap has this schedule yet";
  static const std::vector<KindRow> rows = {
      {"interleaved 1F1B (even)", wants_chunks, interleaved, false, kSchedule},
      {"zero bubble, ZB-H1 (even)", wants_zero_bubble, zero_bubble, false, kSchedule},
      {"stages of different widths", wants_mixed_widths, different_widths, true, nullptr},
  };
  return rows;
}

bool open_question(const Question& question) {
  const StepRequest& step = question.step;
  return !step.equal_replicas && !step.lone_replicas && step.micro_batch == 0 && step.micro_batches == 0;
}

}  // namespace automap::planners
