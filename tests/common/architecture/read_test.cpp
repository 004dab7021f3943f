// Compares the steps made of descriptions with closed formulas and published numbers.
#include "common/architecture/read.h"

#include <gtest/gtest.h>

#include "common/architecture/architectures.h"
#include "common/architecture/names.h"
#include "common/base/files.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/training_step.h"

namespace automap::architecture {
namespace {

BuiltStep built(const std::string& text, const StepOptions& options = {}) {
  return build_step(read_description(text, "test.json"), "test.json", options);
}

StepOptions short_sequence(std::int64_t samples = 2) {
  StepOptions options;
  options.samples = samples;
  options.sequence = 32;
  return options;
}

double weights_of(const graph::TrainingStep& step, const graph::Graph& graph) {
  double sum = 0;
  for (const std::int32_t variable : step.variables) {
    const graph::EntryInput& input = step.inputs[static_cast<std::size_t>(variable)];
    const graph::InstructionId id = graph.entry().parameters[static_cast<std::size_t>(input.parameter)];
    sum += static_cast<double>(graph.shape_of(id).num_elements);
  }
  return sum;
}

double weights_in(const std::string& text) {
  const BuiltStep step = built(text, short_sequence());
  return weights_of(graph::analyze_training_step(step.graph), step.graph);
}

double weights_of(const std::string& name) {
  return weights_in(config_of(name));
}

void expect_error(const std::string& text, const std::string& part, const StepOptions& options = {}) {
  try {
    built(text, options);
    ADD_FAILURE() << "nothing was wrong with " << text;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

constexpr const char* kTiny = R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,
  "num_key_value_heads":2,"intermediate_size":96,"vocab_size":128,"max_position_embeddings":32)";

std::string tiny(const std::string& more = "") {
  return std::string(kTiny) + more + "}";
}

TEST(Description, PublishedNumbersOfWeights) {
  EXPECT_EQ(weights_of("gpt2"), 124439808);
  EXPECT_EQ(weights_of("llama2-7b"), 6738415616);
  EXPECT_EQ(weights_of("llama3-8b"), 8030261248);
  EXPECT_EQ(weights_of("mistral-7b"), 7241732096);
  EXPECT_EQ(weights_of("mixtral-8x7b"), 46702792704);
  EXPECT_EQ(weights_of("qwen2.5-7b"), 7615616512);
  EXPECT_EQ(weights_of("qwen3-8b"), 8190735360);
  EXPECT_EQ(weights_of("qwen3-30b-a3b"), 30532122624);
  // Without what is left out: biases of experts and router, sinks of attention.
  EXPECT_EQ(weights_of("gpt-oss-20b"), 20914757184 - 24 * (32 * (3 * 2880 + 1) + 64));
  // Its norms of queries and keys are as wide as all heads.
  EXPECT_EQ(weights_of("olmo2-7b"), 7298617344 - std::int64_t{32} * 2 * (4096 - 128));
  EXPECT_NEAR(static_cast<double>(weights_of("llama4-scout")), 107.8e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(weights_of("llama4-maverick")), 400e9, 4e9);
  EXPECT_NEAR(static_cast<double>(weights_of("gemma3-27b")), 27.0e9, 0.1e9);
}

// As their makers publish them: sizes that the library has are left out, and the type stands outside.
TEST(Description, TextPartOfGemma3) {
  const auto published = [](const std::string& sizes) {
    return R"({"model_type":"gemma3","torch_dtype":"bfloat16","vision_config":{"hidden_size":1152},"text_config":{)"
           R"("model_type":"gemma3_text","sliding_window":1024,)" +
           sizes + "}}";
  };
  const std::string small = published(R"("hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34)");
  const std::string middle =
      published(R"("hidden_size":3840,"intermediate_size":15360,"num_hidden_layers":48,"num_attention_heads":16,)"
                R"("num_key_value_heads":8)");
  EXPECT_EQ(weights_in(small), 3880263168);
  EXPECT_EQ(weights_in(middle), 11766034176);
  EXPECT_EQ(read_description(small, "config.json").model.dtype, "bfloat16");
}

// Of each layer the keys that a query sees.
std::vector<std::int64_t> windows_of(const std::string& text) {
  std::vector<std::int64_t> windows;
  const Described described = read_description(text, "config.json");
  for (const LayerGroup& group : described.model.stacks.back().groups) {
    windows.insert(windows.end(), static_cast<std::size_t>(group.repeat), group.blocks.front().window);
  }
  return windows;
}

std::string decoder_of(const std::string& type, int layers, const std::string& more) {
  return R"({"model_type":")" + type + R"(","hidden_size":64,"num_hidden_layers":)" + std::to_string(layers) +
         R"(,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":96,"vocab_size":128,)"
         R"("max_position_embeddings":32)" +
         more + "}";
}

TEST(Description, WindowsOfSomeLayers) {
  using Windows = std::vector<std::int64_t>;
  EXPECT_EQ(windows_of(decoder_of("mistral", 3, R"(,"sliding_window":8)")), (Windows{8, 8, 8}));
  EXPECT_EQ(windows_of(decoder_of("qwen2", 2, R"(,"sliding_window":8,"use_sliding_window":false)")), (Windows{0, 0}));
  EXPECT_EQ(windows_of(decoder_of("gemma2", 3, R"(,"sliding_window":8)")), (Windows{8, 0, 8}));
  EXPECT_EQ(windows_of(decoder_of("gpt_neo", 3, R"(,"window_size":8)")), (Windows{0, 8, 0}));
  EXPECT_EQ(windows_of(decoder_of("gemma3_text", 7, R"(,"sliding_window":8)")), (Windows{8, 8, 8, 8, 8, 0, 8}));
  EXPECT_EQ(windows_of(decoder_of("gemma3_text", 3, R"(,"sliding_window":8,"sliding_window_pattern":2)")),
            (Windows{8, 0, 8}));
  EXPECT_EQ(windows_of(decoder_of("llama4_text", 5, R"(,"attention_chunk_size":16)")), (Windows{16, 16, 16, 0, 16}));
  EXPECT_EQ(windows_of(decoder_of("gpt_oss", 2,
                                  R"(,"sliding_window":8,"layer_types":["full_attention","sliding_attention"])")),
            (Windows{0, 8}));
  expect_error(tiny(R"(,"layer_types":["full_attention"])"),
               "layer_types: found [\"full_attention\"], expected a list of 3 texts");
  expect_error(tiny(R"(,"layer_types":["full_attention","full_attention","linear_attention"])"),
               "found \"linear_attention\", expected full_attention, sliding_attention or chunked_attention");
}

TEST(Description, ExpertsOfSomeLayers) {
  const auto kinds = [](const std::string& text) {
    std::string out;
    const Described described = read_description(text, "config.json");
    for (const LayerGroup& group : described.model.stacks.back().groups) {
      const Block& block = group.blocks.back();
      out += block.kind == BlockKind::kExperts ? "e" + std::to_string(block.shared_hidden)
                                               : "m" + std::to_string(block.hidden);
      out += "x" + std::to_string(group.repeat) + " ";
    }
    return out;
  };
  const std::string four = R"(,"num_local_experts":4,"num_experts_per_tok":1)";
  EXPECT_EQ(kinds(decoder_of("mixtral", 3, four)), "e0x3 ");
  EXPECT_EQ(kinds(decoder_of("llama4_text", 5, four + R"(,"interleave_moe_layer_step":2,"intermediate_size_mlp":200)")),
            "m200x1 e96x1 m200x1 e96x1 m200x1 ");
  EXPECT_EQ(kinds(decoder_of("qwen3_moe", 4, four + R"(,"decoder_sparse_step":3)")), "m96x2 e0x1 m96x1 ");
  EXPECT_EQ(kinds(R"({"model_type":"llama4","text_config":)" + decoder_of("llama4_text", 2, four) + "}"), "e96x2 ");
}

// The page lists them for people.
TEST(Description, EveryNameStandsInTheDocs) {
  const std::string page = read_file(std::string(AUTOMAP_SOURCE_DIR) + "/docs/describing-models.md");
  for (const std::string& name : model_names()) EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << name;
}

TEST(Description, NamesAsPeopleTypeThemAreNearOurs) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(near_models("mixtral"), (Names{"mixtral-8x7b", "mixtral-8x22b"}));
  EXPECT_EQ(near_models("bert"), (Names{"bert-base", "bert-large"}));
  EXPECT_EQ(near_models("t5").size(), 5u);
  EXPECT_EQ(near_models("gpt3").size(), 4u);
  EXPECT_EQ(near_models("meta-llama/Meta-Llama-3-8B"), Names{"llama3-8b"});
  EXPECT_EQ(near_models("Qwen/Qwen2.5-7B"), Names{"qwen2.5-7b"});
  EXPECT_EQ(near_models("meta-llama/Llama-2-7b-hf"), Names{"llama2-7b"});
  EXPECT_EQ(near_models("llama3.1-405b"), Names{"llama3-405b"});
  EXPECT_EQ(near_models("lama3-8b"), Names{"llama3-8b"});
  EXPECT_EQ(near_models("runs/step.hlo.gz"), Names{});
  EXPECT_EQ(near_models("gpt2_step.hlo.gz"), Names{});
  EXPECT_EQ(near_models(""), Names{});
  EXPECT_EQ(near_models(std::string(5000, 'x')), Names{});
}

// What frameworks are told of the model: sizes of decoders of like layers alone.
TEST(Description, SizesOfDenseDecoders) {
  const ModelSizes llama = described_sizes(config_of("llama3-8b"), "llama3-8b", short_sequence());
  EXPECT_EQ(llama.layers, 32);
  EXPECT_EQ(llama.hidden, 4096);
  EXPECT_EQ(llama.heads, 32);
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.head_size, 128);
  EXPECT_EQ(llama.inner, 14336);
  EXPECT_EQ(llama.vocabulary, 128256);
  EXPECT_EQ(llama.sequence, short_sequence().sequence);
  EXPECT_EQ(llama.dtype, "bf16");
  EXPECT_EQ(llama.published, "llama3-8b");
  for (const char* other : {"mixtral-8x7b", "t5-small", "bert-base", "deepseek-v2-lite"}) {
    const ModelSizes sizes = described_sizes(config_of(other), "config.json", short_sequence());
    EXPECT_EQ(sizes.layers, 0) << other;
    EXPECT_EQ(sizes.published, "") << other;
    EXPECT_GT(sizes.sequence, 0) << other;
  }
  EXPECT_EQ(described_sizes(config_of("vit-base"), "vit-base", {}).sequence, 0);
}

