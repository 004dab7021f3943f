// The expected error of estimates against measurements, for reports and for robustness of plans against such errors.
// Sources: docs/results/device-model.md; errors without any measurement are assumptions.
#pragma once

#include <string>

namespace automap::planners {

// From estimate / (1 + less) to estimate * (1 + more) lie four of five measurements, or are assumed to.
struct ExpectedError {
  double less = 0, more = 0;
  std::string basis;  // what it was measured on, "layers of transformers on a V100"; empty: an assumption

  double larger() const { return less > more ? less : more; }
};

// The error of a stage's compute, estimated for `device` (a name or alias of the device table, or another one), in a
// module whose compute is mostly `work`: an operation and the type it is computed in, "matmul f16", "convolution f32"
// (f32 means tf32 where there are units for it). Empty `work`: unknown, the largest error of the device.
ExpectedError compute_error(const std::string& device, const std::string& work);
// The error of a transfer or a collective: measured on such links, or by ring formulas.
ExpectedError link_error(bool measured);
// The error of activations and workspace.
ExpectedError memory_error();

}  // namespace automap::planners
