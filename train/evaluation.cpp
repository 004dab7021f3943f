#include "train/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "common/base/cli.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/base/progress.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "models/features.h"
#include "models/flat_env.h"
#include "models/plan_space.h"
#include "models/policy_search.h"

namespace automap::train {
namespace {

using models::PlanSpace;
using models::Policy;
using pipeline::Objective;
using pipeline::Plan;
using pipeline::Problem;

constexpr double kOptimal = 1e-6;
// Draws per wanted problem before a set is left smaller: a configuration may have none of a kind.
constexpr std::uint64_t kDrawsPerProblem = 200;
constexpr int kLocalSearchEvaluations = 4000;

double thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

int stages_of(const TrainingProblem& problem, const Problem& prepared) {
  return std::min({problem.stages, models::kMaxStages, prepared.num_devices(), prepared.num_instructions()});
}

HeldOutSet set_of(int devices, int stages) {
  if (devices > 64) return HeldOutSet::kWide;
  if (stages > 8) return HeldOutSet::kDeep;
  return devices > 16 ? HeldOutSet::kMiddle : HeldOutSet::kSmall;
}

double length_of(const Problem& problem, const std::optional<Plan>& plan, Objective objective) {
  return plan ? pipeline::length_ms(problem, *plan, objective) : kInfinity;
}

// The flat network's greedy plan.
double flat_greedy_ms(const PlanSpace& space, const Policy& policy, const EvaluationOptions& options) {
  models::FlatEnv env(space, options.flat_input);
  std::vector<float> state(at(models::FlatEnv::state_size(options.flat_input)));
  std::vector<std::uint8_t> legal(at(models::FlatEnv::kActions));
  std::vector<float> q(legal.size());
  env.reset();
  while (!env.done()) {
    env.state(state.data());
    env.legal(legal.data());
    models::flat_q(policy, state.data(), q.data());
    int best = -1;
    for (int a = 0; a < models::FlatEnv::kActions; ++a) {
      if (legal[at(a)] && (best < 0 || q[at(a)] > q[at(best)])) best = a;
    }
    if (best < 0) break;
    env.step(best);
  }
  const double value_ms = env.value_ms();
  if (!std::isfinite(value_ms) || options.objective == Objective::kValue) return value_ms;
  return pipeline::simulate_step_ms(space.problem(), env.plan());
}

// A held-out problem made ready.
struct Ready {
  Ready(const ProblemSource& source, std::uint64_t index)
      : problem(source.problem(index)), prepared(problem.parts.problem()) {
    options.stages = stages_of(problem, prepared);
    options.schedule = problem.schedule;
    space = std::make_unique<PlanSpace>(prepared, options);
  }
  TrainingProblem problem;
  Problem prepared;
  models::PlanSpaceOptions options;
  std::unique_ptr<PlanSpace> space;
};

double searched_ms(const Ready& ready, const Policy* policy, int beam, const EvaluationOptions& options,
                   std::vector<Plan>* plans) {
  models::PolicySearchOptions search;
  search.beam = beam;
  search.objective = options.objective;
  const auto found = models::search_plan(*ready.space, policy, search);
  if (!found) return kInfinity;
  *plans = {found->plan};
  plans->insert(plans->end(), found->runners_up.begin(), found->runners_up.end());
  return pipeline::length_ms(ready.prepared, found->plan, options.objective);
}

double corridor_ms(const Ready& ready, const std::vector<Plan>& plans, const EvaluationOptions& options) {
  double best_ms = kInfinity;
  for (const Plan& plan : plans) {
    const Plan refined = pipeline::refine_in_corridor(ready.prepared, plan);
    // The corridor shortens V; the plan that came in stays when the simulation likes it better.
    best_ms = std::min({best_ms, pipeline::length_ms(ready.prepared, refined, options.objective),
                        pipeline::length_ms(ready.prepared, plan, options.objective)});
  }
  return best_ms;
}

using Row = std::vector<double>;

}  // namespace

const char* to_string(HeldOutSet set) {
  switch (set) {
    case HeldOutSet::kSmall: return "small";
    case HeldOutSet::kMiddle: return "middle";
    case HeldOutSet::kDeep: return "deep";
    case HeldOutSet::kWide: return "wide";
  }
  return "?";
}

Evaluation::Evaluation(std::shared_ptr<const ProblemSource> source, const EvaluationOptions& options, WorkerPool& pool,
                       const std::string& cache_path)
    : source_(std::move(source)), options_(options) {
  if (!cache_path.empty() && read_cache(cache_path)) return;
  const auto begin = std::chrono::steady_clock::now();
  choose();
  if (problems_.empty()) return;
  solve(pool);
  solved_s_ = seconds_since(begin);
  if (!cache_path.empty()) write_cache(cache_path);
}

void Evaluation::choose() {
  std::array<int, kHeldOutSets> wanted = options_.problems;
  int missing = 0;
  for (const int count : wanted) missing += count;
  std::uint64_t draws = kDrawsPerProblem * static_cast<std::uint64_t>(missing);
  // A dataset gives no row twice.
  if (source_->size() > 0) draws = std::min(draws, source_->size() - std::min(source_->size(), options_.first));
  next_ = options_.first;
  for (; next_ < options_.first + draws && missing > 0; ++next_) {
    const std::uint64_t i = next_;
    const TrainingProblem problem = source_->problem(i);
    const int devices = problem.parts.cluster.num_devices();
    const int stages = std::min({problem.stages, devices, static_cast<int>(problem.parts.profile.size())});
    // With two stages a policy has no choice: the last boundary is chosen exactly.
    if (stages < 3) continue;
    int& left = wanted[static_cast<std::size_t>(set_of(devices, stages))];
    if (left == 0) continue;
    --left;
    --missing;
    HeldOut held;
    held.index = i;
    held.set = set_of(devices, stages);
    held.family = problem.family;
    problems_.push_back(held);
  }
  if (problems_.empty() && !options_.may_be_empty) {
    throw Error(ErrorKind::kData, source_->fingerprint() + ": no problem of three or more stages to evaluate on",
                "choose data with more stages, or other --evaluate-data");
  }
}

void Evaluation::solve(WorkerPool& pool) {
  const std::string beam = std::to_string(options_.beam);
  const std::vector<std::string> names = {"rollouts",
                                          "rollouts beam " + beam,
                                          "rollouts beam " + beam + " + corridor",
                                          "random weights, beam " + beam + " + corridor",
                                          "balanced",
                                          "local search"};
  const Policy random_weights = models::untrained_policy(1);
  std::vector<Row> lengths(problems_.size()), times(problems_.size());
  std::vector<std::uint8_t> feasible(problems_.size(), 1);
  std::optional<Progress> progress;
  if (options_.show_progress) progress.emplace("held-out problems", problems_.size(), "problems");
  pool.start(problems_.size(), [&](std::size_t i) {
    if (StopToken::stop_requested())
      throw Error(ErrorKind::kStopped, "stopped while the held-out problems were solved");
    HeldOut& held = problems_[i];
    const Ready ready(*source_, held.index);
    Row& row = lengths[i];
    Row& time = times[i];
    double before = thread_cpu_ms();
    const auto add = [&](double ms) {
      row.push_back(ms);
      const double now = thread_cpu_ms();
      time.push_back(now - before);
      before = now;
    };
    std::vector<Plan> plans, beam_plans;
    add(searched_ms(ready, nullptr, 1, options_, &plans));
    add(searched_ms(ready, nullptr, options_.beam, options_, &beam_plans));
    add(corridor_ms(ready, beam_plans, options_));
    time.back() += time[time.size() - 2];
    std::vector<Plan> random_plans;
    searched_ms(ready, &random_weights, options_.beam, options_, &random_plans);
    add(corridor_ms(ready, random_plans, options_));
    const int stages = ready.options.stages;
    const pipeline::Schedule schedule = ready.options.schedule;
    add(length_of(ready.prepared, pipeline::balanced_plan(ready.prepared, stages, schedule, options_.objective),
                  options_.objective));
    pipeline::LocalSearchOptions local;
    local.stages = stages;
    local.schedule = schedule;
    local.objective = options_.objective;
    local.max_evaluations = kLocalSearchEvaluations;
    add(length_of(ready.prepared, pipeline::local_search_plan(ready.prepared, local), options_.objective));

    std::optional<Plan> optimum = ready.problem.optimum;
    held.proven = optimum.has_value();
    if (!optimum && options_.exact) {
      pipeline::ExactOptions exact;
      exact.min_stages = exact.max_stages = stages;
      exact.schedule = schedule;
      long long looks = 0;
      WorkLimits limits = WorkLimits::until([this, &looks] {
        return (options_.exact_looks > 0 && ++looks > options_.exact_looks) || StopToken::stop_requested();
      });
      if (options_.exact_looks == 0) limits.seconds = options_.exact_s;
      Work work(std::move(limits));
      exact.work = &work;
      // The V of a known plan shortens the proof, whatever the objective.
      if (!beam_plans.empty())
        exact.upper_bound_ms = pipeline::value_ms(ready.prepared, beam_plans.front()) * (1 + 1e-9);
      const pipeline::ExactResult result = pipeline::solve_exact(ready.prepared, exact);
      if (!result.by_stages.empty()) {
        const pipeline::ExactStageResult& stage = result.by_stages.front();
        held.proven = stage.proven;
        if (!stage.plans.empty()) optimum = stage.plans.front();
        if (stage.proven && stage.plans.empty() && !beam_plans.empty()) optimum = beam_plans.front();
      }
    }
    held.reference_ms = length_of(ready.prepared, optimum, options_.objective);
    if (!held.proven) {
      for (const double ms : row) held.reference_ms = std::min(held.reference_ms, ms);
    }
    feasible[i] = std::isfinite(held.reference_ms) ? held.reference_ms > 0 : !options_.exact;
    if (progress) progress->update(pool.done());
  });
  pool.wait();
  progress.reset();
  if (StopToken::stop_requested()) throw Error(ErrorKind::kStopped, "stopped while the held-out problems were solved");

  // Problems without any plan say nothing about a planner.
  baselines_.clear();
  for (const std::string& name : names) baselines_.push_back({name, {}, 0});
  std::vector<HeldOut> kept;
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    if (!feasible[i]) continue;
    kept.push_back(problems_[i]);
    for (std::size_t b = 0; b < names.size(); ++b) {
      baselines_[b].length_ms.push_back(lengths[i][b]);
      baselines_[b].planning_ms += times[i][b];
    }
  }
  problems_ = std::move(kept);
  if (problems_.empty()) {
    if (options_.may_be_empty) return;
    throw Error(ErrorKind::kData, source_->fingerprint() + ": none of the held-out problems has a feasible plan",
                "loosen the memory limits of the data");
  }
  for (PlannerLengths& b : baselines_) b.planning_ms /= static_cast<double>(problems_.size());
}

