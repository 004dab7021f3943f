#include "common/pipeline/work_simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/pipeline/cost.h"

namespace automap::pipeline {
namespace {

constexpr double kNotYet = -1;

// The state of a step that is executed, reused between calls: orders are simulated by the thousand.
struct Execution {
  std::vector<std::size_t> next;             // [S] of its list
  std::vector<double> free_ms;               // [S]
  std::vector<double> link_ms;               // [S x S] when that direction is free
  std::vector<double> activation, gradient;  // [C x M] when what a forward and a backward need has come
  std::vector<double> last_start;            // [C] of what makes the gradients of its weights
};

// Gradient sync, exchange and optimizer behind the group's last work.
double end_of_group(const WorkTimes& times, const Execution& state, int group, WorkRecord* record) {
  const double done = state.free_ms[at(group)];
  double synced = times.sync_behind ? done : 0;
  const WorkKind last = last_pass(times.split_backward());
  for (int part = times.num_parts() - 1; part >= 0; --part) {
    if (times.group_of_part[at(part)] != group) continue;
    const double takes = times.item_ms({last, part, 0});
    for (const SyncBucket& bucket : times.sync[at(part)]) {
      const double start = std::max(synced, state.last_start[at(part)] + bucket.ready_share * takes);
      synced = start + bucket.ms;
      if (record != nullptr) record->sync[at(group)].push_back({{last, part, 0}, start, synced});
    }
  }
  const double all_synced = std::max(done, synced) + times.exchange_ms[at(group)];
  const double end = all_synced + times.optimizer_ms[at(group)];
  if (record != nullptr) {
    record->sync_end_ms.push_back(all_synced);
    record->end_ms.push_back(end);
  }
  return end;
}

}  // namespace

double WorkTimes::group_ms(int group) const {
  double ms = 0;
  for (int part = 0; part < num_parts(); ++part) {
    if (group_of_part[at(part)] != group) continue;
    ms += forward_ms[at(part)] + backward_ms[at(part)] + (split_backward() ? weights_ms[at(part)] : 0);
  }
  return ms;
}

double simulate_order_ms(const WorkTimes& times, int micro_batches, const WorkOrder& order, WorkRecord* record) {
  const int groups = times.num_groups(), parts = times.num_parts();
  AM_CHECK(order.size() == at(groups));
  thread_local Execution state;
  state.next.assign(at(groups), 0);
  state.free_ms.assign(at(groups), 0);
  state.link_ms.assign(at(groups * groups), 0);
  state.activation.assign(at(parts) * at(micro_batches), kNotYet);
  state.gradient.assign(at(parts) * at(micro_batches), kNotYet);
  state.last_start.assign(at(parts), 0);
  std::fill_n(state.activation.begin(), micro_batches, 0.0);
  std::fill_n(state.gradient.end() - micro_batches, micro_batches, 0.0);
  if (record != nullptr) {
    *record = {};
    record->work.resize(at(groups));
    record->sync.resize(at(groups));
  }
  const WorkKind last = last_pass(times.split_backward());
  // The time when the result of `item` is where part `to` runs.
  const auto send = [&](const WorkItem& item, int to) {
    const int from_group = times.group_of_part[at(item.part)], to_group = times.group_of_part[at(to)];
    const double done = state.free_ms[at(from_group)];
    if (from_group == to_group) return done;
    double& link = state.link_ms[at(from_group * groups + to_group)];
    const double start = std::max(link, done);
    link = start + times.transfer_ms[at(std::min(item.part, to))];
    if (record != nullptr) record->messages.push_back({{item, start, link}, from_group, to_group});
    return link;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int g = 0; g < groups; ++g) {
      const GroupOrder& own = order[at(g)];
      std::size_t& next = state.next[at(g)];
      double& free = state.free_ms[at(g)];
      for (; next < own.size(); ++next, moved = true) {
        const WorkItem& item = own[next];
        const std::size_t needs = at(item.part) * at(micro_batches) + at(item.micro_batch);
        const double ready = item.kind == WorkKind::kForward    ? state.activation[needs]
                             : item.kind == WorkKind::kBackward ? state.gradient[needs]
                                                                : 0;
        if (ready == kNotYet) break;
        const double start = std::max(free, ready);
        if (item.kind == last) state.last_start[at(item.part)] = start;
        free = start + times.item_ms(item);
        if (record != nullptr) record->work[at(g)].push_back({item, start, free});
        if (item.kind == WorkKind::kForward && item.part + 1 < parts) {
          state.activation[needs + at(micro_batches)] = send(item, item.part + 1);
        } else if (item.kind == WorkKind::kBackward && item.part > 0) {
          state.gradient[needs - at(micro_batches)] = send(item, item.part - 1);
        }
      }
    }
  }
  double length = 0;
  for (int g = 0; g < groups; ++g) {
    if (state.next[at(g)] < order[at(g)].size()) return kInfinity;
    length = std::max(length, end_of_group(times, state, g, record));
  }
  if (record != nullptr) {
    std::stable_sort(
        record->messages.begin(), record->messages.end(),
        [](const WorkRecord::Message& a, const WorkRecord::Message& b) { return a.start_ms < b.start_ms; });
  }
  return length;
}

