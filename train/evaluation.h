// Evaluates a policy: its gaps to the exact optimum on a fixed set of held-out problems, beside planners that have not
// learned anything. The set comes from a random stream of its own and is the same for every run with the same options.
//
//   small:  D <= 16, S <= 8      middle: D 17..64, S <= 8      deep: S 9..16, D <= 64      wide: D > 64
//
// The gap is L / L_opt - 1, with L_opt of solve_exact over the same pivots, stages and schedule, and is counted as
// train/paired.h says. Where solve_exact does not finish in its time, the best plan known takes its place and the
// problem counts as not proven. Problems for which no planner knows a plan are left out. With the simulated objective L
// is the simulated length and the reference is the simulation of the V-optimal plan, so that gaps may be negative.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/pipeline/baselines.h"
#include "models/policy.h"
#include "train/paired.h"
#include "train/problem_source.h"
#include "train/worker_pool.h"

namespace automap::train {

enum class HeldOutSet : std::uint8_t { kSmall, kMiddle, kDeep, kWide };
constexpr int kHeldOutSets = 4;
const char* to_string(HeldOutSet set);  // "small", ...

struct HeldOut {
  std::uint64_t index = 0;  // in the source
  HeldOutSet set = HeldOutSet::kSmall;
  int family = 0;
  double reference_ms = 0;
  bool proven = false;
};

struct Quality {
  int problems = 0, failed = 0, unproven = 0;  // failed: no plan found
  // Over all problems: counted gaps, and the share within 1e-6 of the optimum.
  double mean = 0, median = 0, p95 = 0, max = 0, optimal = 0;
};

struct EvaluationOptions {
  std::array<int, kHeldOutSets> problems{128, 48, 16, 0};
  double exact_s = 5;  // per problem
  long long exact_looks =
      0;  // if positive, a limit instead of exact_s that needs no clock: polls of the stop flag by the exact solver
  int beam = 16;
  pipeline::Objective objective = pipeline::Objective::kValue;
  std::uint64_t first = 0;  // the first row of the source that problems are drawn from
  // False: the optima are not computed and gaps count from the best plan known, which is all that a comparison needs.
  // Problems without a known plan then stay (reference_ms infinite), because the policies may find one; a comparison
  // drops those that nobody has a plan for.
  bool exact = true;
  // True: it is no error when no problems are left; problems() is empty then.
  bool may_be_empty = false;
  bool show_progress = true;
  bool flat = false;
  models::FlatInput flat_input = models::FlatInput::kRaw;
};

// The length of every held-out problem's plan (infinity: none), and the time that planning took.
struct PlannerLengths {
  std::string planner;
  std::vector<double> length_ms;
  double planning_ms = 0;  // CPU of one thread, mean per problem
};

class Evaluation {
 public:
  // Draws the problems and solves them exactly and with every baseline, on `pool`. `cache_path` (may be empty) is the
  // file from which the answers of an earlier call with the same source and options are read, and to which answers are
  // written. Throws Error(kStopped) when a signal came.
  Evaluation(std::shared_ptr<const ProblemSource> source, const EvaluationOptions& options, WorkerPool& pool,
             const std::string& cache_path);

  const std::vector<HeldOut>& problems() const { return problems_; }
  // The number of plan()'s searches. The baselines include these searches without a network, the last of them with
  // random weights, and others that learn nothing.
  static constexpr std::size_t kSearches = 3;
  const std::vector<PlannerLengths>& baselines() const { return baselines_; }
  const ProblemSource& source() const { return *source_; }
  const EvaluationOptions& options() const { return options_; }

  // "greedy", "beam N" and "beam N + corridor" (the flat family: "greedy" only).
  std::vector<PlannerLengths> plan(const models::Policy& policy, WorkerPool& pool) const;

  std::vector<double> gaps(const PlannerLengths& lengths) const;  // counted
  // The quality on one set and one family of problems; -1: all of them.
  Quality quality(const PlannerLengths& lengths, int set, int family = -1) const;
  // The score by which checkpoints are chosen and which curve, progress, report and results state: the mean gap over
  // all problems of plan()'s last search, which is the one that automap-infer runs.
  double score(const std::vector<PlannerLengths>& planned) const { return mean_of(gaps(planned.back())); }
  // Seconds that drawing and solving the problems took, those of the session that did it.
  double solved_s() const { return solved_s_; }
  // The row after the last problem that was drawn; another evaluation of other problems may begin there.
  std::uint64_t next() const { return next_; }

 private:
  void choose();
  void solve(WorkerPool& pool);
  bool read_cache(const std::string& path);
  void write_cache(const std::string& path) const;
  std::string fingerprint() const;

  std::shared_ptr<const ProblemSource> source_;
  EvaluationOptions options_;
  std::vector<HeldOut> problems_;
  std::vector<PlannerLengths> baselines_;
  std::uint64_t next_ = 0;
  double solved_s_ = 0;
};

// Throws Error(kData) naming `path` when this program's searches cannot run the policy: other features, or a flat
// network.
void check_searchable(const models::Policy& policy, const std::string& path);

}  // namespace automap::train
