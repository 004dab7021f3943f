#include "common/pipeline/cluster.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"

namespace automap::pipeline {
namespace {

using Json = nlohmann::json;

constexpr const char* kSchema = "automap.cluster/1";
constexpr int kMaxJsonDepth = 16;
constexpr std::uint64_t kMaxFileBytes = 16 << 20;

// Device types known without a `devices` entry. Memory: what the driver offers, whole GiB. Peak dense tensor-core (f16,
// bf16, tf32, f8) and vector (f32) rates and memory bandwidth: NVIDIA's data sheets of the SXM parts (V100 2017, A100
// 2020/21, H100 2022, H200 2023).
const std::map<std::string, DeviceType>& known_devices() {
  static const std::map<std::string, DeviceType> devices = {
      {"v100-16gb", {16, 1, {{"f32", 15.7}, {"f16", 125}}, 900}},
      {"v100-32gb", {32, 1, {{"f32", 15.7}, {"f16", 125}}, 900}},
      {"a100-40gb", {40, 1, {{"f32", 19.5}, {"tf32", 156}, {"f16", 312}, {"bf16", 312}}, 1555}},
      {"a100-80gb", {80, 1, {{"f32", 19.5}, {"tf32", 156}, {"f16", 312}, {"bf16", 312}}, 2039}},
      {"h100-80gb", {80, 1, {{"f32", 67}, {"tf32", 495}, {"f16", 989}, {"bf16", 989}, {"f8", 1979}}, 3350}},
      {"h200-141gb", {140, 1, {{"f32", 67}, {"tf32", 495}, {"f16", 989}, {"bf16", 989}, {"f8", 1979}}, 4800}},
  };
  return devices;
}

struct Preset {
  const char* name;
  int servers;
  const char* device;
  double intra_gbytes_per_s;
  double inter_gbytes_per_s;
  double intra_latency_us;
  double inter_latency_us;
};

// All presets have 8 devices per server; bandwidths are per direction.
constexpr Preset kPresets[] = {
    // Auto-MAP (arXiv 2007.04069), Table 2: V100-16GB, NVLink 130 GB/s, Ethernet 25 Gbit/s; no latencies given there.
    {"config-a", 2, "v100-16gb", 130, 3.125, 0, 0},
    {"config-b", 3, "v100-16gb", 130, 3.125, 0, 0},
    {"config-c", 4, "v100-16gb", 130, 3.125, 0, 0},
    // NVIDIA DGX A100: NVLink 3, 600 GB/s per device both ways = 300; 8 x HDR InfiniBand of 200 Gbit/s = 200 GB/s per
    // server. Latencies here and below: a small message between two devices, as NCCL tests show them, rounded.
    {"a100-40gb-2x8", 2, "a100-40gb", 300, 200, 3, 6},
    {"a100-2x8", 2, "a100-80gb", 300, 200, 3, 6},
    {"a100-4x8", 4, "a100-80gb", 300, 200, 3, 6},
    {"a100-8x8", 8, "a100-80gb", 300, 200, 3, 6},
    // The same servers in a cloud with 400 Gbit/s of network in all (AWS p4de.24xlarge).
    {"a100-cloud-4x8", 4, "a100-80gb", 300, 50, 3, 20},
    // NVIDIA DGX H100 / H200: NVLink 4, 900 GB/s both ways = 450; 8 x NDR InfiniBand of 400 Gbit/s = 400 GB/s.
    {"h100-1x8", 1, "h100-80gb", 450, 400, 3, 5},
    {"h100-2x8", 2, "h100-80gb", 450, 400, 3, 5},
    {"h100-4x8", 4, "h100-80gb", 450, 400, 3, 5},
    {"h100-8x8", 8, "h100-80gb", 450, 400, 3, 5},
    {"h200-1x8", 1, "h200-141gb", 450, 400, 3, 5},
    {"h200-2x8", 2, "h200-141gb", 450, 400, 3, 5},
    {"h200-4x8", 4, "h200-141gb", 450, 400, 3, 5},
};

Cluster make_preset(const Preset& preset) {
  Cluster cluster;
  cluster.name = preset.name;
  ServerGroup servers;
  servers.count = preset.servers;
  servers.devices = 8;
  servers.intra_gbytes_per_s = preset.intra_gbytes_per_s;
  servers.inter_gbytes_per_s = preset.inter_gbytes_per_s;
  servers.device = preset.device;
  cluster.servers.push_back(servers);
  cluster.intra_latency_us = preset.intra_latency_us;
  cluster.inter_latency_us = preset.inter_latency_us;
  cluster.devices[preset.device] = known_devices().at(preset.device);
  return cluster;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// "did you mean X?" when some candidate is near, else "".
std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return "";
  const std::string name = closest_name(word, candidates);
  return name.empty() ? "" : "did you mean " + name + "?";
}

std::string describe(const Json& value) {
  return excerpt(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

// Reads the values of a document and names them by their path in every error.
class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  [[noreturn]] void fail(const std::string& path, const std::string& what, const std::string& hint = "") const {
    throw Error(ErrorKind::kConfig, source_ + ": " + (path.empty() ? "" : path + ": ") + what, hint);
  }

  void object(const Json& value, const std::string& path, const std::vector<std::string>& known) const {
    if (!value.is_object()) fail(path, "found " + describe(value) + ", expected an object");
    for (const auto& item : value.items()) {
      if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
      const std::string guess = nearest(item.key(), known);
      fail(child(path, item.key()), "unknown key", (guess.empty() ? "" : guess + " ") + "known keys: " + join(known));
    }
  }

  const Json& required(const Json& object, const std::string& path, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(child(path, key), "missing");
    return *found;
  }

  double number(const Json& value, const std::string& path) const {
    if (!value.is_number()) fail(path, "found " + describe(value) + ", expected a number");
    return value.get<double>();
  }

  int integer(const Json& value, const std::string& path) const {
    const double number_value = number(value, path);
    if (!(number_value >= -1e9 && number_value <= 1e9) || number_value != std::floor(number_value)) {
      fail(path, "found " + describe(value) + ", expected a whole number");
    }
    return static_cast<int>(number_value);
  }

  std::string string(const Json& value, const std::string& path) const {
    if (!value.is_string()) fail(path, "found " + describe(value) + ", expected a string");
    return value.get<std::string>();
  }

  static std::string child(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
  }

 private:
  std::string source_;
};

// "3:14": line and column of a byte offset, both from 1.
std::string line_and_column(std::string_view text, std::size_t offset) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < std::min(offset, text.size()); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return std::to_string(line) + ":" + std::to_string(column);
}

Json parse_json(std::string_view text, const std::string& source) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  // A key given twice is a mistake that a JSON library silently accepts; nested keys are told apart by depth.
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxJsonDepth) {
      throw Error(ErrorKind::kConfig, source + ": nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw Error(ErrorKind::kConfig, source + ": key " + describe(value) + " is given twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::parse_error& error) {
    // The library's "[json.exception...] parse error at line 1, column 2: reason": keep the reason, count ourselves.
    std::string reason = error.what();
    const std::size_t colon = reason.find(": ");
    if (colon != std::string::npos) reason = reason.substr(colon + 2);
    throw Error(ErrorKind::kConfig,
                source + ":" + line_and_column(text, error.byte == 0 ? 0 : error.byte - 1) + ": not JSON: " + reason,
                "a cluster file is JSON, see docs/formats/cluster.md; presets: " + join(cluster_preset_names()));
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::kConfig, source + ": not JSON that can be read: " + error.what());
  }
}

