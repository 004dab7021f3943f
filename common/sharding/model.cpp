#include "common/sharding/model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/suggest.h"
#include "common/graph/trip_count.h"

namespace automap::sharding {

namespace {

using graph::InputRole;

constexpr std::size_t kMaxNamed = 5;  // names in an error message

// Beyond it nothing is told apart: costs times it stay numbers, whose sums do, too.
constexpr double kMostTimes = 1e30;

// Runs of the loops around every site of the flow.
std::vector<double> times_of_nodes(const graph::FlowGraph& flow) {
  const auto& sites = flow.sites();
  std::vector<double> of_site(sites.size(), 1);
  if (!flow.loops().empty()) {
    const std::vector<std::optional<std::int64_t>> counts = graph::trip_counts(flow.graph());
    std::vector<bool> is_loop(sites.size(), false);
    for (const graph::FlowLoop& loop : flow.loops()) is_loop[static_cast<std::size_t>(loop.site)] = true;
    // A site is made after its parent.
    for (std::size_t s = 0; s < sites.size(); ++s) {
      if (sites[s].parent != kNone) of_site[s] = of_site[static_cast<std::size_t>(sites[s].parent)];
      const auto& count = counts[static_cast<std::size_t>(sites[s].caller)];
      if (is_loop[s] && count) of_site[s] = std::min(kMostTimes, of_site[s] * static_cast<double>(*count));
    }
  }
  std::vector<double> times(static_cast<std::size_t>(flow.size()), 1);
  for (NodeId id = 0; id < flow.size(); ++id) {
    const std::int32_t site = flow.node(id).site;
    if (site != kNone) times[static_cast<std::size_t>(id)] = of_site[static_cast<std::size_t>(site)];
  }
  return times;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::size_t end_of_word(const std::string& text, std::size_t at) {
  if (at >= text.size() || !is_letter(text[at])) return at;
  while (at < text.size() && (is_letter(text[at]) || is_digit(text[at]))) ++at;
  return at;
}

// The components of a name, or of a user's text.
std::vector<std::string> components_of(const std::string& name) {
  std::vector<std::string> out;
  std::string component;
  for (const char c : path_of(name)) {
    if (c != '/' && c != '.') {
      component += c;
      continue;
    }
    if (!component.empty()) out.push_back(std::move(component));
    component.clear();
  }
  if (!component.empty()) out.push_back(std::move(component));
  return out;
}

std::string path_from(const std::vector<std::string>& components, std::size_t first) {
  std::string out;
  for (std::size_t i = first; i < components.size(); ++i) out += (i == first ? "" : "/") + components[i];
  return out;
}

}  // namespace

std::string path_of(const std::string& name) {
  std::size_t at = end_of_word(name, 0);
  if (at == 0) return name;
  std::string out = name.substr(0, at);
  while (at < name.size()) {
    if (name[at] == '.') {
      const std::size_t end = end_of_word(name, at + 1);
      if (end == at + 1) return name;
      out += '/' + name.substr(at + 1, end - at - 1);
      at = end;
      continue;
    }
    if (name[at] != '[' || at + 2 >= name.size()) return name;
    const char quote = name[at + 1];
    std::size_t end = 0;
    if (quote == '\'' || quote == '"') {
      // Keys are printed by Python: a quote inside would have changed the outer one or been escaped.
      end = at + 2;
      while (end < name.size() && name[end] != quote) end += name[end] == '\\' ? 2 : 1;
      if (end + 1 >= name.size() || name[end + 1] != ']') return name;
      out += '/' + name.substr(at + 2, end - at - 2);
      at = end + 2;
      continue;
    }
    end = at + 1;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end == at + 1 || end >= name.size() || name[end] != ']') return name;
    out += '/' + name.substr(at + 1, end - at - 1);
    at = end + 1;
  }
  return out;
}

namespace {

std::vector<bool> find_kept(const graph::FlowGraph& flow) {
  std::vector<bool> kept(static_cast<std::size_t>(flow.size()), false);
  const auto keep = [&kept](const std::vector<NodeId>& nodes) {
    for (const NodeId node : nodes) {
      if (node != kNone) kept[static_cast<std::size_t>(node)] = true;
    }
  };
  keep(flow.results());
  for (const graph::FlowLoop& loop : flow.loops()) {
    keep(loop.initial);
    keep(loop.next);
  }
  return kept;
}

}  // namespace

ShardingModel ShardingModel::build(const graph::Graph& graph, const ModelOptions& options) {
  ShardingModel model;
  model.graph_ = &graph;
  graph::TrainingStepOptions step_options;
  step_options.variables = options.variables;
  model.step_ = std::make_shared<const graph::TrainingStep>(graph::analyze_training_step(graph, step_options));
  graph::FlowOptions flow_options;
  flow_options.loops = flow_options.fusions = true;
  model.flow_ = std::make_shared<const graph::FlowGraph>(graph::FlowGraph::build(graph, flow_options));
  const graph::TrainingStep& step = *model.step_;
  const graph::FlowGraph& flow = *model.flow_;
  AM_CHECK(step.inputs.size() == flow.inputs().size());
  AM_CHECK(step.flow.results().size() == flow.results().size());

  // The flow lists its inputs in the module's order, the step sorted by number.
  std::map<std::pair<std::int32_t, std::int32_t>, NodeId> node_of;
  for (const graph::FlowInput& input : flow.inputs()) node_of[{input.parameter, input.leaf}] = input.node;
  std::vector<bool> weight(step.inputs.size(), false);
  for (std::size_t k = 0; k < step.inputs.size(); ++k) {
    const graph::EntryInput& from = step.inputs[k];
    ModelInput input;
    input.node = node_of.at({from.parameter, from.leaf});
    input.parameter = from.parameter;
    input.leaf = from.leaf;
    input.parameter_name = from.parameter_name;
    input.name = from.name;
    input.role = from.role;
    input.result = from.result;
    const graph::Shape& shape = flow.shape(input.node);
    const bool array = shape.is_array() && !shape.dims.empty();
    const auto index = static_cast<std::int32_t>(k);
    if (input.result != kNone) {
      const NodeId result = flow.results()[static_cast<std::size_t>(input.result)];
      if (result != input.node && array && flow.shape(result).is_array() && flow.shape(result).dims == shape.dims)
        model.ties_.push_back({input.node, result});
    }
    if (array && input.role == InputRole::kStepInput) model.data_.push_back(index);
    weight[k] = array && input.role == InputRole::kFrozen && graph::is_float(shape);
    model.inputs_.push_back(std::move(input));
  }
  model.variables_ = step.variables;
  if (!step.training && model.variables_.empty()) {
    for (std::size_t k = 0; k < weight.size(); ++k) {
      if (weight[k]) model.variables_.push_back(static_cast<std::int32_t>(k));
    }
  }
  model.times_ = times_of_nodes(flow);
  model.kept_ = std::make_shared<const std::vector<bool>>(find_kept(*model.flow_));
  model.relink(options.shards, options.gathers, options.halos);
  return model;
}

void ShardingModel::relink(int shards, std::vector<Gather> gathers) {
  relink(shards, std::move(gathers), halos_);
}

void ShardingModel::relink(int shards, std::vector<Gather> gathers, bool halos) {
  halos_ = halos;
  LinkageOptions options;
  options.halos = halos;
  options.shards = shards;
  options.ties = ties_;
  options.gathers = gathers;
  linkage_ = std::make_unique<Linkage>(Linkage::build(*flow_, options));
  gathers_ = std::move(gathers);
}

ShardingModel ShardingModel::another_axis(int shards) const {
  ShardingModel other;
  other.graph_ = graph_;
  other.flow_ = flow_;
  other.step_ = step_;
  other.kept_ = kept_;
  other.inputs_ = inputs_;
  other.variables_ = variables_;
  other.data_ = data_;
  other.times_ = times_;
  other.ties_ = ties_;
  other.relink(shards, {});
  return other;
}

std::int32_t ShardingModel::find_input(const std::string& text) const {
  const auto one = [&](const std::vector<std::int32_t>& found) {
    if (found.size() == 1) return found[0];
    std::string names;
    for (std::size_t i = 0; i < std::min(found.size(), kMaxNamed); ++i) {
      const ModelInput& input = inputs_[static_cast<std::size_t>(found[i])];
      names += (i == 0 ? "" : ", ") + input.name;
      if (input.name != input.parameter_name) names += " (" + input.parameter_name + ")";
    }
    if (found.size() > kMaxNamed) names += ", ...";
    throw Error(ErrorKind::kUsage,
                "input '" + text + "' means " + std::to_string(found.size()) + " inputs of module '" +
                    std::string(graph_->name()) + "': " + names,
                "give more of the path, or the whole name");
  };
  const auto matching = [&](const auto& accepts) {
    std::vector<std::int32_t> found;
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      if (accepts(inputs_[k])) found.push_back(static_cast<std::int32_t>(k));
    }
    return found;
  };

