// Names layers as users know them: "encoder/layer/17", "h/5".
//
// From op_name: transformations (jit, jvp, transpose, vmap, remat, while bodies) are unwrapped, the scopes of the
// callers are put before relative ones, the operation's own name and the scopes that all instructions share are
// dropped, and the path ends at its first numbered scope (and number-only or block-like scopes right behind it). A loop
// is named by the scopes that all named instructions of its body share, when they say more than its own. Instructions
// without a name take the one of the instruction they stand behind. Without metadata a name is invented per repeated
// block, from the sequence of heavy instructions: "block 17 of 48"; outside blocks per product with weights, where
// several follow each other: "convolution 3 of 5".
//
// Worked cases (before the shared scopes are dropped):
//   jit(train_step)/jvp(_Model)/Transformer/encoderblock_0/MlpBlock_0/Dense_0/dot_general ->
//   _Model/Transformer/encoderblock_0
//   jit(step)/transpose(jvp(layer_3))/attn/mul -> layer_3
//   jit(f)/jvp(FlaxBert)/encoder/layer/17/attention/self/query/dot_general -> FlaxBert/encoder/layer/17
//   jit(f)/jvp()/reduce_sum -> (nothing)
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/flow_order.h"
#include "common/graph/training_step.h"

namespace automap::graph {

// The scopes of one op_name, transformations unwrapped, the operation itself dropped.
std::vector<std::string> scopes_of(std::string_view op_name);
// The number of leading scopes that name the layer. `counted(i)`: true if the number in scope i counts; null: all
// count.
std::size_t layer_depth(const std::vector<std::string>& scopes,
                        const std::function<bool(std::size_t)>& counted = nullptr);

struct LayerNames {
  std::vector<std::string> name;  // per position of FlowOrder::order; never empty
  std::vector<bool> inside;       // by position: a loop whose name stands inside it, not on it
  bool from_metadata = false;     // false: invented
  std::int32_t num_blocks = 0;    // of the largest group of repeated blocks that was found without metadata
};

LayerNames name_layers(const TrainingStep& step, const FlowOrder& order);

// A run of equal blocks in a sequence: items [first, first + period * count).
struct Repeat {
  std::int32_t first = 0, period = 0, count = 0;
};
// The repetition that covers most of the sequence, the smallest period among equals; count < 2: there is none.
// Worked case: a b c b c b c d -> first 1, period 2, count 3.
Repeat find_repeat(const std::vector<std::uint64_t>& sequence, std::int32_t begin, std::int32_t end);

}  // namespace automap::graph
