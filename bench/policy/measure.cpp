#include "bench/policy/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/rng.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/exact_program.h"
#include "models/features.h"
#include "models/policy_search.h"

namespace automap::bench {

using machine::Cluster;
using pipeline::ExactOptions;
using pipeline::ExactResult;
using pipeline::ExactStageResult;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Profile;
using pipeline::Schedule;

namespace {

constexpr const char* kCacheSchema = "automap.bench.answers/2";
constexpr double kSaveEverySeconds = 60;
constexpr std::string_view kUntrained = "untrained:";
// The corridor of automap-infer --refine.
constexpr int kPivotRadius = 8, kDeviceRadius = 2;
constexpr int kCoarseStride = 4;
// The coarse exact solver is an opponent, not a proof: what takes longer than this is no quick planner.
constexpr double kCoarseLimitSeconds = 10;
constexpr double kBoundSeconds = 5;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double thread_cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

WorkLimits cpu_limit(double ms) {
  const double end = thread_cpu_ms() + ms;
  return WorkLimits::until([end] { return thread_cpu_ms() >= end; });
}

double load_average() {
  double load[1] = {0};
  return getloadavg(load, 1) == 1 ? load[0] : 0;
}

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < count && !failed && !StopToken::stop_requested(); i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads && static_cast<std::size_t>(t) < count; ++t) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

std::string fingerprint(const Problem& problem, const Profile& profile, const Cluster& cluster,
                        const std::vector<int>& pivots, const std::string& what) {
  std::string bytes;
  const auto add = [&bytes](const void* data, std::size_t size) {
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes.append(static_cast<const char*>(data), size);
  };
  const auto add_column = [&add](const std::vector<double>& column) {
    add(column.data(), column.size() * sizeof(double));
  };
  for (const std::vector<double>* column :
       {&profile.c_ms, &profile.a_bytes, &profile.w_bytes, &profile.stash_bytes, &profile.gradient_bytes,
        &profile.slot_bytes, &profile.frozen_bytes, &profile.workspace_bytes}) {
    add_column(*column);
  }
  for (const pipeline::DeviceTimes& times : profile.times) {
    add(times.device.data(), times.device.size());
    add_column(times.samples);
    for (const std::vector<double>& column : times.forward_ms) add_column(column);
    for (const std::vector<double>& column : times.backward_ms) add_column(column);
    add_column(times.optimizer_ms);
  }
  for (const pipeline::SharedWeight& shared : profile.shared) {
    const double parts[] = {static_cast<double>(shared.first), static_cast<double>(shared.position),
                            shared.weight_bytes, shared.gradient_bytes, shared.slot_bytes};
    add(parts, sizeof parts);
  }
  for (const std::string& layer : profile.layer) add(layer.data(), layer.size());
  Cluster nameless = cluster;
  nameless.name = "cluster";
  const std::string machines = machine::to_json_text(nameless);
  add(machines.data(), machines.size());
  const pipeline::ProblemOptions& options = problem.options();
  const double numbers[] = {profile.forward_fraction,
                            static_cast<double>(options.micro_batches),
                            options.memory ? 1.0 : 0.0,
                            options.state_factor_or_default(),
                            options.allow_empty_stages ? 1.0 : 0.0,
                            static_cast<double>(options.value),
                            static_cast<double>(options.replicas),
                            problem.micro_batch_samples(),
                            problem.profile_samples(),
                            options.memory_reserve,
                            options.state_factor ? 1.0 : 0.0,
                            options.allow_idle_stages ? 1.0 : 0.0,
                            static_cast<double>(options.gradient_sync),
                            options.bucket_bytes,
                            options.optimizer ? 1.0 : 0.0,
                            static_cast<double>(options.group_size),
                            options.behind_backward ? 1.0 : 0.0};
  add(numbers, sizeof numbers);
  for (const pipeline::StageVariant& variant : options.variants) {
    add(&variant.zero, sizeof variant.zero);
    add(&variant.recompute, sizeof variant.recompute);
  }
  add(pivots.data(), pivots.size() * sizeof(int));
  add(what.data(), what.size());
  return sha256_hex(bytes).substr(0, 32);
}

AnswerCache::AnswerCache(std::string path) : path_(std::move(path)) {
  if (path_.empty() || !std::filesystem::exists(path_)) return;
  const std::string text = read_own_file(path_);
  int line = 0;
  const auto refuse = [&](const std::string& found) {
    throw Error(ErrorKind::kData,
                path_ + ":" + std::to_string(line) + ": " + found + ", expected a file of " + kCacheSchema,
                "give another --cache, or remove this one");
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    ++line;
    const Json entry = Json::parse_or_null(std::string_view(text).substr(at, end - at));
    if (line == 1) {
      if (!entry.is_object() || entry.value("schema", Json()) != kCacheSchema) refuse("another kind of file");
    } else {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string()) refuse("a damaged line");
      answers_[entry[0].get<std::string>()] = entry[1];
    }
    at = end + 1;
  }
}

