// --software states the costs of a step that depend on the software that runs it, not on the model and the devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "infer/options.h"
#include "infer/training_state.h"
#include "plan/planners/frameworks.h"

namespace automap::infer {

struct Software {
  const char* name;
  double host_us;                  // between two launches by the host, for a kernel as it is counted here
  double elementwise_passes;       // DeviceModel
  const char* gradient_sync;       // as --gradient-sync
  const char* sync_basis;          // for people: whose that is
  TrainingState state, state_f16;  // of bf16 and of f16
};

// "auto", "any", which changes nothing, and the others.
std::vector<std::string> software_choices();
// Resolves "auto" to the software of the framework that is planned for. Null: "any", also "auto" without a framework.
const Software* find_software(const std::string& name, const planners::Framework& framework);

// True if kernels take other times in this software than in a compiled step.
bool has_times(const Software& software);

// The software that runs the step of a question. Null: any, which is a compiled step.
struct RunsIn {
  const Software* software = nullptr;
  bool timed = false;  // the devices have its times
};
// Sets options->input.software, so that the training state of `software` (null: the module's) is kept, unless
// --state-factor says otherwise.
void keep_state_of(const Software* software, InferOptions* options);
// Sets that, and the cluster as plans are made for it, with options->input.device where one model stands for all: the
// devices that --device names, else the cluster's own with the software's times; servers told apart by their links.
// Times that cannot be had (`profile`: the model is one already; devices not of the table, or not at their own speed)
// are an error, Error(kUsage), where somebody has `named` the software, else a warning.
RunsIn run_in(const Software* software, bool named, bool profile, InferOptions* options, machine::Cluster* cluster);

// "megatron", or "a compiled step", whose times all others have.
std::string whose_times(const RunsIn& runs_in);
// "software megatron: 80 us of host time for a kernel, gradients summed behind the last backward pass (...)", of what
// counts. `device`: that of the times, where it is one of its own.
std::string software_text(const Software& software, const std::optional<machine::DeviceModel>& device,
                          const OptionTable& table);
// The state of a parameter, where it differs from the module's.
std::string state_text(const Software& software, const TrainingState& state);
// "80 us of host time a kernel, as megatron takes (...)": for the head of a report; empty: the times are those of a
// compiled step. `timed`: RunsIn's.
std::string assumed_text(const Software& software, bool timed, const std::optional<machine::DeviceModel>& device);

}  // namespace automap::infer
