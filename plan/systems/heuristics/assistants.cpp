// Scheduling assistants: their knowledge, and their rules for moving a task (simulation.h).
#include <algorithm>
#include <numeric>

#include "plan/systems/heuristics/engine.h"

namespace automap::heuristics {

namespace {

constexpr std::size_t kVictims = 3;    // queues that a free device looks at
constexpr std::size_t kLastTasks = 4;  // of a queue

}  // namespace

// Devices that make the task's operands or read its results, then those with the least to compute, of its own server
// first: where another server is empty, they would all be there, and the way there and back seldom pays.
void Engine::list_alternates() {
  std::vector<double> work(queues_.size(), 0);
  for (TaskId t = 0; t < graph_.size(); ++t) work[at(place_[at(t)])] += predicted_ms(t, place_[at(t)]);
  std::vector<DeviceId> lightest(queues_.size());
  std::iota(lightest.begin(), lightest.end(), 0);
  std::stable_sort(lightest.begin(), lightest.end(), [&](DeviceId a, DeviceId b) { return work[at(a)] < work[at(b)]; });
  alternates_.resize(graph_.tasks.size());
  for (TaskId t = 0; t < graph_.size(); ++t) {
    if (graph_.tasks[at(t)].pinned) continue;
    auto& list = alternates_[at(t)];
    const auto add = [&](DeviceId d) {
      const bool more = list.size() < static_cast<std::size_t>(rules_->alternates);
      if (more && d != place_[at(t)] && std::find(list.begin(), list.end(), d) == list.end()) list.push_back(d);
    };
    for (const ValueId v : graph_.read[at(t)]) add(place_[at(graph_.values[at(v)].producer)]);
    for (const ValueId v : graph_.made[at(t)]) {
      const auto& readers = graph_.values[at(v)].consumers;
      for (std::size_t i = 0; i < readers.size() && i < kManyReaders; ++i) add(place_[at(readers[i])]);
    }
    if (list.size() > 1) list.resize(std::max<std::size_t>(1, list.size() / 2 + 1));
    const auto own = [&](DeviceId d) {
      return machine_.links().server_of(d) == machine_.links().server_of(place_[at(t)]);
    };
    for (const bool first : {true, false}) {
      for (const DeviceId d : lightest) {
        if (own(d) == first) add(d);
      }
    }
  }
}

// The time until the running task ends, as the assistant expects.
double Engine::running_ms(DeviceId d) const {
  const Queue& queue = queues_[at(d)];
  if (queue.running == kNone) return 0;
  const double ends = out_.tasks[at(queue.running)].start_ms + queue.ratio * predicted_ms(queue.running, d);
  return std::max(0.0, ends - now_);
}

double Engine::backlog_ms(DeviceId d) const {
  return running_ms(d) + queues_[at(d)].ratio * std::max(0.0, queues_[at(d)].waiting_ms);
}

double Engine::Messages::arrives_ms(DeviceId from, DeviceId to, double bytes, double made_ms) {
  if (from == to) return made_ms;
  const std::int32_t link = engine_.machine_.links().link(from, to);
  auto own = std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.first == link; });
  if (own == free_.end()) own = free_.insert(own, {link, engine_.link_free_[at(link)]});
  own->second = std::max(own->second, made_ms) + engine_.machine_.message_ms(from, to, bytes);
  return own->second;
}

// At home nothing is counted that might not come before it: where all is as predicted, it ends when the plan says or
// earlier.
double Engine::late_at_home_ms(TaskId t) const {
  const DeviceId d = place_[at(t)];
  double arrived = now_, before = 0;
  for (const ValueId v : graph_.read[at(t)]) {
    const Copy* copy = copy_at(v, d);
    if (copy == nullptr || !copy->there)
      arrived = std::max(arrived, copy == nullptr ? nearest(v, d).first : copy->arrives_ms);
  }
  for (const auto& key : queues_[at(d)].ready) {
    if (key >= std::make_pair(-schedule_.priority[at(t)], t)) break;
    before += predicted_ms(key.second, d);
  }
  const double ratio = queues_[at(d)].ratio;
  return late_ms(t, d, std::max(arrived, now_ + running_ms(d) + ratio * before) + ratio * predicted_ms(t, d));
}

double Engine::late_there_ms(TaskId t, DeviceId d) const {
  double arrived = now_;
  Messages messages(*this);
  for (const ValueId v : graph_.read[at(t)]) {
    const Copy* copy = copy_at(v, d);
    if (copy == nullptr) {
      arrived = std::max(arrived, messages.arrives_ms(nearest(v, d).second, d, graph_.values[at(v)].bytes, now_));
    } else if (!copy->there) {
      arrived = std::max(arrived, copy->arrives_ms);
    }
  }
  const Queue& queue = queues_[at(d)];
  const double end = std::max(arrived, now_ + backlog_ms(d)) + queue.ratio * predicted_ms(t, d);
  double out = late_ms(t, d, end);
  const auto& order = schedule_.order[at(d)];
  if (queue.next < order.size()) out = std::max(out, end - schedule_.latest_start[at(order[queue.next])]);
  return out;
}

