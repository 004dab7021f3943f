// Reading files of measured kernels.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/json_reader.h"
#include "common/base/text_table.h"
#include "common/machine/collectives_json.h"
#include "profile/calibration.h"
#include "profile/calibration_base.h"

namespace automap::profile {
namespace {

constexpr const char* kSchemaName = "automap.measurements/";
constexpr int kSchemaVersion = 1;
constexpr std::size_t kMostKernels = 1000;
// The most multiplications, or elements where there are none: more than a device does in a second, less than overflows.
constexpr double kMostWork = 1e15;
constexpr const char* kHint = "scripts/measure_device.py writes such files; docs/device-model.md describes them";

struct MeasuredKind {
  const char* name;
  std::vector<std::string> sizes;
};
const std::vector<MeasuredKind>& kinds() {
  static const std::vector<MeasuredKind> all = {
      {"matmul", {"batch", "m", "n", "k"}},
      {"convolution", {"batch", "side", "inputs", "outputs", "window"}},
      {"softmax", {"rows", "columns"}},
      {"copy", {"elements"}},
      {"launch", {"count"}},
      {"module", {}},
  };
  return all;
}

MeasuredKernel read_kernel(const JsonValue& row, const MeasuredKind& kind, int place) {
  MeasuredKernel kernel;
  kernel.row = place;
  kernel.kind = kind.name;
  if (kernel.kind == "module") {
    row.only_keys({"kind", "name", "hlo", "us"});
    kernel.type = "f32";
    kernel.hlo = row.at("hlo").text();
    kernel.ms = row.at("us").positive("microseconds") * 1e-3;
    return kernel;
  }
  std::vector<std::string> keys = {"kind", "type", "us"};
  keys.insert(keys.end(), kind.sizes.begin(), kind.sizes.end());
  row.only_keys(keys);
  kernel.type = row.at("type").text();
  if (kernel.type != "f32" && kernel.type != "bf16" && kernel.type != "f16") {
    row.at("type").wrong("one of f32, bf16, f16");
  }
  for (const std::string& size : kind.sizes) kernel.sizes[size] = row.at(size.c_str()).integer(1, 1 << 30);
  const double work = kernel_work(kernel);
  if (work > kMostWork) {
    row.fail("found sizes that make " + format_number(work) + " multiplications or elements, expected at most " +
             format_number(kMostWork));
  }
  if (kernel.kind == "launch" && kernel.sizes["count"] > 10000) row.at("count").wrong("at most 10000");
  if (kernel.kind == "convolution" && kernel.sizes["window"] % 2 == 0) row.at("window").wrong("an odd number");
  kernel.ms = row.at("us").positive("microseconds") * 1e-3;
  return kernel;
}

void read_all_reduce(const JsonValue& row, Measurements* measured) {
  row.only_keys({"kind", "devices", "bytes", "us"});
  const auto devices = static_cast<int>(row.at("devices").integer(2, 4096));
  machine::add_measured_time(row.at("bytes"), row.at("us"), "microseconds", 1e-3, &measured->all_reduce[devices]);
}

void check_sizes(const Measurements& measured, const JsonValue& rows) {
  for (const char* kind : {"matmul", "copy"}) {
    std::set<std::map<std::string, std::int64_t>> sizes;
    for (const MeasuredKernel& kernel : measured.kernels) {
      if (kernel.kind == kind && kernel.type == "f32") sizes.insert(kernel.sizes);
    }
    if (static_cast<int>(sizes.size()) >= kLeastSizes) continue;
    rows.fail("found " + std::to_string(sizes.size()) + " different sizes of " + kind + " in f32, expected at least " +
                  std::to_string(kLeastSizes) + ": fewer do not tell latency from pace",
              kHint);
  }
}

}  // namespace

Measurements parse_measurements(std::string_view json_text, const std::string& source) {
  const JsonSource from{source, ErrorKind::kConfig, kHint};
  const Json document = parse_json(json_text, from);
  const JsonValue root(document, from);
  root.schema(kSchemaName, kSchemaVersion, "a file of measurements");
  root.only_keys({"schema", "device", "framework", "cores", "memory_gib", "measured"});
  Measurements measured;
  measured.device = root.at("device").text();
  if (measured.device.empty()) root.at("device").wrong("the device's name");
  if (root.has("framework")) measured.framework = root.at("framework").text();
  if (root.has("cores")) measured.cores = static_cast<int>(root.at("cores").integer(1, 1000000));
  if (root.has("memory_gib")) measured.memory_gib = root.at("memory_gib").positive("GiB");
  const std::vector<JsonValue> rows = root.at("measured").items();
  if (rows.size() > kMostKernels) root.at("measured").fail("more than " + std::to_string(kMostKernels) + " rows");
  std::map<int, std::size_t> last_all_reduce;  // by devices
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const JsonValue& row = rows[i];
    const std::string name = row.at("kind").text();
    if (name == "all-reduce") {
      read_all_reduce(row, &measured);
      last_all_reduce[static_cast<int>(row.at("devices").integer(2, 4096))] = i;
      continue;
    }
    const auto kind =
        std::find_if(kinds().begin(), kinds().end(), [&](const MeasuredKind& known) { return name == known.name; });
    if (kind == kinds().end())
      row.at("kind").wrong("one of matmul, convolution, softmax, copy, launch, module, all-reduce");
    measured.kernels.push_back(read_kernel(row, *kind, static_cast<int>(i)));
  }
  check_sizes(measured, root.at("measured"));
  for (const auto& [devices, last] : last_all_reduce) machine::check_reach(rows[last], measured.all_reduce[devices]);
  return measured;
}

}  // namespace automap::profile
