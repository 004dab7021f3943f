// Families that look like models: one latent size per layer drives compute, activations and variables together, layers
// repeat a pattern of a few heavy and many light instructions, activations live for a while, and ends are heavy. Real
// profiles have these properties and independent numbers have not (docs/datagen.md, "Rows beside real profiles").
#pragma once

#include <vector>

#include "datagen/families.h"

namespace automap::datagen {

std::vector<FamilySpec> layered_families();

}  // namespace automap::datagen
