#include "plan/partition/independent_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/cli.h"
#include "common/base/numbers.h"

namespace automap::partition {

namespace {

// Parts up to this size are remembered.
constexpr std::int32_t kMemoSize = 512;
// The most bytes of keys that are remembered.
constexpr std::size_t kMemoBytes = 100 << 20;
// Domination is looked for among vertices with at most so many neighbours: the search branches on the others.
constexpr std::int32_t kSmallDegree = 24;
// Points of one front, and of all fronts together.
constexpr std::size_t kMaxFront = 500'000;
constexpr std::size_t kMaxMade = 12'000'000;

// Prices, units of work: a vertex and an edge of a graph that is gone through a few times; two points of fronts put
// together, and such a pair sorted.
constexpr std::int64_t kPerVertex = 90, kPerEdge = 30;
constexpr std::int64_t kPerPair = 3, kPerKeptPair = 60;

std::int64_t graph_units(const SetGraph& graph) {
  return kPerVertex * (graph.size() + 1) + kPerEdge * static_cast<std::int64_t>(graph.neighbours.size());
}

std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdULL;
  return h ^ (h >> 32);
}

// Vertices in an order that depends on the shape of the graph and its weights only, as far as three rounds of looking
// at the neighbours can tell; vertices that look alike stay in their order. Graphs whose keys are equal are the same
// graph under the order, so a part that is missed costs time and nothing else.
std::vector<std::int32_t> canonical_order(const SetGraph& graph) {
  const auto n = at(graph.size());
  std::vector<std::uint64_t> color(n), next(n), around;
  for (std::size_t v = 0; v < n; ++v) {
    color[v] = mix(static_cast<std::uint64_t>(graph.weight[v]),
                   graph.second.empty() ? 0 : static_cast<std::uint64_t>(graph.second[v]));
    color[v] = mix(color[v], static_cast<std::uint64_t>(graph.degree(static_cast<std::int32_t>(v))));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t v = 0; v < n; ++v) {
      const auto id = static_cast<std::int32_t>(v);
      around.clear();
      for (const std::int32_t u : graph.around(id)) around.push_back(color[at(u)]);
      std::sort(around.begin(), around.end());
      std::uint64_t h = color[v];
      for (const std::uint64_t c : around) h = mix(h, c);
      next[v] = h;
    }
    color.swap(next);
  }
  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return color[at(a)] < color[at(b)]; });
  return order;
}

std::string key_of(const SetGraph& graph, const std::vector<std::int32_t>& order) {
  std::string key;
  const auto put = [&](std::int64_t x) { key.append(reinterpret_cast<const char*>(&x), sizeof x); };
  std::vector<std::int32_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<std::int32_t>(i);
  key.reserve(3 * sizeof(std::int64_t) * order.size() + sizeof(std::int32_t) * graph.neighbours.size());
  std::vector<std::int32_t> around;
  for (const std::int32_t v : order) {
    put(graph.weight[at(v)]);
    if (!graph.second.empty()) put(graph.second[at(v)]);
    around.clear();
    for (const std::int32_t u : graph.around(v)) around.push_back(place[at(u)]);
    std::sort(around.begin(), around.end());
    put(static_cast<std::int64_t>(around.size()));
    for (const std::int32_t p : around) key.append(reinterpret_cast<const char*>(&p), sizeof p);
  }
  return key;
}

// Every vertex joins the first clique it is adjacent to all of; a set has at most one vertex of each.
std::int64_t clique_cover(const SetGraph& graph) {
  const auto n = at(graph.size());
  std::vector<std::int32_t> order(n), clique(n, -1), size, count;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return graph.weight[at(a)] > graph.weight[at(b)]; });
  std::vector<std::int32_t> touched;
  std::int64_t sum = 0;
  for (const std::int32_t v : order) {
    touched.clear();
    for (const std::int32_t u : graph.around(v)) {
      const std::int32_t c = clique[at(u)];
      if (c < 0) continue;
      if (count[at(c)]++ == 0) touched.push_back(c);
    }
    std::int32_t best = -1;
    for (const std::int32_t c : touched) {
      if (count[at(c)] == size[at(c)] && (best < 0 || c < best)) best = c;
      count[at(c)] = 0;
    }
    if (best < 0) {
      best = static_cast<std::int32_t>(size.size());
      size.push_back(0);
      count.push_back(0);
      sum += std::max<std::int64_t>(0, graph.weight[at(v)]);  // the heaviest of its clique comes first
    }
    ++size[at(best)];
    clique[at(v)] = best;
  }
  return sum;
}

