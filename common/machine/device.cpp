// Reads, writes and describes device models, in the file form of devices that no table knows.
#include "common/machine/device.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/json.h"
#include "common/base/json_reader.h"
#include "common/base/json_text.h"
#include "common/base/number_range.h"
#include "common/base/text_table.h"
#include "common/machine/device_table.h"

namespace automap::machine {
namespace {

constexpr const char* kSchemaName = "automap.device/";
constexpr int kDeviceVersion = 1;
constexpr std::uint64_t kMaxDeviceBytes = 16 << 20;
constexpr const char* kOwnFile = "the device file";
constexpr double kVectorHalfTiles = 0.1;
constexpr double kVectorHalfLength = 64;
constexpr double kMatrixUnitsGain = 1.5;
constexpr const char* kTypes[] = {"f64", "f32", "tf32", "f16", "bf16", "f8", "i8"};

// Other names of devices in the table, as clusters and data sheets call them.
constexpr std::pair<const char*, const char*> kAliases[] = {{"a100", "a100-80gb"},
                                                            {"v100", "v100-32gb"},
                                                            {"h100-80gb", "h100"},
                                                            {"h200-141gb", "h200"},
                                                            {"b200-180gb", "b200"}};

// The constants that are one number: their key in files, and their range.
struct Scalar {
  const char* name;
  double DeviceModel::*member;
  enum class Range { kMicroseconds, kShare, kShareOrNone, kTimes } range;
  const char* usual = "";  // the source of its default, where that is no assumption
};
using Range = Scalar::Range;
constexpr Scalar kScalars[] = {
    {"launch_us", &DeviceModel::launch_us, Range::kMicroseconds},
    {"host_us", &DeviceModel::host_us, Range::kMicroseconds},
    {"elementwise_passes", &DeviceModel::elementwise_passes, Range::kTimes, "compilers fuse"},
    {"memory_efficiency", &DeviceModel::memory_efficiency, Range::kShare},
    {"gather_efficiency", &DeviceModel::gather_efficiency, Range::kShare},
    {"scatter_efficiency", &DeviceModel::scatter_efficiency, Range::kShare},
    {"sustained_clock", &DeviceModel::sustained_clock, Range::kShare},
    {"vector_efficiency", &DeviceModel::vector_efficiency, Range::kShare},
    {"matmul_efficiency", &DeviceModel::matmul_efficiency, Range::kShare},
    {"matmul_overlap", &DeviceModel::matmul_overlap, Range::kShareOrNone},
    {"convolution_efficiency", &DeviceModel::convolution_efficiency, Range::kShare},
    {"vector_convolution_efficiency", &DeviceModel::vector_convolution_efficiency, Range::kShare},
};

// At its default, which nobody has to say: it stands in no file.
bool is_usual(const Scalar& scalar, const DeviceModel& device) {
  return *scalar.usual != '\0' && device.*scalar.member == DeviceModel().*scalar.member &&
         device.sources.count(scalar.name) == 0;
}

double read_share(const JsonValue& value) {
  const double share = value.number(0, 1, "a share above 0, of at most 1");
  if (share == 0) value.wrong("a share above 0, of at most 1");
  return share;
}

double read_scalar(const JsonValue& value, Range range) {
  switch (range) {
    case Range::kMicroseconds: return value.number(0, 1e9, "a number of microseconds from 0 to 1e9");
    case Range::kShare: return read_share(value);
    case Range::kTimes: return value.number(1, 100, "a number from 1 to 100");
    case Range::kShareOrNone: break;
  }
  return value.number(0, 1, "a share from 0 to 1");
}

MatmulEfficiency read_matmul(const JsonValue& value) {
  value.only_keys({"share", "half_tiles", "half_length"});
  MatmulEfficiency efficiency;
  efficiency.share = read_share(value.at("share"));
  if (value.has("half_tiles")) {
    efficiency.half_tiles = value.at("half_tiles").number(0, 1e6, "a number of tiles per core from 0 to 1e6");
  }
  if (value.has("half_length")) {
    efficiency.half_length = value.at("half_length").number(0, 1e6, "a contracted length from 0 to 1e6");
  }
  return efficiency;
}

// Every constant that the file gives is measured, unless it says otherwise.
void read_constants(const JsonValue& root, DeviceModel* device) {
  for (const Scalar& scalar : kScalars) {
    if (!root.has(scalar.name)) continue;
    device->*scalar.member = read_scalar(root.at(scalar.name), scalar.range);
    device->sources[scalar.name] = kOwnFile;
  }
  if (root.has("matmul")) {
    const JsonValue matmul = root.at("matmul");
    for (const auto& [type, efficiency] : matmul.members()) {
      if (device->peak_tflops.count(type) == 0) matmul.wrong("types of peak_tflops; it has no '" + type + "'");
      device->matmul[type] = read_matmul(efficiency);
      device->sources["matmul." + type] = kOwnFile;
    }
  }
  const auto known = [&](const std::string& name) {
    const std::vector<DeviceConstant> all = device_constants(*device);
    return std::any_of(all.begin(), all.end(), [&](const DeviceConstant& c) { return c.name == name; });
  };
  if (root.has("sources")) {
    const JsonValue sources = root.at("sources");
    for (const auto& [name, text] : sources.members()) {
      if (!known(name)) sources.wrong("names of constants; '" + name + "' is none");
      device->sources[name] = text.text();
    }
  }
  if (root.has("assumptions")) {
    for (const JsonValue& name : root.at("assumptions").items()) {
      if (!known(name.text())) name.wrong("the name of a constant");
      device->sources.erase(name.text());
    }
  }
}

}  // namespace

std::string DeviceModel::units_of(std::string_view type) const {
  const auto has = [&](std::string_view key) {
    const auto found = peak_tflops.find(std::string(key));
    return found != peak_tflops.end() && found->second > 0;
  };
  if (has(type)) return std::string(type);
  if (type == "f8" || type == "i8") {
    for (const char* wider : {"bf16", "f16"}) {
      if (has(wider)) return wider;
    }
  }
  return "f32";
}

double DeviceModel::matmul_tflops(std::string_view type) const {
  const std::string units = units_of(type);
  const auto peak = peak_tflops.find(units);
  const double tflops = peak == peak_tflops.end() ? 0.0 : peak->second;
  return type == "f64" && units != "f64" ? tflops / 32 : tflops;
}

bool DeviceModel::has_fused_attention() const {
  return units_of("bf16") == "bf16" && matmul_tflops("bf16") >= kMatrixUnitsGain * matmul_tflops("tf32");
}

MatmulEfficiency DeviceModel::matmul_efficiency_of(std::string_view type) const {
  const std::string units = units_of(type);
  const auto found = matmul.find(units);
  if (found != matmul.end()) return found->second;
  MatmulEfficiency efficiency;
  efficiency.share = matmul_efficiency;
  if (units == "f32" || units == "f64") {  // slower units are kept busy by less
    efficiency.half_tiles = kVectorHalfTiles;
    efficiency.half_length = kVectorHalfLength;
  }
  return efficiency;
}

std::vector<DeviceConstant> device_constants(const DeviceModel& device) {
  std::vector<DeviceConstant> constants;
  const auto add = [&](const std::string& name, std::string value) {
    const auto source = device.sources.find(name);
    constants.push_back({name, std::move(value), source == device.sources.end() ? "" : source->second});
  };
  for (const Scalar& scalar : kScalars) {
    add(scalar.name, format_number(device.*scalar.member));
    if (is_usual(scalar, device)) constants.back().source = scalar.usual;
  }
  for (const char* type : kTypes) {
    if (device.peak_tflops.count(type) == 0) continue;
    const MatmulEfficiency efficiency = device.matmul_efficiency_of(type);
    add("matmul." + std::string(type), format_number(efficiency.share) + " (half of it at " +
                                           format_number(efficiency.half_tiles) + " tiles per core, length " +
                                           format_number(efficiency.half_length) + ")");
  }
  return constants;
}

std::vector<std::string> assumed_constants(const DeviceModel& device) {
  std::vector<std::string> names;
  for (const DeviceConstant& constant : device_constants(device)) {
    if (constant.source.empty()) names.push_back(constant.name);
  }
  return names;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceModel& device : device_table()) names.push_back(device.name);
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
  for (const DeviceModel& device : device_table()) {
    if (device.name == known) return device;
  }
  return std::nullopt;
}

