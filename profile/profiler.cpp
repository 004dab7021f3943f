#include "profile/profiler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/partitioned.h"
#include "common/graph/variable_updates.h"
#include "profile/batch_dims.h"
#include "profile/cut_bytes.h"
#include "profile/host_time.h"
#include "profile/layer_loops.h"
#include "profile/main_work.h"
#include "profile/stacked_weights.h"
#include "profile/step_positions.h"
#include "profile/step_times.h"
#include "profile/workspace.h"

namespace automap::profile {

namespace {

using graph::EntryInput;
using graph::FlowGraph;
using graph::FlowNode;
using graph::InputRole;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Part;

std::string percent(double share) {
  return std::to_string(static_cast<int>(std::lround(share * 100))) + " %";
}

class Profiler {
 public:
  Profiler(const graph::Graph& graph, const InstructionTimes& times, const ProfilerOptions& options)
      : graph_(graph), times_(times), options_(options) {
    AM_CHECK(times.ms.size() == static_cast<std::size_t>(graph.num_instructions()));
  }

  ModelProfile run() {
    graph::TrainingStepOptions step_options;
    step_options.variables = options_.variables;
    step_options.batch_inputs = options_.batch_inputs;
    step_options.weight = times_.ms;
    step_options.ignore_loss = options_.ignore_loss;
    step_ = graph::analyze_training_step(graph_, step_options);
    flow_ = &step_.flow;
    order_ = graph::order_forward(step_);
    size_ = order_.order.size();
    if (size_ < 2) {
      throw Error(ErrorKind::kData,
                  "module '" + std::string(graph_.name()) + "' has " + std::to_string(size_) +
                      " forward instruction(s) that are computed at run time; a pipeline needs at least 2",
                  "everything else follows from constants; is this the right module?");
    }
    names_ = graph::name_layers(step_, order_);
    at_ = std::make_unique<StepPositions>(step_, order_);
    stacked_ = std::make_unique<StackedWeights>(*at_, times_.whiles);
    updates_ = graph::find_variable_updates(step_);
    charge_variables(*at_, &out_);
    charge_state(*at_, &out_);
    charge_compute();
    charge_memory(*at_, *at_, &out_);
    describe();
    find_loops();
    charge_entries(*at_, &out_.profile);
    check_optimized();
    add_times();
    if (options_.places) list_places();
    cut_loops();
    list_layers();
    return std::move(out_);
  }

 private:
  std::size_t index(std::int32_t i) const { return static_cast<std::size_t>(i); }
  double bytes(NodeId id) const { return at_->bytes(id); }

  // --- w, gradients, slots, frozen weights ---

  // The position that an input is charged to. What a loop over layers alone reads belongs to its turns, whatever form
  // of it is made in front of the loop.
  std::int32_t first_use(NodeId input) const {
    const std::int32_t loop = stacked_->only_loop_of(input);
    return loop == kNone ? at_->first_use(input) : loop;
  }

  void charge_variables(const StepPositions& at, ModelProfile* out) const {
    pipeline::Profile& p = out->profile;
    for (std::vector<double>* column : {&p.w_bytes, &p.gradient_bytes, &p.slot_bytes, &p.frozen_bytes})
      column->assign(size_, 0.0);
    const auto n = static_cast<std::int32_t>(size_);
    for (std::size_t v = 0; v < step_.variables.size(); ++v) {
      const EntryInput& input = step_.inputs[index(step_.variables[v])];
      TrainableVariable variable;
      variable.parameter = input.parameter_name;
      variable.number = input.parameter;
      variable.name = input.name;
      variable.shape = std::string(flow_->shape(input.node).text);
      variable.bytes = at.bytes(input.node);
      variable.gradient_bytes = updates_.gradient_bytes[v] * at.share(input.node);
      variable.has_gradient = input.gradient != kNone;
      std::int32_t first = first_use(input.node), last = at.last_use(input.node);
      if (first == kNone) {
        // Nothing in the forward pass reads it: it lives in the last stage.
        out->warnings.push_back("variable " + variable.name + " is not used by the forward pass");
        first = last = n - 1;
      }
      variable.first_use = first + 1;
      variable.last_use = last + 1;
      variable.uses = static_cast<std::int32_t>(at.uses(input.node).size());
      p.w_bytes[index(first)] += variable.bytes;
      p.gradient_bytes[index(first)] += variable.gradient_bytes;
      out->variables.push_back(std::move(variable));
    }
    charge_slots(at, out);
    find_shared(at, out);
  }

