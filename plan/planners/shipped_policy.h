// The trained policies that are compiled into the program: every file models/pretrained/*.policy of the source tree. So
// planning needs no files beside the executable, and an installed copy can be moved anywhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/pipeline/baselines.h"
#include "models/policy.h"

namespace automap::planners {

// The names of the files, e.g. "pipeline.policy". Empty: none was there when this was built.
std::vector<std::string> shipped_policy_names();

// The policy trained for the objective if there is one, else "pipeline.policy"; nullptr when nothing is compiled in.
// Parsed once. Thread-safe.
std::shared_ptr<const models::Policy> shipped_policy(pipeline::Objective objective);

// --policy FILE. Throws Error(kIo) when it cannot be read, Error(kData) naming file and field when it is no policy, is
// damaged, or is one that this planner cannot run (another family, other features).
std::shared_ptr<const models::Policy> load_policy(const std::string& path);

// Throws Error(kData) naming `source` unless the planner can use the network: it must score after-states of this
// program's features.
void check_plans(const models::Policy& policy, const std::string& source);

namespace internal {
struct ShippedFile {
  const char* name;
  const unsigned char* data;
  std::size_t size;
};
// Made by cmake/shipped_policy.cmake. Ends with a name that is null.
extern const ShippedFile kShippedFiles[];
}  // namespace internal

}  // namespace automap::planners
