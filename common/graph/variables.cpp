#include "common/graph/variables.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_cost.h"

namespace automap::graph {

const char* to_string(InputRole role) {
  switch (role) {
    case InputRole::kVariable: return "variable";
    case InputRole::kSlot: return "slot";
    case InputRole::kState: return "state";
    case InputRole::kFrozen: return "frozen";
    case InputRole::kStepInput: return "input";
    case InputRole::kUnused: return "unused";
  }
  return "unused";
}

bool is_float(const Shape& shape) {
  switch (shape.type) {
    case ElementType::kF16:
    case ElementType::kBf16:
    case ElementType::kF32:
    case ElementType::kF64:
    case ElementType::kC64:
    case ElementType::kC128:
    case ElementType::kF8:
    case ElementType::kF4:
    case ElementType::kF6: return true;
    default: return false;
  }
}

// --- Variable lists ---

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front())) != 0) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back())) != 0) s.remove_suffix(1);
  return s;
}

bool all_digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

[[noreturn]] void bad_list(const std::string& where, const std::string& found) {
  throw Error(ErrorKind::kData, where + ": expected a parameter name or number, found " + found,
              "a variable list has one parameter per line (\"Arg_3.4 encoder/kernel\" or \"3\"), or is a JSON list");
}

// Values are copied and printed by recursion: nesting deeper than any list is refused first.
class DepthLimit : public JsonWatcher {
 public:
  explicit DepthLimit(const std::string& source) : source_(source) {}
  void begin(int depth, bool) override { check(depth); }
  void key(int depth, const std::string&) override { check(depth); }
  void value(int depth) override { check(depth); }

 private:
  static constexpr int kMaxDepth = 8;
  void check(int depth) const {
    if (depth > kMaxDepth) bad_list(source_, "JSON nested more than " + std::to_string(kMaxDepth) + " deep");
  }

  const std::string& source_;
};

std::vector<VariableRequest> parse_json_list(std::string_view text, const std::string& source) {
  Json document;
  try {
    DepthLimit limit(source);
    document = Json::parse(text, &limit).sorted();
  } catch (const JsonError& error) {
    if (error.kind() != JsonError::Kind::kSyntax) bad_list(source, "a number out of range");
    const auto at = std::min<std::size_t>(error.byte(), text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw Error(ErrorKind::kData, source + ":" + std::to_string(line) + ": not valid JSON",
                "a variable list is a JSON list of parameter names or numbers, or one parameter per line");
  }
  std::vector<VariableRequest> out;
  const auto scalar = [&](const Json& value, const std::string& where) -> std::string {
    if (value.is_string() && !trim(value.string()).empty()) return std::string(trim(value.string()));
    if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
    bad_list(where, excerpt(value.dump(), 60));
  };
  if (document.is_object() && document.contains("trainable_variables")) {
    Json inner = document["trainable_variables"];
    document = std::move(inner);
  }
  if (document.is_object()) {
    for (const auto& [key, value] : document.items()) {
      const std::string where = source + ": entry '" + key + "'";
      if (trim(key).empty()) bad_list(where, "an empty name");
      VariableRequest request{std::string(trim(key)), "", where};
      if (value.is_string()) {
        request.name = value.get<std::string>();
      } else if (!value.is_null() && !(value.is_boolean() && value.get<bool>())) {
        throw Error(ErrorKind::kData,
                    where + ": expected a display name (a string), found " + excerpt(value.dump(), 60));
      }
      out.push_back(std::move(request));
    }
    return out;
  }
  if (!document.is_array()) bad_list(source, excerpt(document.dump(), 60));
  for (std::size_t i = 0; i < document.size(); ++i) {
    const Json& entry = document[i];
    const std::string where = source + ": entry " + std::to_string(i + 1);
    VariableRequest request;
    request.where = where;
    if (entry.is_object()) {
      if (!entry.contains("parameter")) bad_list(where, "an object without \"parameter\"");
      request.parameter = scalar(entry["parameter"], where);
      if (entry.contains("name") && entry["name"].is_string()) request.name = entry["name"].get<std::string>();
    } else {
      request.parameter = scalar(entry, where);
    }
    out.push_back(std::move(request));
  }
  return out;
}

}  // namespace

