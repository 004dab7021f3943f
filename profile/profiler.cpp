#include "profile/profiler.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/graph/hlo_cost.h"

namespace automap::profile {

namespace {

using graph::EntryInput;
using graph::FlowGraph;
using graph::FlowNode;
using graph::InputRole;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Origin;
using graph::Part;

class Profiler {
 public:
  Profiler(const graph::Graph& graph, const InstructionTimes& times, const ProfilerOptions& options)
      : graph_(graph), times_(times), options_(options) {
    AM_CHECK(times.ms.size() == static_cast<std::size_t>(graph.num_instructions()));
  }

  ModelProfile run() {
    graph::TrainingStepOptions step_options;
    step_options.variables = options_.variables;
    step_options.weight = times_.ms;
    step_options.ignore_loss = options_.ignore_loss;
    step_ = graph::analyze_training_step(graph_, step_options);
    flow_ = &step_.flow;
    n_ = static_cast<std::size_t>(flow_->size());
    find_node_times();
    order_ = graph::order_forward(step_);
    size_ = order_.order.size();
    if (size_ < 2) {
      throw Error(ErrorKind::kData,
                  "module '" + std::string(graph_.name()) + "' has " + std::to_string(size_) +
                      " forward instruction(s) that are computed at run time; a pipeline needs at least 2",
                  "everything else follows from constants; is this the right module?");
    }
    names_ = graph::name_layers(step_, order_);
    out_.profile.c_ms.assign(size_, 0);
    out_.profile.a_bytes.assign(size_, 0);
    out_.profile.w_bytes.assign(size_, 0);
    out_.profile.stash_bytes.assign(size_, 0);
    find_uses();
    charge_variables();
    charge_compute();
    charge_activations();
    charge_stash();
    describe();
    return std::move(out_);
  }

 private:
  std::int32_t position(NodeId id) const { return order_.position[static_cast<std::size_t>(id)]; }
  Part part(NodeId id) const { return step_.part[static_cast<std::size_t>(id)]; }
  Origin origin(NodeId id) const { return order_.origin[static_cast<std::size_t>(id)]; }
  double bytes(NodeId id) const { return static_cast<double>(flow_->shape(id).bytes); }
  bool is_projection(NodeId id) const { return flow_->producer(id) != id; }

  // Of one execution of the step: the instruction's time, times the trips of the expanded loops around it, nothing in
  // the branches of a conditional that are not the most expensive one.
  void find_node_times() {
    const auto& sites = flow_->sites();
    const std::size_t s = sites.size();
    std::vector<double> own(s, 0), factor(s, 1);
    const auto counts = [&](NodeId id) {
      const FlowNode& node = flow_->node(id);
      return node.opcode != Opcode::kGetTupleElement && node.opcode != Opcode::kParameter &&
             !(node.opcode == Opcode::kConditional && node.leaf != kNone) &&
             !(node.opcode == Opcode::kOptBarrier && node.leaf > 0);
    };
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const std::int32_t site = flow_->node(id).site;
      if (site != kNone && counts(id))
        own[static_cast<std::size_t>(site)] += times_.ms[static_cast<std::size_t>(flow_->node(id).instruction)];
    }
    std::unordered_map<InstructionId, double> trips;
    for (const InstructionTimes::While& loop : times_.whiles)
      trips[loop.instruction] = static_cast<double>(std::max<std::int64_t>(0, loop.trip_count));
    const auto repeat = [&](const graph::CallSite& site) {
      if (graph_.instruction(site.caller).opcode != Opcode::kWhile) return 1.0;
      const auto found = trips.find(site.caller);
      return found == trips.end() ? 1.0 : found->second;
    };
    // Inside out (a site is numbered after its caller's), then outside in. The branches of one conditional are children
    // of one site and follow each other's subtrees.
    std::map<std::pair<std::int32_t, InstructionId>, std::vector<std::size_t>> conditionals;
    std::vector<double> total = own;
    for (std::size_t i = s; i-- > 0;) {
      total[i] *= repeat(sites[i]);
      if (sites[i].branch != kNone) {
        auto& branches = conditionals[{sites[i].parent, sites[i].caller}];
        branches.push_back(i);
        if (sites[i].branch != 0) continue;
        // Branch 0 comes last in this direction: all are known.
        const double most = total[*std::max_element(branches.begin(), branches.end(),
                                                    [&](std::size_t a, std::size_t b) { return total[a] < total[b]; })];
        if (sites[i].parent != kNone) total[static_cast<std::size_t>(sites[i].parent)] += most;
        continue;
      }
      if (sites[i].parent != kNone) total[static_cast<std::size_t>(sites[i].parent)] += total[i];
    }
    std::vector<bool> dropped(s, false);
    for (const auto& [key, branches] : conditionals) {
      // Highest site number first; the first of equals wins so that ties do not depend on anything else.
      std::size_t best = branches.back();
      for (const std::size_t b : branches) {
        if (total[b] > total[best] || (total[b] == total[best] && b < best)) best = b;
      }
      for (const std::size_t b : branches) dropped[b] = b != best;
    }
    for (std::size_t i = 0; i < s; ++i) {
      factor[i] = dropped[i] ? 0.0 : repeat(sites[i]);
      if (sites[i].parent != kNone) factor[i] *= factor[static_cast<std::size_t>(sites[i].parent)];
    }
    node_ms_.assign(n_, 0);
    once_.assign(n_, 0);
    for (NodeId id = 0; id < flow_->size(); ++id) {
      if (!counts(id)) continue;
      const FlowNode& node = flow_->node(id);
      const double f = node.site == kNone ? 1.0 : factor[static_cast<std::size_t>(node.site)];
      node_ms_[static_cast<std::size_t>(id)] = f * times_.ms[static_cast<std::size_t>(node.instruction)];
      once_[static_cast<std::size_t>(id)] = f > 0 ? 1 : 0;
    }
  }

