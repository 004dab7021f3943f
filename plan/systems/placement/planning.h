// Answers one question in one way: the call behind `automap-search placement`.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/base/work.h"
#include "plan/systems/placement/milp.h"
#include "plan/systems/placement/placement.h"

namespace automap::placement {

enum class Objective { kThroughput, kLatency };
const char* to_string(Objective objective);  // "throughput", "latency"

struct Request {
  Objective objective = Objective::kThroughput;
  std::string algorithm = "auto";  // one of algorithm_names()
  int max_ideals = 100000;         // the programme over ideals gives way to that along orders above these
  int orders = 8;                  // of dpl
  int restarts = 10;               // of local-search
  int pieces = 2;                  // of an accelerator, milp-noncontiguous for latency
  std::uint64_t seed = 0;
  MilpLimits milp;  // its seconds are Scotch's, too, by the clock
};

struct Tried {
  std::string planner;
  std::optional<double> value_ms;  // nothing: it found no placement
  double planning_ms = 0;
};

struct Answer {
  Placement placement;
  double value_ms = 0;        // max_load_ms or latency_ms of the placement, from the nodes and edges as given
  double bound_ms = 0;        // no placement of the kind that was asked for is better
  std::string bound_of;       // which kind that is: "contiguous placements", "all placements"
  bool proven = false;        // value_ms is the least there is, within request.milp.gap for integer programmes
  bool contiguous = false;    // placement.h; of latency: each accelerator can run in one piece
  std::string planner;        // who found it
  int units = 0, ideals = 0;  // 0: were not looked at
  std::int64_t pairs = 0;     // of ideals
  bool cut_by_time = false;   // another run may come further
  std::vector<Tried> tried;
  std::vector<std::string> warnings;
};

// "auto", "dp", "dpl", "milp", "milp-noncontiguous", "greedy", "local-search", "pipedream", "scotch",
// "one-accelerator".
std::vector<std::string> algorithm_names();
// A line about each, in that order.
std::string algorithm_help();

// Throws Error(kInfeasible) when no placement fits, or none was found in time (with the known bound); Error(kUsage) for
// an algorithm that has no such objective, a solver that is not installed, latency of a training graph; Error(kIo) for
// another program that fails; errors of check_workload come first. `work` may end the programme over ideals, which then
// leaves the best so far; Error(kStopped) when there is none.
Answer find_placement(const Workload& workload, const Request& request, Work* work);

// A placement that somebody made, judged; throws Error(kInfeasible) saying why the machine cannot hold it.
Answer judge_placement(const Workload& workload, const Request& request, const Placement& placement,
                       const std::string& planner);

// No placement has a smaller largest load, or latency: from the times of nodes alone, whatever the transfers.
double simple_bound_ms(const Workload& workload, Objective objective);

}  // namespace automap::placement