std::vector<VariableRequest> parse_variable_list(std::string_view text, const std::string& source) {
  std::vector<VariableRequest> out;
  const std::string_view body = trim(text);
  if (!body.empty() && (body.front() == '{' || body.front() == '[')) {
    out = parse_json_list(text, source);
  } else {
    int line_number = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = text.find('\n', begin);
      if (end == std::string_view::npos) end = text.size();
      std::string_view line = text.substr(begin, end - begin);
      begin = end + 1;
      ++line_number;
      line = trim(line);
      if (line.empty() || line.front() == '#') continue;
      VariableRequest request;
      request.where = source + ":" + std::to_string(line_number);
      if (std::any_of(line.begin(), line.end(), [](unsigned char c) { return c < 0x20 && c != '\t'; }))
        bad_list(request.where, "a line that is not text");
      // "12:name, f32[3,4]": the variable map of TePDist.
      const std::size_t colon = line.find(':');
      if (colon != std::string_view::npos && all_digits(trim(line.substr(0, colon)))) {
        request.parameter = std::string(trim(line.substr(0, colon)));
        request.name = std::string(trim(line.substr(colon + 1, line.find(',', colon) - colon - 1)));
      } else {
        const std::size_t blank = line.find_first_of(" \t");
        request.parameter = std::string(line.substr(0, blank));
        if (blank != std::string_view::npos) request.name = std::string(trim(line.substr(blank)));
      }
      out.push_back(std::move(request));
    }
  }
  if (out.empty()) bad_list(source, "no variable at all");
  return out;
}

std::vector<VariableRequest> load_variable_list(const std::string& path) {
  return parse_variable_list(gunzip_if_gzip(read_file(path), input_name(path)), input_name(path));
}

// --- Inputs ---

std::vector<EntryInput> list_inputs(const FlowGraph& flow) {
  const Graph& graph = flow.graph();
  std::vector<EntryInput> inputs;
  inputs.reserve(flow.inputs().size());
  std::map<std::string, int> times;
  for (const FlowInput& from : flow.inputs()) {
    EntryInput input;
    input.parameter = from.parameter;
    input.leaf = from.leaf;
    input.node = from.node;
    const InstructionId id = flow.node(from.node).instruction;
    input.parameter_name = std::string(graph.instruction(id).name);
    if (from.leaf != kNone) {
      input.parameter_name += "{" + std::to_string(from.leaf) + "}";
    } else {
      input.name = graph.op_name(id);
    }
    ++times[input.name];
    inputs.push_back(std::move(input));
  }
  // A name that several inputs share says nothing ("XLA_Args").
  for (EntryInput& input : inputs) {
    if (input.name.empty() || times[input.name] > 1) input.name = input.parameter_name;
  }
  std::stable_sort(inputs.begin(), inputs.end(), [](const EntryInput& a, const EntryInput& b) {
    return a.parameter != b.parameter ? a.parameter < b.parameter : a.leaf < b.leaf;
  });
  return inputs;
}

std::vector<std::int32_t> read_aliases(const FlowGraph& flow) {
  const Graph& graph = flow.graph();
  std::vector<std::int32_t> out(flow.results().size(), kNone);
  const std::optional<std::string_view> raw = graph.header_attribute("input_output_alias");
  if (!raw) return out;
  // { {0}: (18, {}, may-alias), {1}: (53, {}, may-alias) }; flat result tuples only, which is what frameworks make.
  std::unordered_map<std::int64_t, std::int32_t> input_of;
  {
    std::vector<EntryInput> inputs = list_inputs(flow);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      input_of[(static_cast<std::int64_t>(inputs[i].parameter) << 32) |
               static_cast<std::uint32_t>(inputs[i].leaf + 1)] = static_cast<std::int32_t>(i);
  }
  std::size_t at = 0;
  const auto number = [&](std::int64_t* value) {
    while (at < raw->size() && (*raw)[at] == ' ') ++at;
    const std::size_t begin = at;
    std::int64_t v = 0;
    while (at < raw->size() && std::isdigit(static_cast<unsigned char>((*raw)[at])) != 0 && at - begin < 9)
      v = v * 10 + ((*raw)[at++] - '0');
    *value = v;
    return at > begin;
  };
  const auto skip_to = [&](char c) {
    at = raw->find(c, at);
    if (at == std::string_view::npos) return false;
    ++at;
    return true;
  };
  if (!skip_to('{')) return out;
  while (skip_to('{')) {
    std::int64_t result = 0, parameter = 0, leaf = 0;
    number(&result);
    bool nested = at < raw->size() && (*raw)[at] == ',';
    if (!skip_to('(') || !number(&parameter) || !skip_to('{')) break;
    const bool has_leaf = number(&leaf);
    nested = nested || (at < raw->size() && (*raw)[at] == ',');
    if (!skip_to(')')) break;
    if (nested) continue;  // {0,1}: a leaf of an inner tuple
    const auto found = input_of.find((parameter << 32) | static_cast<std::uint32_t>(has_leaf ? leaf + 1 : 0));
    if (result < static_cast<std::int64_t>(out.size()) && found != input_of.end())
      out[static_cast<std::size_t>(result)] = found->second;
  }
  return out;
}

