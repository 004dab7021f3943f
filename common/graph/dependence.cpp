#include "common/graph/dependence.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/graph/hlo_attributes.h"

namespace automap::graph {

namespace {

constexpr std::int64_t kMaxLeaves = 64'000'000;  // of all values together
constexpr std::int32_t kMaxLeavesOfAShape = 4'000'000;

[[noreturn]] void too_many_leaves(const Graph& graph) {
  throw Error(ErrorKind::kData,
              "module '" + std::string(graph.name()) + "': its tuples have more than " + std::to_string(kMaxLeaves) +
                  " leaves when expanded",
              "pass the state of the step as flat arguments and results");
}

}  // namespace

class FlowBuilder {
 public:
  FlowBuilder(const Graph& graph, const FlowOptions& options)
      : graph_(graph),
        expanded_(options.expanded_whiles.begin(), options.expanded_whiles.end()),
        loops_(options.loops),
        fusions_(options.fusions) {
    flow_.graph_ = &graph;
  }

  FlowGraph run() {
    count_sizes();
    flow_.nodes_.reserve(static_cast<std::size_t>(graph_.entry().count) * 2);
    push_frame(graph_.entry_id(), kNone, {});
    while (!frames_.empty()) step();
    drop_aliases();
    build_users();
    return std::move(flow_);
  }

 private:
  struct Value {
    std::int64_t first = 0;
    std::int32_t count = 0;
  };
  struct Frame {
    ComputationId computation = kNone;
    std::int32_t site = kNone;
    std::int32_t next = 0;         // position in the computation
    std::vector<Value> values;     // by position
    std::vector<Value> arguments;  // by parameter number
    std::vector<Value> branches;   // of the conditional at `next`: results so far
    std::int32_t loop = kNone;     // the body of FlowGraph::loops()[loop]
  };

  std::int32_t leaves_of(ShapeId id) {
    auto& known = leaf_count_;
    if (known.size() <= static_cast<std::size_t>(id)) known.resize(static_cast<std::size_t>(id) + 1, -1);
    if (known[static_cast<std::size_t>(id)] >= 0) return known[static_cast<std::size_t>(id)];
    // Shapes nest to a depth the readers limit; an explicit stack all the same.
    std::vector<ShapeId> stack{id};
    while (!stack.empty()) {
      const ShapeId top = stack.back();
      if (known.size() <= static_cast<std::size_t>(top)) known.resize(static_cast<std::size_t>(top) + 1, -1);
      if (known[static_cast<std::size_t>(top)] >= 0) {
        stack.pop_back();
        continue;
      }
      const Shape& shape = graph_.shape(top);
      std::int64_t total = shape.is_tuple() ? 0 : 1;
      bool ready = true;
      for (const ShapeId element : shape.elements) {
        if (known.size() <= static_cast<std::size_t>(element)) known.resize(static_cast<std::size_t>(element) + 1, -1);
        const std::int32_t count = known[static_cast<std::size_t>(element)];
        if (count < 0) {
          stack.push_back(element);
          ready = false;
        } else {
          total += count;
        }
      }
      if (!ready) continue;
      if (total > kMaxLeavesOfAShape) too_many_leaves(graph_);
      known[static_cast<std::size_t>(top)] = static_cast<std::int32_t>(total);
      stack.pop_back();
    }
    return known[static_cast<std::size_t>(id)];
  }

  // First leaf of each element of a tuple shape, and their total.
  const std::vector<std::int32_t>& offsets_of(ShapeId id) {
    auto [it, added] = offsets_.try_emplace(id);
    if (added) {
      std::vector<std::int32_t> offsets{0};
      for (const ShapeId element : graph_.shape(id).elements) offsets.push_back(offsets.back() + leaves_of(element));
      it->second = std::move(offsets);
    }
    return it->second;
  }

  void leaf_shapes(ShapeId id, std::vector<ShapeId>* out) const {
    std::vector<ShapeId> stack{id};
    while (!stack.empty()) {
      const ShapeId top = stack.back();
      stack.pop_back();
      const Shape& shape = graph_.shape(top);
      if (!shape.is_tuple()) {
        out->push_back(top);
        continue;
      }
      for (std::size_t i = shape.elements.size(); i-- > 0;) stack.push_back(shape.elements[i]);
    }
  }

