#include "profile/cut_bytes.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "common/graph/dependence.h"
#include "profile/fused_kernel_model.h"
#include "profile/kept_values.h"
#include "profile/loop_stash.h"

namespace automap::profile {

namespace {

using graph::FlowGraph;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;
using graph::Origin;
using graph::Part;

// Finds the bytes that cross cuts, activation by activation.
class Crossings {
 public:
  Crossings(const StepPositions& at, const FusedPositions& fused) : at_(at), fused_(fused), flow_(at.flow()) {}

  // In the cuts behind the positions from..to-1.
  struct Span {
    std::int32_t from, to;
    double bytes;
  };
  // Calls visit(spans) for every activation: of it and its other forms, ascending and apart.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    std::unordered_map<NodeId, std::vector<Form>> groups;
    std::vector<NodeId> bases;
    for (const NodeId id : at_.order().order) {
      if (at_.origin(id) != Origin::kFlow || !flow_.shape(id).is_array() || fused_.is_dropped(id)) continue;
      const std::int32_t made = at_.made_at(id);
      const std::int32_t last = fused_.last_use(id);
      if (last == made) continue;
      const NodeId base = at_.base_of(id);
      auto& group = groups[base];
      if (group.empty()) bases.push_back(base);
      group.push_back({id, made, last, at_.bytes(id)});
    }
    std::vector<Span> spans;
    for (const NodeId base : bases) {
      const std::vector<Form>& forms = groups[base];
      spans.clear();
      if (forms.size() == 1) {
        const Form& form = forms[0];
        spans.push_back({form.made, form.last, std::min(form.bytes, at_.bytes(base))});
      } else {
        list_spans(base, forms, &spans);
      }
      visit(spans);
    }
  }

  std::vector<double> run() const {
    const auto size = static_cast<std::size_t>(at_.size());
    std::vector<double> change(size + 1, 0);
    for_each([&](const std::vector<Span>& spans) {
      for (const Span& span : spans) {
        change[static_cast<std::size_t>(span.from)] += span.bytes;
        change[static_cast<std::size_t>(span.to)] -= span.bytes;
      }
    });
    std::vector<double> a(size, 0.0);
    double alive = 0;
    for (std::size_t p = 0; p < size; ++p) {
      alive += change[p];
      // Sums of integers below 2^53: exact, but for the last bit of very large ones.
      a[p] = std::max(0.0, alive);
    }
    // Nothing crosses the end.
    a[size - 1] = 0;
    return a;
  }

 private:
  struct Form {
    NodeId node;
    std::int32_t made, last;  // alive in the cuts made .. last-1
    double bytes;
  };

  // Several forms of one activation: whoever is alive can be made from the base, which goes over once; if the base
  // itself is not wanted any more, the forms may be smaller together.
  void list_spans(NodeId base, const std::vector<Form>& forms, std::vector<Span>* spans) const {
    const double whole = at_.bytes(base);
    constexpr std::size_t kMany = 1000;
    std::vector<std::int32_t> points;
    for (const Form& form : forms) {
      points.push_back(form.made);
      points.push_back(form.last);
    }
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    if (forms.size() > kMany) {
      spans->push_back({points.front(), points.back(), whole});
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
      if (any) spans->push_back({points[k], points[k + 1], base_alive ? whole : std::min(whole, together)});
    }
  }

  const StepPositions& at_;
  const FusedPositions& fused_;
  const FlowGraph& flow_;
};

// Finds the values that are kept so that the backward pass can read, or recompute, what it needs.
class StashFinder {
 public:
  StashFinder(const StepPositions& at, const FusedPositions& fused, const std::vector<InstructionTimes::While>& whiles)
      : at_(at),
        fused_(fused),
        whiles_(whiles),
        flow_(at.flow()),
        keepable_(find_keepable(at)),
        seen_(keepable_.size(), 0),
        loop_stash_(at) {}

  Stash run() {
    out_.bytes.assign(static_cast<std::size_t>(at_.size()), 0.0);
    out_.kept.assign(seen_.size(), false);
    find_loops();
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (at_.part(id) != Part::kBackward) continue;
      for (const NodeId operand : flow_.operands(id)) add(operand, !in_loop_[static_cast<std::size_t>(id)]);
    }
    for (const auto& [loop, leaves] : stacks_) {
      out_.bytes[static_cast<std::size_t>(at_.made_at(loop))] += loop_stash_.kept_bytes(loop, leaves);
    }
    for (const NodeId id : cheapest_kept(kept_flow(at_), keepable_, whole_, in_loops_)) {
      out_.bytes[static_cast<std::size_t>(at_.made_at(id))] += at_.bytes(id);
      out_.kept[static_cast<std::size_t>(at_.base_of(id))] = true;
    }
    return std::move(out_);
  }

 private:
  // Backward nodes that read while they compute: loops, reductions, and movement that only such nodes read.
  void find_loops() {
    in_loop_.assign(seen_.size(), false);
    for (NodeId id = flow_.size(); id-- > 0;) {
      if (at_.part(id) != Part::kBackward) continue;
      const auto i = static_cast<std::size_t>(id);
      in_loop_[i] = is_made_again(flow_, id) || flow_.node(id).opcode == graph::Opcode::kReduce;
      if (!graph::is_movement(flow_, id)) continue;
      for (const NodeId user : flow_.users(id)) {
        const bool other = at_.part(user) != Part::kBackward;
        in_loop_[i] = in_loop_[i] && (other || in_loop_[static_cast<std::size_t>(user)]);
      }
    }
  }