std::vector<PlannerLengths> Evaluation::plan(const Policy& policy, WorkerPool& pool) const {
  const std::string beam = "beam " + std::to_string(options_.beam);
  std::vector<PlannerLengths> out = {{"greedy", {}, 0}};
  if (!options_.flat) {
    out.push_back({beam, {}, 0});
    out.push_back({beam + " + corridor", {}, 0});
  }
  const std::size_t planners = out.size();
  std::vector<Row> lengths(problems_.size(), Row(planners)), times(problems_.size(), Row(planners));
  pool.start(problems_.size(), [&](std::size_t i) {
    const Ready ready(*source_, problems_[i].index);
    Row& row = lengths[i];
    Row& time = times[i];
    double before = thread_cpu_ms();
    const auto lap = [&] {
      const double now = thread_cpu_ms();
      return now - std::exchange(before, now);
    };
    std::vector<Plan> plans;
    row[0] = options_.flat ? flat_greedy_ms(*ready.space, policy, options_)
                           : searched_ms(ready, &policy, 1, options_, &plans);
    time[0] = lap();
    if (planners == 1) return;
    plans.clear();
    row[1] = searched_ms(ready, &policy, options_.beam, options_, &plans);
    time[1] = lap();
    row[2] = corridor_ms(ready, plans, options_);
    time[2] = time[1] + lap();
  });
  pool.wait();
  for (std::size_t p = 0; p < planners; ++p) {
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      out[p].length_ms.push_back(lengths[i][p]);
      out[p].planning_ms += times[i][p] / static_cast<double>(problems_.size());
    }
  }
  return out;
}

