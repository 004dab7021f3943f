#include "plan/systems/placement/linearized.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "common/base/depth_first.h"
#include "common/base/numbers.h"
#include "common/base/rng.h"

namespace automap::placement {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::uint32_t kOrderStream = 0x504c4143;  // of random orders

// The reverse of the order in which a search into `next`, ranks ascending, is done with units.
std::vector<int> depth_first(const std::vector<std::vector<int>>& next, const std::vector<double>& rank) {
  const auto by_rank = [&](int a, int b) { return rank[at(a)] != rank[at(b)] ? rank[at(a)] < rank[at(b)] : a < b; };
  std::vector<std::vector<int>> sorted = next;
  std::vector<int> roots(next.size());
  for (std::size_t u = 0; u < next.size(); ++u) {
    std::sort(sorted[u].begin(), sorted[u].end(), by_rank);
    roots[u] = static_cast<int>(u);
  }
  std::sort(roots.begin(), roots.end(), by_rank);
  return finish_order(sorted, roots);
}

std::vector<int> breadth_first(const Units& units) {
  std::vector<int> waiting(units.units.size()), order;
  std::queue<int> ready;
  for (int u = 0; u < units.size(); ++u) {
    waiting[at(u)] = static_cast<int>(units.before[at(u)].size());
    if (waiting[at(u)] == 0) ready.push(u);
  }
  while (!ready.empty()) {
    order.push_back(ready.front());
    ready.pop();
    for (const int v : units.next[at(order.back())]) {
      if (--waiting[at(v)] == 0) ready.push(v);
    }
  }
  return order;
}

// The compute of a unit plus that of the heaviest way from it to the end.
std::vector<double> work_behind(const Units& units, const std::vector<int>& order) {
  std::vector<double> out(units.units.size(), 0);
  for (auto u = order.rbegin(); u != order.rend(); ++u) {
    for (const int v : units.next[at(*u)]) out[at(*u)] = std::max(out[at(*u)], out[at(v)]);
    out[at(*u)] += units.units[at(*u)].accelerator_ms;
  }
  return out;
}

}  // namespace

std::vector<std::vector<int>> unit_orders(const Units& units, int count) {
  const std::size_t n = units.units.size();
  std::vector<int> breadth = breadth_first(units);
  std::vector<double> ascending(n), descending(n), behind = work_behind(units, breadth), less_behind(n);
  for (std::size_t u = 0; u < n; ++u) {
    ascending[u] = static_cast<double>(u);
    descending[u] = -static_cast<double>(u);
    less_behind[u] = -behind[u];
  }
  std::vector<std::vector<int>> out;
  // Searching backward from the ends puts a unit just before its first reader, and forward just behind its operands.
  const auto add = [&](const std::vector<double>& rank, bool backward) {
    if (static_cast<int>(out.size()) >= count) return;
    std::vector<int> order = depth_first(backward ? units.before : units.next, rank);
    if (!backward) std::reverse(order.begin(), order.end());
    out.push_back(std::move(order));
  };
  add(ascending, true);
  add(ascending, false);
  add(descending, true);
  add(descending, false);
  add(behind, true);
  add(less_behind, false);
  if (static_cast<int>(out.size()) < count) out.push_back(std::move(breadth));
  for (int i = 0; static_cast<int>(out.size()) < count; ++i) {
    Rng rng(kSeed, kOrderStream, static_cast<std::uint64_t>(i));
    std::vector<double> random(n);
    for (double& rank : random) rank = rng.uniform();
    add(random, i % 2 == 0);
  }
  return out;
}

std::optional<Split> best_linearized(const Workload& workload, const Units& units, int count, Work* work,
                                     DpCounts* counts) {
  std::optional<Split> best;
  for (const std::vector<int>& order : unit_orders(units, count)) {
    const double bound = best ? best->max_load_ms : std::numeric_limits<double>::infinity();
    std::optional<Split> split = best_split(workload, units, Ideals::along(order), bound, work, counts);
    if (split && (!best || split->max_load_ms < best->max_load_ms)) best = std::move(split);
    if (work->over()) break;
  }
  return best;
}

}  // namespace automap::placement