  void add(NodeId value, bool whole) {
    if (!keepable_[static_cast<std::size_t>(value)]) return;
    auto& seen = seen_[static_cast<std::size_t>(value)];
    constexpr char kStack = 4;
    if (seen == kStack) return;
    if (seen == 0 && !fused_.is_dropped(value) && loop_stash_.is_stack(value)) {
      stacks_[flow_.producer(value)].push_back(flow_.node(value).leaf);
      out_.kept[static_cast<std::size_t>(at_.base_of(value))] = true;
      seen = kStack;
      return;
    }
    const char bit = whole ? 1 : 2;
    if ((seen & bit) != 0) return;
    seen = static_cast<char>(seen | bit);
    if (fused_.is_dropped(value)) {
      add_needs(value);
      return;
    }
    (whole ? whole_ : in_loops_).push_back(value);
  }

  // In place of what a fused kernel does not write.
  void add_needs(NodeId value) {
    if (at_.is_projection(value)) {
      add_loop(value);
      return;
    }
    const FusedPositions::Needs needs = fused_.needs_of(value);
    for (const NodeId id : needs.values) add(id, true);
    for (const NodeId id : needs.kernels) {
      if (statistics_.insert(id).second) charge(id, *fused_.chains()->kernel_of(flow_.node(id).instruction), 1);
    }
  }

  void add_loop(NodeId value) {
    const NodeId unit = flow_.producer(value);
    const InstructionId loop = flow_.node(unit).instruction;
    if (!statistics_.insert(unit).second) return;
    double turns = 1;
    for (const InstructionTimes::While& known : whiles_) {
      if (known.instruction == loop) turns = static_cast<double>(known.trip_count);
    }
    const auto found = fused_.chains()->kept_by_loop.find(loop);
    if (found == fused_.chains()->kept_by_loop.end()) return;
    for (const std::int32_t kernel : found->second)
      charge(value, fused_.chains()->kernels[static_cast<std::size_t>(kernel)], turns);
  }

  void charge(NodeId id, const FusedKernel& kernel, double times) {
    out_.bytes[static_cast<std::size_t>(at_.made_at(id))] += kept_bytes(flow_.graph(), kernel) * times;
  }

  const StepPositions& at_;
  const FusedPositions& fused_;
  const std::vector<InstructionTimes::While>& whiles_;
  const FlowGraph& flow_;
  const std::vector<bool> keepable_;
  std::vector<char> seen_;     // by node: 1 in whole_, 2 in in_loops_, 4 in stacks_
  std::vector<bool> in_loop_;  // by backward node
  std::vector<NodeId> whole_, in_loops_;
  LoopStash loop_stash_;
  std::map<NodeId, std::vector<std::int32_t>> stacks_;  // by loop: leaves of its result that are read
  std::set<NodeId> statistics_;                         // kernels and loops whose statistics are counted
  Stash out_;
};

}  // namespace

std::vector<double> crossing_bytes(const StepPositions& at, const FusedPositions& fused) {
  return Crossings(at, fused).run();
}

EntryBytes entry_bytes(const StepPositions& at, const FusedPositions& fused, const std::vector<bool>& starts) {
  const Crossings crossings(at, fused);
  const auto size = static_cast<std::size_t>(at.size());
  std::vector<std::int32_t> cuts;  // between two layers, each by the position in front of it
  for (std::size_t p = 1; p < size; ++p) {
    if (starts[p]) cuts.push_back(static_cast<std::int32_t>(p) - 1);
  }
  EntryBytes out;
  out.layer.assign(size, 0.0);
  crossings.for_each([&](const std::vector<Crossings::Span>& spans) {
    for (std::size_t k = 0; k < spans.size(); ++k) {
      // It enters the first layer that begins inside of the span; of those behind it enters the layer in front, too.
      const auto cut = std::lower_bound(cuts.begin(), cuts.end(), spans[k].from);
      if (cut == cuts.end() || *cut >= spans[k].to) continue;
      double before = 0;
      for (std::size_t other = k; other-- > 0 && cut != cuts.begin();) {
        if (spans[other].to <= *(cut - 1)) break;
        if (spans[other].from <= *(cut - 1)) before = spans[other].bytes;
      }
      out.layer[static_cast<std::size_t>(*cut) + 1] += std::max(0.0, spans[k].bytes - before);
    }
  });
  out.stage = crossings.run();
  out.stage.insert(out.stage.begin(), 0.0);
  out.stage.pop_back();
  for (std::size_t p = 0; p < size; ++p) out.stage[p] = std::max(0.0, out.stage[p] - out.layer[p]);
  return out;
}

Stash stash_bytes(const StepPositions& at, const FusedPositions& fused,
                  const std::vector<InstructionTimes::While>& whiles) {
  return StashFinder(at, fused, whiles).run();
}

}  // namespace automap::profile
