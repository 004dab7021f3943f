#include "plan/partition/overlap.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/graph/dependence.h"
#include "common/sharding/collectives.h"

namespace automap::partition {

namespace {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using TaskId = std::int32_t;

// One run of a list schedule.
class Schedule {
 public:
  explicit Schedule(const std::vector<StreamTask>& tasks)
      : tasks_(tasks), after_(tasks.size()), waits_for_(tasks.size()), way_ms_(tasks.size()) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      waits_for_[i] = tasks[i].before.size();
      for (const TaskId before : tasks[i].before) after_[at(before)].push_back(static_cast<TaskId>(i));
    }
    find_ways();
  }

  double run() {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i].before.empty()) becomes_ready(static_cast<TaskId>(i));
    }
    start_what_can();
    while (!running_.empty()) {
      now_ = running_.top().first;
      // All that ends now has ended before anything starts.
      while (!running_.empty() && running_.top().first == now_) {
        const TaskId ended = running_.top().second;
        running_.pop();
        busy_ &= static_cast<std::uint8_t>(~tasks_[at(ended)].streams);
        ends(ended);
      }
      start_what_can();
    }
    AM_CHECK(ended_ == tasks_.size());
    return now_;
  }

 private:
  using Key = std::tuple<double, double, TaskId>;  // the least starts first

  // The longest way from the start of each task to the end of all.
  void find_ways() {
    std::vector<std::size_t> left(tasks_.size());
    std::vector<TaskId> order;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      left[i] = after_[i].size();
      if (left[i] == 0) order.push_back(static_cast<TaskId>(i));
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
      const TaskId task = order[next];
      for (const TaskId after : after_[at(task)]) way_ms_[at(task)] = std::max(way_ms_[at(task)], way_ms_[at(after)]);
      way_ms_[at(task)] += tasks_[at(task)].ms;
      for (const TaskId before : tasks_[at(task)].before) {
        if (--left[at(before)] == 0) order.push_back(before);
      }
    }
    AM_CHECK(order.size() == tasks_.size());  // no circle
  }

  // Marks a task as ready. A task that takes no stream ends as soon as it is ready.
  void becomes_ready(TaskId first) {
    std::vector<TaskId> ready{first};
    while (!ready.empty()) {
      const TaskId task = ready.back();
      ready.pop_back();
      const std::uint8_t streams = tasks_[at(task)].streams;
      if (streams == 0) {
        ++ended_;
        for (const TaskId after : after_[at(task)]) {
          if (--waits_for_[at(after)] == 0) ready.push_back(after);
        }
      } else if ((streams & kComputeStream) != 0) {
        compute_.emplace(0, -way_ms_[at(task)], task);
      } else {
        moves_[streams].emplace(now_, -way_ms_[at(task)], task);
      }
    }
  }

  void ends(TaskId task) {
    ++ended_;
    for (const TaskId after : after_[at(task)]) {
      if (--waits_for_[at(after)] == 0) becomes_ready(after);
    }
  }

  bool is_free(TaskId task) const { return (busy_ & tasks_[at(task)].streams) == 0; }

  void start(TaskId task) {
    busy_ |= tasks_[at(task)].streams;
    running_.emplace(now_ + tasks_[at(task)].ms, task);
  }

  void start_what_can() {
    for (auto ready = compute_.begin(); ready != compute_.end() && (busy_ & kComputeStream) == 0; ++ready) {
      if (!is_free(std::get<TaskId>(*ready))) continue;  // a loop whose collectives find their axis in use
      start(std::get<TaskId>(*ready));
      compute_.erase(ready);
      break;
    }
    for (auto& [streams, ready] : moves_) {
      if (ready.empty() || !is_free(std::get<TaskId>(*ready.begin()))) continue;
      start(std::get<TaskId>(*ready.begin()));
      ready.erase(ready.begin());
    }
  }

  const std::vector<StreamTask>& tasks_;
  std::vector<std::vector<TaskId>> after_;
  std::vector<std::size_t> waits_for_;
  std::vector<double> way_ms_;
  std::set<Key> compute_;                        // that are ready
  std::map<std::uint8_t, std::set<Key>> moves_;  // by the stream that they need
  using End = std::pair<double, TaskId>;
  std::priority_queue<End, std::vector<End>, std::greater<>> running_;
  std::uint8_t busy_ = 0;
  std::size_t ended_ = 0;
  double now_ = 0;
};

