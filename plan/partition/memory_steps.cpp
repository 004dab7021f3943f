#include "plan/partition/memory_steps.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/opcode.h"
#include "common/graph/variables.h"

namespace automap::partition {

namespace {

using graph::FlowGraph;
using graph::FlowNode;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;

// With more readers than this a value is kept rather than made again: XLA, too, limits how much code it writes twice.
constexpr std::size_t kMostRemade = 16;

// Hands its first operand on.
bool is_name(const FlowGraph& flow, NodeId id) {
  const FlowNode& node = flow.node(id);
  if (node.num_operands == 0) return false;
  switch (node.opcode) {
    case Opcode::kReshape:
    case Opcode::kBitcast:
    case Opcode::kOptBarrier:
    case Opcode::kDomain:
    case Opcode::kAddDependency:
    case Opcode::kAllReduceDone:
    case Opcode::kAllGatherDone:
    case Opcode::kCopyDone:
    case Opcode::kCollectivePermuteDone: return true;
    default: return node.num_operands == 1 && graph::is_annotation(flow.graph(), node.instruction);
  }
}

// Can be made where it is read.
bool is_fusible(Opcode opcode) {
  switch (opcode) {
    case Opcode::kBroadcast:
    case Opcode::kConcatenate:
    case Opcode::kConstant:
    case Opcode::kCopy:
    case Opcode::kDynamicSlice:
    case Opcode::kGather:
    case Opcode::kIota:
    case Opcode::kMap:
    case Opcode::kPad:
    case Opcode::kReverse:
    case Opcode::kSlice:
    case Opcode::kTranspose: return true;
    default: return graph::is_elementwise(opcode);
  }
}

// True if the instruction fuses its operand `k`.
bool takes_in(Opcode opcode, std::size_t k) {
  switch (opcode) {
    case Opcode::kReduce: return true;
    case Opcode::kGather:
    case Opcode::kDynamicSlice: return k == 0;
    case Opcode::kDynamicUpdateSlice: return k == 1;
    default: return is_fusible(opcode);
  }
}

// Element i of the result depends on element i of operand `k`.
bool aligns(Opcode opcode, std::size_t k) {
  if (opcode == Opcode::kDynamicUpdateSlice || opcode == Opcode::kScatter) return k == 0;
  return graph::is_elementwise(opcode) || opcode == Opcode::kCopy;
}

bool is_costly(Opcode opcode) {
  return graph::is_transcendental(opcode) || opcode == Opcode::kDivide || opcode == Opcode::kRemainder ||
         opcode == Opcode::kMap;
}

// The dimensions of a dot's operand are batch, then rows and contracted ones, either first.
bool in_order(std::size_t rank, const std::vector<std::int64_t>& batch, const std::vector<std::int64_t>& contracting) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i] != static_cast<std::int64_t>(i)) return false;
  }
  std::vector<bool> contracted(rank, false);
  for (const std::int64_t d : contracting) contracted[static_cast<std::size_t>(d)] = true;
  int changes = 0;
  for (std::size_t d = batch.size() + 1; d < rank; ++d) changes += contracted[d] != contracted[d - 1] ? 1 : 0;
  return changes <= 1 && std::is_sorted(contracting.begin(), contracting.end());
}

class StepsBuilder {
 public:
  StepsBuilder(const sharding::ShardingModel& model, const std::vector<double>& part,
               const std::vector<TensorCopy>& copies)
      : model_(model), flow_(model.flow()), part_(part), copies_(copies) {
    AM_CHECK(part.size() == at(flow_.size()));
  }

  MemorySteps build() {
    find_regions();
    find_origins();
    find_read_later();
    values_.resize(at(flow_.size()));
    for (NodeId id = 0; id < flow_.size(); ++id) {
      values_[at(id)].region = region_of_[at(id)];
      values_[at(id)].node = id;
    }
    for (const TensorCopy& copy : copies_) add_copy(copy);
    add_loops();
    add_results();
    for (NodeId id = flow_.size(); id-- > 0;) visit(id);
    return finish();
  }