std::optional<Json> AnswerCache::find(const std::string& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = answers_.find(key);
  return found == answers_.end() ? std::nullopt : std::optional<Json>(found->second);
}

void AnswerCache::put(const std::string& key, Json answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answers_[key] = std::move(answer);
  ++unsaved_;
  if (now_s() - saved_at_s_ > kSaveEverySeconds) write();
}

void AnswerCache::save() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unsaved_ > 0) write();
}

void AnswerCache::write() {
  saved_at_s_ = now_s();
  unsaved_ = 0;
  if (path_.empty()) return;
  std::string text = Json({{"schema", kCacheSchema}}).dump() + "\n";
  for (const auto& [key, answer] : answers_) text += Json::array({key, answer}).sorted().dump() + "\n";
  write_file_atomic(path_, text);
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

namespace {

Json to_json(const Solved& solved, double limit_s) {
  Json stages = Json::array();
  for (const Optimum& one : solved.by_stages) {
    const std::vector<int> variants(one.plan.variants.begin(), one.plan.variants.end());
    stages.push_back({one.stages, one.proven, number(one.value_ms), number(one.bound_ms), one.plan.cuts,
                      one.plan.device_cuts, variants});
  }
  return {{"stages", std::move(stages)}, {"cpu_ms", solved.cpu_ms}, {"limit_s", number(limit_s)}};
}

Solved from_json(const Json& answer, Schedule schedule) {
  Solved solved;
  solved.cpu_ms = answer.at("cpu_ms").get<double>();
  for (const Json& row : answer.at("stages")) {
    Optimum one;
    one.stages = row.at(0).get<int>();
    one.proven = row.at(1).get<bool>();
    if (!row.at(2).is_null()) one.value_ms = row.at(2).get<double>();
    one.bound_ms = row.at(3).is_null() ? kInfinity : row.at(3).get<double>();
    row.at(4).get_to(one.plan.cuts);
    row.at(5).get_to(one.plan.device_cuts);
    for (const Json& variant : row.at(6)) one.plan.variants.push_back(static_cast<std::uint8_t>(variant.get<int>()));
    one.plan.schedule = schedule;
    solved.by_stages.push_back(std::move(one));
  }
  return solved;
}

bool all_proven(const Solved& solved) {
  return std::all_of(solved.by_stages.begin(), solved.by_stages.end(), [](const Optimum& one) { return one.proven; });
}

}  // namespace

Solved solve(AnswerCache& cache, const std::string& key, const Problem& problem, const std::vector<int>& pivots,
             Schedule schedule, int first, int last, double limit_s) {
  if (const auto answer = cache.find(key)) {
    try {
      Solved solved = from_json(*answer, schedule);
      const Json& had = answer->at("limit_s");
      if (all_proven(solved) || had.is_null() || had.get<double>() >= limit_s) return solved;
    } catch (const JsonError&) {
      throw Error(ErrorKind::kData, "the cache's answer " + key + " is damaged", "remove the cache file");
    }
  }
  ExactOptions options;
  options.min_stages = first;
  options.max_stages = last;
  options.schedule = schedule;
  options.pivots = pivots;
  WorkLimits limits = WorkLimits::until(StopToken::stop_requested);
  limits.seconds = limit_s;
  Work work(std::move(limits));
  options.work = &work;
  const double start = thread_cpu_ms();
  const ExactResult result = pipeline::solve_exact(problem, options);
  Solved solved;
  solved.cpu_ms = thread_cpu_ms() - start;
  for (const ExactStageResult& stage : result.by_stages) {
    Optimum one;
    one.stages = stage.stages;
    one.proven = stage.proven;
    if (!stage.plans.empty()) {
      one.plan = stage.plans.front();
      one.value_ms = stage.value_ms.front();
    }
    one.bound_ms = stage.proven ? one.value_ms : stage.lower_bound_ms;
    const bool every_cut = pivots.size() + 1 == static_cast<std::size_t>(problem.num_instructions());
    if (!stage.proven && every_cut && stage.stages > 1 && !StopToken::stop_requested()) {
      Work for_bound(WorkLimits::of_seconds(kBoundSeconds));
      const pipeline::LowerBound bound =
          pipeline::lower_bound_all_cuts(problem, {schedule}, stage.stages, stage.stages, one.value_ms, for_bound);
      one.bound_ms = std::max(one.bound_ms, bound.ms);
    }
    solved.by_stages.push_back(std::move(one));
  }
  if (!StopToken::stop_requested()) cache.put(key, to_json(solved, limit_s));
  return solved;
}

std::vector<Candidate> load_policies(const std::vector<std::string>& paths) {
  std::vector<Candidate> candidates;
  for (const std::string& path : paths) {
    if (path.compare(0, kUntrained.size(), kUntrained) != 0) {
      candidates.push_back({path, models::Policy::load(path)});
      continue;
    }
    char* end = nullptr;
    const std::uint64_t seed = std::strtoull(path.c_str() + kUntrained.size(), &end, 10);
    if (end == path.c_str() + kUntrained.size() || *end != '\0') {
      throw Error(ErrorKind::kUsage, "'" + path + "' is no policy", "untrained:1 is an untrained network of seed 1");
    }
    candidates.push_back({path, models::untrained_policy(seed)});
  }
  return candidates;
}

void refuse_seed(const std::vector<Candidate>& candidates, std::uint64_t seed) {
  for (const Candidate& candidate : candidates) {
    const Json made = Json::parse_or_null(candidate.policy.provenance());
    if (!made.is_object()) continue;
    const Json trained = made.value("seed", Json());
    if (trained.is_number_integer() && trained.get<std::uint64_t>() == seed) {
      throw Error(ErrorKind::kUsage,
                  candidate.path + " was trained with seed " + std::to_string(seed) +
                      ", the problems' own: it may have seen them",
                  "give another --seed");
    }
  }
}

const std::vector<Method>& all_methods() {
  using Kind = Method::Kind;
  static const std::vector<Method> methods = {
      {"policy greedy bare", Kind::kPolicy, 1, false, false},
      {"policy greedy", Kind::kPolicy, 1, false, true},
      {"policy beam 4", Kind::kPolicy, 4, false, true},
      {"policy beam 16", Kind::kPolicy, 16, false, true},
      {"policy beam 16 + corridor", Kind::kPolicy, 16, true, true},
      {"rollouts greedy", Kind::kRollouts, 1, false, true},
      {"rollouts beam 4", Kind::kRollouts, 4, false, true},
      {"rollouts beam 16", Kind::kRollouts, 16, false, true},
      {"rollouts beam 32", Kind::kRollouts, 32, false, true},
      {"rollouts beam 16 + corridor", Kind::kRollouts, 16, true, true},
      {"rollouts beam 32 + corridor", Kind::kRollouts, 32, true, true},
      {"coarse exact + corridor", Kind::kCoarseExact, 0, true, true},
      {"local search equal time", Kind::kLocalSearch, 0, false, true},
      {"local search equal time + corridor", Kind::kLocalSearch, 0, true, true},
      {"local search 30 ms", Kind::kLocalSearch, 30, false, true},
      {"balanced", Kind::kBalanced, 0, false, true},
      {"uniform", Kind::kUniform, 0, false, true},
  };
  return methods;
}

std::vector<Contender> contenders(const std::vector<Candidate>& candidates, const std::vector<std::string>& wanted) {
  const std::vector<Method>& methods = all_methods();
  for (const std::string& name : wanted) {
    if (std::none_of(methods.begin(), methods.end(), [&](const Method& method) { return name == method.name; })) {
      std::string known;
      for (const Method& method : methods) known += std::string(known.empty() ? "" : "; ") + method.name;
      throw Error(ErrorKind::kUsage, "no method is called '" + name + "'", "the methods: " + known);
    }
  }
  std::vector<Contender> found;
  for (const Method& method : methods) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), method.name) == wanted.end()) continue;
    if (method.kind != Method::Kind::kPolicy) {
      found.push_back({&method, -1});
      continue;
    }
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const bool flat = candidates[i].policy.architecture().family == models::Family::kFlat;
      if (!flat || method.width == 1) found.push_back({&method, static_cast<int>(i)});
    }
  }
  return found;
}

