#include "plan/planners/layers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "common/base/cli.h"
#include "common/base/work.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/turn.h"
#include "models/plan_space.h"
#include "models/policy_search.h"

namespace automap::planners {
namespace {

using pipeline::LayerSplit;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Profile;

// Taken from the exact solver, which ranks by V; the simulation chooses among them.
constexpr int kCandidatesPerStageCount = 4;
constexpr int kStagesAround = 2;
// With the quick search: the plan's own, and one less, since a plan of instructions may hold a stage of next to
// nothing.
constexpr int kQuickStagesAround = 1;
// More layers than that are no pivots of a plan space: the exact solver has a moment for them.
constexpr std::size_t kMostQuickPivots = 1024;
constexpr std::int64_t kManyLayersUnits = 50'000'000;
constexpr double kWorthALook = 1.02;  // candidates are judged by simulation, so V may be a little above

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// A place between whole layers: the instructions from `first` on (1-based) belong to `layer` and what follows it.
struct Border {
  int first = 0;
  std::string layer;
};

// True if instruction i has a layer that differs from that of the instruction before: runs are handled at once.
bool new_layer(const Profile& profile, std::size_t i) {
  return !profile.layer[i].empty() && (i == 0 || profile.layer[i] != profile.layer[i - 1]);
}

// The stacks of numbered layers, and how many layers each has.
std::map<std::string, int> sizes_of_stacks(const Profile& profile) {
  std::map<std::string, std::map<long long, int>> members;
  int* members_of_run = nullptr;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (i == 0 || profile.layer[i] != profile.layer[i - 1]) {
      const auto number = layer_number(profile.layer[i]);
      members_of_run = number ? &members[number->stack][number->index] : nullptr;
    }
    // A turn of a loop over layers is a layer, however few positions it has.
    const bool turn = !profile.name.empty() && pipeline::turn_of(profile.name[i]);
    if (members_of_run != nullptr) *members_of_run += turn ? 2 : 1;
  }
  std::map<std::string, int> stack_sizes;
  for (const auto& [stack, layers] : members) {
    int instructions = 0;
    for (const auto& [index, count] : layers) instructions += count;
    const int size = static_cast<int>(layers.size());
    // "Conv2d 3", "Conv2d 7": numbered instructions, not layers.
    if (size > 1 && instructions >= 2 * size) stack_sizes[stack] = size;
  }
  return stack_sizes;
}

// "h/5/attn" and "h/5/mlp" are one layer when h is a stack.
std::string whole_layer(std::string layer, const std::map<std::string, int>& stack_sizes) {
  if (const auto number = layer_number(layer); number && stack_sizes.count(number->stack)) {
    const std::size_t digits = layer.find(std::to_string(number->index), number->stack.size());
    if (digits != std::string::npos) layer.resize(std::min(layer.find('/', digits), layer.size()));
  }
  return layer;
}

// The start of each layer, ascending.
std::vector<Border> layer_borders(const Profile& profile, const std::map<std::string, int>& stack_sizes) {
  std::vector<Border> borders;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (!new_layer(profile, i)) continue;
    const std::string layer = whole_layer(profile.layer[i], stack_sizes);
    if (seen.insert(layer).second && i > 0) borders.push_back({static_cast<int>(i) + 1, layer});
  }
  return borders;
}

// Fills in split_spec, or why there is none, and the modules of each stage: what a scope is named after may be a
// function, and only what holds variables is known to be a module. Of a stack one layer that does is enough: layers
// that share variables hold them once.
void name_modules(const Profile& profile, const std::map<std::string, int>& stack_sizes, LayerSplit& split) {
  const auto holder = [&](const std::string& layer) {
    const auto number = layer_number(layer);
    return number && stack_sizes.count(number->stack) ? number->stack : layer;
  };
  std::set<std::string> holders;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (profile.w_bytes[i] > 0) holders.insert(holder(whole_layer(profile.layer[i], stack_sizes)));
  }
  for (const std::vector<std::string>& layers : split.stage_layers) {
    std::vector<std::string>& modules = split.stage_modules.emplace_back();
    std::copy_if(layers.begin(), layers.end(), std::back_inserter(modules),
                 [&](const std::string& layer) { return holders.count(holder(layer)) > 0; });
  }
  std::vector<std::string> paths;
  for (const std::string& layer : split.split_before) {
    paths.push_back(module_path(layer));
    if (paths.back().empty()) {
      split.no_split_spec = "\"" + layer + "\" is no module's path";
    } else if (holders.empty()) {
      split.no_split_spec = "the profile says of no layer that it holds variables, so names may be those of functions";
    } else if (holders.count(holder(layer)) == 0) {
      split.no_split_spec = "\"" + layer + "\" holds no variables, so it may be a function and no module";
    }
    if (!split.no_split_spec.empty()) return;
  }
  split.split_spec = std::move(paths);
}