// True if every neighbour of `small` (and small itself) is a neighbour of, or is, `big`.
bool covers(const SetGraph& graph, std::int32_t big, std::int32_t small) {
  if (graph.degree(big) < graph.degree(small)) return false;
  for (const std::int32_t u : graph.around(small)) {
    if (u != big && !graph.adjacent(big, u)) return false;
  }
  return true;
}

// Takes away, until nothing changes: vertices that are worth nothing, and vertices that a neighbour dominates (it is
// worth as much and excludes no more: whoever takes the one may take the other). Isolated vertices go to `taken`.
// True: something has changed.
bool reduce_once(SetGraph* graph, std::vector<std::int32_t>* taken, std::int64_t* taken_weight) {
  const std::int32_t n = graph->size();
  std::vector<char> keep(at(n), 1);
  bool changed = false;
  for (std::int32_t v = 0; v < n; ++v) {
    if (graph->weight[at(v)] > 0) continue;
    keep[at(v)] = 0;
    changed = true;
  }
  for (std::int32_t v = 0; v < n; ++v) {
    if (keep[at(v)] == 0 || graph->degree(v) > kSmallDegree) continue;
    if (graph->degree(v) == 0) {
      taken->push_back(graph->vertex[at(v)]);
      *taken_weight += graph->weight[at(v)];
      keep[at(v)] = 0;
      changed = true;
      continue;
    }
    // Worth all its neighbours together.
    std::int64_t around = 0;
    for (const std::int32_t u : graph->around(v)) {
      if (keep[at(u)] != 0) around += graph->weight[at(u)];
    }
    if (graph->weight[at(v)] >= around) {
      taken->push_back(graph->vertex[at(v)]);
      *taken_weight += graph->weight[at(v)];
      keep[at(v)] = 0;
      for (const std::int32_t u : graph->around(v)) keep[at(u)] = 0;
      changed = true;
      continue;
    }
    for (const std::int32_t u : graph->around(v)) {
      if (keep[at(u)] == 0 || graph->weight[at(u)] > graph->weight[at(v)] || !covers(*graph, u, v)) continue;
      keep[at(u)] = 0;
      changed = true;
    }
  }
  if (changed) *graph = graph->induced(keep);
  return changed;
}

// The vertex with most neighbours; the heavier one, the first one.
std::int32_t hub(const SetGraph& graph) {
  std::int32_t best = 0;
  for (std::int32_t v = 1; v < graph.size(); ++v) {
    const auto a = std::make_pair(graph.degree(v), graph.weight[at(v)]);
    const auto b = std::make_pair(graph.degree(best), graph.weight[at(best)]);
    if (a > b) best = v;
  }
  return best;
}

SetGraph without(const SetGraph& graph, std::int32_t v, bool neighbours_too) {
  std::vector<char> keep(at(graph.size()), 1);
  keep[at(v)] = 0;
  if (neighbours_too) {
    for (const std::int32_t u : graph.around(v)) keep[at(u)] = 0;
  }
  return graph.induced(keep);
}

}  // namespace

// --- SetGraph ---

bool SetGraph::adjacent(std::int32_t a, std::int32_t b) const {
  const Span<const std::int32_t> list = around(a);
  return std::binary_search(list.begin(), list.end(), b);
}

void SetGraph::reserve(std::size_t vertices, std::size_t edges, bool two_weights) {
  vertex.reserve(vertices);
  weight.reserve(vertices);
  if (two_weights) second.reserve(vertices);
  first.reserve(vertices + 1);
  neighbours.reserve(edges);
}

SetGraph SetGraph::induced(const std::vector<char>& keep) const {
  SetGraph out;
  std::vector<std::int32_t> place(vertex.size(), -1);
  out.reserve(vertex.size(), neighbours.size(), !second.empty());
  for (std::size_t v = 0; v < vertex.size(); ++v) {
    if (keep[v] == 0) continue;
    place[v] = out.size();
    out.vertex.push_back(vertex[v]);
    out.weight.push_back(weight[v]);
    if (!second.empty()) out.second.push_back(second[v]);
  }
  out.first.push_back(0);
  for (std::int32_t v = 0; v < size(); ++v) {
    if (keep[at(v)] == 0) continue;
    for (const std::int32_t u : around(v)) {
      if (keep[at(u)] != 0) out.neighbours.push_back(place[at(u)]);
    }
    out.first.push_back(static_cast<std::int32_t>(out.neighbours.size()));
  }
  return out;
}