namespace {

// The planners of one subject; searches that differ only in the corridor behind them run once.
class Contest {
 public:
  Contest(const Subject& subject, const std::vector<Candidate>& candidates)
      : subject_(subject), problem_(*subject.problem), candidates_(candidates) {}

  Outcome run(const Method& method, int candidate) {
    Outcome outcome = search(method, candidate);
    if (!method.corridor || outcome.value_ms == kInfinity) return outcome;
    const double start = thread_cpu_ms();
    Work without_end;
    std::vector<Plan> plans = std::move(outcome.runners_up);
    plans.insert(plans.begin(), outcome.plan);
    for (Plan& plan : plans) {
      plan = pipeline::internal::refine_on_pivots(problem_, std::move(plan), subject_.pivots, kPivotRadius,
                                                  kDeviceRadius, without_end);
      const double value_ms = pipeline::value_ms(problem_, plan);
      if (!(value_ms < outcome.value_ms)) continue;
      outcome.value_ms = value_ms;
      outcome.plan = std::move(plan);
    }
    outcome.cpu_ms += thread_cpu_ms() - start;
    return outcome;
  }

 private:
  using Key = std::tuple<int, int, bool, int>;

  const Outcome& search(const Method& method, int candidate) {
    const Key key{static_cast<int>(method.kind), method.width, method.rollouts_count, candidate};
    const auto known = searched_.find(key);
    if (known != searched_.end()) return known->second;
    return searched_.emplace(key, make(method, candidate)).first->second;
  }

