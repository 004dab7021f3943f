// A schedule as lists of work: the items that every group of devices does, in order (design 2.3). The model's positions
// are cut into parts, and every part runs on one group: part p's forward F(p, m), its backward B(p, m), and, where the
// backward is two passes, the gradients of its weights W(p, m) behind the gradients that the part in front waits for.
// All else (messages, gradient sync, memory over time) follows from the lists.
//
// Rows of schedules whose lists depend on numbers alone are written here; those that depend on times are in
// list_scheduler.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automap::pipeline {

enum class WorkKind : std::uint8_t { kForward, kBackward, kWeights };

// The backward's last pass, which frees a part's stash of a micro-batch and makes the gradients of its weights.
constexpr WorkKind last_pass(bool split_backward) {
  return split_backward ? WorkKind::kWeights : WorkKind::kBackward;
}

char letter_of(WorkKind kind);  // F, B, W

struct WorkItem {
  WorkKind kind = WorkKind::kForward;
  int part = 0, micro_batch = 0;  // from 0
  bool operator==(const WorkItem& o) const { return kind == o.kind && part == o.part && micro_batch == o.micro_batch; }
};
using GroupOrder = std::vector<WorkItem>;
using WorkOrder = std::vector<GroupOrder>;  // [S]

// The placement of parts on groups, from 0.
enum class Placement : std::uint8_t {
  kRoundRobin,  // part p on group p mod S; of one part for each group: part p on group p
  kV            // two parts for each group, p and 2 S - 1 - p
};
std::vector<int> group_of_parts(Placement placement, int groups, int chunks);  // [S * v]

// K_s forwards, then a backward and a forward in turn, then the other backwards: 1F1B, adaptive and GPipe, of one part
// for each group.
WorkOrder alternating_order(const std::vector<int>& in_flight, int micro_batches);

// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM) of v parts for each group, round robin: group g does
// (S - g - 1) * 2 + (v - 1) * S forwards, then forwards and backwards in turns, then the other backwards; micro-batches
// go through a part S at a time. Filling and draining takes 1 / v of the time; messages are v times as many, and more
// micro-batches are in flight. Needs M to be a multiple of S where v > 1; M = S is no exception, as in some versions.
WorkOrder interleaved_order(int groups, int chunks, int micro_batches);

// ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism"), of one part for each group: S - g forwards, as many as
// 1F1B, then a backward, the weights of the micro-batch g before it, and the next forward in turns, and behind the last
// backward the weights that are left. Filling and draining takes (S - 1) (F + B - W) instead of (S - 1) (F + B + W).
WorkOrder zero_bubble_order(int groups, int micro_batches);

// ZB-V (Qi et al. 2024, section 6), of two parts for each group that lie as a V and a backward in two passes: forwards
// of the first part, as many as 2 (S - g) - 1, then first and second part in turns, so that the last group, which has
// the model's middle, and the first, which has its end, begin their backwards early. Where F, B and W take as long and
// messages nothing, no group waits but for its first forward, in the memory of 1F1B. Needs M of at least 2 S.
WorkOrder zb_v_order(int groups, int micro_batches);

// The reason why the lists are no step of so many micro-batches: work that is missing, that stands twice or on another
// group, a backward in front of its forward, or lists that wait for each other. Names the first such element ("group 2:
// B3.1 stands in front of F3.1"); empty: they can run.
std::string order_fault(const WorkOrder& order, const std::vector<int>& group_of_part, int micro_batches,
                        bool split_backward);

// "F1.1 F1.2 B1.1 W1.1": kind, part and micro-batch, from 1.
std::string order_text(const GroupOrder& order);
// The list of such a text; false: `*wrong` is the first word that is none.
bool parse_order(std::string_view text, GroupOrder* order, std::string* wrong);

}  // namespace automap::pipeline