  // Counts the nodes that each computation becomes when everything in it is expanded (saturating).
  void count_sizes() {
    const std::int32_t n = graph_.num_computations();
    sizes_.assign(static_cast<std::size_t>(n), -1);
    std::vector<ComputationId> stack{graph_.entry_id()};
    while (!stack.empty()) {
      const ComputationId top = stack.back();
      if (sizes_[static_cast<std::size_t>(top)] >= 0) {
        stack.pop_back();
        continue;
      }
      const Computation& computation = graph_.computation(top);
      std::int64_t size = computation.count;
      bool ready = true;
      for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
        if (!is_expandable(id)) continue;
        if (is_loop(id)) size += leaves_of(graph_.instruction(id).shape);
        for (const ComputationId callee : graph_.called(id)) {
          const std::int64_t inner = sizes_[static_cast<std::size_t>(callee)];
          if (inner < 0) {
            stack.push_back(callee);
            ready = false;
          } else {
            size = std::min<std::int64_t>(size + inner, std::int64_t{1} << 40);
          }
        }
      }
      if (!ready) continue;
      sizes_[static_cast<std::size_t>(top)] = size;
      stack.pop_back();
    }
    budget_ = kMaxFlowNodes;
  }

  // A `while` that FlowOptions::loops expands.
  bool is_loop(InstructionId id) const {
    const Instruction& instruction = graph_.instruction(id);
    if (!loops_ || instruction.opcode != Opcode::kWhile || expanded_.count(id) != 0) return false;
    if (instruction.num_called != 2 || instruction.num_operands != 1) return false;
    const Computation& body = graph_.computation(graph_.called(id)[1]);
    return body.parameters.size() == 1 && graph_.instruction(body.parameters[0]).shape == instruction.shape &&
           graph_.instruction(body.root).shape == instruction.shape &&
           graph_.instruction(graph_.operands(id)[0]).shape == instruction.shape;
  }

  // Every branch of a conditional gets the argument that it reads: operand b + 1 is branch b's.
  bool binds_branches(InstructionId id) const {
    std::size_t next = 1;
    for (const ComputationId branch : graph_.called(id)) {
      const std::size_t given = graph_.operands(id).size() > next++ ? 1 : 0;
      if (graph_.computation(branch).parameters.size() > given) return false;
    }
    return true;
  }

  bool is_expandable(InstructionId id) const {
    const Instruction& instruction = graph_.instruction(id);
    switch (instruction.opcode) {
      case Opcode::kCall:
      case Opcode::kAsyncStart:
        // Another number: not all are bound, or it is the reducer of a collective that was started.
        return instruction.num_called == 1 && graph_.computation(graph_.called(id)[0]).parameters.size() ==
                                                  static_cast<std::size_t>(instruction.num_operands);
      case Opcode::kConditional: return instruction.num_called >= 1 && binds_branches(id);
      case Opcode::kWhile: return is_loop(id) || (expanded_.count(id) != 0 && instruction.num_called == 2);
      case Opcode::kFusion: {
        if (!fusions_ || instruction.num_called != 1) return false;
        const Computation& body = graph_.computation(graph_.called(id)[0]);
        return body.parameters.size() == static_cast<std::size_t>(instruction.num_operands) &&
               graph_.instruction(body.root).shape == instruction.shape;
      }
      default: return false;
    }
  }

  // The budget is charged where the entry calls; nested calls are part of it.
  bool may_expand(InstructionId id) {
    if (!is_expandable(id)) return false;
    if (frames_.size() > 1) return true;
    std::int64_t size = 0;
    if (is_loop(id)) size += leaves_of(graph_.instruction(id).shape);
    for (const ComputationId callee : graph_.called(id)) size += sizes_[static_cast<std::size_t>(callee)];
    if (size > budget_) return false;
    budget_ -= size;
    return true;
  }

