// Datasets for automap-inspect: their content, their integrity, and pictures.
#pragma once

#include <optional>
#include <string>

#include "inspect/describe.h"

namespace automap::inspect {

struct DatasetOptions {
  bool verify = false;  // compare every byte with the checksums and look at every row
};

struct DatasetDescription {
  Description description;
  bool intact = true;  // with verify: nothing wrong was found
};

// Families and ranges come from a sample of at most 20 000 rows, evenly spread. A dataset that is not complete is
// described from its manifest alone. Throws what DatasetReader throws.
DatasetDescription describe_dataset(const std::string& folder, const DatasetOptions& options = {});

// A picture (SVG): rows of several families as curves of C, A and W, and how the scales of A and W against C are
// distributed. Throws what DatasetReader throws.
std::string plot_dataset(const std::string& folder);

}  // namespace automap::inspect