 private:
  using ValueId = std::int32_t;  // flow nodes, then copies and states of loops

  struct Reader {
    std::int32_t step = 0;
    bool aligned = false;
    bool takes = false;  // can make it itself
  };
  struct Value {
    NodeId node = kNone;
    std::int32_t region = 0;
    std::int32_t writer = kNone;
    ValueId in_place_of = kNone;
    double bytes = 0;
    bool buffer = false;  // has one
    bool needed = false;  // as a buffer: by a reader that takes nothing in, or behind its region
    bool stays = false;
    double part = 0;  // of what is made of constants: the most that a reader needs
    std::vector<Reader> readers;
  };
  struct Step {
    NodeId node = kNone;
    double rank = 0;  // in the order of the text
    std::int32_t region = 0;
    double workspace = 0;
    std::vector<std::int32_t> regions;  // of a conditional: its branches, in their order
  };
  struct Region {
    std::int32_t parent = kNone;
    std::int32_t step = kNone;  // of the parent that runs it
    NodeId first = kNone;
  };

  Value& value(ValueId id) { return values_[at(id)]; }
  double bytes_of(NodeId id) const {
    const graph::Shape& shape = flow_.shape(id);
    return shape.is_array() ? static_cast<double>(shape.bytes) * part_[at(id)] : 0;
  }

  void find_regions() {
    const auto& sites = flow_.sites();
    std::vector<bool> own(sites.size(), false);
    for (const graph::FlowLoop& loop : flow_.loops()) own[at(loop.site)] = true;
    regions_.push_back({});
    std::map<std::pair<std::int32_t, graph::InstructionId>, std::int32_t> conditionals;
    for (std::size_t s = 0; s < sites.size(); ++s) {
      const std::int32_t parent = sites[s].parent == kNone ? 0 : region_of_site_[at(sites[s].parent)];
      if (!own[s] && sites[s].branch == kNone) {
        region_of_site_.push_back(parent);
        continue;
      }
      Region region;
      region.parent = parent;
      std::int32_t* step = &region.step;
      if (sites[s].branch != kNone)
        step = &conditionals.try_emplace({sites[s].parent, sites[s].caller}, kNone).first->second;
      if (*step == kNone) *step = add_step(kNone, -1, parent);
      region.step = *step;
      steps_[at(region.step)].regions.push_back(static_cast<std::int32_t>(regions_.size()));
      region_of_site_.push_back(static_cast<std::int32_t>(regions_.size()));
      regions_.push_back(region);
    }
    conditionals_ = std::move(conditionals);
    for (NodeId id = 0; id < flow_.size(); ++id) {
      const std::int32_t site = flow_.node(id).site;
      region_of_.push_back(site == kNone ? 0 : region_of_site_[at(site)]);
      // Also of the regions around it, and of the steps that run them.
      for (std::int32_t r = region_of_.back(); r != kNone && regions_[at(r)].first == kNone;
           r = regions_[at(r)].parent) {
        regions_[at(r)].first = id;
        if (regions_[at(r)].step == kNone) continue;
        Step& step = steps_[at(regions_[at(r)].step)];
        if (step.node == kNone) {
          step.node = id;
          step.rank = id - 0.5;
        }
      }
    }
  }

  void find_origins() {
    sourceless_ = graph::find_free(flow_);
    for (NodeId id = 0; id < flow_.size(); ++id) {
      const Opcode opcode = flow_.node(id).opcode;
      std::int64_t most = 0;
      for (const NodeId operand : flow_.operands(id)) most = std::max(most, origin_[at(operand)]);
      const bool passes = is_name(flow_, id) || graph::is_elementwise(opcode) || opcode == Opcode::kBroadcast ||
                          opcode == Opcode::kTranspose;
      if (!passes) most = flow_.shape(id).num_elements;
      origin_.push_back(sourceless_[at(id)] ? 0 : most);
    }
  }

