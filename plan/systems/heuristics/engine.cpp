#include "plan/systems/heuristics/engine.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace automap::heuristics {

Engine::Engine(const WorkGraph& graph, const Machine& machine, const Schedule& schedule, Conditions conditions,
               const AssistantRules* rules)
    : graph_(graph),
      machine_(machine),
      schedule_(schedule),
      conditions_(std::move(conditions)),
      rules_(rules),
      queues_(at(machine.num_devices())),
      link_free_(at(machine.links().num_resources()), 0),
      copies_(graph.values.size()),
      place_(schedule.home),
      state_(graph.tasks.size(), State::kWaits),
      begun_(queues_.size()) {
  for (TaskId t = 0; t < graph_.size(); ++t) {
    missing_.push_back(static_cast<std::int32_t>(graph_.read[at(t)].size()));
    queues_[at(place_[at(t)])].planned_bytes += graph_.tasks[at(t)].memory_bytes;
  }
  out_.tasks.resize(graph_.tasks.size());
  if (rules_ != nullptr) list_alternates();
}

Execution Engine::run() {
  for (TaskId t = 0; t < graph_.size(); ++t) {
    if (missing_[at(t)] == 0) enable(t);
  }
  for (DeviceId d = 0; d < machine_.num_devices(); ++d) begin_next(d);
  while (!events_.empty()) {
    now_ = std::get<0>(events_.top());
    while (!events_.empty() && std::get<0>(events_.top()) == now_) {
      const auto [time, kind, id, device] = events_.top();
      events_.pop();
      if (kind == Kind::kTaskEnds) {
        end_task(id);
      } else {
        arrive(id, device);
      }
    }
    for (DeviceId d = 0; d < machine_.num_devices(); ++d) begin_next(d);
    if (rules_ == nullptr) continue;
    for (DeviceId d = 0; d < machine_.num_devices(); ++d) pull(d);
  }
  for (TaskId t = 0; t < graph_.size(); ++t) AM_CHECK(state_[at(t)] == State::kDone);
  for (const TaskRun& run : out_.tasks) out_.makespan_ms = std::max(out_.makespan_ms, run.end_ms);
  for (const Queue& queue : queues_) {
    out_.ratios.push_back(queue.ratio);
    out_.extra_bytes.push_back(queue.extra_bytes);
  }
  return std::move(out_);
}

void Engine::end_task(TaskId t) {
  const DeviceId d = place_[at(t)];
  state_[at(t)] = State::kDone;
  queues_[at(d)].running = kNone;
  if (rules_ != nullptr) observe(t);
  std::vector<TaskId> enabled;
  for (const ValueId v : graph_.made[at(t)]) {
    copies_[at(v)].push_back({d, true, now_});
    for (const TaskId reader : graph_.values[at(v)].consumers) {
      if (--missing_[at(reader)] == 0) enabled.push_back(reader);
    }
  }
  std::sort(enabled.begin(), enabled.end());
  std::vector<TaskId> moved;
  if (rules_ != nullptr) {
    for (const TaskId reader : enabled) {
      if (push(reader)) moved.push_back(reader);
    }
  }
  std::vector<DeviceId> to;
  for (const ValueId v : graph_.made[at(t)]) {
    to.clear();
    for (const TaskId reader : graph_.values[at(v)].consumers) to.push_back(place_[at(reader)]);
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    for (const DeviceId one : to) send(v, one);
  }
  for (const TaskId reader : enabled) {
    if (std::find(moved.begin(), moved.end(), reader) == moved.end()) enable(reader);
  }
  if (rules_ != nullptr) push_last(d);
}

// All that it reads is made.
void Engine::enable(TaskId t) {
  state_[at(t)] = State::kFetches;
  missing_[at(t)] = 0;
  for (const ValueId v : graph_.read[at(t)]) {
    send(v, place_[at(t)]);
    if (!copy_at(v, place_[at(t)])->there) ++missing_[at(t)];
  }
  queues_[at(place_[at(t)])].waiting_ms += predicted_ms(t, place_[at(t)]);
  if (missing_[at(t)] == 0) make_ready(t);
}

