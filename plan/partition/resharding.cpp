#include "plan/partition/resharding.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/products.h"

namespace automap::partition {
namespace {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using sharding::Gather;
using sharding::GroupId;
using sharding::Linkage;
using sharding::OpFactor;
using sharding::TensorDim;

// Labels of a piece, and of a tensor of one that is read where groups may be cut. kInParts: it is not split there, and
// some reader takes its part of it.
enum : std::int32_t { kWhole = 0, kSplit = 1, kSplitAndGathered = 2, kInParts = 3 };

class PathsBuilder {
 public:
  // `batch`: for a data axis, the dimensions that are split in any case; empty: the axis splits variables. `outer` may
  // be null.
  PathsBuilder(const sharding::ShardingModel& model, const PartitionCost& cost, std::vector<TensorDim> batch,
               const ReshardingOptions& options)
      : model_(model),
        flow_(model.flow()),
        linkage_(model.linkage()),
        cost_(cost),
        shards_(model.linkage().shards()),
        batch_(std::move(batch)),
        outer_(options.outer),
        between_(options.between),
        sequences_(options.between == Between::kSequences),
        rows_(options.rows_whole) {}

  LabellingProblem build(double memory_limit_bytes) {
    number_dims();
    find_cuttable();
    join();
    number_pieces();
    find_begun();
    forbid();
    price_pieces();
    for (const TensorDim dim : batch_) problem_.sites[at(piece_of(dim))].cost[kWhole] = kInfinity;
    find_ways();
    for (Instruction& instruction : instructions_) add_instruction(&instruction);
    for (NodeId op = 0; op < flow_.size(); ++op) {
      for_each_closed(op, [&](TensorDim dim) {
        // Whoever reads it there reads it whole.
        if (is_operand(op, dim.node) && allowed(piece_of(dim))) {
          problem_.sites[at(reader_site(dim))].cost[kSplit] = kInfinity;
        }
      });
    }
    made_by_products();
    sums_kept_in_parts();
    exchanges();
    exclude();
    finish_memory(memory_limit_bytes);
    return std::move(problem_);
  }

  // Forbids the pieces that no weight would decide: split together with none of those they hang together with by the
  // factors that were chosen. Whether there were any.
  bool forbid_undecided(const Labelling& found, LabellingProblem* problem) const {
    if (found.labels.empty()) return false;
    std::vector<std::int32_t> parent(first_of_.size());
    for (std::size_t i = 0; i < parent.size(); ++i) parent[i] = static_cast<std::int32_t>(i);
    const auto root = [&](std::int32_t piece) {
      while (parent[at(piece)] != piece) piece = parent[at(piece)] = parent[at(parent[at(piece)])];
      return piece;
    };
    for (const Instruction& instruction : instructions_) {
      const std::int32_t label = found.labels[at(instruction.site)];
      if (label == 0) continue;
      const OpFactor& factor = factor_of(instruction, at(label));
      // Joins the pieces of the factor's members that are split together; the result's always is, where it has any.
      std::int32_t first = kNone;
      for (const TensorDim member : factor.members) {
        const std::int32_t piece = piece_of(member);
        if (found.labels[at(piece)] != kSplit) continue;
        if (first == kNone) first = piece;
        parent[at(root(piece))] = root(first);
      }
    }
    std::vector<bool> decided(first_of_.size(), false);
    for (const sharding::ModelInput& input : model_.inputs()) {
      if (!decides(input.role) || !linkage_.is_tensor(input.node)) continue;
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(input.node).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        if (linkage_.group_of(input.node, dim) != kNone) decided[at(root(piece_of({input.node, dim})))] = true;
      }
    }
    for (std::size_t piece = 0; piece < begun_.size(); ++piece) {
      if (begun_[piece] && found.labels[piece] == kSplit) decided[at(root(static_cast<std::int32_t>(piece)))] = true;
    }
    // First the products that keep a piece apart from the weights: a product that only takes its part of something, or
    // is made whole where it could be split with its result.
    const auto is_undecided = [&](TensorDim dim) {
      const std::int32_t piece = piece_of(dim);
      return found.labels[at(piece)] == kSplit && !decided[at(root(piece))];
    };
    bool apart = false;
    for (const Instruction& instruction : instructions_) {
      const auto label = at(found.labels[at(instruction.site)]);
      const Way chosen = label == 0 ? Way{kNone, kNone} : instruction.ways[label - 1];
      if (chosen.in_parts != kNone) {
        const auto& members = factor_of(instruction, label).members;
        if (!std::any_of(members.begin(), members.end(), is_undecided)) continue;
        problem->sites[at(instruction.site)].cost[label] = kInfinity;
        apart = true;
        continue;
      }
      std::set<std::int32_t> factors;
      for (const Way& way : instruction.ways) factors.insert(way.factor);
      factors.erase(chosen.factor);
      for (const std::int32_t f : factors) {
        for (const TensorDim member : linkage_.factors(instruction.op)[at(f)].members) {
          if (is_operand(instruction.op, member.node) || !is_undecided(member)) continue;
          std::vector<double> cost((instruction.ways.size() + 1) * 2, 0);
          for (std::size_t other = 0; other <= instruction.ways.size(); ++other) {
            if (other == 0 || instruction.ways[other - 1].factor != f) cost[other * 2 + kSplit] = kInfinity;
          }
          problem->pairs.push_back({instruction.site, piece_of(member), std::move(cost)});
          apart = true;
        }
      }
    }
    if (apart) return true;
    bool undecided = false;
    for (std::size_t piece = 0; piece < first_of_.size(); ++piece) {
      if (found.labels[piece] != kSplit || decided[at(root(static_cast<std::int32_t>(piece)))]) continue;
      problem->sites[piece].cost[kSplit] = kInfinity;
      undecided = true;
    }
    return undecided;
  }

