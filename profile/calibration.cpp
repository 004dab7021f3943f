#include "profile/calibration.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/json_reader.h"
#include "common/hlo/hlo_text.h"
#include "profile/time_estimator.h"

namespace automap::profile {
namespace {

using machine::DeviceModel;

constexpr const char* kSchemaName = "automap.measurements/";
constexpr int kSchemaVersion = 1;
constexpr std::size_t kMostKernels = 1000;
// Pieces of training steps are what is to be predicted: they count as so many kinds of single kernels.
constexpr double kModuleWeight = 3;
constexpr const char* kHint = "scripts/measure_device.py writes such files; docs/device-model.md describes them";

struct Kind {
  const char* name;
  std::vector<std::string> sizes;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"matmul", {"batch", "m", "n", "k"}},
      {"convolution", {"batch", "side", "inputs", "outputs", "window"}},
      {"softmax", {"rows", "columns"}},
      {"copy", {"elements"}},
      {"launch", {"count"}},
      {"module", {}},
  };
  return all;
}

MeasuredKernel read_kernel(const JsonValue& row, const Kind& kind) {
  MeasuredKernel kernel;
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
  double elements = 1;
  for (const std::string& size : kind.sizes) {
    kernel.sizes[size] = row.at(size.c_str()).integer(1, 1 << 30);
    elements *= static_cast<double>(kernel.sizes[size]);
  }
  if (elements > 1e15) row.fail("sizes whose product is above 1e15");
  if (kernel.kind == "launch" && kernel.sizes["count"] > 10000) row.at("count").wrong("at most 10000");
  if (kernel.kind == "convolution" && kernel.sizes["window"] % 2 == 0) row.at("window").wrong("an odd number");
  kernel.ms = row.at("us").positive("microseconds") * 1e-3;
  return kernel;
}

