#include "common/graph/user_shardings.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_sharding.h"

namespace automap::graph {

namespace {

// The text of the sharding that splits the value; empty when it is whole.
std::string_view written_split(const Graph& graph, InstructionId id) {
  if (const std::optional<std::string_view> raw = graph.attribute(id, "sharding")) {
    HloSharding sharding;
    if (!read_sharding(*raw, &sharding).empty()) return {};
    return sharding.splits() ? *raw : std::string_view();
  }
  // #sdy.sharding<@mesh, [{"x"}, {}]>: an axis is a quoted name, whose quotes are escaped where text holds them.
  const std::optional<std::string_view> raw = graph.attribute(id, "frontend_attributes");
  if (!raw) return {};
  const std::size_t begin = raw->find("#sdy.sharding");
  if (begin == std::string_view::npos) return {};
  const bool split =
      raw->find("{\\\"", begin) != std::string_view::npos || raw->find("{\"", begin) != std::string_view::npos;
  const std::size_t end = raw->find('>', begin);
  return split ? raw->substr(begin, end == std::string_view::npos ? end : end + 1 - begin) : std::string_view();
}

// The leaf'th of the arrays that a sharding is about; null: there are not so many. One that is no tuple is about all.
const HloSharding* element_at(const HloSharding& sharding, std::size_t* leaf) {
  if (sharding.kind != HloSharding::Kind::kTuple) return (*leaf)-- == 0 ? &sharding : nullptr;
  for (const HloSharding& element : sharding.elements) {
    if (const HloSharding* found = element_at(element, leaf)) return found;
  }
  return nullptr;
}

// "unspecified_dims=[1,2]" of a mark: the dimensions that it leaves to the compiler.
void open_unspecified(const Graph& graph, InstructionId id, MeshSplit* split) {
  const std::optional<std::string_view> raw = graph.attribute(id, "backend_config");
  if (!raw) return;
  constexpr std::string_view kWord = "unspecified_dims=[";
  std::size_t at = raw->find(kWord);
  if (at == std::string_view::npos) return;
  std::size_t dim = 0;
  bool digits = false;
  for (at += kWord.size(); at < raw->size(); ++at) {
    const char c = (*raw)[at];
    if (c >= '0' && c <= '9') {
      dim = std::min<std::size_t>(dim * 10 + static_cast<std::size_t>(c - '0'), 1000);
      digits = true;
      continue;
    }
    if (digits && dim < split->dims.size()) split->dims[dim].open = true;
    dim = 0;
    digits = false;
    if (c == ']') break;
  }
}

// "[\"x\"=4, \"y\"=2]" of the mesh that stands behind "<": "@name", or the mesh itself, "mesh<[...]>".
std::string_view shardy_mesh(const Graph& graph, std::string_view text) {
  const auto axes_of = [](std::string_view from, std::string_view word) -> std::string_view {
    const std::size_t at = from.find(word);
    const std::size_t begin = at == std::string_view::npos ? at : at + word.size() - 1;
    const std::size_t end = begin == std::string_view::npos ? begin : from.find(']', begin);
    return end == std::string_view::npos ? std::string_view() : from.substr(begin, end + 1 - begin);
  };
  if (text.substr(0, 6) == "mesh<[") return axes_of(text, "mesh<[");
  if (text.empty() || text[0] != '@') return {};
  const std::string name(text.substr(1, text.find_first_of(", >") - 1));
  const std::optional<std::string_view> header = graph.header_attribute("frontend_attributes");
  if (!header) return {};
  for (const char* before : {"{", " ", ",", "\""}) {
    const std::size_t at = header->find(before + name + " = #sdy.mesh<[");
    if (at != std::string_view::npos) return axes_of(header->substr(at), "#sdy.mesh<[");
  }
  return {};
}

// #sdy.sharding<@mesh, [{"x"}, {}]>, or the leaf'th of #sdy.sharding_per_value<[<@mesh, [...]>, <...>]>.
std::optional<UserSharding> shardy_sharding(const Graph& graph, InstructionId id, std::size_t leaf) {
  const std::optional<std::string_view> raw = graph.attribute(id, "frontend_attributes");
  std::size_t at = raw ? raw->find("#sdy.sharding") : std::string_view::npos;
  if (at == std::string_view::npos) return std::nullopt;
  UserSharding out;
  out.text = raw->substr(at, raw->find('>', at) + 1 - at);
  const bool per_value = raw->substr(at, 23) == "#sdy.sharding_per_value";
  at = raw->find('<', at);
  if (at == std::string_view::npos) return std::nullopt;
  for (std::size_t k = 0; per_value && k <= leaf; ++k) {
    // The next "<@" or "<mesh<": what is inside has other brackets.
    at = std::min(raw->find("<@", at + 1), raw->find("<mesh<", at + 1));
    if (at == std::string_view::npos) return std::nullopt;
  }
  if (!per_value && leaf > 0) return std::nullopt;
  const std::string_view text = raw->substr(at + 1);
  const std::string_view mesh = shardy_mesh(graph, text);
  const std::size_t dims =
      mesh.empty() ? std::string_view::npos : text.find(", [", text[0] == '@' ? 0 : text.find(">"));
  if (dims == std::string_view::npos) return out;
  if (read_named_split(text.substr(dims + 2), mesh, &out.split)) {
    out.whole = true;
    for (const DimSplit& dim : out.split.dims) out.whole = out.whole && dim.axes.empty() && !dim.open;
  }
  return out;
}

std::string counted(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::optional<UserSharding> user_sharding(const Graph& graph, InstructionId id, std::size_t leaf) {
  const std::optional<std::string_view> raw = graph.attribute(id, "sharding");
  HloSharding all;
  if (!raw || !read_sharding(*raw, &all).empty()) return shardy_sharding(graph, id, leaf);
  const bool tuple = all.kind == HloSharding::Kind::kTuple;
  std::size_t left = tuple ? leaf : 0;
  const HloSharding* one = element_at(all, &left);
  if (one == nullptr || one->kind == HloSharding::Kind::kUnknown) return std::nullopt;
  UserSharding out;
  out.text = *raw;
  out.whole = one->kind == HloSharding::Kind::kReplicated;
  out.split = one->split;
  open_unspecified(graph, id, &out.split);
  // Only Shardy's annotations say which dimensions may be split further.
  const std::optional<UserSharding> named = shardy_sharding(graph, id, leaf);
  if (named && named->split.dims.size() == out.split.dims.size()) {
    for (std::size_t d = 0; d < out.split.dims.size(); ++d) out.split.dims[d].open |= named->split.dims[d].open;
  }
  if (named && out.whole && !named->split.dims.empty()) {
    out.whole = named->whole;
    out.split = named->split;
  }
  return out;
}

std::string user_shardings_text(const Graph& graph) {
  std::int64_t parameters = 0, inside = 0;
  std::string first;
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    const Instruction& instruction = graph.instruction(id);
    const bool parameter = instruction.opcode == Opcode::kParameter;
    if (parameter && instruction.computation != graph.entry_id()) continue;
    const std::string_view split = written_split(graph, id);
    if (split.empty()) continue;
    if (first.empty() || (parameter && parameters == 0))
      first = std::string(instruction.name) + ": " + std::string(split);
    ++(parameter ? parameters : inside);
  }
  if (parameters + inside == 0) return "";
  constexpr std::size_t kShown = 80;
  if (first.size() > kShown) first = first.substr(0, kShown) + "...";
  return "the module's own shardings, of " + (parameters > 0 ? counted(parameters, "parameter") : std::string()) +
         (parameters > 0 && inside > 0 ? " and " : "") + (inside > 0 ? counted(inside, "value") + " inside" : "") +
         " (" + first + "), are set aside: nothing is planned or priced by them without --keep-shardings";
}

}  // namespace automap::graph