  void forbid_taking_parts(LabellingProblem* problem) const {
    for (const Instruction& instruction : instructions_) {
      for (std::size_t way = 0; way < instruction.ways.size(); ++way) {
        if (instruction.ways[way].in_parts != kNone) problem->sites[at(instruction.site)].cost[way + 1] = kInfinity;
      }
    }
  }

  Resharding read(const Labelling& found) const {
    Resharding out;
    out.sites = static_cast<std::int64_t>(found.labels.size());
    out.nodes = found.nodes;
    out.width = found.width;
    out.saved_ms = -found.cost;
    if (found.labels.empty()) return out;
    const auto is_split = [&](TensorDim dim) {
      const std::int32_t piece = piece_of(dim);
      return piece != kNone && found.labels[at(piece)] == kSplit;
    };
    for (const Instruction& instruction : instructions_) {
      const std::int32_t label = found.labels[at(instruction.site)];
      const auto factors = linkage_.factors(instruction.op);
      for (std::size_t f = 0; f < factors.size(); ++f) {
        const bool chosen = label > 0 && instruction.ways[at(label - 1)].factor == static_cast<std::int32_t>(f);
        for (const TensorDim member : factors[f].members) {
          if (chosen == is_split(member)) continue;
          const Gather::Kind kind = chosen                                     ? Gather::Kind::kInParts
                                    : is_exchanged(found, instruction, member) ? Gather::Kind::kExchanged
                                                                               : Gather::Kind::kRead;
          out.gathers.push_back({instruction.op, member.node, member.dim, kind});
        }
      }
    }
    for (NodeId op = 0; op < flow_.size(); ++op) {
      for_each_closed(op, [&](TensorDim dim) {
        if (is_split(dim)) out.gathers.push_back({op, dim.node, dim.dim});
      });
    }
    for (std::size_t piece = 0; piece < first_of_.size(); ++piece) {
      if (!begun_[piece] || found.labels[piece] != kSplit) continue;
      const TensorDim first = first_of_[piece];
      out.gathers.push_back({flow_.producer(first.node), first.node, first.dim, Gather::Kind::kBegun});
    }
    const auto order = [](const Gather& g) { return std::make_tuple(g.op, g.tensor, g.dim, g.kind); };
    std::sort(out.gathers.begin(), out.gathers.end(),
              [&](const Gather& a, const Gather& b) { return order(a) < order(b); });
    out.gathers.erase(std::unique(out.gathers.begin(), out.gathers.end()), out.gathers.end());
    for (std::size_t piece = 0; piece < first_of_.size(); ++piece) {
      if (found.labels[piece] == kSplit) out.split.push_back(first_of_[piece]);
    }
    return out;
  }

 private:
  // A way to split an instruction.
  struct Way {
    std::int32_t factor = 0;  // of linkage_.factors(op)
    NodeId in_parts = kNone;  // the operand of which it takes its part; the others of the factor are split
  };
  // An instruction at which groups may be cut. Label 0: not split; k: by ways[k - 1].
  struct Instruction {
    NodeId op = kNone;
    std::int32_t site = kNone;
    std::vector<Way> ways;
  };
  const OpFactor& factor_of(const Instruction& instruction, std::size_t label) const {
    return linkage_.factors(instruction.op)[at(instruction.ways[label - 1].factor)];
  }

