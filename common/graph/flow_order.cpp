#include "common/graph/flow_order.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace automap::graph {

bool is_cheap(const FlowGraph& flow, NodeId id) {
  const FlowNode& node = flow.node(id);
  if (node.opcode == Opcode::kConditional) return node.leaf != kNone;
  if (node.opcode == Opcode::kCustomCall) return is_annotation(flow.graph(), node.instruction);
  return !has_trait(node.opcode, trait::kHeavy | trait::kCollective);
}

namespace {

class Orderer {
 public:
  explicit Orderer(const TrainingStep& step)
      : step_(step), flow_(step.flow), n_(static_cast<std::size_t>(flow_.size())) {}

  FlowOrder run() {
    find_origins();
    find_depths();
    depth_first();
    // Each way of moving is a rule of thumb; the result that keeps fewer bytes alive is taken.
    for (const bool up : {true, false}) {
      const std::vector<NodeId> before = main_;
      std::vector<NodeId> best = main_;
      double least = total_alive();
      for (const double crowding : {0.0, 1.0}) {
        main_ = before;
        if (up) {
          move_up(crowding);
        } else {
          move_down(crowding);
        }
        const double total = total_alive();
        if (total >= least) continue;
        least = total;
        best = main_;
      }
      main_ = std::move(best);
    }
    place_all();
    return std::move(out_);
  }

 private:
  bool is_forward(NodeId id) const { return step_.part[static_cast<std::size_t>(id)] == Part::kForward; }
  bool is_projection(NodeId id) const { return flow_.producer(id) != id; }
  // The nodes that the order is about; the others are placed around them.
  bool is_main(NodeId id) const {
    return is_forward(id) && out_.origin[static_cast<std::size_t>(id)] == Origin::kFlow && !is_projection(id);
  }
  // Bytes of a node's value; for tuple-shaped units, of the results that are read.
  double bytes(NodeId id) const {
    const Shape& shape = flow_.shape(id);
    if (shape.is_array()) {
      const double own = static_cast<double>(shape.bytes);
      if (!is_movement(flow_, id)) return own;
      // A wider form is made again behind a cut.
      const Shape& narrow = flow_.shape(flow_.operands(id)[0]);
      return narrow.is_array() ? std::min(own, static_cast<double>(narrow.bytes)) : own;
    }
    double total = 0;
    for (const NodeId user : flow_.users(id)) {
      if (is_projection(user) && is_forward(user)) total += static_cast<double>(flow_.shape(user).bytes);
    }
    return total;
  }

  void find_origins() {
    out_.origin.assign(n_, Origin::kNothing);
    for (const EntryInput& input : step_.inputs) {
      out_.origin[static_cast<std::size_t>(input.node)] =
          input.role == InputRole::kStepInput ? Origin::kInputs : Origin::kWeights;
    }
    for (NodeId id = 0; id < flow_.size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (flow_.node(id).opcode == Opcode::kParameter) continue;
      if (step_.part[i] == Part::kFree) continue;
      Origin origin = Origin::kNothing;
      for (const NodeId operand : flow_.operands(id)) {
        const Origin other = out_.origin[static_cast<std::size_t>(operand)];
        if (other == Origin::kNothing || other == origin) continue;
        origin = origin == Origin::kNothing ? other : Origin::kFlow;
      }
      // Random numbers and the like without any operand that counts: an input of the step.
      if (origin == Origin::kNothing) origin = Origin::kInputs;
      if (origin == Origin::kInputs && !is_cheap(flow_, id)) origin = Origin::kFlow;
      out_.origin[i] = origin;
    }
    // A module that does nothing but prepare (no weights, nothing heavy) is still a flow.
    bool any = false;
    for (NodeId id = 0; !any && id < flow_.size(); ++id) any = is_main(id);
    if (any) return;
    for (NodeId id = 0; id < flow_.size(); ++id) {
      Origin& origin = out_.origin[static_cast<std::size_t>(id)];
      if (flow_.node(id).opcode != Opcode::kParameter && origin != Origin::kNothing) origin = Origin::kFlow;
    }
  }

  void find_depths() {
    depth_.assign(n_, 0);
    for (NodeId id = 0; id < flow_.size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (!is_forward(id) || out_.origin[i] != Origin::kFlow) continue;
      std::int32_t depth = 0;
      for (const NodeId operand : flow_.operands(id))
        depth = std::max(depth, depth_[static_cast<std::size_t>(operand)]);
      depth_[i] = depth + 1;
    }
  }

