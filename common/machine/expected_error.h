// How far estimates are expected to be from what would be measured, for reports and for asking what a plan is worth
// when they are wrong. Sources: docs/device-model-measured.md; what was measured on nothing is an assumption.
#pragma once

#include <string>

namespace automap::machine {

// From estimate / (1 + less) to estimate * (1 + more) lie four of five measurements, or are assumed to.
struct ExpectedError {
  double less = 0, more = 0;
  std::string basis;  // what it was measured on, "layers of transformers on a V100"; empty: an assumption

  double larger() const { return less > more ? less : more; }
};

// Of the compute of a stage, estimated for `device` (a name or alias of the device table, or another one), in a module
// whose compute is mostly `work`: an operation and the type it is computed in, "matmul f16", "convolution f32" (f32
// means tf32 where there are units for it). Empty: not known, the largest of the device's.
ExpectedError compute_error(const std::string& device, const std::string& work);
// Of a transfer or a collective: as measured on such links, or by ring formulas.
ExpectedError link_error(bool measured);
// Of activations and workspace.
ExpectedError memory_error();

}  // namespace automap::machine
