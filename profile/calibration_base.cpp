#include "profile/calibration_base.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/text_table.h"
#include "profile/kernel_model.h"

namespace automap::profile {
namespace {

using machine::DeviceModel;

// Memory that frameworks show of a device's: less what is taken, or the share that their pool may have.
constexpr double kLeastShown = 0.5, kMostShown = 1.2;
// Measured against peaks: clocks that boost, sheets that round.
constexpr double kMostOfPeak = 1.2;
// Caches are faster than memory; nothing below so many bytes says anything about it.
constexpr double kBeyondCaches = 512e6, kCachesPerMemory = 8;
// Bounds that no existing device reaches.
constexpr double kAbsurdTflops = 1e5, kAbsurdGbytesPerS = 1e6, kAbsurdMs = 1e-5;
// The time of an empty call is subtracted from measured times, though it may have hidden behind the kernel: a time may
// be short by so much. Differences of half of it mean nothing.
constexpr double kHiddenMs = 0.01, kNoiseMs = kHiddenMs / 2;
// A kernel with kMuchMore times the work has to take at least kLeastOfTime of the time.
constexpr double kMuchMore = 8, kLeastOfTime = 0.5;
constexpr const char* kUnitHint = "are these microseconds? \"us\" is what one call takes, in microseconds";

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto letter = [&](std::size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !letter(at - 1)) && !letter(at + word.size())) return true;
  }
  return false;
}

// "a100" and "80gb" of "a100-80gb"; "h100" and "".
std::string generation(const std::string& name) {
  return lower(name.substr(0, name.find('-')));
}
std::string variant(const std::string& name) {
  const std::size_t dash = name.find('-');
  return dash == std::string::npos ? "" : lower(name.substr(dash + 1));
}

bool memory_fits(const Measurements& measured, const DeviceModel& device) {
  const double shown = measured.memory_gib / device.memory_gib;
  return measured.memory_gib <= 0 || (shown >= kLeastShown && shown <= kMostShown);
}

// The device of the table that was measured. A slice of one is none.
std::optional<DeviceModel> recognised(const Measurements& measured, const std::string& source) {
  const std::string named = lower(measured.device);
  if (has_word(named, "mig")) return std::nullopt;
  std::vector<std::string> all, by_name;
  for (const std::string& name : machine::device_names()) {
    if (!has_word(named, generation(name))) continue;
    all.push_back(name);
    if (!variant(name).empty() && has_word(named, variant(name))) by_name.push_back(name);
  }
  if (all.empty()) return std::nullopt;
  const std::vector<std::string>& open = by_name.empty() ? all : by_name;
  if (open.size() > 1 && measured.memory_gib <= 0) {
    throw Error(ErrorKind::kConfig,
                source + ": memory_gib: missing, and '" + measured.device + "' may be any of " + join(open),
                "add \"memory_gib\": the device's memory in GiB");
  }
  const auto off = [&](const std::string& name) {
    return std::abs(std::log(machine::find_device(name)->memory_gib / measured.memory_gib));
  };
  const std::string nearest =
      open.size() == 1 ? open[0]
                       : *std::min_element(open.begin(), open.end(),
                                           [&](const std::string& a, const std::string& b) { return off(a) < off(b); });
  const DeviceModel device = *machine::find_device(nearest);
  return memory_fits(measured, device) ? std::optional<DeviceModel>(device) : std::nullopt;
}

[[noreturn]] void other_device(const Measurements& measured, const DeviceModel& device, const std::string& source) {
  const std::string memory =
      measured.memory_gib > 0 ? " with " + format_number(measured.memory_gib) + " GiB of memory" : "";
  throw Error(ErrorKind::kConfig,
              source + ": device: the measurements are of '" + measured.device + "'" + memory + ", not of " +
                  device.name + " with " + format_number(device.memory_gib) + " GiB",
              "leave out --device, or give the measurements of that device");
}

DeviceModel given(const Measurements& measured, const std::string& base, const std::string& source) {
  DeviceModel device = machine::load_device(base);
  const std::string named = lower(measured.device);
  const bool same_name = has_word(named, generation(device.name)) || named == lower(device.name);
  if (!same_name || !memory_fits(measured, device)) other_device(measured, device, source);
  if (variant(device.name).empty() || !machine::find_device(device.name)) return device;
  // In a generation with several sizes of memory, the name must not be that of another size.
  const std::vector<std::string> names = machine::device_names();
  const bool others_name = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return generation(name) == generation(device.name) && name != device.name && !variant(name).empty() &&
           has_word(named, variant(name));
  });
  if (others_name) other_device(measured, device, source);
  if (measured.memory_gib <= 0) return device;
  const std::optional<DeviceModel> seen = recognised(measured, source);
  if (seen && seen->name != device.name) other_device(measured, device, source);
  return device;
}

double bytes_of(const MeasuredKernel& kernel) {
  return 2 * (kernel.type == "f32" ? 4 : 2) * kernel_work(kernel);
}

