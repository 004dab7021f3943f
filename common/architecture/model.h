// A model as a table of layers: the form into which all architectures are read, and which the layer language writes
// down (docs/describing-models.md). Sizes are counts; those of a Model that a reader made fit each other (check_model).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automap::architecture {

// The largest sizes, and share of dropped values, that a description may name.
constexpr std::int64_t kMostWide = std::int64_t{1} << 20, kMostWords = std::int64_t{1} << 24, kMostLayers = 1024,
                       kMostHeads = 4096, kMostPositions = std::int64_t{1} << 24;
constexpr double kMostDropped = 0.99;
constexpr const char* kDroppedRange = "a share from 0 to 0.99";

enum class BlockKind : std::uint8_t { kAttention, kMlp, kExperts, kConvolution };
enum class Activation : std::uint8_t { kGelu, kGeluTanh, kRelu, kSilu };

// One part of a layer, added to the stream that it reads.
struct Block {
  BlockKind kind = BlockKind::kMlp;
  bool bias = false;  // of its products; of attention, of the last one
  // Attention.
  std::int64_t heads = 1, kv_heads = 1, head_size = 64, value_size = 64;
  bool causal = false, rotary = false, scaled = true, head_norm = false;
  bool cross = false;                        // keys and values of the encoder
  bool query_bias = false;                   // of queries, keys and values
  bool one_product = false;                  // makes queries, keys and values
  std::int64_t rotary_size = 0;              // features of a head that turn; 0: all
  std::int64_t window = 0;                   // keys that a query sees; 0: all
  std::int64_t query_rank = 0, kv_rank = 0;  // what queries, and keys with values, are compressed to; 0: nothing
  std::int64_t position_buckets = 0;         // biases by distance, the same in all layers; 0: none
  // MLP and experts: of an expert.
  std::int64_t hidden = 0;
  bool gated = false;
  Activation activation = Activation::kGelu;
  std::int64_t experts = 0, chosen = 0, shared_hidden = 0;  // all, those that a token goes to, what all tokens go to
  // Convolution.
  std::int64_t channels = 0, kernel = 3, stride = 1;
};

// Layers one behind the other that are alike.
struct LayerGroup {
  std::int64_t repeat = 1;
  std::vector<Block> blocks;
};

// The place of a block's norm: on its input, on the sum with the stream, on its input and its output, or on its output.
enum class NormPlace : std::uint8_t { kBefore, kBehind, kAround, kAfter };

struct Stack {
  std::string scope = "layers";
  std::int64_t sequence = 0;
  std::vector<LayerGroup> groups;
};

enum class InputKind : std::uint8_t { kTokens, kPatches, kImages };
enum class HeadKind : std::uint8_t { kTokens, kClasses, kNoise };

struct Model {
  std::string name, architecture;
  InputKind input = InputKind::kTokens;
  HeadKind head = HeadKind::kTokens;
  std::int64_t hidden = 0, vocabulary = 0, classes = 0;
  std::int64_t positions = 0, token_types = 0;  // learned ones
  std::int64_t image = 0, patch = 1, image_channels = 3;
  bool class_token = false;  // one more position, before the patches
  bool rms_norm = false, embedding_norm = false, final_norm = true;
  NormPlace norm = NormPlace::kBefore;
  bool parallel = false, one_norm = false;  // a layer's blocks read the same; the same norm of it
  bool conditioned = false;                 // norms scaled and shifted, blocks scaled, by the time and class of noise
  bool tied = false, head_bias = false, head_transform = false;
  double attention_dropout = 0,
         dropout = 0;             // shares of scores, and of embeddings and blocks' outputs, that are dropped
  std::vector<Stack> stacks;      // the last makes the result; one before it encodes for it
  std::string dtype = "float32";  // of products
  std::int64_t longest = 0;       // positions that the model is made for
  std::vector<std::string> notices;
};

// What a framework calls a model by, of a dense decoder whose layers are all alike. 0: it is none, or not known.
struct ModelSizes {
  std::string published;      // the name of the published model (names.h); empty: none
  std::string dtype;          // of products: "bf16"; empty: not known
  std::int64_t sequence = 0;  // that is trained with; 0: not of tokens
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_size = 0, inner = 0, vocabulary = 0;
  std::int64_t positions = 0;  // learned ones
};

enum class Optimizer : std::uint8_t { kAdamW, kAdam, kSgd };
enum class Remat : std::uint8_t { kNone, kSelective, kLayer };

// Settings of the step that a table of layers leaves open. 0 and empty: as the model says.
struct StepOptions {
  std::int64_t samples = 0, sequence = 0;
  std::string dtype, optimizer, remat;
};

}  // namespace automap::architecture
