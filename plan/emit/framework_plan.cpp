#include "plan/emit/framework_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "common/base/join.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/placed_work.h"
#include "plan/emit/model_words.h"
#include "plan/planners/layers.h"

namespace automap::emit {
namespace {

using pipeline::PlanDocument;
using pipeline::PlanStage;

std::vector<int> first_numbers(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

// Places the plan's devices, numbered from 1, on the servers: processes are numbered in their order, server by server.
// Returns the reason why a framework cannot be told this place.
Inexpressible place_on_servers(const machine::Cluster& cluster, const std::vector<int>& numbers, FrameworkPlan* plan) {
  std::vector<int> first = {1};  // device of each server, and one behind the last
  for (const machine::ServerGroup& group : cluster.servers) {
    for (int server = 0; server < group.count; ++server) first.push_back(first.back() + group.devices);
  }
  std::set<int> seen;
  for (const int number : numbers) {
    const auto server = static_cast<int>(std::upper_bound(first.begin(), first.end(), number) - first.begin());
    if (plan->servers.empty() || plan->servers.back().number != server) {
      if (!seen.insert(server).second) {
        return {"devices whose order comes back to server " + std::to_string(server),
                "processes are numbered server by server: name the devices of a server one after the other"};
      }
      const auto behind = first.begin() + server;
      plan->servers.push_back({server, *behind - *(behind - 1), {}});
    }
    plan->servers.back().devices.push_back(number - first[static_cast<std::size_t>(server) - 1]);
  }
  return {};
}

// The devices of all stages in their order; where a file does not say them, the first.
std::vector<int> devices_of(const PlanDocument& document) {
  std::vector<int> numbers;
  for (const PlanStage& stage : document.stages) {
    numbers.insert(numbers.end(), stage.device_numbers.begin(), stage.device_numbers.end());
  }
  return numbers.size() == static_cast<std::size_t>(document.num_devices) ? numbers
                                                                          : first_numbers(document.num_devices);
}

// The devices of a plan of even groups: the first replicas of its width. Devices left over in a server are not used.
std::vector<int> devices_of(const pipeline::PlanCorner& corner, const machine::Cluster& cluster) {
  const machine::Cluster replicas = machine::replicas_of(cluster, corner.width);
  std::vector<int> numbers;
  for (int replica = 0; replica < std::min(corner.devices / corner.width, replicas.num_devices()); ++replica) {
    const int first = corner.width > 1 ? machine::device_number(replicas, replica) : replica;
    for (int device = 1; device <= corner.width; ++device) numbers.push_back(first + device);
  }
  return numbers;
}

// `cluster`: null: not known.
Inexpressible place_devices(const std::vector<int>& numbers, const machine::Cluster* cluster, FrameworkPlan* plan) {
  for (const int number : numbers) plan->chosen_devices.push_back(number - 1);
  if (are_first(plan->chosen_devices)) plan->chosen_devices.clear();
  if (cluster == nullptr) return {};
  Inexpressible why = place_on_servers(*cluster, numbers, plan);
  if (!why.what.empty() || !plan->framework->even_servers) return why;
  why.what = planners::servers_inexpressible(used_of_servers(*plan), plan->replicas * plan->width, plan->width);
  if (!why.what.empty()) why.hint = std::string("--for ") + plan->framework->name + " plans what it can run";
  return why;
}

// `samples`: of a micro-batch, over all replicas.
Inexpressible take_samples(const PlanDocument& document, double samples, FrameworkPlan* plan) {
  const double each = samples / plan->replicas;
  if (!(each >= 1) || each != std::floor(each) || document.replicas == "fractional") {
    return {"replicas that compute parts of samples",
            "plan it with --replicas whole, and with samples for every replica"};
  }
  plan->samples = static_cast<std::int64_t>(each);
  return {};
}

Inexpressible take_layers(const pipeline::LayerSplit& layers, FrameworkPlan* plan) {
  for (const auto& [stack, counts] : layers.layers_per_stage) plan->stacks.push_back(stack);
  for (std::size_t s = 0; s < layers.stage_layers.size(); ++s) {
    plan->parts.push_back({layers.stage_layers[s],
                           s < layers.stage_modules.size() ? layers.stage_modules[s] : std::vector<std::string>()});
  }
  if (plan->parts.size() == static_cast<std::size_t>(plan->stages * plan->chunks)) return {};
  return {"a plan whose file does not say which layers its stages hold",
          "give the model, too (--model), or plan it again"};
}

// The order of work, for schedules that no framework has by name.
pipeline::WorkOrder order_of(const PlanDocument& document) {
  if (document.plan.schedule == pipeline::Schedule::kInterleaved) return {};
  return order_without_times(document.plan, document.micro_batches).value_or(pipeline::WorkOrder());
}

// The place of a layer in the stack; -1: it does not belong to it.
int place_in_stack(const std::string& layer, const std::string& stack) {
  const auto number = planners::layer_number(layer);
  return number && number->stack == stack ? static_cast<int>(number->index) : -1;
}

// Values that are no numbers, which nothing but an edited file has, are none.
architecture::ModelSizes kept_sizes(const PlanDocument& document) {
  architecture::ModelSizes sizes;
  for (const SizeWord& row : kSizeWords) {
    const auto found = document.provenance.find(row.in_plan);
    if (found == document.provenance.end()) continue;
    const std::string& text = found->second;
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status == std::errc() && end == text.data() + text.size() && value > 0) sizes.*row.size = value;
  }
  for (const auto& [key, word] :
       {std::pair("model_published", &sizes.published), std::pair("model_dtype", &sizes.dtype)}) {
    const auto found = document.provenance.find(key);
    if (found != document.provenance.end()) *word = found->second;
  }
  return sizes;
}

}  // namespace

void keep_sizes(const architecture::ModelSizes& sizes, PlanDocument* document) {
  if (!sizes.dtype.empty()) document->provenance["model_dtype"] = sizes.dtype;
  if (!sizes.published.empty()) document->provenance["model_published"] = sizes.published;
  for (const SizeWord& row : kSizeWords) {
    if (sizes.*row.size > 0) document->provenance[row.in_plan] = std::to_string(sizes.*row.size);
  }
}

std::vector<int> used_of_servers(const FrameworkPlan& plan) {
  std::vector<int> used;
  for (const UsedServer& server : plan.servers) used.push_back(static_cast<int>(server.devices.size()));
  return used;
}

bool are_first(const std::vector<int>& numbers, int from) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int number) { return number == from++; });
}

