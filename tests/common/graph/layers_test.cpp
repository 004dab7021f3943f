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

// A scan over four layers; `scope`: what stands before the operations of its body, which a computation of its own
// holds.
std::string scanned(const std::string& scope) {
  const auto meta = [&](const std::string& op) { return ", metadata={op_name=\"" + scope + op + "\"}"; };
  return "HloModule m\n"
         "inner {\n  x = f32[16,4] parameter(0)\n  w = f32[4,4] parameter(1)\n"
         "  d = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}" +
         meta("attention/dot_general") + "\n  ROOT t = f32[16,4] tanh(d)" + meta("mlp/tanh") +
         "\n}\n"
         "body {\n  s = (s32[], f32[16,4], f32[4,4,4]) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
         "  x = f32[16,4] get-tuple-element(s), index=1\n  w = f32[4,4,4] get-tuple-element(s), index=2\n"
         "  z = s32[] constant(0)\n  one = s32[] constant(1)\n"
         "  k = f32[1,4,4] dynamic-slice(w, i, z, z), dynamic_slice_sizes={1,4,4}\n  m = f32[4,4] reshape(k)\n"
         "  y = f32[16,4] call(x, m), to_apply=inner, metadata={op_name=\"jit(f)/jvp()/while/body/closed_call\"}\n"
         "  n = s32[] add(i, one), metadata={op_name=\"jit(f)/jvp()/while/body/add\"}\n"
         "  ROOT o = (s32[], f32[16,4], f32[4,4,4]) tuple(n, y, w)\n}\n"
         "condition {\n  s = (s32[], f32[16,4], f32[4,4,4]) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
         "  n = s32[] constant(4)\n  ROOT c = pred[] compare(i, n), direction=LT\n}\n"
         "ENTRY e {\n  x = f32[16,4] parameter(0)\n  w = f32[4,4,4] parameter(1)\n  z = s32[] constant(0)\n"
         "  h = f32[16,4] exponential(x), metadata={op_name=\"jit(f)/jvp()/exp\"}\n"
         "  t = (s32[], f32[16,4], f32[4,4,4]) tuple(z, h, w)\n"
         "  l = (s32[], f32[16,4], f32[4,4,4]) while(t), condition=condition, body=body, "
         "metadata={op_name=\"jit(f)/jvp()/while\"}\n"
         "  ROOT r = f32[16,4] get-tuple-element(l), index=1\n}\n";
}

TEST(Layers, ALoopIsNamedByWhatItsBodyShares) {
  bool from_metadata = false;
  EXPECT_EQ(names_of(scanned("block/"), &from_metadata), (std::vector<std::string>{"block"}));
  EXPECT_TRUE(from_metadata);
  // Complete names, as older versions write them.
  EXPECT_EQ(names_of(scanned("jit(f)/jvp(model/decoder/block)/while/body/"), &from_metadata),
            (std::vector<std::string>{"block"}));
  EXPECT_TRUE(from_metadata);
  // Nothing is shared, but the module has names.
  EXPECT_EQ(names_of(scanned(""), &from_metadata), (std::vector<std::string>{"model"}));
  EXPECT_TRUE(from_metadata);

  for (const auto& [scope, inside] : {std::pair("block/", true), std::pair("", false)}) {
    const Graph graph = hlo::read_hlo_text(scanned(scope), "test");
    const TrainingStep step = analyze_training_step(graph);
    const FlowOrder order = order_forward(step);
    const LayerNames names = name_layers(step, order);
    ASSERT_EQ(names.inside.size(), order.order.size());
    for (std::size_t p = 0; p < order.order.size(); ++p) {
      const bool loop = step.flow.node(order.order[p]).opcode == Opcode::kWhile;
      EXPECT_EQ(names.inside[p], loop && inside) << scope << p;
    }
  }
}

// Two equal blocks of two products, three products that repeat nothing, and `type` as PyTorch writes it.
TEST(Layers, WhatRepeatsNothingIsNamedByItsProducts) {
  const auto text = [](int tail) {
    std::string out = "HloModule m\nENTRY e {\n  x0 = f32[16,4] parameter(0)\n";
    std::string last = "h", body;
    int parameter = 1, in = 4;
    body += "  h = f32[16,4] sine(x0), metadata={op_type=\"aten__sin\" op_name=\"aten__sin\"}\n";
    const auto product = [&](int width, const char* then) {
      const std::string n = std::to_string(parameter);
      out += "  w" + n + " = f32[" + std::to_string(width) + "," + std::to_string(in) + "] parameter(" + n + ")\n";
      body += "  u" + n + " = f32[" + std::to_string(in) + "," + std::to_string(width) + "] transpose(w" + n +
              "), dimensions={1,0}\n  d" + n + " = f32[16," + std::to_string(width) + "] dot(" + last + ", u" + n +
              "), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_type=\"aten__mm\" "
              "op_name=\"aten__mm\"}\n  t" +
              n + " = f32[16," + std::to_string(width) + "] " + then + "(d" + n + ")\n";
      last = "t" + n;
      in = width;
      ++parameter;
    };
    for (int k = 0; k < 3; ++k) {
      product(8, "tanh");
      product(4, "tanh");
    }
    for (int k = 0; k < tail; ++k) product(5 + k, "exponential");
    return out + body + "  ROOT r = f32[16," + std::to_string(in) + "] cosine(" + last + ")\n}\n";
  };
  bool from_metadata = true;
  EXPECT_EQ(names_of(text(3), &from_metadata),
            (std::vector<std::string>{"start (sin)", "block 1 of 3", "block 2 of 3", "block 3 of 3", "dot 1 of 3",
                                      "dot 2 of 3", "dot 3 of 3"}));
  EXPECT_FALSE(from_metadata);
  EXPECT_EQ(names_of(text(1), &from_metadata),
            (std::vector<std::string>{"start (sin)", "block 1 of 3", "block 2 of 3", "block 3 of 3", "end (mm)"}));
}

}  // namespace
}  // namespace automap::graph