  NodeId add_node(InstructionId instruction, std::int32_t site, std::int32_t leaf, Opcode opcode, ShapeId shape,
                  const std::vector<NodeId>& operands) {
    FlowNode node;
    node.instruction = instruction;
    node.site = site;
    node.leaf = leaf;
    node.opcode = opcode;
    node.shape = shape;
    node.first_operand = static_cast<std::int32_t>(flow_.operands_.size());
    node.num_operands = static_cast<std::int32_t>(operands.size());
    if (flow_.operands_.size() + operands.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
      too_many_leaves(graph_);
    flow_.operands_.insert(flow_.operands_.end(), operands.begin(), operands.end());
    flow_.nodes_.push_back(node);
    return static_cast<NodeId>(flow_.nodes_.size()) - 1;
  }

  std::int64_t begin_value() {
    if (leaves_.size() > static_cast<std::size_t>(kMaxLeaves)) too_many_leaves(graph_);
    return static_cast<std::int64_t>(leaves_.size());
  }
  Value end_value(std::int64_t first) const {
    return {first, static_cast<std::int32_t>(static_cast<std::int64_t>(leaves_.size()) - first)};
  }
  NodeId leaf(const Value& value, std::int32_t i) const { return leaves_[static_cast<std::size_t>(value.first + i)]; }

  const Value& value_of(const Frame& frame, InstructionId id) const {
    return frame.values[static_cast<std::size_t>(id - graph_.computation(frame.computation).first)];
  }

  void gather(const Frame& frame, InstructionId id, std::vector<NodeId>* out) const {
    out->clear();
    for (const InstructionId operand : graph_.operands(id)) {
      const Value& value = value_of(frame, operand);
      out->insert(out->end(), leaves_.begin() + value.first, leaves_.begin() + value.first + value.count);
    }
  }

  void push_frame(ComputationId computation, std::int32_t site, std::vector<Value> arguments) {
    Frame frame;
    frame.computation = computation;
    frame.site = site;
    frame.values.resize(static_cast<std::size_t>(graph_.computation(computation).count));
    frame.arguments = std::move(arguments);
    frames_.push_back(std::move(frame));
  }

  std::int32_t add_site(InstructionId caller, std::int32_t parent, std::int32_t branch) {
    flow_.sites_.push_back({caller, parent, branch});
    return static_cast<std::int32_t>(flow_.sites_.size()) - 1;
  }

  // A node for `id`, with a projection for every leaf of a tuple result.
  Value generic(const Frame& frame, InstructionId id) {
    gather(frame, id, &scratch_);
    const Instruction& instruction = graph_.instruction(id);
    const NodeId node = add_node(id, frame.site, kNone, instruction.opcode, instruction.shape, scratch_);
    const std::int64_t first = begin_value();
    if (!graph_.shape(instruction.shape).is_tuple()) {
      leaves_.push_back(node);
      return end_value(first);
    }
    leaves_of(instruction.shape);  // checks
    std::vector<ShapeId> shapes;
    leaf_shapes(instruction.shape, &shapes);
    std::vector<NodeId> only{node};
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      leaves_.push_back(
          add_node(id, frame.site, static_cast<std::int32_t>(i), Opcode::kGetTupleElement, shapes[i], only));
    }
    return end_value(first);
  }

  // The operand `id` of the body's root hands on element i of the loop state as it came.
  bool is_invariant(const Computation& body, std::int32_t element) const {
    const Instruction& root = graph_.instruction(body.root);
    if (body.parameters.size() != 1) return false;
    if (body.root == body.parameters[0]) return true;
    if (root.opcode != Opcode::kTuple || element >= root.num_operands) return false;
    const InstructionId operand = graph_.operands(body.root)[static_cast<std::size_t>(element)];
    const Instruction& handed = graph_.instruction(operand);
    return handed.opcode == Opcode::kGetTupleElement && handed.number == element &&
           graph_.operands(operand)[0] == body.parameters[0];
  }