DeviceType read_device(const Reader& reader, const Json& value, const std::string& path) {
  reader.object(value, path, {"memory_gib", "relative_speed", "peak_tflops", "memory_gbytes_per_s"});
  DeviceType device;
  device.memory_gib = reader.number(reader.required(value, path, "memory_gib"), path + ".memory_gib");
  if (value.contains("relative_speed")) {
    device.relative_speed = reader.number(value["relative_speed"], path + ".relative_speed");
  }
  if (value.contains("memory_gbytes_per_s")) {
    device.memory_gbytes_per_s = reader.number(value["memory_gbytes_per_s"], path + ".memory_gbytes_per_s");
  }
  if (value.contains("peak_tflops")) {
    const Json& peaks = value["peak_tflops"];
    if (!peaks.is_object()) reader.fail(path + ".peak_tflops", "found " + describe(peaks) + ", expected an object");
    for (const auto& item : peaks.items()) {
      device.peak_tflops[item.key()] = reader.number(item.value(), path + ".peak_tflops." + item.key());
    }
  }
  return device;
}

ServerGroup read_servers(const Reader& reader, const Json& value, const std::string& path) {
  reader.object(value, path, {"count", "devices", "intra_gbytes_per_s", "inter_gbytes_per_s", "device"});
  ServerGroup servers;
  if (value.contains("count")) servers.count = reader.integer(value["count"], path + ".count");
  servers.devices = reader.integer(reader.required(value, path, "devices"), path + ".devices");
  servers.intra_gbytes_per_s =
      reader.number(reader.required(value, path, "intra_gbytes_per_s"), path + ".intra_gbytes_per_s");
  servers.inter_gbytes_per_s =
      reader.number(reader.required(value, path, "inter_gbytes_per_s"), path + ".inter_gbytes_per_s");
  servers.device = reader.string(reader.required(value, path, "device"), path + ".device");
  return servers;
}