  Outcome make(const Method& method, int candidate) {
    using Kind = Method::Kind;
    // Preparations, before the measured part begins.
    double local_search_ms = method.width;
    if (method.kind == Kind::kLocalSearch && local_search_ms == 0) local_search_ms = equal_time_ms();
    const bool in_space = method.kind == Kind::kPolicy || method.kind == Kind::kRollouts;
    if (in_space) make_space();
    const double start = thread_cpu_ms();
    std::optional<Plan> plan;
    std::vector<Plan> runners_up;
    switch (method.kind) {
      case Kind::kPolicy:
        plan = policy_plan(method, &candidates_[static_cast<std::size_t>(candidate)].policy, runners_up);
        break;
      case Kind::kRollouts: plan = policy_plan(method, nullptr, runners_up); break;
      case Kind::kCoarseExact: plan = coarse_plan(); break;
      case Kind::kLocalSearch: {
        pipeline::LocalSearchOptions options;
        options.stages = subject_.stages;
        options.schedule = subject_.schedule;
        options.max_evaluations = std::numeric_limits<int>::max();
        Work work(cpu_limit(local_search_ms));
        options.work = &work;
        plan = pipeline::local_search_plan(problem_, options);
        break;
      }
      case Kind::kBalanced: plan = pipeline::balanced_plan(problem_, subject_.stages, subject_.schedule); break;
      case Kind::kUniform: plan = pipeline::uniform_plan(problem_, subject_.stages, subject_.schedule); break;
    }
    Outcome outcome;
    outcome.cpu_ms = thread_cpu_ms() - start + (in_space ? space_ms_ : 0);
    if (plan) {
      // Nobody's word is taken for it.
      if (!pipeline::feasible(problem_, *plan)) {
        throw Error(ErrorKind::kInternal, std::string(method.name) + " gave an infeasible plan: " +
                                              pipeline::infeasible_reason(problem_, *plan));
      }
      outcome.value_ms = pipeline::value_ms(problem_, *plan);
      outcome.plan = *std::move(plan);
      outcome.runners_up = std::move(runners_up);
    }
    return outcome;
  }

  void make_space() {
    if (space_) return;
    const double start = thread_cpu_ms();
    models::PlanSpaceOptions options;
    options.stages = subject_.stages;
    options.schedule = subject_.schedule;
    options.pivots = subject_.pivots;
    space_ = std::make_unique<models::PlanSpace>(problem_, options);
    space_ms_ = thread_cpu_ms() - start;
  }

  std::optional<Plan> policy_plan(const Method& method, const models::Policy* policy, std::vector<Plan>& runners_up) {
    if (!space_->possible()) return std::nullopt;
    if (policy != nullptr && policy->architecture().family == models::Family::kFlat) return flat_plan(*space_, *policy);
    models::PolicySearchOptions options;
    options.beam = method.width;
    options.rollouts_count = method.rollouts_count;
    std::optional<models::FoundPlan> found = models::search_plan(*space_, policy, options);
    if (!found) return std::nullopt;
    runners_up = std::move(found->runners_up);
    return std::move(found->plan);
  }