// A step as tasks: every node of the flow, every collective, and every loop and conditional as one, whose inside is a
// schedule of its own.
class Step {
 public:
  Step(const sharding::ShardingModel& model, const PartitionCost::StepParts& parts)
      : flow_(model.flow()), parts_(parts), moves_of_(at(flow_.size())) {
    find_regions();
    for (NodeId id = 0; id < flow_.size(); ++id) {
      const double ms = parts.compute_ms[at(id)];
      add_task(region_of_node(id), ms, ms > 0 ? kComputeStream : std::uint8_t{0});
    }
    for (const PartitionCost::CollectivePart& move : parts.collectives) {
      const NodeId node = move.collective.node;
      moves_of_[at(node)].push_back(static_cast<TaskId>(tasks_.size()));
      add_task(region_of_node(node), move.ms, move.ms > 0 ? axis_stream(move.other_axis ? 1 : 0) : std::uint8_t{0});
    }
    // The task that stands for a region in the region around it; the entry has none.
    first_unit_ = static_cast<TaskId>(tasks_.size()) - 1;
    for (std::size_t r = 1; r < regions_.size(); ++r) add_task(regions_[r].parent, 0, 0);
    connect();
  }

  double run() {
    // Inner regions are numbered after those around them. All that a region holds counts for the whole step, so that
    // its schedule is that of one turn, as often as it runs.
    for (std::size_t r = regions_.size(); r-- > 1;) {
      StreamTask& unit = tasks_[at(first_unit_) + r];
      unit.ms = run_region(r);
      if (unit.ms <= 0) continue;
      unit.streams = kComputeStream;
      for (const TaskId task : regions_[r].tasks) unit.streams |= tasks_[at(task)].streams;
    }
    return run_region(0);
  }

 private:
  struct Region {
    std::int32_t parent = kNone;
    int depth = 0;
    std::vector<TaskId> tasks;
  };

  std::int32_t region_of_node(NodeId id) const {
    const std::int32_t site = flow_.node(id).site;
    return site == kNone ? 0 : region_of_site_[at(site)];
  }

  void add_task(std::int32_t region, double ms, std::uint8_t streams) {
    regions_[at(region)].tasks.push_back(static_cast<TaskId>(tasks_.size()));
    region_of_task_.push_back(region);
    tasks_.push_back({ms, streams, {}});
  }

  std::int32_t add_region(std::int32_t parent) {
    Region region;
    region.parent = parent;
    region.depth = regions_[at(parent)].depth + 1;
    regions_.push_back(std::move(region));
    return static_cast<std::int32_t>(regions_.size()) - 1;
  }

  // The entry, the body of every loop, and the branches of every conditional together.
  void find_regions() {
    const auto& sites = flow_.sites();
    std::vector<bool> is_loop(sites.size(), false);
    for (const graph::FlowLoop& loop : flow_.loops()) is_loop[at(loop.site)] = true;
    regions_.emplace_back();
    for (std::size_t s = 0; s < sites.size(); ++s) {
      const std::int32_t parent = sites[s].parent == kNone ? 0 : region_of_site_[at(sites[s].parent)];
      std::int32_t region = parent;
      if (is_loop[s]) region = add_region(parent);
      if (sites[s].branch != kNone) {
        const auto [found, added] = conditionals_.try_emplace({sites[s].parent, sites[s].caller}, kNone);
        if (added) found->second = add_region(parent);
        region = found->second;
      }
      region_of_site_.push_back(region);
    }
  }

  TaskId unit(std::int32_t region) const { return first_unit_ + region; }

  // Makes `later` wait for `first`, or the task that runs the one for the task that runs the other, in the innermost
  // region around both.
  void wait(TaskId first, TaskId later) {
    std::int32_t of_first = region_of_task_[at(first)], of_later = region_of_task_[at(later)];
    while (of_first != of_later) {
      const bool lift_first = regions_[at(of_first)].depth >= regions_[at(of_later)].depth;
      std::int32_t& lifted = lift_first ? of_first : of_later;
      (lift_first ? first : later) = unit(lifted);
      lifted = regions_[at(lifted)].parent;
    }
    if (first != later) tasks_[at(later)].before.push_back(first);
  }

  const sharding::Collective& moved_by(TaskId move) const {
    return parts_.collectives[at(move - flow_.size())].collective;
  }
  bool reduces(TaskId move) const { return moved_by(move).reduces(); }

