#include "common/graph/resized_graph.h"

#include <algorithm>
#include <map>

#include "common/base/check.h"
#include "common/graph/hlo_attributes.h"

namespace automap::graph {

DimMarks::DimMarks(const Graph& graph) : graph_(graph) {
  constexpr std::size_t kUnknown = ~std::size_t{0};
  const auto known = [&](ShapeId shape) -> std::size_t& {
    const auto at = static_cast<std::size_t>(shape);
    if (leaves_.size() <= at) leaves_.resize(at + 1, kUnknown);
    return leaves_[at];
  };
  std::vector<ShapeId> open;
  std::size_t total = 0;
  first_.reserve(static_cast<std::size_t>(graph.num_instructions()) + 1);
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    open.assign(1, graph.instruction(id).shape);
    while (!open.empty()) {
      const ShapeId top = open.back();
      if (known(top) != kUnknown) {
        open.pop_back();
        continue;
      }
      const Shape& shape = graph.shape(top);
      std::size_t count = shape.is_tuple() ? 0 : 1;
      bool ready = true;
      for (const ShapeId element : shape.elements) {
        if (known(element) == kUnknown) {
          open.push_back(element);
          ready = false;
        } else {
          count += known(element);
        }
      }
      if (ready) known(top) = count;
    }
    first_.push_back(total);
    total += leaves(graph.instruction(id).shape);
  }
  first_.push_back(total);
  sets_.assign(total, 0);
}

bool DimMarks::add_all(InstructionId to, std::size_t first_to, InstructionId from, std::size_t first_from,
                       std::size_t count) {
  bool more = false;
  count = std::min({count, size(to) - std::min(size(to), first_to), size(from) - std::min(size(from), first_from)});
  for (std::size_t i = 0; i < count; ++i) more |= add(to, first_to + i, sets_[first(from) + first_from + i]);
  return more;
}

bool DimMarks::any(InstructionId id) const {
  const Span<const DimSet> sets = of(id);
  return std::any_of(sets.begin(), sets.end(), [](DimSet set) { return set != 0; });
}

std::pair<std::size_t, std::size_t> DimMarks::element(InstructionId id, std::size_t i) const {
  const Shape& shape = graph_.shape_of(id);
  std::size_t begin = 0;
  for (std::size_t k = 0; k < i && k < shape.elements.size(); ++k) begin += leaves(shape.elements[k]);
  return {begin, i < shape.elements.size() ? leaves(shape.elements[i]) : 0};
}

bool DimMarks::hand_to(ComputationId callee, Span<const InstructionId> operands) {
  bool more = false;
  const std::vector<InstructionId>& parameters = graph_.computation(callee).parameters;
  for (std::size_t i = 0; i < parameters.size() && i < operands.size(); ++i) {
    if (parameters[i] != kNone) more |= add_all(parameters[i], 0, operands[i], 0, size(operands[i]));
  }
  return more;
}

bool DimMarks::take_root(InstructionId id, ComputationId callee) {
  const InstructionId root = graph_.computation(callee).root;
  return root != kNone && add_all(id, 0, root, 0, size(root));
}

