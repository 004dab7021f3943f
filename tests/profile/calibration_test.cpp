// Files of measured kernels and what is fitted to them: a device whose times the model itself made is found again, and
// what is wrong with a file is named.
#include "profile/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/hlo/hlo_text.h"
#include "profile/time_estimator.h"

namespace automap::profile {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

double module_ms(const MeasuredKernel& kernel, const machine::DeviceModel& device) {
  const graph::Graph graph = hlo::read_hlo_text(kernel_module(kernel), "kernel");
  const InstructionTimes times = estimate_times(graph, device);
  double sum = 0;
  for (auto id = graph.entry().first; id < graph.entry().first + graph.entry().count; ++id) {
    sum += times.ms[static_cast<std::size_t>(id)];
  }
  return sum;
}

// Sizes as scripts/measure_device.py has them; times 1 us.
std::vector<Json> rows() {
  std::vector<Json> made;
  const auto add = [&](Json row) {
    row["type"] = "f32";
    row["us"] = 1.0;
    made.push_back(row);
  };
  for (const int side : {64, 128, 256, 512, 1024}) {
    add({{"kind", "matmul"}, {"batch", 1}, {"m", side}, {"n", side}, {"k", side}});
  }
  add({{"kind", "matmul"}, {"batch", 1}, {"m", 512}, {"n", 512}, {"k", 64}});
  add({{"kind", "matmul"}, {"batch", 16}, {"m", 128}, {"n", 128}, {"k", 64}});
  add({{"kind", "convolution"}, {"batch", 4}, {"side", 28}, {"inputs", 128}, {"outputs", 128}, {"window", 3}});
  add({{"kind", "convolution"}, {"batch", 4}, {"side", 28}, {"inputs", 128}, {"outputs", 256}, {"window", 1}});
  for (const int rows : {256, 4096}) add({{"kind", "softmax"}, {"rows", rows}, {"columns", 1024}});
  for (const int power : {14, 18, 22, 26}) add({{"kind", "copy"}, {"elements", 1 << power}});
  add({{"kind", "launch"}, {"count", 200}});
  return made;
}

std::string file_of(const std::vector<Json>& measured, const std::string& device = "my cpu") {
  Json document = {{"schema", "automap.measurements/1"},
                   {"device", device},
                   {"framework", "test"},
                   {"cores", 2},
                   {"memory_gib", 16}};
  document["measured"] = measured;
  return document.dump();
}

// The rows with the times that the model gives a device.
std::string measured_on(const machine::DeviceModel& device, const std::string& name) {
  std::vector<Json> made = rows();
  const Measurements kernels = parse_measurements(file_of(made), "m.json");
  for (std::size_t i = 0; i < made.size(); ++i) made[i]["us"] = 1e3 * module_ms(kernels.kernels[i], device);
  return file_of(made, name);
}

TEST(Calibration, FindsADeviceThatTheModelMade) {
  machine::DeviceModel device;
  device.name = "mine";
  device.peak_tflops = {{"f32", 0.12}};
  device.memory_gbytes_per_s = 20;
  device.memory_gib = 16;
  device.launch_us = 4;
  device.vector_efficiency = 0.2;
  device.vector_convolution_efficiency = 0.3;
  device.cores = 2;
  device.matmul["f32"] = {0.8, 0.02, 40};
  const Calibration made = calibrate(parse_measurements(measured_on(device, "my cpu"), "m.json"), "", "m.json");
  EXPECT_EQ(made.device.name, "my cpu");
  EXPECT_EQ(made.device.memory_gib, 16);
  ASSERT_EQ(made.errors.size(), 5u);
  for (const Calibration::Errors& of_kind : made.errors) {
    EXPECT_LT(of_kind.median, 0.08) << of_kind.kind;
    EXPECT_LT(of_kind.largest, 0.25) << of_kind.kind;
  }
  // A kernel that it has not seen.
  const MeasuredKernel other = {"matmul", "f32", {{"batch", 1}, {"m", 384}, {"n", 700}, {"k", 300}}, "", 0};
  EXPECT_NEAR(module_ms(other, made.device) / module_ms(other, device), 1, 0.15);
  // What was fitted says so; the rest is assumed. The file form keeps it.
  EXPECT_THAT(made.device.sources.at("launch_us"), HasSubstr("m.json"));
  EXPECT_EQ(made.device.sources.count("gather_efficiency"), 0u);
  const machine::DeviceModel again = machine::parse_device(machine::to_json_text(made.device), "d.json");
  EXPECT_EQ(machine::to_json_text(again), machine::to_json_text(made.device));
  EXPECT_THAT(calibration_text(made), HasSubstr("convolution"));
}

TEST(Calibration, AKnownDeviceKeepsItsPeaks) {
  machine::DeviceModel device = *machine::find_device("a100-40gb");
  device.memory_efficiency = 0.7;
  const std::string text = measured_on(device, "NVIDIA A100-SXM4-40GB");
  for (const std::string base : {"", "a100-40gb"}) {
    const Calibration made = calibrate(parse_measurements(text, "m.json"), base == "" ? "a100-40gb" : base, "m.json");
    EXPECT_EQ(made.device.name, "a100-40gb (calibrated)");
    EXPECT_EQ(made.device.peak_tflops, device.peak_tflops);
    EXPECT_NEAR(made.device.memory_efficiency, 0.7, 0.03);
  }
  const auto refused = [&] { calibrate(parse_measurements(text, "m.json"), "h100", "m.json"); };
  try {
    refused();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                HasSubstr("m.json: device: the measurements are of 'NVIDIA A100-SXM4-40GB', not of h100"));
  }
}