std::vector<double> Evaluation::gaps(const PlannerLengths& lengths) const {
  std::vector<double> out;
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    const double length = lengths.length_ms[i], reference = problems_[i].reference_ms;
    // Where no reference plan is known, any plan is the best.
    const bool first_plan = !std::isfinite(reference) && std::isfinite(length);
    out.push_back(first_plan ? 0 : counted_gap(length / reference - 1));
  }
  return out;
}

Quality Evaluation::quality(const PlannerLengths& lengths, int set, int family) const {
  Quality out;
  std::vector<double> counted;
  const std::vector<double> all = gaps(lengths);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (set >= 0 && static_cast<int>(problems_[i].set) != set) continue;
    if (family >= 0 && problems_[i].family != family) continue;
    ++out.problems;
    if (!problems_[i].proven) ++out.unproven;
    if (!std::isfinite(lengths.length_ms[i])) ++out.failed;
    counted.push_back(all[i]);
  }
  if (counted.empty()) return out;
  // The mean is taken before sorting, so that it is score() to the last digit.
  out.mean = mean_of(counted);
  std::sort(counted.begin(), counted.end());
  const auto at = [&](double share) {
    return counted[std::min(counted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(counted.size())))];
  };
  out.median = at(0.5);
  out.p95 = at(0.95);
  out.max = counted.back();
  const auto optimal = std::count_if(counted.begin(), counted.end(), [](double gap) { return gap <= kOptimal; });
  out.optimal = static_cast<double>(optimal) / static_cast<double>(counted.size());
  return out;
}