DeviceModel best_measured(const Measurements& measured, const std::string& source) {
  if (measured.memory_gib <= 0) {
    throw Error(ErrorKind::kConfig,
                source + ": memory_gib: missing, and no device of the table is called '" + measured.device + "'",
                "add \"memory_gib\": the device's memory in GiB");
  }
  DeviceModel device;
  for (const MeasuredKernel& kernel : measured.kernels) {
    if (kernel.kind == "matmul") {
      double& peak = device.peak_tflops[kernel.type];
      peak = std::max(peak, 2 * kernel_work(kernel) / kernel.ms * 1e-9);
    } else if (kernel.kind == "copy") {
      device.memory_gbytes_per_s = std::max(device.memory_gbytes_per_s, bytes_of(kernel) / kernel.ms * 1e-6);
    }
  }
  device.memory_gib = measured.memory_gib;
  device.cores = measured.cores;
  return device;
}

std::string place(const MeasuredKernel& kernel, const std::string& source) {
  return source + ": measured[" + std::to_string(kernel.row) + "]";
}

std::string microseconds(const MeasuredKernel& kernel) {
  return format_number(kernel.ms * 1e3) + " us";
}

void check_rate(const MeasuredKernel& kernel, const Base& base, const std::string& source) {
  // `work` in 1e9 operations or bytes, `most` of them in a second.
  const auto check = [&](double work, const char* unit, double most, double absurd) {
    const double limit = base.known ? most : absurd;
    if (kernel.ms + (base.known ? kHiddenMs : 0) >= work / limit * 1e3) return;
    const std::string whose = base.known ? base.device.name + " reaches" : "any device does";
    const double shown = unit[0] == 'T' ? 1e-3 : 1;
    throw Error(ErrorKind::kData,
                place(kernel, source) + ": " + microseconds(kernel) + " are " +
                    format_number(work / kernel.ms * 1e3 * shown) + " " + unit + ", more than " + whose + " (" +
                    format_number(limit * shown) + ")",
                kUnitHint);
  };
  const double calls = kernel.kind == "launch" ? kernel_work(kernel) : 1;
  if (kernel.ms / calls < kAbsurdMs) {
    throw Error(ErrorKind::kData,
                place(kernel, source) + ": " + microseconds(kernel) + (calls > 1 ? " for all" : "") +
                    " are less than any kernel takes (0.01 us)",
                kUnitHint);
  }
  if (kernel.kind == "matmul" || kernel.kind == "convolution") {
    const double saving = kernel.kind == "convolution" && kernel.sizes.at("window") > 1 ? kWinogradSaving : 1;
    const double peak = base.device.matmul_tflops(kernel.type == "f32" ? "tf32" : kernel.type);
    check(2e-9 * kernel_work(kernel), "TFLOP/s", 1e3 * peak * kMostOfPeak * saving, 1e3 * kAbsurdTflops);
  } else if (kernel.kind == "copy" || kernel.kind == "softmax") {
    const double most = kMostOfPeak * (bytes_of(kernel) < kBeyondCaches ? kCachesPerMemory : 1);
    check(1e-9 * bytes_of(kernel), "GB/s", base.device.memory_gbytes_per_s * most, kAbsurdGbytesPerS);
  }
}

// As large in every size.
bool contains(const MeasuredKernel& large, const MeasuredKernel& small) {
  return std::all_of(small.sizes.begin(), small.sizes.end(),
                     [&](const auto& size) { return large.sizes.at(size.first) >= size.second; });
}

void check_pair(const MeasuredKernel& a, const MeasuredKernel& b, const std::string& source) {
  if (a.kind != b.kind || a.type != b.type || a.kind == "module" || a.ms <= b.ms + kNoiseMs) return;
  const auto told = [&](const std::string& what) {
    throw Error(ErrorKind::kData,
                place(b, source) + ": " + microseconds(b) + " for " + what + " measured[" + std::to_string(a.row) +
                    "], which took " + microseconds(a),
                "measure both again on a device that nothing else uses");
  };
  if (a.sizes == b.sizes && a.ms > kTwiceApart * b.ms) told("the same sizes as");
  if (contains(b, a) && kernel_work(b) >= kMuchMore * kernel_work(a) && b.ms < kLeastOfTime * a.ms) {
    told(std::to_string(std::llround(kernel_work(b) / kernel_work(a))) + " times the work of");
  }
}

}  // namespace

double kernel_work(const MeasuredKernel& kernel) {
  double work = 1;
  for (const auto& [name, size] : kernel.sizes) {
    const auto value = static_cast<double>(size);
    work *= name == "side" || name == "window" ? value * value : value;
  }
  return work;
}

Base base_of(const Measurements& measured, const std::string& base, const std::string& source) {
  if (!base.empty()) return {given(measured, base, source), true};
  if (const std::optional<DeviceModel> device = recognised(measured, source)) return {*device, true};
  return {best_measured(measured, source), false};
}

void check_times(const Measurements& measured, const Base& base, const std::string& source) {
  for (const MeasuredKernel& kernel : measured.kernels) check_rate(kernel, base, source);
  for (const MeasuredKernel& a : measured.kernels) {
    for (const MeasuredKernel& b : measured.kernels) check_pair(a, b, source);
  }
}

}  // namespace automap::profile