void read_all_reduce(const JsonValue& row, Measurements* measured) {
  row.only_keys({"kind", "devices", "bytes", "us"});
  const auto devices = static_cast<int>(row.at("devices").integer(2, 4096));
  std::vector<machine::MeasuredTime>& times = measured->all_reduce[devices];
  const machine::MeasuredTime time{row.at("bytes").positive("bytes"), row.at("us").positive("microseconds") * 1e-3};
  if (!times.empty() && time.bytes <= times.back().bytes) row.at("bytes").wrong("a size above the one before");
  times.push_back(time);
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

// --- What is fitted ---

double flops_of(const MeasuredKernel& kernel) {
  double flops = 2;
  for (const auto& size : kernel.sizes) flops *= static_cast<double>(size.second);
  return flops;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "a100" of "a100-80gb": what a framework's name for the device has in it, too.
std::string generation(const std::string& name) {
  return lower(name.substr(0, name.find('-')));
}

DeviceModel base_of(const Measurements& measured, const std::string& base, const std::string& source) {
  const std::string named = lower(measured.device);
  if (!base.empty()) {
    const DeviceModel device = machine::load_device(base);
    if (named.find(generation(device.name)) == std::string::npos && named != lower(device.name)) {
      throw Error(ErrorKind::kConfig,
                  source + ": device: the measurements are of '" + measured.device + "', not of " + device.name,
                  "leave out --device, or give the measurements of that device");
    }
    return device;
  }
  for (const std::string& name : machine::device_names()) {
    const DeviceModel device = *machine::find_device(name);
    const bool holds = measured.memory_gib <= 0 || std::abs(device.memory_gib / measured.memory_gib - 1) < 0.15;
    if (holds && named.find(generation(name)) != std::string::npos) return device;
  }
  DeviceModel device;
  device.memory_gbytes_per_s = 0;
  for (const MeasuredKernel& kernel : measured.kernels) {
    if (kernel.kind == "matmul") {
      double& peak = device.peak_tflops[kernel.type];
      peak = std::max(peak, flops_of(kernel) / kernel.ms * 1e-9);
    } else if (kernel.kind == "copy") {
      const double bytes = 2 * (kernel.type == "f32" ? 4 : 2) * static_cast<double>(kernel.sizes.at("elements"));
      device.memory_gbytes_per_s = std::max(device.memory_gbytes_per_s, bytes / kernel.ms * 1e-6);
    }
  }
  device.memory_gib = measured.memory_gib > 0 ? measured.memory_gib : 1;
  device.cores = measured.cores;
  return device;
}

// A constant that is fitted: where it is, and between what.
struct Knob {
  std::string name;  // as in device_constants()
  std::function<double&(DeviceModel&)> value;
  double smallest, largest;
};

std::vector<Knob> knobs_of(const Measurements& measured, const DeviceModel& base) {
  std::set<std::string> of_kind, units;
  bool matrix_convolutions = false;
  for (const MeasuredKernel& kernel : measured.kernels) {
    of_kind.insert(kernel.kind);
    const std::string unit = base.units_of(kernel.type == "f32" ? "tf32" : kernel.type);
    if (kernel.kind == "matmul") units.insert(unit);
    if (kernel.kind == "convolution") matrix_convolutions = base.matmul_tflops(unit) > base.matmul_tflops("f32");
  }
  const auto scalar = [](const char* name, double DeviceModel::*member, double smallest, double largest) {
    return Knob{name, [member](DeviceModel& device) -> double& { return device.*member; }, smallest, largest};
  };
  std::vector<Knob> knobs = {scalar("memory_efficiency", &DeviceModel::memory_efficiency, 0.02, 1)};
  if (of_kind.count("launch") > 0) knobs.push_back(scalar("launch_us", &DeviceModel::launch_us, 0.01, 1000));
  if (of_kind.count("softmax") > 0) {
    knobs.push_back(scalar("vector_efficiency", &DeviceModel::vector_efficiency, 0.005, 1));
  }
  if (of_kind.count("convolution") > 0) {
    knobs.push_back(
        matrix_convolutions
            ? scalar("convolution_efficiency", &DeviceModel::convolution_efficiency, 0.01, 1)
            : scalar("vector_convolution_efficiency", &DeviceModel::vector_convolution_efficiency, 0.01, 1));
  }
  for (const std::string& unit : units) {
    const auto of = [&](double machine::MatmulEfficiency::*member, double smallest, double largest) {
      knobs.push_back({"matmul." + unit,
                       [unit, member](DeviceModel& device) -> double& { return device.matmul[unit].*member; }, smallest,
                       largest});
    };
    of(&machine::MatmulEfficiency::share, 0.02, 1);
    of(&machine::MatmulEfficiency::half_tiles, 1e-4, 10);
    of(&machine::MatmulEfficiency::half_length, 1, 4096);
  }
  return knobs;
}

// A measured kernel and what the model says of it.
class Sample {
 public:
  explicit Sample(const MeasuredKernel& kernel)
      : kernel_(kernel),
        graph_(std::make_unique<graph::Graph>(hlo::read_hlo_text(kernel_module(kernel), "calibration"))),
        structure_(std::make_unique<ModuleStructure>(*graph_)),
        estimator_(std::make_unique<TimeEstimator>(*graph_, *structure_)) {
    estimator_->measure();
  }

  const MeasuredKernel& kernel() const { return kernel_; }
  // predicted / measured
  double ratio(const DeviceModel& device) const {
    const std::vector<double> ms = estimator_->estimate_ms(device);
    const auto& entry = graph_->entry();
    double sum = 0;
    for (auto id = entry.first; id < entry.first + entry.count; ++id) sum += ms[static_cast<std::size_t>(id)];
    return std::max(sum, 1e-12) / kernel_.ms;
  }

 private:
  const MeasuredKernel& kernel_;
  std::unique_ptr<graph::Graph> graph_;
  std::unique_ptr<ModuleStructure> structure_;
  std::unique_ptr<TimeEstimator> estimator_;
};

// Weighted mean over kinds of the mean squared logarithm of the ratios: no kind counts for more because it has more
// sizes.
double loss(const std::vector<Sample>& samples, const DeviceModel& device) {
  std::map<std::string, std::pair<double, int>> kinds_seen;
  for (const Sample& sample : samples) {
    auto& [sum, count] = kinds_seen[sample.kernel().kind];
    sum += std::pow(std::log(sample.ratio(device)), 2);
    ++count;
  }
  double total = 0, weights = 0;
  for (const auto& [kind, of_kind] : kinds_seen) {
    const double weight = kind == "module" ? kModuleWeight : 1;
    total += weight * of_kind.first / of_kind.second;
    weights += weight;
  }
  return total / weights;
}

// One constant after the other by smaller and smaller factors, as long as the loss falls.
void descend(const std::vector<Sample>& samples, const std::vector<Knob>& knobs, DeviceModel* device) {
  double best = loss(samples, *device);
  for (const double factor : {4.0, 2.0, 1.4, 1.15, 1.05, 1.02}) {
    for (int round = 0; round < 50; ++round) {
      const double before = best;
      for (const Knob& knob : knobs) {
        for (const double step : {factor, 1 / factor}) {
          const double old = knob.value(*device), tried = std::clamp(old * step, knob.smallest, knob.largest);
          knob.value(*device) = tried;
          const double now = loss(samples, *device);
          if (now < best) {
            best = now;
          } else {
            knob.value(*device) = old;
          }
        }
      }
      if (!(best < before * (1 - 1e-6))) break;
    }
  }
}

std::vector<Calibration::Errors> errors_of(const std::vector<Sample>& samples, const DeviceModel& device) {
  std::vector<Calibration::Errors> out;
  for (const Kind& kind : kinds()) {
    std::vector<double> errors;
    for (const Sample& sample : samples) {
      if (sample.kernel().kind == kind.name) errors.push_back(std::abs(sample.ratio(device) - 1));
    }
    if (errors.empty()) continue;
    std::sort(errors.begin(), errors.end());
    out.push_back({kind.name, static_cast<int>(errors.size()), errors[errors.size() / 2], errors.back()});
  }
  return out;
}

}  // namespace

Measurements parse_measurements(std::string_view json_text, const std::string& source) {
  const JsonSource from{source, ErrorKind::kConfig, kHint};
  const nlohmann::ordered_json document = parse_json(json_text, from);
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
  for (const JsonValue& row : rows) {
    const std::string name = row.at("kind").text();
    if (name == "all-reduce") {
      read_all_reduce(row, &measured);
      continue;
    }
    const auto kind =
        std::find_if(kinds().begin(), kinds().end(), [&](const Kind& known) { return name == known.name; });
    if (kind == kinds().end())
      row.at("kind").wrong("one of matmul, convolution, softmax, copy, launch, module, all-reduce");
    measured.kernels.push_back(read_kernel(row, *kind));
  }
  check_sizes(measured, root.at("measured"));
  return measured;
}

Calibration calibrate(const Measurements& measured, const std::string& base, const std::string& source) {
  Calibration calibration;
  DeviceModel& device = calibration.device;
  device = base_of(measured, base, source);
  if (machine::find_device(device.name) || device.name.empty()) {
    device.name = device.name.empty() ? measured.device : device.name + " (calibrated)";
  }
  std::vector<Sample> samples;
  samples.reserve(measured.kernels.size());
  for (const MeasuredKernel& kernel : measured.kernels) samples.emplace_back(kernel);
  const std::vector<Knob> knobs = knobs_of(measured, device);
  for (const Knob& knob : knobs) {
    const std::string unit = knob.name.rfind("matmul.", 0) == 0 ? knob.name.substr(7) : "";
    if (!unit.empty()) device.matmul.emplace(unit, device.matmul_efficiency_of(unit));
    knob.value(device) = std::clamp(knob.value(device), knob.smallest, knob.largest);
    device.sources[knob.name] = "fitted to " + source + " (" + measured.framework + ")";
  }
  if (device.sources.count("launch_us") > 0) {
    // The launches were timed in a row: what the host takes for them is in there.
    device.host_us = 0;
    device.sources["host_us"] = device.sources["launch_us"];
  }
  descend(samples, knobs, &device);
  calibration.errors = errors_of(samples, device);
  if (!measured.all_reduce.empty()) {
    const auto& [devices, times] = *measured.all_reduce.rbegin();
    if (times.size() >= 2) {
      device.link_gbytes_per_s = 2.0 * (devices - 1) / devices / machine::fit_lines(times).ms_per_byte() * 1e-6;
    }
  }
  return calibration;
}

}  // namespace automap::profile
