#include "common/sharding/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "tests/common/sharding/decided_module.h"

namespace automap::sharding {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct ExplainedModule : DecidedModule {
  using DecidedModule::DecidedModule;
  TensorDim at(const std::string& name, std::int32_t dim) const { return {node(name), dim}; }
  std::string refusal(TensorDim wanted) {
    const auto conflict = decided.split(wanted);
    EXPECT_TRUE(conflict);
    return conflict ? explain(model, decided, *conflict).summary : "";
  }
};

ExplainedModule explained_module(const std::string& text, int shards = 4) {
  return ExplainedModule(hlo::read_hlo_text("HloModule m\n" + text, "test"), shards);
}

// Two layers with a bias and a norm-like scale.
const std::string kMlp = R"(
max_f32 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] maximum(a, b)
}
ENTRY e {
  x = f32[8,16] parameter(0), metadata={op_name="x"}
  wi = f32[16,32] parameter(1), metadata={op_name="params[\'layer_0\'][\'wi\']"}
  wo = f32[32,16] parameter(2), metadata={op_name="params[\'layer_0\'][\'wo\']"}
  odd = f32[6] parameter(3), metadata={op_name="odd"}
  h = f32[8,32] dot(x, wi), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp(layer_0)/ffn/in/dot_general"}
  t = f32[8,32] tanh(h), metadata={op_name="jit(f)/jvp(layer_0)/ffn/tanh"}
  y = f32[8,16] dot(t, wo), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/transpose(jvp(layer_0))/ffn/out/dot_general"}
  u = f32[8,16] exponential(y)
  z = f32[] constant(0)
  k = f32[5,6] broadcast(z), dimensions={}
  o = f32[5,6] broadcast(odd), dimensions={1}
  q = f32[5,6] add(k, o)
  ROOT r = (f32[8,16], f32[5,6]) tuple(u, q)
}
)";

TEST(Explain, Describe) {
  ExplainedModule m = explained_module(kMlp);
  EXPECT_EQ(describe(m.model, m.node("h")), "h f32[8,32] (layer_0/ffn/in)");
  EXPECT_EQ(describe(m.model, m.node("y")), "y f32[8,16] (layer_0/ffn/out, backward)");
  EXPECT_EQ(describe(m.model, m.node("u")), "u f32[8,16]");
  EXPECT_EQ(describe(m.model, m.node("wi")), "params['layer_0']['wi'] f32[16,32]");
  EXPECT_EQ(describe(m.model, m.at("wi", 1)), "params['layer_0']['wi'] dimension 1 (32)");
  EXPECT_EQ(describe(m.model, m.at("h", 0)), "h dimension 0 (8)");
  EXPECT_EQ(describe(m.model, TensorDim{kNone, 0}), "nothing");
  EXPECT_EQ(describe(m.model, TensorDim{1'000'000, 0}), "nothing");
  EXPECT_EQ(describe(m.model, m.at("h", 7)), "h dimension 7 (0)");
}

TEST(Explain, Chain) {
  ExplainedModule m = explained_module(kMlp);
  const auto links = chain(m.model, m.at("wi", 1), m.at("wo", 0));
  ASSERT_EQ(links.size(), 3U);
  EXPECT_EQ(links[0].op, m.node("h"));
  EXPECT_EQ(links[0].from, m.at("wi", 1));
  EXPECT_EQ(links[0].to, m.at("h", 1));
  EXPECT_EQ(links[1].op, m.node("t"));
  EXPECT_EQ(links[2].op, m.node("y"));
  EXPECT_EQ(links[2].to, m.at("wo", 0));
  EXPECT_THAT(chain(m.model, m.at("wi", 1), m.at("wi", 1)), IsEmpty());
  EXPECT_THAT(chain(m.model, m.at("wi", 1), m.at("wi", 0)), IsEmpty());
  EXPECT_THAT(chain(m.model, m.at("wi", 9), TensorDim{kNone, 0}), IsEmpty());
}

