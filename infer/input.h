// What automap-infer plans: a profile file as it is, or the profile of a model's HLO.
#pragma once

#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/profile.h"

namespace automap::infer {

struct PlanInput {
  pipeline::Profile profile;
  std::string form;                  // "HLO text", "HDF5 profile", ... for people
  std::string sha256;                // of the bytes as given; empty when not asked for
  std::vector<std::string> notices;  // what was assumed, one sentence each
};

struct InputOptions {
  std::string path;       // "-" = standard input
  std::string variables;  // --variables FILE; empty: found automatically. HLO only
  // Reference device of an HLO input: a name or a file. Empty: the first device of the cluster.
  std::string device;
  std::string batch_inputs;        // --batch-input NAME[,NAME...]; empty: found automatically. HLO only
  std::string attention = "auto";  // --attention (profile/fused_chains.h). HLO only
  // Whether the hash of a profile's bytes is wanted (of a model's it is always there). A tenth of a one-shot plan.
  bool sha256 = true;
};

// Throws Error(kIo) when it cannot be read, Error(kData) when it is neither HLO nor a profile, Error(kUsage) when
// --variables, --device, --batch-input or --attention is given for a profile.
PlanInput read_input(const InputOptions& options, const machine::Cluster& cluster);

}  // namespace automap::infer