namespace {

// Applies "host_us=40,memory_gib=79" to a device; `whole` is the user's text, and the name of the resulting device.
DeviceModel with_changes(const DeviceModel& device, const std::string& changes, const std::string& whole) {
  const JsonSource from{whole, ErrorKind::kConfig,
                        "DEVICE:KEY=VALUE[,KEY=VALUE...]; docs/device-model.md lists the keys, such as host_us and "
                        "memory_gib"};
  Json document = parse_json(to_json_text(device), from);
  std::set<std::string> constants, given;
  for (const Scalar& scalar : kScalars) constants.insert(scalar.name);
  std::set<std::string> keys = constants;
  keys.insert({"memory_gbytes_per_s", "memory_gib", "link_gbytes_per_s", "cores"});
  for (std::size_t begin = 0; begin <= changes.size();) {
    const std::size_t end = std::min(changes.find(',', begin), changes.size());
    const std::string change = changes.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = change.find('=');
    const std::string key = change.substr(0, equals);
    const std::string text = equals == std::string::npos ? "" : change.substr(equals + 1);
    if (keys.count(key) == 0 || text.empty()) {
      throw Error(ErrorKind::kConfig, "device '" + whole + "': found '" + change + "', expected KEY=VALUE",
                  "keys: " + join(std::vector<std::string>(keys.begin(), keys.end())));
    }
    if (!given.insert(key).second) {
      throw Error(ErrorKind::kConfig, "device '" + whole + "': " + key + " comes twice", "give it once");
    }
    document[key] = parse_json(text, {whole + ": " + key, ErrorKind::kConfig, "expected a number"});
    if (constants.count(key) > 0) document["sources"][key] = "as given";
  }
  Json assumed = Json::array();
  for (const Json& name : document["assumptions"]) {
    if (given.count(name.get<std::string>()) == 0) assumed.push_back(name);
  }
  document["assumptions"] = std::move(assumed);
  DeviceModel changed = parse_device(document.dump(), whole);
  changed.name = whole;
  return changed;
}

}  // namespace