TEST(Description, EveryNameIsOfAKnownArchitectureAndReads) {
  for (const std::string& name : model_names()) {
    ASSERT_TRUE(is_description(config_of(name))) << name;
    EXPECT_FALSE(read_description(config_of(name), name).model.stacks.empty()) << name;
  }
  EXPECT_EQ(config_of("no-such-model"), "");
}

TEST(Description, TheStepIsFoundAndCostsSixTimesItsProducts) {
  const BuiltStep step = built(tiny(), short_sequence());
  const graph::TrainingStep found = graph::analyze_training_step(step.graph);
  EXPECT_TRUE(found.training);
  EXPECT_EQ(found.batch, 2);
  EXPECT_NE(found.loss_result, graph::kNone);
  EXPECT_EQ(found.count(graph::InputRole::kSlot), 2 * found.count(graph::InputRole::kVariable));
  // Products with weights: all but the embedding, which is looked up; and attention's two of the sequence.
  const double layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96;
  const double products = 3 * layer + 64 * 128, tokens = 2 * 32;
  const double attention = 3 * 2 * 2.0 * 2 * 32 * 32 * 64;
  const double expected = 6 * products * tokens + 3 * attention;
  const double share = graph::analyze_cost(step.graph).total.flops / expected;
  EXPECT_GT(share, 1);  // norms, activations and the update, which count at such small sizes
  EXPECT_LT(share, 1.1);
}