// `plan` with each cut at the nearest (by compute) border, later cuts behind earlier ones. Nothing with too few
// borders.
template <typename AnyPlan>
std::optional<AnyPlan> move_to_borders(const Problem& problem, const std::vector<Border>& borders, AnyPlan plan) {
  plan.warmup.clear();  // of other stages
  std::size_t from = 0;
  for (std::size_t s = 0; s < plan.cuts.size(); ++s) {
    const std::size_t room = plan.cuts.size() - s - 1;
    if (from + room >= borders.size()) return std::nullopt;
    std::size_t best = from;
    const double wanted = problem.work_ms(0, plan.cuts[s]);
    const auto distance = [&](std::size_t b) { return std::fabs(problem.work_ms(0, borders[b].first - 1) - wanted); };
    for (std::size_t b = from; b + room < borders.size(); ++b) {
      if (distance(b) < distance(best)) best = b;
    }
    plan.cuts[s] = borders[best].first - 1;
    from = best + 1;
  }
  return plan;
}

// The plans that the exact solver, or the policy's search, finds between min_stages and max_stages stages on these
// pivots.
std::vector<Plan> search(const Problem& problem, const std::vector<int>& pivots, pipeline::Schedule schedule,
                         int min_stages, int max_stages, double upper_bound_ms, const LayerOptions& how, Work& work) {
  std::vector<Plan> plans;
  if (!how.quick) {
    pipeline::ExactOptions options;
    options.min_stages = min_stages;
    options.max_stages = max_stages;
    options.schedule = schedule;
    options.k_best = kCandidatesPerStageCount;
    options.work = &work;
    options.pivots = pivots;
    options.upper_bound_ms = upper_bound_ms;
    for (const pipeline::ExactStageResult& result : solve_exact(problem, options).by_stages) {
      plans.insert(plans.end(), result.plans.begin(), result.plans.end());
    }
    return plans;
  }
  for (int stages = min_stages; stages <= std::min(max_stages, models::kMaxStages); ++stages) {
    models::PlanSpaceOptions options;
    options.stages = stages;
    options.schedule = schedule;
    options.pivots = pivots;
    const models::PlanSpace space(problem, options);
    if (auto found = models::search_plan(space, how.policy, {})) plans.push_back(std::move(found->plan));
  }
  return plans;
}

// The feasible candidate that is shortest in simulation; its names are not filled in.
std::optional<LayerSplit> shortest(const Problem& problem, const std::vector<Plan>& candidates) {
  std::optional<LayerSplit> best;
  for (const Plan& candidate : candidates) {
    if (!feasible(problem, candidate)) continue;
    const double simulated = simulate_step_ms(problem, candidate);
    if (best && simulated >= best->simulated_step_ms) continue;
    best.emplace();
    best->cuts = candidate.cuts;
    best->device_cuts = candidate.device_cuts;
    best->step_ms = value_ms(problem, candidate);
    best->simulated_step_ms = simulated;
  }
  return best;
}

// Names the layers at the cuts of a split, and counts the layers of each stack in its stages.
void name_layers(const Profile& profile, const std::map<std::string, int>& stack_sizes,
                 const std::vector<Border>& borders, LayerSplit& split) {
  for (const int cut : split.cuts) {
    const auto at = std::find_if(borders.begin(), borders.end(), [&](const Border& b) { return b.first == cut + 1; });
    split.split_before.push_back(at->layer);
  }
  // A layer belongs to the stage that its first instruction is in.
  std::map<std::string, std::map<long long, std::size_t>> stage_of;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (!new_layer(profile, i)) continue;
    const auto number = layer_number(profile.layer[i]);
    if (!number || !stack_sizes.count(number->stack)) continue;
    const auto stage = std::upper_bound(split.cuts.begin(), split.cuts.end(), static_cast<int>(i)) - split.cuts.begin();
    stage_of[number->stack].emplace(number->index, static_cast<std::size_t>(stage));
  }
  for (const auto& [stack, layers] : stage_of) {
    std::vector<int>& counts = split.layers_per_stage[stack];
    counts.assign(split.cuts.size() + 1, 0);
    for (const auto& [index, stage] : layers) ++counts[stage];
  }
  std::set<std::string> seen;
  split.stage_layers.assign(split.cuts.size() + 1, {});
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (!new_layer(profile, i)) continue;
    const std::string layer = whole_layer(profile.layer[i], stack_sizes);
    const auto stage = std::upper_bound(split.cuts.begin(), split.cuts.end(), static_cast<int>(i)) - split.cuts.begin();
    if (seen.insert(layer).second) split.stage_layers[static_cast<std::size_t>(stage)].push_back(layer);
  }
  name_modules(profile, stack_sizes, split);
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