std::optional<DeviceModel> find_changed_device(const std::string& name) {
  if (auto device = find_device(name)) return device;
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos || name.find('=', colon) == std::string::npos) return std::nullopt;
  const std::optional<DeviceModel> device = find_device(name.substr(0, colon));
  if (!device) return std::nullopt;
  try {
    return with_changes(*device, name.substr(colon + 1), name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

DeviceModel load_device(const std::string& name_or_path) {
  if (auto device = find_device(name_or_path)) return *std::move(device);
  std::error_code ignored;
  const bool file = std::filesystem::exists(name_or_path, ignored);
  const std::size_t colon = name_or_path.rfind(':');
  if (!file && colon != std::string::npos && name_or_path.find('=', colon) != std::string::npos) {
    return with_changes(load_device(name_or_path.substr(0, colon)), name_or_path.substr(colon + 1), name_or_path);
  }
  if (!file) {
    throw Error(ErrorKind::kConfig, "unknown device '" + name_or_path + "', and no file of that name",
                "known devices: " + join(device_names()) + "; or give a device file (docs/device-model.md)");
  }
  return parse_device(read_file(name_or_path, kMaxDeviceBytes), name_or_path);
}

DeviceModel parse_device(std::string_view json_text, const std::string& source) {
  const JsonSource from{source, ErrorKind::kConfig, "docs/device-model.md describes device files"};
  const Json document = parse_json(json_text, from);
  const JsonValue root(document, from);
  root.schema(kSchemaName, kDeviceVersion, "a device file", kDeviceVersion);
  std::vector<std::string> keys = {
      "schema", "name",   "peak_tflops", "memory_gbytes_per_s", "memory_gib", "link_gbytes_per_s",
      "cores",  "matmul", "sources",     "assumptions"};
  for (const Scalar& scalar : kScalars) keys.emplace_back(scalar.name);
  root.only_keys(keys);
  const auto figure = [&](const JsonValue& value, const std::string& unit) {
    return value.number(kSmallestFigure, kLargestFigure, "a number of " + unit + " " + kFigureRange);
  };
  DeviceModel device;
  device.name = root.at("name").text();
  if (device.name.empty()) root.at("name").wrong("a name");
  const JsonValue peaks = root.at("peak_tflops");
  peaks.only_keys({std::begin(kTypes), std::end(kTypes)});
  peaks.at("f32");
  for (const auto& [type, peak] : peaks.members()) device.peak_tflops[type] = figure(peak, "TFLOP/s");
  device.memory_gbytes_per_s = figure(root.at("memory_gbytes_per_s"), "GB/s");
  device.memory_gib = figure(root.at("memory_gib"), "GiB");
  if (const char* key = "link_gbytes_per_s"; root.has(key)) {
    const JsonValue link = root.at(key);
    device.link_gbytes_per_s = link.json() == Json(0) ? 0 : figure(link, "GB/s, or 0,");
  }
  if (root.has("cores")) device.cores = static_cast<int>(root.at("cores").integer(1, 1000000));
  read_constants(root, &device);
  return device;
}

std::string to_json_text(const DeviceModel& device) {
  Json document = Json::object();
  document["schema"] = kSchemaName + std::to_string(kDeviceVersion);
  document["name"] = device.name;
  document["peak_tflops"] = device.peak_tflops;
  document["memory_gbytes_per_s"] = device.memory_gbytes_per_s;
  document["memory_gib"] = device.memory_gib;
  document["link_gbytes_per_s"] = device.link_gbytes_per_s;
  document["cores"] = device.cores;
  for (const Scalar& scalar : kScalars) {
    if (!is_usual(scalar, device)) document[scalar.name] = device.*scalar.member;
  }
  if (!device.matmul.empty()) document["matmul"] = Json::object();
  for (const auto& [type, efficiency] : device.matmul) {
    document["matmul"][type] = {
        {"share", efficiency.share}, {"half_tiles", efficiency.half_tiles}, {"half_length", efficiency.half_length}};
  }
  if (!device.sources.empty()) document["sources"] = device.sources;
  document["assumptions"] = assumed_constants(device);
  return json_text(document);
}

}  // namespace automap::machine