std::vector<SetGraph> SetGraph::parts() const {
  struct Size {
    std::size_t vertices = 0, edges = 0;
  };
  std::vector<std::int32_t> part(vertex.size(), -1), place(vertex.size(), -1), stack;
  std::vector<Size> sizes;
  stack.reserve(vertex.size());
  for (std::int32_t start = 0; start < size(); ++start) {
    if (part[at(start)] >= 0) continue;
    const auto c = static_cast<std::int32_t>(sizes.size());
    sizes.emplace_back();
    part[at(start)] = c;
    stack.push_back(start);
    while (!stack.empty()) {
      const std::int32_t v = stack.back();
      stack.pop_back();
      ++sizes.back().vertices;
      sizes.back().edges += at(degree(v));
      for (const std::int32_t u : around(v)) {
        if (part[at(u)] >= 0) continue;
        part[at(u)] = c;
        stack.push_back(u);
      }
    }
  }
  if (sizes.size() == 1) return {};
  std::vector<SetGraph> out(sizes.size());
  for (std::size_t c = 0; c < out.size(); ++c) out[c].reserve(sizes[c].vertices, sizes[c].edges, !second.empty());
  for (std::int32_t v = 0; v < size(); ++v) {
    SetGraph& g = out[at(part[at(v)])];
    place[at(v)] = g.size();
    g.vertex.push_back(vertex[at(v)]);
    g.weight.push_back(weight[at(v)]);
    if (!second.empty()) g.second.push_back(second[at(v)]);
  }
  for (SetGraph& g : out) g.first.push_back(0);
  for (std::int32_t v = 0; v < size(); ++v) {
    SetGraph& g = out[at(part[at(v)])];
    for (const std::int32_t u : around(v)) g.neighbours.push_back(place[at(u)]);
    g.first.push_back(static_cast<std::int32_t>(g.neighbours.size()));
  }
  return out;
}

SetGraph make_set_graph(const std::vector<std::vector<std::int32_t>>& neighbours, std::vector<std::int64_t> weight,
                        std::vector<std::int64_t> second) {
  SetGraph graph;
  graph.vertex.resize(neighbours.size());
  std::iota(graph.vertex.begin(), graph.vertex.end(), 0);
  graph.weight = std::move(weight);
  graph.second = std::move(second);
  graph.first.push_back(0);
  for (const auto& list : neighbours) {
    graph.neighbours.insert(graph.neighbours.end(), list.begin(), list.end());
    graph.first.push_back(static_cast<std::int32_t>(graph.neighbours.size()));
  }
  return graph;
}

// --- SetSolver ---

SetResult SetSolver::solve(const SetGraph& graph, std::int64_t at_least) {
  SetGraph copy = graph;
  copy.second.clear();
  return branch(std::move(copy), at_least);
}

// A connected part, remembered.
SetResult SetSolver::part(SetGraph graph, std::int64_t at_least) {
  if (graph.size() > kMemoSize) return branch(std::move(graph), at_least);
  work_->spend(graph_units(graph));
  const std::vector<std::int32_t> order = canonical_order(graph);
  const std::string key = key_of(graph, order);
  const auto found = known_.find(key);
  if (found != known_.end() && (found->second.weight == found->second.bound || found->second.bound <= at_least)) {
    ++statistics_->memo_hits;
    SetResult result;
    result.weight = found->second.weight;
    result.bound = found->second.bound;
    for (const std::int32_t p : found->second.places) result.vertices.push_back(graph.vertex[at(order[at(p)])]);
    return result;
  }
  const std::vector<std::int32_t> outer = graph.vertex;
  std::iota(graph.vertex.begin(), graph.vertex.end(), 0);
  SetResult result = branch(std::move(graph), at_least);
  std::vector<std::int32_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<std::int32_t>(i);
  Known known{result.weight, result.bound, {}};
  for (std::int32_t& v : result.vertices) {
    known.places.push_back(place[at(v)]);
    v = outer[at(v)];
  }
  if (known_bytes_ + key.size() <= kMemoBytes) {
    known_bytes_ += key.size();
    known_[key] = std::move(known);
  }
  return result;
}