std::vector<int> layer_cuts(const Profile& profile) {
  std::vector<int> cuts;
  for (const Border& border : layer_borders(profile, sizes_of_stacks(profile))) cuts.push_back(border.first - 1);
  return cuts;
}

std::vector<int> stack_starts(const Profile& profile) {
  const std::map<std::string, int> stack_sizes = sizes_of_stacks(profile);
  std::vector<int> starts;
  if (stack_sizes.size() != 1) return starts;
  std::set<long long> seen;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (!new_layer(profile, i)) continue;
    const auto number = layer_number(profile.layer[i]);
    if (!number || !stack_sizes.count(number->stack) || !seen.insert(number->index).second) continue;
    starts.push_back(static_cast<int>(i));
  }
  return starts;
}

std::string module_path(const std::string& layer) {
  // A step in JAX names the tree of its variables, which is no module: a stacked layer goes by its variables' names.
  constexpr std::string_view kVariables = "params/";
  std::string path;
  for (std::size_t at = layer.compare(0, kVariables.size(), kVariables) == 0 ? kVariables.size() : 0;
       at <= layer.size();) {
    const std::size_t end = std::min(layer.find('/', at), layer.size());
    const std::string part = layer.substr(at, end - at);
    const bool word = std::all_of(part.begin(), part.end(),
                                  [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
    if (part.empty() || !word || (is_digit(part[0]) && !std::all_of(part.begin(), part.end(), is_digit))) return "";
    path += (path.empty() ? "" : ".") + part;
    at = end + 1;
  }
  return path;
}

std::vector<int> stack_cuts(const Profile& profile) {
  std::vector<int> cuts = stack_starts(profile);
  if (cuts.empty()) return cuts;
  const std::vector<int> between = layer_cuts(profile);
  const auto behind = std::upper_bound(between.begin(), between.end(), cuts.back());
  if (behind != between.end()) cuts.push_back(*behind);
  if (cuts.front() == 0) cuts.erase(cuts.begin());
  return cuts;
}

std::optional<LayerSplit> layers_at_cuts(const Profile& profile, const std::vector<int>& cuts) {
  const std::map<std::string, int> stack_sizes = sizes_of_stacks(profile);
  const std::vector<Border> borders = layer_borders(profile, stack_sizes);
  const bool at_layers = std::all_of(cuts.begin(), cuts.end(), [&](int cut) {
    return std::any_of(borders.begin(), borders.end(), [&](const Border& border) { return border.first == cut + 1; });
  });
  if (!at_layers) return std::nullopt;
  LayerSplit split;
  split.cuts = cuts;
  name_layers(profile, stack_sizes, borders, split);
  return split;
}

std::optional<LayerSplit> as_layer_split(const pipeline::PlacedPlan& placed, const Profile& profile) {
  if (placed.plan.cuts.empty()) return std::nullopt;
  std::optional<LayerSplit> split = layers_at_cuts(profile, placed.plan.cuts);
  if (!split) return std::nullopt;
  split->device_cuts = placed.plan.device_cuts;
  for (const pipeline::PlacedStage& stage : placed.stages) split->widths.push_back(stage.width());
  split->step_ms = value_ms(placed);
  split->simulated_step_ms = simulate_step_ms(placed);
  return split;
}

LayerResult split_at_layers(const Problem& problem, const Profile& profile, const Plan& plan, const LayerOptions& how) {
  LayerResult result;
  // Data parallelism cuts nothing.
  const int stages = plan.num_stages();
  if (profile.layer.empty() || stages == 1) return result;
  const std::map<std::string, int> stack_sizes = sizes_of_stacks(profile);
  const std::vector<Border> borders = layer_borders(profile, stack_sizes);
  const int most = static_cast<int>(borders.size()) + 1;
  if (most < std::max(2, how.min_stages)) {
    result.why_not = "the model has " + std::to_string(most) + (most == 1 ? " layer" : " layers") + ", too few for " +
                     std::to_string(std::max(2, how.min_stages)) + " stages";
    return result;
  }
  // Whole layers ask for about as many stages as instructions do, as far as there are as many layers.
  const int max_stages =
      std::min({how.max_stages, how.quick ? stages : stages + kStagesAround, problem.num_devices(), most});
  const int min_stages =
      std::min(max_stages, std::max({how.min_stages, 2, stages - (how.quick ? kQuickStagesAround : kStagesAround)}));

  std::vector<int> pivots;
  for (const Border& border : borders) pivots.push_back(border.first - 1);
  LayerOptions options = how;
  if (options.quick && pivots.size() > kMostQuickPivots) {
    options.quick = false;
    options.units = kManyLayersUnits;
  }
  WorkLimits limits;
  limits.units = options.units;
  limits.seconds = options.time_limit_s;
  limits.cancelled = StopToken::stop_requested;
  Work work(limits);
  std::vector<Plan> candidates;
  double upper_bound_ms = std::numeric_limits<double>::infinity();
  std::string moved_why_not;
  if (auto moved = move_to_borders(problem, borders, plan)) {
    moved_why_not = infeasible_reason(problem, *moved);
    // Plans whose V is far above that of the moved plan are not searched for.
    if (moved_why_not.empty()) upper_bound_ms = kWorthALook * value_ms(problem, *moved);
    candidates.push_back(*std::move(moved));
  }
  // Layers without variables make no stage of their own, so that fewer stages than layers may be all there is.
  const int least = std::max(2, how.min_stages);
  std::optional<LayerSplit>& best = result.split;
  for (int high = max_stages, low = min_stages;; high = low - 1, low = std::max(least, high - kStagesAround)) {
    for (Plan& found : search(problem, pivots, plan.schedule, low, high, upper_bound_ms, options, work)) {
      candidates.push_back(std::move(found));
    }
    // Hundreds of devices may cost the solver all it may do, before it has a plan.
    if (!options.quick && work.over() && pivots.size() <= kMostQuickPivots) {
      LayerOptions quick = options;
      quick.quick = true;
      for (Plan& found : search(problem, pivots, plan.schedule, low, high, upper_bound_ms, quick, work)) {
        candidates.push_back(std::move(found));
      }
    }
    best = shortest(problem, candidates);
    if (best || low <= least) break;
    candidates.clear();
  }
  result.cut_by_time = work.stopped();
  if (!best) {
    if (work.over()) {
      result.why_not = "the search for one came to no end: ask for --effort thorough or more time";
    } else {
      result.why_not = "none of " + std::to_string(least) + " to " + std::to_string(max_stages) +
                       " stages is possible" +
                       (moved_why_not.empty() ? "" : ", nearest to this plan: " + moved_why_not);
    }
    return result;
  }
  name_layers(profile, stack_sizes, borders, *best);
  return result;
}

LayerResult split_mixed_at_layers(const pipeline::MixedProblem& problem, const Profile& profile,
                                  const pipeline::MixedPlan& plan) {
  LayerResult result;
  if (profile.layer.empty()) return result;
  const std::map<std::string, int> stack_sizes = sizes_of_stacks(profile);
  const std::vector<Border> borders = layer_borders(profile, stack_sizes);
  const auto moved = move_to_borders(problem.problem(problem.widths().front()), borders, plan);
  if (!moved) {
    const int layers = static_cast<int>(borders.size()) + 1;
    result.why_not = "the model has " + std::to_string(layers) + (layers == 1 ? " layer" : " layers") +
                     ", too few for " + std::to_string(plan.num_stages()) + " stages";
    return result;
  }
  pipeline::MixedPlan best = *moved;
  double best_ms = problem.simulated_ms(best);
  for (bool shorter = true; shorter && !StopToken::stop_requested();) {
    shorter = false;
    for (int& cut : best.cuts) {
      for (const int by : {-1, 1}) {
        const int before = cut;
        const auto at =
            std::find_if(borders.begin(), borders.end(), [&](const Border& b) { return b.first == cut + 1; });
        const auto next = at - borders.begin() + by;
        if (next < 0 || next >= static_cast<std::ptrdiff_t>(borders.size())) continue;
        cut = borders[static_cast<std::size_t>(next)].first - 1;
        const double ms = problem.simulated_ms(best);
        if (ms < best_ms) {
          best_ms = ms;
          shorter = true;
        } else {
          cut = before;
        }
      }
    }
  }
  if (best_ms == std::numeric_limits<double>::infinity()) {
    result.why_not =
        "the stages of different widths, cut there, cannot run: " + infeasible_reason(problem.place(*moved));
    return result;
  }
  LayerSplit& split = result.split.emplace();
  split.cuts = best.cuts;
  split.device_cuts = best.device_cuts;
  split.widths = best.widths;
  split.step_ms = value_ms(problem.place(best));
  split.simulated_step_ms = best_ms;
  name_layers(profile, stack_sizes, borders, split);
  return result;
}

}  // namespace automap::planners
