// The label program behind exact.h: suffix labels over points, with completion thresholds from a program over
// prefixes. A point is one instruction cut (exact) or a run of neighbouring cuts of which only the run is known
// (relaxed: every quantity takes its most favourable value, so values are lower bounds). docs/exact-solver.md.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/numbers.h"
#include "common/base/span.h"
#include "common/base/work.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::pipeline::internal {

// Plans that differ by less are equally good.
constexpr double kEquallyGood = 1e-10;

// Points 0..m in ascending order: 0 is the start of the model, m its end, the others are runs of cuts
// first_cut..last_cut. *_low are prefix sums at the first cut, *_high at the last one.
struct Points {
  std::vector<int> first_cut, last_cut;
  std::vector<double> work_low, work_high, gradient_low, gradient_high;
  std::vector<double> last_bucket;                  // of a stage that begins there, least among the cuts
  std::vector<double> activation, activation_high;  // least and most among the cuts
  std::vector<int> variables_low, variables_high;
  std::size_t size() const { return first_cut.size(); }
  bool several(std::size_t i) const { return first_cut[i] < last_cut[i]; }
};

// One point per cut of `cuts` (ascending, within 1..n-1).
Points exact_points(const Problem& problem, const std::vector<int>& cuts);
// Run r stands for the cuts at places runs[r].first..runs[r].second of `cuts`; runs ascending, without overlap.
using Runs = std::vector<std::pair<int, int>>;
Points run_points(const Problem& problem, const std::vector<int>& cuts, const Runs& runs);

struct ProgramInput {
  const Problem* problem = nullptr;
  Schedule schedule = Schedule::k1f1b;
  bool needs_variable = false;
  int min_stages = 1, max_stages = 1;
  const Points* points = nullptr;
  // Device cuts that may be used, ascending, within 1..D-1.
  std::vector<int> device_cuts;
  // For a corridor (min_stages == max_stages): points and device cuts of boundary s = 1..S-1.
  std::vector<std::vector<int>> boundary_points, boundary_device_cuts;
  // [S - min_stages]: only plans at most this long are of interest.
  std::vector<double> limit_ms;
  int beam = 0;                  // labels kept per state; 0: all that matter
  int keep = 1;                  // completions returned per stage count
  std::int64_t most_labels = 0;  // give up when there are more; 0: never
  bool mark = false;             // fill ProgramOutput::reached and used
  bool keep_layers = false;      // fill ProgramOutput::layers
  bool all_plans = false;        // no label makes another superfluous: every plan within the limit is a completion
  // Points on which the thresholds are computed, and where each of `points` lies on them; null: `points`.
  const Points* coarse = nullptr;
  std::vector<int> coarse_of;
};

struct Completion {
  double value_ms = 0;
  std::vector<int> points;             // of boundary 1..S-1
  std::vector<int> device_cuts;        // of boundary 1..S-1
  std::vector<std::uint8_t> variants;  // of stage 1..S; empty where the problem has one
};

// Labels that share how a transfer reaches them: the same first device d0 and the same kind of first group.
struct LabelList {
  int d0 = 0;
  int d1 = 0;  // of one member: stands for all
  std::size_t begin = 0, end = 0;
  double ms_per_work = 0;  // least of the members' first groups, of a relaxed program
};

// The suffixes of one length, list by list, ascending by point within a list and by x within a point.
struct Layer {
  std::vector<LabelList> lists;  // ascending by d0
  std::vector<int> point, id;
  std::vector<double> x, p, y;
};

struct ProgramOutput {
  // False: the work was over, or too large for memory (very many devices); the completions are some good ones.
  bool finished = false;
  bool gave_up = false;                            // more than most_labels
  std::vector<std::vector<Completion>> by_stages;  // [S - min_stages], best first
  std::int64_t labels = 0;                         // kept in all
  std::int64_t tried = 0, transitions = 0;         // stages tried in front of labels, and in front of prefixes
  // For each point: `reached`, a plan within the limit may cut there; `used`, such a plan that does was met.
  std::vector<char> reached, used;
  std::vector<Layer> layers;  // [length - 1], length 1..S-1, when asked for
};

ProgramOutput run_program(const ProgramInput& input, Work& work);

// Moves a feasible plan whose cuts are all among `pivots` (ascending) within +-pivot_radius places of that list and
// +-device_radius device cuts, again and again while it gets shorter.
Plan refine_on_pivots(const Problem& problem, Plan plan, const std::vector<int>& pivots, int pivot_radius,
                      int device_radius, Work& work);

// The known facts about all plans of one schedule with min_stages..max_stages stages over `cuts`.
struct GapInput {
  const Problem* problem = nullptr;
  Schedule schedule = Schedule::k1f1b;
  bool needs_variable = false;
  int min_stages = 1, max_stages = 1;
  const std::vector<int>* cuts = nullptr;
  std::vector<double> limit_ms;  // [S - min_stages]: only shorter plans are of interest
  int first_runs = 48;           // of cuts, to begin with
};
struct GapOutput {
  std::vector<double> bound_ms;  // [S - min_stages]: no plan is shorter than this, or than the limit if that is less
  std::vector<char> closed;      // [S - min_stages]: the bound is the shortest plan's value, or the limit
  std::vector<Plan> plans;       // below their limits, found on the way
};
// Relaxed programs over runs of cuts, split where plans below the limit may cut, until none is left or the work is
// over; always where the bound is lowest. With `only_best` a plan found lowers every limit: only the least of all
// bounds counts then.
std::vector<GapOutput> close_gaps(const std::vector<GapInput>& inputs, bool only_best, Work& work);

// A lower bound on V of plans of so many stages, whatever their cuts: the larger of
// - every device at work all the time, and the pipeline filled once;
// - for every instruction, the stage that holds it: M times its compute plus the sync of its gradients and its update
//   on the best group of devices (the backward passes that hide an all-reduce stand in front of the stage in V's first
//   term, too).
// For one stage: its V, whether or not it fits.
class SimpleBounds {
 public:
  SimpleBounds(const Problem& problem, Schedule schedule);
  double ms(int stages) const;
  std::int64_t units() const { return units_; }  // what making it costs

 private:
  double balance_ms(int stages) const;

  const Problem& problem_;
  Schedule schedule_;
  double small_share_ = 0.5;                    // as of StageTables
  double one_stage_ms_ = 0;                     // 0: all devices cannot be one stage
  std::vector<double> largest_instruction_ms_;  // [most devices its stage may have]
  std::int64_t units_ = 0;
};

}  // namespace automap::pipeline::internal