  // Finds values that are read together with another value that took more steps to make.
  void find_read_later() {
    read_later_.assign(at(flow_.size()), false);
    std::vector<std::int32_t> steps;  // on the longest path to a node
    std::vector<NodeId> named;        // what it is a name of
    for (NodeId id = 0; id < flow_.size(); ++id) {
      std::int32_t before = 0;
      for (const NodeId operand : flow_.operands(id)) before = std::max(before, steps[at(operand)]);
      const bool name = is_name(flow_, id);
      const bool step = !name && !is_fusible(flow_.node(id).opcode) && flow_.producer(id) == id;
      steps.push_back(before + (step ? 1 : 0));
      named.push_back(name ? named[at(flow_.operands(id)[0])] : id);
      if (name) continue;
      for (const NodeId operand : flow_.operands(id)) {
        const NodeId from = named[at(operand)];
        if (before > steps[at(from)]) read_later_[at(from)] = true;
      }
    }
  }

  std::int32_t add_step(NodeId node, double rank, std::int32_t region) {
    Step step;
    step.node = node;
    step.rank = rank;
    step.region = region;
    steps_.push_back(std::move(step));
    return static_cast<std::int32_t>(steps_.size()) - 1;
  }
  ValueId add_value(NodeId node, std::int32_t region, double bytes) {
    Value value;
    value.node = node;
    value.region = region;
    value.bytes = bytes;
    value.buffer = value.needed = true;
    values_.push_back(std::move(value));
    return static_cast<ValueId>(values_.size()) - 1;
  }

  void add_copy(const TensorCopy& copy) {
    for (const NodeId reader : copy.readers) {
      if (reader == flow_.producer(copy.tensor)) {
        const graph::Shape& shape = flow_.shape(copy.tensor);
        made_whole_[reader] += shape.is_array() ? static_cast<double>(shape.bytes) * copy.part : 0;
      }
    }
    const ValueId made = add_value(copy.tensor, region_of_[at(copy.tensor)],
                                   static_cast<double>(flow_.shape(copy.tensor).bytes) * copy.part);
    for (const NodeId reader : copy.readers) {
      if (reader != flow_.producer(copy.tensor)) copy_for_[{reader, copy.tensor}] = made;
    }
    copies_of_[copy.tensor].push_back(made);
  }

  // The value that stands for `id` in `region`: outside of a loop, the loop's state stands for a value that it hands
  // on.
  ValueId seen_from(ValueId id, std::int32_t region) const {
    while (!is_within(region, values_[at(id)].region)) {
      const auto found = state_after_.find({id, values_[at(id)].region});
      if (found == state_after_.end()) break;
      id = found->second;
    }
    return id;
  }
  bool is_within(std::int32_t inner, std::int32_t outer) const {
    while (inner != kNone && inner != outer) inner = regions_[at(inner)].parent;
    return inner == outer;
  }

  void add_loops() {
    std::vector<std::tuple<std::int32_t, const graph::FlowLoop*, std::size_t>> states;
    for (const graph::FlowLoop& loop : flow_.loops()) {
      const std::int32_t body = region_of_site_[at(loop.site)];
      for (std::size_t k = 0; k < loop.parameter.size(); ++k) {
        const NodeId parameter = loop.parameter[k];
        const ValueId state = add_value(parameter, regions_[at(body)].parent, bytes_of(parameter));
        value(state).writer = regions_[at(body)].step;
        value(parameter).buffer = true;  // of no bytes: the state's
        state_after_.try_emplace({loop.next[k], body}, state);
        states.emplace_back(body, &loop, k);
      }
    }
    for (const auto& [body, loop, k] : states) {
      read(loop->initial[k], regions_[at(body)].step, true, true, part_[at(loop->parameter[k])]);
      const ValueId next = seen_from(loop->next[k], body);
      keep(next, body, loop->parameter[k]);
    }
  }

