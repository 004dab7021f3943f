// softmax(Q K^T) V and its gradient in a data flow.
//
// From the exponential up to the one matrix product that makes the scores, then down again to everything that is made
// of them: each value must be a tile, a stack of tiles that a loop keeps for another one, or rows; and end in matrix
// products that contract the keys (O = P V, dQ = dS K) or something else (dV = P^T dO, dK = dS^T Q). Then up from
// there: what only the chain reads (masks, random bits, the product dP = dO V^T) is inside, too.
#include <algorithm>
#include <queue>

#include "common/graph/hlo_attributes.h"
#include "profile/chain_flow.h"
#include "profile/chain_tracker.h"
#include "profile/score_mask.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;

namespace {

// Kernels of libraries keep a row of Q, K and V on chip.
constexpr std::int64_t kLongestHead = 256;
// No attention has more parts between its products; keeps large element-wise modules from being searched again and
// again.
constexpr std::size_t kMostAttentionParts = 512;

bool is_absorbed_tile(Opcode opcode) {
  if (graph::is_elementwise(opcode)) return true;
  switch (opcode) {
    case Opcode::kBitcast:
    case Opcode::kBroadcast:
    case Opcode::kCopy:
    case Opcode::kIota:
    case Opcode::kReshape:
    case Opcode::kRng:
    case Opcode::kTranspose: return true;
    default: return false;
  }
}

}  // namespace

class AttentionFinder::Search {
 public:
  explicit Search(const ChainFlow& flow)
      : c_(flow), flow_(flow.flow), tracker_(flow.flow), member_(static_cast<std::size_t>(flow_.size()), 0) {}

  std::optional<Chain> run(NodeId exponential, const FusionRule& rule, MissedChain* missed) {
    reset();
    *missed = MissedChain::kNone;
    exponential_ = exponential;
    const auto sum = c_.sum_of(exponential);
    if (!sum) return std::nullopt;
    sum_ = sum->node;
    if (!find_scores(sum->dim) || !trace_path()) return std::nullopt;
    const bool closed = grow();
    const bool scores =
        !takes_log_ && std::any_of(exits_.begin(), exits_.end(), [](const Exit& exit) { return exit.over_keys; });
    const auto miss = [&](MissedChain why) -> std::optional<Chain> {
      *missed = scores ? why : MissedChain::kNone;
      return std::nullopt;
    };
    // Experts' routers contract more than heads have, and their probabilities are read by others.
    const bool normal = closed && has_member_sum_;
    if (is_long()) return miss(normal ? MissedChain::kHead : MissedChain::kNone);
    if (!normal) return miss(MissedChain::kRead);
    absorb();
    auto chain = make_chain();
    if (!chain) return miss(MissedChain::kRead);
    if (rule.only_16bit && !is_16bit()) return miss(MissedChain::kType);
    return chain;
  }

 private:
  struct Exit {
    NodeId node = kNone, tile = kNone, other = kNone;
    bool over_keys = false;  // it contracts the keys
  };
  enum Member : char { kOutside = 0, kInside, kExit };

  void reset() {
    for (const NodeId id : touched_) member_[static_cast<std::size_t>(id)] = kOutside;
    touched_.clear();
    members_.clear();
    exits_.clear();
    statistic_.clear();
    gradient_ = kNone;
    has_member_sum_ = takes_log_ = false;
  }

  bool inside(NodeId id) const { return member_[static_cast<std::size_t>(id)] == kInside; }
  bool known(NodeId id) const { return member_[static_cast<std::size_t>(id)] != kOutside; }
  void mark(NodeId id, Member as) {
    member_[static_cast<std::size_t>(id)] = as;
    touched_.push_back(id);
    if (as == kInside) members_.push_back(id);
  }

