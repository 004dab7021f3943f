#include "common/pipeline/list_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/base/rng.h"

namespace automap::pipeline {
namespace {

constexpr double kNotHere = -1;
constexpr double kRounding = 1 + 1e-9;  // of memory

class ListScheduler {
 public:
  ListScheduler(const WorkTimes& times, int micro_batches, const ListRule& rule)
      : times_(times),
        rule_(rule),
        micro_batches_(micro_batches),
        groups_(times.num_groups()),
        parts_(times.num_parts()),
        kinds_(times.split_backward() ? 3 : 2),
        own_(at(groups_)),
        reserve_(at(parts_), 0),
        patience_ms_(at(groups_), 0),
        free_ms_(at(groups_), 0),
        kept_(at(groups_), 0),
        best_(at(groups_)),
        link_ms_(at(groups_ * groups_), 0),
        next_(at(parts_), {0, 0, 0}),
        arrived_{std::vector<double>(at(parts_) * at(micro_batches), kNotHere),
                 std::vector<double>(at(parts_) * at(micro_batches), kNotHere)},
        order_(at(groups_)) {
    for (int part = 0; part < parts_; ++part) own_[at(times.group_of_part[at(part)])].push_back(part);
    for (int g = 0; g < groups_; ++g) {
      double behind = 0;
      for (auto part = own_[at(g)].rbegin(); part != own_[at(g)].rend(); ++part) {
        reserve_[at(*part)] = behind;
        behind += times.stash_bytes[at(*part)];
      }
      const auto items = static_cast<double>(own_[at(g)].size() * at(kinds_));
      patience_ms_[at(g)] = rule.patience * times.group_ms(g) / items;
    }
    std::fill_n(arrived_[0].begin(), micro_batches, 0.0);
    std::fill_n(arrived_[1].end() - micro_batches, micro_batches, 0.0);
  }

  WorkOrder run() {
    for (int g = 0; g < groups_; ++g) choose(g);
    const std::int64_t all = std::int64_t{parts_} * micro_batches_ * kinds_;
    for (std::int64_t done = 0; done < all; ++done) {
      int first = -1;
      for (int g = 0; g < groups_; ++g) {
        if (best_[at(g)].start_ms < kInfinity && (first < 0 || best_[at(g)].start_ms < best_[at(first)].start_ms)) {
          first = g;
        }
      }
      if (first < 0) return {};
      begin(first);
    }
    return std::move(order_);
  }

 private:
  struct Choice {
    WorkItem item;
    double start_ms = kInfinity;
  };

  double arrived(const WorkItem& item) const {
    return item.kind == WorkKind::kWeights
               ? 0
               : arrived_[at(static_cast<int>(item.kind))][at(item.part) * at(micro_batches_) + at(item.micro_batch)];
  }

  // When it could begin on its group; kInfinity: not as things are.
  double can_begin(int group, const WorkItem& item) const {
    const std::array<int, 3>& next = next_[at(item.part)];
    const int before = item.kind == WorkKind::kForward ? micro_batches_ : next[at(static_cast<int>(item.kind) - 1)];
    if (item.micro_batch >= before) return kInfinity;
    const double ready = arrived(item);
    if (ready == kNotHere) return kInfinity;
    if (item.kind == WorkKind::kForward) {
      const double needs = kept_[at(group)] + times_.stash_bytes[at(item.part)] + reserve_[at(item.part)];
      if (needs > times_.room_bytes[at(group)] * kRounding) return kInfinity;
    }
    return std::max(free_ms_[at(group)], ready);
  }

  double worth(int group, const WorkItem& item) const {
    const ListRule::Worth& of = rule_.worth[at(static_cast<int>(item.kind))];
    const double room = times_.room_bytes[at(group)];
    const double fill = room > 0 && room < kInfinity ? kept_[at(group)] / room : 0;
    return of.base + of.of_part * item.part / parts_ + of.of_batch * item.micro_batch / micro_batches_ +
           of.of_fill * fill;
  }

  void choose(int group) {
    Choice& best = best_[at(group)];
    best = {};
    double earliest = kInfinity;
    const auto for_each = [&](const auto& visit) {
      for (const int part : own_[at(group)]) {
        for (int kind = 0; kind < kinds_; ++kind) {
          visit(WorkItem{static_cast<WorkKind>(kind), part, next_[at(part)][at(kind)]});
        }
      }
    };
    for_each([&](const WorkItem& item) { earliest = std::min(earliest, can_begin(group, item)); });
    if (!(earliest < kInfinity)) return;
    double most = -kInfinity;
    for_each([&](const WorkItem& item) {
      const double start = can_begin(group, item);
      if (start > earliest + patience_ms_[at(group)]) return;
      const double own = worth(group, item);
      if (own > most) {
        most = own;
        best = {item, start};
      }
    });
  }

  void send(const WorkItem& item, int to, double done) {
    const int from_group = times_.group_of_part[at(item.part)], to_group = times_.group_of_part[at(to)];
    double when = done;
    if (from_group != to_group) {
      double& link = link_ms_[at(from_group * groups_ + to_group)];
      when = link = std::max(link, done) + times_.transfer_ms[at(std::min(item.part, to))];
    }
    arrived_[at(static_cast<int>(item.kind))][at(to) * at(micro_batches_) + at(item.micro_batch)] = when;
    if (from_group != to_group) choose(to_group);
  }