TEST(Explain, SplitPartialReplicatedUndecided) {
  ExplainedModule m = explained_module(kMlp);
  Explanation e = explain(m.model, m.decided, m.node("h"));
  EXPECT_EQ(e.kind, Explanation::Kind::kUndecided);
  EXPECT_THAT(e.summary, HasSubstr("h (layer_0/ffn/in) is undecided: it depends on x dimension 0"));
  EXPECT_THAT(e.lines, ElementsAre("dimension 0 (8): undecided", "dimension 1 (32): undecided"));

  ASSERT_FALSE(m.decided.split(m.at("wi", 1)));
  e = explain(m.model, m.decided, m.node("wi"));
  EXPECT_EQ(e.kind, Explanation::Kind::kSplit);
  EXPECT_EQ(e.summary, "params['layer_0']['wi'] is split along dimension 1 (32): decided so");
  EXPECT_THAT(e.lines, ElementsAre("together with params['layer_0']['wo'] dimension 0"));

  e = explain(m.model, m.decided, m.node("wo"));
  EXPECT_EQ(e.kind, Explanation::Kind::kSplit);
  EXPECT_EQ(e.summary,
            "params['layer_0']['wo'] is split along dimension 0 (32) because params['layer_0']['wi'] dimension 1 is");
  EXPECT_THAT(e.lines,
              ElementsAre("from params['layer_0']['wi'] dimension 1 (32) to params['layer_0']['wo'] dimension 0:",
                          "  h (layer_0/ffn/in): params['layer_0']['wi'] dimension 1 = its dimension 1",
                          "  t (layer_0/ffn): h dimension 1 = its dimension 1",
                          "  y (layer_0/ffn/out, backward): t dimension 1 = params['layer_0']['wo'] dimension 0"));

  e = explain(m.model, m.decided, m.node("y"));
  EXPECT_EQ(e.kind, Explanation::Kind::kPartial);
  EXPECT_EQ(e.summary,
            "y (layer_0/ffn/out, backward) holds partial results on every device (add), because t dimension 1 is split "
            "and summed over there");
  EXPECT_THAT(e.lines, Contains("reduced by an all-reduce of 512 B at once"));

  e = explain(m.model, m.decided, m.node("x"));
  EXPECT_EQ(e.kind, Explanation::Kind::kReplicated);
  EXPECT_EQ(e.summary, "x is replicated");
  EXPECT_THAT(e.lines, Contains(HasSubstr("excluded by params['layer_0']['wi'] dimension 1: ")));
  EXPECT_FALSE(e.links.empty() && e.other_links.empty());

  EXPECT_THAT(explain(m.model, m.decided, m.node("z")).summary, HasSubstr("a scalar is whole"));
  EXPECT_THAT(explain(m.model, m.decided, m.node("k")).summary, HasSubstr("made of constants alone"));
  EXPECT_EQ(explain(m.model, m.decided, kNone).summary, "there is no such tensor");
  EXPECT_EQ(explain(m.model, m.decided, 1'000'000).summary, "there is no such tensor");
}

TEST(Explain, ConflictsOfTwoDecisions) {
  ExplainedModule m = explained_module(kMlp);
  ASSERT_FALSE(m.decided.split(m.at("wi", 1)));
  EXPECT_EQ(
      m.refusal(m.at("wi", 0)),
      "params['layer_0']['wi'] dimension 0 (16) and params['layer_0']['wi'] dimension 1 (32) cannot both be split: "
      "they are two dimensions of one tensor");
  const auto conflict = m.decided.split(m.at("wo", 1));
  ASSERT_TRUE(conflict);
  const Explanation e = explain(m.model, m.decided, *conflict);
  EXPECT_EQ(e.kind, Explanation::Kind::kConflict);
  EXPECT_THAT(e.summary, HasSubstr("params['layer_0']['wo'] dimension 1 (16) and params['layer_0']['wi'] dimension 1 "
                                   "(32) cannot both be split: "));
  EXPECT_THAT(e.summary, HasSubstr("at once"));
  ASSERT_FALSE(e.links.empty() && e.other_links.empty());
  // The two chains begin at the decisions and end where they meet.
  const Obstacle meeting = m.model.linkage().meeting(conflict->group, conflict->other);
  if (!e.links.empty()) {
    EXPECT_EQ(e.links.front().from, m.at("wo", 1));
    EXPECT_EQ(e.links.back().to, meeting.a);
  }
  if (!e.other_links.empty()) {
    EXPECT_EQ(e.other_links.front().from, m.at("wi", 1));
    EXPECT_EQ(e.other_links.back().to, meeting.b);
  }
}