  // Up from the exponential: the one matrix product of the tile's size.
  bool find_scores(std::int32_t keys) {
    tracker_.start(exponential_, keys);
    scores_ = kNone;
    above_.clear();
    std::vector<std::pair<NodeId, std::int32_t>> open{{exponential_, keys}};
    std::vector<NodeId> seen{exponential_};
    while (!open.empty()) {
      const auto [id, key] = open.back();
      open.pop_back();
      above_.push_back(id);
      if (above_.size() > kMostAttentionParts) return false;
      for (const NodeId operand : flow_.operands(id)) {
        if (!tracker_.has_tile_size(operand) || c_.has(c_.free, operand)) continue;
        if (std::find(seen.begin(), seen.end(), operand) != seen.end()) continue;
        const auto before = tracker_.key_before(id, key, operand);
        if (!before) continue;
        seen.push_back(operand);
        if (c_.opcode(operand) == Opcode::kDot) {
          if (scores_ != kNone) return false;
          scores_ = operand;
          scores_key_ = *before;
        } else if (c_.opcode(operand) != Opcode::kParameter) {
          open.emplace_back(operand, *before);
        }
      }
    }
    return scores_ != kNone && makes_tile(scores_, scores_key_);
  }

  // The keys are a free dimension of one factor; head_: what is contracted.
  bool makes_tile(NodeId product, std::int32_t key) {
    const graph::DotDimensions dims = graph::dot_dimensions(flow_.graph(), flow_.node(product).instruction);
    if (key < static_cast<std::int32_t>(dims.lhs_batch.size())) return false;
    head_ = 1;
    for (const std::int64_t dim : dims.lhs_contracting)
      head_ *= flow_.shape(flow_.operands(product)[0]).dims[static_cast<std::size_t>(dim)];
    return !dims.lhs_contracting.empty();
  }

  // A head of queries or of values is longer than what a kernel holds.
  bool is_long() const {
    return head_ > kLongestHead || std::any_of(exits_.begin(), exits_.end(), [&](const Exit& exit) {
             return exit.over_keys && head_of(exit) > kLongestHead;
           });
  }

  // Follows the path from the product to the exponential; statistics of rows may be taken of the values on it.
  bool trace_path() {
    tracker_.start(scores_, scores_key_);
    std::sort(above_.begin(), above_.end());
    on_path_.assign(1, scores_);
    for (const NodeId id : above_) {
      const auto operands = flow_.operands(id);
      const bool made = std::any_of(operands.begin(), operands.end(), [&](NodeId operand) {
        return std::find(on_path_.begin(), on_path_.end(), operand) != on_path_.end();
      });
      if (made) on_path_.push_back(id);
    }
    return on_path_.back() == exponential_;
  }

  // Down: everything that is made of the scores. false: something else reads them.
  bool grow() {
    mark(scores_, kInside);
    bool closed = true;
    for (std::size_t next = 0; next < members_.size(); ++next) {
      const NodeId id = members_[next];
      if (members_.size() > kMostAttentionParts) return false;
      closed = closed && may_stay(id);
      for (const NodeId user : flow_.users(id)) closed = add_user(user, id) && closed;
    }
    return closed;
  }

  // It is no result, and what a loop keeps of it is read by slices of it alone.
  bool may_stay(NodeId id) const {
    const Extent extent = tracker_.extent(id);
    if (extent != Extent::kTileStack && extent != Extent::kRowStack) return !c_.has(c_.escapes, id) || is_statistic(id);
    const NodeId before = flow_.operands(id)[0];
    return !c_.has(c_.results, id) && c_.opcode(before) == Opcode::kParameter && flow_.users(before).size() == 1;
  }

  bool add_user(NodeId user, NodeId id) {
    if (inside(user)) return tracker_.derive(user, id);
    if (c_.opcode(user) == Opcode::kDot && tracker_.is_tile(id)) return add_exit(user, id);
    if (!known(user) && tracker_.derive(user, id)) {
      mark(user, kInside);
      takes_log_ = takes_log_ || c_.opcode(user) == Opcode::kLog;
      note_statistic(user, id);
      return true;
    }
    return is_statistic(id);
  }