std::string Evaluation::fingerprint() const {
  std::string text = "2 " + source_->fingerprint() + " " + std::to_string(options_.beam) + " " +
                     pipeline::to_string(options_.objective);
  for (const int count : options_.problems) text += " " + std::to_string(count);
  return text;
}

bool Evaluation::read_cache(const std::string& path) {
  if (!std::filesystem::exists(path)) return false;
  try {
    const auto document = Json::parse(read_own_file(path));
    if (document.at("made_for").get<std::string>() != fingerprint()) return false;
    std::vector<HeldOut> problems;
    for (const auto& p : document.at("problems")) {
      HeldOut held;
      held.index = p.at("index").get<std::uint64_t>();
      const int set = p.at("set").get<int>();
      if (set < 0 || set >= kHeldOutSets) return false;
      held.set = static_cast<HeldOutSet>(set);
      held.family = p.at("family").get<int>();
      held.reference_ms = p.at("reference_ms").get<double>();
      held.proven = p.at("proven").get<bool>();
      problems.push_back(held);
    }
    std::vector<PlannerLengths> baselines;
    for (const auto& b : document.at("baselines")) {
      PlannerLengths lengths;
      lengths.planner = b.at("planner").get<std::string>();
      lengths.planning_ms = b.at("planning_ms").get<double>();
      for (const auto& ms : b.at("length_ms")) lengths.length_ms.push_back(ms.is_null() ? kInfinity : ms.get<double>());
      if (lengths.length_ms.size() != problems.size()) return false;
      baselines.push_back(std::move(lengths));
    }
    if (problems.empty()) return false;
    if (document.contains("solved_s")) solved_s_ = document.at("solved_s").get<double>();
    problems_ = std::move(problems);
    baselines_ = std::move(baselines);
    return true;
  } catch (const JsonError&) {
    log_warning(path + " cannot be read, the held-out problems are solved again");
    return false;
  }
}

void Evaluation::write_cache(const std::string& path) const {
  Json document = Json::object();
  document["made_for"] = fingerprint();
  document["solved_s"] = solved_s_;
  auto& problems = document["problems"] = Json::array();
  for (const HeldOut& held : problems_) {
    problems.push_back({{"index", held.index},
                        {"set", static_cast<int>(held.set)},
                        {"family", held.family},
                        {"reference_ms", held.reference_ms},
                        {"proven", held.proven}});
  }
  auto& baselines = document["baselines"] = Json::array();
  for (const PlannerLengths& b : baselines_) {
    // JSON has no infinity: no plan is null.
    Json lengths = Json::array();
    for (const double ms : b.length_ms) lengths.push_back(std::isfinite(ms) ? Json(ms) : nullptr);
    baselines.push_back({{"planner", b.planner}, {"planning_ms", b.planning_ms}, {"length_ms", lengths}});
  }
  write_file_atomic(path, document.dump(1) + "\n");
}

void check_searchable(const models::Policy& policy, const std::string& path) {
  const models::Architecture& a = policy.architecture();
  if (a.family == models::Family::kAfterState && a.features == models::kFeatures &&
      a.feature_version == models::kFeatureVersion) {
    return;
  }
  if (a.family == models::Family::kFlat) {
    throw Error(ErrorKind::kData, path + ": a flat network; the searches need an after-state policy");
  }
  throw Error(ErrorKind::kData,
              path + ": made for features version " + std::to_string(a.feature_version) + " with " +
                  std::to_string(a.features) + " numbers, this program has version " +
                  std::to_string(models::kFeatureVersion) + " with " + std::to_string(models::kFeatures),
              "train it again with this program");
}

}  // namespace automap::train