  // The main nodes `id` reads, deepest first, each once; what lies between (projections) is skipped.
  void flow_operands(NodeId id, std::vector<NodeId>* out) const {
    out->clear();
    for (const NodeId operand : flow_.operands(id)) {
      const NodeId main = flow_.producer(operand);
      if (is_main(main) && std::find(out->begin(), out->end(), main) == out->end()) out->push_back(main);
    }
    std::stable_sort(out->begin(), out->end(), [&](NodeId a, NodeId b) {
      return depth_[static_cast<std::size_t>(a)] > depth_[static_cast<std::size_t>(b)];
    });
  }

  void depth_first() {
    // Where nothing forward reads on: the loss, the results of an inference module.
    std::vector<NodeId> sinks;
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (!is_main(id)) continue;
      bool read = false;
      for (const NodeId user : flow_.users(id)) {
        if (!is_forward(user)) continue;
        if (!is_projection(user)) {
          read = true;
          continue;
        }
        for (const NodeId second : flow_.users(user)) read = read || is_forward(second);
      }
      if (!read) sinks.push_back(id);
    }
    // Equal depth: in the order of the module's results, which does not depend on the text's order either.
    std::vector<std::int32_t> result_of(n_, std::numeric_limits<std::int32_t>::max());
    for (std::size_t r = flow_.results().size(); r-- > 0;)
      result_of[static_cast<std::size_t>(flow_.producer(flow_.results()[r]))] = static_cast<std::int32_t>(r);
    std::stable_sort(sinks.begin(), sinks.end(), [&](NodeId a, NodeId b) {
      const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
      return depth_[i] != depth_[j] ? depth_[i] > depth_[j] : result_of[i] < result_of[j];
    });
    struct Visit {
      NodeId node;
      std::size_t next;
      std::vector<NodeId> operands;
    };
    std::vector<bool> seen(n_, false);
    std::vector<Visit> stack;
    const auto enter = [&](NodeId id) {
      seen[static_cast<std::size_t>(id)] = true;
      Visit visit{id, 0, {}};
      flow_operands(id, &visit.operands);
      stack.push_back(std::move(visit));
    };
    for (const NodeId sink : sinks) {
      if (seen[static_cast<std::size_t>(sink)]) continue;
      enter(sink);
      while (!stack.empty()) {
        Visit& top = stack.back();
        if (top.next == top.operands.size()) {
          main_.push_back(top.node);
          stack.pop_back();
          continue;
        }
        const NodeId operand = top.operands[top.next++];
        if (!seen[static_cast<std::size_t>(operand)]) enter(operand);
      }
    }
  }

  double total_alive() const {
    std::vector<std::int32_t> place(n_, kNone), last(n_, kNone);
    std::vector<NodeId> operands;
    for (std::size_t p = 0; p < main_.size(); ++p) {
      place[static_cast<std::size_t>(main_[p])] = static_cast<std::int32_t>(p);
      flow_operands(main_[p], &operands);
      for (const NodeId operand : operands) last[static_cast<std::size_t>(operand)] = static_cast<std::int32_t>(p);
    }
    const std::vector<double> live = alive(place, last);
    double total = 0;
    for (const double b : live) total += b;
    return total;
  }

  // Bytes alive behind every place of the current order of main nodes.
  std::vector<double> alive(const std::vector<std::int32_t>& place, const std::vector<std::int32_t>& last) const {
    std::vector<double> out(main_.size() + 1, 0);
    for (const NodeId id : main_) {
      const auto i = static_cast<std::size_t>(id);
      if (last[i] == kNone) continue;
      out[static_cast<std::size_t>(place[i])] += bytes(id);
      out[static_cast<std::size_t>(last[i])] -= bytes(id);
    }
    for (std::size_t p = 1; p < out.size(); ++p) out[p] += out[p - 1];
    return out;
  }

