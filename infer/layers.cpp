#include "infer/layers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"

namespace automap::infer {
namespace {

using pipeline::LayerSplit;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Profile;

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// A place between whole layers: the instructions from `first` on (1-based) belong to `layer` and what follows it.
struct Border {
  int first = 0;
  std::string layer;
};

// Where each layer starts, ascending; only layers of numbered stacks when there are any.
std::vector<Border> layer_borders(const Profile& profile, const std::map<std::string, int>& stack_sizes) {
  std::vector<Border> borders;
  std::map<std::string, int> seen;
  const bool numbered = !stack_sizes.empty();
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    std::string layer = profile.layer[i];
    if (layer.empty()) continue;
    if (numbered) {
      const auto number = layer_number(layer);
      if (!number || !stack_sizes.count(number->stack)) continue;
      // "h/5/attn" and "h/5/mlp" are one layer.
      const std::string digits = std::to_string(number->index);
      const std::size_t end = layer.find(digits, number->stack.size());
      const std::size_t slash = end == std::string::npos ? end : layer.find('/', end);
      layer = layer.substr(0, slash);
    }
    if (seen.emplace(layer, 0).second) borders.push_back({static_cast<int>(i) + 1, layer});
  }
  return borders;
}

}  // namespace

std::optional<LayerNumber> layer_number(const std::string& layer) {
  for (std::size_t at = 0; at < layer.size();) {
    const std::size_t slash = std::min(layer.find('/', at), layer.size());
    std::size_t end = slash;
    // "block 17 of 48"
    if (const std::size_t of = layer.substr(at, slash - at).find(" of "); of != std::string::npos) end = at + of;
    std::size_t digits = end;
    while (digits > at && is_digit(layer[digits - 1])) --digits;
    if (digits < end && end - digits <= 9) {
      std::string stack = layer.substr(0, digits);
      while (!stack.empty() &&
             (stack.back() == '/' || stack.back() == '_' || stack.back() == ' ' || stack.back() == '.'))
        stack.pop_back();
      return LayerNumber{stack, std::stoll(layer.substr(digits, end - digits))};
    }
    at = slash + 1;
  }
  return std::nullopt;
}

std::optional<LayerSplit> split_at_layers(const Problem& problem, const Profile& profile, const Plan& plan) {
  if (profile.layer.empty() || plan.num_stages() < 2) return std::nullopt;
  std::map<std::string, std::map<long long, int>> members;
  for (const std::string& layer : profile.layer) {
    if (const auto number = layer_number(layer)) ++members[number->stack][number->index];
  }
  std::map<std::string, int> stack_sizes;  // stacks of two layers or more
  for (const auto& [stack, layers] : members) {
    int instructions = 0;
    for (const auto& [index, count] : layers) instructions += count;
    const int size = static_cast<int>(layers.size());
    // "Conv2d 3", "Conv2d 7": numbered instructions, not layers.
    if (size > 1 && instructions >= 2 * size) stack_sizes[stack] = size;
  }
  std::vector<Border> borders = layer_borders(profile, stack_sizes);
  // A cut in front of everything is none.
  borders.erase(std::remove_if(borders.begin(), borders.end(), [](const Border& b) { return b.first <= 1; }),
                borders.end());

  // Nearest border of each cut, later cuts strictly behind earlier ones and leaving room for those that follow.
  LayerSplit split;
  std::size_t from = 0;
  for (std::size_t s = 0; s < plan.cuts.size(); ++s) {
    const std::size_t room = plan.cuts.size() - s - 1;
    if (from + room >= borders.size()) return std::nullopt;
    std::size_t best = from;
    for (std::size_t b = from; b + room < borders.size(); ++b) {
      const auto distance = [&](std::size_t at) {
        const int cut = borders[at].first - 1;
        return std::fabs(problem.work_ms(0, cut) - problem.work_ms(0, plan.cuts[s]));
      };
      if (distance(b) < distance(best)) best = b;
    }
    split.cuts.push_back(borders[best].first - 1);
    split.split_before.push_back(borders[best].layer);
    from = best + 1;
  }

  Plan whole = plan;
  whole.cuts = split.cuts;
  split.step_ms = value_ms(problem, whole);
  split.simulated_step_ms = simulate_step_ms(problem, whole);
  split.infeasible = infeasible_reason(problem, whole);

  // A layer belongs to the stage that its first instruction is in.
  std::map<std::string, std::map<long long, int>> stage_of;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    const auto number = layer_number(profile.layer[i]);
    if (!number || !stack_sizes.count(number->stack)) continue;
    const int stage = static_cast<int>(std::upper_bound(split.cuts.begin(), split.cuts.end(), static_cast<int>(i)) -
                                       split.cuts.begin());
    stage_of[number->stack].emplace(number->index, stage);
  }
  for (const auto& [stack, layers] : stage_of) {
    std::vector<int>& counts = split.layers_per_stage[stack];
    counts.assign(static_cast<std::size_t>(plan.num_stages()), 0);
    for (const auto& [index, stage] : layers) ++counts[static_cast<std::size_t>(stage)];
  }
  return split;
}

}  // namespace automap::infer