double Engine::late_ms(TaskId t, DeviceId d, double end_ms) const {
  double out = end_ms - schedule_.planned.makespan_ms;
  Messages messages(*this);
  std::vector<std::pair<DeviceId, double>> needed;  // where and when at the latest, in the order of sending
  for (const ValueId v : graph_.made[at(t)]) {
    const auto& readers = graph_.values[at(v)].consumers;
    needed.clear();
    for (std::size_t i = 0; i < readers.size() && i < kManyReaders; ++i)
      needed.emplace_back(place_[at(readers[i])], schedule_.latest_start[at(readers[i])]);
    std::sort(needed.begin(), needed.end());
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const auto [to, latest_ms] = needed[i];
      if (i > 0 && needed[i - 1].first == to) continue;
      out = std::max(out, messages.arrives_ms(d, to, graph_.values[at(v)].bytes, end_ms) - latest_ms);
    }
  }
  return out;
}

double Engine::needed_bytes(TaskId t, DeviceId d) const {
  double out = graph_.tasks[at(t)].memory_bytes;
  for (const ValueId v : graph_.read[at(t)]) {
    if (copy_at(v, d) == nullptr) out += graph_.values[at(v)].bytes;
  }
  for (const ValueId v : graph_.made[at(t)]) out += graph_.values[at(v)].bytes;
  return out;
}

bool Engine::has_memory(TaskId t, DeviceId d) const {
  const Queue& queue = queues_[at(d)];
  return queue.planned_bytes + queue.extra_bytes + needed_bytes(t, d) <= machine_.capacity_bytes(d);
}

// Where it has come to it, but not begun, and has not moved before.
bool Engine::may_move(TaskId t) const {
  return !alternates_[at(t)].empty() && place_[at(t)] == schedule_.home[at(t)] &&
         (state_[at(t)] == State::kWaits || state_[at(t)] == State::kReady);
}

bool Engine::worth_moving(TaskId t, DeviceId to) const {
  const double home = late_at_home_ms(t);
  return home > rules_->theta_ms && late_there_ms(t, to) < home - rules_->theta_ms && has_memory(t, to);
}

void Engine::move(TaskId t, DeviceId to) {
  queues_[at(to)].extra_bytes += needed_bytes(t, to);
  if (state_[at(t)] == State::kReady) take_out(t);
  const DeviceId home = place_[at(t)];
  place_[at(t)] = to;
  find_next(home);
  enable(t);
}

// To the alternate where it is least late.
bool Engine::push(TaskId t) {
  if (!may_move(t) || queues_[at(place_[at(t)])].ratio <= 1 + rules_->tau) return false;
  DeviceId best = kNone;
  double best_ms = 0;
  for (const DeviceId d : alternates_[at(t)]) {
    if (!worth_moving(t, d)) continue;
    const double ms = late_there_ms(t, d);
    if (best != kNone && (ms > best_ms || (ms == best_ms && d > best))) continue;
    best = d;
    best_ms = ms;
  }
  if (best == kNone) return false;
  move(t, best);
  ++out_.pushed;
  return true;
}

void Engine::push_last(DeviceId d) {
  if (!queues_[at(d)].ready.empty()) push(queues_[at(d)].ready.rbegin()->second);
}

void Engine::pull(DeviceId d) {
  Queue& own = queues_[at(d)];
  if (own.running != kNone || own.pulls || !own.ready.empty()) return;
  std::vector<std::pair<double, DeviceId>> most;  // by -backlog
  for (DeviceId other = 0; other < machine_.num_devices(); ++other) {
    if (other != d && !queues_[at(other)].ready.empty()) most.emplace_back(-backlog_ms(other), other);
  }
  const std::size_t looked_at = std::min(most.size(), kVictims);
  std::partial_sort(most.begin(), most.begin() + static_cast<std::ptrdiff_t>(looked_at), most.end());
  for (std::size_t i = 0; i < looked_at; ++i) {
    const auto& ready = queues_[at(most[i].second)].ready;
    std::size_t tried = 0;
    for (auto it = ready.rbegin(); it != ready.rend() && tried < kLastTasks; ++it, ++tried) {
      const TaskId t = it->second;
      const auto& list = alternates_[at(t)];
      if (!may_move(t) || std::find(list.begin(), list.end(), d) == list.end() || !worth_moving(t, d)) continue;
      own.pulls = true;  // until it is here
      move(t, d);
      ++out_.pulled;
      begin_next(d);
      return;
    }
  }
}

void Engine::observe(TaskId t) {
  const DeviceId d = place_[at(t)];
  const double predicted = predicted_ms(t, d);
  if (predicted <= 0) return;
  const TaskRun& run = out_.tasks[at(t)];
  double& ratio = queues_[at(d)].ratio;
  ratio += rules_->newest * ((run.end_ms - run.start_ms) / predicted - ratio);
}

}  // namespace automap::heuristics
