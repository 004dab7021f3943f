// The devices known by name, and the file form of others.
#include "common/machine/device.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/json_reader.h"
#include "common/base/json_text.h"

namespace automap::machine {
namespace {

constexpr const char* kSchemaName = "automap.device/";
constexpr int kSchemaVersion = 1;
constexpr std::uint64_t kMaxFileBytes = 16 << 20;

// Dense peaks and memory: NVIDIA data sheets of the SXM parts (V100 2017, A100 2020/21, H100 2022, H200 2023, B200
// 2024). Cores: streaming multiprocessors. Links: the bus bandwidth a ring of eight reaches; V100 as in Auto-MAP's
// Table 2, A100 and later about 80-90 % of the one-way NVLink rate (300, 450, 450, 900 GB/s), as public NCCL tests
// show.
const std::vector<DeviceModel>& table() {
  static const std::vector<DeviceModel> devices = [] {
    const auto make = [](const char* name, std::map<std::string, double> peaks, double gbytes_per_s, double gib,
                         double link, int cores) {
      DeviceModel device;
      device.name = name;
      device.peak_tflops = std::move(peaks);
      device.memory_gbytes_per_s = gbytes_per_s;
      device.memory_gib = gib;
      device.link_gbytes_per_s = link;
      device.cores = cores;
      return device;
    };
    const std::map<std::string, double> volta = {{"f64", 7.8}, {"f32", 15.7}, {"f16", 125}};
    const std::map<std::string, double> ampere = {{"f64", 19.5}, {"f32", 19.5}, {"tf32", 156},
                                                  {"f16", 312},  {"bf16", 312}, {"i8", 624}};
    const std::map<std::string, double> hopper = {{"f64", 67},   {"f32", 67},  {"tf32", 494.5}, {"f16", 989},
                                                  {"bf16", 989}, {"f8", 1979}, {"i8", 1979}};
    const std::map<std::string, double> blackwell = {{"f64", 37},    {"f32", 75},  {"tf32", 1125}, {"f16", 2250},
                                                     {"bf16", 2250}, {"f8", 4500}, {"i8", 4500}};
    return std::vector<DeviceModel>{
        make("v100-16gb", volta, 900, 16, 130, 80),    make("v100-32gb", volta, 900, 32, 130, 80),
        make("a100-40gb", ampere, 1555, 40, 240, 108), make("a100-80gb", ampere, 2039, 80, 240, 108),
        make("h100", hopper, 3350, 80, 390, 132),      make("h200", hopper, 4800, 140, 390, 132),
        make("b200", blackwell, 7700, 178, 780, 148),
    };
  }();
  return devices;
}

// Other names of devices in the table, as clusters and data sheets call them.
constexpr std::pair<const char*, const char*> kAliases[] = {
    {"h100-80gb", "h100"}, {"h200-141gb", "h200"}, {"b200-180gb", "b200"}};

}  // namespace

double DeviceModel::matmul_tflops(std::string_view type) const {
  const auto at = [&](std::string_view key) {
    const auto found = peak_tflops.find(std::string(key));
    return found == peak_tflops.end() ? 0.0 : found->second;
  };
  if (const double peak = at(type); peak > 0) return peak;
  const double f32 = at("f32");
  if (type == "f64") return f32 / 32;
  if (type == "f8" || type == "i8") {
    for (const char* wider : {"bf16", "f16"}) {
      if (const double peak = at(wider); peak > 0) return peak;
    }
  }
  return f32;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceModel& device : table()) names.push_back(device.name);
  return names;
}

std::vector<std::string> device_names_and_aliases() {
  std::vector<std::string> names = device_names();
  for (const auto& [alias, name] : kAliases) names.emplace_back(alias);
  return names;
}

std::optional<DeviceModel> find_device(const std::string& name) {
  std::string known = name;
  for (const auto& [alias, meant] : kAliases) {
    if (name == alias) known = meant;
  }
  for (const DeviceModel& device : table()) {
    if (device.name == known) return device;
  }
  return std::nullopt;
}

DeviceModel load_device(const std::string& name_or_path) {
  if (auto device = find_device(name_or_path)) return *std::move(device);
  std::error_code ignored;
  if (!std::filesystem::exists(name_or_path, ignored)) {
    throw Error(ErrorKind::kConfig, "unknown device '" + name_or_path + "', and no file of that name",
                "known devices: " + join(device_names()) + "; or give a device file (docs/device-model.md)");
  }
  return parse_device(read_file(name_or_path, kMaxFileBytes), name_or_path);
}

DeviceModel parse_device(std::string_view json_text, const std::string& source) {
  const JsonSource from{source, ErrorKind::kConfig, "docs/device-model.md describes device files"};
  const nlohmann::ordered_json document = parse_json(json_text, from);
  const JsonValue root(document, from);
  root.schema(kSchemaName, kSchemaVersion, "a device file", kSchemaVersion);
  root.only_keys({"schema", "name", "peak_tflops", "memory_gbytes_per_s", "memory_gib", "launch_us",
                  "link_gbytes_per_s", "memory_efficiency", "matmul_efficiency", "cores"});
  constexpr double kHuge = 1e12;
  const auto below_huge = [&](const JsonValue& value, const std::string& unit) {
    if (value.positive(unit) > kHuge) value.wrong("a number of " + unit + " of at most 1e12");
    return value.json().get<double>();
  };
  DeviceModel device;
  device.name = root.at("name").text();
  if (device.name.empty()) root.at("name").wrong("a name");
  const JsonValue peaks = root.at("peak_tflops");
  peaks.only_keys({"f64", "f32", "tf32", "f16", "bf16", "f8", "i8"});
  peaks.at("f32");
  for (const auto& [type, peak] : peaks.members()) device.peak_tflops[type] = below_huge(peak, "TFLOP/s");
  device.memory_gbytes_per_s = below_huge(root.at("memory_gbytes_per_s"), "GB/s");
  device.memory_gib = below_huge(root.at("memory_gib"), "GiB");
  if (root.has("launch_us")) {
    device.launch_us = root.at("launch_us").number(0, 1e9, "a number of microseconds from 0 to 1e9");
  }
  if (root.has("link_gbytes_per_s")) {
    device.link_gbytes_per_s = root.at("link_gbytes_per_s").number(0, kHuge, "a number of GB/s from 0 to 1e12");
  }
  const auto share = [&](const char* key, double* value) {
    if (!root.has(key)) return;
    *value = root.at(key).number(0, 1, "a share above 0, of at most 1");
    if (*value == 0) root.at(key).wrong("a share above 0, of at most 1");
  };
  share("memory_efficiency", &device.memory_efficiency);
  share("matmul_efficiency", &device.matmul_efficiency);
  if (root.has("cores")) device.cores = static_cast<int>(root.at("cores").integer(1, 1000000));
  return device;
}

std::string to_json_text(const DeviceModel& device) {
  nlohmann::ordered_json document;
  document["schema"] = kSchemaName + std::to_string(kSchemaVersion);
  document["name"] = device.name;
  document["peak_tflops"] = device.peak_tflops;
  document["memory_gbytes_per_s"] = device.memory_gbytes_per_s;
  document["memory_gib"] = device.memory_gib;
  document["launch_us"] = device.launch_us;
  document["link_gbytes_per_s"] = device.link_gbytes_per_s;
  document["memory_efficiency"] = device.memory_efficiency;
  document["matmul_efficiency"] = device.matmul_efficiency;
  document["cores"] = device.cores;
  return json_text(document);
}

}  // namespace automap::machine