KeptWork kept_at_most(const GroupOrder& order, const std::vector<double>& stash_bytes, bool split_backward) {
  const WorkKind done = last_pass(split_backward);
  KeptWork now, most;
  for (const WorkItem& item : order) {
    const int by = item.kind == WorkKind::kForward ? 1 : item.kind == done ? -1 : 0;
    now.micro_batches += by;
    now.bytes += by * stash_bytes[at(item.part)];
    most.micro_batches = std::max(most.micro_batches, now.micro_batches);
    most.bytes = std::max(most.bytes, now.bytes);
  }
  return most;
}

namespace {

// The most of a group's forwards, in ms, that its memory holds before anything of it is done.
double forwards_held_ms(const WorkTimes& times, int micro_batches, const std::vector<int>& own, double room_bytes) {
  std::vector<int> by_worth = own;
  const auto worth = [&](int part) {
    const double stash = times.stash_bytes[at(part)];
    return stash > 0 ? times.forward_ms[at(part)] / stash : kInfinity;
  };
  std::sort(by_worth.begin(), by_worth.end(), [&](int a, int b) { return worth(a) > worth(b); });
  double left = room_bytes, ms = 0;
  for (const int part : by_worth) {
    const double stash = times.stash_bytes[at(part)];
    double count = micro_batches;
    if (stash > 0) count = std::min(count, left / stash);
    if (own.size() == 1) count = std::floor(count * (1 + 1e-12));
    ms += count * times.forward_ms[at(part)];
    left -= count * stash;
  }
  return ms;
}

// The least time that follows the backward of `part` even if nothing waits: the backwards in front of it, then the
// exchange and optimizer behind those.
double behind_backward_ms(const WorkTimes& times, int part) {
  const int group = times.group_of_part[at(part)];
  double tail = times.exchange_ms[at(group)] + times.optimizer_ms[at(group)], way = 0;
  for (int q = part - 1; q >= 0; --q) {
    way += times.transfer_ms[at(q)] + times.backward_ms[at(q)];
    const int of = times.group_of_part[at(q)];
    tail = std::max(tail, way + times.exchange_ms[at(of)] + times.optimizer_ms[at(of)]);
  }
  return tail;
}

}  // namespace

double any_order_bound_ms(const WorkTimes& times, int micro_batches) {
  const int parts = times.num_parts();
  const double transfers = std::accumulate(times.transfer_ms.begin(), times.transfer_ms.end(), 0.0);
  const double forwards = std::accumulate(times.forward_ms.begin(), times.forward_ms.end(), transfers);
  const double backwards = std::accumulate(times.backward_ms.begin(), times.backward_ms.end(), transfers);
  double bound = forwards + backwards + times.exchange_ms[at(times.group_of_part[0])] +
                 times.optimizer_ms[at(times.group_of_part[0])];
  for (int g = 0; g < times.num_groups(); ++g) {
    std::vector<int> own;
    for (int part = 0; part < parts; ++part) {
      if (times.group_of_part[at(part)] == g) own.push_back(part);
    }
    const int front = own.front(), back = own.back();
    double head = 0, first_backward = forwards;
    for (int q = 0; q < front; ++q) head += times.forward_ms[at(q)] + times.transfer_ms[at(q)];
    for (int q = parts - 1; q > back; --q) first_backward += times.backward_ms[at(q)] + times.transfer_ms[at(q - 1)];
    const double load = micro_batches * times.group_ms(g);
    const double held =
        times.stash_bytes.empty() ? kInfinity : forwards_held_ms(times, micro_batches, own, times.room_bytes[at(g)]);
    const double begun = std::max(head, first_backward - held);  // when it would begin, never idle from there on
    const double own_end = times.exchange_ms[at(g)] + times.optimizer_ms[at(g)];
    // A group's last work of a micro-batch is the backward of its foremost part; with passes for the weights these may
    // all stand behind it.
    double weights = 0;
    for (const int part : own) weights += times.split_backward() ? micro_batches * times.weights_ms[at(part)] : 0;
    bound = std::max(bound, begun + load + own_end);
    bound = std::max(bound, begun + load - weights + behind_backward_ms(times, front));
  }
  return bound;
}

}  // namespace automap::pipeline