  // Side branches move up behind their operands when fewer bytes are alive then. A branch is a chain of nodes each read
  // by the next one only; it is judged by its slimmest point. `crowding`: the weight of other values that are alive at
  // the node's new place.
  void move_up(double crowding) {
    const std::size_t m = main_.size();
    std::vector<std::int32_t> place(n_, kNone);  // original
    for (std::size_t p = 0; p < m; ++p) place[static_cast<std::size_t>(main_[p])] = static_cast<std::int32_t>(p);
    std::vector<std::int32_t> last(n_, -1), before_last(n_, -1);
    std::vector<std::int32_t> users(n_, 0);
    std::vector<NodeId> only_user(n_, kNone), operands;
    for (std::size_t p = 0; p < m; ++p) {
      flow_operands(main_[p], &operands);
      for (const NodeId operand : operands) {
        const auto o = static_cast<std::size_t>(operand);
        before_last[o] = last[o];
        last[o] = static_cast<std::int32_t>(p);
        ++users[o];
        only_user[o] = main_[p];
      }
    }
    const std::vector<double> live = alive(place, last);
    std::vector<std::int32_t> anchor(n_, kNone);
    for (std::size_t p = 0; p < m; ++p) anchor[static_cast<std::size_t>(main_[p])] = static_cast<std::int32_t>(p);
    std::vector<NodeId> chain;
    for (std::size_t p = 0; p < m; ++p) {
      const NodeId id = main_[p];
      const auto i = static_cast<std::size_t>(id);
      if (anchor[i] != static_cast<std::int32_t>(p)) continue;  // moved with its chain
      flow_operands(id, &operands);
      if (operands.empty()) continue;
      std::int32_t ready = -1;
      for (const NodeId operand : operands) ready = std::max(ready, anchor[static_cast<std::size_t>(operand)]);
      // Already directly behind its operands?
      if (ready + 1 >= static_cast<std::int32_t>(p) || ready < 0) continue;
      // Extends the chain as far as it goes: every further node reads only the chain and nodes that are ready.
      chain.assign(1, id);
      double freed = freed_by(operands, static_cast<std::int32_t>(p), ready, last, before_last);
      // The memory that is alive at the node's new place, beyond that at its old place.
      const double denser = crowding * (live[static_cast<std::size_t>(ready)] - live[p > 0 ? p - 1 : 0]);
      double best_gain = gain(id, p, ready, freed) - denser;
      std::size_t best_length = 1;
      for (NodeId at = id; chain.size() < 24 && users[static_cast<std::size_t>(at)] == 1;) {
        const NodeId next = only_user[static_cast<std::size_t>(at)];
        flow_operands(next, &operands);
        const std::int32_t q = place[static_cast<std::size_t>(next)];
        bool only_ready = true;
        std::vector<NodeId> others;
        for (const NodeId operand : operands) {
          if (std::find(chain.begin(), chain.end(), operand) != chain.end()) continue;
          others.push_back(operand);
          only_ready = only_ready && anchor[static_cast<std::size_t>(operand)] <= ready;
        }
        if (!only_ready) break;
        freed += freed_by(others, q, ready, last, before_last);
        chain.push_back(next);
        at = next;
        const double g =
            gain(next, static_cast<std::size_t>(q), ready, freed) - denser * static_cast<double>(chain.size());
        if (g >= best_gain) {
          best_gain = g;
          best_length = chain.size();
        }
      }
      if (best_gain <= 0) continue;
      for (std::size_t k = 0; k < best_length; ++k) anchor[static_cast<std::size_t>(chain[k])] = ready;
    }
    std::stable_sort(main_.begin(), main_.end(), [&](NodeId a, NodeId b) {
      const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
      if (anchor[i] != anchor[j]) return anchor[i] < anchor[j];
      // The node that stands there first, then those moved behind it, as they were ordered.
      const bool moved_a = place[i] != anchor[i], moved_b = place[j] != anchor[j];
      if (moved_a != moved_b) return moved_b;
      return place[i] < place[j];
    });
  }