  // The largest score and the sum of exponentials, in whatever form: kernels hand them out.
  bool is_statistic(NodeId id) const {
    return tracker_.is_row(id) && std::find(statistic_.begin(), statistic_.end(), id) != statistic_.end();
  }
  void note_statistic(NodeId id, NodeId from) {
    if (!tracker_.is_row(id)) return;
    if (tracker_.is_row(from) ? is_statistic(from) : is_scores(from)) {
      statistic_.push_back(id);
      if (id == sum_) has_member_sum_ = true;
    }
  }
  bool is_scores(NodeId id) const {
    if (std::find(on_path_.begin(), on_path_.end(), id) != on_path_.end()) return true;
    return c_.opcode(id) == Opcode::kConvert && flow_.operands(id)[0] == exponential_;
  }

  bool add_exit(NodeId product, NodeId tile) {
    const auto operands = flow_.operands(product);
    if (operands.size() != 2 || operands[0] == operands[1]) return false;
    const bool left = operands[0] == tile;
    const NodeId other = operands[left ? 1 : 0];
    if (known(product) || inside(other)) return false;
    const graph::DotDimensions dims = graph::dot_dimensions(flow_.graph(), flow_.node(product).instruction);
    const auto& contracting = left ? dims.lhs_contracting : dims.rhs_contracting;
    const auto& batch = left ? dims.lhs_batch : dims.rhs_batch;
    const std::int64_t key = tracker_.key(tile);
    const auto has = [&](const std::vector<std::int64_t>& list) {
      return std::find(list.begin(), list.end(), key) != list.end();
    };
    if (contracting.empty() || has(batch)) return false;
    if (has(contracting) && contracting.size() > 1) return false;
    exits_.push_back({product, tile, other, has(contracting)});
    mark(product, kExit);
    return true;
  }

  // Up from the chain, later values first: what only it reads.
  void absorb() {
    std::priority_queue<NodeId> open;
    std::vector<NodeId> queued;
    const auto offer = [&](NodeId of) {
      for (const NodeId operand : flow_.operands(of)) {
        if (known(operand) || c_.has(c_.free, operand) || c_.has(c_.escapes, operand)) continue;
        open.push(operand);
      }
    };
    for (const NodeId id : members_) offer(id);
    for (const Exit& exit : exits_) offer(exit.node);
    while (!open.empty()) {
      const NodeId id = open.top();
      open.pop();
      if (known(id) || !can_absorb(id)) continue;
      mark(id, kInside);
      offer(id);
    }
  }

  bool can_absorb(NodeId id) {
    if (c_.opcode(id) == Opcode::kRngBitGenerator) return is_own_generator(id);
    if (!flow_.shape(id).is_array()) return false;
    const auto users = flow_.users(id);
    if (!std::all_of(users.begin(), users.end(), [&](NodeId user) { return known(user); })) return false;
    if (!tracker_.has_tile_size(id)) return is_repeated_head(id);
    const NodeId reader = users[0];
    if (!tracker_.is_tile(reader)) return false;
    const auto key = tracker_.key_before(reader, tracker_.key(reader), id);
    if (!key) return false;
    if (c_.opcode(id) == Opcode::kDot) {
      const std::int64_t head = head_;
      const bool fits = gradient_ == kNone && makes_tile(id, *key) && head_ <= kLongestHead;
      head_ = head;
      if (!fits) return false;
      gradient_ = id;
    } else if (!is_absorbed_tile(c_.opcode(id)) && c_.opcode(flow_.producer(id)) != Opcode::kRngBitGenerator) {
      return false;
    }
    tracker_.set_tile(id, *key);
    return true;
  }

  // Nobody else reads its numbers, or its state: kernels draw their own.
  bool is_own_generator(NodeId id) const {
    const auto results = flow_.users(id);
    return std::all_of(results.begin(), results.end(), [&](NodeId result) {
      return known(result) || (flow_.users(result).empty() && !c_.has(c_.escapes, result));
    });
  }