std::string numbers_text(const std::vector<int>& numbers, const char* between) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : between) + std::to_string(number);
  return text;
}

bool FrameworkPlan::recompute_any() const {
  return std::any_of(recompute.begin(), recompute.end(), [](bool again) { return again; });
}

Inexpressible framework_plan(const planners::Framework& framework, const PlanDocument& document, const PlanFacts& facts,
                             FrameworkPlan* out) {
  const pipeline::LayerSplit* layers = facts.layers;
  const std::string why = inexpressible(framework, document, layers);
  if (!why.empty()) return {why, std::string("--for ") + framework.name + " plans what it can run"};
  const PlanStage& first = document.stages.front();
  FrameworkPlan& plan = *out;
  plan = {};
  plan.framework = &framework;
  plan.model = document.model;
  plan.sizes = kept_sizes(document);
  plan.stages = document.plan.num_stages();
  plan.replicas = first.replicas;
  plan.width = first.width;
  plan.zero = plan.replicas > 1 ? first.variant.zero : 0;
  for (const PlanStage& stage : document.stages) plan.recompute.push_back(stage.variant.recompute);
  plan.sequence_parallel = plan.width > 1 && facts.sequence_parallel;
  plan.overlap = document.gradient_sync == "overlap";
  plan.schedule = document.plan.schedule;
  plan.chunks = document.plan.chunks;
  plan.stage_of_part = pipeline::group_of_parts(document.plan.placement, plan.stages, plan.chunks);
  plan.order = order_of(document);
  plan.micro_batches = document.micro_batches;
  if (document.micro_batch_samples == 0) {
    return {"a plan whose file does not say the samples of a micro-batch", "plan it again"};
  }
  Inexpressible parts = take_samples(document, document.micro_batch_samples, &plan);
  if (!parts.what.empty()) return parts;
  Inexpressible placed = place_devices(devices_of(document), facts.cluster, &plan);
  if (!placed.what.empty()) return placed;
  if (plan.width > 1 && document.partitions.size() == 1) {
    const Json partition = Json::parse(document.partitions.front());
    for (const auto& [name, dim] : partition.at("partition").items()) {
      plan.split.emplace_back(name, dim.get<int>());
    }
  }
  plan.shares_variables = std::any_of(document.stages.begin(), document.stages.end(),
                                      [](const PlanStage& stage) { return stage.shared_gradients_ms > 0; });
  return layers == nullptr || plan.stages == 1 ? Inexpressible() : take_layers(*layers, &plan);
}

