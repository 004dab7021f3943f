// Shared code of the policy benchmarks: processor time, exact optima that are computed once and kept in a file, the
// planners that are compared with the policy, and work spread over threads.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/numbers.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/problem.h"
#include "datagen/distributions.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::bench {

// Gaps below this are rounding: the plan is optimal.
constexpr double kRounding = 1e-9;

// Processor time of the calling thread. Wall time says nothing on a machine that others use, too.
double thread_cpu_ms();
// Reached when the calling thread has used so much more processor time.
WorkLimits cpu_limit(double ms);
// [load average, 1 minute].
double load_average();

// body(i) for i in 0..count-1 on so many threads; stops taking more after a signal (StopToken). The first exception
// ends the others after their current item and is thrown again.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

// One question: a problem and what its plan must keep to.
struct Subject {
  const pipeline::Problem* problem = nullptr;
  int stages = 2;
  pipeline::Schedule schedule = pipeline::Schedule::k1f1b;
  std::vector<int> pivots;
};

// 32 hex digits that stand for everything V depends on, the pivots, and `what` (the question).
std::string fingerprint(const pipeline::Problem& problem, const pipeline::Profile& profile,
                        const machine::Cluster& cluster, const std::vector<int>& pivots, const std::string& what);

// Answers that take long, by fingerprint: a file of JSON lines, so that several policies, runs and scripts share them.
// Thread-safe.
class AnswerCache {
 public:
  // `path` empty: only for this run. A file that is not there yet begins empty; Error(kData) with file and line when it
  // is something else.
  explicit AnswerCache(std::string path);
  std::optional<Json> find(const std::string& key) const;
  // Also writes the file: at the first answer, and when the last time is more than a minute ago.
  void put(const std::string& key, Json answer);
  void save();

 private:
  void write();

  std::string path_;
  mutable std::mutex mutex_;
  std::map<std::string, Json> answers_;
  std::size_t unsaved_ = 0;
  double saved_at_s_ = -1e9;  // so the first answer shows that the file can be written
};

// The exact solver's result for one stage count over the pivots.
struct Optimum {
  int stages = 0;
  bool proven = false;          // plan is optimal, or (without one) there is none
  double value_ms = kInfinity;  // of the best plan found
  double bound_ms = 0;          // no plan over the pivots is shorter; = value_ms when proven
  pipeline::Plan plan;
};
struct Solved {
  std::vector<Optimum> by_stages;
  double cpu_ms = 0;  // of the solver, when it ran
};

// solve_exact for first..last stages, from the cache when it holds an answer that is proven or had as much time.
// Unproven stage counts get the better of the solver's own bound and, when every instruction is a pivot, that over all
// cuts. `key` = fingerprint(...) of problem, pivots, schedule, first and last.
Solved solve(AnswerCache& cache, const std::string& key, const pipeline::Problem& problem,
             const std::vector<int>& pivots, pipeline::Schedule schedule, int first, int last, double limit_s);

// A policy to be measured.
struct Candidate {
  std::string path;
  models::Policy policy;
};
// "untrained:SEED" instead of a path is the default network before any training.
std::vector<Candidate> load_policies(const std::vector<std::string>& paths);

// Throws Error(kUsage) when a policy says that it was trained on rows of this seed.
void refuse_seed(const std::vector<Candidate>& candidates, std::uint64_t seed);

// A planner that is measured. Names are those of the tables.
struct Method {
  enum class Kind { kPolicy, kRollouts, kCoarseExact, kLocalSearch, kBalanced, kUniform };
  const char* name;
  Kind kind;
  int width;            // beam; milliseconds for the local search, 0: the time of the policy's beam 16 + corridor
  bool corridor;        // refined on the pivots
  bool rollouts_count;  // of the policy: the best rollout met may win
};
const std::vector<Method>& all_methods();

struct Outcome {
  double value_ms = kInfinity;  // infinity: no plan found
  double cpu_ms = 0;            // with the preparation of the plan space, without that of the problem
  pipeline::Plan plan;
  std::vector<pipeline::Plan> runners_up;  // of a search that tells; a corridor looks at them, too
};

// A method of the run: those of the policy once per candidate.
struct Contender {
  const Method* method;
  int candidate;  // -1: none
};
// `wanted` empty: every method; else names. Error(kUsage) for unknown ones. A flat policy (the paper's network) has
// greedy plans only; of the local search without a policy, the rollouts' time is taken.
std::vector<Contender> contenders(const std::vector<Candidate>& candidates, const std::vector<std::string>& wanted);

// Every contender's plan for the subject, in their order.
std::vector<Outcome> run_all(const Subject& subject, const std::vector<Candidate>& candidates,
                             const std::vector<Contender>& contenders);

// The families that a generator draws from, in their order.
std::vector<std::string> families_in(const datagen::Generator& generator);
// Greedy planning with the paper's flat network: the legal action of the largest Q, device cut and pivot in turn.
std::optional<pipeline::Plan> flat_plan(const models::PlanSpace& space, const models::Policy& policy);
// Splits at commas; empty parts are left out.
std::vector<std::string> split(const std::string& text);
Json describe(const std::vector<Candidate>& candidates, const std::vector<Contender>& contenders);
// Infinity becomes null.
Json number(double value);
// Writes the document with one problem per line; "-" is standard output.
void write_document(const std::string& path, const Json& head, const std::vector<Json>& problems);

struct Summary {
  double mean = 0, median = 0, p95 = 0, largest = 0, optimal = 0;
  std::size_t count = 0;
};
// Statistics of ratios; `optimal` is the share that is at most `kOptimal`.
constexpr double kOptimal = 1e-6;
Summary summarize(std::vector<double> values);

}  // namespace automap::bench
