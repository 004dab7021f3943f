// Finds heaviest independent sets: the problem that partitioning becomes once every group has a weight.
//
// Exact, by branch and bound. Vertices that can be decided without branching are (isolated vertices, dominated
// vertices); the rest falls into connected parts that are solved one by one, and the vertex with most neighbours is
// branched on, so that a group that excludes everything (a model's hidden dimension) is decided first and the layers
// fall apart afterwards. Parts that look alike (repeated layers) are solved once. Bound: weighted clique cover.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/span.h"
#include "common/base/work.h"

namespace automap::partition {

struct SetStatistics {
  std::int64_t nodes = 0;      // of the search trees
  std::int64_t memo_hits = 0;  // parts that had been solved before
  std::int64_t points = 0;     // of fronts
};

// A graph whose vertices are numbered 0..n-1 and remember who they are. Neighbours ascending.
struct SetGraph {
  std::vector<std::int32_t> vertex;  // outer name
  std::vector<std::int64_t> weight;  // may be negative
  std::vector<std::int64_t> second;  // >= 0; empty where only weight counts
  std::vector<std::int32_t> first, neighbours;

  std::int32_t size() const { return static_cast<std::int32_t>(vertex.size()); }
  std::int32_t degree(std::int32_t v) const {
    return first[static_cast<std::size_t>(v) + 1] - first[static_cast<std::size_t>(v)];
  }
  // The neighbours of v.
  Span<const std::int32_t> around(std::int32_t v) const {
    return {neighbours.data() + first[static_cast<std::size_t>(v)], static_cast<std::size_t>(degree(v))};
  }
  bool adjacent(std::int32_t a, std::int32_t b) const;
  // Room for so much: graphs are made at every node of a search, and growing costs more than filling.
  void reserve(std::size_t vertices, std::size_t edges, bool two_weights);
  // The part that `keep` (one flag per vertex) leaves.
  SetGraph induced(const std::vector<char>& keep) const;
  // The connected parts; none where the whole is one.
  std::vector<SetGraph> parts() const;
};
// `neighbours` symmetric and ascending.
SetGraph make_set_graph(const std::vector<std::vector<std::int32_t>>& neighbours, std::vector<std::int64_t> weight,
                        std::vector<std::int64_t> second = {});

struct SetResult {
  std::int64_t weight = 0;             // of `vertices`
  std::int64_t bound = 0;              // nothing is heavier
  std::vector<std::int32_t> vertices;  // outer names, in no order
  bool exact() const { return weight == bound; }
};

// Sums of weights must stay below 2^62.
class SetSolver {
 public:
  SetSolver(Work* work, SetStatistics* statistics) : work_(work), statistics_(statistics) {}
  // The heaviest set. When the work is over: a set and a bound. Weights must be the same function of the outer names
  // in all calls of one solver (parts are remembered by their shape and weights, so other graphs may be asked for).
  SetResult solve(const SetGraph& graph) { return solve(graph, -1); }
  // The same, but where nothing is heavier than `at_least` it may say only that (bound <= at_least).
  SetResult solve(const SetGraph& graph, std::int64_t at_least);

 private:
  SetResult branch(SetGraph graph, std::int64_t at_least);
  SetResult part(SetGraph graph, std::int64_t at_least);

  struct Known {
    std::int64_t weight, bound;
    std::vector<std::int32_t> places;  // in canonical order
  };
  Work* work_;
  SetStatistics* statistics_;
  std::unordered_map<std::string, Known> known_;
  std::size_t known_bytes_ = 0;
};

// All independent sets of a graph that no other beats in both weight and second (which is cut off at `need`: more is
// not worth more). Sets that cannot be part of a best answer may be left out: those that lose more than `gap` of
// weight + price * second against the best set of the part they are in.
class FrontSolver {
 public:
  FrontSolver(Work* work, SetStatistics* statistics, std::int64_t need, double price, double gap);

  struct Point {
    std::int64_t weight, second;
    std::int32_t made;  // how: for vertices()
  };
  // Keeps about so many points of every front, spread evenly: good sets, but no longer all.
  void thin_out(std::size_t points) { thin_ = points; }
  // False: the work was over, or there were too many points; `front` means nothing then.
  bool solve(const SetGraph& graph, std::vector<Point>* front);
  // Outer names.
  std::vector<std::int32_t> vertices(const Point& point) const;

 private:
  using Front = std::vector<Point>;
  // The origin of a point: a vertex added to `left`, two points merged, or a known point with renamed vertices.
  struct Made {
    std::int32_t vertex = -1, left = -1, right = -1, renamed = -1;
  };
  bool branch(SetGraph graph, Front* front);
  bool part(const SetGraph& graph, Front* front);
  bool merge(const Front& a, const Front& b, Front* out);
  void prune(Front* front) const;
  std::int64_t price_weight(std::int64_t weight, std::int64_t second) const;
  double lagrangian(const Point& p) const {
    return static_cast<double>(p.weight) + price_ * static_cast<double>(p.second);
  }
  std::int32_t add(Made made);

  Work* work_;
  SetStatistics* statistics_;
  std::int64_t need_;
  double price_, gap_;
  std::size_t thin_ = 0;
  SetSolver priced_;
  std::vector<Made> made_;
  std::vector<std::vector<std::int32_t>> names_;  // of renamed points: canonical place -> outer name
  std::unordered_map<std::string, Front> known_;
};

}  // namespace automap::partition
