// The devices that models are trained on: what their data sheets say, and the file form of others (schema
// automap.device/1, docs/device-model.md). How long kernels take on them: profile/time_estimator.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automap::machine {

struct DeviceModel {
  std::string name;
  // Peak dense throughput in TFLOP/s (1e12) by type: "f32" (vector units, required), "tf32", "f16", "bf16", "f8", "i8"
  // (matrix units), "f64".
  std::map<std::string, double> peak_tflops;
  double memory_gbytes_per_s = 0;   // peak, GB = 1e9 bytes
  double memory_gib = 0;            // capacity, GiB = 2^30 bytes
  double launch_us = 2.5;           // what one kernel adds in a stream of kernels
  double link_gbytes_per_s = 0;     // bus bandwidth of one device to its peers; 0: collectives count as free
  double memory_efficiency = 0.85;  // share of the peak that a streaming kernel reaches, in (0, 1]
  double matmul_efficiency = 0.9;   // share of the peak that an endless matrix product reaches, in (0, 1]
  int cores = 1;                    // SMs: a quarter as many output tiles of 128x128 halve the efficiency

  // TFLOP/s of a matrix product in `type`; an absent type falls back: f8, i8 -> bf16 -> f16 -> f32; bf16, f16, tf32 ->
  // f32; f64 -> f32 / 32.
  double matmul_tflops(std::string_view type) const;
  // Libraries have attention as one kernel for f16 and bf16 on devices with matrix units for bf16 (A100 and later).
  bool has_fused_attention() const { return peak_tflops.count("bf16") != 0; }
};

// "v100-16gb", "v100-32gb", "a100-40gb", "a100-80gb", "h100", "h200", "b200": the names in profiles.
std::vector<std::string> device_names();
// The same and the names that mean one of them ("h100-80gb", "h200-141gb", "b200-180gb").
std::vector<std::string> device_names_and_aliases();
// A device of the table by name or alias.
std::optional<DeviceModel> find_device(const std::string& name);
// A name or alias of the table, or a path to a JSON file. Throws Error(kConfig) that lists the known names when it is
// neither, or names the key and what was expected when the file is wrong.
DeviceModel load_device(const std::string& name_or_path);
// The file form. Throws Error(kConfig) naming `source`.
DeviceModel parse_device(std::string_view json_text, const std::string& source);
// parse_device(to_json_text(d)) == d.
std::string to_json_text(const DeviceModel& device);

}  // namespace automap::machine