// --- Updates ---

namespace {

enum class Kind : std::uint8_t {
  kNothing,  // free, or not a number that a gradient flows through
  kParameter,
  kArithmetic,  // element-wise: every operand is followed
  kMovement,    // the same elements in another form
  kReduce,
  kHeavy,
};

class Walker {
 public:
  Walker(const FlowGraph& flow, const std::vector<EntryInput>& inputs, const std::vector<bool>& free)
      : flow_(flow), graph_(flow.graph()), free_(free) {
    const auto n = static_cast<std::size_t>(flow.size());
    kinds_.resize(n);
    heavy_.assign(n, false);
    heavy_scalar_.assign(n, false);
    stamp_.assign(n, 0);
    distance_.assign(n, 0);
    input_of_.assign(n, kNone);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      input_of_[static_cast<std::size_t>(inputs[i].node)] = static_cast<std::int32_t>(i);
    for (NodeId id = 0; id < flow.size(); ++id) classify(id);
  }

  // From here on heavy work of the update itself is followed too.
  void follow_heavy(const std::vector<bool>* forward) { forward_ = forward; }

  ResultUpdate walk(NodeId leaf) {
    ResultUpdate update;
    const Shape& shape = flow_.shape(leaf);
    if (!shape.is_array()) return update;
    own_ = shape.num_elements;
    if (input_of_[static_cast<std::size_t>(leaf)] != kNone) {
      update.candidates.emplace_back(input_of_[static_cast<std::size_t>(leaf)], 0);
      return update;
    }
    ++epoch_;
    if (!is_float(shape)) {
      walk_integers(leaf, &update);
      return update;
    }
    waiting_ = 0;
    push(leaf, 0);
    bool only = true;  // no source yet: a node that is alone on the way is passed by everything
    int steps = 0;
    while (!heap_.empty()) {
      if (forward_ != nullptr && ++steps > kLongestWalk) {
        heap_ = {};
        break;
      }
      const NodeId id = heap_.top();
      heap_.pop();
      const auto i = static_cast<std::size_t>(id);
      const int distance = distance_[i];
      const bool carries = is_carrying(id);
      if (carries) --waiting_;
      if (kinds_[i] == Kind::kParameter) {
        const std::int32_t input = input_of_[i];
        if (input != kNone && flow_.shape(id).dims == shape.dims) update.candidates.emplace_back(input, distance);
        continue;
      }
      if (carries && waiting_ == 0 && only && flow_.shape(id).num_elements == own_) update.gradient = id;
      if (carries && stops(id)) {
        update.sources.push_back(id);
        only = false;
        continue;
      }
      follow(id, distance + 1);
    }
    std::sort(update.candidates.begin(), update.candidates.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second < b.second : a.first < b.first;
    });
    if (update.sources.empty()) update.gradient = kNone;
    return update;
  }

 private:
  // Counters and the like: only for their pair.
  void walk_integers(NodeId leaf, ResultUpdate* update) {
    std::vector<std::pair<NodeId, int>> queue{{leaf, 0}};
    for (std::size_t at = 0; at < queue.size() && queue.size() < 64; ++at) {
      const auto [id, distance] = queue[at];
      const std::int32_t input = input_of_[static_cast<std::size_t>(id)];
      if (input != kNone) {
        update->candidates.emplace_back(input, distance);
        continue;
      }
      const Opcode opcode = flow_.node(id).opcode;
      if (!is_elementwise(opcode) && opcode != Opcode::kConditional && !is_movement(flow_, id)) continue;
      for (const NodeId operand : flow_.operands(id)) {
        if (flow_.node(operand).shape == flow_.node(leaf).shape &&
            stamp_[static_cast<std::size_t>(operand)] != epoch_) {
          stamp_[static_cast<std::size_t>(operand)] = epoch_;
          queue.emplace_back(operand, distance + 1);
        }
      }
    }
  }

