#include "profile/calibration.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "common/base/text_table.h"
#include "common/hlo/hlo_text.h"
#include "profile/calibration_base.h"
#include "profile/time_estimator.h"

namespace automap::profile {
namespace {

using machine::DeviceModel;

// Pieces of training steps are what is to be predicted: they count as so many kinds of single kernels.
constexpr double kModuleWeight = 3;
// Launches in a row are all the same: so many of them stand for all.
constexpr std::int64_t kLaunches = 4;

// A constant that is fitted: where it is, and between what.
struct Knob {
  std::string name;  // as in device_constants()
  std::function<double&(DeviceModel&)> value;
  double smallest, largest;
  const char* part = "";  // of the constant
  // True: it may end at the largest value, which is all of a peak that is itself the best that was measured.
  bool all_is_measured = false;
};

std::vector<Knob> knobs_of(const Measurements& measured, const Base& base) {
  std::set<std::string> of_kind, units;
  for (const MeasuredKernel& kernel : measured.kernels) {
    const std::string unit = base.device.units_of(kernel.type == "f32" ? "tf32" : kernel.type);
    if (kernel.kind == "matmul") units.insert(unit);
    const bool matrix = base.device.matmul_tflops(unit) > base.device.matmul_tflops("f32");
    of_kind.insert(kernel.kind == "convolution" && matrix ? "matrix convolution" : kernel.kind);
  }
  std::vector<Knob> knobs;
  const auto scalar = [&](const char* kind, const char* name, double DeviceModel::*member, double smallest,
                          double largest) {
    if (of_kind.count(kind) == 0) return;
    const auto value = [member](DeviceModel& device) -> double& { return device.*member; };
    knobs.push_back({name, value, smallest, largest, "", !base.known && member == &DeviceModel::memory_efficiency});
  };
  scalar("copy", "memory_efficiency", &DeviceModel::memory_efficiency, 0.02, 1);
  scalar("launch", "launch_us", &DeviceModel::launch_us, 0.01, 1000);
  scalar("softmax", "vector_efficiency", &DeviceModel::vector_efficiency, 0.005, 1);
  scalar("matrix convolution", "convolution_efficiency", &DeviceModel::convolution_efficiency, 0.01, 1);
  scalar("convolution", "vector_convolution_efficiency", &DeviceModel::vector_convolution_efficiency, 0.01, 1);
  for (const std::string& unit : units) {
    const auto of = [&](const char* part, double machine::MatmulEfficiency::*member, double smallest, double largest) {
      const auto value = [unit, member](DeviceModel& device) -> double& { return device.matmul[unit].*member; };
      const bool share = member == &machine::MatmulEfficiency::share;
      knobs.push_back({"matmul." + unit, value, smallest, largest, part, !base.known && share});
    };
    of(" share", &machine::MatmulEfficiency::share, 0.02, 1);
    of(" half_tiles", &machine::MatmulEfficiency::half_tiles, 1e-4, 10);
    of(" half_length", &machine::MatmulEfficiency::half_length, 1, 4096);
  }
  return knobs;
}

std::vector<std::string> at_bounds(const std::vector<Knob>& knobs, DeviceModel device) {
  constexpr double kSame = 1e-9;
  std::vector<std::string> names;
  for (const Knob& knob : knobs) {
    const double value = knob.value(device);
    const bool least = value <= knob.smallest * (1 + kSame);
    const bool most = value >= knob.largest * (1 - kSame) && !knob.all_is_measured;
    if (least || most) names.push_back(knob.name + knob.part + " = " + format_number(value));
  }
  return names;
}

// A measured kernel and what the model says of it.
class Sample {
 public:
  Sample(const MeasuredKernel& kernel, const std::string& source)
      : kernel_(kernel),
        graph_(std::make_unique<graph::Graph>(hlo::read_hlo_text(kernel_module(shortened(kernel, &times_)), source))),
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
    return std::max(sum * times_, 1e-12) / kernel_.ms;
  }

 private:
  static MeasuredKernel shortened(MeasuredKernel kernel, double* times) {
    if (kernel.kind != "launch") return kernel;
    std::int64_t& count = kernel.sizes.at("count");
    *times = static_cast<double>(count) / static_cast<double>(std::min(count, kLaunches));
    count = std::min(count, kLaunches);
    return kernel;
  }

