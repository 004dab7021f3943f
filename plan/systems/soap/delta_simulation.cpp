#include "plan/systems/soap/delta_simulation.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::soap {

namespace {

// The order of heaps of slots: the earliest first.
constexpr auto later = [](const auto& a, const auto& b) { return b < a; };

std::size_t size_class(std::int32_t size) {
  std::size_t out = 0;
  while ((std::int32_t{1} << out) < size) ++out;
  return out;
}

}  // namespace

DeltaSimulation::DeltaSimulation(const Space& space, const MachineLinks& machine, Strategy strategy)
    : space_(space), machine_(machine), strategy_(std::move(strategy)), free_(32) {
  orders_.resize(at(machine.num_resources()) + 1);  // the last one: of tasks that wait for no device
  order_saved_.assign(orders_.size(), 0);
  blocks_.resize(space.operators.size() + space.edges.size());
  for (std::size_t b = 0; b < blocks_.size(); ++b) make_block(static_cast<std::int32_t>(b));
  for (std::size_t t = 0; t < states_.size(); ++t) {
    double ready = 0;
    const auto task = static_cast<TaskId>(t);
    if (states_[t].alive && ready_at(task, &ready)) queue(task, ready);
  }
  run();
  measure();
}

// --- Blocks ---

void DeltaSimulation::make_block(std::int32_t b) {
  Block& made = block(b);
  if (is_edge(b)) {
    const Edge& edge = edge_of(b);
    made.edge =
        edge_block(space_, b - space_.size(), strategy_[at(edge.producer)], strategy_[at(edge.consumer)], machine_);
    take_ids(b, made.edge.tasks);
  } else {
    made.op = operator_block(space_, b, strategy_[at(b)], machine_);
    take_ids(b, made.op.tasks);
  }
}

void DeltaSimulation::take_ids(std::int32_t b, const std::vector<Task>& tasks) {
  Block& made = block(b);
  made.size = static_cast<std::int32_t>(tasks.size());
  if (made.size > 0) {
    std::vector<TaskId>& ranges = free_[size_class(made.size)];
    if (ranges.empty()) {
      made.first = static_cast<TaskId>(states_.size());
      states_.resize(states_.size() + (std::size_t{1} << size_class(made.size)));
    } else {
      made.first = ranges.back();
      ranges.pop_back();
    }
  }
  for (std::int32_t i = 0; i < made.size; ++i) {
    State fresh;
    fresh.ms = tasks[at(i)].ms;
    fresh.order = tasks[at(i)].order;
    fresh.resource = tasks[at(i)].resource == kNone ? machine_.num_resources() : tasks[at(i)].resource;
    fresh.queued = -1;
    fresh.block = b;
    fresh.local = i;
    fresh.saved = proposal_;  // a rejection takes it away
    fresh.alive = true;
    state(made.first + i) = fresh;
  }
  num_tasks_ += made.size;
  tasks_made_ += made.size;
}

void DeltaSimulation::free_ids(TaskId first, std::int32_t size) {
  for (std::int32_t i = 0; i < size; ++i) state(first + i).alive = false;
  if (size > 0) free_[size_class(size)].push_back(first);
}

// Over the pairs of a part of an operator, as the one that makes or as the one that reads: their messages, or where
// there is none the other part's task; forward, or the ways that gradients come back.
template <bool Makes, bool Back, typename See>
bool DeltaSimulation::over_pairs(OperatorId op, std::int32_t part, const See& see) const {
  for (const std::int32_t e : Makes ? space_.out[at(op)] : space_.in[at(op)]) {
    const Block& edge = block(space_.size() + e);
    const std::vector<std::int32_t>& first = Makes ? edge.edge.first_of_producer : edge.edge.first_of_consumer;
    const OperatorId other = Makes ? space_.edges[at(e)].consumer : space_.edges[at(e)].producer;
    for (std::int32_t k = first[at(part)]; k < first[at(part) + 1]; ++k) {
      const PartPair& pair = edge.edge.pairs[at(Makes ? edge.edge.of_producer[at(k)] : k)];
      if (Back && !pair.has_back) continue;
      const std::int32_t message = Back ? pair.back : pair.message;
      const std::int32_t its = Makes ? pair.consumer : pair.producer;
      const OperatorBlock& at_other = block(other).op;
      const bool seen = see(message != kNone ? edge.first + message
                                             : block(other).first +
                                                   (Back ? at_other.backward_task(its) : at_other.forward_task(its)));
      if (!seen) return false;
    }
  }
  return true;
}