  // Every operation inside is one element of the result from the same element of the operands.
  bool is_light_fusion(InstructionId id) {
    if (graph_.instruction(id).opcode != Opcode::kFusion || graph_.instruction(id).num_called != 1) return false;
    const ComputationId computation = graph_.called(id)[0];
    const auto [it, added] = light_.try_emplace(computation, true);
    if (!added) return it->second;
    const Computation& c = graph_.computation(computation);
    bool light = true;
    for (InstructionId inner = c.first; light && inner < c.first + c.count; ++inner) {
      const Opcode opcode = graph_.instruction(inner).opcode;
      switch (opcode) {
        case Opcode::kParameter:
        case Opcode::kConstant:
        case Opcode::kBroadcast:
        case Opcode::kBitcast:
        case Opcode::kReshape:
        case Opcode::kCopy:
        case Opcode::kIota:
        case Opcode::kTuple: break;
        default: light = is_elementwise(opcode);
      }
    }
    it->second = light;
    return light;
  }

  Kind kind_of(NodeId id) {
    const FlowNode& node = flow_.node(id);
    if (node.opcode == Opcode::kParameter) return Kind::kParameter;
    if (free_[static_cast<std::size_t>(id)]) return Kind::kNothing;
    const Shape& shape = flow_.shape(id);
    if (shape.is_array() && !is_float(shape)) return Kind::kNothing;
    if (node.opcode == Opcode::kGetTupleElement)
      return is_light_fusion(flow_.node(flow_.producer(id)).instruction) ? Kind::kArithmetic : Kind::kHeavy;
    if (node.opcode == Opcode::kConditional && node.leaf != kNone) return Kind::kArithmetic;
    if (node.opcode == Opcode::kConvert || node.opcode == Opcode::kOptBarrier) return Kind::kArithmetic;
    if (is_movement(flow_, id)) return Kind::kMovement;
    if (is_elementwise(node.opcode)) return Kind::kArithmetic;
    switch (node.opcode) {
      case Opcode::kAllReduce:
      case Opcode::kAllReduceStart:
      case Opcode::kAllReduceDone: return Kind::kArithmetic;
      case Opcode::kReduce: return Kind::kReduce;
      case Opcode::kFusion: return is_light_fusion(node.instruction) ? Kind::kArithmetic : Kind::kHeavy;
      default: return Kind::kHeavy;
    }
  }

  void classify(NodeId id) {
    const auto i = static_cast<std::size_t>(id);
    const Kind kind = kinds_[i] = kind_of(id);
    const Shape& shape = flow_.shape(id);
    if (kind == Kind::kNothing || kind == Kind::kParameter) return;
    bool heavy = kind == Kind::kHeavy || kind == Kind::kReduce, scalar = heavy;
    for (const NodeId operand : flow_.operands(id)) {
      const auto o = static_cast<std::size_t>(operand);
      heavy = heavy || heavy_[o];
      scalar = scalar || heavy_scalar_[o];
    }
    heavy_scalar_[i] = scalar;
    // A value that passes through a single number (a norm, a scale, a rate) couples variables but is no gradient.
    heavy_[i] = heavy && !(shape.is_array() && shape.num_elements <= 1);
  }

  bool is_carrying(NodeId id) const {
    const auto i = static_cast<std::size_t>(id);
    return own_ > 1 ? heavy_[i] : heavy_scalar_[i];
  }