bool DimMarks::hand_on(InstructionId id) {
  const Span<const InstructionId> operands = graph_.operands(id);
  const Span<const ComputationId> called = graph_.called(id);
  bool more = false;
  switch (graph_.instruction(id).opcode) {
    case Opcode::kTuple: {
      std::size_t at = 0;
      for (const InstructionId operand : operands) {
        more |= add_all(id, at, operand, 0, size(operand));
        at += size(operand);
      }
      return more;
    }
    case Opcode::kGetTupleElement: {
      if (operands.empty() || graph_.instruction(id).number < 0) return false;
      const auto [begin, count] = element(operands[0], static_cast<std::size_t>(graph_.instruction(id).number));
      return add_all(id, 0, operands[0], begin, count);
    }
    case Opcode::kWhile:
      for (const ComputationId callee : called) {
        more |= hand_to(callee, operands);
        const std::vector<InstructionId>& parameters = graph_.computation(callee).parameters;
        if (parameters.size() == 1 && parameters[0] != kNone) more |= add_all(parameters[0], 0, id, 0, size(id));
      }
      if (called.size() == 2) more |= take_root(id, called[1]);
      return more;
    case Opcode::kConditional:
      for (std::size_t i = 0; i < called.size(); ++i) {
        if (i + 1 < operands.size()) more |= hand_to(called[i], {operands.data() + i + 1, 1});
        more |= take_root(id, called[i]);
      }
      return more;
    case Opcode::kCall:
    case Opcode::kFusion:
    case Opcode::kAsyncStart:
      for (const ComputationId callee : called) more |= hand_to(callee, operands) || take_root(id, callee);
      return more;
    case Opcode::kOptBarrier:
    case Opcode::kDomain: return !operands.empty() && add_all(id, 0, operands[0], 0, size(operands[0]));
    default: return false;
  }
}

void DimMarks::hand_on() {
  std::vector<InstructionId> hands;
  // Callers stand behind their callees.
  for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
    switch (graph_.instruction(id).opcode) {
      case Opcode::kTuple:
      case Opcode::kGetTupleElement:
      case Opcode::kWhile:
      case Opcode::kConditional:
      case Opcode::kCall:
      case Opcode::kFusion:
      case Opcode::kAsyncStart:
      case Opcode::kOptBarrier:
      case Opcode::kDomain: hands.push_back(id); break;
      default: break;
    }
  }
  // Marks are only added, so this ends; each round reaches all of one nesting of calls.
  for (bool more = true; more;) {
    more = false;
    for (const InstructionId id : hands) more |= hand_on(id);
    for (std::size_t i = hands.size(); i-- > 0;) more |= hand_on(hands[i]);
  }
}

ResizedGraph::ResizedGraph(const Graph& module, const DimMarks& marks, std::int64_t batch)
    : module_(module), batch_(batch) {
  AM_CHECK(batch >= 1);
  // Texts are the module's: views.
  graph_.name_ = module.name_;
  graph_.header_ = module.header_;
  graph_.instructions_ = module.instructions_;
  graph_.computations_ = module.computations_;
  graph_.shapes_ = module.shapes_;
  graph_.operands_ = module.operands_;
  graph_.called_ = module.called_;
  graph_.attributes_ = module.attributes_;
  graph_.entry_ = module.entry_;
  std::map<std::pair<ShapeId, std::vector<DimSet>>, ShapeId> known;
  for (InstructionId id = 0; id < module.num_instructions(); ++id) {
    if (!marks.any(id)) continue;
    const Span<const DimSet> sets = marks.of(id);
    Instruction& instruction = graph_.instructions_[static_cast<std::size_t>(id)];
    const auto [it, added] = known.try_emplace({instruction.shape, {sets.begin(), sets.end()}}, kNone);
    if (added) {
      std::size_t next = 0;
      it->second = shape_with(instruction.shape, sets, &next);
    }
    instruction.shape = it->second;
  }
  find_windows(marks);
}

void ResizedGraph::find_windows(const DimMarks& marks) {
  for (InstructionId id = 0; id < module_.num_instructions(); ++id) {
    const Instruction& instruction = module_.instruction(id);
    if (instruction.opcode != Opcode::kReduceWindow || instruction.num_operands == 0) continue;
    const InstructionId operand = module_.operands(id)[0];
    if (!marks.any(operand) || !module_.shape_of(operand).is_array()) continue;
    const std::vector<std::int64_t>& dims = module_.shape_of(operand).dims;
    const std::vector<WindowDimension> window = window_attribute(module_, id);
    DimSet whole = 0;
    for (std::size_t d = 0; d < window.size() && d < dims.size() && d < 64; ++d) {
      if (window[d].size == dims[d] && dims[d] > 1) whole |= DimSet{1} << d;
    }
    whole &= marks.of(operand)[0];
    for (std::int32_t i = 0; whole != 0 && i < instruction.num_attributes; ++i) {
      const auto at = static_cast<std::size_t>(instruction.first_attribute + i);
      if (module_.attributes_[at].key == "window") windows_.push_back({at, id, operand, whole, {}});
    }
  }
}

