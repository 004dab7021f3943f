// Compares the values that are kept, and those alive while a position works, with slow obvious twins.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "common/base/files.h"
#include "common/graph/dependence.h"
#include "common/graph/flow_order.h"
#include "common/graph/training_step.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "profile/cut_bytes.h"
#include "profile/kept_values.h"
#include "profile/profile_hlo.h"
#include "profile/workspace.h"
#include "tests/data_folders.h"

namespace automap::profile {
namespace {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Part;

struct Step {
  explicit Step(const std::string& path)
      : module(load_model(path, "").module),
        step(graph::analyze_training_step(module.graph)),
        order(graph::order_forward(step)),
        at(step, order) {}

  hlo::HloModule module;
  graph::TrainingStep step;
  graph::FlowOrder order;
  StepPositions at;
};

class KeptTwin {
 public:
  KeptTwin(const StepPositions& at, const std::vector<bool>& keepable) : at_(at), keepable_(keepable) {}

  // All that may decide; empty when there is more than a search through all sets can hold.
  std::vector<NodeId> closure(const std::vector<NodeId>& needed) const {
    constexpr std::size_t kMost = 14;
    std::vector<NodeId> all = needed;
    for (std::size_t next = 0; next < all.size(); ++next) {
      if (all.size() > kMost) return {};
      if (!is_made_again(at_.flow(), all[next])) continue;
      for (const NodeId operand : at_.flow().operands(all[next])) {
        if (keepable(operand) && std::find(all.begin(), all.end(), operand) == all.end()) all.push_back(operand);
      }
    }
    return all;
  }

  double least(const std::vector<NodeId>& needed) const {
    const std::vector<NodeId> all = closure(needed);
    double best = std::numeric_limits<double>::infinity();
    for (std::uint32_t set = 0; set < (1u << all.size()); ++set) {
      std::map<NodeId, bool> kept;
      double bytes = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        kept[all[i]] = (set >> i & 1u) != 0;
        if (kept[all[i]]) bytes += at_.bytes(all[i]);
      }
      if (bytes < best && std::all_of(needed.begin(), needed.end(), [&](NodeId id) { return follows(id, kept); }))
        best = bytes;
    }
    return best;
  }

  bool follows(NodeId id, const std::map<NodeId, bool>& kept) const {
    if (kept.at(id)) return true;
    if (!is_made_again(at_.flow(), id)) return false;
    for (const NodeId operand : at_.flow().operands(id)) {
      if (keepable(operand) && !follows(operand, kept)) return false;
    }
    return true;
  }

 private:
  bool keepable(NodeId id) const { return keepable_[static_cast<std::size_t>(id)]; }
  const StepPositions& at_;
  const std::vector<bool>& keepable_;
};

TEST(Kept, FewestBytesOfAllSets) {
  int tried = 0;
  for (const char* name : {"tiny_mlp.hlo", "transformer_bf16.hlo.gz", "lit_small.hlo.gz", "bert_large.hlo.gz"}) {
    const Step s(kHloFixtures + name);
    const std::vector<bool> keepable = find_keepable(s.at);
    const KeptTwin twin(s.at, keepable);
    std::vector<NodeId> values;
    for (NodeId id = 0; id < s.at.flow().size(); ++id) {
      // Exponentials have a rule of their own; below.
      if (keepable[static_cast<std::size_t>(id)] && s.at.flow().node(id).opcode != Opcode::kExponential)
        values.push_back(id);
    }
    std::mt19937 random(7);
    for (int round = 0; round < 150; ++round) {
      // Neighbours, so that they share what they are made of.
      std::vector<NodeId> needed;
      const std::size_t first = random() % values.size();
      for (std::size_t i = 0; i < 1 + random() % 4; ++i)
        needed.push_back(values[std::min(values.size() - 1, first + random() % 6)]);
      std::sort(needed.begin(), needed.end());
      needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
      if (twin.closure(needed).empty()) continue;
      ++tried;
      double bytes = 0;
      for (const NodeId id : cheapest_kept(kept_flow(s.at), keepable, {}, needed)) bytes += s.at.bytes(id);
      EXPECT_EQ(bytes, twin.least(needed)) << name << " " << needed.front();
    }
  }
  EXPECT_GT(tried, 200);
}

// Two forms of one value are kept once, as the value.
TEST(Kept, TransposesOfOneValueAreOne) {
  const graph::Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  h = f32[4,8,2] parameter(0)
  x = f32[4,8,2] tanh(h)
  a = f32[8,4,2] transpose(x), dimensions={1,0,2}
  b = f32[2,8,4] transpose(x), dimensions={2,1,0}
  ROOT r = (f32[8,4,2], f32[2,8,4]) tuple(a, b)
})",
                                                "test");
  const graph::TrainingStep step = graph::analyze_training_step(graph);
  const KeptFlow at{step.flow, [&](NodeId id) { return static_cast<double>(step.flow.shape(id).bytes); },
                    [](NodeId) { return true; }};
  std::vector<bool> keepable(static_cast<std::size_t>(step.flow.size()), false);
  std::vector<NodeId> forms;
  NodeId value = kNone;
  for (NodeId id = 0; id < step.flow.size(); ++id) {
    const Opcode opcode = step.flow.node(id).opcode;
    keepable[static_cast<std::size_t>(id)] = opcode == Opcode::kTanh || opcode == Opcode::kTranspose;
    if (opcode == Opcode::kTranspose) forms.push_back(id);
    if (opcode == Opcode::kTanh) value = id;
  }
  EXPECT_EQ(cheapest_kept(at, keepable, forms, {}), std::vector<NodeId>{value});
}