SetResult SetSolver::branch(SetGraph graph, std::int64_t at_least) {
  SetResult best;  // the empty set
  std::int64_t bound = 0;
  std::vector<std::int32_t> taken;
  std::int64_t taken_weight = 0;
  const auto consider = [&](std::int64_t weight, const std::vector<std::int32_t>& more) {
    if (weight <= best.weight) return;
    best.weight = weight;
    best.vertices = taken;
    best.vertices.insert(best.vertices.end(), more.begin(), more.end());
  };
  // Left by a return: excluding the vertex branched on continues the loop.
  while (true) {
    ++statistics_->nodes;
    do {
      work_->spend(graph_units(graph));
    } while (reduce_once(&graph, &taken, &taken_weight));
    if (graph.size() == 0) {
      consider(taken_weight, {});
      bound = std::max(bound, taken_weight);
      break;
    }
    std::vector<SetGraph> parts = graph.parts();
    if (!parts.empty()) {
      std::stable_sort(parts.begin(), parts.end(),
                       [](const SetGraph& a, const SetGraph& b) { return a.size() < b.size(); });
      std::vector<std::int64_t> cover;
      std::int64_t upper = taken_weight;  // of all: solved ones exactly, the others by their cover
      for (const SetGraph& p : parts) {
        cover.push_back(clique_cover(p));
        upper += cover.back();
      }
      std::int64_t weight = taken_weight;
      std::vector<std::int32_t> chosen;
      const std::int64_t floor = std::max(at_least, best.weight);
      for (std::size_t i = 0; i < parts.size() && upper > floor; ++i) {
        // This part must beat the floor on the assumption that the other parts reach their bounds.
        const SetResult r = part(std::move(parts[i]), floor - (upper - cover[i]));
        weight += r.weight;
        upper += r.bound - cover[i];
        chosen.insert(chosen.end(), r.vertices.begin(), r.vertices.end());
      }
      consider(weight, chosen);
      bound = std::max(bound, upper);
      break;
    }
    const std::int64_t cover = taken_weight + clique_cover(graph);
    if (cover <= std::max(at_least, best.weight)) {
      bound = std::max(bound, cover);
      break;
    }
    if (work_->over()) {
      // Heaviest first.
      std::vector<std::int32_t> order(at(graph.size())), chosen;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return graph.weight[at(a)] > graph.weight[at(b)]; });
      std::vector<char> open(at(graph.size()), 1);
      std::int64_t weight = taken_weight;
      for (const std::int32_t v : order) {
        if (open[at(v)] == 0) continue;
        weight += graph.weight[at(v)];
        chosen.push_back(graph.vertex[at(v)]);
        for (const std::int32_t u : graph.around(v)) open[at(u)] = 0;
      }
      consider(weight, chosen);
      bound = std::max(bound, cover);
      break;
    }
    const std::int32_t v = hub(graph);
    const std::int64_t with = taken_weight + graph.weight[at(v)];
    SetResult r = branch(without(graph, v, true), std::max(at_least, best.weight) - with);
    r.vertices.push_back(graph.vertex[at(v)]);
    consider(with + r.weight, r.vertices);
    bound = std::max(bound, with + r.bound);
    graph = without(graph, v, false);
  }
  best.bound = std::max(bound, best.weight);
  return best;
}

// --- FrontSolver ---

FrontSolver::FrontSolver(Work* work, SetStatistics* statistics, std::int64_t need, double price, double gap)
    : work_(work), statistics_(statistics), need_(need), price_(price), gap_(gap), priced_(work, statistics) {}

std::int32_t FrontSolver::add(Made made) {
  made_.push_back(made);
  return static_cast<std::int32_t>(made_.size()) - 1;
}