  // The mirror image: values that are made early and read late (a projection of the encoder's output for the decoder)
  // move down before their first reader when fewer bytes are alive then, with the nodes before them that only they
  // read.
  void move_down(double crowding) {
    const std::size_t m = main_.size();
    std::vector<std::int32_t> place(n_, kNone), first(n_, kNone), last(n_, kNone), users(n_, 0);
    std::vector<NodeId> operands;
    for (std::size_t p = 0; p < m; ++p) {
      place[static_cast<std::size_t>(main_[p])] = static_cast<std::int32_t>(p);
      flow_operands(main_[p], &operands);
      for (const NodeId operand : operands) {
        const auto o = static_cast<std::size_t>(operand);
        if (first[o] == kNone) first[o] = static_cast<std::int32_t>(p);
        last[o] = static_cast<std::int32_t>(p);
        ++users[o];
      }
    }
    const std::vector<double> live = alive(place, last);
    // anchor: the place it stands before; its own place when it stays.
    std::vector<std::int32_t> anchor(n_, kNone);
    std::vector<NodeId> chain, next;
    for (std::size_t p = m; p-- > 0;) {
      const NodeId id = main_[p];
      const auto i = static_cast<std::size_t>(id);
      if (anchor[i] != kNone) continue;  // moved with its chain
      anchor[i] = static_cast<std::int32_t>(p);
      if (first[i] == kNone) continue;
      // The first reader may have moved down itself.
      std::int32_t to = std::numeric_limits<std::int32_t>::max();
      for (const NodeId user : flow_.users(id)) {
        if (is_projection(user)) {
          for (const NodeId second : flow_.users(user)) {
            if (is_main(second)) to = std::min(to, anchor[static_cast<std::size_t>(second)]);
          }
        } else if (is_main(user)) {
          to = std::min(to, anchor[static_cast<std::size_t>(user)]);
        }
      }
      if (to <= static_cast<std::int32_t>(p) + 1 || to == std::numeric_limits<std::int32_t>::max()) continue;
      chain.assign(1, id);
      double gained = bytes(id) * static_cast<double>(to - static_cast<std::int32_t>(p));
      const double denser = crowding * (live[static_cast<std::size_t>(to - 1)] - bytes(id) - (p > 0 ? live[p - 1] : 0));
      double best = 0;
      std::size_t best_length = 0;
      while (chain.size() < 24) {
        // Memory that stays alive because the chain reads it later, and the one node in front that could move along.
        const NodeId head = chain.back();
        flow_operands(head, &operands);
        double kept = 0;
        NodeId before = kNone;
        for (const NodeId operand : operands) {
          const auto o = static_cast<std::size_t>(operand);
          const std::int32_t at = place[static_cast<std::size_t>(head)];
          if (last[o] != at) continue;
          kept += bytes(operand) * static_cast<double>(to - at);
          if (users[o] == 1 && before == kNone) before = operand;
        }
        const double g = gained - kept - denser * static_cast<double>(chain.size());
        if (g > best) {
          best = g;
          best_length = chain.size();
        }
        if (before == kNone) break;
        // With `before` in the chain its own bytes do not have to be kept; the head's other operands do.
        gained -= kept - bytes(before) * static_cast<double>(to - place[static_cast<std::size_t>(head)]);
        chain.push_back(before);
      }
      for (std::size_t k = 0; k < best_length; ++k) anchor[static_cast<std::size_t>(chain[k])] = to;
    }
    std::stable_sort(main_.begin(), main_.end(), [&](NodeId a, NodeId b) {
      const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
      if (anchor[i] != anchor[j]) return anchor[i] < anchor[j];
      // Those moved before the node that stands there, as they were ordered (all of them stood before it).
      return place[i] < place[j];
    });
  }

  // Byte-steps of operands that die earlier when their reader at `p` moves behind `ready`.
  double freed_by(const std::vector<NodeId>& operands, std::int32_t p, std::int32_t ready,
                  const std::vector<std::int32_t>& last, const std::vector<std::int32_t>& before_last) const {
    double freed = 0;
    for (const NodeId operand : operands) {
      const auto o = static_cast<std::size_t>(operand);
      if (last[o] != p) continue;
      freed += bytes(operand) * (p - std::max(ready, before_last[o]));
    }
    return freed;
  }
  double gain(NodeId end, std::size_t p, std::int32_t ready, double freed) const {
    bool read = false;
    for (const NodeId user : flow_.users(end)) read = read || is_forward(user);
    return freed - (read ? bytes(end) * static_cast<double>(static_cast<std::int32_t>(p) - ready) : -1);
  }

