#include <algorithm>
#include <unordered_map>

#include "common/base/error.h"
#include "common/graph/random_key.h"
#include "common/graph/training_step_analysis.h"
#include "common/graph/trip_count.h"

namespace automap::graph {

// A loop that hands inputs on as results, changed: several steps in one module, perhaps. The heaviest one.
InstructionId StepAnalysis::find_state_loop() const {
  std::unordered_map<NodeId, int> handed;
  for (const NodeId leaf : flow_->results()) {
    const NodeId unit = flow_->producer(leaf);
    if (unit == leaf || flow_->node(unit).opcode != Opcode::kWhile || !is_float(flow_->shape(leaf))) continue;
    const auto index = static_cast<std::size_t>(flow_->node(leaf).leaf);
    if (index >= flow_->operands(unit).size()) continue;
    const NodeId start = skip_movement(*flow_, flow_->operands(unit)[index]);
    if (flow_->node(start).opcode == Opcode::kParameter) ++handed[unit];
  }
  NodeId best = kNone;
  for (const auto& [unit, count] : handed) {
    if (best == kNone || weight(unit) > weight(best) || (weight(unit) == weight(best) && unit < best)) best = unit;
  }
  return best == kNone ? kNone : flow_->node(best).instruction;
}

// A `while` that gradients come out of although nothing before it has worked on their variables: forward and
// backward pass both run inside it.
InstructionId StepAnalysis::find_whole_step_loop(const TrainingStep& step) const {
  std::unordered_map<NodeId, std::vector<std::int32_t>> by_loop;
  for (const std::int32_t v : step.variables) {
    const EntryInput& input = step.inputs[static_cast<std::size_t>(v)];
    if (input.result == kNone) continue;
    for (const NodeId source : updates_[static_cast<std::size_t>(input.result)].sources) {
      const NodeId unit = flow_->producer(skip_movement(*flow_, source));
      if (flow_->node(unit).opcode == Opcode::kWhile) by_loop[unit].push_back(v);
    }
  }
  InstructionId found = kNone;
  std::size_t most = 0;
  for (const auto& [unit, variables] : by_loop) {
    const std::size_t count = std::min<std::size_t>(variables.size(), 64);
    std::vector<std::uint64_t> depends(n(), 0), worked(n(), 0);
    for (std::size_t v = 0; v < count; ++v) {
      const NodeId node = step.inputs[static_cast<std::size_t>(variables[v])].node;
      depends[static_cast<std::size_t>(node)] |= std::uint64_t{1} << v;
    }
    spread_forward(&depends);
    // `worked`: values that went through anything but movement of the variable alone.
    for (NodeId id = 0; id < unit; ++id) {
      const auto i = static_cast<std::size_t>(id);
      std::uint64_t bits = 0;
      for (const NodeId operand : flow_->operands(id)) bits |= worked[static_cast<std::size_t>(operand)];
      const Opcode opcode = flow_->node(id).opcode;
      const bool works = is_matmul(opcode) || opcode == Opcode::kWhile || opcode == Opcode::kReduce ||
                         opcode == Opcode::kGather || opcode == Opcode::kCustomCall || opcode == Opcode::kScatter;
      worked[i] = bits | (works ? depends[i] : 0);
    }
    std::uint64_t before = 0;
    for (const NodeId operand : flow_->operands(unit)) before |= worked[static_cast<std::size_t>(operand)];
    std::size_t inside = 0;
    for (std::size_t v = 0; v < count; ++v) inside += ((before >> v) & 1) == 0 ? 1 : 0;
    // Ties by the smaller instruction: by_loop has no order.
    const InstructionId id = flow_->node(unit).instruction;
    const InstructionId loop = graph_.instruction(id).opcode == Opcode::kWhile ? id : kNone;
    if (loop == kNone || inside * 2 <= count) continue;
    if (variables.size() > most || (variables.size() == most && loop < found)) {
      most = variables.size();
      found = loop;
    }
  }
  return found;
}

void StepAnalysis::describe_loops(TrainingStep* step) const {
  for (const InstructionId loop : step->expanded_whiles) {
    const std::int64_t turns = trip_count(graph_, loop).value_or(0);
    const std::string name = "loop " + std::string(graph_.instruction(loop).name);
    const std::string count = turns > 0 ? std::to_string(turns) : "an unknown number of";
    if (loop == step->micro_batch_loop) {
      if (turns > 0) step->micro_batches = turns;
      step->warnings.push_back(name + " adds up the gradients of " + count +
                               " micro-batches: everything is of one of them");
    } else {
      step->warnings.push_back(name + " runs " + count + " whole steps: everything is of one of them");
    }
  }
}

std::vector<StepAnalysis::TurnSlice> StepAnalysis::find_turn_slices(const TrainingStep& step) const {
  std::vector<TurnSlice> found;
  std::vector<std::int64_t> turns;
  for (const InstructionId loop : step.expanded_whiles) turns.push_back(trip_count(graph_, loop).value_or(0));
  for (std::size_t k = 0; k < step.inputs.size() && !turns.empty(); ++k) {
    const NodeId input = step.inputs[k].node;
    const Shape& whole = flow_->shape(input);
    if (!whole.is_array() || whole.dims.empty()) continue;
    for (const NodeId user : flow_->users(input)) {
      const Shape& part = flow_->shape(user);
      if (flow_->node(user).opcode != Opcode::kDynamicSlice || flow_->operands(user)[0] != input ||
          part.dims.size() != whole.dims.size() || part.dims[0] == whole.dims[0])
        continue;
      const bool one = part.dims[0] == 1;
      if (std::none_of(turns.begin(), turns.end(),
                       [&](std::int64_t t) { return t > 0 && part.dims[0] * t == whole.dims[0]; }))
        continue;
      // A turn of one sample keeps the dimension, an index loses it.
      const Span<const NodeId> readers = flow_->users(user);
      const bool loses = std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
        return is_movement(*flow_, reader) && flow_->shape(reader).dims.size() < part.dims.size();
      });
      if (one && loses && whole.dims.size() < 2) continue;
      const std::int32_t dim = one && loses ? 1 : 0;
      found.push_back({static_cast<std::int32_t>(k), dim, part.dims[static_cast<std::size_t>(dim)]});
      break;
    }
  }
  return found;
}