  // `id` must be there when `region` ends.
  void keep(ValueId id, std::int32_t region, ValueId in_place_of) {
    Value* v = &value(id);
    while (v->region == region && v->node == id && id < flow_.size() && is_name(flow_, id)) {
      id = seen_from(flow_.operands(id)[0], region);
      v = &value(id);
    }
    if (v->region != region) {  // comes from outside
      if (is_within(region, v->region)) read(id, regions_[at(region)].step, false, true);
      return;
    }
    v->needed = v->stays = true;
    if (v->in_place_of == kNone && id != in_place_of) v->in_place_of = in_place_of;
  }

  void add_results() {
    const std::vector<std::int32_t> aliases = graph::read_aliases(flow_);
    std::vector<bool> given(values_.size(), false);
    for (std::size_t i = 0; i < flow_.results().size(); ++i) {
      const NodeId input = aliases[i] == kNone ? kNone : model_.inputs()[at(aliases[i])].node;
      NodeId result = flow_.results()[i];
      ValueId id = seen_from(result, 0);
      for (; id == result && is_name(flow_, result); id = seen_from(result, 0)) result = flow_.operands(result)[0];
      if (id == input) continue;
      if (given[at(id)] || (id == result && flow_.node(id).opcode == Opcode::kParameter)) {
        if (input == kNone) out_.results += bytes_of(result);
        continue;
      }
      given[at(id)] = true;
      keep(id, 0, input);
    }
    for (const graph::FlowInput& input : flow_.inputs()) {
      value(input.node).buffer = true;
      out_.arguments += bytes_of(input.node);
    }
  }

  // `step` reads `id`; `whole`: it fuses nothing; `part`: the share that it needs of a value made of constants, which
  // the value's own part does not say (it is made as it is needed, and split by nothing).
  void read(ValueId id, std::int32_t step, bool aligned, bool whole, double part = 1) {
    id = seen_from(id, steps_[at(step)].region);
    Value& v = value(id);
    if (v.region != steps_[at(step)].region) {
      if (id < flow_.size() && sourceless_[at(id)]) {
        // Made within.
        return;
      }
      std::int32_t region = steps_[at(step)].region;
      while (region != kNone && regions_[at(region)].parent != v.region) region = regions_[at(region)].parent;
      if (region == kNone) return;
      step = regions_[at(region)].step;
      aligned = false;
      whole = true;
    }
    v.needed = v.needed || whole;
    v.part = std::max(v.part, part);
    // The last ones: finish() finds the others.
    for (std::size_t i = v.readers.size(); i > 0 && i + kMostRemade >= v.readers.size(); --i) {
      Reader& reader = v.readers[i - 1];
      if (reader.step != step) continue;
      reader.aligned = reader.aligned && aligned;
      reader.takes = reader.takes && !whole;
      return;
    }
    v.readers.push_back({step, aligned, !whole});
  }

  ValueId operand_for(NodeId reader, NodeId operand) const {
    if (copy_for_.empty()) return operand;
    const auto found = copy_for_.find({reader, operand});
    return found == copy_for_.end() ? operand : found->second;
  }

  void visit(NodeId id) {
    visit_copies(id);
    const FlowNode& node = flow_.node(id);
    Value& v = value(id);
    const bool unread = v.readers.empty() && !v.stays && !v.needed;
    if (node.opcode == Opcode::kParameter) return;
    if (flow_.producer(id) != id) {
      if (unread) return;
      v.buffer = true;
      v.bytes = bytes_of(id);
      v.needed = true;
      units_[flow_.producer(id)].push_back(id);
      return;
    }
    if (node.opcode == Opcode::kConditional && node.leaf != kNone) {
      visit_joined(id);
      return;
    }
    if (is_name(flow_, id)) {
      const ValueId operand = operand_for(id, flow_.operands(id)[0]);
      for (const Reader& reader : v.readers) read(operand, reader.step, reader.aligned, !reader.takes, v.part);
      return;
    }
    const auto unit = units_.find(id);
    if (unread && unit == units_.end()) return;
    if (unit == units_.end() && is_fusible(node.opcode) && made_where_read(id)) {
      fuse(id);
      if (!value(id).needed && value(id).readers.empty()) return;
    }
    make_step(id);
  }