  // Heads of keys and values that several heads of queries share, repeated for each: kernels read them where they are.
  bool is_repeated_head(NodeId id) const {
    switch (c_.opcode(id)) {
      case Opcode::kBroadcast:
      case Opcode::kBitcast:
      case Opcode::kReshape: break;
      default: return false;
    }
    for (NodeId at = id;;) {
      if (c_.opcode(at) == Opcode::kBroadcast && c_.elements(flow_.operands(at)[0]) < c_.elements(at)) break;
      if (c_.opcode(at) != Opcode::kBroadcast && c_.opcode(at) != Opcode::kBitcast && c_.opcode(at) != Opcode::kReshape)
        return false;
      at = flow_.operands(at)[0];
    }
    const auto users = flow_.users(id);
    return std::all_of(users.begin(), users.end(), [&](NodeId user) {
      return c_.opcode(user) == Opcode::kDot || (inside(user) && !tracker_.is_tile(user) && !tracker_.is_row(user));
    });
  }

  bool is_16bit() const {
    const auto operands = flow_.operands(scores_);
    return c_.is_short(operands[0]) && c_.is_short(operands[1]);
  }

  std::optional<Chain> make_chain() {
    std::sort(members_.begin(), members_.end());
    const std::vector<NodeId> late = gradient_ == kNone ? std::vector<NodeId>{} : depend_on_gradient();
    const auto is_late = [&](NodeId id) { return std::binary_search(late.begin(), late.end(), id); };
    Chain chain;
    Chain::Kernel forward, backward;
    NodeId over_queries = kNone;
    for (const Exit& exit : exits_) {
      const bool gradient = is_late(exit.tile);
      if (exit.over_keys && !gradient) {
        if (forward.anchor != kNone) return std::nullopt;
        forward.anchor = exit.node;
        forward.products = {scores_, exit.node};
      } else {
        backward.results.push_back(exit.node);
        if (exit.over_keys) backward.anchor = exit.node;
        over_queries = exit.node;
      }
    }
    if (forward.anchor == kNone ? gradient_ == kNone : values_follow_from_exits(forward.anchor)) return std::nullopt;
    if (backward.anchor == kNone) backward.anchor = over_queries;
    // A product into the tile that leads nowhere is no gradient.
    if (gradient_ != kNone &&
        std::none_of(exits_.begin(), exits_.end(), [&](const Exit& e) { return is_late(e.tile); }))
      return std::nullopt;
    forward.kind = FusedKernelKind::kAttention;
    backward.kind = FusedKernelKind::kAttentionGradient;
    if (backward.anchor != kNone) {
      // The scores are computed again.
      backward.products = backward.results;
      backward.products.push_back(scores_);
      if (gradient_ != kNone) backward.products.push_back(gradient_);
      backward.results.erase(std::find(backward.results.begin(), backward.results.end(), backward.anchor));
    }
    const ScoreBand left = band();
    for (Chain::Kernel* kernel : {&forward, &backward}) {
      if (kernel->anchor == kNone) continue;
      kernel->tile = scores_;
      kernel->key = scores_key_;
      kernel->query = query();
      kernel->head = head_;
      kernel->band = left;
      kernel->reads = reads_of(*kernel, kernel == &forward ? &late : nullptr);
      chain.kernels.push_back(std::move(*kernel));
    }
    for (const NodeId id : members_) {
      const bool small = tracker_.is_row(id) || tracker_.extent(id) == Extent::kRowStack;
      (small ? chain.small : chain.inner).push_back(id);
    }
    return chain;
  }