// Megatron's count for a layer (arXiv 2205.05198): 34 bytes per value of a 16-bit layer with dropout, of which 3 are
// masks, and 5 per score; here in f32 and without dropout, 64 and 4.
TEST(Kept, BertLayersAsTheFormulaSays) {
  const hlo::HloModule module = load_model(kHloFixtures + "bert48.hlo.gz", "").module;
  ProfileRequest request;
  const double values = 2.0 * 384 * 1024, scores = 2.0 * 16 * 384 * 384;
  request.attention = AttentionMode::kAsWritten;
  EXPECT_NEAR(profile_module(module, "bert", request).memory.stash_bytes / (48 * (64 * values + 4 * scores)), 1, 0.02);
  request.attention = AttentionMode::kFused;
  EXPECT_NEAR(profile_module(module, "bert", request).memory.stash_bytes / (48 * 64 * values), 1, 0.02);
}

// ... and in f16 with dropout: a product of its own keeps what it reads, a mask is a byte, a softmax its result.
TEST(Kept, SoftmaxKeepsItsResult) {
  const hlo::HloModule module = load_model(kHloFixtures + "gpt2.hlo.gz", "").module;
  ProfileRequest request;
  request.attention = AttentionMode::kAsWritten;
  const double written = profile_module(module, "gpt2", request).memory.stash_bytes;
  request.attention = AttentionMode::kFused;
  const double fused = profile_module(module, "gpt2", request).memory.stash_bytes;
  // 12 layers of 4 x 12 x 1024 x 1024 probabilities in f32; a number per row stays, and the loss's own temporaries go.
  const double scores = 12.0 * 4 * 12 * 1024 * 1024 * 4;
  EXPECT_GT(written - fused, scores * 0.99);
  EXPECT_LT(written - fused, scores + 1.1 * 4 * 1024 * 50257 * 4);
}

// Everything that is alive at every moment, asked value by value.
class WorkspaceTwin {
 public:
  WorkspaceTwin(const Step& s, const std::vector<std::int32_t>& backward, const std::vector<bool>& kept)
      : at_(s.at), flow_(s.at.flow()), backward_(backward), kept_(kept) {
    gradient_.assign(static_cast<std::size_t>(flow_.size()), false);
    for (const std::int32_t v : s.step.variables) {
      NodeId id = s.step.inputs[static_cast<std::size_t>(v)].gradient;
      while (id != kNone) {
        gradient_[static_cast<std::size_t>(id)] = true;
        id = graph::is_movement(flow_, id) ? flow_.operands(id)[0] : kNone;
      }
    }
  }

  double at_position(std::int32_t p) const { return std::max(forward(p), backward(p)); }

 private:
  bool takes_room(NodeId id) const {
    if (!flow_.shape(id).is_array() || at_.part(id) == Part::kFree || at_.part(id) == Part::kInput) return false;
    switch (flow_.node(id).opcode) {
      case Opcode::kReshape:
      case Opcode::kBitcast:
      case Opcode::kBroadcast:
      case Opcode::kDynamicUpdateSlice: return false;
      default: return true;
    }
  }

