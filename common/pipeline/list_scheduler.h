// Orders of work (work_order.h) that depend on how long things take: a greedy list scheduler under the memory of every
// group, and the search of its rule on the event simulation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/work_order.h"
#include "common/pipeline/work_simulation.h"

namespace automap::pipeline {

// The rule by which a group chooses its next item. Each kind of work is worth base + of_part * p / C + of_batch * m / M
// + of_fill * (the share of the group's room that is filled), and the item with the most worth goes first.
struct ListRule {
  struct Worth {
    double base = 0, of_part = 0, of_batch = 0, of_fill = 0;
  };
  std::array<Worth, 3> worth;  // by WorkKind
  // A group that could begin an item waits this long for one of higher priority, in mean times of the group's items.
  double patience = 0;
};

// The rule of the schedule eager: a backward whenever one can begin, else a forward.
ListRule backward_first();

// Groups take items as they become free, within times.stash_bytes and room_bytes; room for the parts of a group behind
// the one that begins is kept free. Empty: it comes to a point where no group can go on.
WorkOrder list_order(const WorkTimes& times, int micro_batches, const ListRule& rule);

// A backward whenever one can begin, else a forward while fewer than K_s micro-batches are in flight: the schedule
// eager, of one part for each group and a backward in one pass.
WorkOrder eager_order(const WorkTimes& times, const std::vector<int>& in_flight, int micro_batches);

// The shortest of `starts` (which must fit into memory) and of list_order() under rules that are searched: some that
// are often good, then `tries` random changes of the best. The same on every machine. Without an order: nothing fits.
struct SearchedOrder {
  WorkOrder order;
  double step_ms = 0;
};
SearchedOrder search_order(const WorkTimes& times, int micro_batches, std::vector<WorkOrder> starts, int tries,
                           Work* work = nullptr);

}  // namespace automap::pipeline