  // Into all readers that can take it in.
  void fuse(NodeId id) {
    std::vector<Reader> takers, others;
    for (const Reader& reader : value(id).readers) (reader.takes ? takers : others).push_back(reader);
    value(id).readers = std::move(others);
    if (sourceless_[at(id)]) return;
    const Opcode opcode = flow_.node(id).opcode;
    for (std::size_t k = 0; k < flow_.operands(id).size(); ++k) {
      const ValueId operand = operand_for(id, flow_.operands(id)[k]);
      for (const Reader& reader : takers)
        read(operand, reader.step, reader.aligned && aligns(opcode, k), !takes_in(opcode, k));
    }
  }

  void visit_copies(NodeId id) {
    const auto found = copies_of_.find(id);
    if (found == copies_of_.end()) return;
    for (const ValueId copy : found->second) {
      if (value(copy).readers.empty()) continue;
      const std::int32_t step = add_step(id, 0, value(copy).region);
      double first = flow_.size();
      for (const Reader& reader : value(copy).readers) first = std::min(first, steps_[at(reader.step)].rank);
      steps_[at(step)].rank = first - 0.25;
      value(copy).writer = step;
      read(id, step, false, true);
    }
  }

  // Readers that can take it in make it themselves.
  bool made_where_read(NodeId id) const {
    const Opcode opcode = flow_.node(id).opcode;
    const Value& v = values_[at(id)];
    if (sourceless_[at(id)] || (v.readers.size() == 1 && !v.needed)) return true;
    if (is_costly(opcode) || v.readers.size() > kMostRemade) return false;
    int large = 0;
    double read = 0;
    for (const NodeId operand : flow_.operands(id)) {
      large += origin_[at(operand)] >= flow_.shape(id).num_elements ? 1 : 0;
      read += static_cast<double>(flow_.shape(operand).bytes);
    }
    return large <= 1 || read <= static_cast<double>(flow_.shape(id).bytes) || (!v.needed && !read_later_[at(id)]);
  }

  // The result of a conditional, which its branches write.
  void visit_joined(NodeId id) {
    Value& v = value(id);
    if (v.readers.empty() && !v.stays) return;
    const auto found = conditionals_.find({flow_.node(id).site, flow_.node(id).instruction});
    if (found == conditionals_.end()) return;
    v.buffer = true;
    v.bytes = bytes_of(id);
    v.writer = found->second;
    const Span<const NodeId> operands = flow_.operands(id);
    read(operands[0], found->second, false, true);
    const std::vector<std::int32_t> branches = steps_[at(found->second)].regions;
    for (std::size_t k = 1; k < operands.size(); ++k) {
      if (k - 1 < branches.size()) keep(seen_from(operands[k], branches[k - 1]), branches[k - 1], kNone);
      read(operands[k], found->second, false, true);
    }
  }

