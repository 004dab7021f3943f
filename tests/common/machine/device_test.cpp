// The table of devices, their other names and the file form.
#include "common/machine/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "common/base/error.h"

namespace automap::machine {
namespace {

using testing::HasSubstr;

std::string config_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return std::string(error.what()) + " | " + error.hint();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(DeviceTable, NamesAndAliases) {
  EXPECT_THAT(device_names(),
              testing::ElementsAre("v100-16gb", "v100-32gb", "a100-40gb", "a100-80gb", "h100", "h200", "b200"));
  for (const std::string& name : device_names()) {
    const DeviceModel device = load_device(name);
    EXPECT_EQ(device.name, name);
    EXPECT_GT(device.matmul_tflops("f32"), 1);
    EXPECT_GE(device.matmul_tflops("f16"), device.matmul_tflops("f32"));
    EXPECT_GT(device.memory_gib, 1);
    EXPECT_GT(device.cores, 10);
  }
  EXPECT_EQ(load_device("h100-80gb").name, "h100");
  const std::string message = config_error([] { load_device("tpu-v9"); });
  EXPECT_THAT(message, HasSubstr("tpu-v9"));
  EXPECT_THAT(message, HasSubstr("v100-16gb, v100-32gb"));
}

TEST(DeviceTable, TypesFallBackToWiderOnes) {
  const DeviceModel volta = load_device("v100-16gb");
  EXPECT_EQ(volta.matmul_tflops("bf16"), 15.7);  // no bfloat16 units
  EXPECT_EQ(volta.matmul_tflops("tf32"), 15.7);
  EXPECT_EQ(volta.matmul_tflops("f8"), 125);
  DeviceModel plain;
  plain.peak_tflops = {{"f32", 32}};
  EXPECT_EQ(plain.matmul_tflops("f64"), 1);
  EXPECT_EQ(plain.matmul_tflops("f8"), 32);
}

TEST(DeviceTable, FileRoundTrip) {
  for (const std::string& name : device_names()) {
    const DeviceModel device = load_device(name);
    const DeviceModel again = parse_device(to_json_text(device), "device.json");
    EXPECT_EQ(to_json_text(again), to_json_text(device));
    EXPECT_EQ(again.peak_tflops, device.peak_tflops);
    EXPECT_EQ(again.cores, device.cores);
  }
  const DeviceModel small = parse_device(
      R"({"name": "mine", "peak_tflops": {"f32": 10}, "memory_gbytes_per_s": 500, "memory_gib": 8, "launch_us": 0})",
      "x");
  EXPECT_EQ(small.launch_us, 0);
  EXPECT_EQ(small.link_gbytes_per_s, 0);
}

TEST(DeviceTable, WrongFilesNameTheKey) {
  const std::string rest = R"("peak_tflops": {"f32": 10}, "memory_gbytes_per_s": 500, "memory_gib": 8})";
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"[1]", "expected an object"},
      {R"({"name": "a"})", "peak_tflops: missing"},
      {R"({"name": 3, )" + rest, "name: found 3"},
      {R"({"name": "a", "colour": 1, )" + rest, "colour: unknown key"},
      {R"({"name": "a", "launch_us": -1, )" + rest, "launch_us: found -1"},
      {R"({"name": "a", "matmul_efficiency": 1.5, )" + rest, "matmul_efficiency: found 1.5"},
      {R"({"name": "a", "cores": 1.5, )" + rest, "cores"},
      {R"({"name": "a", "schema": "automap.device/2", )" + rest, "newer"},
      {R"({"name": "a", "peak_tflops": {"f16": 3}, "memory_gbytes_per_s": 5, "memory_gib": 8})",
       "peak_tflops.f32: missing"},
      {R"({"name": "a", "peak_tflops": {"f32": "fast"}, "memory_gbytes_per_s": 5, "memory_gib": 8})",
       "peak_tflops.f32"},
      {R"({"name": "a", "peak_tflops": {"f32": 1, "f31": 1}, "memory_gbytes_per_s": 5, "memory_gib": 8})", "f31"},
      {std::string(100000, '['), "deep"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(config_error([&] { parse_device(c.first, "d.json"); }),
                testing::AllOf(HasSubstr("d.json"), HasSubstr(c.second)));
  }
}

}  // namespace
}  // namespace automap::machine
