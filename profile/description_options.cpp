#include "profile/description_options.h"

namespace automap::profile {

void declare_description(OptionTable& table, architecture::StepOptions* step) {
  table
      .add(&step->sequence, "sequence",
           "of a config.json or a published model: positions of a sample; Megatron's --seq-length")
      .range(0, 1 << 24)
      .metavar("S")
      .shown_default("as the model says, up to 8192");
  table.add(&step->dtype, "dtype", "of the same: the type of products; weights and the optimizer's state are f32")
      .no_file()
      .metavar("f32|bf16|f16")
      .shown_default("as the model says");
  table.add(&step->optimizer, "model-optimizer", "of the same: adamw, adam, or sgd (with momentum)")
      .no_file()
      .metavar("adamw|adam|sgd")
      .shown_default("adamw")
      .advanced();
  table
      .add(&step->remat, "remat",
           "of the same: what the step itself computes again in its backward pass (--recompute asks the planner)")
      .no_file()
      .metavar("none|layer|selective")
      .shown_default("none")
      .advanced();
  table
      .add(&step->samples, "model-samples",
           "of the same: samples of the module that is made, which tells nothing of the batch")
      .range(0, 65536)
      .metavar("N")
      .shown_default("16")
      .advanced();
}

}  // namespace automap::profile
