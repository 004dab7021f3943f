#include "plan/systems/heuristics/refinement.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

namespace automap::heuristics {

namespace {

constexpr int kMostPasses = 24;
constexpr std::size_t kLookedAt = 8;     // moves of each heap, per move made
constexpr std::size_t kMostTargets = 8;  // devices, per unit
constexpr int kLeastIdle = 64;           // moves without a gain that end a pass; and a share of all:
constexpr int kIdleShare = 32;

struct Move {
  UnitId unit = kNone;
  DeviceId to = kNone;
  Division::Outcome outcome;
};

// The lexicographic gain, ties by unit and device.
bool better(const Move& a, const Move& b) {
  if (a.unit == kNone || b.unit == kNone) return b.unit == kNone && a.unit != kNone;
  if (a.outcome.cost.less_than(b.outcome.cost)) return true;
  if (b.outcome.cost.less_than(a.outcome.cost)) return false;
  // A move that lessens a load other than the largest makes room for later moves.
  if (a.outcome.own_ms != b.outcome.own_ms) return a.outcome.own_ms < b.outcome.own_ms;
  return std::tie(a.unit, a.to) < std::tie(b.unit, b.to);
}

class RefinementPass {
 public:
  explicit RefinementPass(Division* division)
      : division_(*division),
        graph_(division->graph()),
        locked_(graph_.ms.size(), 0),
        stamp_(graph_.ms.size(), 0),
        seen_(graph_.ms.size(), 0),
        off_(at(division->num_devices())) {}

  // Moves that stayed.
  std::int64_t run() {
    for (UnitId u = 0; u < graph_.size(); ++u) offer(u);
    Cost best = division_.cost();
    std::vector<std::pair<UnitId, DeviceId>> undo;
    std::size_t keep = 0;
    const int most_idle = std::max(kLeastIdle, graph_.size() / kIdleShare);
    for (int idle = 0; idle < most_idle; ++idle) {
      const Move move = next();
      if (move.unit == kNone) break;
      undo.emplace_back(move.unit, division_.device(move.unit));
      division_.move(move.unit, move.to);
      locked_[at(move.unit)] = 1;
      offer_neighbours(move.unit);
      if (!division_.cost().less_than(best)) continue;
      best = division_.cost();
      keep = undo.size();
      idle = -1;
    }
    while (undo.size() > keep) {
      division_.move(undo.back().first, undo.back().second);
      undo.pop_back();
    }
    return static_cast<std::int64_t>(keep);
  }

 private:
  // (how much the larger of both loads grows or the bytes cut grow; unit; stamp): the least first.
  using Entry = std::tuple<double, double, UnitId, int>;
  using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  // The unit's best move; its unit is kNone where it has none.
  Move best_move(UnitId u) {
    Move best;
    division_.neighbours(u, &targets_);
    if (targets_.size() > kMostTargets) targets_.resize(kMostTargets);
    DeviceId lightest = 0;
    for (DeviceId d = 1; d < division_.num_devices(); ++d) {
      if (division_.load(d).total_ms() < division_.load(lightest).total_ms()) lightest = d;
    }
    targets_.push_back(lightest);
    for (const DeviceId d : targets_) {
      if (d == division_.device(u) || !division_.fits(u, d)) continue;
      const Move move{u, d, division_.after(u, d)};
      if (better(move, best) && division_.allowed(u, d)) best = move;
    }
    return best;
  }

  // Puts the unit's best move into the heaps, in place of its old one.
  Move offer(UnitId u) {
    const Move move = best_move(u);
    ++stamp_[at(u)];
    if (move.unit == kNone) return move;
    const DeviceId from = division_.device(u);
    const double before = std::max(division_.load(from).total_ms(), division_.load(move.to).total_ms());
    const double grows = move.outcome.own_ms - before, cut = move.outcome.cost.cut_bytes - division_.cost().cut_bytes;
    off_[at(from)].emplace(grows, cut, u, stamp_[at(u)]);
    if (cut < 0) cut_.emplace(cut, grows, u, stamp_[at(u)]);
    return move;
  }

  void offer_neighbours(UnitId moved) {
    ++epoch_;
    const auto again = [&](UnitId u) {
      if (locked_[at(u)] || seen_[at(u)] == epoch_) return;
      seen_[at(u)] = epoch_;
      offer(u);
    };
    const auto readers = [&](std::int32_t n) {
      if (graph_.nets[at(n)].consumers.size() > kManyReaders) return;
      for (const UnitId u : graph_.nets[at(n)].consumers) again(u);
    };
    for (const std::int32_t n : graph_.read[at(moved)]) {
      again(graph_.nets[at(n)].producer);
      readers(n);
    }
    for (const std::int32_t n : graph_.made[at(moved)]) readers(n);
  }