std::vector<std::int32_t> FrontSolver::vertices(const Point& point) const {
  std::vector<std::int32_t> out;
  // With the list of renamings that apply, innermost first: few, since parts within parts are small.
  struct Open {
    std::int32_t made;
    std::vector<std::int32_t> renamings;
  };
  std::vector<Open> stack{{point.made, {}}};
  while (!stack.empty()) {
    Open open = std::move(stack.back());
    stack.pop_back();
    if (open.made < 0) continue;
    const Made& made = made_[at(open.made)];
    if (made.renamed >= 0) {
      open.renamings.push_back(made.renamed);
      stack.push_back({made.left, open.renamings});
      continue;
    }
    if (made.vertex >= 0) {
      std::int32_t v = made.vertex;
      for (std::size_t i = open.renamings.size(); i-- > 0;) v = names_[at(open.renamings[i])][at(v)];
      out.push_back(v);
    }
    stack.push_back({made.left, open.renamings});
    stack.push_back({made.right, std::move(open.renamings)});
  }
  return out;
}

// Descending by weight, ascending by second; only those that nobody beats.
void FrontSolver::prune(Front* front) const {
  std::sort(front->begin(), front->end(), [](const Point& a, const Point& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.second > b.second;
  });
  double best = -std::numeric_limits<double>::infinity();
  for (const Point& p : *front) best = std::max(best, lagrangian(p));
  std::size_t kept = 0;
  std::int64_t most = -1;
  for (const Point& p : *front) {
    if (p.second <= most) continue;
    most = p.second;
    if (best - lagrangian(p) > gap_) continue;
    (*front)[kept++] = p;
  }
  front->resize(kept);
  if (thin_ == 0 || kept <= thin_) return;
  // One of every stretch of the second weight: the heaviest.
  const std::int64_t low = front->front().second, high = front->back().second;
  const double step = static_cast<double>(high - low + 1) / static_cast<double>(thin_);
  Front fewer;
  std::size_t last = thin_;
  for (const Point& p : *front) {
    const auto stretch = static_cast<std::size_t>(static_cast<double>(p.second - low) / step);
    if (stretch != last || p.second == high) fewer.push_back(p);
    last = stretch;
  }
  front->swap(fewer);
}

bool FrontSolver::merge(const Front& a, const Front& b, Front* out) {
  if (a.size() * b.size() > 8 * kMaxFront || made_.size() > kMaxMade) return false;
  double best_a = -std::numeric_limits<double>::infinity(), best_b = best_a;
  for (const Point& p : a) best_a = std::max(best_a, lagrangian(p));
  for (const Point& p : b) best_b = std::max(best_b, lagrangian(p));
  struct Pair {
    std::int64_t weight, second;
    std::int32_t a, b;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (work_->over()) return false;
    work_->spend(kPerPair * static_cast<std::int64_t>(b.size()));
    for (std::size_t j = 0; j < b.size(); ++j) {
      if (best_a - lagrangian(a[i]) + best_b - lagrangian(b[j]) > gap_) continue;
      pairs.push_back({a[i].weight + b[j].weight, std::min(need_, a[i].second + b[j].second),
                       static_cast<std::int32_t>(i), static_cast<std::int32_t>(j)});
    }
  }
  work_->spend(kPerKeptPair * static_cast<std::int64_t>(pairs.size()));
  std::sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) {
    return x.weight != y.weight ? x.weight > y.weight : x.second > y.second;
  });
  out->clear();
  std::int64_t most = -1;
  for (const Pair& p : pairs) {
    if (p.second <= most) continue;
    most = p.second;
    const std::int32_t left = a[at(p.a)].made, right = b[at(p.b)].made;
    const std::int32_t made = left < 0 ? right : right < 0 ? left : add({-1, left, right, -1});
    out->push_back({p.weight, p.second, made});
  }
  prune(out);
  statistics_->points += static_cast<std::int64_t>(out->size());
  return out->size() <= kMaxFront;
}