  const std::string bare = !text.empty() && text[0] == '%' ? text.substr(1) : text;
  std::vector<std::int32_t> found = matching([&](const ModelInput& input) { return input.name == text; });
  if (!found.empty()) return one(found);
  found = matching([&](const ModelInput& input) { return input.parameter_name == bare; });
  if (!found.empty()) return one(found);
  // Inputs are sorted: without tuple parameters this is the number of the parameter.
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_digit)) {
    const std::size_t number = text.size() > 9 ? inputs_.size() : std::stoul(text);
    if (number < inputs_.size()) return static_cast<std::int32_t>(number);
    throw Error(ErrorKind::kUsage,
                "there is no input " + text + ": module '" + std::string(graph_->name()) + "' has " +
                    std::to_string(inputs_.size()) + " inputs",
                inputs_.empty() ? "a module without inputs has nothing to decide"
                                : "give a number from 0 to " + std::to_string(inputs_.size() - 1) + ", or a name");
  }

  const std::vector<std::string> wanted = components_of(text);
  std::vector<std::vector<std::string>> paths;
  for (const ModelInput& input : inputs_) paths.push_back(components_of(input.name));
  const auto with_path = [&](bool all) {
    std::vector<std::int32_t> out;
    for (std::size_t k = 0; k < paths.size() && !wanted.empty(); ++k) {
      const std::vector<std::string>& path = paths[k];
      if (path.size() < wanted.size() || (all && path.size() != wanted.size())) continue;
      if (std::equal(wanted.begin(), wanted.end(), path.begin()) ||
          std::equal(wanted.rbegin(), wanted.rend(), path.rbegin()))
        out.push_back(static_cast<std::int32_t>(k));
    }
    return out;
  };
  found = with_path(true);
  if (found.empty()) found = with_path(false);
  // The slots of a variable (and averages of it) share its path: who names the path means the variable.
  const auto role = [this](std::int32_t k) { return inputs_[static_cast<std::size_t>(k)].role; };
  if (std::any_of(found.begin(), found.end(), [&](std::int32_t k) { return role(k) == InputRole::kVariable; })) {
    found.erase(
        std::remove_if(found.begin(), found.end(),
                       [&](std::int32_t k) { return role(k) == InputRole::kSlot || role(k) == InputRole::kState; }),
        found.end());
  }
  if (!found.empty()) return one(found);

  // Near names, and near ends of paths.
  std::unordered_map<std::string, std::size_t> owner;
  std::vector<std::string> known;
  const auto add = [&](const std::string& name, std::size_t k) {
    if (owner.try_emplace(name, k).second) known.push_back(name);
  };
  for (std::size_t k = 0; k < inputs_.size(); ++k) {
    add(inputs_[k].name, k);
    add(inputs_[k].parameter_name, k);
    for (std::size_t first = 0; first < paths[k].size(); ++first) add(path_from(paths[k], first), k);
  }
  std::string near = closest_name(text, known);
  if (near.empty()) near = closest_name(path_from(wanted, 0), known);
  throw Error(ErrorKind::kUsage, "module '" + std::string(graph_->name()) + "' has no input '" + text + "'",
              near.empty() ? "give a name, the end of one, or a number; automap-inspect --json lists them"
                           : "did you mean " + inputs_[owner[near]].name + "?");
}

}  // namespace automap::sharding