ShapeId ResizedGraph::shape_with(ShapeId from, Span<const DimSet> sets, std::size_t* next) {
  Shape shape = module_.shape(from);
  const auto id = [&] { return static_cast<ShapeId>(graph_.shapes_.size()); };
  if (shape.is_tuple()) {
    for (ShapeId& element : shape.elements) element = shape_with(element, sets, next);
    graph_.shapes_.push_back(std::move(shape));
    tuples_.push_back(id() - 1);
    return id() - 1;
  }
  const DimSet dims = *next < sets.size() ? sets[*next] : 0;
  ++*next;
  if (dims == 0 || !shape.is_array()) return from;
  graph_.shapes_.push_back(std::move(shape));
  arrays_.push_back({id() - 1, from, dims});
  return id() - 1;
}

void ResizedGraph::resize(std::int64_t samples) {
  AM_CHECK(samples >= 1);
  constexpr double kLargest = 4e18;
  const double factor = static_cast<double>(samples) / static_cast<double>(batch_);
  for (const Resized& resized : arrays_) {
    const Shape& from = module_.shape(resized.from);
    Shape& shape = graph_.shapes_[static_cast<std::size_t>(resized.shape)];
    double elements = 1;
    for (std::size_t d = 0; d < from.dims.size(); ++d) {
      if (d < 64 && ((resized.dims >> d) & 1) != 0) {
        const double extent = std::max(1.0, std::min(kLargest, static_cast<double>(from.dims[d]) * factor + 0.5));
        shape.dims[d] = static_cast<std::int64_t>(extent);
      }
      elements *= static_cast<double>(shape.dims[d]);
    }
    shape.num_elements = static_cast<std::int64_t>(std::min(kLargest, elements));
    const double bytes = std::min(kLargest, elements * shape.bits / 8 + 0.875);
    shape.bytes = static_cast<std::int64_t>(bytes);
  }
  for (Window& window : windows_) {
    std::vector<WindowDimension> dims = window_attribute(module_, window.id);
    const std::vector<std::int64_t>& now = graph_.shape_of(window.operand).dims;
    std::string size, stride, pad, base, dilation;
    const auto add = [](std::string* list, const std::string& item) { *list += (list->empty() ? "" : "x") + item; };
    for (std::size_t d = 0; d < dims.size(); ++d) {
      WindowDimension& dim = dims[d];
      if (d < 64 && ((window.dims >> d) & 1) != 0) {
        // All of it and its padding.
        const std::int64_t more = now[d] - dim.size;
        if (dim.pad_low == dim.size - 1) dim.pad_low += more;
        if (dim.pad_high == dim.size - 1) dim.pad_high += more;
        dim.size += more;
      }
      add(&size, std::to_string(dim.size));
      add(&stride, std::to_string(dim.stride));
      add(&pad, std::to_string(dim.pad_low) + "_" + std::to_string(dim.pad_high));
      add(&base, std::to_string(dim.base_dilation));
      add(&dilation, std::to_string(dim.window_dilation));
    }
    window.text =
        "{size=" + size + " stride=" + stride + " pad=" + pad + " lhs_dilate=" + base + " rhs_dilate=" + dilation + "}";
    graph_.attributes_[window.attribute].value = window.text;
  }
  for (const ShapeId id : tuples_) {
    Shape& shape = graph_.shapes_[static_cast<std::size_t>(id)];
    double bytes = 0;
    for (const ShapeId element : shape.elements) bytes += static_cast<double>(graph_.shape(element).bytes);
    shape.bytes = static_cast<std::int64_t>(std::min(kLargest, bytes));
  }
}

}  // namespace automap::graph