  Value while_unit(const Frame& frame, InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    Value value = generic(frame, id);
    if (instruction.num_operands != 1 || instruction.num_called != 2 || !graph_.shape(instruction.shape).is_tuple())
      return value;
    const Value init = value_of(frame, graph_.operands(id)[0]);
    if (init.count != value.count) return value;
    const Computation& body = graph_.computation(graph_.called(id)[1]);
    const std::vector<std::int32_t> offsets = offsets_of(instruction.shape);
    for (std::size_t element = 0; element + 1 < offsets.size(); ++element) {
      if (!is_invariant(body, static_cast<std::int32_t>(element))) continue;
      for (std::int32_t i = offsets[element]; i < offsets[element + 1]; ++i)
        leaves_[static_cast<std::size_t>(value.first + i)] = leaf(init, i);
    }
    return value;
  }

  // An argument of the call; in the entry itself, inputs.
  Value parameter(const Frame& frame, InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    if (frames_.size() > 1) {
      AM_CHECK(static_cast<std::size_t>(instruction.number) < frame.arguments.size());
      return frame.arguments[static_cast<std::size_t>(instruction.number)];
    }
    leaves_of(instruction.shape);
    std::vector<ShapeId> shapes;
    leaf_shapes(instruction.shape, &shapes);
    const bool tuple = graph_.shape(instruction.shape).is_tuple();
    const std::int64_t first = begin_value();
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::int32_t number = tuple ? static_cast<std::int32_t>(i) : kNone;
      const NodeId node = add_node(id, kNone, number, Opcode::kParameter, shapes[i], {});
      flow_.inputs_.push_back({static_cast<std::int32_t>(instruction.number), number, node});
      leaves_.push_back(node);
    }
    return end_value(first);
  }

  Value element_of(const Frame& frame, InstructionId id) {
    const InstructionId operand = graph_.operands(id)[0];
    const Value whole = value_of(frame, operand);
    const std::vector<std::int32_t>& offsets = offsets_of(graph_.instruction(operand).shape);
    const auto index = static_cast<std::size_t>(graph_.instruction(id).number);
    if (index + 1 >= offsets.size() || whole.count != offsets.back()) {
      return generic(frame, id);
    }
    const Value value = {whole.first + offsets[index], offsets[index + 1] - offsets[index]};
    if (value.count == 1) {
      FlowNode& node = flow_.nodes_[static_cast<std::size_t>(leaf(value, 0))];
      // A projection takes the name of the first get-tuple-element that reads it.
      if (node.opcode == Opcode::kGetTupleElement && node.site == frame.site &&
          graph_.instruction(node.instruction).opcode != Opcode::kGetTupleElement)
        node.instruction = id;
    }
    return value;
  }

  // One node per leaf.
  Value barrier(const Frame& frame, InstructionId id) {
    gather(frame, id, &scratch_);
    const std::vector<NodeId> inputs = scratch_;
    const std::int64_t first = begin_value();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      leaves_.push_back(add_node(id, frame.site, static_cast<std::int32_t>(i), Opcode::kOptBarrier,
                                 flow_.node(inputs[i]).shape, {inputs[i]}));
    }
    return end_value(first);
  }

  // One instruction of the innermost frame, or its end.
  void step() {
    Frame& frame = frames_.back();
    const Computation& computation = graph_.computation(frame.computation);
    if (frame.next == computation.count) {
      const Value result = value_of(frame, computation.root);
      const std::int32_t site = frame.site;
      const std::int32_t loop = frame.loop;
      if (frames_.size() == 1) {
        for (std::int32_t i = 0; i < result.count; ++i) flow_.results_.push_back(leaf(result, i));
        frames_.pop_back();
        return;
      }
      frames_.pop_back();
      finish_call(site, loop == kNone ? result : finish_loop(loop, result));
      return;
    }
    const InstructionId id = computation.first + frame.next;
    const Instruction& instruction = graph_.instruction(id);
    Value value;
    switch (instruction.opcode) {
      case Opcode::kParameter: value = parameter(frame, id); break;
      case Opcode::kTuple: {
        gather(frame, id, &scratch_);
        const std::int64_t first = begin_value();
        leaves_.insert(leaves_.end(), scratch_.begin(), scratch_.end());
        value = end_value(first);
        break;
      }
      case Opcode::kDomain:
      case Opcode::kAddDependency: value = value_of(frame, graph_.operands(id)[0]); break;
      case Opcode::kAsyncUpdate:
      case Opcode::kAsyncDone: {
        const Value& started = value_of(frame, graph_.operands(id)[0]);
        value = started.count == leaves_of(instruction.shape) ? started : generic(frame, id);
        break;
      }
      case Opcode::kGetTupleElement: value = element_of(frame, id); break;
      case Opcode::kOptBarrier: value = barrier(frame, id); break;
      case Opcode::kCall:
      case Opcode::kAsyncStart:
      case Opcode::kConditional:
      case Opcode::kFusion:
      case Opcode::kWhile:
        if (instruction.opcode == Opcode::kConditional && !frame.branches.empty()) {
          // Between two branches.
          expand_branch(id);
          return;
        }
        if (may_expand(id)) {
          expand(id);
          return;
        }
        value = instruction.opcode == Opcode::kWhile ? while_unit(frame, id) : generic(frame, id);
        break;
      default: value = generic(frame, id);
    }
    frame.values[static_cast<std::size_t>(frame.next)] = value;
    ++frame.next;
  }

  void expand(InstructionId id) {
    Frame& frame = frames_.back();
    const Instruction& instruction = graph_.instruction(id);
    if (instruction.opcode == Opcode::kConditional) {
      expand_branch(id);
      return;
    }
    std::vector<Value> arguments;
    for (const InstructionId operand : graph_.operands(id)) arguments.push_back(value_of(frame, operand));
    if (is_loop(id)) {
      expand_loop(id, arguments[0]);
      return;
    }
    const ComputationId callee = graph_.called(id)[instruction.opcode == Opcode::kWhile ? 1 : 0];
    push_frame(callee, add_site(id, frame.site, kNone), std::move(arguments));
  }

  void expand_loop(InstructionId id, const Value& initial) {
    const ComputationId body = graph_.called(id)[1];
    FlowLoop loop;
    loop.instruction = id;
    loop.site = add_site(id, frames_.back().site, kNone);
    const std::int64_t first = begin_value();
    for (std::int32_t i = 0; i < initial.count; ++i) {
      loop.initial.push_back(leaf(initial, i));
      // A copy: adding to nodes_ while reading from it.
      const ShapeId shape = flow_.node(loop.initial.back()).shape;
      loop.parameter.push_back(
          add_node(graph_.computation(body).parameters[0], loop.site, i, Opcode::kParameter, shape, {}));
      leaves_.push_back(loop.parameter.back());
    }
    const Value state = end_value(first);
    push_frame(body, loop.site, {state});
    open_loops_.push_back(std::move(loop));
    frames_.back().loop = static_cast<std::int32_t>(open_loops_.size()) - 1;
  }

  // The body has ended with `result`: leaves that came through unchanged become the initial ones.
  Value finish_loop(std::int32_t index, const Value& result) {
    AM_CHECK(static_cast<std::size_t>(index) + 1 == open_loops_.size());
    FlowLoop loop = std::move(open_loops_.back());
    open_loops_.pop_back();
    // Equal, but for values whose leaves could not be told apart.
    const auto count = std::min(static_cast<std::size_t>(result.count), loop.parameter.size());
    loop.parameter.resize(count);
    loop.initial.resize(count);
    const std::int64_t first = begin_value();
    for (std::size_t i = 0; i < count; ++i) leaves_.push_back(leaf(result, static_cast<std::int32_t>(i)));
    const Value state = end_value(first);
    // A leaf that is found unchanged can make others unchanged: (x, x) -> (second, second). Chains of that are rare;
    // those left over after some rounds count as changing.
    constexpr int kRounds = 4;
    for (int round = 0; round < kRounds; ++round) {
      bool more = false;
      for (std::int32_t i = 0; i < state.count; ++i) {
        const auto k = static_cast<std::size_t>(i);
        NodeId& next = leaves_[static_cast<std::size_t>(first) + k];
        next = resolve(next);
        if (resolve(loop.parameter[k]) == loop.parameter[k] && (next == loop.parameter[k] || next == loop.initial[k])) {
          alias_.resize(flow_.nodes_.size(), kNone);
          alias_[static_cast<std::size_t>(loop.parameter[k])] = loop.initial[k];
          next = resolve(next);
          more = true;
        }
      }
      if (!more) break;
    }
    std::size_t kept = 0;
    for (std::size_t k = 0; k < loop.parameter.size(); ++k) {
      NodeId& next = leaves_[static_cast<std::size_t>(first) + k];
      next = resolve(next);
      if (resolve(loop.parameter[k]) != loop.parameter[k]) continue;
      loop.initial[kept] = loop.initial[k];
      loop.parameter[kept] = loop.parameter[k];
      loop.next.push_back(next);
      ++kept;
    }
    loop.initial.resize(kept);
    loop.parameter.resize(kept);
    flow_.loops_.push_back(std::move(loop));
    return state;
  }

  // Loop parameters that turned out to be the initial node.
  NodeId resolve(NodeId id) const {
    while (static_cast<std::size_t>(id) < alias_.size() && alias_[static_cast<std::size_t>(id)] != kNone)
      id = alias_[static_cast<std::size_t>(id)];
    return id;
  }

  // Takes the nodes out that are aliases, and renumbers. Aliases point backwards, so the order stays topological.
  void drop_aliases() {
    if (alias_.empty()) return;
    const std::size_t n = flow_.nodes_.size();
    alias_.resize(n, kNone);
    std::vector<NodeId> renamed(n);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (alias_[i] != kNone) {
        renamed[i] = renamed[static_cast<std::size_t>(alias_[i])];
        continue;
      }
      renamed[i] = static_cast<NodeId>(kept);
      flow_.nodes_[kept++] = flow_.nodes_[i];
    }
    flow_.nodes_.resize(kept);
    const auto rename = [&](std::vector<NodeId>* ids) {
      for (NodeId& id : *ids) id = renamed[static_cast<std::size_t>(id)];
    };
    rename(&flow_.operands_);
    rename(&flow_.results_);
    for (FlowInput& input : flow_.inputs_) input.node = renamed[static_cast<std::size_t>(input.node)];
    for (FlowLoop& loop : flow_.loops_) {
      rename(&loop.initial);
      rename(&loop.parameter);
      rename(&loop.next);
    }
  }

  void expand_branch(InstructionId id) {
    Frame& frame = frames_.back();
    const auto branch = frame.branches.size();
    std::vector<Value> arguments;
    if (graph_.operands(id).size() > branch + 1) arguments.push_back(value_of(frame, graph_.operands(id)[branch + 1]));
    const ComputationId callee = graph_.called(id)[branch];
    push_frame(callee, add_site(id, frame.site, static_cast<std::int32_t>(branch)), std::move(arguments));
  }

  // The frame of `site` has ended with `result`.
  void finish_call(std::int32_t site, Value result) {
    Frame& frame = frames_.back();
    const InstructionId id = flow_.sites_[static_cast<std::size_t>(site)].caller;
    const Instruction& instruction = graph_.instruction(id);
    if (instruction.opcode == Opcode::kConditional) {
      frame.branches.push_back(result);
      if (frame.branches.size() < static_cast<std::size_t>(instruction.num_called)) return;
      result = join(frame, id);
      frame.branches.clear();
    }
    frame.values[static_cast<std::size_t>(frame.next)] = result;
    ++frame.next;
  }

  Value join(const Frame& frame, InstructionId id) {
    const std::vector<Value> branches = frame.branches;
    std::int32_t count = branches[0].count;
    for (const Value& branch : branches) count = std::min(count, branch.count);
    const NodeId selector = leaf(value_of(frame, graph_.operands(id)[0]), 0);
    const std::int64_t first = begin_value();
    std::vector<NodeId> operands;
    for (std::int32_t i = 0; i < count; ++i) {
      const NodeId value = leaf(branches[0], i);
      const bool same =
          std::all_of(branches.begin(), branches.end(), [&](const Value& branch) { return leaf(branch, i) == value; });
      if (same) {
        leaves_.push_back(value);
        continue;
      }
      operands.assign(1, selector);
      for (const Value& branch : branches) operands.push_back(leaf(branch, i));
      leaves_.push_back(add_node(id, frame.site, i, Opcode::kConditional, flow_.node(value).shape, operands));
    }
    return end_value(first);
  }

  void build_users() {
    const std::size_t n = flow_.nodes_.size();
    flow_.first_user_.assign(n + 1, 0);
    std::vector<NodeId> last(n, kNone);
    for (int pass = 0; pass < 2; ++pass) {
      std::fill(last.begin(), last.end(), kNone);
      for (std::size_t i = 0; i < n; ++i) {
        const auto user = static_cast<NodeId>(i);
        for (const NodeId operand : flow_.operands(user)) {
          const auto o = static_cast<std::size_t>(operand);
          if (last[o] == user) continue;
          last[o] = user;
          if (pass == 0) {
            ++flow_.first_user_[o + 1];
          } else {
            flow_.users_[static_cast<std::size_t>(next_[o]++)] = user;
          }
        }
      }
      if (pass == 0) {
        for (std::size_t i = 0; i < n; ++i) flow_.first_user_[i + 1] += flow_.first_user_[i];
        flow_.users_.resize(static_cast<std::size_t>(flow_.first_user_[n]));
        next_.assign(flow_.first_user_.begin(), flow_.first_user_.end() - 1);
      }
    }
  }

  const Graph& graph_;
  std::unordered_set<InstructionId> expanded_;
  bool loops_ = false, fusions_ = false;
  FlowGraph flow_;
  std::vector<NodeId> leaves_;  // all values; a Value is a range of it
  std::vector<Frame> frames_;
  std::vector<FlowLoop> open_loops_;
  std::vector<NodeId> alias_;  // of a loop parameter that is none: what it is; kNone for others
  std::vector<std::int32_t> leaf_count_;
  std::unordered_map<ShapeId, std::vector<std::int32_t>> offsets_;
  std::vector<std::int64_t> sizes_;
  std::int64_t budget_ = 0;
  std::vector<NodeId> scratch_;
  std::vector<std::int32_t> next_;
};

