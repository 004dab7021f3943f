// The devices that models are trained on: the figures of their data sheets, the share of those that kernels reach, and
// the file form of other devices (schema automap.device/1, docs/device-model.md). profile/time_estimator.h estimates
// the time of kernels on them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automap::machine {

// The share of a type's peak that matrix products reach:
//   share · tiles / (tiles + half_tiles · cores) · k / (k + half_length),
// tiles = results / 128², times k / 4096 for longer contractions, which are split. So a product with half_tiles tiles
// per core, or with a contracted length of half_length, reaches half of an endless one's share.
struct MatmulEfficiency {
  double share = 0.9;  // of an endless product, in (0, 1]
  double half_tiles = 0.25;
  double half_length = 128;
};

// Between two launches of a compiled step, of which no kernel takes less (DeviceModel::host_us).
constexpr double kCompiledHostUs = 3;

struct DeviceModel {
  std::string name;
  // Peak dense throughput in TFLOP/s (1e12) by type: "f32" (vector units, required), "tf32", "f16", "bf16", "f8", "i8"
  // (matrix units), "f64".
  std::map<std::string, double> peak_tflops;
  double memory_gbytes_per_s = 0;  // peak, GB = 1e9 bytes
  double memory_gib = 0;           // capacity, GiB = 2^30 bytes
  double link_gbytes_per_s = 0;    // bus bandwidth of one device to its peers; 0: collectives count as free
  int cores = 1;                   // SMs

  // Constants from measurements beyond the data sheet. Their defaults are assumptions.
  double launch_us = 2.5;           // what one kernel adds in a stream of kernels
  double host_us = 3;               // between two launches by the host, for which kernels or passes wait
  double elementwise_passes = 1;    // of elementwise kernels and reductions: what they move over what one fused kernel
                                    // moves; software that runs an operation at a time writes and reads between
                                    // them. Fusions that stand in a module are kernels as they are
  double memory_efficiency = 0.85;  // share of the peak bandwidth that a streaming kernel reaches, in (0, 1] as below
  double gather_efficiency = 0.5;   // the same of rows read (gather) or added to (scatter) at indices
  double scatter_efficiency = 0.3;
  // Whole steps keep this share of the clock that shares of peaks were measured at: single kernels on a cold device run
  // faster than the power limit lets whole steps run.
  double sustained_clock = 1;
  double vector_efficiency = 0.7;  // of the operations that vector units can issue
  double matmul_efficiency = 0.9;  // the share of types without a row in `matmul`; half_tiles and half_length
                                   // are then those of MatmulEfficiency, or 0.1 and 64 for f32 and f64
  double matmul_overlap = 0.95;    // of the shorter of computing and moving data, in matrix products; in [0, 1]
  // Convolutions against products of the same size, on matrix units and on vector units.
  double convolution_efficiency = 0.6;
  double vector_convolution_efficiency = 0.35;
  std::map<std::string, MatmulEfficiency> matmul;  // by type, as peak_tflops

  // The sources of constants, by name in device_constants(); a constant without a source is an assumption.
  std::map<std::string, std::string> sources;

  // The type on whose units products in `type` run; an absent type falls back: f8, i8 -> bf16 -> f16 -> f32; bf16, f16,
  // tf32 -> f32; f64 -> f32.
  std::string units_of(std::string_view type) const;
  // TFLOP/s of a matrix product in `type`, on units_of(type); f64 on f32 units is 32 times slower.
  double matmul_tflops(std::string_view type) const;
  // Libraries have attention as one kernel for f16 and bf16 on devices with matrix units for bf16 (A100 and later):
  // where products in bf16 are at least 1.5 times as fast as those in f32 or tf32. In the table it is twice, and where
  // bf16 is emulated (measured on a CPU, on a V100) at most once.
  bool has_fused_attention() const;
  // On units_of(type).
  MatmulEfficiency matmul_efficiency_of(std::string_view type) const;
};

// One constant of a device, for people.
struct DeviceConstant {
  std::string name;    // "memory_efficiency", "matmul.f16"
  std::string value;   // "0.85", "0.69 (half at 0.14 tiles per core, length 100)"
  std::string source;  // empty: an assumption
};
// All of a device, in a fixed order; matmul.TYPE for every type of its peaks.
std::vector<DeviceConstant> device_constants(const DeviceModel& device);
// The names of those that nobody measured.
std::vector<std::string> assumed_constants(const DeviceModel& device);

// "v100-16gb", "v100-32gb", "a100-40gb", "a100-80gb", "h100", "h200", "b200": the names in profiles.
std::vector<std::string> device_names();
// The same and the names that mean one of them ("h100-80gb", "h200-141gb", "b200-180gb").
std::vector<std::string> device_names_and_aliases();
// A device of the table by name or alias.
std::optional<DeviceModel> find_device(const std::string& name);
// Also one with changes, "h100:host_us=40", which is called so then.
std::optional<DeviceModel> find_changed_device(const std::string& name);
// A name or alias of the table, or a path to a JSON file. Throws Error(kConfig) that lists the known names when it is
// neither, or names the key and what was expected when the file is wrong.
DeviceModel load_device(const std::string& name_or_path);
// The file form. Throws Error(kConfig) naming `source`.
DeviceModel parse_device(std::string_view json_text, const std::string& source);
// parse_device(to_json_text(d)) == d.
std::string to_json_text(const DeviceModel& device);

}  // namespace automap::machine