  void begin(int group) {
    const Choice chosen = best_[at(group)];
    const WorkItem& item = chosen.item;
    order_[at(group)].push_back(item);
    const double done = free_ms_[at(group)] = chosen.start_ms + times_.item_ms(item);
    ++next_[at(item.part)][at(static_cast<int>(item.kind))];
    const double stash = times_.stash_bytes[at(item.part)];
    if (item.kind == WorkKind::kForward) kept_[at(group)] += stash;
    if (static_cast<int>(item.kind) + 1 == kinds_) kept_[at(group)] -= stash;
    if (item.kind == WorkKind::kForward && item.part + 1 < parts_) send(item, item.part + 1, done);
    if (item.kind == WorkKind::kBackward && item.part > 0) send(item, item.part - 1, done);
    choose(group);
  }

  const WorkTimes& times_;
  const ListRule& rule_;
  const int micro_batches_, groups_, parts_, kinds_;
  std::vector<std::vector<int>> own_;  // [S] parts
  std::vector<double> reserve_;        // [C] what the group's parts behind it keep of one micro-batch
  std::vector<double> patience_ms_, free_ms_, kept_;
  std::vector<Choice> best_;                    // [S]
  std::vector<double> link_ms_;                 // [S x S]
  std::vector<std::array<int, 3>> next_;        // [C] the next micro-batch of each kind
  std::array<std::vector<double>, 2> arrived_;  // forward and backward: [C x M]
  WorkOrder order_;
};

// Rules that are often good: backward first with the deeper or the shallower forwards first, one micro-batch after the
// other, and passes for the weights before memory is full.
std::vector<ListRule> usual_rules() {
  std::vector<ListRule> rules;
  for (const double of_part : {0.5, -0.5}) {
    ListRule rule = backward_first();
    rule.worth[0].of_part = of_part;
    rules.push_back(rule);
    rule.patience = 0.5;
    rules.push_back(rule);
    rule.worth[2].of_fill = 1.5;
    rules.push_back(rule);
  }
  ListRule by_batch = backward_first();
  for (ListRule::Worth& worth : by_batch.worth) worth.of_batch = -10;
  rules.push_back(by_batch);
  ListRule forward_first = backward_first();
  forward_first.worth[0] = {2.5, 0.2, 0, 0};
  rules.push_back(forward_first);
  return rules;
}

ListRule changed(const ListRule& rule, Rng& random, double by) {
  ListRule other = rule;
  for (ListRule::Worth& worth : other.worth) {
    for (double* value : {&worth.base, &worth.of_part, &worth.of_batch, &worth.of_fill}) {
      if (random.below(3) == 0) *value += random.uniform(-by, by);
    }
  }
  if (random.below(3) == 0) other.patience = std::max(0.0, other.patience + random.uniform(-by, by) / 2);
  return other;
}

}  // namespace

ListRule backward_first() {
  ListRule rule;
  rule.worth[0] = {1, 0, -0.01, 0};
  rule.worth[1] = {2, 0, -0.01, 0};
  rule.worth[2] = {0, 0, -0.01, 0};
  return rule;
}

WorkOrder list_order(const WorkTimes& times, int micro_batches, const ListRule& rule) {
  AM_CHECK(times.stash_bytes.size() == times.group_of_part.size());
  return ListScheduler(times, micro_batches, rule).run();
}

WorkOrder eager_order(const WorkTimes& times, const std::vector<int>& in_flight, int micro_batches) {
  AM_CHECK(times.num_parts() == times.num_groups() && !times.split_backward());
  WorkTimes counted = times;
  counted.stash_bytes.assign(in_flight.size(), 1);
  counted.room_bytes.assign(in_flight.begin(), in_flight.end());
  return list_order(counted, micro_batches, backward_first());
}

SearchedOrder search_order(const WorkTimes& times, int micro_batches, std::vector<WorkOrder> starts, int tries,
                           Work* work) {
  SearchedOrder best;
  best.step_ms = kInfinity;
  // Its step; infinite: there is none.
  const auto take = [&](WorkOrder order) {
    const double ms = order.empty() ? kInfinity : simulate_order_ms(times, micro_batches, order);
    if (ms < best.step_ms) best = {std::move(order), ms};
    return ms;
  };
  for (WorkOrder& start : starts) take(std::move(start));
  // A start may be longer than the result of a rule, and still be the best there is: rules are compared with each
  // other.
  ListRule rule = backward_first();
  double rule_ms = kInfinity;
  const auto try_rule = [&](const ListRule& one) {
    const double ms = take(list_order(times, micro_batches, one));
    if (!(ms < rule_ms)) return;
    rule_ms = ms;
    rule = one;
  };
  const double bound = any_order_bound_ms(times, micro_batches);
  constexpr double kAtBound = 1 + 1e-6;
  const std::int64_t price = std::int64_t{400} * times.num_parts() * micro_batches;  // of one try, about
  const auto enough = [&] {
    if (work != nullptr) work->spend(price);
    return best.step_ms <= bound * kAtBound || (work != nullptr && work->over());
  };
  for (const ListRule& one : usual_rules()) {
    if (enough()) return best;
    try_rule(one);
  }
  Rng random(0, 0, 0);
  for (int i = 0; i < tries && !enough(); ++i) try_rule(changed(rule, random, i % 3 == 0 ? 1 : 0.3));
  return best;
}

}  // namespace automap::pipeline