TEST(Description, ComputedAgainIsMoreWorkOfTheSameVariables) {
  StepOptions again = short_sequence();
  const double once = graph::analyze_cost(built(tiny(), again).graph).total.flops;
  again.remat = "selective";
  const double selective = graph::analyze_cost(built(tiny(), again).graph).total.flops;
  again.remat = "layer";
  const BuiltStep whole = built(tiny(), again);
  const double layers = graph::analyze_cost(whole.graph).total.flops;
  EXPECT_GT(selective, once * 1.005);
  EXPECT_GT(layers, selective);
  EXPECT_LT(layers, once * 4 / 3);
  EXPECT_EQ(graph::analyze_training_step(whole.graph).count(graph::InputRole::kVariable), 3 * 9 + 3);
}

std::int64_t count_of(const graph::Graph& graph, graph::Opcode opcode) {
  std::int64_t count = 0;
  for (std::int32_t id = 0; id < graph.num_instructions(); ++id)
    count += graph.instruction(id).opcode == opcode ? 1 : 0;
  return count;
}

// Two of attention and MLP in each of three layers, and one of the embeddings; one of attention in each layer.
TEST(Description, DropoutIsDrawnWhereItIsSaid) {
  const auto masks = [](const std::string& text, const std::string& remat = "") {
    StepOptions options = short_sequence();
    options.remat = remat;
    return count_of(built(text, options).graph, graph::Opcode::kRngBitGenerator);
  };
  EXPECT_EQ(masks(tiny()), 0);
  EXPECT_EQ(masks(tiny(R"(,"attention_dropout":0,"hidden_dropout":0.0)")), 0);
  EXPECT_EQ(masks(tiny(R"(,"attention_dropout":0.1)")), 3);
  EXPECT_EQ(masks(tiny(R"(,"hidden_dropout":0.99)")), 7);
  EXPECT_EQ(masks(tiny(R"(,"dropout_rate":0.1)")), 10);
  EXPECT_EQ(masks(tiny(R"(,"resid_pdrop":0.1,"attn_pdrop":0.2,"hidden_dropout":null)")), 10);
  EXPECT_EQ(masks(tiny(R"(,"dropout_rate":0.1)"), "selective"), 10 + 3);
  // Drawn again for the backward pass where layers are computed again: not the embeddings'.
  EXPECT_EQ(masks(tiny(R"(,"dropout_rate":0.1)"), "layer"), 10 + 9);
  const std::string table = R"({"schema":"automap.layers/1","hidden":64,"vocabulary":128,"sequence":32,)";
  const std::string layers = R"("layers":[{"blocks":[{"block":"attention","heads":4},{"block":"mlp","hidden":96}]}]})";
  EXPECT_EQ(masks(table + layers), 0);
  EXPECT_EQ(masks(table + R"("dropout":0.1,)" + layers), 3);
  EXPECT_EQ(masks(table + R"("attention_dropout":0.1,)" + layers), 1);
  const std::string megatron = "--num-layers 3 --hidden-size 64 --num-attention-heads 4 --seq-length 32";
  EXPECT_EQ(masks(megatron), 10);
  EXPECT_EQ(masks(megatron + " --hidden-dropout 0"), 3);
  EXPECT_EQ(masks(megatron + " --hidden-dropout=0.0 --attention-dropout 0"), 0);
  expect_error(megatron + " --hidden-dropout 1", "--hidden-dropout: found '1', expected a share from 0 to 0.99");
  expect_error(megatron + " --attention-dropout 10%", "--attention-dropout: found '10%'");
  expect_error(megatron + " --attention-dropout --bf16", "--attention-dropout: found ''");
  expect_error(tiny(R"(,"attn_pdrop":-0.1)"), "attn_pdrop: found -0.1, expected a share from 0 to 0.99");
  expect_error(tiny(R"(,"hidden_dropout_prob":"0.1")"), "hidden_dropout_prob: found \"0.1\"");
  expect_error(table + R"("dropout":1,)" + layers, "dropout: found 1, expected a share from 0 to 0.99");
  expect_error(table + R"("attention_dropout":true,)" + layers, "attention_dropout: found true");
}