  // The best of the first few of a heap, as they are now; they are put back.
  void look_at(Heap* heap, Move* best) {
    std::vector<UnitId> taken;
    while (!heap->empty() && taken.size() < kLookedAt) {
      const auto [first, second, u, stamp] = heap->top();
      heap->pop();
      if (locked_[at(u)] || stamp != stamp_[at(u)]) continue;
      taken.push_back(u);
      const Move move = best_move(u);
      if (better(move, *best)) *best = move;
    }
    for (const UnitId u : taken) offer(u);
  }

  Move next() {
    DeviceId hot = 0;
    for (DeviceId d = 1; d < division_.num_devices(); ++d) {
      if (division_.load(d).total_ms() > division_.load(hot).total_ms()) hot = d;
    }
    Move best;
    look_at(&off_[at(hot)], &best);
    look_at(&cut_, &best);
    return best;
  }

  Division& division_;
  const Hypergraph& graph_;
  std::vector<char> locked_;
  std::vector<int> stamp_, seen_;
  int epoch_ = 0;
  std::vector<Heap> off_;  // by device that a unit leaves
  Heap cut_;
  std::vector<DeviceId> targets_;
};

}  // namespace

void make_acyclic(const Hypergraph& graph, int num_devices, Devices* devices) {
  if (acyclic_between_devices(graph, *devices, num_devices)) return;
  std::vector<double> sum(at(num_devices), 0), work(at(num_devices), 0);
  for (UnitId u = 0; u < graph.size(); ++u) {
    const double weight = graph.ms[at(u)] + 1e-9;
    sum[at((*devices)[at(u)])] += weight * graph.place[at(u)];
    work[at((*devices)[at(u)])] += weight;
  }
  std::vector<DeviceId> order(at(num_devices));
  std::iota(order.begin(), order.end(), 0);
  const auto mean = [&](DeviceId d) { return work[at(d)] > 0 ? sum[at(d)] / work[at(d)] : graph.size(); };
  std::stable_sort(order.begin(), order.end(), [&](DeviceId a, DeviceId b) { return mean(a) < mean(b); });
  std::vector<std::int32_t> rank(at(num_devices));
  for (std::size_t i = 0; i < order.size(); ++i) rank[at(order[i])] = static_cast<std::int32_t>(i);
  std::vector<UnitId> stack(at(graph.size()));
  std::iota(stack.rbegin(), stack.rend(), 0);
  while (!stack.empty()) {  // ranks only grow
    const UnitId u = stack.back();
    stack.pop_back();
    for (const UnitId next : graph.before[at(u)]) {
      if (rank[at((*devices)[at(next)])] >= rank[at((*devices)[at(u)])]) continue;
      (*devices)[at(next)] = (*devices)[at(u)];
      stack.push_back(next);
    }
  }
}

bool make_fit(Division* division) {
  const Hypergraph& graph = division->graph();
  std::vector<UnitId> order(at(graph.size()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](UnitId a, UnitId b) { return graph.memory_bytes[at(a)] > graph.memory_bytes[at(b)]; });
  // Taking the largest units that do not exceed the excess would leave the others in place; but taking large ones first
  // ends.
  for (int round = 0; round < 2 && !division->fits_everywhere(); ++round) {
    for (const UnitId u : order) {
      const DeviceId from = division->device(u);
      const double over = division->load(from).memory_bytes - division->machine().capacity_bytes(from);
      if (over <= 0 || graph.memory_bytes[at(u)] <= 0) continue;
      Move best;
      for (DeviceId d = 0; d < division->num_devices(); ++d) {
        if (d == from || !division->fits(u, d)) continue;
        const Move move{u, d, division->after(u, d)};
        if (better(move, best) && division->allowed(u, d)) best = move;
      }
      if (best.unit != kNone) division->move(u, best.to);
    }
  }
  return division->fits_everywhere();
}

RefinementCount refine(Division* division) {
  RefinementCount out;
  while (out.passes < kMostPasses) {
    const std::int64_t moves = RefinementPass(division).run();
    ++out.passes;
    out.moves += moves;
    if (moves == 0) break;
  }
  return out;
}

}  // namespace automap::heuristics