bool FrontSolver::part(const SetGraph& graph, Front* front) {
  if (graph.size() > kMemoSize) return branch(graph, front);
  work_->spend(graph_units(graph));
  const std::vector<std::int32_t> order = canonical_order(graph);
  const std::string key = key_of(graph, order);
  auto found = known_.find(key);
  if (found == known_.end()) {
    std::vector<std::int32_t> place(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<std::int32_t>(i);
    SetGraph inner = graph;
    inner.vertex = place;
    Front canonical;
    if (!branch(std::move(inner), &canonical)) return false;
    found = known_.emplace(key, std::move(canonical)).first;
  } else {
    ++statistics_->memo_hits;
  }
  std::vector<std::int32_t> names;
  for (const std::int32_t v : order) names.push_back(graph.vertex[at(v)]);
  names_.push_back(std::move(names));
  const auto renamed = static_cast<std::int32_t>(names_.size()) - 1;
  *front = found->second;
  for (Point& p : *front) {
    if (p.made >= 0) p.made = add({-1, p.made, -1, renamed});
  }
  return made_.size() <= kMaxMade;
}

bool FrontSolver::branch(SetGraph graph, Front* front) {
  Front all;
  const auto finish = [&] {
    prune(&all);
    *front = std::move(all);
    return true;
  };
  // The heaviest set of a graph, with both kinds of weight added by the price.
  const auto best_priced = [&](const SetGraph& g) {
    std::vector<std::int64_t> weight;
    for (std::int32_t v = 0; v < g.size(); ++v) weight.push_back(price_weight(g.weight[at(v)], g.second[at(v)]));
    SetGraph priced = g;
    priced.weight = std::move(weight);
    return priced_.solve(priced);
  };
  while (true) {
    ++statistics_->nodes;
    work_->spend(graph_units(graph));
    if (work_->over()) return false;
    // Neither lighter nor smaller than a neighbour that excludes more: the neighbour goes.
    bool changed = true;
    while (changed) {
      changed = false;
      std::vector<char> keep(at(graph.size()), 1);
      for (std::int32_t v = 0; v < graph.size(); ++v) {
        if (graph.weight[at(v)] <= 0 && graph.second[at(v)] == 0) {
          keep[at(v)] = 0;
          changed = true;
        }
        if (keep[at(v)] == 0 || graph.degree(v) > kSmallDegree) continue;
        for (const std::int32_t u : graph.around(v)) {
          if (keep[at(u)] == 0 || graph.weight[at(u)] > graph.weight[at(v)] ||
              graph.second[at(u)] > graph.second[at(v)] || !covers(graph, u, v))
            continue;
          keep[at(u)] = 0;
          changed = true;
        }
      }
      if (changed) graph = graph.induced(keep);
    }
    if (graph.size() == 0) {
      all.push_back({0, 0, -1});
      return finish();
    }
    if (graph.size() == 1) {
      all.push_back({0, 0, -1});
      all.push_back({graph.weight[0], std::min(need_, graph.second[0]), add({graph.vertex[0], -1, -1, -1})});
      return finish();
    }
    const std::vector<SetGraph> parts = graph.parts();
    if (!parts.empty()) {
      Front sum{{0, 0, -1}}, mine, merged;
      for (const SetGraph& p : parts) {
        if (!part(p, &mine) || !merge(sum, mine, &merged)) return false;
        sum.swap(merged);
      }
      all.insert(all.end(), sum.begin(), sum.end());
      return finish();
    }
    const std::int32_t v = hub(graph);
    const SetGraph in = without(graph, v, true), out = without(graph, v, false);
    // A branch that cannot come near the best of this part holds nothing of use.
    const SetResult here = best_priced(graph), inside = best_priced(in), outside = best_priced(out);
    const double weight_v = static_cast<double>(price_weight(graph.weight[at(v)], graph.second[at(v)]));
    const bool use_in = static_cast<double>(here.weight) - weight_v - static_cast<double>(inside.bound) <= gap_;
    const bool use_out = static_cast<double>(here.weight) - static_cast<double>(outside.bound) <= gap_;
    if (use_in) {
      Front mine;
      if (!branch(in, &mine)) return false;
      for (const Point& p : mine) {
        all.push_back({p.weight + graph.weight[at(v)], std::min(need_, p.second + graph.second[at(v)]),
                       add({graph.vertex[at(v)], p.made, -1, -1})});
      }
    }
    if (!use_out) return finish();
    graph = out;
  }
}

std::int64_t FrontSolver::price_weight(std::int64_t weight, std::int64_t second) const {
  return static_cast<std::int64_t>(std::llround(static_cast<double>(weight) + price_ * static_cast<double>(second)));
}

bool FrontSolver::solve(const SetGraph& graph, std::vector<Point>* front) {
  AM_CHECK(graph.second.size() == graph.weight.size());
  return branch(graph, front);
}

}  // namespace automap::partition