  // The main nodes, each with its preparation directly before it and its projections directly behind it.
  void place_all() {
    std::vector<bool> placed(n_, false);
    std::vector<NodeId> stack;
    const auto place = [&](NodeId id) {
      placed[static_cast<std::size_t>(id)] = true;
      out_.order.push_back(id);
      for (const NodeId user : flow_.users(id)) {
        if (is_projection(user) && is_forward(user) && !placed[static_cast<std::size_t>(user)] && is_read(user)) {
          placed[static_cast<std::size_t>(user)] = true;
          out_.order.push_back(user);
        }
      }
    };
    // Post-order over preparation nodes.
    const auto prepare = [&](NodeId id) {
      stack.assign(1, id);
      while (!stack.empty()) {
        const NodeId top = stack.back();
        bool ready = true;
        const Span<const NodeId> operands = flow_.operands(top);
        for (std::size_t k = operands.size(); k-- > 0;) {
          const NodeId operand = flow_.producer(operands[k]);
          if (is_forward(operand) && !placed[static_cast<std::size_t>(operand)] && !is_main(operand)) {
            stack.push_back(operand);
            ready = false;
          }
        }
        if (!ready) continue;
        stack.pop_back();
        if (!placed[static_cast<std::size_t>(top)]) place(top);
      }
    };
    const std::vector<std::pair<NodeId, NodeId>> penalties = find_penalties();
    std::size_t next_penalty = 0;
    for (const NodeId id : main_) {
      prepare(id);
      for (; next_penalty < penalties.size() && penalties[next_penalty].first == id; ++next_penalty)
        prepare(penalties[next_penalty].second);
    }
    // Nodes that no main node reads: results that are weights or inputs in another form.
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (is_forward(id) && !placed[static_cast<std::size_t>(id)] && !is_projection(id)) prepare(id);
    }
    out_.position.assign(n_, kNone);
    for (std::size_t p = 0; p < out_.order.size(); ++p)
      out_.position[static_cast<std::size_t>(out_.order[p])] = static_cast<std::int32_t>(p);
  }

  // Numbers made from one weight alone (a norm for a penalty in the loss): computed behind the first use of the weight,
  // so that no cut parts them. Pairs of (main node, number), along the order.
  std::vector<std::pair<NodeId, NodeId>> find_penalties() const {
    std::vector<std::int32_t> place(n_, kNone);
    for (std::size_t p = 0; p < main_.size(); ++p)
      place[static_cast<std::size_t>(main_[p])] = static_cast<std::int32_t>(p);
    const auto is_number = [&](NodeId id) {
      if (!is_forward(id) || out_.origin[static_cast<std::size_t>(id)] != Origin::kWeights) return false;
      const Shape& shape = flow_.shape(id);
      if (!shape.is_array() || shape.num_elements > 1) return false;
      for (const NodeId operand : flow_.operands(id)) {
        if (flow_.shape(operand).num_elements > 1) return true;
      }
      return false;
    };
    // First main use of every weight and form of it, numbers not counted.
    std::vector<std::int32_t> first(n_, kNone);
    std::vector<NodeId> numbers;
    for (NodeId id = flow_.size(); id-- > 0;) {
      const auto i = static_cast<std::size_t>(id);
      if (out_.origin[i] != Origin::kWeights) continue;
      if (is_number(id)) {
        numbers.push_back(id);
        continue;
      }
      for (const NodeId user : flow_.users(id)) {
        const auto u = static_cast<std::size_t>(user);
        const std::int32_t at = place[u] != kNone ? place[u] : out_.origin[u] == Origin::kWeights ? first[u] : kNone;
        if (at != kNone && (first[i] == kNone || at < first[i])) first[i] = at;
      }
    }
    std::vector<std::pair<NodeId, NodeId>> out;
    std::vector<std::pair<std::int32_t, NodeId>> placed;
    for (const NodeId number : numbers) {
      // The weight at the bottom of the chain.
      NodeId root = number;
      for (int steps = 0; steps < 64 && flow_.node(root).opcode != Opcode::kParameter; ++steps) {
        NodeId below = kNone;
        for (const NodeId operand : flow_.operands(root)) {
          if (out_.origin[static_cast<std::size_t>(operand)] == Origin::kWeights) below = operand;
        }
        if (below == kNone) break;
        root = below;
      }
      const std::int32_t at = first[static_cast<std::size_t>(root)];
      if (at != kNone) placed.emplace_back(at, number);
    }
    std::sort(placed.begin(), placed.end());
    for (const auto& [at, number] : placed) out.emplace_back(main_[static_cast<std::size_t>(at)], number);
    return out;
  }

  bool is_read(NodeId projection) const {
    if (projection == step_.loss_node) return true;
    for (const NodeId user : flow_.users(projection)) {
      const Part part = step_.part[static_cast<std::size_t>(user)];
      if (part == Part::kForward || part == Part::kBackward) return true;
    }
    const auto& results = flow_.results();
    return !step_.training && std::find(results.begin(), results.end(), projection) != results.end();
  }

  const TrainingStep& step_;
  const FlowGraph& flow_;
  std::size_t n_;
  FlowOrder out_;
  std::vector<std::int32_t> depth_;
  std::vector<NodeId> main_;
};

}  // namespace

FlowOrder order_forward(const TrainingStep& step) {
  return Orderer(step).run();
}

}  // namespace automap::graph