TEST(Explain, WholeAndSplitDecisions) {
  ExplainedModule m = explained_module(kMlp);
  ASSERT_FALSE(m.decided.keep_whole(m.at("wi", 1)));
  EXPECT_EQ(m.refusal(m.at("wo", 0)),
            "params['layer_0']['wo'] dimension 0 (32) cannot be split: params['layer_0']['wi'] dimension 1 (32) was "
            "decided to stay whole, and the two can only be split together");
  EXPECT_EQ(m.refusal(m.at("wi", 1)),
            "params['layer_0']['wi'] dimension 1 (32) cannot be split: an earlier decision keeps it whole");
  EXPECT_THAT(explain(m.model, m.decided, m.node("wo")).lines,
              Contains("dimension 0 (32): stays whole with params['layer_0']['wi'] dimension 1, as was decided"));

  ExplainedModule n = explained_module(kMlp);
  ASSERT_FALSE(n.decided.split(n.at("wi", 1)));
  const auto conflict = n.decided.keep_whole(n.at("wo", 0));
  ASSERT_TRUE(conflict);
  EXPECT_EQ(explain(n.model, n.decided, *conflict).summary,
            "params['layer_0']['wo'] dimension 0 (32) cannot be kept whole: it is split because "
            "params['layer_0']['wi'] dimension 1 is");
}

TEST(Explain, NothingToSplit) {
  ExplainedModule m = explained_module(kMlp);
  EXPECT_EQ(m.refusal(m.at("z", 0)), "z dimension 0 cannot be split: a scalar has no dimensions");
  EXPECT_EQ(m.refusal(m.at("wi", 2)),
            "params['layer_0']['wi'] dimension 2 cannot be split: it has 2 dimensions, numbered from 0");
  EXPECT_EQ(m.refusal(m.at("odd", 1)), "odd dimension 1 cannot be split: it has 1 dimension, numbered from 0");
  EXPECT_THAT(m.refusal(m.at("k", 0)), HasSubstr("made of constants alone"));
}

TEST(Explain, IndivisibleSaysWhatWouldDivide) {
  ExplainedModule m = explained_module(kMlp);
  EXPECT_EQ(m.refusal(m.at("odd", 0)),
            "odd dimension 0 (6) cannot be split: 4 shards do not divide 6; 2, 3 or 6 shards would");
  ExplainedModule prime = explained_module("ENTRY e {\n x = f32[7] parameter(0)\n ROOT r = f32[7] tanh(x)\n}\n", 4);
  EXPECT_THAT(prime.refusal(prime.at("x", 0)), HasSubstr("4 shards do not divide 7; 7 shards would"));
}

TEST(Explain, Blocked) {
  ExplainedModule sorted = explained_module(R"(
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = f32[8,16] parameter(0)
  t = f32[8,16] tanh(x)
  ROOT s = f32[8,16] sort(t), dimensions={1}, to_apply=less
}
)");
  EXPECT_THAT(
      sorted.refusal(sorted.at("x", 1)),
      HasSubstr("x dimension 1 (16) cannot be split: s cannot be split along t dimension 1: the instruction needs "
                "the whole dimension"));
  ASSERT_FALSE(sorted.decided.split(sorted.at("x", 0)));
  EXPECT_THAT(explain(sorted.model, sorted.decided, sorted.node("x")).kind, Explanation::Kind::kSplit);

  ExplainedModule sliced = explained_module(
      "ENTRY e {\n x = f32[8,16] parameter(0)\n ROOT s = f32[8,8] slice(x), slice={[0:8], [3:11]}\n}\n");
  EXPECT_THAT(sliced.refusal(sliced.at("x", 1)), HasSubstr("each device would need its neighbours' elements"));

  ExplainedModule merged =
      explained_module("ENTRY e {\n x = f32[8,16] parameter(0)\n ROOT s = f32[128] reshape(x)\n}\n");
  EXPECT_THAT(merged.refusal(merged.at("x", 1)), HasSubstr("minor part of a reshape"));

  ExplainedModule custom = explained_module(
      "ENTRY e {\n x = f32[8,16] parameter(0)\n ROOT s = f32[8,16] custom-call(x), "
      "custom_call_target=\"Mystery\"\n}\n");
  EXPECT_THAT(custom.refusal(custom.at("x", 1)), HasSubstr("no rule looks inside"));
}

