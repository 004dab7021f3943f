// Reads the input of automap-infer: a profile file as it is, or the profile of a model's HLO.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/architecture/model.h"
#include "common/hlo/hlo_reader.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/pipeline/profile.h"
#include "infer/training_state.h"
#include "plan/planners/frameworks.h"
#include "profile/measured/measured_options.h"
#include "profile/model_work.h"

namespace automap::infer {

struct PlanInput {
  pipeline::Profile profile;
  profile::ModelWork work;             // of the module as it is. HLO only
  std::string form;                    // "HLO text", "HDF5 profile", ... for people
  std::string taken;                   // of a description: what it is and what was assumed; empty: no description
  architecture::ModelSizes sizes;      // of a description
  std::string sha256;                  // of the bytes as given; empty when not asked for
  std::vector<std::string> notices;    // what was assumed, one sentence each
  std::optional<TrainingState> state;  // the software's, where it is not the module's
  // Chains that are counted as kernels of libraries: "12 attentions (12 causal), ..."; empty: none. HLO only
  std::string fused;
  bool written_attention = false;  // kept as written, though some of the devices have kernels: not all types do
  // The framework whose words the model's author knows (plan/emit/to_type.h); null: unknown, or a profile.
  const planners::Framework* made_with = nullptr;
  std::shared_ptr<const hlo::HloModule> module;  // where it was asked for; null for a profile
  bool of_module() const { return work.executed_flops > 0; }
};

struct Software;

struct InputOptions {
  std::string path;       // "-" = standard input
  std::string variables;  // --variables FILE; empty: found automatically. HLO only
  // Reference device of an HLO input. Empty: the first device of the cluster.
  std::optional<machine::DeviceModel> device;
  std::string batch_inputs;        // --batch-input NAME[,NAME...]; empty: found automatically. HLO only
  std::string attention = "auto";  // --attention (profile/fused_chains.h). HLO only
  bool attention_asked = true;     // else it is what a given plan was made with, which a profile has behind it
  // Replicas of up to so many devices of one server are considered; wider ones only if given_widths names them.
  int max_width = 8;
  std::vector<int> given_widths;           // of a plan or layout that is given (partition::WidthChoices)
  std::string sequence_parallel = "auto";  // auto or off: of those replicas (partition::PlanningRequest). HLO only
  bool sequence_parallel_asked = true;     // as attention_asked
  bool keep_shardings = false;             // a model's own shardings are given to those replicas. HLO only
  bool keep_shardings_asked = true;        // as attention_asked
  bool as_is = false;                      // one device's part of a partitioned model is planned. HLO only
  bool whole_loops = false;                // loops over layers stay one position. HLO only
  measured::MeasuredOptions measured;      // HLO only
  architecture::StepOptions step;          // of a description
  // True: a profile's bytes are hashed, which takes a tenth of a one-shot plan. A model's always are.
  bool sha256 = true;
  bool keep_module = false;
  const Software* software = nullptr;  // whose training state is kept; null: the module's
};

// Throws Error(kIo) when it cannot be read, Error(kData) when it is neither HLO nor a profile, Error(kUsage) when
// --variables, --device, --batch-input, --attention, --sequence-parallel off or --keep-shardings is given for a
// profile.
PlanInput read_input(const InputOptions& options, const machine::Cluster& cluster);
// False if read_input cannot read the same input a second time: standard input and pipes can be read once only.
bool can_be_read_again(const InputOptions& options);
// The bytes of a model's file, or of the published model of that name.
std::string read_model_bytes(const std::string& path);
// Leaves out replicas of more than so many devices.
void drop_wider(int width, pipeline::Profile* profile);
// True if the bytes, as they are or gzipped, are those of a profile.
bool is_profile(const std::string& bytes, const std::string& source);
// Reads as above, from bytes that were already read from the file.
PlanInput read_input(const InputOptions& options, const machine::Cluster& cluster, std::string bytes);

}  // namespace automap::infer
