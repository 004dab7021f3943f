#include "common/graph/shard_map_step.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/graph/dependence.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/hlo_sharding.h"
#include "common/graph/partitioned.h"
#include "common/graph/trip_count.h"

namespace automap::graph {

// A custom call that marks the layout of values on devices.
enum class Mark : std::uint8_t {
  kNothing,
  kSharding,  // how a value lies
  kEnter,     // the whole goes in, a device's part comes out
  kLeave,     // the other way round
};

namespace {

Mark mark_of(const Graph& graph, InstructionId id) {
  if (graph.instruction(id).opcode != Opcode::kCustomCall) return Mark::kNothing;
  const std::string target = string_attribute(graph, id, "custom_call_target");
  if (target == "Sharding") {
    return graph.instruction(id).num_operands == 1 && graph.shape_of(id).is_array() ? Mark::kSharding : Mark::kNothing;
  }
  if (enters_shards(target)) return Mark::kEnter;
  if (leaves_shards(target)) return Mark::kLeave;
  return Mark::kNothing;
}

// The most nested calls; deeper ones are left as they are.
constexpr int kMaxDepth = 64;

// The devices of the largest mesh that the header names: xla.sdy.meshes={mesh = #sdy.mesh<["data"=4, "model"=2]>}.
std::int64_t mesh_devices(const Graph& graph) {
  const std::optional<std::string_view> raw = graph.header_attribute("frontend_attributes");
  std::int64_t most = 0;
  constexpr std::string_view kMesh = "#sdy.mesh<[";
  for (std::size_t at = raw ? raw->find(kMesh) : std::string_view::npos; at != std::string_view::npos;
       at = raw->find(kMesh, at + 1)) {
    std::int64_t devices = 1;
    const std::size_t end = std::min(raw->find(']', at + kMesh.size()), raw->size());
    for (std::size_t i = at + kMesh.size(); i < end; ++i) {
      if ((*raw)[i] != '=') continue;
      std::int64_t extent = 0;
      for (++i; i < end && (*raw)[i] >= '0' && (*raw)[i] <= '9' && extent < (1 << 20); ++i) {
        extent = extent * 10 + ((*raw)[i] - '0');
      }
      devices = std::min<std::int64_t>(devices * std::max<std::int64_t>(extent, 1), 1 << 30);
    }
    most = std::max(most, devices);
  }
  return most;
}

std::int64_t devices_of(const Graph& graph) {
  std::int64_t devices = mesh_devices(graph);
  if (const auto raw = graph.header_attribute("num_partitions")) {
    devices = std::max(devices, decode_int(*raw, {"HloModule", "num_partitions"}));
  }
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    if (mark_of(graph, id) == Mark::kNothing) continue;
    const std::optional<std::string_view> raw = graph.attribute(id, "sharding");
    HloSharding sharding;
    if (!raw || !read_sharding(*raw, &sharding).empty()) continue;
    std::int64_t tiles = 1;
    for (const std::int64_t parts : sharding.tiles) {
      tiles = std::min<std::int64_t>(tiles * std::clamp<std::int64_t>(parts, 1, 1 << 20), 1 << 30);
    }
    devices = std::max(devices, tiles);
  }
  return devices > 1 ? devices : 0;
}

}  // namespace