TEST(Explain, GroupsThatMeetThemselves) {
  // x and its transpose: both dimensions together.
  ExplainedModule m = explained_module(R"(
ENTRY e {
  x = f32[16,16] parameter(0)
  t = f32[16,16] transpose(x), dimensions={1,0}
  ROOT s = f32[16,16] add(x, t)
}
)");
  const std::string text = m.refusal(m.at("x", 0));
  EXPECT_THAT(text, HasSubstr("x dimension 0 (16) cannot be split: x would be split along its dimensions 0 and 1 at "
                              "once"));
  const Explanation e = explain_obstacle(m.model, m.model.linkage().group_of(m.at("x", 0)), m.at("x", 0));
  EXPECT_FALSE(e.lines.empty());
  EXPECT_FALSE(e.other_links.empty());

  // Scores of all pairs: one instruction split twice.
  ExplainedModule pairs = explained_module(R"(
ENTRY e {
  x = f32[16,8] parameter(0)
  ROOT s = f32[16,16] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
)");
  EXPECT_THAT(pairs.refusal(pairs.at("x", 0)), HasSubstr("at once"));
  EXPECT_EQ(explain_obstacle(pairs.model, 1'000'000).summary, "there is no such group");
  EXPECT_EQ(explain_obstacle(pairs.model, kNone).summary, "there is no such group");
}

TEST(Explain, Stuck) {
  ExplainedModule m = explained_module(kMlp);
  ASSERT_FALSE(m.decided.split(m.at("wi", 1)));
  // Every other group that can still be split meets it, but none here: only odd ones are left, which cannot be.
  for (const Stuck& stuck : explain_stuck(m.model, m.decided)) {
    EXPECT_FALSE(stuck.deciders.empty());
    EXPECT_GT(stuck.tensors, 0);
  }
  ExplainedModule fresh = explained_module(kMlp);
  const std::vector<Stuck> all = explain_stuck(fresh.model, fresh.decided);
  ASSERT_FALSE(all.empty());
  std::set<NodeId> undecided;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) {
      EXPECT_GE(all[i - 1].tensors, all[i].tensors);
    }
    for (const TensorDim member : fresh.model.linkage().members(all[i].group)) undecided.insert(member.node);
  }
  for (const NodeId node : fresh.decided.stuck()) EXPECT_TRUE(undecided.count(node));
  // Deciding what is named settles it.
  while (!fresh.decided.complete()) {
    const std::vector<Stuck> left = explain_stuck(fresh.model, fresh.decided);
    ASSERT_FALSE(left.empty());
    ASSERT_FALSE(fresh.decided.split(left[0].deciders[0]));
  }
  EXPECT_TRUE(explain_stuck(fresh.model, fresh.decided).empty());
}

TEST(Explain, OddModules) {
  std::string deep = "f32[4]", pack = "  t0 = f32[4] tanh(x)\n";
  for (int i = 1; i <= 32; ++i) {
    deep = "(" + deep + ")";
    pack += "  t" + std::to_string(i) + " = " + deep + " tuple(t" + std::to_string(i - 1) + ")\n";
  }
  const std::vector<std::string> modules = {
      "ENTRY e {\n  ROOT r = () tuple()\n}\n",
      "ENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n",
      "ENTRY e {\n  ROOT x = f32[0,1,4] parameter(0)\n}\n",
      "ENTRY e {\n  x = f32[0,4] parameter(0)\n  w = f32[4,0] parameter(1)\n"
      "  ROOT r = f32[0,0] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n",
      "ENTRY e {\n  x = f32[1,1] parameter(0)\n"
      "  ROOT r = f32[1,1] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n",
      // Read by nobody.
      "ENTRY e {\n  x = f32[4,4] parameter(0)\n  w = f32[4,4] parameter(1)\n"
      "  d = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  n = f32[4,4] negate(d)\n"
      "  ROOT r = f32[4,4] tanh(x)\n}\n",
      "ENTRY e {\n  p = (f32[4], token[]) parameter(0)\n  x = f32[4] get-tuple-element(p), index=0\n"
      "  ROOT r = f32[4] frobnicate(x), mystery={1,2}\n}\n",
      "ENTRY e {\n  x = f32[4] parameter(0)\n" + pack + "  ROOT r = f32[4] negate(x)\n}\n",
      "ENTRY e {\n  x = f32[4] parameter(0)\n" + pack + "  ROOT r = " + deep + " copy(t32)\n}\n",
  };
  for (const std::string& text : modules) {
    for (const int shards : {1, 2, 1000000}) {
      SCOPED_TRACE(text);
      ExplainedModule m = explained_module(text, shards);
      const Linkage& linkage = m.model.linkage();
      for (int turn = 0; turn < 2; ++turn) {
        for (NodeId node = kNone; node <= m.model.flow().size(); ++node) {
          EXPECT_FALSE(explain(m.model, m.decided, node).summary.empty());
          EXPECT_FALSE(describe(m.model, node).empty());
          for (const std::int32_t dim : {-1, 0, 1, 5}) {
            EXPECT_FALSE(describe(m.model, TensorDim{node, dim}).empty());
            EXPECT_TRUE(chain(m.model, {node, dim}, {node, dim}).empty());
            const std::size_t mark = m.decided.mark();
            const auto conflict = m.decided.split({node, dim});
            if (conflict) {
              EXPECT_FALSE(explain(m.model, m.decided, *conflict).summary.empty());
            }
            m.decided.undo(mark);
          }
        }
        for (GroupId group = 0; group < linkage.num_groups(); ++group) {
          EXPECT_FALSE(explain_obstacle(m.model, group).summary.empty());
          collectives_of_group(m.model, group, Placement::kAtOnce);
          collectives_of_group(m.model, group, Placement::kDelayed);
          if (turn == 0) m.decided.split_group(group);
        }
        EXPECT_LE(find_collectives(m.model, m.decided, Placement::kDelayed).size(),
                  find_collectives(m.model, m.decided, Placement::kAtOnce).size());
        explain_stuck(m.model, m.decided);
      }
    }
  }
}