TEST(Description, DropoutIsSaidAndItsKeyIsNoData) {
  const auto taken = [](const std::string& more) { return built(tiny(more), short_sequence()).taken; };
  const auto says = [&](const std::string& more, const std::string& part) {
    EXPECT_NE(taken(more).find(part), std::string::npos) << taken(more);
  };
  EXPECT_EQ(taken("").find("dropout"), std::string::npos);
  says(R"(,"dropout_rate":0.1)", "AdamW, dropout 0.1");
  says(R"(,"hidden_dropout":0.1)", ", dropout 0.1 (0 in attention)");
  says(R"(,"attention_dropout":0.25)", ", dropout 0.25 in attention alone");
  // A batch of four has the dimension of the key.
  const BuiltStep step = built(tiny(R"(,"dropout_rate":0.1)"), short_sequence(4));
  const graph::TrainingStep found = graph::analyze_training_step(step.graph);
  EXPECT_EQ(found.batch, 4);
  EXPECT_EQ(found.batch_inputs.size(), 2u);  // tokens and labels
  EXPECT_EQ(found.count(graph::InputRole::kStepInput), 3);
  EXPECT_EQ(found.count(graph::InputRole::kVariable), 3 * 9 + 3);
}

TEST(Description, MegatronsArgumentsAreAModel) {
  const std::string text =
      "--num-layers 3 --hidden-size=64 \\\n --num-attention-heads 4 --group-query-attention "
      "--num-query-groups 2 --ffn-hidden-size 96 --swiglu --vocab-size 128 --seq-length 32 --normalization RMSNorm "
      "--position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --lr 1e-4\n";
  ASSERT_TRUE(is_description(text));
  const BuiltStep megatron = built(text), config = built(tiny());
  const graph::TrainingStep a = graph::analyze_training_step(megatron.graph);
  const graph::TrainingStep b = graph::analyze_training_step(config.graph);
  EXPECT_EQ(weights_of(a, megatron.graph), weights_of(b, config.graph));
  expect_error("--num-layers 3 --hidden-size 64", "--num-attention-heads is missing");
  expect_error(text + " --optimizer lion", "found 'lion', expected adam or sgd");
  expect_error("--num-layers x --hidden-size 64 --num-attention-heads 4", "--num-layers: found 'x'");
}

