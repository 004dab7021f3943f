// HLO of the kernels that calibration files hold times of, and what a calibration says to people.
#include <string>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/text_table.h"
#include "profile/calibration.h"

namespace automap::profile {
namespace {

std::string shape(const std::string& type, std::initializer_list<std::int64_t> dims) {
  std::string text;
  for (const std::int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return type + "[" + text + "]";
}

std::string matmul(const std::string& type, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k) {
  return "  a = " + shape(type, {batch, m, k}) + " parameter(0)\n  b = " + shape(type, {batch, k, n}) +
         " parameter(1)\n  ROOT d = " + shape(type, {batch, m, n}) +
         " dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n";
}

// As large behind as in front: padded by half a window.
std::string convolution(const std::string& type, std::map<std::string, std::int64_t> s) {
  const std::string window = std::to_string(s["window"]), pad = std::to_string(s["window"] / 2);
  return "  x = " + shape(type, {s["batch"], s["side"], s["side"], s["inputs"]}) +
         " parameter(0)\n  w = " + shape(type, {s["window"], s["window"], s["inputs"], s["outputs"]}) +
         " parameter(1)\n  ROOT c = " + shape(type, {s["batch"], s["side"], s["side"], s["outputs"]}) +
         " convolution(x, w), window={size=" + window + "x" + window + " pad=" + pad + "_" + pad + "x" + pad + "_" +
         pad + "}, dim_labels=b01f_01io->b01f\n";
}

std::string softmax(const std::string& type, std::int64_t rows, std::int64_t columns) {
  const std::string all = shape(type, {rows, columns}), one = shape(type, {rows});
  return "  x = " + all + " parameter(0)\n  low = " + type + "[] constant(-1e4)\n  zero = " + type +
         "[] constant(0)\n  most = " + one + " reduce(x, low), dimensions={1}, to_apply=larger\n  mosts = " + all +
         " broadcast(most), dimensions={0}\n  less = " + all + " subtract(x, mosts)\n  e = " + all +
         " exponential(less)\n  s = " + one + " reduce(e, zero), dimensions={1}, to_apply=sum\n  sums = " + all +
         " broadcast(s), dimensions={0}\n  ROOT d = " + all + " divide(e, sums)\n";
}

std::string applied(const std::string& type, const char* name, const char* operation) {
  return std::string(name) + " {\n  p = " + type + "[] parameter(0)\n  q = " + type +
         "[] parameter(1)\n  ROOT r = " + type + "[] " + operation + "(p, q)\n}\n\n";
}

std::string copy(const std::string& type, std::int64_t elements) {
  const std::string all = shape(type, {elements});
  return "  x = " + all + " parameter(0)\n  two = " + type + "[] constant(2)\n  twos = " + all +
         " broadcast(two), dimensions={}\n  ROOT y = " + all + " multiply(x, twos)\n";
}

// Products of 16 x 16, each of the one before.
std::string launches(const std::string& type, std::int64_t count) {
  const std::string square = shape(type, {16, 16});
  std::string text = "  x0 = " + square + " parameter(0)\n";
  for (std::int64_t i = 1; i <= count; ++i) {
    text += std::string(i == count ? "  ROOT x" : "  x") + std::to_string(i) + " = " + square + " dot(x" +
            std::to_string(i - 1) + ", x0), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";
  }
  return text;
}

}  // namespace

std::string kernel_module(const MeasuredKernel& kernel) {
  if (kernel.kind == "module") return kernel.hlo;
  const std::string& type = kernel.type;
  const auto size = [&](const char* name) { return kernel.sizes.at(name); };
  std::string functions, entry;
  if (kernel.kind == "matmul") {
    entry = matmul(type, size("batch"), size("m"), size("n"), size("k"));
  } else if (kernel.kind == "convolution") {
    entry = convolution(type, kernel.sizes);
  } else if (kernel.kind == "softmax") {
    functions = applied(type, "larger", "maximum") + applied(type, "sum", "add");
    entry = softmax(type, size("rows"), size("columns"));
  } else if (kernel.kind == "copy") {
    entry = copy(type, size("elements"));
  } else {
    entry = launches(type, size("count"));
  }
  return "HloModule calibration\n\n" + functions + "ENTRY main {\n" + entry + "}\n";
}

namespace {

std::string link_text(const Calibration& calibration) {
  const double speed = calibration.device.link_gbytes_per_s;
  if (calibration.link_sizes > 0) {
    return "link " + format_number(speed) + " GB/s, fitted to " + std::to_string(calibration.link_sizes) +
           " all-reduces of " + std::to_string(calibration.link_devices) + " devices, largest error " +
           format_percent(calibration.link_error) + "\n";
  }
  return speed > 0 ? "link " + format_number(speed) + " GB/s, not measured\n"
                   : "link not measured: collectives in modules count as free\n";
}

}  // namespace

std::vector<std::string> calibration_warnings(const Calibration& calibration) {
  std::vector<std::string> lines;
  for (const Calibration::Errors& of_kind : calibration.errors) {
    if (of_kind.median <= kDoubtful) continue;
    lines.push_back("the fit misses half of the times of " + of_kind.kind + " by more than " +
                    format_percent(of_kind.median) + ": what it says of such kernels is doubtful");
  }
  if (!calibration.at_bound.empty()) {
    lines.push_back("the measurements ask for more than these constants may be: " + join(calibration.at_bound));
  }
  return lines;
}

std::string calibration_text(const Calibration& calibration) {
  const machine::DeviceModel& device = calibration.device;
  std::string text = "device " + device.name + ": f32 " + format_number(device.peak_tflops.at("f32")) +
                     " TFLOP/s, memory " + format_number(device.memory_gbytes_per_s * device.memory_efficiency) +
                     " GB/s, launch " + format_number(device.launch_us) + " us\n" + link_text(calibration);
  FittedTable table({{"kernels", FittedTable::Align::kLeft}, {"sizes"}, {"median error"}, {"largest"}});
  for (const Calibration::Errors& of_kind : calibration.errors) {
    table.add_row(
        {of_kind.kind, std::to_string(of_kind.sizes), format_percent(of_kind.median), format_percent(of_kind.largest)});
  }
  text += table.render("  ");
  for (const std::string& line : calibration_warnings(calibration)) text += "warning: " + line + "\n";
  const std::vector<std::string> assumed = machine::assumed_constants(device);
  return text + (assumed.empty() ? "" : "not measured, assumed: " + join(assumed) + "\n");
}

}  // namespace automap::profile