template <bool Behind, typename See>
void DeltaSimulation::around(TaskId t, const See& see) const {
  const State& s = state(t);
  const Block& own = block(s.block);
  if (is_edge(s.block)) {
    const Edge& edge = edge_of(s.block);
    const PartPair& pair = own.edge.pairs[at(own.edge.pair_of[at(s.local)])];
    const bool back = s.local != pair.message;
    // Forward messages go from the producer, gradients to it.
    const bool at_producer = Behind == back;
    const Block& op = block(at_producer ? edge.producer : edge.consumer);
    const std::int32_t part = at_producer ? pair.producer : pair.consumer;
    see(op.first + (back ? op.op.backward_task(part) : op.op.forward_task(part)));
    return;
  }
  const std::vector<std::int32_t>& first = Behind ? own.op.first_behind : own.op.first_before;
  const std::vector<std::int32_t>& tasks = Behind ? own.op.behind : own.op.before;
  for (std::int32_t k = first[at(s.local)]; k < first[at(s.local) + 1]; ++k) {
    if (!see(own.first + tasks[at(k)])) return;
  }
  if (s.local < own.op.parts) {
    over_pairs<Behind, false>(s.block, s.local, see);
  } else if (own.op.backward && s.local < 2 * own.op.parts) {
    over_pairs<!Behind, true>(s.block, s.local - own.op.parts, see);
  }
}

template <typename See>
void DeltaSimulation::before(TaskId t, const See& see) const {
  around<false>(t, see);
}

template <typename See>
void DeltaSimulation::behind(TaskId t, const See& see) const {
  around<true>(t, [&](TaskId task) {
    see(task);
    return true;
  });
}

bool DeltaSimulation::ready_at(TaskId t, double* ready) {
  double latest = 0;
  TaskId missing = kNone;
  before(t, [&](TaskId task) {
    if (!state(task).placed) {
      missing = task;
      return false;
    }
    latest = std::max(latest, state(task).end);
    return true;
  });
  if (missing != kNone) {
    state(t).watch = missing;
    state(t).watched_in = proposal_;
    return false;
  }
  *ready = latest;
  return true;
}

// --- Tasks on their devices ---

std::vector<DeltaSimulation::Slot>& DeltaSimulation::order_of(std::int32_t resource) {
  if (proposed_ && order_saved_[at(resource)] != proposal_) {
    order_saved_[at(resource)] = proposal_;
    std::vector<Slot> copy;
    if (!spare_.empty()) {
      copy = std::move(spare_.back());
      spare_.pop_back();
    }
    copy.assign(orders_[at(resource)].begin(), orders_[at(resource)].end());
    old_orders_.emplace_back(resource, std::move(copy));
  }
  return orders_[at(resource)];
}

void DeltaSimulation::save(TaskId t) {
  State& s = state(t);
  if (!proposed_ || s.saved == proposal_) return;
  s.saved = proposal_;
  saved_.push_back({t, s.ready, s.start, s.end, s.placed, s.timed});
}