  // A slot stands with its variable; what belongs to no one variable is spread as the weights are.
  void charge_slots(const StepPositions& at, ModelProfile* out) const {
    pipeline::Profile& p = out->profile;
    double spread = 0, weights = 0;
    for (const double w : p.w_bytes) weights += w;
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
      if (step_.inputs[k].role != InputRole::kSlot) continue;
      const double size = at.bytes(step_.inputs[k].node);
      const std::int32_t v = updates_.slot_of[k];
      if (v == kNone) {
        spread += size;
      } else {
        TrainableVariable& variable = out->variables[index(v)];
        variable.slot_bytes += size;
        p.slot_bytes[index(variable.first_use - 1)] += size;
      }
    }
    if (spread == 0) return;
    if (weights == 0) {
      p.slot_bytes.back() += spread;
      return;
    }
    for (std::size_t i = 0; i < size_; ++i) p.slot_bytes[i] += spread * (p.w_bytes[i] / weights);
  }

  // Used in places with another variable's first use between them.
  void find_shared(const StepPositions& at, ModelProfile* out) const {
    std::vector<std::int32_t> firsts;
    for (const TrainableVariable& variable : out->variables) firsts.push_back(variable.first_use - 1);
    std::sort(firsts.begin(), firsts.end());
    for (std::size_t v = 0; v < out->variables.size(); ++v) {
      const TrainableVariable& variable = out->variables[v];
      const auto& uses = at.uses(step_.inputs[index(step_.variables[v])].node);
      if (uses.size() < 2) continue;
      const auto between = std::upper_bound(firsts.begin(), firsts.end(), uses.front());
      if (between == firsts.end() || *between >= uses.back()) continue;
      out->shared.push_back(
          {static_cast<std::int32_t>(v), names_.name[index(uses.front())], names_.name[index(uses.back())]});
      out->profile.shared.push_back(
          {variable.first_use, variable.last_use, variable.bytes, variable.gradient_bytes, variable.slot_bytes});
    }
  }

  // Frozen weights and state: at their first use, else beside what their update reads, else in the last position.
  void charge_state(const StepPositions& at, ModelProfile* out) const {
    for (const EntryInput& input : step_.inputs) {
      if (input.role != InputRole::kFrozen && input.role != InputRole::kState) continue;
      std::int32_t place = first_use(input.node);
      for (const NodeId user : flow_->users(input.node)) {
        if (place != kNone) break;
        for (const NodeId operand : flow_->operands(user)) {
          if (at.part(operand) == Part::kForward) place = std::max(place, at.made_at(operand));
        }
      }
      if (place == kNone) place = static_cast<std::int32_t>(size_) - 1;
      out->profile.frozen_bytes[index(place)] += at.bytes(input.node);
    }
  }

  // --- c ---

  void charge_compute() {
    std::int32_t border = 0;
    for (const TrainableVariable& variable : out_.variables) border = std::max(border, variable.last_use - 1);
    backward_ = place_backward(*at_, border);
    charges_ = std::make_unique<StepTimes>(*at_, times_, backward_, update_places(), out_.profile.w_bytes);
    charges_->tell_weight_gradients_apart(*at_, backward_, graph_, times_);
    if (step_.training) {
      out_.profile.weight_share = shares(charges_->weight_gradients(times_.ms), charges_->backward(times_.ms));
    }
    const StepTimes::Sum sum = charges_->sum(times_.ms), waits = add_host_waits();
    out_.forward_ms = sum.forward + waits.forward;
    out_.backward_ms = sum.backward + waits.backward;
    out_.optimizer_ms = sum.optimizer;
    out_.other_ms = sum.other;
    const double both = out_.forward_ms + out_.backward_ms;
    out_.profile.forward_fraction = out_.backward_ms > 0 && both > 0 ? out_.forward_ms / both : 1.0;
    if (out_.profile.forward_fraction <= 0) out_.profile.forward_fraction = 1.0 / 3.0;
  }