  const MeasuredKernel& kernel_;
  double times_ = 1;  // what is in the graph
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

// By kind, in the order of the file.
std::vector<Calibration::Errors> errors_of(const std::vector<Sample>& samples, const DeviceModel& device) {
  std::vector<std::pair<std::string, std::vector<double>>> by_kind;
  for (const Sample& sample : samples) {
    const std::string& kind = sample.kernel().kind;
    auto found = std::find_if(by_kind.begin(), by_kind.end(), [&](const auto& one) { return one.first == kind; });
    if (found == by_kind.end()) found = by_kind.insert(found, {kind, {}});
    found->second.push_back(std::abs(sample.ratio(device) - 1));
  }
  std::vector<Calibration::Errors> out;
  for (auto& [kind, errors] : by_kind) {
    std::sort(errors.begin(), errors.end());
    out.push_back({kind, static_cast<int>(errors.size()), errors[errors.size() / 2], errors.back()});
  }
  return out;
}

void fit_link(const Measurements& measured, Calibration* calibration) {
  if (measured.all_reduce.empty()) return;
  const auto& [devices, times] = *measured.all_reduce.rbegin();
  const machine::CollectiveTime fitted = machine::fit_lines(times);
  calibration->device.link_gbytes_per_s = 2.0 * (devices - 1) / devices / fitted.ms_per_byte() * 1e-6;
  calibration->link_devices = devices;
  calibration->link_sizes = static_cast<int>(times.size());
  calibration->link_error = machine::largest_error(times, fitted);
}

bool has_matrix_units(const DeviceModel& device) {
  return std::any_of(device.peak_tflops.begin(), device.peak_tflops.end(), [&](const auto& peak) {
    return peak.first != "f64" && peak.second > device.matmul_tflops("f32");
  });
}

}  // namespace

Calibration calibrate(const Measurements& measured, const std::string& given, const std::string& source) {
  const Base base = base_of(measured, given, source);
  check_times(measured, base, source);
  Calibration calibration;
  DeviceModel& device = calibration.device;
  device = base.device;
  if (machine::find_device(device.name) || device.name.empty()) {
    device.name = device.name.empty() ? measured.device : device.name + " (calibrated)";
  }
  // Every kernel was timed again and again, so that the device was as warm as in a step: what is fitted holds the clock
  // that a step keeps, and what is not is made to.
  for (auto& [unit, efficiency] : device.matmul) efficiency.share *= device.sustained_clock;
  device.matmul_efficiency *= device.sustained_clock;
  device.vector_efficiency *= device.sustained_clock;
  device.sustained_clock = 1;
  device.sources["sustained_clock"] = "the measurements: they are of a device that is busy";
  std::vector<Sample> samples;
  samples.reserve(measured.kernels.size());
  for (const MeasuredKernel& kernel : measured.kernels) {
    const std::string row = source + ": measured[" + std::to_string(kernel.row) + "]";
    samples.emplace_back(kernel, kernel.kind == "module" ? row + ".hlo" : row);
  }
  const std::vector<Knob> knobs = knobs_of(measured, base);
  const std::string fitted = "a fit to " + source + (measured.framework.empty() ? "" : " (" + measured.framework + ")");
  for (const Knob& knob : knobs) {
    const std::string unit = knob.name.rfind("matmul.", 0) == 0 ? knob.name.substr(7) : "";
    if (!unit.empty()) device.matmul.emplace(unit, device.matmul_efficiency_of(unit));
    knob.value(device) = std::clamp(knob.value(device), knob.smallest, knob.largest);
    device.sources[knob.name] = fitted;
    if (knob.name != "launch_us") continue;
    device.host_us = 0;
    device.sources["host_us"] = "launch_us: the launches were timed with what the host takes for them";
  }
  if (!has_matrix_units(device)) {
    device.sources["convolution_efficiency"] = "its peaks: it has no matrix units, so this plays no part";
  }
  descend(samples, knobs, &device);
  calibration.errors = errors_of(samples, device);
  calibration.at_bound = at_bounds(knobs, device);
  fit_link(measured, &calibration);
  return calibration;
}

}  // namespace automap::profile
