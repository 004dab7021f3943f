// An analytic estimate of how long HLO instructions take on one accelerator: a roofline with overlap, matmul
// efficiency that depends on the shape, and element-wise chains assumed fused. docs/device-model.md has the formulas.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/graph.h"
#include "profile/instruction_times.h"

namespace automap::profile {

struct DeviceModel {
  std::string name;
  // Peak dense throughput in TFLOP/s (1e12) by type: "f64", "f32" (vector units, required), "tf32", "f16", "bf16",
  // "f8", "i8". A type that is absent falls back to the next wider one: f8 -> bf16 -> f16's absence is f32;
  // tf32 -> f32; f64 -> f32 / 32.
  std::map<std::string, double> peak_tflops;
  double memory_gbytes_per_s = 0;  // peak, GB = 1e9 bytes
  double memory_gib = 0;           // capacity, GiB = 2^30 bytes
  double launch_us = 2;            // fixed cost of one kernel, overlap with the previous one included
  double link_gbytes_per_s = 0;    // bus bandwidth of one device inside a server; for collectives already in a module
  double memory_efficiency = 0.85;  // share of the peak that a streaming kernel reaches
  double matmul_efficiency = 0.82;  // share of the peak that a large matrix product reaches
  int cores = 1;                    // SMs: how many output tiles a matrix product works on at once
};

// "v100-16gb", "v100-32gb", "a100-40gb", "a100-80gb", "h100", "h200", "b200".
std::vector<std::string> device_names();
// A name of the table, or a path to a JSON file (docs/device-model.md; "-" is not accepted). Throws Error(kConfig) that
// lists the known names when it is neither, or names the key and what was expected when the file is wrong.
DeviceModel load_device(const std::string& name_or_path);
// The file form. Throws Error(kConfig) naming `source`.
DeviceModel parse_device(std::string_view json_text, const std::string& source);
std::string to_json_text(const DeviceModel& device);

// Time of every instruction of the module. Never throws on a graph that a reader accepted, except Error(kData) when an
// attribute that the estimate needs is malformed (hlo_attributes.h).
InstructionTimes estimate_times(const graph::Graph& graph, const DeviceModel& device);

}  // namespace automap::profile