Inexpressible framework_plan(const planners::Framework& framework, const PlanDocument& document,
                             const pipeline::PlanCorner& corner, const PlanFacts& facts, FrameworkPlan* out) {
  FrameworkPlan& plan = *out;
  plan = {};
  plan.framework = &framework;
  plan.model = document.model;
  plan.sizes = kept_sizes(document);
  const auto value = [&](const std::string& key) -> std::string {
    const std::string text = "," + corner.layout + ",";
    const std::size_t at = text.find("," + key + "=");
    if (at == std::string::npos) return "";
    const std::size_t from = at + key.size() + 2;
    return text.substr(from, text.find(',', from) - from);
  };
  const std::string plans = std::string("--for ") + framework.name + " plans what it can run";
  if (!value("schedule").empty() && value("schedule") != to_string(pipeline::Schedule::kInterleaved)) {
    return {"the schedule " + value("schedule"), plans};
  }
  plan.stages = corner.stages;
  plan.width = corner.width;
  const std::string width =
      planners::width_inexpressible(framework, corner.stages, corner.width, document.attention_heads);
  if (!width.empty()) return {width, plans};
  plan.replicas = corner.devices / (corner.stages * corner.width);
  plan.chunks = static_cast<int>(corner.chunk_cuts.size() + 1) / corner.stages;
  plan.stage_of_part = pipeline::group_of_parts(pipeline::Placement::kRoundRobin, plan.stages, plan.chunks);
  if (plan.chunks > 1 && !has_schedule(framework, pipeline::Schedule::kInterleaved)) return {"interleaved 1F1B", plans};
  const int zero = value("zero").empty() ? 0 : value("zero")[0] - '0';
  const std::vector<int>& levels = zero_levels(framework, plan.stages, plan.width);
  if (plan.replicas > 1 && std::find(levels.begin(), levels.end(), zero) == levels.end()) {
    return {zero == 0 ? "replicas without ZeRO with pipeline stages"
                      : "ZeRO " + std::to_string(zero) + " with pipeline stages",
            plans};
  }
  plan.zero = plan.replicas > 1 ? zero : 0;
  plan.recompute.assign(static_cast<std::size_t>(plan.stages), value("recompute") == "layer");
  plan.sequence_parallel = plan.width > 1 && facts.sequence_parallel;
  plan.overlap = document.gradient_sync == "overlap";
  plan.micro_batches = corner.micro_batches;
  Inexpressible why = take_samples(document, corner.micro_batch_samples, &plan);
  if (!why.what.empty()) return why;
  const auto of_chunks = plan.chunks > 1 ? pipeline::Schedule::kInterleaved : plan.schedule;
  const std::string batches = pipeline::micro_batches_fault(of_chunks, plan.stages, plan.micro_batches);
  if (!batches.empty()) return {"its micro-batches: " + batches, "ask for other --micro-batches"};
  if (plan.chunks == 1 &&
      std::find(framework.schedules.begin(), framework.schedules.end(), plan.schedule) == framework.schedules.end()) {
    return {std::string("the schedule ") + to_string(plan.schedule), plans};
  }
  if (facts.cluster != nullptr) {
    why = place_devices(devices_of(corner, *facts.cluster), facts.cluster, &plan);
    if (!why.what.empty()) return why;
  }
  if (facts.layers == nullptr) return {"cuts inside a layer", plans};
  why = take_layers(*facts.layers, &plan);
  if (!why.what.empty() || framework.cuts != planners::FrameworkCuts::kEqualLayers) return why;
  const StackCounts stack = stack_counts(plan);
  const std::string unequal = stack.why.empty() ? planners::equal_layers_inexpressible(stack.counts) : stack.why;
  return unequal.empty() ? Inexpressible() : Inexpressible{unequal, plans};
}

