// The cross-entropy of logits and its gradient in a data flow: log-softmax, the label's value picked out of it, and
// (softmax - one-hot) times what comes back.
//
// The logits are stored, and read once forward and once backward; what is as large as they are and made of them is not
// written, but for their gradient.
#include <algorithm>
#include <queue>

#include "common/graph/hlo_attributes.h"
#include "profile/chain_flow.h"
#include "profile/chain_tracker.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;

namespace {

constexpr std::size_t kMostLossParts = 512;

// True for operations that a kernel applies to the logits while it reads them.
bool is_read_through(Opcode opcode) {
  switch (opcode) {
    case Opcode::kBitcast:
    case Opcode::kConvert:
    case Opcode::kCopy:
    case Opcode::kReshape:
    case Opcode::kSlice: return true;
    default: return false;
  }
}

// ... and to their gradient while it writes it.
bool is_written_through(Opcode opcode) {
  return opcode == Opcode::kPad || (is_read_through(opcode) && opcode != Opcode::kSlice);
}

bool is_made_on_the_way(Opcode opcode) {
  if (graph::is_elementwise(opcode)) return true;
  switch (opcode) {
    case Opcode::kBitcast:
    case Opcode::kBroadcast:
    case Opcode::kCopy:
    case Opcode::kIota:
    case Opcode::kReshape:
    case Opcode::kScatter: return true;
    default: return false;
  }
}

}  // namespace

class LossFinder::Search {
 public:
  explicit Search(const ChainFlow& flow)
      : c_(flow), flow_(flow.flow), tracker_(flow.flow), member_(static_cast<std::size_t>(flow_.size()), false) {}

  std::optional<Chain> run(NodeId exponential, const FusionRule& rule) {
    reset();
    exponential_ = exponential;
    const auto sum = c_.sum_of(exponential);
    if (!sum || c_.has(c_.free, exponential)) return std::nullopt;
    sum_ = sum->node;
    tracker_.start(exponential, sum->dim);
    find_logits();
    if (!grow() || !takes_log_ || !picks_label()) return std::nullopt;
    find_exponentials();
    if (outputs_.empty() ? !picks_below_the_sum() : !find_gradient()) return std::nullopt;
    absorb();
    rise();
    if (rule.only_16bit && !is_16bit()) return std::nullopt;
    return make_chain();
  }

 private:
  void reset() {
    for (const NodeId id : members_) member_[static_cast<std::size_t>(id)] = false;
    members_.clear();
    rows_.clear();
    gathered_.clear();
    exponentials_.clear();
    outputs_.clear();
    logits_ = gradient_ = kNone;
    takes_log_ = picked_ = false;
  }

  bool inside(NodeId id) const { return member_[static_cast<std::size_t>(id)]; }
  void mark(NodeId id) {
    member_[static_cast<std::size_t>(id)] = true;
    members_.push_back(id);
  }

  // Finds the operand of the exponential, before the largest is subtracted.
  void find_logits() {
    NodeId id = flow_.operands(exponential_)[0];
    if (c_.opcode(id) == Opcode::kSubtract) {
      const NodeId right = flow_.operands(id)[1];
      const bool row =
          c_.opcode(right) == Opcode::kBroadcast && c_.elements(flow_.operands(right)[0]) < c_.elements(id);
      if (row) id = flow_.operands(id)[0];
    }
    logits_ = id;
    tracker_.set_tile(id, tracker_.key(exponential_));
  }

  // Adds values that are as large as the logits and made of them. Rows are followed, since they are spread over tiles
  // again.
  bool grow() {
    std::vector<NodeId> open{logits_};
    const auto add = [&](NodeId id) {
      if (tracker_.is_tile(id)) {
        mark(id);
      } else {
        rows_.push_back(id);
        takes_log_ = takes_log_ || c_.opcode(id) == Opcode::kLog || c_.opcode(id) == Opcode::kLogPlusOne;
      }
      open.push_back(id);
    };
    for (std::size_t next = 0; next < open.size(); ++next) {
      const NodeId id = open[next];
      if (open.size() > kMostLossParts) return false;
      bool outside = c_.has(c_.escapes, id);
      for (const NodeId user : flow_.users(id)) {
        if (inside(user) || std::find(rows_.begin(), rows_.end(), user) != rows_.end()) continue;
        const bool picks = tracker_.is_tile(id) && c_.opcode(user) == Opcode::kGather && flow_.operands(user)[0] == id;
        if (picks) {
          picked_ = true;
          gathered_.push_back(id);
          continue;
        }
        if (flow_.node(user).opcode != Opcode::kDynamicUpdateSlice && tracker_.derive(user, id)) {
          add(user);
        } else {
          outside = true;
        }
      }
      if (outside && id != logits_ && tracker_.is_tile(id)) outputs_.push_back(id);
    }
    return inside(exponential_);
  }