// Finds the shapes of one device first, and changes the graph when all of them fit.
class OneDevice {
 public:
  explicit OneDevice(Graph* graph) : graph_(*graph) {
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      now_.push_back(graph_.instruction(id).shape);
      const Mark mark = mark_of(graph_, id);
      marks_.push_back(mark);
      if (mark == Mark::kEnter || mark == Mark::kLeave) ++to_pass_;
    }
    visited_.assign(static_cast<std::size_t>(graph_.num_computations()), false);
    for (ShapeId id = 0; id < static_cast<ShapeId>(graph_.shapes_.size()); ++id) {
      if (graph_.shape(id).is_tuple()) tuples_.try_emplace(graph_.shape(id).elements, id);
    }
  }

  std::optional<ShardMapStep> run() {
    if (to_pass_ == 0) return std::nullopt;
    ShardMapStep step;
    for (const InstructionId parameter : graph_.entry().parameters) {
      if (parameter == kNone || !graph_.shape_of(parameter).is_array()) continue;
      ShapeId part = kNone;
      bool inside_only = true;
      seen_.clear();
      find_part(parameter, 0, &part, &inside_only);
      if (part == kNone || part == now_of(parameter)) continue;
      if (!inside_only) return std::nullopt;
      step.cut.push_back({parameter, now_of(parameter)});
      now_[static_cast<std::size_t>(parameter)] = part;
    }
    // Marks in bodies of loops and branches are not passed.
    if (!visit(graph_.entry_id(), 0) || to_pass_ != 0) return std::nullopt;
    step.devices = devices_of(graph_);
    change();
    return step;
  }

 private:
  ShapeId now_of(InstructionId id) const { return now_[static_cast<std::size_t>(id)]; }
  ShapeId written(InstructionId id) const { return graph_.instruction(id).shape; }
  Mark mark(InstructionId id) const { return marks_[static_cast<std::size_t>(id)]; }

  // The shape of `id`, which is no tuple, inside the marks that read it.
  void find_part(InstructionId id, int depth, ShapeId* part, bool* inside_only) {
    if (depth > kMaxDepth || !seen_.insert(id).second) return;
    const auto take = [&](ShapeId shape) {
      *inside_only = *inside_only && (*part == kNone || *part == shape) && shape != kNone;
      *part = shape;
    };
    for (const InstructionId user : graph_.users(id)) {
      const Span<const InstructionId> operands = graph_.operands(user);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (operands[i] != id) continue;
        if (mark(user) == Mark::kEnter) {
          take(leaf_of(written(user), i, operands.size()));
        } else if (mark(user) == Mark::kSharding) {
          find_part(user, depth + 1, part, inside_only);
        } else if (graph_.instruction(user).opcode == Opcode::kCall) {
          const std::vector<InstructionId>& parameters = graph_.computation(graph_.called(user)[0]).parameters;
          if (i < parameters.size() && parameters[i] != kNone) find_part(parameters[i], depth + 1, part, inside_only);
        } else if (user != graph_.entry().root) {
          *inside_only = false;
        }
      }
    }
  }

  // The shape of operand i of a mark with `count` operands; kNone: the shape does not say it.
  ShapeId leaf_of(ShapeId shape, std::size_t i, std::size_t count) const {
    const Shape& all = graph_.shape(shape);
    if (!all.is_tuple()) return count == 1 ? shape : kNone;
    return all.elements.size() == count ? all.elements[i] : kNone;
  }

  // The shapes of a computation whose parameters have theirs; false where one does not fit.
  bool visit(ComputationId c, int depth) {
    if (depth > kMaxDepth) return false;
    visited_[static_cast<std::size_t>(c)] = true;
    const Computation& computation = graph_.computation(c);
    for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
      if (!visit_instruction(id, depth)) return false;
    }
    return true;
  }

  bool visit_instruction(InstructionId id, int depth) {
    const Instruction& instruction = graph_.instruction(id);
    const Span<const InstructionId> operands = graph_.operands(id);
    ShapeId& now = now_[static_cast<std::size_t>(id)];
    switch (mark(id)) {
      case Mark::kEnter:
        for (std::size_t i = 0; i < operands.size(); ++i) {
          if (now_of(operands[i]) != leaf_of(instruction.shape, i, operands.size())) return false;
        }
        --to_pass_;
        return !operands.empty();
      case Mark::kLeave: {
        if (operands.empty() || leaf_of(instruction.shape, 0, operands.size()) == kNone) return false;
        --to_pass_;
        now = graph_.shape(instruction.shape).is_tuple() ? tuple_of(operands) : now_of(operands[0]);
        return true;
      }
      case Mark::kSharding: now = now_of(operands[0]); return true;
      case Mark::kNothing: break;
    }
    const bool changed = std::any_of(operands.begin(), operands.end(),
                                     [&](InstructionId operand) { return now_of(operand) != written(operand); });
    switch (instruction.opcode) {
      case Opcode::kParameter: return true;
      case Opcode::kTuple:
        if (changed) now = tuple_of(operands);
        return true;
      case Opcode::kGetTupleElement:
        if (changed) now = graph_.shape(now_of(operands[0])).elements[static_cast<std::size_t>(instruction.number)];
        return true;
      case Opcode::kCopy:
      case Opcode::kOptBarrier:
        if (changed) now = now_of(operands[0]);
        return true;
      case Opcode::kCall: return visit_call(id, depth);
      default: return !changed;
    }
  }

  bool visit_call(InstructionId id, int depth) {
    const ComputationId callee = graph_.called(id)[0];
    const std::vector<InstructionId>& parameters = graph_.computation(callee).parameters;
    const Span<const InstructionId> operands = graph_.operands(id);
    const bool again = visited_[static_cast<std::size_t>(callee)];
    for (std::size_t i = 0; i < parameters.size() && i < operands.size(); ++i) {
      if (parameters[i] == kNone || operands[i] == kNone) return false;
      if (again && now_of(parameters[i]) != now_of(operands[i])) return false;
      now_[static_cast<std::size_t>(parameters[i])] = now_of(operands[i]);
    }
    if (!again && !visit(callee, depth + 1)) return false;
    now_[static_cast<std::size_t>(id)] = now_of(graph_.computation(callee).root);
    return true;
  }

  ShapeId tuple_of(Span<const InstructionId> operands) {
    Shape shape;
    shape.type = ElementType::kTuple;
    std::string text;
    for (const InstructionId operand : operands) {
      const Shape& element = graph_.shape(now_of(operand));
      shape.elements.push_back(now_of(operand));
      shape.dynamic = shape.dynamic || element.dynamic;
      // No more than the whole, which a reader has checked.
      shape.bytes += element.bytes;
      text += (text.empty() ? "(" : ", ") + std::string(element.text);
    }
    const auto [known, added] = tuples_.try_emplace(shape.elements, static_cast<ShapeId>(graph_.shapes_.size()));
    if (added) {
      shape.text = graph_.arena_.emplace_back((text.empty() ? "(" : text) + ")");
      graph_.shapes_.push_back(std::move(shape));
    }
    return known->second;
  }

  // Keeps the metadata of an instruction, and those other attributes for which `keep` is true.
  template <typename Keep>
  void keep_attributes(Instruction* instruction, const Keep& keep) {
    Attribute* const begin = graph_.attributes_.data() + instruction->first_attribute;
    Attribute* const end = begin + instruction->num_attributes;
    instruction->num_attributes = static_cast<std::int32_t>(
        std::remove_if(begin, end, [&](const Attribute& a) { return a.key != "metadata" && !keep(a.key); }) - begin);
  }

  void change() {
    bool changed_entry = false;
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      Instruction& instruction = graph_.instructions_[static_cast<std::size_t>(id)];
      const bool changed = now_of(id) != instruction.shape;
      if (changed && graph_.shape(now_of(id)).is_tuple()) instruction.layout = {};
      instruction.shape = now_of(id);
      changed_entry = changed_entry || (changed && instruction.computation == graph_.entry_id());
      const Mark is = visited_[static_cast<std::size_t>(instruction.computation)] ? mark(id) : Mark::kNothing;
      if (is != Mark::kNothing) {
        // The mark becomes an instruction that only hands its operands on.
        const bool tuple = graph_.shape(instruction.shape).is_tuple();
        instruction.opcode = tuple ? Opcode::kTuple : Opcode::kBitcast;
        instruction.opcode_name = tuple ? "tuple" : "bitcast";
        keep_attributes(&instruction, [](std::string_view) { return false; });
      } else if (changed) {
        keep_attributes(&instruction,
                        [](std::string_view key) { return key != "sharding" && key != "frontend_attributes"; });
      }
    }
    if (!changed_entry) return;
    auto& header = graph_.header_;
    header.erase(std::remove_if(header.begin(), header.end(),
                                [](const Attribute& a) { return a.key == "entry_computation_layout"; }),
                 header.end());
  }

  Graph& graph_;
  std::vector<ShapeId> now_;
  std::vector<Mark> marks_;
  std::vector<bool> visited_;
  std::set<InstructionId> seen_;  // by the last find_part
  std::map<std::vector<ShapeId>, ShapeId> tuples_;
  std::int64_t to_pass_ = 0;  // marks that no visit has passed yet
};