TEST(Description, TablesOfLayers) {
  const std::string text = R"({"schema":"automap.layers/1","name":"mine","hidden":64,"vocabulary":128,"sequence":32,
    "norm":"rms","layers":[{"repeat":3,"blocks":[{"block":"attention","heads":4,"kv_heads":2,"causal":true,
    "rotary":true},{"block":"mlp","hidden":96,"gated":true,"activation":"silu"}]}]})";
  ASSERT_TRUE(is_description(text));
  const BuiltStep table = built(text, short_sequence()), config = built(tiny(), short_sequence());
  EXPECT_EQ(graph::analyze_cost(table.graph).total.flops, graph::analyze_cost(config.graph).total.flops);
  const std::string images = R"({"schema":"automap.layers/1","input":"images","image":32,"classes":10,"layers":[
    {"blocks":[{"block":"convolution","channels":16,"stride":2}]},{"repeat":2,"blocks":[{"block":"convolution",
    "channels":16}]}]})";
  EXPECT_EQ(graph::analyze_training_step(built(images).graph).count(graph::InputRole::kVariable), 11);
  // Blocks of one kind, and of kinds with one norm, stand in a layer as often as wanted.
  const auto of_blocks = [](const std::string& blocks) {
    return R"({"schema":"automap.layers/1","hidden":64,"vocabulary":128,"sequence":32,"norm":"rms","layers":[{"blocks":[)" +
           blocks + "]}]}";
  };
  const std::string mlp = R"({"block":"mlp","hidden":96})",
                    experts = R"({"block":"experts","hidden":32,"experts":4,"chosen":2})";
  const auto variables = [](const BuiltStep& step) {
    return graph::analyze_training_step(step.graph).count(graph::InputRole::kVariable);
  };
  const auto one = variables(built(of_blocks(mlp), short_sequence()));
  const auto three = variables(built(of_blocks(mlp + "," + mlp + "," + mlp), short_sequence()));
  EXPECT_EQ(variables(built(of_blocks(mlp + "," + mlp), short_sequence())) - one, (three - one) / 2);
  EXPECT_GT(variables(built(of_blocks(mlp + "," + experts), short_sequence())), one);
  EXPECT_EQ(
      variables(built(R"({"schema":"automap.layers/1","input":"images","image":32,"classes":10,"layers":[{"blocks":[
    {"block":"convolution","channels":16},{"block":"convolution","channels":16}]}]})")),
      8);
  expect_error(R"({"schema":"automap.layers/1","input":"images","image":16384,"classes":10,"layers":[
    {"blocks":[{"block":"convolution","channels":1048576,"kernel":64}]}]})",
               "an array of more than 10^15 numbers");
  expect_error(R"({"schema":"automap.layers/1","hidden":64,"vocabulary":9,"sequence":8,"layers":[]})", "layers");
  expect_error(R"({"schema":"automap.layers/1","hidden":64,"vocabulary":9,"sequence":8,"layers":[{"blocks":[
    {"block":"mlp","hiden":8}]}]})",
               "hiden");
}

TEST(Description, WhatIsWrongIsSaid) {
  expect_error(R"({"model_type":"lama"})", "'lama' is not known: did you mean llama?");
  expect_error(R"({"model_type":"llama","hidden_size":64,"vocab_size":9,"max_position_embeddings":8})",
               "num_attention_heads or n_head or num_heads is missing");
  expect_error(tiny(R"(,"head_dim":-1)"), "head_dim: found -1");
  expect_error(tiny(R"(,"head_dim":33)"), "rotary positions turn 33");
  expect_error(tiny(R"(,"torch_dtype":"int8")"), "found 'int8', expected f32, bf16 or f16");
  StepOptions long_sequence;
  long_sequence.sequence = 4096;
  expect_error(config_of("gpt2"), "1024 learned positions", long_sequence);
  StepOptions bad;
  bad.remat = "all";
  expect_error(tiny(), "--remat: found 'all'", bad);
  EXPECT_FALSE(is_description("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }"));
  EXPECT_FALSE(is_description("{\"servers\":[]}"));
}

}  // namespace
}  // namespace automap::architecture