  // Where element-wise arithmetic ends.
  bool stops(NodeId id) const {
    switch (kinds_[static_cast<std::size_t>(id)]) {
      case Kind::kHeavy: return !is_own_work(id);
      case Kind::kReduce: return reduces_more(id);
      case Kind::kMovement: {
        // The reshape or transpose of a fresh gradient belongs to it; a broadcast statistic does not.
        if (flow_.shape(id).num_elements != own_) return false;
        NodeId below = id;
        while (kinds_[static_cast<std::size_t>(below)] == Kind::kMovement) {
          if (flow_.shape(below).num_elements != own_) return false;
          below = flow_.operands(below)[0];
        }
        const Kind kind = kinds_[static_cast<std::size_t>(below)];
        return (kind == Kind::kHeavy && !is_own_work(below)) || (kind == Kind::kReduce && reduces_more(below));
      }
      default: return false;
    }
  }

  // Heavy work of the optimizer: on nothing larger than the variable, and not on the forward pass.
  bool is_own_work(NodeId id) const {
    if (forward_ == nullptr || flow_.node(id).opcode != Opcode::kDot) return false;
    for (const NodeId operand : flow_.operands(id)) {
      const NodeId root = skip_movement(flow_, operand);
      if (flow_.shape(operand).num_elements > own_ || (*forward_)[static_cast<std::size_t>(root)]) return false;
    }
    return true;
  }

  // A reduction of something larger than the variable: over the batch. (A factored optimizer reduces the gradient
  // itself to rows and columns.)
  bool reduces_more(NodeId id) const {
    if (flow_.operands(id).empty()) return true;
    const std::int64_t from = flow_.shape(flow_.operands(id)[0]).num_elements;
    return from > own_ || flow_.shape(id).num_elements == own_;
  }

  void push(NodeId id, int distance) {
    const auto i = static_cast<std::size_t>(id);
    if (kinds_[i] == Kind::kNothing) return;
    const Shape& shape = flow_.shape(id);
    if (!shape.is_array() && kinds_[i] != Kind::kHeavy && kinds_[i] != Kind::kArithmetic) return;
    if (own_ > 1 && shape.is_array() && shape.num_elements <= 1) return;
    if (stamp_[i] == epoch_) {
      distance_[i] = std::min(distance_[i], distance);
      return;
    }
    stamp_[i] = epoch_;
    distance_[i] = distance;
    if (is_carrying(id)) ++waiting_;
    heap_.push(id);
  }

  void follow(NodeId id, int distance) {
    if (kinds_[static_cast<std::size_t>(id)] == Kind::kReduce) {
      push(flow_.operands(id)[0], distance);
      return;
    }
    // A heavy node that carries nothing is followed nowhere (it cannot be reached: it always carries).
    const FlowNode& node = flow_.node(id);
    const bool join = node.opcode == Opcode::kConditional && node.leaf != kNone;
    const Span<const NodeId> operands = flow_.operands(id);
    for (std::size_t i = join ? 1 : 0; i < operands.size(); ++i) push(operands[i], distance);
  }

  const FlowGraph& flow_;
  const Graph& graph_;
  const std::vector<bool>& free_;
  std::vector<Kind> kinds_;
  std::vector<bool> heavy_, heavy_scalar_;
  std::vector<std::int32_t> stamp_, distance_, input_of_;
  std::unordered_map<ComputationId, bool> light_;
  std::priority_queue<NodeId> heap_;
  std::int32_t epoch_ = 0;
  std::int64_t own_ = 0;
  int waiting_ = 0;
  static constexpr int kLongestWalk = 4000;
  const std::vector<bool>* forward_ = nullptr;
};

}  // namespace

std::vector<ResultUpdate> find_updates(const FlowGraph& flow, const std::vector<EntryInput>& inputs,
                                       const std::vector<bool>& free) {
  Walker walker(flow, inputs, free);
  std::vector<ResultUpdate> updates;
  updates.reserve(flow.results().size());
  for (const NodeId leaf : flow.results()) updates.push_back(walker.walk(leaf));

  // Nearest first: the new value of a moment is one step from the old one, while the weight it decays is further away.
  struct Pair {
    bool same_type;
    int distance;
    std::int32_t result, input;
  };
  std::vector<Pair> pairs;
  for (std::size_t r = 0; r < updates.size(); ++r) {
    for (const auto& [input, distance] : updates[r].candidates) {
      const bool same =
          flow.node(inputs[static_cast<std::size_t>(input)].node).shape == flow.node(flow.results()[r]).shape;
      pairs.push_back({same, distance, static_cast<std::int32_t>(r), input});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    if (a.same_type != b.same_type) return a.same_type;
    if (a.distance != b.distance) return a.distance < b.distance;
    return a.result < b.result;
  });
  std::vector<bool> taken(inputs.size(), false);
  for (const Pair& pair : pairs) {
    ResultUpdate& update = updates[static_cast<std::size_t>(pair.result)];
    if (update.input != kNone || taken[static_cast<std::size_t>(pair.input)]) continue;
    update.input = pair.input;
    taken[static_cast<std::size_t>(pair.input)] = true;
  }
  return updates;
}