void Engine::arrive(ValueId v, DeviceId d) {
  for (Copy& copy : copies_[at(v)]) {
    if (copy.device == d) copy.there = true;
  }
  for (const TaskId reader : graph_.values[at(v)].consumers) {
    if (state_[at(reader)] != State::kFetches || place_[at(reader)] != d) continue;
    if (--missing_[at(reader)] == 0) make_ready(reader);
  }
}

void Engine::make_ready(TaskId t) {
  Queue& queue = queues_[at(place_[at(t)])];
  state_[at(t)] = State::kReady;
  if (schedule_.home[at(t)] != place_[at(t)]) queue.pulls = false;
  if (queue.ready.size() < kQueueLength) {
    queue.ready.emplace(-schedule_.priority[at(t)], t);
  } else {
    queue.behind.push_back(t);
  }
}

void Engine::take_out(TaskId t) {
  Queue& queue = queues_[at(place_[at(t)])];
  queue.waiting_ms -= predicted_ms(t, place_[at(t)]);
  if (queue.ready.erase({-schedule_.priority[at(t)], t}) > 0) {
    if (!queue.behind.empty()) {
      queue.ready.emplace(-schedule_.priority[at(queue.behind.front())], queue.behind.front());
      queue.behind.pop_front();
    }
    return;
  }
  const auto it = std::find(queue.behind.begin(), queue.behind.end(), t);
  if (it != queue.behind.end()) queue.behind.erase(it);
}

void Engine::begin_next(DeviceId d) {
  Queue& queue = queues_[at(d)];
  if (queue.running != kNone) return;
  if (rules_ == nullptr && !schedule_.order.empty()) {
    const auto& order = schedule_.order[at(d)];
    if (queue.next < order.size() && state_[at(order[queue.next])] == State::kReady) begin(order[queue.next], d);
  } else if (!queue.ready.empty()) {
    begin(queue.ready.begin()->second, d);
  }
}

void Engine::begin(TaskId t, DeviceId d) {
  take_out(t);
  state_[at(t)] = State::kRuns;
  queues_[at(d)].running = t;
  begun_[at(d)].push_back(t);
  const double ms = predicted_ms(t, d) * conditions_.noise[at(t)] * conditions_.slow[at(d)];
  out_.tasks[at(t)] = {d, now_, now_ + ms};
  events_.emplace(now_ + ms, Kind::kTaskEnds, t, d);
  find_next(d);
}

void Engine::find_next(DeviceId d) {
  if (schedule_.order.empty()) return;
  const auto& order = schedule_.order[at(d)];
  const auto gone = [&](TaskId t) {
    return place_[at(t)] != d || state_[at(t)] == State::kRuns || state_[at(t)] == State::kDone;
  };
  std::size_t& next = queues_[at(d)].next;
  while (next < order.size() && gone(order[next])) ++next;
}

const Engine::Copy* Engine::copy_at(ValueId v, DeviceId d) const {
  for (const Copy& copy : copies_[at(v)]) {
    if (copy.device == d) return &copy;
  }
  return nullptr;
}

std::pair<double, DeviceId> Engine::nearest(ValueId v, DeviceId to) const {
  std::pair<double, DeviceId> best{std::numeric_limits<double>::infinity(), kNone};
  const double bytes = graph_.values[at(v)].bytes;
  for (const Copy& copy : copies_[at(v)]) {
    if (!copy.there || copy.device == to) continue;
    const double starts = std::max(now_, link_free_[at(machine_.links().link(copy.device, to))]);
    best = std::min(best, {starts + machine_.message_ms(copy.device, to, bytes), copy.device});
  }
  return best;
}

void Engine::send(ValueId v, DeviceId to) {
  if (copy_at(v, to) != nullptr) return;
  const auto [arrives, from] = nearest(v, to);
  AM_CHECK(from != kNone);
  double& free = link_free_[at(machine_.links().link(from, to))];
  out_.messages.push_back({v, from, to, std::max(now_, free), arrives});
  free = arrives;
  copies_[at(v)].push_back({to, false, arrives});
  events_.emplace(arrives, Kind::kArrives, v, to);
}

}  // namespace automap::heuristics