  // Every 4th pivot; where that leaves no plan, every 2nd, then all.
  std::optional<Plan> coarse_plan() const {
    for (int stride = kCoarseStride; stride >= 1; stride /= 2) {
      ExactOptions options;
      options.min_stages = options.max_stages = subject_.stages;
      options.schedule = subject_.schedule;
      for (std::size_t i = static_cast<std::size_t>(stride) - 1; i < subject_.pivots.size();
           i += static_cast<std::size_t>(stride)) {
        options.pivots.push_back(subject_.pivots[i]);
      }
      if (options.pivots.size() + 1 < static_cast<std::size_t>(subject_.stages)) continue;
      Work work(WorkLimits::of_seconds(kCoarseLimitSeconds));
      options.work = &work;
      const ExactResult result = pipeline::solve_exact(problem_, options);
      if (const ExactStageResult* best = result.best()) return best->plans.front();
    }
    return std::nullopt;
  }

  // Processor time of beam 16 + corridor: the mean over the policies, or that of the rollouts when there are none.
  double equal_time_ms() {
    const auto method = [](Method::Kind kind) {
      for (const Method& one : all_methods()) {
        if (one.kind == kind && one.width == 16 && one.corridor) return &one;
      }
      return static_cast<const Method*>(nullptr);
    };
    double sum = 0;
    int count = 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].policy.architecture().family == models::Family::kFlat) continue;
      sum += run(*method(Method::Kind::kPolicy), static_cast<int>(i)).cpu_ms;
      ++count;
    }
    return count > 0 ? sum / count : run(*method(Method::Kind::kRollouts), -1).cpu_ms;
  }

  const Subject& subject_;
  const Problem& problem_;
  const std::vector<Candidate>& candidates_;
  std::unique_ptr<models::PlanSpace> space_;
  double space_ms_ = 0;
  std::map<Key, Outcome> searched_;
};

}  // namespace

std::vector<Outcome> run_all(const Subject& subject, const std::vector<Candidate>& candidates,
                             const std::vector<Contender>& contenders) {
  Contest contest(subject, candidates);
  std::vector<Outcome> outcomes;
  for (const Contender& contender : contenders) outcomes.push_back(contest.run(*contender.method, contender.candidate));
  return outcomes;
}

std::vector<std::string> families_in(const datagen::Generator& generator) {
  const Json config = Json::parse(generator.config_json());
  std::vector<std::string> names;
  for (const std::string& name : generator.distributions()) {
    const Json weight = config.at("families").value(name, Json::object()).value("weight", Json(0));
    if (weight.is_number() && weight.get<double>() > 0) names.push_back(name);
  }
  return names;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

Json describe(const std::vector<Candidate>& candidates, const std::vector<Contender>& contenders) {
  Json document = {{"program", version_line()}, {"git", git_revision()}, {"load_average", load_average()}};
  document["policies"] = Json::array();
  for (const Candidate& candidate : candidates) {
    document["policies"].push_back({{"path", candidate.path},
                                    {"sha256", sha256_hex(candidate.policy.serialize())},
                                    {"weights", candidate.policy.weights().size()},
                                    {"provenance", Json::parse_or_null(candidate.policy.provenance())}});
  }
  document["methods"] = Json::array();
  for (const Contender& contender : contenders) {
    document["methods"].push_back(
        {{"name", contender.method->name}, {"policy", contender.candidate < 0 ? Json() : Json(contender.candidate)}});
  }
  return document;
}

void write_document(const std::string& path, const Json& head, const std::vector<Json>& problems) {
  std::string text = head.sorted().dump(1);
  text.erase(text.rfind('}'));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text += ",\n \"problems\": [";
  for (std::size_t i = 0; i < problems.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + problems[i].sorted().dump();
  text += "\n ]\n}\n";
  write_file_atomic(path, text);
}

Summary summarize(std::vector<double> values) {
  Summary summary;
  summary.count = values.size();
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  for (double value : values) {
    summary.mean += value / static_cast<double>(values.size());
    if (value <= kOptimal) summary.optimal += 1 / static_cast<double>(values.size());
  }
  // The smallest value that at least this share of the values does not exceed.
  const auto quantile = [&](double q) {
    const double rank = std::ceil(q * static_cast<double>(values.size()));
    return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  summary.median = quantile(0.5);
  summary.p95 = quantile(0.95);
  summary.largest = values.back();
  return summary;
}

}  // namespace automap::bench