  void make_step(NodeId id) {
    const FlowNode& node = flow_.node(id);
    const std::int32_t step = add_step(id, id, region_of_[at(id)]);
    const auto unit = units_.find(id);
    if (unit != units_.end()) {
      for (const NodeId element : unit->second) value(element).writer = step;
    } else {
      value(id).buffer = true;
      // Constants are part of the program.
      Value& v = value(id);
      v.bytes = node.opcode == Opcode::kConstant ? 0 : bytes_of(id);
      if (sourceless_[at(id)] && !v.stays) v.bytes *= std::min(1.0, v.part);
      value(id).writer = step;
    }
    if (node.opcode == Opcode::kSelectAndScatter) steps_[at(step)].workspace += scatter_workspace(id);
    const auto whole = made_whole_.find(id);
    if (whole != made_whole_.end()) steps_[at(step)].workspace += whole->second;
    const Span<const NodeId> operands = flow_.operands(id);
    const std::vector<bool> copied = turned_operands(id);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const ValueId operand = operand_for(id, operands[k]);
      if (!copied[k]) {
        const bool aligned = aligns(node.opcode, k);
        read(operand, step, aligned, !takes_in(node.opcode, k), aligned ? part_[at(id)] : 1);
        continue;
      }
      const std::int32_t copy = add_step(operands[k], id - 0.125, region_of_[at(id)]);
      const double bytes = operand == operands[k] ? bytes_of(operand) : value(operand).bytes;
      const ValueId turned = add_value(operands[k], region_of_[at(id)], bytes);
      value(turned).writer = copy;
      read(turned, step, false, true);
      read(operand, copy, false, false);
    }
  }

  // Which operands are copied into the order that a product or a convolution reads.
  std::vector<bool> turned_operands(NodeId id) const {
    const Span<const NodeId> operands = flow_.operands(id);
    const graph::InstructionId instruction = flow_.node(id).instruction;
    std::vector<bool> turned(operands.size(), false);
    if (operands.size() < 2) return turned;
    const std::size_t left = flow_.shape(operands[0]).dims.size(), right = flow_.shape(operands[1]).dims.size();
    if (flow_.node(id).opcode == Opcode::kDot) {
      const graph::DotDimensions dims = graph::dot_dimensions(flow_.graph(), instruction);
      turned[0] = !in_order(left, dims.lhs_batch, dims.lhs_contracting);
      turned[1] = !in_order(right, dims.rhs_batch, dims.rhs_contracting);
    } else if (flow_.node(id).opcode == Opcode::kConvolution) {
      const graph::ConvolutionDimensions dims = graph::convolution_dimensions(flow_.graph(), instruction);
      turned[0] = dims.input_batch != 0 || dims.input_feature != static_cast<std::int64_t>(left) - 1;
      turned[1] = dims.kernel_input_feature != static_cast<std::int64_t>(right) - 2 ||
                  dims.kernel_output_feature != static_cast<std::int64_t>(right) - 1;
    }
    return turned;
  }

  // XLA finds the positions first: a reduce-window of the values and of their coordinates, each 4 bytes.
  double scatter_workspace(NodeId id) const {
    const graph::Shape& from = flow_.shape(flow_.operands(id)[0]);
    const graph::Shape& source = flow_.shape(flow_.operands(id)[1]);
    const double rank = static_cast<double>(from.dims.size());
    return part_[at(id)] * (4 * rank * static_cast<double>(from.num_elements + source.num_elements) +
                            static_cast<double>(source.bytes));
  }

  MemorySteps finish() {
    const std::vector<std::int32_t> place = put_steps();
    std::vector<std::int32_t> buffer_of(values_.size(), kNone), order;
    for (std::size_t v = 0; v < values_.size(); ++v) {
      if (values_[v].buffer) order.push_back(static_cast<std::int32_t>(v));
    }
    std::stable_sort(order.begin(), order.end(),
                     [this](auto a, auto b) { return values_[at(a)].region < values_[at(b)].region; });
    for (const ValueId v : order) {
      const Value& from = values_[at(v)];
      MemoryBuffer buffer;
      buffer.node = from.node;
      buffer.writer = from.writer == kNone ? kNone : place[at(from.writer)];
      buffer.stays = from.stays;
      const bool result = from.stays && from.region == 0 && from.in_place_of == kNone;
      (result ? buffer.result_bytes : buffer.bytes) = from.bytes;
      out_.results += buffer.result_bytes;
      buffer_of[at(v)] = static_cast<std::int32_t>(out_.buffers.size());
      if (out_.regions[at(from.region)].num_buffers++ == 0)
        out_.regions[at(from.region)].first_buffer = buffer_of[at(v)];
      for (const Reader& reader : from.readers)
        out_.reads.push_back({place[at(reader.step)], buffer_of[at(v)], reader.aligned});
      out_.buffers.push_back(buffer);
    }
    for (const ValueId v : order) {
      const ValueId other = values_[at(v)].in_place_of;
      if (other != kNone) out_.buffers[at(buffer_of[at(v)])].in_place_of = buffer_of[at(other)];
    }
    index_reads();
    index_writes();
    return std::move(out_);
  }

  // Where each step goes: by region, and there in the order of the text.
  std::vector<std::int32_t> put_steps() {
    std::vector<std::int32_t> order(steps_.size()), place(steps_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::sort(order.begin(), order.end(), [this](auto a, auto b) {
      const Step &x = steps_[at(a)], &y = steps_[at(b)];
      return std::make_tuple(x.region, x.rank, a) < std::make_tuple(y.region, y.rank, b);
    });
    out_.regions.resize(regions_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Step& from = steps_[at(order[i])];
      place[at(order[i])] = static_cast<std::int32_t>(i);
      out_.steps.push_back({from.node, from.workspace});
      MemoryRegion& region = out_.regions[at(from.region)];
      if (region.num_steps++ == 0) region.first_step = static_cast<std::int32_t>(i);
    }
    for (std::size_t r = 1; r < regions_.size(); ++r) out_.regions[r].around = place[at(regions_[r].step)];
    return place;
  }

  void index_reads() {
    const std::size_t n = out_.steps.size();
    std::vector<std::int32_t> next(n + 1, 0);
    for (const MemoryRead& read : out_.reads) ++next[at(read.step) + 1];
    for (std::size_t i = 0; i < n; ++i) next[i + 1] += next[i];
    std::vector<MemoryRead> reads(out_.reads.size());
    for (const MemoryRead& read : out_.reads) reads[at(next[at(read.step)]++)] = read;
    // A step that reads one buffer several times is listed there once.
    out_.reads.clear();
    out_.first_read.assign(1, 0);
    std::size_t k = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (const std::size_t first = out_.reads.size(); k < at(next[i]); ++k) {
        if (out_.reads.size() > first && out_.reads.back().buffer == reads[k].buffer) {
          out_.reads.back().aligned = out_.reads.back().aligned && reads[k].aligned;
        } else {
          out_.reads.push_back(reads[k]);
        }
      }
      out_.first_read.push_back(static_cast<std::int32_t>(out_.reads.size()));
    }
  }

  void index_writes() {
    const std::size_t n = out_.steps.size();
    out_.first_write.assign(n + 1, 0);
    for (const MemoryBuffer& buffer : out_.buffers) {
      if (buffer.writer != kNone) ++out_.first_write[at(buffer.writer) + 1];
    }
    for (std::size_t i = 0; i < n; ++i) out_.first_write[i + 1] += out_.first_write[i];
    out_.writes.resize(at(out_.first_write[n]));
    std::vector<std::int32_t> next = out_.first_write;
    for (std::size_t b = 0; b < out_.buffers.size(); ++b) {
      const std::int32_t writer = out_.buffers[b].writer;
      if (writer != kNone) out_.writes[at(next[at(writer)]++)] = static_cast<std::int32_t>(b);
    }
  }

  const sharding::ShardingModel& model_;
  const FlowGraph& flow_;
  const std::vector<double>& part_;
  const std::vector<TensorCopy>& copies_;
  MemorySteps out_;
  std::vector<Region> regions_;
  std::vector<std::int32_t> region_of_site_, region_of_;
  std::map<std::pair<std::int32_t, graph::InstructionId>, std::int32_t> conditionals_;  // -> step
  std::vector<bool> sourceless_;
  std::vector<bool> read_later_;
  // Elements of the largest tensor that it is made of element by element: not of broadcast operands.
  std::vector<std::int64_t> origin_;
  std::vector<Value> values_;
  std::vector<Step> steps_;
  std::map<std::pair<NodeId, NodeId>, ValueId> copy_for_;  // (reader, tensor)
  std::unordered_map<NodeId, std::vector<ValueId>> copies_of_;
  std::unordered_map<NodeId, double> made_whole_;
  std::unordered_map<NodeId, std::vector<NodeId>> units_;            // elements that are read
  std::map<std::pair<ValueId, std::int32_t>, ValueId> state_after_;  // (next, body) -> state
};

}  // namespace

MemorySteps memory_steps(const sharding::ShardingModel& model, const std::vector<double>& part_of_node,
                         const std::vector<TensorCopy>& copies) {
  return StepsBuilder(model, part_of_node, copies).build();
}

}  // namespace automap::partition
