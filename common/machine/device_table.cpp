// Dense peaks and memory: NVIDIA data sheets of the SXM parts (V100 2017, A100 2020/21, H100 2022, H200 2023, B200
// 2024). Cores: streaming multiprocessors. Links: the bus bandwidth a ring of eight reaches; V100 as in Auto-MAP's
// Table 2, A100 and later about 80-90 % of the one-way NVLink rate (300, 450, 450, 900 GB/s), as public NCCL tests
// show. What kernels reach of the peaks: one function per generation, with the source of every constant and what it is
// off by on the half of the measurements that it was not fitted on (docs/device-model.md). A constant without a source
// is an assumption, and device_constants() says so.
#include "common/machine/device_table.h"

#include <map>
#include <string>
#include <utility>

namespace automap::machine {
namespace {

// Measured operators of transformers (f16) and wide ResNets (f32) on one V100-SXM2-32GB under PyTorch 1.12 (Aceso,
// microsoft/SuperScaler); fitted on the half of the rows that scripts/device_model/aceso.py names.
constexpr const char* kAceso = "operators measured on a V100 (Aceso), fitted on half";
constexpr const char* kWideResNets =
    "wide ResNets measured on a V100 (Aceso), fitted on half, and published f32 step times, all used";
// 375 products per device and type, 256^3 to 4x4096^3, that XLA ships; fitted on every other one.
constexpr const char* kProducts = "matrix products measured for XLA, fitted on half";
constexpr const char* kUnderLoad = "the shares of its peaks were measured under load";
constexpr const char* kPower =
    "the clock that 700 W leave long products, some 1.4 of 1.98 GHz; published steps of MPT agree";
// Measured steps of GPT models under Megatron (vTrain), fitted on those of 12 layers; the ones of 20 are the other
// half.
constexpr const char* kSteps = "training steps measured on A100s (vTrain), fitted on half";
// The remaining constants of an A100 are chosen from NVIDIA's published throughputs of BERT-Large and ResNet-50 (TF32);
// all of them were used, none kept back.
constexpr const char* kPublished = "published step times of BERT-Large and ResNet-50";

// cuDNN's convolutions on vector units, measured on Volta and assumed for its successors.
constexpr double kLikeVolta = 0.9;

void set(DeviceModel* device, const char* name, double DeviceModel::*member, double value, const char* source) {
  device->*member = value;
  device->sources[name] = source;
}

void set_matmul(DeviceModel* device, const std::string& type, MatmulEfficiency efficiency, const char* source) {
  device->matmul[type] = efficiency;
  device->sources["matmul." + type] = source;
}

DeviceModel volta() {
  DeviceModel device;
  device.peak_tflops = {{"f64", 7.8}, {"f32", 15.7}, {"f16", 125}};
  device.memory_gbytes_per_s = 900;
  device.link_gbytes_per_s = 130;
  device.cores = 80;
  set(&device, "memory_efficiency", &DeviceModel::memory_efficiency, 0.905, kAceso);
  set(&device, "gather_efficiency", &DeviceModel::gather_efficiency, 0.2, kAceso);
  set(&device, "scatter_efficiency", &DeviceModel::scatter_efficiency, 0.1, kAceso);
  set(&device, "vector_efficiency", &DeviceModel::vector_efficiency, 0.65, kAceso);
  set(&device, "matmul_overlap", &DeviceModel::matmul_overlap, 0.36, kAceso);
  set(&device, "vector_convolution_efficiency", &DeviceModel::vector_convolution_efficiency, kLikeVolta, kAceso);
  set(&device, "sustained_clock", &DeviceModel::sustained_clock, 1, kUnderLoad);
  set_matmul(&device, "f16", {0.78, 0.1, 45}, kAceso);
  // The wide layers measured say little about half_tiles: of equal fits, the one nearest to published f32 steps is
  // taken.
  set_matmul(&device, "f32", {0.92, 0.25, 64}, kWideResNets);
  return device;
}

DeviceModel ampere(double gbytes_per_s) {
  DeviceModel device;
  device.peak_tflops = {{"f64", 19.5}, {"f32", 19.5}, {"tf32", 156}, {"f16", 312}, {"bf16", 312}, {"i8", 624}};
  device.memory_gbytes_per_s = gbytes_per_s;
  device.link_gbytes_per_s = 240;
  device.cores = 108;
  set(&device, "convolution_efficiency", &DeviceModel::convolution_efficiency, 0.6, kPublished);
  set(&device, "sustained_clock", &DeviceModel::sustained_clock, 1, kUnderLoad);
  set_matmul(&device, "tf32", {0.5, 0.2, 128}, kPublished);
  for (const char* type : {"bf16", "f16"}) set_matmul(&device, type, {0.75, 0.2, 128}, kSteps);
  device.vector_convolution_efficiency = kLikeVolta;
  return device;
}

DeviceModel hopper(double gbytes_per_s) {
  DeviceModel device;
  device.peak_tflops = {{"f64", 67},   {"f32", 67},  {"tf32", 494.5}, {"f16", 989},
                        {"bf16", 989}, {"f8", 1979}, {"i8", 1979}};
  device.memory_gbytes_per_s = gbytes_per_s;
  device.link_gbytes_per_s = 390;
  device.cores = 132;
  // Median error on the other half 2.7 % and 10.5 %. The f8 rows of the table lie above the peak and are not used.
  for (const char* type : {"bf16", "f16"}) set_matmul(&device, type, {0.95, 0.193, 185}, kProducts);
  set_matmul(&device, "tf32", {0.76, 0.336, 237}, kProducts);
  // The products were timed one by one, at the highest clock (1.98 GHz); at 700 W steps of a model keep some 1.4 GHz.
  // Published steps of four decoders take 1.1 to 1.4 times as long with it, 1.4 to 1.8 times without.
  set(&device, "sustained_clock", &DeviceModel::sustained_clock, 0.71, kPower);
  device.vector_convolution_efficiency = kLikeVolta;
  return device;
}

DeviceModel blackwell() {
  DeviceModel device;
  device.peak_tflops = {{"f64", 37},    {"f32", 75},  {"tf32", 1125}, {"f16", 2250},
                        {"bf16", 2250}, {"f8", 4500}, {"i8", 4500}};
  device.memory_gbytes_per_s = 7700;
  device.link_gbytes_per_s = 780;
  device.cores = 148;
  // Median error on the other half 3.3 %, 5.3 % and 3.5 %.
  for (const char* type : {"bf16", "f16"}) set_matmul(&device, type, {0.805, 0.282, 293}, kProducts);
  set_matmul(&device, "tf32", {0.905, 0.387, 391}, kProducts);
  set_matmul(&device, "f8", {0.89, 0.42, 593}, kProducts);
  // As on an H100; at 1000 W it is taken to keep more of its clock. Nobody here has seen steps on one.
  device.sustained_clock = 0.8;
  device.vector_convolution_efficiency = kLikeVolta;
  return device;
}

// By their data sheets alone: dense peaks, memory, units. Every constant is an assumption.
DeviceModel by_sheet(std::map<std::string, double> peak_tflops, double gbytes_per_s, double link_gbytes_per_s,
                     int cores) {
  DeviceModel device;
  device.peak_tflops = std::move(peak_tflops);
  device.memory_gbytes_per_s = gbytes_per_s;
  device.link_gbytes_per_s = link_gbytes_per_s;
  device.cores = cores;
  device.vector_convolution_efficiency = kLikeVolta;
  return device;
}

// Peaks from the vendor's data sheet of a card, with f32 sums, in the order of the sheet: f32, tf32, 16 bits, 8 bits.
std::map<std::string, double> peaks(double f32, double tf32, double half, double f8, double i8) {
  std::map<std::string, double> all = {{"f32", f32}, {"tf32", tf32}, {"f16", half}, {"bf16", half}, {"i8", i8}};
  if (f8 > 0) all["f8"] = f8;
  return all;
}

DeviceModel named(const char* name, double memory_gib, DeviceModel device) {
  device.name = name;
  device.memory_gib = memory_gib;
  return device;
}

}  // namespace

const std::vector<DeviceModel>& device_table() {
  static const std::vector<DeviceModel> devices = {
      named("v100-16gb", 16, volta()),
      named("v100-32gb", 32, volta()),
      named("a100-40gb", 40, ampere(1555)),
      named("a100-80gb", 80, ampere(2039)),
      named("h100", 80, hopper(3350)),
      named("h200", 140, hopper(4800)),
      named("b200", 178, blackwell()),
      // NVIDIA A10 (2021), L4 and L40S (2023), GeForce RTX 4090 (2022): PCIe 4.0 x16. The memory that a card reports.
      named("a10", 22, by_sheet(peaks(31.2, 62.5, 125, 0, 250), 600, 25, 72)),
      named("l4", 22, by_sheet(peaks(30.3, 60.5, 121, 242.5, 242.5), 300, 25, 58)),
      named("l40s", 44, by_sheet(peaks(91.6, 183, 362, 733, 733), 864, 25, 142)),
      named("rtx4090", 23, by_sheet(peaks(82.6, 82.6, 165.2, 330.3, 660.6), 1008, 25, 128)),
      // NVIDIA H20 (2023), GB200 (one GPU, 2024); AMD MI300X (2023).
      named("h20", 95, by_sheet(peaks(44, 74, 148, 296, 296), 4000, 390, 78)),
      named("gb200", 184, by_sheet(peaks(80, 1250, 2500, 5000, 5000), 8000, 780, 148)),
      named("mi300x", 191, by_sheet(peaks(163.4, 653.7, 1307.4, 2614.9, 2614.9), 5300, 380, 304)),
  };
  return devices;
}

}  // namespace automap::machine
