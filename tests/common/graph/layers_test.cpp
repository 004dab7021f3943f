#include "common/graph/layers.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

std::string layer(const std::string& op_name) {
  const std::vector<std::string> scopes = scopes_of(op_name);
  const std::size_t depth = layer_depth(scopes);
  std::string out;
  for (std::size_t i = 0; i < depth; ++i) out += (i == 0 ? "" : "/") + scopes[i];
  return out;
}

TEST(Layers, WorkedCases) {
  EXPECT_EQ(layer("jit(train_step)/jvp(_Model)/Transformer/encoderblock_0/MlpBlock_0/Dense_0/dot_general"),
            "_Model/Transformer/encoderblock_0");
  EXPECT_EQ(layer("jit(step)/transpose(jvp(layer_3))/attn/mul"), "layer_3");
  EXPECT_EQ(layer("jit(f)/jvp(FlaxBert)/encoder/layer/17/attention/self/query/dot_general"),
            "FlaxBert/encoder/layer/17");
  EXPECT_EQ(layer("jit(f)/jvp()/reduce_sum"), "");
  EXPECT_EQ(layer("jit(f)/jit(main)/jvp(Transformer)/decoder/while/body/layers/self_attention/mul"),
            "Transformer/decoder");
  EXPECT_EQ(layer("jit(f)/jvp(M)/stages/2/layers/0/conv/add"), "M/stages/2/layers/0");
  EXPECT_EQ(layer("jit(f)/checkpoint/rematted_computation/h_5/add"), "h_5");
  EXPECT_EQ(layer("jit(f)/jvp(M/h/5)/add"), "M/h/5");
  EXPECT_EQ(layer("jit(train_step)/jvp(M)/GroupNorm_0/mul;jit(train_step)/jvp(M)/GroupNorm_0/reshape"),
            "M/GroupNorm_0");
  EXPECT_EQ(layer("add"), "");
  EXPECT_EQ(layer(""), "");
  EXPECT_EQ(layer("jit(f)/lm_head/bth,vh->btv/dot_general"), "lm_head");
  EXPECT_EQ(layer("((((((((((/////"), "");
}

// Every start, period and count, judged by comparing item by item.
Repeat slow_repeat(const std::vector<std::uint64_t>& s) {
  Repeat best;
  std::int64_t cover = 0;
  const auto n = static_cast<std::int32_t>(s.size());
  for (std::int32_t period = 1; period <= n; ++period) {
    for (std::int32_t first = 0; first < n; ++first) {
      for (std::int32_t count = 2; first + period * count <= n; ++count) {
        bool equal = true;
        for (std::int32_t i = first; i + period < first + period * count; ++i)
          equal = equal && s[static_cast<std::size_t>(i)] == s[static_cast<std::size_t>(i + period)];
        if (equal && static_cast<std::int64_t>(period) * count > cover) {
          cover = static_cast<std::int64_t>(period) * count;
          best = {first, period, count};
        }
      }
    }
  }
  return best;
}

TEST(Layers, RepeatsAgreeWithTheSlowSearch) {
  EXPECT_EQ(find_repeat({0, 1, 2, 1, 2, 1, 2, 3}, 0, 8).first, 1);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint64_t> s;
    const int n = 1 + static_cast<int>(random() % 24);
    for (int i = 0; i < n; ++i) s.push_back(random() % (round % 3 + 1));
    const Repeat fast = find_repeat(s, 0, n), slow = slow_repeat(s);
    EXPECT_EQ(fast.period * fast.count, slow.period * slow.count);
    EXPECT_EQ(fast.period, slow.period);
    EXPECT_EQ(fast.first, slow.first);
  }
}

std::string named(bool metadata) {
  std::string text = "HloModule m\nENTRY e {\n  x0 = f32[16,4] parameter(0)\n";
  for (int k = 0; k < 5; ++k)
    text += "  w" + std::to_string(k) + " = f32[4,4] parameter(" + std::to_string(k + 1) + ")\n";
  text += "  h = f32[16,4] tanh(x0)\n";
  std::string last = "h";
  for (int k = 0; k < 5; ++k) {
    const std::string n = std::to_string(k);
    const auto meta = [&](const char* op) {
      return metadata ? ", metadata={op_name=\"jit(f)/Model_0/block/" + n + "/" + op + "\"}" : std::string();
    };
    text += "  d" + n + " = f32[16,4] dot(" + last + ", w" + n +
            "), lhs_contracting_dims={1}, rhs_contracting_dims={0}" + meta("dot") + "\n  t" + n +
            " = f32[16,4] tanh(d" + n + ")" + meta("tanh") + "\n";
    last = "t" + n;
  }
  return text + "  ROOT r = f32[16,4] exponential(" + last + ")\n}\n";
}

std::vector<std::string> names_of(const std::string& text, bool* from_metadata) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  const TrainingStep step = analyze_training_step(graph);
  const LayerNames names = name_layers(step, order_forward(step));
  *from_metadata = names.from_metadata;
  std::vector<std::string> out;
  for (const std::string& name : names.name) {
    if (out.empty() || out.back() != name) out.push_back(name);
  }
  return out;
}

TEST(Layers, FromMetadataAndInvented) {
  bool from_metadata = false;
  EXPECT_EQ(names_of(named(true), &from_metadata),
            (std::vector<std::string>{"block/0", "block/1", "block/2", "block/3", "block/4"}));
  EXPECT_TRUE(from_metadata);
  EXPECT_EQ(names_of(named(false), &from_metadata),
            (std::vector<std::string>{"block 1 of 5", "block 2 of 5", "block 3 of 5", "block 4 of 5", "block 5 of 5",
                                      "end"}));
  EXPECT_FALSE(from_metadata);
}

}  // namespace
}  // namespace automap::graph