std::optional<ShardMapStep> take_one_device(Graph* graph) {
  if (!works_on_shards(*graph)) return std::nullopt;
  return OneDevice(graph).run();
}

double share_on_shards(const Graph& graph) {
  FlowOptions options;
  options.loops = true;
  const FlowGraph flow = FlowGraph::build(graph, options);
  const ModuleCost cost = analyze_cost(graph);
  // By site: turns of all loops around it.
  std::vector<double> turns;
  for (const CallSite& site : flow.sites()) {
    double times = site.parent == kNone ? 1 : turns[static_cast<std::size_t>(site.parent)];
    if (graph.instruction(site.caller).opcode == Opcode::kWhile) {
      times *= static_cast<double>(trip_count(graph, site.caller).value_or(1));
    }
    turns.push_back(times);
  }
  std::vector<bool> inside(static_cast<std::size_t>(flow.size()), false);
  double all = 0, within = 0;
  for (NodeId id = 0; id < flow.size(); ++id) {
    const FlowNode& node = flow.node(id);
    const Mark mark = mark_of(graph, node.instruction);
    bool is = mark == Mark::kEnter;
    if (mark != Mark::kLeave) {
      for (const NodeId operand : flow.operands(id)) is = is || inside[static_cast<std::size_t>(operand)];
    }
    inside[static_cast<std::size_t>(id)] = is;
    if (node.opcode == Opcode::kGetTupleElement) continue;
    const double flops = cost.instructions[static_cast<std::size_t>(node.instruction)].flops *
                         (node.site == kNone ? 1 : turns[static_cast<std::size_t>(node.site)]);
    all += flops;
    if (is) within += flops;
  }
  return all > 0 ? within / all : 0;
}

}  // namespace automap::graph