  // Sets what both passes take; -> for how much of it they wait for the host.
  StepTimes::Sum add_host_waits() {
    std::vector<double>& compute = out_.profile.c_ms;
    compute = charges_->compute(times_.ms);
    const StepTimes::HostOfPasses host = charges_->host_of_passes(times_.host_ms);
    const auto add = [&](const std::vector<double>& device, const std::vector<double>& launches) {
      double waited = 0;
      std::vector<double> both = device;
      wait_for_host(&both, launches);
      for (std::size_t i = 0; i < size_; ++i) {
        compute[i] += both[i] - device[i];
        waited += both[i] - device[i];
      }
      return waited;
    };
    StepTimes::Sum waits;
    waits.forward = add(charges_->forward(times_.ms), host.forward);
    waits.backward = add(charges_->backward(times_.ms), host.backward);
    return waits;
  }

  static std::vector<double> shares(const std::vector<double>& part, const std::vector<double>& all) {
    std::vector<double> out(part.size(), 0.0);
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (all[i] > 0) out[i] = std::min(1.0, part[i] / all[i]);
    }
    return out;
  }

  // Per node of the optimizer: the position of the variable that it works for.
  std::vector<std::int32_t> update_places() const {
    std::vector<std::int32_t> places(updates_.worker_of.size(), kNone);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int32_t v = updates_.worker_of[i];
      if (v != kNone) places[i] = out_.variables[index(v)].first_use - 1;
    }
    return places;
  }

  // --- a, k, workspace ---

  // `kept`: the same with what is kept of every tensor for the backward pass.
  void charge_memory(const StepPositions& at, const StepPositions& kept, ModelProfile* out) const {
    const FusedChains* chains = options_.estimator == nullptr ? nullptr : &options_.estimator->structure().fused;
    const FusedPositions fused(at, chains);
    out->profile.a_bytes = crossing_bytes(at, fused);
    const Stash stash = stash_bytes(kept, FusedPositions(kept, chains), times_.whiles);
    out->profile.stash_bytes = stash.bytes;
    for (const double bytes : stash.bytes) out->memory.stash_bytes += bytes;
    out->profile.workspace_bytes = workspace_bytes(at, fused, backward_, stash.kept, options_.estimator);
  }

  // Charges the bytes that enter layers and stages. Each turn of a loop over layers is a layer.
  template <typename Columns>
  void charge_entries(const StepPositions& at, Columns* out) const {
    if (!step_.training) return;
    std::vector<bool> starts(size_, true);
    for (std::size_t p = 1; p < size_; ++p) starts[p] = names_.name[p] != names_.name[p - 1];
    for (const LayerLoop& loop : layer_loops_) {
      starts[index(loop.position)] = true;
      if (index(loop.position) + 1 < size_) starts[index(loop.position) + 1] = true;
    }
    const FusedChains* chains = options_.estimator == nullptr ? nullptr : &options_.estimator->structure().fused;
    EntryBytes entries = entry_bytes(at, FusedPositions(at, chains), starts);
    out->layer_entry_bytes = std::move(entries.layer);
    out->stage_entry_bytes = std::move(entries.stage);
  }

  // --- Replicas of several devices ---

  static std::vector<double> sums(std::vector<double> a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }

  // The columns of the bytes; times come with the others.
  pipeline::WidthColumns columns_at(const WidthParts& parts) const {
    AM_CHECK(parts.tensor_share.size() == static_cast<std::size_t>(flow_->size()));
    AM_CHECK(parts.copy_share.size() == parts.tensor_share.size());
    AM_CHECK(parts.op_share.size() == static_cast<std::size_t>(graph_.num_instructions()));
    AM_CHECK(parts.inner_share.size() == parts.op_share.size());
    AM_CHECK(parts.inner_copy_share.size() == parts.op_share.size());
    const StepPositions at(step_, order_, &parts.tensor_share, &parts.inner_share);
    ModelProfile of_parts;
    charge_variables(at, &of_parts);
    charge_state(at, &of_parts);
    const std::vector<double> kept = sums(parts.tensor_share, parts.copy_share);
    const std::vector<double> kept_inside = sums(parts.inner_share, parts.inner_copy_share);
    charge_memory(at, StepPositions(step_, order_, &kept, &kept_inside), &of_parts);
    pipeline::Profile& p = of_parts.profile;
    pipeline::WidthColumns out;
    out.width = parts.width;
    out.w_bytes = std::move(p.w_bytes);
    out.gradient_bytes = std::move(p.gradient_bytes);
    out.slot_bytes = std::move(p.slot_bytes);
    out.frozen_bytes = std::move(p.frozen_bytes);
    out.stash_bytes = std::move(p.stash_bytes);
    out.workspace_bytes = std::move(p.workspace_bytes);
    out.shared = std::move(p.shared);
    charge_entries(at, &out);
    return out;
  }

  CollectiveCharges collective_charges(const WidthParts& parts, const BatchDims& batch) const {
    AM_CHECK(parts.collectives.size() == options_.devices.size());
    CollectiveCharges out;
    out.parts = &parts;
    for (const auto& collectives : parts.collectives) {
      out.by_device.emplace_back();
      for (const WidthParts::Collective& c : collectives) {
        CollectiveCharges::Charge charge;
        using When = CollectiveCharges::Charge::When;
        const Part part = at_->part(c.node);
        charge.when = part == Part::kForward    ? When::kForward
                      : part == Part::kBackward ? When::kBackward
                                                : When::kUpdate;
        charge.position = charge.when == When::kForward    ? at_->made_at(c.node)
                          : charge.when == When::kBackward ? backward_[index(c.node)]
                                                           : 0;
        if (charge.position == kNone) charge.position = 0;
        charge.grows = batch.marks.any(flow_->node(c.node).instruction);
        charge.ms = c.ms;
        charge.bytes = c.bytes;
        charge.time = c.time;
        out.by_device.back().push_back(charge);
      }
    }
    return out;
  }

  // --- Times at other numbers of samples ---

  void add_times() {
    out_.profile.accumulated_micro_batches = static_cast<std::int32_t>(
        std::min<std::int64_t>(step_.micro_batches, std::numeric_limits<std::int32_t>::max()));
    if (options_.estimator == nullptr || options_.devices.empty()) return;
    const BatchDims batch = find_batch_dims(graph_, step_);
    if (!batch.problem.empty()) {
      out_.times_problem = batch.problem;
      std::string names;
      constexpr std::size_t kNamed = 4;
      for (std::size_t i = 0; i < batch.inputs.size() && i < kNamed; ++i)
        names += (i == 0 ? "" : ", ") + batch.inputs[i];
      if (batch.inputs.size() > kNamed) names += ", ...";
      out_.warnings.push_back("times at other numbers of samples are proportional: " + batch.problem +
                              (names.empty() ? ""
                                             : "; name its inputs that lead with the samples, --batch-input " +
                                                   std::string("NAME[,NAME]: ") + names));
      return;
    }
    if (batch.made_up) {
      out_.warnings.push_back(
          "places that the forward pass sorts samples into (the capacity of experts) are taken to grow with the "
          "samples");
    }
    std::vector<std::int64_t> samples = options_.samples.empty() ? default_samples(step_.batch) : options_.samples;
    samples.push_back(step_.batch);
    std::sort(samples.begin(), samples.end());
    samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
    std::vector<CollectiveCharges> collectives;
    for (const WidthParts& parts : options_.widths) collectives.push_back(collective_charges(parts, batch));
    TimesAt found =
        times_at(*charges_, *options_.estimator, graph_, times_, batch, options_.devices, samples, collectives);
    out_.profile.times = std::move(found.own);
    for (std::size_t w = 0; w < options_.widths.size(); ++w) {
      pipeline::WidthColumns columns = columns_at(options_.widths[w]);
      columns.times = std::move(found.by_width[w]);
      const auto own = std::find(samples.begin(), samples.end(), step_.batch) - samples.begin();
      columns.weight_share =
          shares(found.weight_gradients_ms[w], columns.times.front().backward_ms[static_cast<std::size_t>(own)]);
      for (const auto& of_device : collectives[w].by_device) {
        columns.collective_ms.emplace_back(size_, 0.0);
        for (const CollectiveCharges::Charge& charge : of_device)
          columns.collective_ms.back()[index(charge.position)] += charge.ms;
      }
      out_.profile.widths.push_back(std::move(columns));
      for (LayerLoop& loop : layer_loops_) {
        loop.carried_at_widths.push_back(
            carried_bytes(order_.order[index(loop.position)], loop.turns, &options_.widths[w].tensor_share));
      }
    }
  }

  // --- The rest ---

  void describe() {
    pipeline::Profile& profile = out_.profile;
    profile.model = options_.model;
    profile.device = options_.device;
    profile.micro_batch_size = static_cast<double>(step_.batch);
    profile.source_sha256 = options_.source_sha256;
    for (const NodeId id : order_.order) {
      const FlowNode& node = flow_->node(id);
      profile.name.emplace_back(graph_.instruction(node.instruction).name);
      profile.op_name.push_back(graph_.op_name(node.instruction));
    }
    profile.layer = names_.name;
    out_.layers_from_metadata = names_.from_metadata;
    out_.training = step_.training;
    out_.split = step_.split;
    out_.variables_found_by = step_.variables_found_by;
    out_.loss_found_by = step_.loss_found_by;
    out_.loss_result = step_.loss_result;
    for (const EntryInput& input : step_.inputs) {
      const double size = bytes(input.node);
      switch (input.role) {
        case InputRole::kVariable: out_.memory.variable_bytes += size; break;
        case InputRole::kSlot: out_.memory.slot_bytes += size; break;
        case InputRole::kFrozen: out_.memory.frozen_bytes += size; break;
        case InputRole::kState: out_.memory.state_bytes += size; break;
        case InputRole::kStepInput: out_.memory.input_bytes += size; break;
        case InputRole::kUnused: break;
      }
    }
    graph::ModuleCost own;
    if (options_.estimator == nullptr) own = graph::analyze_cost(graph_, graph::WhileCounting::kOnce);
    const graph::ModuleCost& once = options_.estimator == nullptr ? own : options_.estimator->cost();
    out_.profile.work = main_work(graph_, once);
    out_.total_flops = once.total.flops;
    graph::ModuleCost turns;
    if (!times_.whiles.empty()) turns = graph::analyze_cost(graph_, graph::WhileCounting::kTripCount);
    const graph::ModuleCost& executed = times_.whiles.empty() ? once : turns;
    out_.executed_flops = executed.total.flops;
    for (NodeId id = 0; id < flow_->size(); ++id) {
      if (at_->part(id) != Part::kForward || !charges_->runs(id)) continue;
      const auto instruction = static_cast<std::size_t>(flow_->node(id).instruction);
      out_.forward_flops += once.instructions[instruction].flops;
      out_.executed_forward_flops += executed.instructions[instruction].flops;
    }
    std::vector<bool> runs(static_cast<std::size_t>(flow_->size()));
    for (NodeId id = 0; id < flow_->size(); ++id) runs[index(id)] = charges_->runs(id);
    const FusedChains* chains = options_.estimator == nullptr ? nullptr : &options_.estimator->structure().fused;
    out_.work = model_work(graph_, step_, runs, chains, times_.whiles);
    out_.warnings.insert(out_.warnings.end(), step_.warnings.begin(), step_.warnings.end());
    out_.warnings.insert(out_.warnings.end(), times_.notices.begin(), times_.notices.end());
    if (graph::works_on_shards(graph_)) {
      out_.warnings.emplace_back(
          "parts of the step are written for one device's part of their values (shard_map): they are counted with the "
          "shapes and collectives that stand there, as if one device did no more");
    }
    if (once.custom_calls > 0) {
      const double share = once.custom_call_bytes / std::max(1.0, once.total.bytes + once.custom_call_bytes);
      out_.warnings.push_back(
          (once.custom_calls == 1 ? "1 custom call" : std::to_string(once.custom_calls) + " custom calls") +
          " whose FLOPs nobody knows count as 0; of all bytes that are read and written they move " +
          format_percent(share));
    }
  }

  // --- Loops ---

  // Activations that a loop's turns hand on, each with another value: not what each puts on a stack of all turns.
  // `share`: by node, what of its bytes counts; null: all.
  double carried_bytes(NodeId loop, std::int64_t turns, const std::vector<double>* share) const {
    const graph::Instruction& instruction = graph_.instruction(flow_->node(loop).instruction);
    const graph::Shape& state = graph_.shape(instruction.shape);
    const auto called = graph_.called(flow_->node(loop).instruction);
    if (!state.is_tuple() || called.size() != 2) return 0;
    // The body hands on a tuple; what it hands on as it came is no activation of a turn.
    double bytes = 0;
    for (const graph::ComputationId c : called) {
      const graph::InstructionId root = graph_.computation(c).root;
      if (graph_.instruction(root).opcode != Opcode::kTuple) continue;
      const auto elements = graph_.operands(root);
      for (std::size_t i = 0; i < elements.size() && i < state.elements.size(); ++i) {
        const graph::Shape& shape = graph_.shape(state.elements[i]);
        const graph::Instruction& made = graph_.instruction(elements[i]);
        const bool as_it_came = made.opcode == Opcode::kGetTupleElement && made.number == static_cast<std::int64_t>(i);
        const bool stack = !shape.dims.empty() && shape.dims[0] == turns;
        if (shape.is_array() && !shape.dims.empty() && !as_it_came && !stack) {
          const double held = share == nullptr ? 1 : (*share)[static_cast<std::size_t>(result_of(loop, i))];
          bytes += static_cast<double>(shape.bytes) * held;
        }
      }
    }
    return bytes;
  }

  // Element `i` of what a loop ends with, or the loop where nobody reads that.
  NodeId result_of(NodeId loop, std::size_t i) const {
    for (const NodeId user : flow_->users(loop)) {
      if (at_->is_projection(user) && flow_->node(user).leaf == static_cast<std::int32_t>(i)) return user;
    }
    return loop;
  }

  // "decoder/layers": what the names of the stacked weights begin with alike, without the last component of each.
  static std::string common_path(const std::vector<std::string>& names) {
    std::vector<std::string> common;
    for (std::size_t n = 0; n < names.size(); ++n) {
      std::vector<std::string> parts;
      std::string part;
      for (const char c : names[n]) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') {
          part.push_back(c);
        } else if (!part.empty()) {
          parts.push_back(std::exchange(part, ""));
        }
      }
      if (n == 0) {
        common = parts;
        continue;
      }
      std::size_t same = 0;
      while (same < std::min(common.size(), parts.size()) && common[same] == parts[same]) ++same;
      common.resize(same);
    }
    std::string path;
    for (const std::string& one : common) path += (path.empty() ? "" : "/") + one;
    return path;
  }

  // Every `while` among the positions: those over layers become their turns, of others it is said when they hold most
  // of the compute or of the weights.
  void find_loops() {
    const pipeline::Profile& p = out_.profile;
    double compute = 0, weights = 0, all_compute = 0, all_weights = 0;
    for (const double c : p.c_ms) compute += c;
    std::map<std::int32_t, UncutLoop> found;
    std::map<std::int32_t, LayerLoop> over_layers;
    std::map<std::int32_t, std::vector<std::string>> names;  // of stacked weights
    for (const NodeId id : order_.order) {
      if (flow_->node(id).opcode != Opcode::kWhile) continue;
      const std::int32_t position = at_->position(id);
      UncutLoop loop;
      loop.position = position + 1;
      loop.turns = stacked_->turns_at(position);
      loop.compute_share = compute > 0 ? p.c_ms[index(position)] / compute : 0;
      loop.why = loop.turns > 0 ? "no weights are stacked in it, a slice for each turn"
                                : "the module does not say how often it runs";
      if (!found.emplace(position, loop).second) continue;
      LayerLoop turns;
      turns.position = position;
      turns.turns = loop.turns;
      turns.carried_bytes = carried_bytes(id, loop.turns, nullptr);
      over_layers.emplace(position, std::move(turns));
    }
    if (found.empty()) return;
    for (const EntryInput& input : step_.inputs) {
      const bool frozen = input.role == InputRole::kFrozen;
      if (input.role != InputRole::kVariable && !frozen) continue;
      if (input.role == InputRole::kVariable || !step_.training) weights += bytes(input.node);
      const std::int32_t stack = stacked_->loop_of(input.node);
      const auto loop = found.find(stack == kNone ? at_->last_use(input.node) : stack);
      if (loop == found.end()) continue;
      if (input.role == InputRole::kVariable || !step_.training) loop->second.weight_share += bytes(input.node);
      LayerLoop& turns = over_layers.at(loop->first);
      if (stack == loop->first) {
        loop->second.layers = true;
        names[loop->first].push_back(input.name);
      } else if (frozen && first_use(input.node) == loop->first) {
        turns.whole_frozen += bytes(input.node);
      }
    }
    for (std::size_t v = 0; v < out_.variables.size(); ++v) {
      const TrainableVariable& variable = out_.variables[v];
      const auto turns = over_layers.find(variable.first_use - 1);
      if (turns == over_layers.end()) continue;
      if (stacked_->loop_of(step_.inputs[index(step_.variables[v])].node) == turns->first) continue;
      turns->second.whole_weights += variable.bytes;
      turns->second.whole_gradients += variable.gradient_bytes;
      turns->second.whole_slots += variable.slot_bytes;
    }
    for (auto& [position, loop] : found) {
      loop.weight_share = weights > 0 ? loop.weight_share / weights : 0;
      LayerLoop& turns = over_layers.at(position);
      if (loop.layers && !options_.whole_loops) {
        if (!names_.inside[index(position)]) turns.layer = common_path(names.at(position));
        if (turns.layer.empty())
          turns.layer = p.layer[index(position)].empty() ? p.name[index(position)] : p.layer[index(position)];
        layer_loops_.push_back(std::move(turns));
        continue;
      }
      if (loop.layers) loop.why = "it was asked to stay whole";
      all_compute += loop.compute_share;
      all_weights += loop.weight_share;
    }
    if (all_compute < 0.5 && all_weights < 0.5) return;
    for (const auto& [position, loop] : found) {
      if (loop.layers && !options_.whole_loops) continue;
      if (loop.compute_share < 0.1 && loop.weight_share < 0.1) continue;
      out_.uncut_loops.push_back(loop);
      const std::string turns = loop.turns > 0 ? std::to_string(loop.turns) : "an unknown number of";
      out_.warnings.push_back(turns + (loop.layers ? " layers run in one loop (" : " turns of one loop (") +
                              p.name[index(position)] + "): one position with " + percent(loop.compute_share) +
                              " of the compute and " + percent(loop.weight_share) +
                              " of the weights, cannot be cut: " + loop.why);
    }
  }

  // All that names positions names turns from here on.
  void cut_loops() {
    if (layer_loops_.empty()) return;
    const Turns turns(static_cast<std::int32_t>(size_), std::move(layer_loops_));
    out_.profile = turns.cut(out_.profile);
    for (TrainableVariable& variable : out_.variables) {
      variable.first_use = turns.first(variable.first_use - 1) + 1;
      variable.last_use = turns.last(variable.last_use - 1) + 1;
    }
    for (UncutLoop& loop : out_.uncut_loops) loop.position = turns.first(loop.position - 1) + 1;
    for (WorkPlace& place : out_.places) {
      if (place.first == kNone) continue;
      place.last = turns.last(place.last);
      place.first = turns.first(place.first);
    }
  }

  void list_places() {
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const Part part = at_->part(id);
      if (!charges_->runs(id) || part == Part::kFree || part == Part::kInput) continue;
      WorkPlace place;
      place.instruction = flow_->node(id).instruction;
      place.part = part;
      place.ms = times_.ms[index(place.instruction)];
      if (part == Part::kForward) place.first = at_->position(id);
      if (part == Part::kBackward) place.first = backward_[index(id)];
      if ((part == Part::kForward || part == Part::kBackward) && place.first == kNone) continue;
      place.last = place.first;
      out_.places.push_back(place);
    }
  }

  void list_layers() {
    const pipeline::Profile& profile = out_.profile;
    for (std::size_t p = 0; p < profile.layer.size(); ++p) {
      if (out_.layers.empty() || out_.layers.back().name != profile.layer[p]) {
        LayerSummary layer;
        layer.name = profile.layer[p];
        layer.first_instruction = static_cast<std::int32_t>(p) + 1;
        out_.layers.push_back(std::move(layer));
      }
      LayerSummary& layer = out_.layers.back();
      layer.last_instruction = static_cast<std::int32_t>(p) + 1;
      layer.c_ms += profile.c_ms[p];
      layer.w_bytes += profile.w_bytes[p];
      layer.stash_bytes += profile.stash_bytes[p];
      layer.a_bytes = profile.a_bytes[p];
    }
  }

  // Fusions and schedules are made by the compiler: no framework writes them.
  void check_optimized() {
    std::int64_t fusions = 0;
    for (graph::InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      if (graph_.instruction(id).opcode == Opcode::kFusion && graph_.attribute(id, "kind")) ++fusions;
    }
    const auto scheduled = graph_.header_attribute("is_scheduled");
    const bool is_scheduled = scheduled && *scheduled == "true";
    if (fusions == 0 && !is_scheduled) return;
    out_.optimized = true;
    out_.warnings.insert(
        out_.warnings.begin(),
        "this is HLO after optimization (" +
            (fusions > 0 ? std::to_string(fusions) + (fusions == 1 ? " fusion" : " fusions") : "it is scheduled") +
            "): variables, layers and times are not reliable; give the module from before, "
            "*.before_optimizations.txt in the folder of --xla_dump_to (docs/getting-hlo.md)");
  }

  const graph::Graph& graph_;
  const InstructionTimes& times_;
  const ProfilerOptions& options_;
  graph::TrainingStep step_;
  const FlowGraph* flow_ = nullptr;
  graph::FlowOrder order_;
  graph::LayerNames names_;
  graph::VariableUpdates updates_;
  std::unique_ptr<StepPositions> at_;
  std::unique_ptr<StackedWeights> stacked_;
  std::unique_ptr<StepTimes> charges_;
  std::vector<std::int32_t> backward_;  // per node: the position that a backward node belongs to
  std::size_t size_ = 0;                // positions before loops are cut into turns
  std::vector<LayerLoop> layer_loops_;  // ascending
  ModelProfile out_;
};

}  // namespace

std::vector<std::int64_t> default_samples(std::int64_t batch) {
  constexpr std::int64_t kTimes = 4, kLeastReach = 32;
  const std::int64_t reach = std::max(kTimes * batch, kLeastReach);
  std::vector<std::int64_t> samples;
  for (std::int64_t b = 1; b <= reach && samples.size() < 40; b *= 2) samples.push_back(b);
  samples.push_back(batch);
  std::sort(samples.begin(), samples.end());
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  return samples;
}

ModelProfile build_profile(const graph::Graph& graph, const InstructionTimes& times, const ProfilerOptions& options) {
  return Profiler(graph, times, options).run();
}

}  // namespace automap::profile