std::vector<std::string> device_names(const std::map<std::string, DeviceType>& devices) {
  std::vector<std::string> names;
  for (const auto& entry : devices) names.push_back(entry.first);
  return names;
}

}  // namespace

int Cluster::num_devices() const {
  std::int64_t total = 0;
  for (const ServerGroup& group : servers) total += static_cast<std::int64_t>(group.count) * group.devices;
  return static_cast<int>(std::clamp<std::int64_t>(total, 0, 1 << 30));
}

int Cluster::num_servers() const {
  std::int64_t total = 0;
  for (const ServerGroup& group : servers) total += group.count;
  return static_cast<int>(std::clamp<std::int64_t>(total, 0, 1 << 30));
}

void check_cluster(const Cluster& cluster, const std::string& source) {
  const Reader reader(source);
  const auto positive = [&](double value, const std::string& path, const char* unit) {
    if (!(std::isfinite(value) && value > 0)) {
      reader.fail(path, "found " + describe(value) + ", expected a number of " + unit + " above 0");
    }
  };
  const auto not_negative = [&](double value, const std::string& path, const char* unit) {
    if (!(std::isfinite(value) && value >= 0)) {
      reader.fail(path, "found " + describe(value) + ", expected a number of " + unit + " of at least 0");
    }
  };
  if (cluster.servers.empty()) reader.fail("servers", "empty, expected at least one group of servers");
  for (std::size_t i = 0; i < cluster.servers.size(); ++i) {
    const ServerGroup& group = cluster.servers[i];
    const std::string path = "servers[" + std::to_string(i) + "]";
    const auto count = [&](int value, const char* key) {
      if (value < 1 || value > kMaxDevices) {
        reader.fail(path + "." + key, "found " + std::to_string(value) + ", expected a whole number from 1 to " +
                                          std::to_string(kMaxDevices));
      }
    };
    count(group.count, "count");
    count(group.devices, "devices");
    positive(group.intra_gbytes_per_s, path + ".intra_gbytes_per_s", "GB/s");
    positive(group.inter_gbytes_per_s, path + ".inter_gbytes_per_s", "GB/s");
    if (cluster.devices.count(group.device) == 0) {
      std::map<std::string, DeviceType> known = cluster.devices;
      known.insert(known_devices().begin(), known_devices().end());
      const std::vector<std::string> names = device_names(known);
      const std::string guess = nearest(group.device, names);
      reader.fail(path + ".device", "no device type \"" + group.device + "\" under devices",
                  (guess.empty() ? "" : guess + " ") + "known: " + join(names));
    }
  }
  if (cluster.num_devices() > kMaxDevices) {
    reader.fail("servers", std::to_string(cluster.num_devices()) + " devices in all, expected at most " +
                               std::to_string(kMaxDevices));
  }
  not_negative(cluster.intra_latency_us, "intra_latency_us", "microseconds");
  not_negative(cluster.inter_latency_us, "inter_latency_us", "microseconds");
  for (const auto& [name, device] : cluster.devices) {
    const std::string path = "devices." + name;
    positive(device.memory_gib, path + ".memory_gib", "GiB");
    positive(device.relative_speed, path + ".relative_speed", "times the profiled device's speed");
    not_negative(device.memory_gbytes_per_s, path + ".memory_gbytes_per_s", "GB/s");
    for (const auto& [type, tflops] : device.peak_tflops) positive(tflops, path + ".peak_tflops." + type, "TFLOP/s");
  }
}

