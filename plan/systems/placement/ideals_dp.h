// The exact dynamic programme over ideals (arXiv 2006.16423, section 5.1.1): the least largest load of a pipeline whose
// devices each run one contiguous set.
//
//   best[I][a][b] = the least largest load of the ideal I on at most a accelerators and b CPU cores
//                 = min over ideals J of I of max(best[J][a-1][b], load of I \ J on an accelerator),
//                                             max(best[J][a][b-1], load of I \ J on a CPU core)
//
// From the paper: the recurrence. From the authors' code: backward nodes follow their colours (units.h). Ours:
// - I \ J is built up one unit at a time down the lattice of ideals, so a pair costs the units' transfers and none is
//   stored; memory is that of `best`.
// - With a plan known, its load U bounds the search. The compute of I \ J only grows on the way down, which stops when
//   no device can take it within U. And an ideal that a accelerators and b cores cannot have computed within U, or
//   whose rest the others cannot, begins and ends no device: where loads are nearly even, few do.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/work.h"
#include "plan/systems/placement/ideals.h"
#include "plan/systems/placement/units.h"

namespace automap::placement {

struct Split {
  double max_load_ms = 0;
  std::vector<int> device_of_unit;
};

// Counts of the search.
struct DpCounts {
  std::int64_t pairs = 0;  // of ideals J within I, I itself included
};

// The memory of the programme, in bytes.
double dp_bytes(const Workload& workload, const Units& units, int ideals);

// The best split of the units onto the workload's devices with a largest load of at most `upper_bound_ms` (infinite:
// any), exactly; nothing when there is none, or when the work ended first (work->over()).
std::optional<Split> best_split(const Workload& workload, const Units& units, const Ideals& ideals,
                                double upper_bound_ms, Work* work, DpCounts* counts);

}  // namespace automap::placement
