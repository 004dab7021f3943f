#include "plan/emit/emit_soap.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "plan/emit/annotated_module.h"
#include "plan/systems/soap/overlaps.h"

namespace automap::emit {

namespace {

constexpr const char* kWhole = "{replicated}";

// The most parts that divide the devices' number.
int most_parts(const soap::Operator& op, int devices) {
  int most = 1;
  for (const std::vector<std::int32_t>& degrees : soap::degree_vectors(op, devices)) {
    int parts = 1;
    for (const std::int32_t degree : degrees) parts *= degree;
    if (devices % parts == 0) most = std::max(most, parts);
  }
  return most;
}

// The devices that compute each part: its own first, then the same number of others for each, in their order.
std::vector<std::vector<int>> holders_of(const soap::Config& config, int devices) {
  std::vector<std::vector<int>> out;
  std::vector<char> used(static_cast<std::size_t>(devices), 0);
  for (const std::int32_t device : config.devices) {
    out.push_back({device});
    used[static_cast<std::size_t>(device)] = 1;
  }
  const int copies = devices / config.parts();
  int next = 0;
  // Behind its own device come its neighbours, so that copies of a part stand together where the plan spreads parts.
  for (std::vector<int>& of : out) {
    for (next = of.front(); static_cast<int>(of.size()) < copies; next = (next + 1) % devices) {
      if (used[static_cast<std::size_t>(next)]) continue;
      used[static_cast<std::size_t>(next)] = 1;
      of.push_back(next);
    }
  }
  return out;
}

}  // namespace

std::string why_no_mesh(const soap::Space& space, const soap::Strategy& strategy, int devices) {
  for (std::size_t i = 0; i < strategy.size(); ++i) {
    const soap::Operator& op = space.operators[i];
    const soap::Config& config = strategy[i];
    const std::string where = "operator " + std::to_string(i + 1) + " (" + printable(op.name) + ") ";
    const std::set<std::int32_t> distinct(config.devices.begin(), config.devices.end());
    if (distinct.size() != config.devices.size()) return where + "has two parts on one device";
    const int most = most_parts(op, devices);
    if (config.parts() == most) continue;
    const std::string has = where + "runs in " + std::to_string(config.parts()) + " parts";
    if (devices % config.parts() != 0) return has + ", which do not divide the " + std::to_string(devices) + " devices";
    return has + " on as many of the " + std::to_string(devices) + " devices, and could run in " + std::to_string(most);
  }
  return "";
}

std::string soap_sharding(const soap::LaidTensor& tensor, const soap::Config& config, int devices) {
  std::vector<std::int64_t> tiles;
  std::int64_t parts = 1;
  for (const std::int32_t dim : tensor.dims) {
    tiles.push_back(dim == soap::kNone ? 1 : config.degrees[static_cast<std::size_t>(dim)]);
    parts *= tiles.back();
  }
  if (parts == 1) return kWhole;
  std::vector<std::vector<int>> of_tile(static_cast<std::size_t>(parts));
  const std::vector<std::vector<int>> holders = holders_of(config, devices);
  for (std::int32_t part = 0; part < config.parts(); ++part) {
    const std::vector<std::int32_t> indices = soap::indices_of(config, part);
    std::int64_t tile = 0;
    for (std::size_t d = 0; d < tiles.size(); ++d) {
      const std::int32_t dim = tensor.dims[d];
      tile = tile * tiles[d] + (dim == soap::kNone ? 0 : indices[static_cast<std::size_t>(dim)]);
    }
    std::vector<int>& at = of_tile[static_cast<std::size_t>(tile)];
    const std::vector<int>& here = holders[static_cast<std::size_t>(part)];
    at.insert(at.end(), here.begin(), here.end());
  }
  const std::int64_t copies = devices / parts;
  std::string shape, order;
  for (const std::int64_t tile : tiles) shape += (shape.empty() ? "" : ",") + std::to_string(tile);
  if (copies > 1) shape += "," + std::to_string(copies);
  for (std::vector<int>& of : of_tile) {
    std::sort(of.begin(), of.end());
    for (const int device : of) order += (order.empty() ? "" : ",") + std::to_string(device);
  }
  return "{devices=[" + shape + "]" + order + (copies > 1 ? " last_tile_dim_replicate}" : "}");
}

std::string emit_soap_hlo(const graph::TrainingStep& step, const soap::ModelSpace& model,
                          const soap::Strategy& strategy, int devices) {
  const graph::Graph& graph = step.flow.graph();
  const std::string why = why_no_mesh(model.space, strategy, devices);
  if (!why.empty()) {
    throw Error(ErrorKind::kUsage, "the strategy is no single program for XLA: " + why,
                "search with --placement mesh, which looks at none but those that are");
  }
  refuse_partitioned(graph);
  if (!step.expanded_whiles.empty()) {
    throw Error(ErrorKind::kData, "the module runs its whole step in a loop, which nothing is written into",
                "export the step without accumulating gradients");
  }
  const auto text_of = [&](const soap::LaidTensor& tensor) {
    return tensor.op == soap::kNone ? std::string(kWhole)
                                    : soap_sharding(tensor, strategy[static_cast<std::size_t>(tensor.op)], devices);
  };
  const graph::Computation& entry = graph.entry();
  std::vector<std::string> inputs, results;
  std::vector<std::vector<std::string>> leaves(entry.parameters.size());
  std::map<std::int32_t, std::string> new_values;
  for (std::size_t k = 0; k < step.inputs.size(); ++k) {
    inputs.push_back(text_of(model.inputs[k]));
    leaves[static_cast<std::size_t>(step.inputs[k].parameter)].push_back(inputs.back());
    if (step.inputs[k].result != graph::kNone) new_values[step.inputs[k].result] = inputs.back();
  }
  const std::size_t num_results = graph::read_aliases(step.flow).size();
  for (std::size_t r = 0; r < num_results; ++r) {
    const auto found = new_values.find(static_cast<std::int32_t>(r));
    results.push_back(found == new_values.end() ? kWhole : found->second);
  }
  std::map<graph::InstructionId, std::string> of_instruction;
  for (const auto& [id, tensor] : model.made) of_instruction[id] = text_of(tensor);
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    of_instruction[entry.parameters[p]] =
        joined_shardings(graph, graph.instruction(entry.parameters[p]).shape, leaves[p]);
  }
  of_instruction[entry.root] = joined_shardings(graph, graph.instruction(entry.root).shape, results);
  hlo::WriteOptions options;
  const AnnotatedModule annotated(step.flow, devices, std::move(inputs), std::move(results));
  annotated.write_with(&options);
  options.sharding = [&](graph::InstructionId id) -> std::optional<std::string> {
    const auto found = of_instruction.find(id);
    if (found != of_instruction.end()) return found->second;
    return graph.attribute(id, "sharding") ? std::optional<std::string>("") : std::nullopt;
  };
  return hlo::edit_hlo_text(graph, options);
}

}  // namespace automap::emit