void DeltaSimulation::queue(TaskId t, double ready) {
  State& s = state(t);
  if (s.queued >= 0 && s.queued <= ready) return;
  s.queued = ready;
  heap_.push_back({ready, s.order, t});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

// Something before a task that has a place may have become earlier, or is another one now.
void DeltaSimulation::queue_again(TaskId t) {
  double ready = 0;
  const double old = state(t).ready;
  if (!ready_at(t, &ready)) {
    queue(t, old);
  } else if (ready != old || state(t).queued >= 0) {
    queue(t, std::min(ready, old));
  }
}

// The task at a place has another one before it than it had.
void DeltaSimulation::look_at(const std::vector<Slot>& order, std::size_t place) {
  if (place >= order.size()) return;
  const State& s = state(order[place].task);
  const double start = place == 0 ? s.ready : std::max(s.ready, state(order[place - 1].task).end);
  if (start != s.start) queue(order[place].task, s.ready);
}

void DeltaSimulation::remove(TaskId t) {
  State& s = state(t);
  save(t);
  s.placed = false;
  std::vector<Slot>& order = order_of(s.resource);
  const auto slot = std::lower_bound(order.begin(), order.end(), Slot{s.ready, s.order, t});
  AM_CHECK(slot != order.end() && slot->task == t);
  const auto place = static_cast<std::size_t>(slot - order.begin());
  order.erase(slot);
  if (waits_for_device(s)) look_at(order, place);
}

// The task will be ready at `ready`, later than now; the tasks behind it that cannot have waited for it are looked at
// before that.
void DeltaSimulation::wait(TaskId t, double ready) {
  if (state(t).placed) remove(t);
  const double end = ready + state(t).ms;
  behind(t, [&](TaskId next) {
    if (state(next).placed && end > state(next).ready) queue(next, state(next).ready);
  });
}

void DeltaSimulation::put(TaskId t, double ready) {
  save(t);
  const bool stayed = state(t).placed;
  if (stayed && state(t).ready != ready) remove(t);
  State& s = state(t);
  const double old_end = s.end;
  const bool had_end = s.timed;
  std::vector<Slot>& order = order_of(s.resource);
  auto slot = std::lower_bound(order.begin(), order.end(), Slot{ready, s.order, t});
  if (!s.placed) slot = order.insert(slot, Slot{ready, s.order, t});
  const auto place = static_cast<std::size_t>(slot - order.begin());
  s.ready = s.start = ready;
  if (waits_for_device(s) && place > 0) s.start = std::max(ready, state(order[place - 1].task).end);
  s.end = s.start + s.ms;
  s.placed = s.timed = true;
  if (waits_for_device(s)) look_at(order, place + 1);
  if (!stayed || s.end != old_end) look_behind(t, old_end, had_end);
}

void DeltaSimulation::look_behind(TaskId t, double old_end, bool had_end) {
  const double end = state(t).end;
  behind(t, [&](TaskId next) {
    const State& s = state(next);
    if (!s.placed) {
      // It still misses the one that it missed before.
      if (s.watch != kNone && s.watched_in == proposal_ && !state(s.watch).placed) return;
      double ready = 0;
      if (ready_at(next, &ready)) queue(next, ready);
    } else if (!had_end || s.queued >= 0) {
      queue_again(next);  // what it waits for may be known now
    } else if (end > old_end) {
      if (end > s.ready) queue(next, s.ready);
    } else if (end < old_end) {
      // Where it was not the last one that `next` waited for, nothing changes.
      if (old_end >= s.ready) queue_again(next);
    }
  });
}

// --- A change ---

void DeltaSimulation::take(const Slot& entry) {
  State& s = state(entry.task);
  if (!s.alive || s.queued != entry.ready) return;
  s.queued = -1;
  ++tasks_taken_;
  double ready = 0;
  if (!ready_at(entry.task, &ready)) {
    if (!s.placed) return;
    remove(entry.task);
    behind(entry.task, [&](TaskId next) {
      if (state(next).placed) queue(next, state(next).ready);
    });
  } else if (ready > entry.ready) {
    wait(entry.task, ready);
    queue(entry.task, ready);
  } else {
    AM_CHECK(ready == entry.ready);
    put(entry.task, ready);
  }
}

void DeltaSimulation::run() {
  const auto most = static_cast<std::int64_t>(most_looks_ * num_tasks_);
  for (std::int64_t looks = 0; !heap_.empty(); ++looks) {
    if (looks > most) {
      const Slot moment = heap_.front();
      for (const Slot& entry : heap_) state(entry.task).queued = -1;
      heap_.clear();
      return run_events_from(moment);
    }
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Slot entry = heap_.back();
    heap_.pop_back();
    take(entry);
  }
}

// Nothing before `moment` changes any more.
void DeltaSimulation::run_events_from(const Slot& moment) {
  waiting_.clear();
  const auto add = [&](TaskId t) {
    State& s = state(t);
    if (!s.alive || s.placed) return;
    waiting_.push_back(t);
  };
  // Without a place already: new ones, and those that had one before the change (all, the first time).
  if (proposed_) {
    for (const Saved& saved : saved_) add(saved.task);
    for (const std::int32_t b : changed_blocks_) {
      for (std::int32_t i = 0; i < block(b).size; ++i) add(block(b).first + i);
    }
  } else {
    for (std::size_t t = 0; t < states_.size(); ++t) add(static_cast<TaskId>(t));
  }
  for (std::size_t r = 0; r < orders_.size(); ++r) {
    const std::vector<Slot>& known = orders_[r];
    const auto place = static_cast<std::size_t>(std::lower_bound(known.begin(), known.end(), moment) - known.begin());
    if (place == known.size()) continue;
    std::vector<Slot>& order = order_of(static_cast<std::int32_t>(r));
    for (std::size_t i = place; i < order.size(); ++i) {
      save(order[i].task);
      state(order[i].task).placed = false;
      waiting_.push_back(order[i].task);
    }
    order.resize(place);
  }
  for (const TaskId t : waiting_) {
    State& s = state(t);
    double ready = 0;
    std::int32_t missing = 0;
    before(t, [&](TaskId task) {
      if (state(task).placed) {
        ready = std::max(ready, state(task).end);
      } else {
        ++missing;
      }
      return true;
    });
    s.ready = ready;
    s.missing = missing;
    if (missing == 0) heap_.push_back({ready, s.order, t});
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    const TaskId t = heap_.front().task;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
    State& s = state(t);
    std::vector<Slot>& order = order_of(s.resource);
    s.start = s.ready;
    if (waits_for_device(s) && !order.empty()) s.start = std::max(s.ready, state(order.back().task).end);
    s.end = s.start + s.ms;
    s.placed = s.timed = true;
    order.push_back({s.ready, s.order, t});
    behind(t, [&](TaskId next) {
      State& n = state(next);
      n.ready = std::max(n.ready, s.end);
      if (--n.missing > 0) return;
      heap_.push_back({n.ready, n.order, next});
      std::push_heap(heap_.begin(), heap_.end(), later);
    });
  }
  tasks_taken_ += static_cast<std::int64_t>(waiting_.size());
}

void DeltaSimulation::measure() {
  // Nothing ends behind the last task of a device: messages and rings are waited for.
  step_ms_ = 0;
  for (std::int32_t device = 0; device < machine_.num_devices(); ++device) {
    if (!orders_[at(device)].empty()) step_ms_ = std::max(step_ms_, state(orders_[at(device)].back().task).end);
  }
}

void DeltaSimulation::replace_blocks(const std::vector<std::int32_t>& changed) {
  for (const std::int32_t b : changed) {
    for (std::int32_t i = 0; i < block(b).size; ++i) {
      const TaskId t = block(b).first + i;
      save(t);
      state(t).alive = false;
    }
  }
  // All of them are gone before anybody is looked at, so that none of them is.
  std::vector<std::int32_t> touched;
  for (const std::int32_t b : changed) {
    for (std::int32_t i = 0; i < block(b).size; ++i) {
      State& s = state(block(b).first + i);
      s.placed = false;
      order_of(s.resource);
      touched.push_back(s.resource);
    }
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const std::int32_t resource : touched) {
    std::vector<Slot>& order = orders_[at(resource)];
    std::size_t kept = 0;
    bool gone = false;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (!state(order[i].task).alive) {
        gone = true;
        continue;
      }
      order[kept++] = order[i];
      if (gone && waits_for_device(state(order[kept - 1].task))) look_at(order, kept - 1);
      gone = false;
    }
    order.resize(kept);
  }
  for (const std::int32_t b : changed) {
    num_tasks_ -= block(b).size;
    old_blocks_.emplace_back(b, std::move(block(b)));
    block(b) = Block();
    make_block(b);
  }
}