  // The tensor is split along `dim`, the instruction takes its part along another dimension, and nobody gathers it.
  bool is_exchanged(const Labelling& found, const Instruction& instruction, TensorDim dim) const {
    const std::int32_t label = found.labels[at(instruction.site)];
    if (label == 0 || instruction.ways[at(label - 1)].in_parts != dim.node) return false;
    const auto reader = reader_site_.find(dim_index(dim));
    return reader != reader_site_.end() && found.labels[at(reader->second)] == kSplit;
  }

  // Dimensions that do not pass an instruction: blocked, or parted into sizes that the devices do not divide.
  template <typename Visit>
  void for_each_closed(NodeId op, const Visit& visit) const {
    for (const Linkage::BlockedMember& blocked : linkage_.blocked(op)) visit(blocked.at);
    for (const OpFactor& factor : linkage_.factors(op)) {
      if (cuttable_[at(op)] || holds(factor)) continue;
      for (const TensorDim member : factor.members) visit(member);
    }
  }

  void number_dims() {
    first_dim_.assign(at(flow_.size()) + 1, 0);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      first_dim_[at(node) + 1] = first_dim_[at(node)] + static_cast<std::int32_t>(linkage_.groups_of(node).size());
    }
    parent_.resize(at(first_dim_.back()));
    for (std::size_t i = 0; i < parent_.size(); ++i) parent_[i] = static_cast<std::int32_t>(i);
    dim_of_.reserve(parent_.size());
    for (NodeId node = 0; node < flow_.size(); ++node) {
      for (std::int32_t dim = 0; first_dim_[at(node)] + dim < first_dim_[at(node) + 1]; ++dim)
        dim_of_.push_back({node, dim});
    }
  }
  std::int32_t dim_index(TensorDim dim) const { return first_dim_[at(dim.node)] + dim.dim; }
  std::int32_t find(std::int32_t i) {
    while (parent_[at(i)] != i) {
      parent_[at(i)] = parent_[at(parent_[at(i)])];
      i = parent_[at(i)];
    }
    return i;
  }
  void tie(TensorDim a, TensorDim b) {
    const std::int32_t x = find(dim_index(a)), y = find(dim_index(b));
    parent_[at(std::max(x, y))] = std::min(x, y);
  }

  std::int64_t extent(TensorDim dim) const { return flow_.shape(dim.node).dims[at(dim.dim)]; }

  void find_cuttable() {
    cuttable_.assign(at(flow_.size()), false);
    for (NodeId op = 0; op < flow_.size(); ++op) {
      const Opcode opcode = flow_.node(op).opcode;
      cuttable_[at(op)] = opcode == Opcode::kDot || opcode == Opcode::kConvolution ||
                          (opcode == Opcode::kReshape && !linkage_.blocked(op).empty());
    }
  }

  // True if all tensors of a factor are split together or not at all.
  bool holds(const OpFactor& factor) const { return !cuttable_[at(factor.op)] && factor.extent % shards_ == 0; }