  // True if the values that are summed are made of another product with the probabilities: these are normalized over
  // queries, and this is the gradient of the values.
  bool values_follow_from_exits(NodeId anchor) const {
    NodeId first = anchor;
    std::vector<NodeId> open, seen;
    for (const Exit& exit : exits_) {
      first = std::min(first, exit.node);
      if (exit.node == anchor) open.push_back(exit.other);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (id < first || std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
      if (member_[static_cast<std::size_t>(id)] == kExit || seen.size() > kMostAttentionParts) return true;
      seen.push_back(id);
      for (const NodeId operand : flow_.operands(id)) open.push_back(operand);
    }
    return false;
  }

  std::int64_t head_of(const Exit& exit) const {
    const graph::DotDimensions dims = graph::dot_dimensions(flow_.graph(), flow_.node(exit.node).instruction);
    const bool left = flow_.operands(exit.node)[0] == exit.other;
    const auto& contracting = left ? dims.lhs_contracting : dims.rhs_contracting;
    const auto& batch = left ? dims.lhs_batch : dims.rhs_batch;
    std::int64_t head = c_.elements(exit.other);
    for (const auto* list : {&contracting, &batch}) {
      for (const std::int64_t dim : *list)
        head /= std::max<std::int64_t>(1, flow_.shape(exit.other).dims[static_cast<std::size_t>(dim)]);
    }
    return head;
  }

  // Members that are made of dP, ascending.
  std::vector<NodeId> depend_on_gradient() const {
    std::vector<NodeId> late;
    for (const NodeId id : members_) {
      const auto operands = flow_.operands(id);
      const bool made = id == gradient_ || std::any_of(operands.begin(), operands.end(), [&](NodeId operand) {
                          return std::binary_search(late.begin(), late.end(), operand);
                        });
      if (made) late.push_back(id);
    }
    return late;
  }

  // The factor of the scores that has no keys.
  NodeId query() const {
    const graph::DotDimensions dims = graph::dot_dimensions(flow_.graph(), flow_.node(scores_).instruction);
    const std::size_t left_free =
        flow_.shape(flow_.operands(scores_)[0]).dims.size() - dims.lhs_batch.size() - dims.lhs_contracting.size();
    const bool keys_left = scores_key_ < static_cast<std::int32_t>(dims.lhs_batch.size() + left_free);
    return flow_.operands(scores_)[keys_left ? 1 : 0];
  }

  // Arrays from outside. `late`: what is made of these members is not the forward kernel's.
  std::vector<NodeId> reads_of(const Chain::Kernel& kernel, const std::vector<NodeId>* late) const {
    std::vector<NodeId> reads;
    const auto read = [&](NodeId of) {
      if (tracker_.extent(of) == Extent::kTileStack || tracker_.extent(of) == Extent::kRowStack) return;
      for (const NodeId operand : flow_.operands(of)) {
        if (!inside(operand) && !c_.has(c_.free, operand) && flow_.shape(operand).is_array()) reads.push_back(operand);
      }
    };
    for (const NodeId id : members_) {
      if (late == nullptr || !std::binary_search(late->begin(), late->end(), id)) read(id);
    }
    read(kernel.anchor);
    for (const NodeId id : kernel.results) read(id);
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    return reads;
  }

  // The band of the mask that leaves the least, among those on the way to the exponential.
  ScoreBand band() const {
    ScoreBand least;
    for (const NodeId id : on_path_) {
      if (id == scores_ || !tracker_.is_tile(id)) continue;
      for (const NodeId operand : flow_.operands(id)) {
        if (std::find(on_path_.begin(), on_path_.end(), operand) == on_path_.end()) continue;
        const auto found = band_of(flow_, id, operand, tracker_.key(id));
        if (found && found->kept < least.kept) least = *found;
      }
    }
    return least;
  }

  const ChainFlow& c_;
  const FlowGraph& flow_;
  ChainTracker tracker_;
  std::vector<char> member_;
  std::vector<NodeId> touched_, members_, above_, on_path_, statistic_;
  std::vector<Exit> exits_;
  NodeId exponential_ = kNone, sum_ = kNone, scores_ = kNone, gradient_ = kNone;
  std::int32_t scores_key_ = 0;
  std::int64_t head_ = 0;
  bool has_member_sum_ = false, takes_log_ = false;
};

AttentionFinder::AttentionFinder(const ChainFlow& flow) : search_(std::make_unique<Search>(flow)) {}
AttentionFinder::~AttentionFinder() = default;

std::optional<Chain> AttentionFinder::find(NodeId id, const FusionRule& rule, MissedChain* missed) {
  return search_->run(id, rule, missed);
}

}  // namespace automap::profile