double DeltaSimulation::propose(OperatorId op, Config config) {
  AM_CHECK(!proposed_);
  proposed_ = true;
  ++proposal_;
  changed_ = op;
  old_step_ms_ = step_ms_;
  old_num_tasks_ = num_tasks_;
  old_config_ = std::exchange(strategy_[at(op)], std::move(config));
  std::vector<std::int32_t>& changed = changed_blocks_;
  changed.assign(1, op);
  for (const std::int32_t e : space_.in[at(op)]) changed.push_back(space_.size() + e);
  for (const std::int32_t e : space_.out[at(op)]) changed.push_back(space_.size() + e);
  replace_blocks(changed);
  for (const std::int32_t b : changed) {
    for (std::int32_t i = 0; i < block(b).size; ++i) {
      double ready = 0;
      if (ready_at(block(b).first + i, &ready)) queue(block(b).first + i, ready);
    }
  }
  // Queues the tasks that now wait for other tasks than before.
  for (const std::int32_t e : space_.out[at(op)]) {
    const Block& reader = block(space_.edges[at(e)].consumer);
    for (std::int32_t part = 0; part < reader.op.parts; ++part) queue_again(reader.first + part);
  }
  for (const std::int32_t e : space_.in[at(op)]) {
    const Block& maker = block(space_.edges[at(e)].producer);
    if (!maker.op.backward) continue;
    for (std::int32_t part = 0; part < maker.op.parts; ++part) queue_again(maker.first + maker.op.backward_task(part));
  }
  run();
  measure();
  return step_ms_;
}

