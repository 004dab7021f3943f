#include "common/machine/cluster.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/json.h"
#include "common/base/json_reader.h"
#include "common/base/json_text.h"
#include "common/base/number_range.h"
#include "common/base/numbers.h"
#include "common/base/suggest.h"
#include "common/machine/cluster_names.h"
#include "common/machine/collectives_json.h"
#include "common/machine/device.h"

namespace automap::machine {
namespace {

constexpr const char* kSchemaPrefix = "automap.cluster/";
constexpr int kClusterVersion = 1;
constexpr const char* kPricePerDeviceHour = "price_per_device_hour";
constexpr std::uint64_t kMaxClusterBytes = 16 << 20;
// The largest ratio between a figure and the measurement of the same links.
constexpr double kLargestContradiction = 2;

// "did you mean X? " when some candidate is near, else "".
std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return "";
  const std::string name = closest_name(word, candidates);
  return name.empty() ? "" : "did you mean " + name + "? ";
}

// Ranges are check_cluster's.
double any_number(const JsonValue& value) {
  return value.number(-kInfinity, kInfinity, "a number");
}

DeviceType read_device(const JsonValue& value) {
  value.only_keys({"memory_gib", "relative_speed", "peak_tflops", "memory_gbytes_per_s"});
  DeviceType device;
  device.memory_gib = any_number(value.at("memory_gib"));
  if (const char* key = "relative_speed"; value.json().contains(key)) {
    device.relative_speed = any_number(value.at(key));
  }
  if (const char* key = "memory_gbytes_per_s"; value.json().contains(key)) {
    device.memory_gbytes_per_s = any_number(value.at(key));
  }
  if (value.json().contains("peak_tflops")) {
    for (const auto& [type, peak] : value.at("peak_tflops").members()) {
      device.peak_tflops[type] = any_number(peak);
    }
  }
  return device;
}

// The figure for `intra` of measured servers, from their largest all-reduce. `described`: their device, by the file.
double measured_intra(const JsonValue& value, const ServerGroup& servers, bool described) {
  const double bus = bus_bytes_per_ms(servers.links) / kBytesPerMsPerGByteS;
  if (bus > 0) return bus;
  if (!described && !find_device(servers.device)) {
    value.at("device").fail(
        "no device type \"" + servers.device + "\" is known, nor described under devices",
        nearest(servers.device, device_names_and_aliases()) + "known: " + join(device_names_and_aliases()));
  }
  value.fail("expected intra_gbytes_per_s, or an all-reduce inside a server among collectives",
             "without either, device has to be one whose links are known: " + join(device_names_and_aliases()));
}

// `links`: the file's for all servers; may be empty. `devices`: that the file describes.
ServerGroup read_servers(const JsonValue& value, const MeasuredLinks& links, const std::string& folder,
                         const std::map<std::string, DeviceType>& devices) {
  value.only_keys(
      {"count", "devices", "intra_gbytes_per_s", "inter_gbytes_per_s", "device", "collectives", kPricePerDeviceHour});
  ServerGroup servers;
  if (value.json().contains("count")) servers.count = static_cast<int>(value.at("count").integer(1, kMaxDevices));
  servers.devices = static_cast<int>(value.at("devices").integer(1, kMaxDevices));
  servers.device = value.at("device").text();
  if (value.has("collectives")) {
    servers.links = read_collectives(value.at("collectives"), folder);
    check_groups_fit(value.at("collectives"), servers.links, servers.devices);
  } else {
    servers.links = links;
  }
  if (const char* key = "intra_gbytes_per_s"; value.json().contains(key)) {
    servers.intra_gbytes_per_s = any_number(value.at(key));
    const double bus = bus_bytes_per_ms(servers.links) / kBytesPerMsPerGByteS;
    if (bus > 0 && servers.intra_gbytes_per_s > 0 &&
        std::abs(std::log(servers.intra_gbytes_per_s / bus)) > std::log(kLargestContradiction)) {
      value.at(key).wrong("within " + Json(kLargestContradiction).dump() + " times what collectives show, " +
                              Json(std::round(bus * 100) / 100).dump() + " GB/s",
                          "leave intra_gbytes_per_s out to use what was measured");
    }
  } else {
    // An own all-reduce inside a server replaces the known links of the device; any other measurement adds to them.
    if (!(bus_bytes_per_ms(servers.links) > 0)) {
      servers.links = with_known(servers.links, known_links(servers.device));
    }
    servers.intra_gbytes_per_s = measured_intra(value, servers, devices.count(servers.device) > 0);
  }
  servers.inter_gbytes_per_s = any_number(value.at("inter_gbytes_per_s"));
  if (value.json().contains(kPricePerDeviceHour)) {
    const JsonValue price = value.at(kPricePerDeviceHour);
    servers.price_per_device_hour = any_number(price);
    if (!in_figure_range(servers.price_per_device_hour)) {
      price.wrong(std::string("a price ") + kFigureRange, "leave it out where nobody pays");
    }
  }
  return servers;
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

Cluster one_server(const DeviceModel& device, int devices) {
  Cluster cluster;
  cluster.name = "one server of " + device.name;
  ServerGroup servers;
  servers.devices = devices;
  servers.device = device.name;
  servers.links = known_links(device);
  const double bus = bus_bytes_per_ms(servers.links) / kBytesPerMsPerGByteS;
  servers.intra_gbytes_per_s = bus > 0 ? bus : device.link_gbytes_per_s;
  if (!(servers.intra_gbytes_per_s > 0)) {
    throw Error(ErrorKind::kConfig, "nothing is known of the links between devices " + device.name,
                "name a cluster, or a device file with link_gbytes_per_s");
  }
  servers.inter_gbytes_per_s = servers.intra_gbytes_per_s;
  cluster.servers.push_back(servers);
  DeviceType type;
  type.memory_gib = device.memory_gib;
  type.peak_tflops = device.peak_tflops;
  type.memory_gbytes_per_s = device.memory_gbytes_per_s;
  cluster.devices[device.name] = type;
  return cluster;
}

void check_cluster(const Cluster& cluster, const std::string& source) {
  const auto fail = [&](const std::string& path, const std::string& what, const std::string& hint = "") {
    throw Error(ErrorKind::kConfig, source + ": " + path + ": " + what, hint);
  };
  const auto found = [](double value) { return "found " + Json(value).dump(); };
  const auto positive = [&](double value, const std::string& path, const char* unit) {
    if (!in_figure_range(value)) fail(path, found(value) + ", expected a number of " + unit + " " + kFigureRange);
  };
  const auto not_negative = [&](double value, const std::string& path, const char* unit) {
    if (!(std::isfinite(value) && value >= 0)) {
      fail(path, found(value) + ", expected a number of " + unit + " of at least 0");
    }
    if (!in_file_range(value)) fail(path, found(value) + ", expected a number whose size is " + kFileRange);
  };
  if (cluster.servers.empty()) fail("servers", "empty, expected at least one group of servers");
  for (std::size_t i = 0; i < cluster.servers.size(); ++i) {
    const ServerGroup& group = cluster.servers[i];
    const std::string path = "servers[" + std::to_string(i) + "]";
    const auto count = [&](int value, const char* key) {
      if (value >= 1 && value <= kMaxDevices) return;
      fail(path + "." + key,
           "found " + std::to_string(value) + ", expected a whole number from 1 to " + std::to_string(kMaxDevices));
    };
    count(group.count, "count");
    count(group.devices, "devices");
    positive(group.intra_gbytes_per_s, path + ".intra_gbytes_per_s", "GB/s");
    positive(group.inter_gbytes_per_s, path + ".inter_gbytes_per_s", "GB/s");
    if (cluster.devices.count(group.device) == 0) {
      std::vector<std::string> names = device_names_and_aliases();
      for (const auto& entry : cluster.devices) names.push_back(entry.first);
      fail(path + ".device", "no device type \"" + group.device + "\" under devices",
           nearest(group.device, names) + "known: " + join(names));
    }
  }
  if (cluster.num_devices() > kMaxDevices) {
    fail("servers",
         std::to_string(cluster.num_devices()) + " devices in all, expected at most " + std::to_string(kMaxDevices));
  }
  not_negative(cluster.intra_latency_us, "intra_latency_us", "microseconds");
  not_negative(cluster.inter_latency_us, "inter_latency_us", "microseconds");
  for (const auto& [name, device] : cluster.devices) {
    const std::string path = "devices." + name;
    // Rows of datasets count memory in shares of a model's: any number above 0 is one there.
    if (!(device.memory_gib > 0 && device.memory_gib <= kLargestFigure && in_file_range(device.memory_gib))) {
      fail(path + ".memory_gib", found(device.memory_gib) + ", expected a number of GiB above 0, of at most 1e12");
    }
    if (!(device.relative_speed <= kMostRatio && device.relative_speed >= 1 / kMostRatio)) {  // no NaN
      fail(path + ".relative_speed", found(device.relative_speed) + ", expected from 1e-6 to 1e6");
    }
    if (device.memory_gbytes_per_s != 0) positive(device.memory_gbytes_per_s, path + ".memory_gbytes_per_s", "GB/s");
    for (const auto& [type, tflops] : device.peak_tflops) positive(tflops, path + ".peak_tflops." + type, "TFLOP/s");
  }
}

Cluster parse_cluster(std::string_view json_text, const std::string& source) {
  const JsonSource from{
      source, ErrorKind::kConfig,
      "a cluster file is JSON, see docs/formats/cluster.md; presets: " + join(cluster_preset_names())};
  const Json document = parse_json(json_text, from);
  const JsonValue root(document, from);
  // Checked first, so that a file of another kind or of a newer version is named as such.
  root.schema(kSchemaPrefix, kClusterVersion, "a cluster file", kClusterVersion);
  root.only_keys({"schema", "name", "servers", "intra_latency_us", "inter_latency_us", "devices", "collectives"});
  Cluster cluster;
  cluster.name = document.contains("name") ? root.at("name").text() : std::filesystem::path(source).stem().string();
  const std::string folder = std::filesystem::path(source).parent_path().string();
  if (document.contains("devices")) {
    for (const auto& [name, device] : root.at("devices").members()) cluster.devices[name] = read_device(device);
  }
  MeasuredLinks links;
  if (document.contains("collectives")) links = read_collectives(root.at("collectives"), folder);
  int most_devices = 0;  // of servers that these links are of
  for (const JsonValue& servers : root.at("servers").items()) {
    cluster.servers.push_back(read_servers(servers, links, folder, cluster.devices));
    if (!servers.has("collectives")) most_devices = std::max(most_devices, cluster.servers.back().devices);
  }
  if (most_devices > 0 && !links.empty()) check_groups_fit(root.at("collectives"), links, most_devices);
  for (auto [key, value] : {std::pair("intra_latency_us", &cluster.intra_latency_us),
                            std::pair("inter_latency_us", &cluster.inter_latency_us)}) {
    if (document.contains(key)) *value = any_number(root.at(key));
  }
  // Devices that the file uses without describing them come from the table.
  for (const ServerGroup& group : cluster.servers) {
    if (cluster.devices.count(group.device) > 0) continue;
    if (auto known = known_device(group.device)) cluster.devices[group.device] = *std::move(known);
  }
  check_cluster(cluster, source);
  return cluster;
}

Cluster load_cluster(const std::string& name_or_path) {
  if (const std::optional<Cluster> named = cluster_by_name(name_or_path)) return *named;
  std::error_code ignored;
  const bool looks_like_path = name_or_path.find('/') != std::string::npos ||
                               name_or_path.find(".json") != std::string::npos ||
                               std::filesystem::exists(name_or_path, ignored);
  if (!looks_like_path) {
    const std::vector<std::string> names = cluster_preset_names();
    const std::vector<std::string> alike = presets_by_words(name_or_path);
    std::string guess = nearest(name_or_path, alike.empty() ? names : alike);
    if (guess.empty() && !alike.empty()) guess = "did you mean " + alike.front() + "? ";
    throw Error(ErrorKind::kConfig, "no cluster preset or file named \"" + name_or_path + "\"",
                guess + "presets: " + join(names) + "; others as " + kClusterGrammar +
                    "; or a JSON file, see docs/formats/cluster.md");
  }
  try {
    return parse_cluster(read_file(name_or_path, kMaxClusterBytes), name_or_path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    throw Error(ErrorKind::kIo, error.what(), "give a JSON file or a preset: " + join(cluster_preset_names()));
  }
}

std::vector<int> widths_of(const Cluster& cluster) {
  int largest = 0;
  for (const ServerGroup& servers : cluster.servers) largest = std::max(largest, servers.devices);
  std::vector<int> out;
  for (int width = 2; width <= largest; width *= 2) out.push_back(width);
  return out;
}

std::string to_json_text(const Cluster& cluster) {
  Json document = Json::object();
  document["schema"] = kSchemaPrefix + std::to_string(kClusterVersion);
  document["name"] = cluster.name;
  document["servers"] = Json::array();
  for (const ServerGroup& group : cluster.servers) {
    Json servers = Json::object();
    servers["count"] = group.count;
    servers["devices"] = group.devices;
    servers["intra_gbytes_per_s"] = group.intra_gbytes_per_s;
    servers["inter_gbytes_per_s"] = group.inter_gbytes_per_s;
    servers["device"] = group.device;
    if (!group.links.empty()) servers["collectives"] = collectives_json(group.links);
    if (group.price_per_device_hour > 0) servers[kPricePerDeviceHour] = group.price_per_device_hour;
    document["servers"].push_back(std::move(servers));
  }
  document["intra_latency_us"] = cluster.intra_latency_us;
  document["inter_latency_us"] = cluster.inter_latency_us;
  document["devices"] = Json::object();
  for (const auto& [name, type] : cluster.devices) {
    Json device = Json::object();
    device["memory_gib"] = type.memory_gib;
    device["relative_speed"] = type.relative_speed;
    if (!type.peak_tflops.empty()) device["peak_tflops"] = type.peak_tflops;
    if (type.memory_gbytes_per_s > 0) device["memory_gbytes_per_s"] = type.memory_gbytes_per_s;
    document["devices"][name] = std::move(device);
  }
  return json_text(document);
}

}  // namespace automap::machine
