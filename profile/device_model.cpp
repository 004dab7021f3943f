// The devices known by name, and the file form of others.
#include "profile/device_model.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_text.h"

namespace automap::profile {
namespace {

using Json = nlohmann::json;

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

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw Error(ErrorKind::kConfig, source + ": " + what, "docs/device-model.md describes device files");
}

double number(const Json& value, const std::string& key, const std::string& source, double at_most,
              bool zero_allowed = false) {
  const double result = value.is_number() ? value.get<double>() : std::nan("");
  if (!(result > 0 || (zero_allowed && result == 0)) || result > at_most) {
    fail(source, "key " + key + ": found " + value.dump() + ", expected a number " +
                     (zero_allowed ? "of at least 0" : "above 0") + " and at most " + Json(at_most).dump());
  }
  return result;
}

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

std::optional<DeviceModel> find_device(const std::string& name) {
  std::string known = name;
  if (name == "h100-80gb") known = "h100";
  if (name == "h200-141gb") known = "h200";
  if (name == "b200-180gb") known = "b200";
  for (const DeviceModel& device : table()) {
    if (device.name == known) return device;
  }
  return std::nullopt;
}

DeviceModel load_device(const std::string& name_or_path) {
  if (auto device = find_device(name_or_path)) return *std::move(device);
  std::error_code ignored;
  if (!std::filesystem::exists(name_or_path, ignored)) {
    std::string names;
    for (const std::string& name : device_names()) names += (names.empty() ? "" : ", ") + name;
    throw Error(ErrorKind::kConfig, "unknown device '" + name_or_path + "', and no file of that name",
                "known devices: " + names + "; or give a device file (docs/device-model.md)");
  }
  return parse_device(read_file(name_or_path, kMaxFileBytes), name_or_path);
}

DeviceModel parse_device(std::string_view json_text, const std::string& source) {
  // A hostile file must not exhaust the stack: this form nests two levels.
  int depth = 0, deepest = 0;
  for (char c : json_text) {
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  if (deepest > 64) fail(source, "nested " + std::to_string(deepest) + " levels deep, expected 2");
  Json document;
  try {
    document = Json::parse(json_text);
  } catch (const Json::exception& error) {
    fail(source, std::string("not JSON: ") + error.what());
  }
  if (!document.is_object()) fail(source, "found " + std::string(document.type_name()) + ", expected a JSON object");
  if (document.contains("schema")) {
    const Json& schema = document["schema"];
    const std::string expected = kSchemaName + std::to_string(kSchemaVersion);
    if (schema != expected) {
      const bool ours = schema.is_string() && schema.get<std::string>().rfind(kSchemaName, 0) == 0;
      fail(source, "schema " + schema.dump() +
                       (ours ? " is newer than this program, which reads \"" : ", expected \"") + expected + "\"");
    }
  }
  static const std::set<std::string> known = {"schema",
                                              "name",
                                              "peak_tflops",
                                              "memory_gbytes_per_s",
                                              "memory_gib",
                                              "launch_us",
                                              "link_gbytes_per_s",
                                              "memory_efficiency",
                                              "matmul_efficiency",
                                              "cores"};
  for (const auto& item : document.items()) {
    if (known.count(item.key()) == 0) {
      std::string names;
      for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
      fail(source, "unknown key " + item.key() + ", expected one of " + names);
    }
  }
  for (const char* key : {"name", "peak_tflops", "memory_gbytes_per_s", "memory_gib"}) {
    if (!document.contains(key)) fail(source, std::string("key ") + key + " is missing");
  }
  constexpr double kHuge = 1e12;
  DeviceModel device;
  if (!document["name"].is_string() || document["name"].get<std::string>().empty()) {
    fail(source, "key name: found " + document["name"].dump() + ", expected a name");
  }
  device.name = document["name"].get<std::string>();
  const Json& peaks = document["peak_tflops"];
  if (!peaks.is_object() || !peaks.contains("f32")) {
    fail(source, "key peak_tflops: expected an object with at least f32");
  }
  static const std::set<std::string> types = {"f64", "f32", "tf32", "f16", "bf16", "f8", "i8"};
  for (const auto& item : peaks.items()) {
    if (types.count(item.key()) == 0) {
      fail(source, "key peak_tflops." + item.key() + ": expected f64, f32, tf32, f16, bf16, f8 or i8");
    }
    device.peak_tflops[item.key()] = number(item.value(), "peak_tflops." + item.key(), source, kHuge);
  }
  device.memory_gbytes_per_s = number(document["memory_gbytes_per_s"], "memory_gbytes_per_s", source, kHuge);
  device.memory_gib = number(document["memory_gib"], "memory_gib", source, kHuge);
  const auto optional = [&](const char* key, double& value, double at_most, bool zero_allowed = false) {
    if (document.contains(key)) value = number(document[key], key, source, at_most, zero_allowed);
  };
  optional("launch_us", device.launch_us, 1e9, true);
  optional("link_gbytes_per_s", device.link_gbytes_per_s, kHuge, true);
  optional("memory_efficiency", device.memory_efficiency, 1);
  optional("matmul_efficiency", device.matmul_efficiency, 1);
  double cores = device.cores;
  optional("cores", cores, 1e6);
  if (cores != std::floor(cores)) fail(source, "key cores: found " + document["cores"].dump() + ", expected a count");
  device.cores = static_cast<int>(cores);
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

}  // namespace automap::profile
