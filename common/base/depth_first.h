// Computes the order in which a depth-first search finishes vertices; its stack is a vector, so that depth costs no
// stack.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace automap {

// From each of `roots` that was not met before, in their order; `next` of a vertex in its order.
inline std::vector<int> finish_order(const std::vector<std::vector<int>>& next, const std::vector<int>& roots) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::vector<int> order;
  std::vector<char> seen(next.size(), 0);
  std::vector<std::pair<int, std::size_t>> stack;
  for (const int root : roots) {
    if (seen[at(root)]) continue;
    seen[at(root)] = 1;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [v, edge] = stack.back();
      if (edge == next[at(v)].size()) {
        order.push_back(v);
        stack.pop_back();
        continue;
      }
      const int w = next[at(v)][edge++];
      if (!seen[at(w)]) {
        seen[at(w)] = 1;
        stack.emplace_back(w, 0);
      }
    }
  }
  return order;
}

}  // namespace automap