Cluster parse_cluster(std::string_view json_text, const std::string& source) {
  const Json document = parse_json(json_text, source);
  const Reader reader(source);
  // Before anything else, so that a file of another kind or of a newer version is called what it is.
  if (document.is_object() && document.contains("schema")) {
    const std::string schema = reader.string(document["schema"], "schema");
    if (schema != kSchema) {
      const bool newer = schema.rfind("automap.cluster/", 0) == 0;
      reader.fail("schema", "found \"" + schema + "\", expected \"" + kSchema + "\"",
                  newer ? "the file was written for another version of AutoMap" : "this is not a cluster file");
    }
  }
  reader.object(document, "", {"schema", "name", "servers", "intra_latency_us", "inter_latency_us", "devices"});
  Cluster cluster;
  cluster.name = document.contains("name") ? reader.string(document["name"], "name")
                                           : std::filesystem::path(source).stem().string();
  const Json& servers = reader.required(document, "", "servers");
  if (!servers.is_array()) reader.fail("servers", "found " + describe(servers) + ", expected an array");
  for (std::size_t i = 0; i < servers.size(); ++i) {
    cluster.servers.push_back(read_servers(reader, servers[i], "servers[" + std::to_string(i) + "]"));
  }
  if (document.contains("intra_latency_us")) {
    cluster.intra_latency_us = reader.number(document["intra_latency_us"], "intra_latency_us");
  }
  if (document.contains("inter_latency_us")) {
    cluster.inter_latency_us = reader.number(document["inter_latency_us"], "inter_latency_us");
  }
  if (document.contains("devices")) {
    const Json& devices = document["devices"];
    if (!devices.is_object()) reader.fail("devices", "found " + describe(devices) + ", expected an object");
    for (const auto& item : devices.items()) {
      cluster.devices[item.key()] = read_device(reader, item.value(), "devices." + item.key());
    }
  }
  // Device types the file uses without describing them come from the built-in table.
  for (const ServerGroup& group : cluster.servers) {
    const auto known = known_devices().find(group.device);
    if (known != known_devices().end()) cluster.devices.insert(*known);
  }
  check_cluster(cluster, source);
  return cluster;
}

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

Cluster load_cluster(const std::string& name_or_path) {
  for (const Preset& preset : kPresets) {
    if (name_or_path == preset.name) return make_preset(preset);
  }
  std::error_code ignored;
  const bool looks_like_path = name_or_path.find('/') != std::string::npos ||
                               name_or_path.find(".json") != std::string::npos ||
                               std::filesystem::exists(name_or_path, ignored);
  if (!looks_like_path) {
    const std::vector<std::string> names = cluster_preset_names();
    const std::string guess = nearest(name_or_path, names);
    throw Error(ErrorKind::kConfig, "no cluster preset or file named \"" + name_or_path + "\"",
                (guess.empty() ? "" : guess + " ") + "presets: " + join(names) +
                    "; or a JSON file, see docs/formats/cluster.md");
  }
  try {
    return parse_cluster(read_file(name_or_path, kMaxFileBytes), name_or_path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    throw Error(ErrorKind::kIo, error.what(), "give a JSON file or a preset: " + join(cluster_preset_names()));
  }
}

std::string to_json_text(const Cluster& cluster) {
  nlohmann::ordered_json document;
  document["schema"] = kSchema;
  document["name"] = cluster.name;
  document["servers"] = nlohmann::ordered_json::array();
  for (const ServerGroup& group : cluster.servers) {
    nlohmann::ordered_json servers;
    servers["count"] = group.count;
    servers["devices"] = group.devices;
    servers["intra_gbytes_per_s"] = group.intra_gbytes_per_s;
    servers["inter_gbytes_per_s"] = group.inter_gbytes_per_s;
    servers["device"] = group.device;
    document["servers"].push_back(std::move(servers));
  }
  document["intra_latency_us"] = cluster.intra_latency_us;
  document["inter_latency_us"] = cluster.inter_latency_us;
  document["devices"] = nlohmann::ordered_json::object();
  for (const auto& [name, type] : cluster.devices) {
    nlohmann::ordered_json device;
    device["memory_gib"] = type.memory_gib;
    device["relative_speed"] = type.relative_speed;
    if (!type.peak_tflops.empty()) device["peak_tflops"] = type.peak_tflops;
    if (type.memory_gbytes_per_s > 0) device["memory_gbytes_per_s"] = type.memory_gbytes_per_s;
    document["devices"][name] = std::move(device);
  }
  return json_text(document);
}

}  // namespace automap::pipeline