  bool temporary(NodeId id) const {
    return at_.part(id) == Part::kBackward && takes_room(id) && !gradient_[static_cast<std::size_t>(id)];
  }

  // Made and not kept, and read at this position last.
  bool ends_at(NodeId id, std::int32_t p) const {
    std::int32_t last = at_.position(id);
    for (const NodeId user : flow_.users(id)) {
      if (at_.part(user) == Part::kForward) last = std::max(last, at_.position(user));
    }
    return last <= p && !kept_[static_cast<std::size_t>(at_.base_of(id))];
  }

  double forward(std::int32_t p) const {
    const NodeId id = at_.order().order[static_cast<std::size_t>(p)];
    double bytes = at_.is_activation(id) && takes_room(id) && ends_at(id, p) ? at_.bytes(id) : 0;
    std::vector<NodeId> operands(flow_.operands(id).begin(), flow_.operands(id).end());
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
    for (const NodeId operand : operands) {
      if (at_.part(operand) != Part::kForward || !takes_room(operand)) continue;
      if (!at_.is_activation(operand) || ends_at(operand, p)) bytes += at_.bytes(operand);
    }
    return bytes;
  }

  // The moments of position p are its backward nodes in their order; a value is there from when it is made (or from the
  // first moment, when another position has made it and one of these reads it) to its last reader, or to the end when a
  // position in front of p reads it too, or nobody at p does.
  double backward(std::int32_t p) const {
    std::vector<NodeId> work;
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (backward_[static_cast<std::size_t>(id)] == p) work.push_back(id);
    }
    double most = 0;
    for (std::size_t now = 0; now < work.size(); ++now) {
      double alive = 0;
      for (NodeId id = 0; id < flow_.size(); ++id) {
        if (temporary(id) && is_alive(id, p, work, now)) alive += at_.bytes(id);
      }
      most = std::max(most, alive);
    }
    return most;
  }

  bool is_alive(NodeId id, std::int32_t p, const std::vector<NodeId>& work, std::size_t now) const {
    const auto made = std::find(work.begin(), work.end(), id);
    std::ptrdiff_t first = made - work.begin(), last = -1;
    bool further = false;
    for (const NodeId user : flow_.users(id)) {
      const std::int32_t place = backward_[static_cast<std::size_t>(user)];
      if (place == p) last = std::max(last, std::find(work.begin(), work.end(), user) - work.begin());
      further = further || (place != kNone && place < p);
    }
    if (made == work.end()) {
      if (last < 0) return false;
      first = 0;
    }
    const auto moment = static_cast<std::ptrdiff_t>(now);
    return moment >= first && (further || last < 0 || moment <= last);
  }

  const StepPositions& at_;
  const FlowGraph& flow_;
  const std::vector<std::int32_t>& backward_;
  const std::vector<bool>& kept_;
  std::vector<bool> gradient_;
};

TEST(Workspace, MostThatIsAliveAtAnyMoment) {
  for (const char* name : {"tiny_mlp.hlo", "moe_small.hlo.gz", "lit_small.hlo.gz", "transformer_bf16.hlo.gz"}) {
    const Step s(kHloFixtures + name);
    const FusedPositions nothing(s.at, nullptr);
    std::int32_t border = 0;
    for (const std::int32_t v : s.step.variables)
      border = std::max(border, s.at.last_use(s.step.inputs[static_cast<std::size_t>(v)].node));
    const std::vector<std::int32_t> backward = place_backward(s.at, border);
    const std::vector<bool> kept = stash_bytes(s.at, nothing, {}).kept;
    const std::vector<double> fast = workspace_bytes(s.at, nothing, backward, kept, nullptr);
    const WorkspaceTwin twin(s, backward, kept);
    int compared = 0;
    for (std::int32_t p = 0; p < s.at.size(); ++p) {
      const NodeId id = s.order.order[static_cast<std::size_t>(p)];
      // Loops and what they hold are looked at elsewhere.
      if (s.at.is_projection(id) || s.at.flow().node(id).opcode == Opcode::kWhile) continue;
      if (s.at.size() > 400 && p % 7 != 0) continue;
      ++compared;
      EXPECT_DOUBLE_EQ(fast[static_cast<std::size_t>(p)], twin.at_position(p)) << name << " " << p;
    }
    EXPECT_GT(compared, 5) << name;
  }
}

}  // namespace
}  // namespace automap::profile
