// Stores variables and optimizer state in parts and uses them whole (ZeRO; Rajbhandari et al., 2020; XLA's
// weight-update sharding, Xu et al., 2020): the state that a step keeps lies in parts over the devices that share the
// batch.
//
// The batch is split already. From a variable's stored form its splitting spreads along everything tied to it (its
// optimizer slots, its update, other forms of it), up to the first instructions that the batch goes through: there it
// is gathered before use, and a gradient, made whole, is kept in parts. So the computation only changes in who updates
// what.
//
//   kOptimizer  (ZeRO 1 and 2, one thing in a step that does not accumulate gradients) slots and gradients in parts;
//               the variable itself whole: its update reads it in parts, and its new value is gathered once per step
//   kFull       (ZeRO 3, FSDP) variables, too: gathered before use, in a loop over layers in every turn
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/sharding/model.h"

namespace automap::partition {

enum class Zero : std::uint8_t { kOff = 0, kOptimizer = 2, kFull = 3 };

struct StoredParts {
  std::vector<sharding::TensorDim> split;  // to be split besides the batch: one of each variable's tensors
  std::vector<std::int32_t> stored;        // inputs, as indices into model.inputs()
  std::vector<std::pair<std::int32_t, std::string>> whole;  // the others, and why
};

// A splitting by the other axis of a mesh: dimension (-1: whole) and devices.
struct TakenDim {
  int dim = -1;
  int devices = 1;
};

// `model` is linked with the gathers that splitting `batch` needs, and is left with those of the stored parts besides.
// `taken`: by index into model.inputs(), the dimension that another axis splits; empty: none. The largest dimension
// that can be split is, one that the other axis has left alone where there is one.
StoredParts store_in_parts(sharding::ShardingModel* model, const std::vector<sharding::TensorDim>& batch, Zero level,
                           const std::vector<TakenDim>& taken = {});

// The same for a choice that somebody else made: the inputs `wanted`, each along its dimension, are stored so, and
// gathered where the dimensions of `split` go through (which must be possible as the model is linked). Inputs without a
// place are listed in `whole`.
StoredParts gather_before_use(sharding::ShardingModel* model, const std::vector<sharding::TensorDim>& split,
                              const std::vector<sharding::TensorDim>& wanted);

}  // namespace automap::partition