// Every explanation of real modules: chains hold together and are as short as a plain search says.
void check_links(const ShardingModel& model, const std::vector<ChainLink>& links) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (i > 0) {
      EXPECT_EQ(links[i - 1].to, links[i].from);
    }
    if (links[i].op == kNone) continue;
    bool together = false;
    for (const OpFactor& factor : model.linkage().factors(links[i].op)) {
      bool from = false, to = false;
      for (const TensorDim member : factor.members) {
        from = from || member == links[i].from;
        to = to || member == links[i].to;
      }
      together = together || (from && to);
    }
    EXPECT_TRUE(together) << describe(model, links[i].op);
  }
}

// The length by waves over all factors and ties, without any index.
std::size_t slow_distance(const ShardingModel& model, TensorDim from, TensorDim to) {
  const Linkage& linkage = model.linkage();
  std::set<std::pair<NodeId, std::int32_t>> seen{{from.node, from.dim}};
  for (std::size_t steps = 1;; ++steps) {
    auto wave = seen;
    for (std::int32_t i = 0; i < linkage.num_factors(); ++i) {
      bool touched = false;
      for (const TensorDim member : linkage.factor(i).members)
        touched = touched || seen.count({member.node, member.dim});
      if (!touched) continue;
      for (const TensorDim member : linkage.factor(i).members) wave.insert({member.node, member.dim});
    }
    for (const Tie& tie : linkage.ties()) {
      for (std::int32_t d = 0; d < static_cast<std::int32_t>(model.flow().shape(tie.first).dims.size()); ++d) {
        if (seen.count({tie.first, d})) wave.insert({tie.second, d});
        if (seen.count({tie.second, d})) wave.insert({tie.first, d});
      }
    }
    if (wave.count({to.node, to.dim})) return steps;
    if (wave.size() == seen.size()) return 0;
    seen = std::move(wave);
  }
}

TEST(Explain, RealModules) {
  for (const char* name : {"tiny_mlp.hlo", "transformer_scan.hlo.gz", "moe_small.hlo.gz"}) {
    SCOPED_TRACE(name);
    ExplainedModule m(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name).graph, 8);
    const Linkage& linkage = m.model.linkage();
    int measured = 0;
    for (GroupId group = 0; group < linkage.num_groups(); ++group) {
      const auto inputs = linkage.inputs(group);
      if (inputs.empty()) continue;
      const TensorDim last = inputs[inputs.size() - 1];
      const auto links = chain(m.model, inputs[0], last);
      check_links(m.model, links);
      if (!(inputs[0] == last)) {
        ASSERT_FALSE(links.empty());
        EXPECT_EQ(links.front().from, inputs[0]);
        EXPECT_EQ(links.back().to, last);
        if (measured++ < 6) {
          EXPECT_EQ(links.size(), slow_distance(m.model, inputs[0], last));
        }
      }
      const auto conflict = m.decided.split(inputs[0]);
      EXPECT_EQ(conflict.has_value(), m.decided.group_state(group) != GroupState::kSplit);
      if (!conflict) continue;
      const Explanation e = explain(m.model, m.decided, *conflict);
      EXPECT_FALSE(e.summary.empty());
      EXPECT_NE(e.at, kNone);
      EXPECT_LT(e.lines.size(), 40U);
      check_links(m.model, e.links);
      check_links(m.model, e.other_links);
    }
    for (NodeId node = 0; node < m.model.flow().size(); ++node) {
      const Explanation e = explain(m.model, m.decided, node);
      const TensorState state = m.decided.state(node);
      EXPECT_FALSE(e.summary.empty());
      EXPECT_LT(e.lines.size(), 40U);
      EXPECT_EQ(e.kind == Explanation::Kind::kSplit, state.kind == TensorStateKind::kSplit);
      EXPECT_EQ(e.kind == Explanation::Kind::kUndecided, state.kind == TensorStateKind::kUndecided);
      if (node > 400) break;
    }
  }
}

}  // namespace
}  // namespace automap::sharding