  // uses_: per input or preparation node, the positions of the main forward instructions that read it, ascending.
  void find_uses() {
    uses_.assign(n_, {});
    for (NodeId id = flow_->size(); id-- > 0;) {
      if (origin(id) == Origin::kFlow || origin(id) == Origin::kNothing) continue;
      if (part(id) != Part::kForward && part(id) != Part::kInput) continue;
      auto& mine = uses_[static_cast<std::size_t>(id)];
      for (const NodeId user : flow_->users(id)) {
        if (part(user) != Part::kForward) continue;
        // A penalty on the weight: computed where the weight is, only a number travels.
        if (origin(user) == Origin::kWeights && flow_->shape(user).num_elements <= 1 &&
            flow_->shape(id).num_elements > 1)
          continue;
        if (origin(user) == Origin::kFlow) {
          if (position(user) != kNone) mine.push_back(position(user));
        } else {
          const auto& theirs = uses_[static_cast<std::size_t>(user)];
          mine.insert(mine.end(), theirs.begin(), theirs.end());
          // A preparation that is a result of its own.
          if (theirs.empty() && position(user) != kNone) mine.push_back(position(user));
        }
      }
      std::sort(mine.begin(), mine.end());
      mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
    }
  }

  // --- w ---

  void charge_variables() {
    const auto n = static_cast<std::int32_t>(size_);
    std::vector<std::int32_t> firsts;
    for (const std::int32_t v : step_.variables) {
      const EntryInput& input = step_.inputs[static_cast<std::size_t>(v)];
      TrainableVariable variable;
      variable.parameter = input.parameter_name;
      variable.number = input.parameter;
      variable.name = input.name;
      variable.shape = std::string(flow_->shape(input.node).text);
      variable.bytes = bytes(input.node);
      variable.has_gradient = input.gradient != kNone;
      std::int32_t first = n, last = -1;
      for (const NodeId user : flow_->users(input.node)) {
        if (part(user) == Part::kForward && position(user) != kNone) first = std::min(first, position(user));
      }
      const auto& uses = uses_[static_cast<std::size_t>(input.node)];
      if (!uses.empty()) {
        first = std::min(first, uses.front());
        last = uses.back();
      }
      if (first == n) {
        // Nothing in the forward pass reads it: it lives in the last stage.
        out_.warnings.push_back("variable " + variable.name + " is not used by the forward pass");
        first = n - 1;
      }
      variable.first_use = first + 1;
      variable.last_use = std::max(first, last) + 1;
      variable.uses = static_cast<std::int32_t>(uses.size());
      out_.profile.w_bytes[static_cast<std::size_t>(first)] += variable.bytes;
      firsts.push_back(first);
      out_.variables.push_back(std::move(variable));
    }
    // Used in places with another variable's first use between them.
    std::sort(firsts.begin(), firsts.end());
    for (std::size_t v = 0; v < out_.variables.size(); ++v) {
      const auto& uses =
          uses_[static_cast<std::size_t>(step_.inputs[static_cast<std::size_t>(step_.variables[v])].node)];
      if (uses.size() < 2) continue;
      const auto between = std::upper_bound(firsts.begin(), firsts.end(), uses.front());
      if (between == firsts.end() || *between >= uses.back()) continue;
      graph::NodeId first_node = order_.order[static_cast<std::size_t>(uses.front())];
      graph::NodeId last_node = order_.order[static_cast<std::size_t>(uses.back())];
      out_.shared.push_back(
          {static_cast<std::int32_t>(v), layer_at(position(first_node)), layer_at(position(last_node))});
    }
  }