TEST(Calibration, AllReducesMakeTheLink) {
  std::vector<Json> made = rows();
  for (const double bytes : {1e6, 1e7, 1e8}) {
    made.push_back({{"kind", "all-reduce"}, {"devices", 4}, {"bytes", bytes}, {"us", 20 + bytes / 1e5}});
  }
  const Calibration calibration = calibrate(parse_measurements(file_of(made), "m.json"), "", "m.json");
  EXPECT_NEAR(calibration.device.link_gbytes_per_s, 1.5 * 100, 1);
}

std::string wrong(const std::vector<Json>& measured) {
  try {
    parse_measurements(file_of(measured), "m.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(Calibration, WrongFilesNameTheElement) {
  EXPECT_EQ(wrong(rows()), "");
  std::vector<Json> made = rows();
  made[3]["us"] = -4;
  EXPECT_THAT(wrong(made), HasSubstr("m.json: measured[3].us: found -4, expected a number of microseconds above 0"));
  made = rows();
  made[3].erase("us");
  EXPECT_THAT(wrong(made), HasSubstr("measured[3].us"));
  made = rows();
  made[0]["kind"] = "matmull";
  EXPECT_THAT(wrong(made), HasSubstr("measured[0].kind: found \"matmull\", expected one of matmul, convolution"));
  made = rows();
  made[0]["m"] = 0;
  EXPECT_THAT(wrong(made), HasSubstr("measured[0].m: found 0, expected a whole number from 1"));
  made = rows();
  made[0]["type"] = "f8";
  EXPECT_THAT(wrong(made), HasSubstr("measured[0].type: found \"f8\", expected one of f32, bf16, f16"));
  made = rows();
  made[7]["window"] = 2;
  EXPECT_THAT(wrong(made), HasSubstr("measured[7].window: found 2, expected an odd number"));
  // Two sizes only, however often.
  made = rows();
  made.erase(made.begin() + 2, made.begin() + 7);
  made.push_back(made[0]);
  EXPECT_THAT(wrong(made), HasSubstr("measured: found 2 different sizes of matmul in f32, expected at least 3"));
  made = rows();
  made.erase(made.end() - 4, made.end() - 2);
  EXPECT_THAT(wrong(made), HasSubstr("found 2 different sizes of copy in f32, expected at least 3"));
  made = rows();
  made.push_back({{"kind", "all-reduce"}, {"devices", 1}, {"bytes", 10}, {"us", 1}});
  EXPECT_THAT(wrong(made), HasSubstr("devices: found 1, expected a whole number from 2"));
}

}  // namespace
}  // namespace automap::profile