StackCounts stack_counts(const FrameworkPlan& plan) {
  StackCounts found;
  if (plan.stacks.size() != 1) {
    found.why = plan.stacks.empty()
                    ? "pipelines of a model whose layers are not numbered"
                    : "pipelines of a model of several stacks of layers (" + printable(join(plan.stacks)) + ")";
    return found;
  }
  const std::string& stack = plan.stacks.front();
  for (const FrameworkStage& part : plan.parts) {
    found.counts.push_back(static_cast<int>(std::count_if(
        part.layers.begin(), part.layers.end(), [&](const auto& layer) { return place_in_stack(layer, stack) >= 0; })));
    found.layers += found.counts.back();
  }
  int begun = found.counts.front();
  for (std::size_t s = 1; s < plan.parts.size(); ++s) {
    const bool at_layer = !plan.parts[s].layers.empty() && place_in_stack(plan.parts[s].layers.front(), stack) >= 0;
    const bool right_behind = begun == found.layers && !plan.parts[s - 1].layers.empty() &&
                              place_in_stack(plan.parts[s - 1].layers.back(), stack) >= 0;
    if (!at_layer && !right_behind) {
      found.why = "a cut " +
                  std::string(begun == 0              ? "in front of its first layer"
                              : begun == found.layers ? "behind its last layer"
                                                      : "between its layers") +
                  ", at " + printable(plan.parts[s].layers.empty() ? "?" : plan.parts[s].layers.front());
      return found;
    }
    begun += found.counts[s];
  }
  return found;
}

ModulePaths module_paths(const FrameworkPlan& plan, const std::string& layers, ModuleNames names) {
  ModulePaths paths;
  if (!layers.empty() && plan.stacks.size() != 1) {
    paths.why = {"--layers for a model of " + (plan.stacks.empty()
                                                   ? std::string("no numbered layers")
                                                   : "several stacks of layers (" + printable(join(plan.stacks)) + ")"),
                 "leave --layers out"};
    return paths;
  }
  const bool known = std::any_of(plan.parts.begin(), plan.parts.end(),
                                 [](const FrameworkStage& part) { return !part.modules.empty(); });
  if (!known)
    paths.note = "the plan knows of no layer that it holds variables: leave out the names that are no modules";
  int number = 0;
  for (const FrameworkStage& part : plan.parts) {
    std::vector<std::string>& stage = paths.stages.emplace_back();
    for (const std::string& module : known ? part.modules : part.layers) {
      const bool of_stack = !layers.empty() && place_in_stack(module, plan.stacks.front()) >= 0;
      std::string path = of_stack ? layers : planners::module_path(module);
      if (of_stack) path.replace(path.find("{i}"), 3, std::to_string(number++));
      if (path.empty() && names == ModuleNames::kAny) path = module;
      if (path.empty()) {
        const bool numbered = plan.stacks.size() == 1 && place_in_stack(module, plan.stacks.front()) >= 0;
        paths.why = {"\"" + printable(module) + "\", which is no module's path",
                     numbered ? "say what the layers are called in your model: --layers \"layers.{i}\""
                              : "only layers that are modules of the model can begin a stage"};
        return paths;
      }
      stage.push_back(path);
    }
    if (stage.empty()) {
      paths.why = {"a stage without a module (it begins with " +
                       printable(part.layers.empty() ? "?" : part.layers.front()) + ")",
                   "plan without --allow-empty-stages"};
      return paths;
    }
  }
  return paths;
}

}  // namespace automap::emit