  void join() {
    for (NodeId op = 0; op < flow_.size(); ++op) {
      for (const OpFactor& factor : linkage_.factors(op)) {
        for (const TensorDim member : factor.members) {
          if (holds(factor)) tie(factor.members[0], member);
        }
      }
    }
    for (const auto& [a, b] : linkage_.ties()) {
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(a).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        if (linkage_.group_of(a, dim) != kNone) tie({a, dim}, {b, dim});
      }
    }
  }

  // Pieces are the first sites.
  void number_pieces() {
    piece_of_dim_.assign(parent_.size(), kNone);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(node).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        if (linkage_.group_of(node, dim) == kNone) continue;
        const std::int32_t i = dim_index({node, dim}), root = find(i);
        if (root == i) {
          piece_of_dim_[at(i)] = static_cast<std::int32_t>(problem_.sites.size());
          problem_.sites.push_back({{0, 0}, {0, 0}});
          first_of_.push_back({node, dim});
        } else {
          piece_of_dim_[at(i)] = piece_of_dim_[at(root)];
        }
      }
    }
  }
  std::int32_t piece_of(TensorDim dim) const { return piece_of_dim_[at(dim_index(dim))]; }
  bool allowed(std::int32_t piece) const { return problem_.sites[at(piece)].cost[kSplit] < kInfinity; }
  void forbid(std::int32_t piece) { problem_.sites[at(piece)].cost[kSplit] = kInfinity; }

  bool decides(graph::InputRole role) const { return !batch_.empty() || role != graph::InputRole::kStepInput; }

  // The axis that this one is nested in splits it, into parts that cannot be split further.
  bool parted_by_outer(TensorDim dim) const {
    if (outer_ == nullptr) return false;
    const sharding::TensorState state = outer_->state(dim.node);
    return state.kind == sharding::TensorStateKind::kSplit && state.dim == dim.dim &&
           extent(dim) % (shards_ * outer_->linkage().shards()) != 0;
  }

  // By linkage group: whether it may be split.
  std::vector<bool> may_be_split() const {
    std::vector<bool> out(at(linkage_.num_groups()), false);
    for (const sharding::ModelInput& input : model_.inputs()) {
      if ((input.role == graph::InputRole::kStepInput) == batch_.empty()) continue;
      for (const GroupId group : linkage_.groups_of(input.node)) {
        if (group != kNone) out[at(group)] = true;
      }
    }
    if (!batch_.empty()) {
      for (const TensorDim dim : expert_dims(model_)) out[at(linkage_.group_of(dim))] = true;
    }
    return out;
  }

  // Attention that weights split along nothing (the devices do not divide its heads) may be split by any of its
  // dimensions: its operands are gathered and taken in parts. Dimensions that split the data itself are left out.
  void find_begun() {
    begun_.assign(problem_.sites.size(), false);
    if (!batch_.empty()) return;
    const std::vector<bool> may_be = may_be_split();
    if (sequences_) begin_sequences(may_be);
    for (const NodeId op : products_of_activations(model_)) {
      const auto factors = linkage_.factors(op);
      const auto is_decided = [&](const OpFactor& factor) {
        return may_be[at(factor.group)] && factor.extent % shards_ == 0;
      };
      if (std::any_of(factors.begin(), factors.end(), is_decided)) continue;
      begins_.insert(op);
      for (const OpFactor& factor : factors) {
        for (const TensorDim member : factor.members) begun_[at(piece_of(member))] = true;
      }
    }
    for (const sharding::ModelInput& input : model_.inputs()) {
      if (sequences_ && !decides(input.role)) continue;
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(input.node).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        if (linkage_.group_of(input.node, dim) != kNone) begun_[at(piece_of({input.node, dim}))] = false;
      }
    }
  }

  // Between::kSequences: dimensions that neither a weight decides nor the batch holds may be split, too.
  void begin_sequences(const std::vector<bool>& may_be) {
    std::vector<bool> excluded = may_be;
    for (const TensorDim dim : find_batch(model_)) {
      if (linkage_.group_of(dim) != kNone) excluded[at(linkage_.group_of(dim))] = true;
    }
    for (std::size_t i = 0; i < dim_of_.size(); ++i) {
      if (piece_of_dim_[i] == kNone) continue;
      const GroupId group = linkage_.group_of(dim_of_[i]);
      if (!excluded[at(group)]) begun_[at(piece_of_dim_[i])] = true;
    }
  }

  // Pieces that cannot be split, or that nobody here decides.
  void forbid() {
    const std::vector<bool> may_be = may_be_split();
    std::vector<std::int32_t> last(problem_.sites.size(), kNone);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(node).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        const GroupId group = linkage_.group_of(node, dim);
        if (group == kNone) continue;
        const std::int32_t piece = piece_of({node, dim});
        if (last[at(piece)] == node || extent({node, dim}) % shards_ != 0 ||
            !(may_be[at(group)] || begun_[at(piece)]) || parted_by_outer({node, dim})) {
          forbid(piece);
        }
        last[at(piece)] = node;
      }
    }
    // Two factors of one instruction would be split at once.
    for (NodeId op = 0; op < flow_.size(); ++op) {
      const auto factors = linkage_.factors(op);
      for (std::size_t i = 0; i < factors.size(); ++i) {
        for (std::size_t j = 0; j < i && holds(factors[i]); ++j) {
          if (holds(factors[j]) && piece_of(factors[i].members[0]) == piece_of(factors[j].members[0]))
            forbid(piece_of(factors[i].members[0]));
        }
      }
    }
  }

  bool is_read(NodeId node) const {
    return !flow_.users(node).empty() ||
           std::find(flow_.results().begin(), flow_.results().end(), node) != flow_.results().end();
  }
  double reduce_ms(const OpFactor& factor) const {
    double ms = 0;
    for (const NodeId node : factor.partial) {
      if (is_read(node))
        ms += cost_.runs(node) * cost_.links().all_reduce.ms(cost_.moved_bytes(node, CollectiveKind::kAllReduce));
    }
    return ms;
  }
  double gather_ms(NodeId node) const {
    return cost_.runs(node) * cost_.links().all_gather.ms(cost_.moved_bytes(node, CollectiveKind::kAllGather));
  }

  double exchange_ms(NodeId node) const {
    return cost_.runs(node) * cost_.links().all_to_all.ms(cost_.moved_bytes(node, CollectiveKind::kAllToAll));
  }

  void price_pieces() {
    for (NodeId op = 0; op < flow_.size(); ++op) {
      for (const OpFactor& factor : linkage_.factors(op)) {
        if (!holds(factor)) continue;
        problem_.sites[at(piece_of(factor.members[0]))].cost[kSplit] += reduce_ms(factor) - cost_.saved_ms(op);
      }
    }
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const double bytes = cost_.kept_bytes(node), moved = cost_.other_saved_ms(node);
      const NodeId maker = flow_.producer(node);
      // A product that is split by the dimension reduces its result in parts (counted in add_instruction).
      const double reduced = cuttable_[at(maker)] ? 0 : cost_.other_reduction_saved_ms(node);
      whole_bytes_ += bytes;
      if (bytes <= 0 && moved <= 0 && reduced <= 0) continue;
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(node).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        if (linkage_.group_of(node, dim) == kNone) continue;
        // Savings are counted from the memory of everything whole (finish_memory).
        problem_.sites[at(piece_of({node, dim}))].memory[kSplit] -= bytes - bytes / shards_;
        problem_.sites[at(piece_of({node, dim}))].cost[kSplit] -=
            moved + (reduced > 0 && !is_closed(maker, {node, dim}) ? reduced : 0);
      }
    }
  }

  void add_pair(std::int32_t a, std::int32_t b, std::vector<double> cost) {
    problem_.pairs.push_back({a, b, std::move(cost)});
  }

  // Labels of a reader site: kInParts only where somebody may take its part.
  std::size_t reader_states(TensorDim dim) const { return taken_.count(dim_index(dim)) != 0 ? 4 : 3; }

  // The site of a tensor's dimension that instructions read which may be cut: whole as its piece is, split as its piece
  // is, split and gathered, or whole as its piece is and taken in parts.
  std::int32_t reader_site(TensorDim dim) {
    const auto [found, added] =
        reader_site_.try_emplace(dim_index(dim), static_cast<std::int32_t>(problem_.sites.size()));
    if (added) {
      // The result of a product that is split by it is gathered there (made_by_products); a result that is made whole
      // needs no gather.
      const NodeId maker = flow_.producer(dim.node);
      const bool free = cuttable_[at(maker)] || is_closed(maker, dim);
      const double copy = cost_.copy_bytes(dim.node);
      LabellingProblem::Site site = {{0, 0, free ? 0 : gather_ms(dim.node)}, {0, 0, copy}};
      std::vector<double> of_whole = {0, kInfinity, kInfinity}, of_split = {kInfinity, 0, 0};
      if (reader_states(dim) > kInParts) {
        site.cost.push_back(0);
        site.memory.push_back(copy / static_cast<double>(shards_));
        of_whole.push_back(0);
        of_split.push_back(kInfinity);
      }
      problem_.sites.push_back(std::move(site));
      of_whole.insert(of_whole.end(), of_split.begin(), of_split.end());
      add_pair(piece_of(dim), found->second, std::move(of_whole));
    }
    return found->second;
  }

  bool is_closed(NodeId op, TensorDim dim) const {
    bool closed = false;
    for_each_closed(op, [&](TensorDim other) { closed = closed || other == dim; });
    return closed;
  }

  // Adds the gathers of products' results: of parts only.
  void made_by_products() {
    for (const Instruction& instruction : instructions_) {
      const std::size_t labels = instruction.ways.size() + 1;
      for (std::size_t label = 1; label < labels; ++label) {
        for (const TensorDim member : factor_of(instruction, label).members) {
          const auto reader = reader_site_.find(dim_index(member));
          if (is_operand(instruction.op, member.node) || reader == reader_site_.end()) continue;
          const std::size_t states = reader_states(member);
          std::vector<double> cost(labels * states, 0);
          cost[label * states + kSplitAndGathered] = gather_ms(member.node);
          add_pair(instruction.site, reader->second, std::move(cost));
        }
      }
    }
  }

  // A sum of which every device goes on with its part alone costs a reduce-scatter (sharding::kept_in_parts).
  void sums_kept_in_parts() {
    for (const Instruction& instruction : instructions_) {
      const std::size_t labels = instruction.ways.size() + 1;
      for (std::size_t label = 1; label < labels; ++label) {
        const OpFactor& factor = factor_of(instruction, label);
        if (factor.reduction != sharding::Reduction::kAdd) continue;
        for (const NodeId node : factor.partial) {
          if (is_read(node)) sum_kept_in_parts(instruction.site, labels, label, node);
        }
      }
    }
  }

  void sum_kept_in_parts(std::int32_t site, std::size_t labels, std::size_t label, NodeId node) {
    const ShardLinks& links = cost_.links();
    const double bytes = cost_.moved_bytes(node, CollectiveKind::kAllReduce);
    const double saved = cost_.runs(node) * (links.all_reduce.ms(bytes) - links.reduce_scatter.ms(bytes));
    const auto rank = static_cast<std::int32_t>(linkage_.groups_of(node).size());
    for (std::int32_t dim = 0; dim < rank; ++dim) {
      if (linkage_.group_of(node, dim) == kNone || !allowed(piece_of({node, dim}))) continue;
      const auto reader = reader_site_.find(dim_index({node, dim}));
      const std::size_t states = reader == reader_site_.end() ? 2 : reader_states({node, dim});
      std::vector<double> cost(labels * states, 0);
      cost[label * states + kSplit] = between_ == Between::kWhole ? kInfinity : -saved;
      if (between_ == Between::kWhole && states > kSplitAndGathered) {
        cost[label * states + kSplitAndGathered] = kInfinity;
      }
      add_pair(site, reader == reader_site_.end() ? piece_of({node, dim}) : reader->second, std::move(cost));
    }
  }

  // Adds exchanges of tensors that are split along one dimension and read in parts along another.
  void exchanges() {
    for (const auto& [from, reader] : reader_site_) {
      const TensorDim dim = dim_of_[at(from)];
      if (!allowed(piece_of(dim))) continue;
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(dim.node).size());
      for (std::int32_t other = 0; other < rank; ++other) {
        const auto into = reader_site_.find(first_dim_[at(dim.node)] + other);
        if (other == dim.dim || into == reader_site_.end() || taken_.count(into->first) == 0) continue;
        const std::size_t states = reader_states(dim_of_[at(into->first)]);
        std::vector<double> cost(reader_states(dim) * states, 0);
        cost[kSplit * states + kInParts] = exchange_ms(dim.node);
        add_pair(reader, into->second, std::move(cost));
      }
    }
  }

  bool is_operand(NodeId op, NodeId tensor) const { return flow_.producer(tensor) != op; }

  // A tensor that stands on both sides cannot be read in two ways: a gather is one of the tensor.
  static bool shares_member(Span<const OpFactor> factors, std::size_t f) {
    for (std::size_t other = 0; other < factors.size(); ++other) {
      for (const TensorDim member : factors[other].members) {
        if (other != f &&
            std::find(factors[f].members.begin(), factors[f].members.end(), member) != factors[f].members.end()) {
          return true;
        }
      }
    }
    return false;
  }

  // Finds all instructions that may be cut, with their ways; and the tensors of which somebody may take its part.
  void find_ways() {
    for (NodeId op = 0; op < flow_.size(); ++op) {
      if (!cuttable_[at(op)]) continue;
      Instruction instruction;
      instruction.op = op;
      const auto factors = linkage_.factors(op);
      for (std::size_t f = 0; f < factors.size(); ++f) {
        if (factors[f].extent % shards_ != 0 || shares_member(factors, f)) continue;
        const auto try_way = [&](NodeId in_parts) {
          if (is_possible(factors[f], in_parts)) instruction.ways.push_back({static_cast<std::int32_t>(f), in_parts});
        };
        try_way(kNone);
        for (const TensorDim member : factors[f].members) {
          if (takes_parts(op) && is_operand(op, member.node)) try_way(member.node);
        }
      }
      for (std::size_t label = 1; label <= instruction.ways.size(); ++label) {
        for (const TensorDim member : factor_of(instruction, label).members) {
          if (member.node == instruction.ways[label - 1].in_parts) taken_.insert(dim_index(member));
        }
      }
      instructions_.push_back(std::move(instruction));
    }
  }

  void add_instruction(Instruction* instruction) {
    const NodeId op = instruction->op;
    const auto factors = linkage_.factors(op);
    instruction->site = static_cast<std::int32_t>(problem_.sites.size());
    std::vector<double> cost = {0};
    for (std::size_t label = 1; label <= instruction->ways.size(); ++label) {
      const OpFactor& factor = factor_of(*instruction, label);
      double saved = cost_.saved_ms(op);
      for (const TensorDim member : factor.members) {
        if (!is_operand(op, member.node)) saved += cost_.other_reduction_saved_ms(member.node);
      }
      cost.push_back(reduce_ms(factor) - saved);
    }
    problem_.sites.push_back({std::move(cost), {}});
    for (std::size_t f = 0; f < factors.size(); ++f) {
      for (const TensorDim member : factors[f].members) meet(*instruction, static_cast<std::int32_t>(f), member);
    }
  }

  // True if the instruction can take its part of a whole tensor. (Other instructions that may be cut there are made
  // whole with it.)
  bool takes_parts(NodeId op) const {
    return flow_.node(op).opcode == Opcode::kDot || flow_.node(op).opcode == Opcode::kConvolution;
  }

  // True if an operand is split (nothing is split unless something forces it), or if the splitting begins here.
  bool is_possible(const OpFactor& factor, NodeId in_parts) const {
    if (rows_ && rows_->products[at(factor.op)] && rows_->groups[at(factor.group)]) return false;
    bool any = in_parts == kNone || begins_.count(factor.op) != 0;
    for (const TensorDim member : factor.members) {
      if (member.node == in_parts ? extent(member) % shards_ != 0 : !allowed(piece_of(member))) return false;
      any = any || (member.node != in_parts && is_operand(factor.op, member.node));
    }
    return any;
  }

  // Adds the cost between factor f of the instruction and its member `dim`.
  void meet(const Instruction& instruction, std::int32_t f, TensorDim dim) {
    const bool operand = is_operand(instruction.op, dim.node);
    if (!allowed(piece_of(dim)) && (!operand || taken_.count(dim_index(dim)) == 0)) return;
    const std::size_t states = operand ? reader_states(dim) : 2;
    std::vector<double> cost((instruction.ways.size() + 1) * states, 0);
    for (std::size_t label = 0; label <= instruction.ways.size(); ++label) {
      double* const of_label = cost.data() + label * states;
      const Way way = label == 0 ? Way{kNone, kNone} : instruction.ways[label - 1];
      const bool takes = way.in_parts == dim.node;
      if (way.factor == f) {
        // Split with its factor, or taken in parts.
        of_label[kWhole] = kInfinity;
        if (takes) of_label[kSplit] = of_label[kSplitAndGathered] = kInfinity;
        if (operand && !takes && states > kInParts) of_label[kInParts] = kInfinity;
      } else if (operand && !takes) {
        // Whole, unless it is gathered. A result that is made whole may be kept in parts.
        of_label[kSplit] = kInfinity;
      }
    }
    add_pair(instruction.site, operand ? reader_site(dim) : piece_of(dim), std::move(cost));
  }

  // Two dimensions of one tensor, two factors of one instruction.
  void exclude() {
    std::set<std::pair<std::int32_t, std::int32_t>> known;
    const auto exclude = [&](std::int32_t a, std::int32_t b) {
      if (a == b || !allowed(a) || !allowed(b) || !known.emplace(std::min(a, b), std::max(a, b)).second) return;
      add_pair(a, b, {0, 0, 0, kInfinity});
    };
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const auto rank = static_cast<std::int32_t>(linkage_.groups_of(node).size());
      for (std::int32_t i = 0; i < rank; ++i) {
        for (std::int32_t j = 0; j < i; ++j) {
          if (linkage_.group_of(node, i) != kNone && linkage_.group_of(node, j) != kNone) {
            exclude(piece_of({node, i}), piece_of({node, j}));
          }
        }
      }
      const auto factors = linkage_.factors(node);
      for (std::size_t i = 0; i < factors.size(); ++i) {
        for (std::size_t j = 0; j < i && holds(factors[i]); ++j) {
          if (holds(factors[j])) exclude(piece_of(factors[i].members[0]), piece_of(factors[j].members[0]));
        }
      }
    }
  }

  void finish_memory(double limit_bytes) {
    if (limit_bytes <= 0) {
      for (LabellingProblem::Site& site : problem_.sites) site.memory.clear();
      return;
    }
    double most_saved = 0;
    for (std::size_t piece = 0; piece < first_of_.size(); ++piece) {
      std::vector<double>& memory = problem_.sites[piece].memory;
      // Turns a saving into the rest, so that nothing is negative.
      const double saved = -memory[kSplit];
      most_saved += saved;
      memory = {saved, 0};
    }
    problem_.memory_limit = limit_bytes - whole_bytes_ + most_saved;
  }

  const sharding::ShardingModel& model_;
  const FlowGraph& flow_;
  const Linkage& linkage_;
  const PartitionCost& cost_;
  const std::int64_t shards_;
  const std::vector<TensorDim> batch_;
  const sharding::Propagation* const outer_;
  const Between between_;
  const bool sequences_;
  const RowsOfWeights* rows_;  // where they stay whole; or null
  std::vector<std::int32_t> first_dim_, parent_, piece_of_dim_;
  std::vector<bool> cuttable_;
  std::vector<TensorDim> dim_of_;                     // by dim_index
  std::vector<TensorDim> first_of_;                   // of each piece
  std::vector<bool> begun_;                           // by piece: may be split although no weight decides it
  std::set<NodeId> begins_;                           // products where that is so
  std::map<std::int32_t, std::int32_t> reader_site_;  // by dim_index
  std::set<std::int32_t> taken_;                      // of which somebody may take its part
  std::vector<Instruction> instructions_;
  double whole_bytes_ = 0;
  LabellingProblem problem_;
};

}  // namespace