// Samples of one pass, and the inputs where they come in: as named; in a loop over micro-batches the slices of integer
// data that its turns read, else of any data; else as guess_batch says.
std::int64_t StepAnalysis::find_batch(TrainingStep* step, const ResultOf& result_of, const Marks& reads) const {
  const std::vector<TurnSlice> slices = find_turn_slices(*step);
  if (options_.batch_inputs != nullptr) return named_batch(step, slices);
  std::int64_t batch = 0;
  for (const bool integers : {true, false}) {
    for (const TurnSlice& slice : slices) {
      const Shape& shape = flow_->shape(step->inputs[static_cast<std::size_t>(slice.input)].node);
      if (batch == 0 && is_float(shape) != integers && result_of.count(slice.input) == 0) batch = slice.samples;
    }
  }
  if (batch == 0) return guess_batch(*step, result_of, reads, &step->batch_ambiguous);
  for (const TurnSlice& slice : slices) {
    if (slice.samples == batch && result_of.count(slice.input) == 0)
      step->batch_inputs.push_back({slice.input, slice.dim});
  }
  return batch;
}

std::int64_t StepAnalysis::named_batch(TrainingStep* step, const std::vector<TurnSlice>& slices) const {
  std::int64_t batch = 0;
  for (const std::int32_t k : match_requests(step->inputs, *options_.batch_inputs)) {
    const EntryInput& input = step->inputs[static_cast<std::size_t>(k)];
    const Shape& shape = flow_->shape(input.node);
    if (!shape.is_array() || shape.dims.empty()) {
      throw Error(ErrorKind::kData,
                  "input '" + input.name + "' is " + std::string(shape.text) +
                      ": it has no leading dimension that could be the batch",
                  "name an input that leads with the samples");
    }
    TurnSlice here{k, 0, shape.dims[0]};
    for (const TurnSlice& slice : slices) {
      if (slice.input == k) here = slice;
    }
    if (batch != 0 && here.samples != batch) {
      throw Error(ErrorKind::kData,
                  "the batch inputs disagree: '" +
                      step->inputs[static_cast<std::size_t>(step->batch_inputs[0].input)].name + "' holds " +
                      std::to_string(batch) + " samples, '" + input.name + "' " + std::to_string(here.samples),
                  "name inputs that lead with the same number of samples");
    }
    batch = here.samples;
    step->batch_inputs.push_back({k, here.dim});
  }
  return batch;
}

// The leading dimension of the step's data: that of the integer inputs (token ids, labels) if they agree; else, in an
// inference module, that of its results. 0: unknown.
std::int64_t StepAnalysis::guess_batch(const TrainingStep& step, const ResultOf& result_of, const Marks& reads,
                                       bool* ambiguous) const {
  std::unordered_map<std::int64_t, int> votes;
  for (std::size_t k = 0; k < step.inputs.size(); ++k) {
    const NodeId node = step.inputs[k].node;
    const Shape& shape = flow_->shape(node);
    if (result_of.count(static_cast<std::int32_t>(k)) != 0 || !shape.is_array() || shape.dims.empty()) continue;
    if (is_float(shape) || !reads[static_cast<std::size_t>(node)]) continue;
    if (is_random_key(shape)) continue;
    ++votes[shape.dims[0]];
  }
  if (votes.empty() && !step.training) {
    for (const NodeId leaf : flow_->results()) {
      const Shape& shape = flow_->shape(leaf);
      if (shape.is_array() && !shape.dims.empty()) ++votes[shape.dims[0]];
    }
  }
  std::int64_t batch = 0;
  int most = 0;
  for (const auto& [dimension, count] : votes) {
    if (count == most) *ambiguous = true;
    if (count > most) *ambiguous = false;
    if (count > most || (count == most && dimension > batch)) {
      most = count;
      batch = dimension;
    }
  }
  return batch;
}

}  // namespace automap::graph