void DeltaSimulation::accept() {
  AM_CHECK(proposed_);
  proposed_ = false;
  for (const auto& [b, old] : old_blocks_) free_ids(old.first, old.size);
  for (auto& [resource, order] : old_orders_) spare_.push_back(std::move(order));
  old_blocks_.clear();
  old_orders_.clear();
  saved_.clear();
}

void DeltaSimulation::reject() {
  AM_CHECK(proposed_);
  proposed_ = false;
  for (auto& [b, old] : old_blocks_) {
    free_ids(block(b).first, block(b).size);
    block(b) = std::move(old);
    for (std::int32_t i = 0; i < block(b).size; ++i) state(block(b).first + i).alive = true;
  }
  for (const Saved& old : saved_) {
    State& s = state(old.task);
    s.ready = old.ready;
    s.start = old.start;
    s.end = old.end;
    s.placed = old.placed;
    s.timed = old.timed;
  }
  for (auto& [resource, order] : old_orders_) {
    orders_[at(resource)].swap(order);
    spare_.push_back(std::move(order));
  }
  old_blocks_.clear();
  old_orders_.clear();
  saved_.clear();
  strategy_[at(changed_)] = std::move(old_config_);
  step_ms_ = old_step_ms_;
  num_tasks_ = old_num_tasks_;
}

std::vector<TaskTimes> DeltaSimulation::times() const {
  std::vector<TaskTimes> out;
  for (const State& s : states_) {
    if (s.alive) out.push_back({s.order, waits_for_device(s) ? s.resource : kNone, s.ready, s.start, s.end});
  }
  std::sort(out.begin(), out.end(), [](const TaskTimes& a, const TaskTimes& b) { return a.order < b.order; });
  return out;
}

}  // namespace automap::soap