namespace {

// Keeps, of the pieces that begin without an input, those that no input decides either, one in each linkage group.
void keep_needed_beginnings(const sharding::ShardingModel& model, std::vector<Gather>* gathers) {
  const auto is_begun = [](const Gather& gather) { return gather.kind == Gather::Kind::kBegun; };
  if (std::none_of(gathers->begin(), gathers->end(), is_begun)) return;
  std::vector<Gather> others;
  std::remove_copy_if(gathers->begin(), gathers->end(), std::back_inserter(others), is_begun);
  sharding::ShardingModel linked = model.another_axis(model.linkage().shards());
  linked.relink(model.linkage().shards(), std::move(others));
  std::set<GroupId> begun;
  std::set<NodeId> deciding;
  for (const sharding::ModelInput& input : model.inputs()) {
    if (input.role != graph::InputRole::kStepInput) deciding.insert(input.node);
  }
  const auto is_needless = [&](const Gather& gather) {
    if (!is_begun(gather)) return false;
    const GroupId group = linked.linkage().group_of(gather.tensor, gather.dim);
    const auto inputs = linked.linkage().inputs(group);
    const auto decides = [&](const TensorDim& input) { return deciding.count(input.node) != 0; };
    return std::any_of(inputs.begin(), inputs.end(), decides) || !begun.insert(group).second;
  };
  gathers->erase(std::remove_if(gathers->begin(), gathers->end(), is_needless), gathers->end());
}

Resharding find(const sharding::ShardingModel& model, const PartitionCost& cost, const std::vector<TensorDim>& batch,
                const ReshardingOptions& options, double memory_limit_bytes, Work& work) {
  AM_CHECK(model.gathers().empty());
  PathsBuilder builder(model, cost, batch, options);
  LabellingProblem problem = builder.build(memory_limit_bytes);
  const auto solve_decided = [&](LabellingProblem* with, double* bound) {
    Labelling found = solve_labelling(*with, LabellingOptions(), work);
    *bound = found.bound;
    while (builder.forbid_undecided(found, with)) found = solve_labelling(*with, LabellingOptions(), work);
    return found;
  };
  LabellingProblem without = problem;
  double bound = 0, bound_without = 0;
  Labelling found = solve_decided(&problem, &bound);
  if (found.cost > bound + 1e-9 * std::abs(bound)) {
    // Forbidding pieces that no weight decides may have forbidden too much. If no instruction takes its part of a whole
    // tensor, less must be forbidden.
    builder.forbid_taking_parts(&without);
    Labelling other = solve_decided(&without, &bound_without);
    if (other.cost < found.cost) found = std::move(other);
  }
  Resharding out = builder.read(found);
  keep_needed_beginnings(model, &out.gathers);
  out.set_bound(-bound);
  return out;
}

}  // namespace

void Resharding::set_bound(double ms) {
  bound_ms = ms;
  proven = saved_ms >= ms - 1e-9 * std::max(1.0, std::abs(ms));
}

std::vector<GroupId> split_groups(const sharding::ShardingModel& model, const Resharding& found) {
  std::set<GroupId> split;
  for (const TensorDim at : found.split) {
    const GroupId group = model.linkage().group_of(at);
    if (model.linkage().decidable(group)) split.insert(group);
  }
  return {split.begin(), split.end()};
}

Resharding find_resharding(const sharding::ShardingModel& model, const PartitionCost& cost, double memory_limit_bytes,
                           Work& work, const ReshardingOptions& options) {
  return find(model, cost, {}, options, memory_limit_bytes, work);
}

Resharding find_expert_resharding(const sharding::ShardingModel& model, const PartitionCost& cost,
                                  const std::vector<TensorDim>& batch, Work& work) {
  AM_CHECK(!batch.empty());
  if (expert_dims(model).empty()) return {};
  return find(model, cost, batch, {}, 0, work);
}

}  // namespace automap::partition