  // A gather from them, or a comparison of classes with labels that chooses among them.
  bool picks_label() const {
    if (picked_) return true;
    for (const NodeId id : members_) {
      for (const NodeId operand : flow_.operands(id)) {
        const bool outside = operand != logits_ && !inside(operand) && tracker_.has_tile_size(operand);
        if (outside && c_.equals_places(operand)) return true;
      }
    }
    return false;
  }

  // Members that are made, place by place, of an exponential.
  void find_exponentials() {
    std::sort(members_.begin(), members_.end());
    for (const NodeId id : members_) {
      const auto operands = flow_.operands(id);
      if (c_.opcode(id) == Opcode::kExponential ||
          std::any_of(operands.begin(), operands.end(), [&](NodeId operand) { return is_exponential(operand); }))
        exponentials_.push_back(id);
    }
  }
  bool is_exponential(NodeId id) const { return std::binary_search(exponentials_.begin(), exponentials_.end(), id); }

  // True if the chain picks a logit or the logarithm of a probability, not the probability (routers of experts do
  // that).
  bool picks_below_the_sum() const {
    const auto below = [&](NodeId id) { return !is_exponential(id); };
    if (std::any_of(gathered_.begin(), gathered_.end(), below)) return true;
    return std::any_of(members_.begin(), members_.end(), [&](NodeId id) {
      bool labels = false, value = false;
      for (const NodeId operand : flow_.operands(id)) {
        const bool own = operand == logits_ || inside(operand);
        value = value || (own && below(operand));
        labels = labels || (!own && tracker_.has_tile_size(operand) && c_.equals_places(operand));
      }
      return labels && value && below(id);
    });
  }

  // Probabilities less something that is not made of them, place by place: what picks the label; or two forms of them
  // of which it chooses.
  bool is_difference(NodeId id) const {
    const auto operands = flow_.operands(id);
    switch (c_.opcode(id)) {
      case Opcode::kAdd:
      case Opcode::kSubtract:
        for (const std::size_t i : {0, 1}) {
          const NodeId other = operands[1 - i];
          if (is_exponential(operands[i]) && !is_exponential(other) && !c_.has(c_.free, other) && !is_spread_row(other))
            return true;
        }
        return false;
      case Opcode::kSelect:
        return operands[1] != operands[2] && is_exponential(operands[1]) && is_exponential(operands[2]);
      default: return false;
    }
  }
  bool is_spread_row(NodeId id) const {
    return c_.opcode(id) == Opcode::kBroadcast && c_.elements(flow_.operands(id)[0]) < c_.elements(id);
  }

  // The one tile that others read, which has to know the labels: nothing else made of the logits may leave.
  bool find_gradient() {
    if (outputs_.empty()) return true;
    gradient_ = *std::min_element(outputs_.begin(), outputs_.end());
    std::vector<NodeId> before{gradient_}, behind{gradient_};
    bool knows_labels = false;
    for (std::size_t next = 0; next < before.size(); ++next) {
      for (const NodeId operand : flow_.operands(before[next])) {
        if (operand == logits_ || c_.has(c_.free, operand)) continue;
        if (std::find(before.begin(), before.end(), operand) != before.end()) continue;
        const bool row = std::find(rows_.begin(), rows_.end(), operand) != rows_.end();
        if (inside(operand) || row) {
          before.push_back(operand);
        } else {
          knows_labels = true;
        }
      }
    }
    if (!knows_labels || std::none_of(before.begin(), before.end(), [&](NodeId id) { return is_difference(id); }))
      return false;
    for (const NodeId id : members_) {
      const auto operands = flow_.operands(id);
      const bool made = std::any_of(operands.begin(), operands.end(), [&](NodeId operand) {
        return std::find(behind.begin(), behind.end(), operand) != behind.end();
      });
      if (made && id != gradient_) behind.push_back(id);
    }
    const auto is_behind = [&](NodeId id) { return std::find(behind.begin(), behind.end(), id) != behind.end(); };
    if (!std::all_of(outputs_.begin(), outputs_.end(), is_behind)) return false;
    // Values made of the gradient do not belong to this kernel.
    for (const NodeId id : behind) member_[static_cast<std::size_t>(id)] = false;
    members_.erase(std::remove_if(members_.begin(), members_.end(), is_behind), members_.end());
    while (flow_.users(gradient_).size() == 1 && !c_.has(c_.escapes, gradient_) &&
           is_written_through(c_.opcode(flow_.users(gradient_)[0]))) {
      mark(gradient_);
      gradient_ = flow_.users(gradient_)[0];
    }
    return true;
  }

