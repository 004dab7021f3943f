// Makes a profile from HLO bytes, for automap-profile and automap-infer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/architecture/model.h"
#include "common/hlo/hlo_reader.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "profile/profiler.h"

namespace automap::profile {

// A module, and where it comes from: HLO, or a description of which its step was made (common/architecture/read.h).
struct ReadModule {
  hlo::HloModule module;
  std::string form;   // "HLO text", "config.json"
  std::string taken;  // of a description: what it is and what was assumed; empty: HLO
  bool described() const { return !taken.empty(); }
};
// `bytes` are expanded already; the hash is left to the caller. Throws as hlo::read_hlo_as and as
// architecture::build_step, and Error(kUsage) for options of a step that HLO has already.
ReadModule read_module(std::string bytes, const std::string& source, const architecture::StepOptions& step);

// The model at `path` ("-" = standard input) in any form, or the published one of that name. Throws as read_module, and
// Error(kData) with `hint` for a profile, which is told from a model. The hash is of the file as given; what is no
// model is refused before it is hashed. What is assumed of a description is logged.
ReadModule load_model(const std::string& path, const std::string& hint, const architecture::StepOptions& step = {});

// Throws Error(kData) for what XLA's partitioner has left (graph/partitioned.h), and for a step that its user has
// divided by hand (graph/shard_map_step.h): one device's part is no model to plan. With `as_is` it is planned as it
// stands; std::nullopt is of programs that have no --as-is. Where the user has divided nothing but the samples, one
// device's part is the model: `graph` becomes that part. What people have to be told of either; empty for a whole
// model.
std::string require_whole_model(graph::Graph* graph, const std::string& source, std::optional<bool> as_is);
// Both: a model to plan. What people have to be told is logged.
ReadModule load_whole_model(const std::string& path, const std::string& hint, std::optional<bool> as_is,
                            const architecture::StepOptions& step = {});

// The device that the times of a model on `cluster` are for: what the user names, else the cluster's first device of
// relative speed 1, by the figures of the cluster when the table does not know it.
machine::DeviceModel reference_device(const std::string& asked, const machine::Cluster& cluster);

// The asked device first, then the cluster's other devices that a table knows: times are estimated on these.
std::vector<machine::DeviceModel> cluster_devices(const std::optional<machine::DeviceModel>& asked,
                                                  const machine::Cluster& cluster);

// "1,2,4" -> 1 2 4, ascending and without repeats. Throws Error(kUsage) naming `option` for anything but whole numbers
// from 1 to 1 048 576, or more than 64 of them.
std::vector<std::int64_t> parse_samples(const std::string& text, const std::string& option);

struct ProfileRequest {
  std::string device = "v100-16gb";   // a known name or a file (common/machine/device.h)
  std::string variables;              // path of a variable list (graph/variables.h); empty: find them
  std::string model;                  // name for people; empty: from the source's name
  std::string batch_inputs;           // names of the inputs that lead with the samples, commas between; empty: found
  std::vector<std::int64_t> samples;  // where to estimate times; empty: default_samples (profiler.h)
  AttentionMode attention = AttentionMode::kAuto;
  // Other devices to estimate times on, as `device`; the same one again counts once.
  std::vector<std::string> more_devices;
  std::vector<WidthParts> widths;  // as ProfilerOptions::widths
  bool whole_loops = false;        // the same
  bool places = false;             // the same
};

// request.device and request.more_devices, each once.
std::vector<machine::DeviceModel> named_devices(const ProfileRequest& request);

// `module` as load_hlo or read_hlo returned it; `source` names it in errors.
// Throws Error(kData, kConfig, kIo) as the reader, the device table and build_profile do.
ModelProfile profile_module(const hlo::HloModule& module, const std::string& source, const ProfileRequest& request);
// The same on devices that need stand in no table, the first the one of c_ms: request.device and more_devices are not
// looked at. `devices` is not empty.
ModelProfile profile_module(const hlo::HloModule& module, const std::string& source, const ProfileRequest& request,
                            std::vector<machine::DeviceModel> devices);

// "models/bert48.hlo.gz" -> "bert48"; "<stdin>" -> the fallback.
std::string model_name(const std::string& source, const std::string& fallback);

}  // namespace automap::profile
