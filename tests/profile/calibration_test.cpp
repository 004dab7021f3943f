// Files of measured kernels and what is fitted to them: a device whose times the model itself made is found again, and
// what is wrong with a file is named.
#include "profile/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/hlo/hlo_text.h"
#include "profile/calibration_base.h"
#include "profile/time_estimator.h"
#include "tests/temporary_folder.h"

namespace automap::profile {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

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

std::string file_of(const std::vector<Json>& measured, const std::string& device = "my cpu", double memory_gib = 16) {
  Json document = {{"schema", "automap.measurements/1"}, {"device", device}, {"framework", "test"}, {"cores", 2}};
  if (memory_gib > 0) document["memory_gib"] = memory_gib;
  document["measured"] = measured;
  return document.dump();
}

// The rows with the times that the model gives a device.
std::vector<Json> rows_on(const machine::DeviceModel& device, std::vector<Json> made = rows()) {
  const Measurements kernels = parse_measurements(file_of(made), "m.json");
  for (std::size_t i = 0; i < made.size(); ++i) made[i]["us"] = 1e3 * module_ms(kernels.kernels[i], device);
  return made;
}

std::string measured_on(const machine::DeviceModel& device, const std::string& name, double memory_gib = 16) {
  return file_of(rows_on(device), name, memory_gib);
}

machine::DeviceModel small_device() {
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
  return device;
}

Calibration calibrated(const std::string& text, const std::string& base = "") {
  return calibrate(parse_measurements(text, "m.json"), base, "m.json");
}

// The message and the hint; "": there is no error.
std::string refused(ErrorKind kind, const std::string& text, const std::string& base = "") {
  try {
    calibrated(text, base);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what() + std::string(" | ") + error.hint();
  }
  return "";
}

TEST(Calibration, FindsADeviceThatTheModelMade) {
  const machine::DeviceModel device = small_device();
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
  const std::string text = measured_on(device, "NVIDIA A100-SXM4-40GB", 39.4);
  for (const std::string base : {"", "a100-40gb"}) {
    const Calibration made = calibrated(text, base);
    EXPECT_EQ(made.device.name, "a100-40gb (calibrated)");
    EXPECT_EQ(made.device.peak_tflops, device.peak_tflops);
    EXPECT_NEAR(made.device.memory_efficiency, 0.7, 0.03);
  }
}

TEST(Calibration, DevicesAreRecognisedByNameThenByMemory) {
  const auto found = [](const std::string& device, double memory_gib) {
    return base_of(parse_measurements(file_of(rows(), device, memory_gib), "m.json"), "", "m.json").device.name;
  };
  EXPECT_EQ(found("NVIDIA A100-SXM4-40GB", 29.6), "a100-40gb");  // 0.75 of it
  EXPECT_EQ(found("NVIDIA A100-SXM4-80GB", 59.4), "a100-80gb");
  EXPECT_EQ(found("NVIDIA A100-SXM4-80GB", 0), "a100-80gb");
  EXPECT_EQ(found("NVIDIA A100", 39), "a100-40gb");
  EXPECT_EQ(found("NVIDIA A100", 60), "a100-80gb");
  EXPECT_EQ(found("Tesla V100-SXM2-32GB", 23.8), "v100-32gb");
  EXPECT_EQ(found("Tesla V100-SXM2-16GB", 15.8), "v100-16gb");
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3", 59.4), "h100");
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3", 79.2), "h100");
  EXPECT_EQ(found("NVIDIA H200", 139.8), "h200");
  // Other devices, and a slice of one.
  EXPECT_EQ(found("NVIDIA RTX A1000", 8), "");
  EXPECT_EQ(found("NVIDIA GH200 480GB", 95), "");
  EXPECT_EQ(found("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4.8), "");
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3", 19), "");
}

TEST(Calibration, MeasurementsOfAnotherDeviceAreRefused) {
  const std::string small = measured_on(*machine::find_device("a100-40gb"), "NVIDIA A100-SXM4-40GB", 39.4);
  EXPECT_THAT(
      refused(ErrorKind::kConfig, small, "h100"),
      HasSubstr("m.json: device: the measurements are of 'NVIDIA A100-SXM4-40GB' with 39.4 GiB of memory, not of "
                "h100 with 80.0 GiB"));
  EXPECT_THAT(refused(ErrorKind::kConfig, small, "a100-80gb"), HasSubstr("not of a100-80gb with 80.0 GiB"));
  const auto unnamed = [](double memory_gib) {
    return measured_on(*machine::find_device("a100-40gb"), "NVIDIA A100", memory_gib);
  };
  EXPECT_THAT(refused(ErrorKind::kConfig, unnamed(39.4), "a100-80gb"), HasSubstr("not of a100-80gb"));
  EXPECT_EQ(refused(ErrorKind::kConfig, unnamed(30), "a100-40gb"), "");
  EXPECT_EQ(refused(ErrorKind::kConfig, unnamed(0), "a100-40gb"), "");
  EXPECT_THAT(refused(ErrorKind::kConfig, unnamed(0)),
              HasSubstr("m.json: memory_gib: missing, and 'NVIDIA A100' may be any of a100-40gb, a100-80gb"));
  EXPECT_THAT(
      refused(ErrorKind::kConfig, measured_on(small_device(), "my cpu", 0)),
      HasSubstr("m.json: memory_gib: missing, and no device of the table is called 'my cpu' | add \"memory_gib\""));
}

TEST(Calibration, TimesThatTheDeviceCannotReach) {
  const machine::DeviceModel a100 = *machine::find_device("a100-40gb");
  std::vector<Json> made = rows_on(a100);
  const auto on_a100 = [&] { return refused(ErrorKind::kData, file_of(made, "NVIDIA A100-SXM4-40GB", 40)); };
  EXPECT_EQ(on_a100(), "");
  // Of a small one most may be missing. 2 · 4096³ operations cannot take 724 us.
  made[0]["us"] = 0.1;
  made.push_back(
      {{"kind", "matmul"}, {"type", "f32"}, {"batch", 1}, {"m", 4096}, {"n", 4096}, {"k", 4096}, {"us", 726.0}});
  EXPECT_EQ(on_a100(), "");
  made.back()["us"] = 722.0;
  EXPECT_THAT(on_a100(),
              HasSubstr("m.json: measured[16]: 722 us are 190 TFLOP/s, more than a100-40gb reaches (187) | are "
                        "these microseconds?"));
  made = rows_on(a100);
  made[14]["us"] = 100.0;  // 512 MiB
  EXPECT_THAT(on_a100(), HasSubstr("measured[14]: 100 us are 5369 GB/s, more than a100-40gb reaches"));
  // Milliseconds, in two sizes of devices.
  made = rows_on(small_device());
  for (Json& row : made) row["us"] = row["us"].get<double>() * 1e-6;
  EXPECT_THAT(refused(ErrorKind::kData, file_of(made)), HasSubstr("are these microseconds?"));
  made = rows_on(small_device());
  made[4]["us"] = 0.02;
  EXPECT_THAT(refused(ErrorKind::kData, file_of(made)),
              HasSubstr("measured[4]: 0.0200 us are 107374 TFLOP/s, more than any device does (100000)"));
  made = rows_on(small_device());
  made.back()["us"] = 1.0;  // 200 launches
  EXPECT_THAT(refused(ErrorKind::kData, file_of(made)),
              HasSubstr("measured[15]: 1.00 us for all are less than any kernel takes (0.01 us)"));
}

TEST(Calibration, TimesThatContradictEachOther) {
  std::vector<Json> made = rows_on(small_device());
  made.push_back(made[3]);
  EXPECT_EQ(refused(ErrorKind::kData, file_of(made)), "");
  const auto us = made[3]["us"].get<double>();
  made.back()["us"] = 2.9 * us;
  EXPECT_EQ(refused(ErrorKind::kData, file_of(made)), "");
  made.back()["us"] = 3.1 * us;
  EXPECT_THAT(refused(ErrorKind::kData, file_of(made)), HasSubstr("for the same sizes as measured[16], which took"));
  made = rows_on(small_device());
  for (int i = 0; i < 5; ++i) made[static_cast<std::size_t>(i)]["us"] = 2000.0 / (1 << (2 * i));
  EXPECT_THAT(refused(ErrorKind::kData, file_of(made)),
              HasSubstr("m.json: measured[1]: 500 us for 8 times the work of measured[0], which took 2000 us"));
}

TEST(Calibration, SaysWhatIsDoubtful) {
  EXPECT_TRUE(calibration_warnings(calibrated(measured_on(small_device(), "my cpu"))).empty());
  // Copies at less than a hundredth of the bandwidth.
  std::vector<Json> made = rows_on(*machine::find_device("a100-40gb"));
  for (Json& row : made) {
    if (row["kind"] == "copy") row["us"] = row["us"].get<double>() * 500;
  }
  const Calibration calibration = calibrated(file_of(made, "NVIDIA A100-SXM4-40GB", 40));
  const std::string text = calibration_text(calibration);
  EXPECT_THAT(text, HasSubstr("warning: the fit misses half of the times of copy by more than"));
  EXPECT_THAT(
      text, HasSubstr("warning: the measurements ask for more than these constants may be: vector_efficiency = 1.00"));
}

TEST(Calibration, WhatLaunchesDoNotSay) {
  std::vector<Json> made = rows_on(small_device());
  made.pop_back();
  const Calibration without = calibrated(file_of(made));
  EXPECT_EQ(without.device.host_us, machine::DeviceModel().host_us);
  EXPECT_EQ(without.device.sources.count("host_us"), 0u);
  EXPECT_EQ(without.device.sources.count("launch_us"), 0u);
  // A file's own launch_us, and no launch measured.
  const TemporaryFolder folder;
  machine::DeviceModel declared = small_device();
  declared.name = "my cpu";
  declared.sources = {{"launch_us", "by hand"}, {"host_us", "by hand"}};
  declared.host_us = 7;
  const std::string path = folder.file("mine.json");
  std::ofstream(path) << machine::to_json_text(declared);
  const Calibration on_file = calibrated(file_of(made), path);
  EXPECT_EQ(on_file.device.host_us, 7);
  EXPECT_EQ(on_file.device.launch_us, 4);
  EXPECT_EQ(on_file.device.sources.at("host_us"), "by hand");
  const Calibration with = calibrated(measured_on(small_device(), "my cpu"), path);
  EXPECT_EQ(with.device.host_us, 0);
  EXPECT_THAT(with.device.sources.at("host_us"), HasSubstr("launch_us: the launches were timed"));
}

TEST(Calibration, ConvolutionsFitTheEfficiencyOfTheirUnits) {
  const auto fitted = [](const Calibration& calibration, const char* name) {
    const auto source = calibration.device.sources.find(name);
    return source == calibration.device.sources.end() ? "" : source->second;
  };
  const Calibration vector = calibrated(measured_on(small_device(), "my cpu"));
  EXPECT_THAT(fitted(vector, "vector_convolution_efficiency"), HasSubstr("a fit to m.json (test)"));
  EXPECT_THAT(fitted(vector, "convolution_efficiency"), HasSubstr("plays no part"));
  EXPECT_THAT(machine::assumed_constants(vector.device), Not(Contains("convolution_efficiency")));
  EXPECT_NEAR(vector.device.vector_convolution_efficiency, 0.3, 0.06);
  // Units for bf16 only: both are measured where both types are, in any order.
  machine::DeviceModel both = small_device();
  both.peak_tflops["bf16"] = 1.2;
  both.matmul["bf16"] = {0.7, 0.02, 40};
  std::vector<Json> made = rows();
  for (const std::size_t i : {0, 1, 2, 3, 4, 5, 6, 7}) {
    Json row = rows()[i];
    row["type"] = "bf16";
    made.insert(made.begin(), row);
  }
  const Calibration mixed = calibrated(file_of(rows_on(both, made)));
  EXPECT_THAT(fitted(mixed, "vector_convolution_efficiency"), HasSubstr("a fit to m.json (test)"));
  EXPECT_THAT(fitted(mixed, "convolution_efficiency"), HasSubstr("a fit to m.json (test)"));
}

// Many launches are fitted by a few of them: what the whole chain says is the twin.
TEST(Calibration, ManyLaunchesTakeNoLonger) {
  std::vector<Json> made = rows();
  for (int i = 0; i < 20; ++i) {
    made.push_back({{"kind", "launch"}, {"type", "f32"}, {"count", 10000}, {"us", 1e4 * (30 + 0.01 * i)}});
  }
  made = rows_on(small_device(), made);
  const Calibration calibration = calibrated(file_of(made));
  const auto launch = std::find_if(calibration.errors.begin(), calibration.errors.end(),
                                   [](const Calibration::Errors& of_kind) { return of_kind.kind == "launch"; });
  ASSERT_NE(launch, calibration.errors.end());
  EXPECT_EQ(launch->sizes, 21);
  EXPECT_LT(launch->largest, 0.1);
  const Measurements again = parse_measurements(file_of(made), "m.json");
  const double whole = module_ms(again.kernels.back(), calibration.device) / again.kernels.back().ms;
  EXPECT_NEAR(std::abs(whole - 1), launch->largest, 0.01);
}

TEST(Calibration, ModulesThatCannotBeReadAreNamed) {
  std::vector<Json> made = rows_on(small_device());
  made.push_back({{"kind", "module"},
                  {"name", "x"},
                  {"hlo", "HloModule m\n\nENTRY e {\n  a = f32[2] nonsense(\n}\n"},
                  {"us", 5.0}});
  EXPECT_THAT(refused(ErrorKind::kData, file_of(made)), HasSubstr("m.json: measured[16].hlo:"));
}

TEST(Calibration, AllReducesMakeTheLink) {
  std::vector<Json> made = rows_on(small_device());
  for (const double bytes : {1e6, 1e7, 1e8}) {
    made.push_back({{"kind", "all-reduce"}, {"devices", 4}, {"bytes", bytes}, {"us", 20 + bytes / 1e5}});
  }
  const Calibration calibration = calibrated(file_of(made));
  EXPECT_NEAR(calibration.device.link_gbytes_per_s, 1.5 * 100, 1);
  EXPECT_THAT(calibration_text(calibration), HasSubstr("GB/s, fitted to 3 all-reduces of 4 devices, largest error"));
  EXPECT_THAT(calibration_text(calibrated(measured_on(small_device(), "my cpu"))),
              HasSubstr("link not measured: collectives in modules count as free"));
  EXPECT_THAT(calibration_text(calibrated(measured_on(*machine::find_device("h100"), "NVIDIA H100 80GB HBM3", 80))),
              HasSubstr("link 390 GB/s, not measured"));
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
  // An image whose pixels no number holds.
  made = rows();
  made[7]["side"] = 1 << 30;
  EXPECT_THAT(wrong(made), HasSubstr("m.json: measured[7]: found sizes that make 6.80e+23 multiplications or elements, "
                                     "expected at most 1.00e+15"));
}

// The rules of cluster files.
TEST(Calibration, AllReducesFollowTheRulesOfClusters) {
  const auto with = [](const std::vector<std::pair<double, double>>& times) {
    std::vector<Json> made = rows();
    for (const auto& [bytes, us] : times) {
      made.push_back({{"kind", "all-reduce"}, {"devices", 4}, {"bytes", bytes}, {"us", us}});
    }
    return wrong(made);
  };
  EXPECT_EQ(with({{1e5, 10}, {1e6, 20}, {1e7, 90}}), "");
  EXPECT_THAT(with({{1e5, 10}, {1e6, 9}, {1e7, 90}}),
              HasSubstr("m.json: measured[17].us: found 9.0, expected a time not below the one before"));
  EXPECT_THAT(with({{1e6, 10}, {1e5, 20}, {1e7, 90}}),
              HasSubstr("measured[17].bytes: found 100000.0, expected a size above the one before"));
  EXPECT_THAT(with({{1e5, 10}, {1e7, 90}}), HasSubstr("measured[17]: found 2 sizes, expected at least 3"));
  EXPECT_THAT(with({{1e3, 10}, {1e4, 11}, {1e5, 20}}), HasSubstr("measured[18]: the largest size is 100000 bytes"));
}

}  // namespace
}  // namespace automap::profile