  // `reader`, or the task that runs it, waits for the tensor and for those of its collectives that are for it.
  void read(NodeId tensor, NodeId reader, TaskId task) {
    wait(tensor, task);
    for (const TaskId move : moves_of_[at(tensor)]) {
      const std::vector<NodeId>& readers = moved_by(move).sources;
      if (reduces(move) || std::find(readers.begin(), readers.end(), reader) != readers.end()) wait(move, task);
    }
  }

  // Collectives of one tensor: sums first, then for each reader one axis after the other.
  void order_moves(NodeId tensor) {
    const std::vector<TaskId>& moves = moves_of_[at(tensor)];  // those of the axis itself stand before the other one's
    TaskId last_sum = tensor;
    for (const TaskId move : moves) {
      if (!reduces(move)) continue;
      wait(last_sum, move);
      last_sum = move;
    }
    for (std::size_t i = 0; i < moves.size(); ++i) {
      if (reduces(moves[i])) continue;
      wait(last_sum, moves[i]);
      const std::vector<NodeId>& readers = moved_by(moves[i]).sources;
      for (std::size_t j = 0; j < i; ++j) {
        const std::vector<NodeId>& others = moved_by(moves[j]).sources;
        if (!reduces(moves[j]) &&
            std::find_first_of(others.begin(), others.end(), readers.begin(), readers.end()) != others.end()) {
          wait(moves[j], moves[i]);
        }
      }
    }
  }

  void connect() {
    for (NodeId id = 0; id < flow_.size(); ++id) {
      order_moves(id);
      for (const NodeId operand : flow_.operands(id)) read(operand, id, id);
      const graph::FlowNode& node = flow_.node(id);
      if (node.opcode != Opcode::kConditional || node.leaf == kNone) continue;
      // Which branch runs is known before it does.
      const auto branches = conditionals_.find({node.site, node.instruction});
      if (branches != conditionals_.end()) read(flow_.operands(id)[0], id, unit(branches->second));
    }
    for (const graph::FlowLoop& loop : flow_.loops()) {
      const TaskId body = unit(region_of_site_[at(loop.site)]);
      for (std::size_t k = 0; k < loop.initial.size(); ++k) read(loop.initial[k], loop.parameter[k], body);
    }
    for (StreamTask& task : tasks_) {
      std::sort(task.before.begin(), task.before.end());
      task.before.erase(std::unique(task.before.begin(), task.before.end()), task.before.end());
    }
  }

  double run_region(std::size_t region) const {
    const std::vector<TaskId>& members = regions_[region].tasks;
    std::map<TaskId, TaskId> number;
    std::vector<StreamTask> tasks;
    for (const TaskId task : members) number.emplace(task, static_cast<TaskId>(number.size()));
    for (const TaskId task : members) {
      tasks.push_back(tasks_[at(task)]);
      for (TaskId& before : tasks.back().before) before = number.at(before);
    }
    return list_schedule_ms(tasks);
  }

  const FlowGraph& flow_;
  const PartitionCost::StepParts& parts_;
  std::vector<Region> regions_;  // the entry first
  std::vector<std::int32_t> region_of_site_, region_of_task_;
  std::map<std::pair<std::int32_t, graph::InstructionId>, std::int32_t> conditionals_;  // by site and instruction
  std::vector<StreamTask> tasks_;              // nodes as they are numbered, collectives, what runs the regions
  std::vector<std::vector<TaskId>> moves_of_;  // by tensor
  TaskId first_unit_ = 0;                      // less one: of the entry, which has none
};

}  // namespace

double list_schedule_ms(const std::vector<StreamTask>& tasks) {
  return Schedule(tasks).run();
}

double overlapped_ms(const PartitionCost& cost, const sharding::Propagation& decided) {
  const PartitionCost::StepParts parts = cost.parts(decided);
  return Step(cost.model(), parts).run();
}

PlanEstimate estimate_step(const PartitionCost& cost, const sharding::Propagation& decided, bool overlap) {
  PlanEstimate out = cost.estimate(decided);
  // Sums in another order may differ in their last digits.
  if (overlap) out.overlapped_ms = std::min(out.step_ms, std::max(out.compute_ms, overlapped_ms(cost, decided)));
  return out;
}

}  // namespace automap::partition