  // Adds values that only the chain reads.
  void absorb() {
    std::priority_queue<NodeId> open;
    const auto offer = [&](NodeId of) {
      for (const NodeId operand : flow_.operands(of)) {
        if (operand != logits_ && !inside(operand) && tracker_.has_tile_size(operand) && !c_.has(c_.free, operand) &&
            !c_.has(c_.escapes, operand))
          open.push(operand);
      }
    };
    const std::vector<NodeId> known = members_;
    for (const NodeId id : known) offer(id);
    if (gradient_ != kNone) offer(gradient_);
    while (!open.empty()) {
      const NodeId id = open.top();
      open.pop();
      const auto users = flow_.users(id);
      if (inside(id) || !is_made_on_the_way(c_.opcode(id))) continue;
      if (!std::all_of(users.begin(), users.end(), [&](NodeId user) { return inside(user) || user == gradient_; }))
        continue;
      mark(id);
      offer(id);
    }
  }

  // The logits are read in the type and size that they are made in.
  void rise() {
    const auto only_here = [&](NodeId id) {
      const auto users = flow_.users(id);
      return !c_.has(c_.escapes, id) && std::all_of(users.begin(), users.end(), [&](NodeId user) {
        return inside(user) || std::find(rows_.begin(), rows_.end(), user) != rows_.end() ||
               c_.opcode(user) == Opcode::kGather;
      });
    };
    const auto hands_on = [&](NodeId id) {
      return is_read_through(c_.opcode(id)) ||
             (c_.opcode(id) == Opcode::kCustomCall && graph::is_annotation(flow_.graph(), flow_.node(id).instruction));
    };
    while (hands_on(logits_) && only_here(logits_)) {
      mark(logits_);
      logits_ = flow_.operands(logits_)[0];
    }
  }

  bool is_16bit() const {
    if (c_.is_short(logits_)) return true;
    const NodeId product = c_.product_before(logits_);
    return product != kNone && c_.is_short(flow_.operands(product)[0]) && c_.is_short(flow_.operands(product)[1]);
  }

  Chain make_chain() {
    Chain chain;
    chain.inner = members_;
    for (const NodeId id : rows_) {
      if (c_.opcode(id) == Opcode::kReduce && id != sum_ && tracker_.is_tile(flow_.operands(id)[0]))
        chain.small.push_back(id);
    }
    Chain::Kernel forward;
    forward.kind = FusedKernelKind::kLoss;
    forward.anchor = sum_;
    forward.reads = {logits_};
    forward.tile = exponential_;
    forward.key = tracker_.key(exponential_);
    chain.kernels.push_back(forward);
    if (gradient_ != kNone) {
      Chain::Kernel backward = forward;
      backward.kind = FusedKernelKind::kLossGradient;
      backward.anchor = gradient_;
      chain.kernels.push_back(backward);
    }
    return chain;
  }

  const ChainFlow& c_;
  const FlowGraph& flow_;
  ChainTracker tracker_;
  std::vector<bool> member_;
  std::vector<NodeId> members_, rows_, outputs_;
  std::vector<NodeId> gathered_;      // tiles that labels' values are gathered from
  std::vector<NodeId> exponentials_;  // members that are multiples of probabilities, ascending
  NodeId exponential_ = kNone, sum_ = kNone, logits_ = kNone, gradient_ = kNone;
  bool takes_log_ = false, picked_ = false;
};

LossFinder::LossFinder(const ChainFlow& flow) : search_(std::make_unique<Search>(flow)) {}
LossFinder::~LossFinder() = default;

std::optional<Chain> LossFinder::find(NodeId id, const FusionRule& rule) {
  return search_->run(id, rule);
}

}  // namespace automap::profile
