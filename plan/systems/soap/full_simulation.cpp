#include "plan/systems/soap/full_simulation.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::soap {

namespace {

class FullSimulation {
 public:
  FullSimulation(const Space& space, const Strategy& strategy, const MachineLinks& machine) : machine_(machine) {
    std::vector<OperatorBlock> blocks;
    std::vector<std::int32_t> first;
    for (OperatorId op = 0; op < space.size(); ++op) {
      blocks.push_back(operator_block(space, op, strategy[at(op)], machine));
      first.push_back(take(blocks.back().tasks));
      const OperatorBlock& block = blocks.back();
      for (std::size_t t = 0; t < block.tasks.size(); ++t) {
        for (std::int32_t k = block.first_behind[t]; k < block.first_behind[t + 1]; ++k) {
          arrow(first.back() + static_cast<std::int32_t>(t), first.back() + block.behind[at(k)]);
        }
      }
    }
    for (std::size_t e = 0; e < space.edges.size(); ++e) {
      const Edge& edge = space.edges[e];
      const EdgeBlock block = edge_block(space, static_cast<std::int32_t>(e), strategy[at(edge.producer)],
                                         strategy[at(edge.consumer)], machine);
      const std::int32_t messages = take(block.tasks);
      for (const PartPair& pair : block.pairs) {
        const OperatorBlock &maker = blocks[at(edge.producer)], &reader = blocks[at(edge.consumer)];
        const std::int32_t a = first[at(edge.producer)], b = first[at(edge.consumer)];
        arrow(a + maker.forward_task(pair.producer), b + reader.forward_task(pair.consumer),
              pair.message == kNone ? kNone : messages + pair.message);
        if (!pair.has_back) continue;
        arrow(b + reader.backward_task(pair.consumer), a + maker.backward_task(pair.producer),
              pair.back == kNone ? kNone : messages + pair.back);
      }
    }
  }

  void run() {
    using Entry = std::tuple<double, TaskOrder, std::int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    std::vector<double> free_from(at(machine_.num_resources()), 0);
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      if (waits_for_[t] == 0) queue.emplace(0.0, tasks_[t].order, static_cast<std::int32_t>(t));
    }
    std::size_t ran = 0;
    for (; !queue.empty(); ++ran) {
      const std::int32_t t = std::get<2>(queue.top());
      queue.pop();
      TaskTimes& times = times_[at(t)];
      times.start = times.ready;
      if (times.resource != kNone) {
        times.start = std::max(times.ready, free_from[at(times.resource)]);
      }
      times.end = times.start + tasks_[at(t)].ms;
      if (times.resource != kNone) free_from[at(times.resource)] = times.end;
      step_ms_ = std::max(step_ms_, times.end);
      for (const std::int32_t next : behind_[at(t)]) {
        times_[at(next)].ready = std::max(times_[at(next)].ready, times.end);
        if (--waits_for_[at(next)] == 0) queue.emplace(times_[at(next)].ready, tasks_[at(next)].order, next);
      }
    }
    AM_CHECK(ran == tasks_.size());  // no cycle: orders respect dependence
  }

  double step_ms() const { return step_ms_; }
  std::vector<TaskTimes> times() {
    std::sort(times_.begin(), times_.end(), [](const TaskTimes& a, const TaskTimes& b) { return a.order < b.order; });
    return std::move(times_);
  }

 private:
  std::int32_t take(const std::vector<Task>& tasks) {
    const auto first = static_cast<std::int32_t>(tasks_.size());
    tasks_.insert(tasks_.end(), tasks.begin(), tasks.end());
    for (const Task& task : tasks) times_.push_back({task.order, task.resource, 0, 0, 0});
    waits_for_.resize(tasks_.size(), 0);
    behind_.resize(tasks_.size());
    return first;
  }
  void arrow(std::int32_t from, std::int32_t to, std::int32_t over = kNone) {
    if (over != kNone) {
      arrow(from, over);
      from = over;
    }
    behind_[at(from)].push_back(to);
    ++waits_for_[at(to)];
  }

  const MachineLinks& machine_;
  std::vector<Task> tasks_;
  std::vector<TaskTimes> times_;
  std::vector<std::int32_t> waits_for_;
  std::vector<std::vector<std::int32_t>> behind_;
  double step_ms_ = 0;
};

}  // namespace

Simulated simulate(const Space& space, const Strategy& strategy, const MachineLinks& machine) {
  FullSimulation simulation(space, strategy, machine);
  simulation.run();
  return {simulation.step_ms(), simulation.times()};
}

double simulated_step_ms(const Space& space, const Strategy& strategy, const MachineLinks& machine) {
  FullSimulation simulation(space, strategy, machine);
  simulation.run();
  return simulation.step_ms();
}

}  // namespace automap::soap