std::vector<NodeId> find_deep_gradients(const FlowGraph& flow, const std::vector<EntryInput>& inputs,
                                        const std::vector<bool>& free, const std::vector<bool>& forward,
                                        const std::vector<NodeId>& leaves) {
  Walker walker(flow, inputs, free);
  walker.follow_heavy(&forward);
  std::vector<NodeId> out;
  for (const NodeId leaf : leaves) out.push_back(walker.walk(leaf).gradient);
  return out;
}

// --- Requests ---

namespace {

// Edit distance of two short names, at most `limit` + 1.
int edit_distance(std::string_view a, std::string_view b, int limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (static_cast<int>(b.size() - a.size()) > limit) return limit + 1;
  std::vector<int> row(a.size() + 1);
  for (std::size_t i = 0; i <= a.size(); ++i) row[i] = static_cast<int>(i);
  for (std::size_t j = 1; j <= b.size(); ++j) {
    int diagonal = row[0];
    row[0] = static_cast<int>(j);
    for (std::size_t i = 1; i <= a.size(); ++i) {
      const int next = std::min({row[i] + 1, row[i - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = row[i];
      row[i] = next;
    }
  }
  return row[a.size()];
}

}  // namespace

std::vector<std::int32_t> match_requests(const std::vector<EntryInput>& inputs,
                                         const std::vector<VariableRequest>& requests,
                                         std::vector<std::int32_t>* of_request) {
  std::unordered_map<std::string, std::int32_t> by_name;
  std::int32_t largest = -1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    by_name.try_emplace(inputs[i].parameter_name, index);
    by_name.try_emplace(inputs[i].name, index);
    if (inputs[i].leaf == kNone) by_name.try_emplace(std::to_string(inputs[i].parameter), index);
    // Leaves of one tuple parameter are numbered like parameters.
    largest = std::max(largest, inputs[i].leaf == kNone ? inputs[i].parameter : inputs[i].leaf);
  }
  if (!inputs.empty() && inputs.back().parameter == 0) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].leaf != kNone) by_name.try_emplace(std::to_string(inputs[i].leaf), static_cast<std::int32_t>(i));
    }
  }
  std::vector<std::int32_t> out;
  std::unordered_set<std::int32_t> seen;
  for (const VariableRequest& request : requests) {
    std::string key = request.parameter;
    if (!key.empty() && key[0] == '%') key.erase(0, 1);
    const auto found = by_name.find(key);
    if (found == by_name.end()) {
      std::string hint;
      if (all_digits(key)) {
        hint = largest < 0 ? "the module has no parameters"
                           : "the parameters are numbered 0 to " + std::to_string(largest);
      } else {
        std::vector<std::pair<int, std::string>> near;
        const int limit = std::max(3, static_cast<int>(key.size()) / 3);
        if (key.size() <= 400) {
          for (const auto& [name, index] : by_name) {
            if (all_digits(name) || name.size() > 400) continue;
            const int distance = edit_distance(key, name, limit);
            if (distance <= limit) near.emplace_back(distance, name);
          }
        }
        std::sort(near.begin(), near.end());
        if (near.empty()) {
          hint = "automap-inspect --json lists the parameters of a module";
          if (!inputs.empty()) hint += "; the first is '" + inputs.front().name + "'";
        } else {
          hint = "did you mean ";
          for (std::size_t i = 0; i < near.size() && i < 3; ++i) hint += (i == 0 ? "'" : ", '") + near[i].second + "'";
          hint += "?";
        }
      }
      throw Error(ErrorKind::kData, request.where + ": the module has no parameter '" + request.parameter + "'", hint);
    }
    if (seen.insert(found->second).second) out.push_back(found->second);
    if (of_request != nullptr) of_request->push_back(found->second);
  }
  return out;
}

}  // namespace automap::graph