FlowGraph FlowGraph::build(const Graph& graph, const FlowOptions& options) {
  return FlowBuilder(graph, options).run();
}

bool enters_shards(std::string_view target) {
  return target == "SPMDFullToShardShape" || target == "xla.sdy.GlobalToLocalShape";
}

bool leaves_shards(std::string_view target) {
  return target == "SPMDShardToFullShape" || target == "xla.sdy.LocalToGlobalShape";
}

bool is_sharding_mark(std::string_view target) {
  return target == "Sharding" || enters_shards(target) || leaves_shards(target) || target.rfind("xla.sdy.", 0) == 0;
}

bool is_annotation(const Graph& graph, InstructionId id) {
  const Instruction& instruction = graph.instruction(id);
  if (instruction.opcode != Opcode::kCustomCall || instruction.num_operands != 1) return false;
  const InstructionId operand = graph.operands(id)[0];
  if (!graph.shape_of(id).is_array() || graph.shape_of(operand).num_elements != graph.shape_of(id).num_elements)
    return false;
  const std::string target = string_attribute(graph, id, "custom_call_target");
  for (const char* word : {"Sharding", "SPMD", "sdy", "annotate_device_placement", "MoveTo", "LayoutConstraint",
                           "xla.gpu.ext", "AllocateBuffer", "PinTo"}) {
    if (target.find(word) != std::string::npos) return true;
  }
  return false;
}

bool is_movement(const FlowGraph& flow, NodeId id) {
  const FlowNode& node = flow.node(id);
  if (node.opcode == Opcode::kCustomCall) return is_annotation(flow.graph(), node.instruction);
  return has_trait(node.opcode, trait::kMovement) && node.num_operands == 1;
}

NodeId skip_movement(const FlowGraph& flow, NodeId id) {
  while (is_movement(flow, id)) id = flow.operands(id)[0];
  return id;
}

std::vector<bool> find_free(const FlowGraph& flow) {
  std::vector<bool> free(static_cast<std::size_t>(flow.size()), false);
  for (NodeId id = 0; id < flow.size(); ++id) {
    if (has_trait(flow.node(id).opcode, trait::kNeverFree)) continue;
    bool all = true;
    for (const NodeId operand : flow.operands(id)) all = all && free[static_cast<std::size_t>(operand)];
    free[static_cast<std::size_t>(id)] = all;
  }
  return free;
}

}  // namespace automap::graph