  const std::string& layer_at(std::int32_t p) const { return names_.name[static_cast<std::size_t>(p)]; }

  // --- c ---

  void charge_compute() {
    auto& c = out_.profile.c_ms;
    std::vector<std::int32_t> belongs(n_, kNone);
    assign_backward(&belongs);
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      const double ms = node_ms_[i];
      switch (part(id)) {
        case Part::kForward:
          out_.forward_ms += ms;
          if (position(id) != kNone) {
            c[static_cast<std::size_t>(position(id))] += ms;
          } else {
            AM_CHECK(ms == 0);
          }
          break;
        case Part::kBackward:
          out_.backward_ms += ms;
          c[static_cast<std::size_t>(belongs[i])] += ms;
          break;
        case Part::kOptimizer: out_.optimizer_ms += ms; break;
        case Part::kGlue: out_.other_ms += ms; break;
        case Part::kFree:
        case Part::kInput: break;
      }
    }
    const double both = out_.forward_ms + out_.backward_ms;
    out_.profile.forward_fraction = out_.backward_ms > 0 && both > 0 ? out_.forward_ms / both : 1.0;
    if (out_.profile.forward_fraction <= 0) out_.profile.forward_fraction = 1.0 / 3.0;
  }

  // The position each backward node belongs to.
  //
  // A gradient comes from the loss and moves towards the first instruction: what reads a gradient that has reached
  // position p belongs to p or before (else values would travel forward between stages during the backward pass).
  // Within that bound, a node that reads a forward value, or a weight, belongs to the latest reader of that value: it
  // is the gradient of one of them. Nodes that read forward values only (masks, recomputed activations) have no bound
  // and stand with what they read.
  void assign_backward(std::vector<std::int32_t>* belongs) {
    const auto last = static_cast<std::int32_t>(size_) - 1;
    std::int32_t border = 0;
    for (const TrainableVariable& variable : out_.variables) border = std::max(border, variable.last_use - 1);
    // Readers of forward activations.
    std::vector<std::vector<std::int32_t>> readers(n_);
    for (const NodeId id : order_.order) {
      if (origin(id) != Origin::kFlow) continue;
      for (const NodeId operand : flow_->operands(id)) {
        auto& list = readers[static_cast<std::size_t>(operand)];
        if (!is_projection(id) && (list.empty() || list.back() != position(id))) list.push_back(position(id));
      }
    }
    std::vector<std::int32_t> latest(n_, kNone);  // of the forward values a node depends on
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (part(id) != Part::kBackward) continue;
      std::int32_t bound = last, local = kNone;
      bool has_gradient = false;
      for (const NodeId operand : flow_->operands(id)) {
        const auto o = static_cast<std::size_t>(operand);
        if (part(operand) == Part::kForward && origin(operand) == Origin::kFlow)
          latest[i] = std::max(latest[i], forward_position(operand));
        if (part(operand) != Part::kBackward) continue;
        latest[i] = std::max(latest[i], latest[o]);
        if (latest[o] >= border) {
          has_gradient = true;
          bound = std::min(bound, (*belongs)[o]);
        }
      }
      for (const NodeId operand : flow_->operands(id)) {
        const auto o = static_cast<std::size_t>(operand);
        std::int32_t at = kNone;
        if (part(operand) == Part::kBackward) {
          if (latest[o] < border) at = (*belongs)[o];
          // A weight in another form, made for the backward pass.
          const NodeId root = graph::skip_movement(*flow_, operand);
          if (latest[o] == kNone && root != operand && part(root) == Part::kInput)
            at = latest_use(uses_[static_cast<std::size_t>(root)], bound, !has_gradient);
        } else if (part(operand) == Part::kInput ||
                   (part(operand) == Part::kForward && origin(operand) != Origin::kFlow)) {
          at = latest_use(uses_[o], bound, !has_gradient);
        } else if (part(operand) == Part::kForward) {
          at = has_gradient ? latest_use(readers[o], bound, false) : kNone;
          if (at == kNone) at = forward_position(operand);
        }
        local = std::max(local, at);
      }
      std::int32_t result = local == kNone ? bound : std::min(bound, local);
      // A node that reads nothing but constants and inputs: with the node that reads it; the last instruction will do.
      if (local == kNone && !has_gradient) result = kUnplaced;
      (*belongs)[i] = result;
    }
    // Preparations without a place: where their first reader is.
    for (NodeId id = flow_->size(); id-- > 0;) {
      const auto i = static_cast<std::size_t>(id);
      if (part(id) != Part::kBackward || (*belongs)[i] != kUnplaced) continue;
      std::int32_t best = kNone;
      for (const NodeId user : flow_->users(id)) {
        if (part(user) == Part::kBackward) best = std::max(best, (*belongs)[static_cast<std::size_t>(user)]);
      }
      (*belongs)[i] = best < 0 ? last : best;
    }
  }

  // Results of a unit are made where the unit is.
  std::int32_t forward_position(NodeId id) const { return position(flow_->producer(id)); }

  // The latest of `uses` up to `bound`; kNone when there is none. Without a gradient there is no bound to go by: the
  // first use.
  static std::int32_t latest_use(const std::vector<std::int32_t>& uses, std::int32_t bound, bool first) {
    if (uses.empty()) return kNone;
    if (first) return uses.front();
    const auto above = std::upper_bound(uses.begin(), uses.end(), bound);
    return above == uses.begin() ? kNone : *(above - 1);
  }

  // --- a and k ---

  // The activation that a forward node only holds in another form.
  NodeId base_of(NodeId id) const {
    while (graph::is_movement(*flow_, id)) {
      const NodeId before = flow_->operands(id)[0];
      if (part(before) != Part::kForward || origin(before) != Origin::kFlow) break;
      id = before;
    }
    return id;
  }

  struct Form {
    NodeId node;
    std::int32_t made, last;  // alive in the cuts made .. last-1
    double bytes;
  };

  void charge_activations() {
    std::vector<double> change(size_ + 1, 0);
    std::unordered_map<NodeId, std::vector<Form>> groups;
    std::vector<NodeId> bases;
    for (const NodeId id : order_.order) {
      if (origin(id) != Origin::kFlow || !flow_->shape(id).is_array()) continue;
      const std::int32_t made = forward_position(id);
      std::int32_t last = made;
      for (const NodeId user : flow_->users(id)) {
        if (part(user) == Part::kForward && !is_projection(user)) last = std::max(last, position(user));
      }
      if (last == made) continue;
      const NodeId base = base_of(id);
      auto& group = groups[base];
      if (group.empty()) bases.push_back(base);
      group.push_back({id, made, last, bytes(id)});
    }
    for (const NodeId base : bases) {
      const std::vector<Form>& forms = groups[base];
      if (forms.size() == 1) {
        const Form& form = forms[0];
        const double smallest = std::min(form.bytes, bytes(base));
        change[static_cast<std::size_t>(form.made)] += smallest;
        change[static_cast<std::size_t>(form.last)] -= smallest;
        continue;
      }
      charge_forms(base, forms, &change);
    }
    double alive = 0;
    for (std::size_t p = 0; p < size_; ++p) {
      alive += change[p];
      // Sums of integers below 2^53: exact, but for the last bit of very large ones.
      out_.profile.a_bytes[p] = std::max(0.0, alive);
    }
    // Nothing crosses the end.
    out_.profile.a_bytes[size_ - 1] = 0;
  }

  // Several forms of one activation: whoever is alive can be made from the base, which goes over once; if the base
  // itself is not wanted any more, the forms may be smaller together.
  void charge_forms(NodeId base, const std::vector<Form>& forms, std::vector<double>* change) const {
    const double whole = bytes(base);
    constexpr std::size_t kMany = 1000;
    std::vector<std::int32_t> points;
    for (const Form& form : forms) {
      points.push_back(form.made);
      points.push_back(form.last);
    }
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    if (forms.size() > kMany) {
      (*change)[static_cast<std::size_t>(points.front())] += whole;
      (*change)[static_cast<std::size_t>(points.back())] -= whole;
      return;
    }
    for (std::size_t k = 0; k + 1 < points.size(); ++k) {
      double together = 0;
      bool any = false, base_alive = false;
      for (const Form& form : forms) {
        if (form.made > points[k] || form.last <= points[k]) continue;
        any = true;
        together += form.bytes;
        base_alive = base_alive || form.node == base;
      }
      if (!any) continue;
      const double cost = base_alive ? whole : std::min(whole, together);
      (*change)[static_cast<std::size_t>(points[k])] += cost;
      (*change)[static_cast<std::size_t>(points[k + 1])] -= cost;
    }
  }

  void charge_stash() {
    struct Kept {
      double forms = 0;
      bool base = false;
    };
    std::map<NodeId, Kept> kept;  // by base
    std::vector<bool> seen(n_, false);
    for (NodeId id = 0; id < flow_->size(); ++id) {
      if (part(id) != Part::kBackward) continue;
      for (const NodeId operand : flow_->operands(id)) {
        const auto o = static_cast<std::size_t>(operand);
        if (seen[o] || part(operand) != Part::kForward || origin(operand) != Origin::kFlow) continue;
        if (!flow_->shape(operand).is_array() || forward_position(operand) == kNone) continue;
        seen[o] = true;
        const NodeId base = base_of(operand);
        Kept& entry = kept[base];
        entry.forms += bytes(operand);
        entry.base = entry.base || operand == base;
      }
    }
    for (const auto& [base, entry] : kept) {
      const double stash = entry.base ? bytes(base) : std::min(bytes(base), entry.forms);
      out_.profile.stash_bytes[static_cast<std::size_t>(forward_position(base))] += stash;
      out_.memory.stash_bytes += stash;
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
    for (std::size_t p = 0; p < size_; ++p) {
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
    const graph::ModuleCost once = graph::analyze_cost(graph_, graph::WhileCounting::kOnce);
    const graph::ModuleCost trips = graph::analyze_cost(graph_, graph::WhileCounting::kTripCount);
    out_.total_flops = once.total.flops;
    out_.executed_flops = trips.total.flops;
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (part(id) == Part::kForward && once_[i] != 0)
        out_.forward_flops += once.instructions[static_cast<std::size_t>(flow_->node(id).instruction)].flops;
    }
    out_.warnings.insert(out_.warnings.end(), step_.warnings.begin(), step_.warnings.end());
    out_.warnings.insert(out_.warnings.end(), times_.notices.begin(), times_.notices.end());
    if (once.custom_calls > 0)
      out_.warnings.push_back(std::to_string(once.custom_calls) + " custom calls whose FLOPs nobody knows count as 0");
  }

  static constexpr std::int32_t kUnplaced = -2;

  const graph::Graph& graph_;
  const InstructionTimes& times_;
  const ProfilerOptions& options_;
  graph::TrainingStep step_;
  const FlowGraph* flow_ = nullptr;
  graph::FlowOrder order_;
  graph::LayerNames names_;
  std::size_t n_ = 0, size_ = 0;
  std::vector<double> node_ms_;
  std::vector<std::uint8_t> once_;
  std::vector<std::vector<std::int32_t>> uses_;
  ModelProfile out_;
};

}  // namespace

ModelProfile build_profile(const graph::Graph& graph, const InstructionTimes& times, const ProfilerOptions& options) {
  return Profiler(graph, times, options).run();
}

}  // namespace automap::profile
