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
  EXPECT_THAT(device_names(), testing::ElementsAre("v100-16gb", "v100-32gb", "a100-40gb", "a100-80gb", "h100", "h200",
                                                   "b200", "a10", "l4", "l40s", "rtx4090", "h20", "gb200", "mi300x"));
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

TEST(DeviceTable, ChangesAreGivenBehindAName) {
  const std::string name = "a100-80gb:host_us=40,memory_gib=78.5";
  const DeviceModel changed = load_device(name), plain = load_device("a100-80gb");
  EXPECT_EQ(changed.name, name);  // in no table: it stands for the devices of a cluster
  EXPECT_EQ(changed.host_us, 40);
  EXPECT_EQ(changed.memory_gib, 78.5);
  EXPECT_EQ(changed.sources.at("host_us"), "as given");
  DeviceModel back = changed;
  back.name = plain.name;
  back.host_us = plain.host_us;
  back.memory_gib = plain.memory_gib;
  back.sources.erase("host_us");
  EXPECT_EQ(to_json_text(back), to_json_text(plain));
  for (const auto& [wrong, what] :
       {std::pair("h100:host_us=-1", "host_us"), std::pair("h100:memory_gib=0", "memory_gib"),
        std::pair("h100:vector_efficiency=1.5", "a share above 0"), std::pair("h100:host=4", "expected KEY=VALUE"),
        std::pair("h100:host_us=", "expected KEY=VALUE"), std::pair("h100:host_us=4,", "expected KEY=VALUE"),
        std::pair("h100:host_us=forty", "host_us"), std::pair("h100:host_us=4,host_us=5", "comes twice"),
        std::pair("tpu:host_us=4", "unknown device 'tpu'")}) {
    EXPECT_THAT(config_error([&name = wrong] { load_device(name); }), HasSubstr(what)) << wrong;
  }
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

TEST(DeviceTable, FusedAttentionWhereBf16HasUnitsOfItsOwn) {
  for (const std::string& name : device_names()) {
    EXPECT_EQ(load_device(name).has_fused_attention(), name.rfind("v100", 0) != 0) << name;
  }
  DeviceModel measured;
  measured.peak_tflops = {{"f32", 10}};
  EXPECT_FALSE(measured.has_fused_attention());
  measured.peak_tflops["f16"] = 90;
  EXPECT_FALSE(measured.has_fused_attention());
  for (const double emulated : {2.0, 10.0, 14.0}) {
    measured.peak_tflops["bf16"] = emulated;
    EXPECT_FALSE(measured.has_fused_attention()) << emulated;
  }
  measured.peak_tflops["bf16"] = 90;
  EXPECT_TRUE(measured.has_fused_attention());
  measured.peak_tflops["tf32"] = 80;
  EXPECT_FALSE(measured.has_fused_attention());
}

TEST(DeviceTable, EfficienciesAreSharesAndFollowTheUnits) {
  for (const std::string& name : device_names()) {
    const DeviceModel device = load_device(name);
    for (const double share :
         {device.memory_efficiency, device.gather_efficiency, device.scatter_efficiency, device.vector_efficiency,
          device.matmul_efficiency, device.convolution_efficiency, device.vector_convolution_efficiency}) {
      EXPECT_GT(share, 0) << name;
      EXPECT_LE(share, 1) << name;
    }
    for (const char* type : {"f64", "f32", "tf32", "f16", "bf16", "f8", "i8"}) {
      const MatmulEfficiency efficiency = device.matmul_efficiency_of(type);
      EXPECT_GT(efficiency.share, 0) << name << " " << type;
      EXPECT_LE(efficiency.share, 1) << name << " " << type;
      EXPECT_EQ(efficiency.share, device.matmul_efficiency_of(device.units_of(type)).share) << name << " " << type;
    }
  }
  const DeviceModel volta = load_device("v100-16gb");
  EXPECT_EQ(volta.units_of("bf16"), "f32");
  EXPECT_EQ(volta.units_of("f8"), "f16");
  EXPECT_EQ(volta.matmul_efficiency_of("bf16").share, volta.matmul.at("f32").share);
  EXPECT_EQ(volta.matmul_efficiency_of("f8").share, volta.matmul.at("f16").share);
}

TEST(DeviceTable, ConstantsNameTheirSourceOrAreAssumptions) {
  for (const std::string& name : device_names()) {
    const DeviceModel device = load_device(name);
    std::vector<std::string> constants, without_source;
    for (const DeviceConstant& constant : device_constants(device)) {
      constants.push_back(constant.name);
      EXPECT_FALSE(constant.value.empty());
      if (constant.source.empty()) without_source.push_back(constant.name);
    }
    EXPECT_EQ(assumed_constants(device), without_source) << name;
    // A source for something that is no constant would never be shown.
    for (const auto& [constant, source] : device.sources) EXPECT_THAT(constants, testing::Contains(constant)) << name;
  }
  EXPECT_THAT(
      assumed_constants(load_device("v100-16gb")),
      testing::ElementsAre("launch_us", "host_us", "matmul_efficiency", "convolution_efficiency", "matmul.f64"));
  EXPECT_THAT(assumed_constants(load_device("h100")), testing::Not(testing::Contains("matmul.bf16")));
  // Fused kernels are what compilers make; anything else has to be said, and where from.
  EXPECT_THAT(assumed_constants(load_device("b200:elementwise_passes=2")),
              testing::Not(testing::Contains("elementwise_passes")));
  DeviceModel eager = load_device("b200");
  eager.elementwise_passes = 2;
  EXPECT_THAT(assumed_constants(eager), testing::Contains("elementwise_passes"));
  // Steps on a B200 were not seen.
  EXPECT_EQ(load_device("h100").sustained_clock, 0.71);
  EXPECT_THAT(assumed_constants(load_device("b200")), testing::Contains("sustained_clock"));
}

TEST(DeviceTable, FilesGiveConstantsAndWhichOfThemAreAssumptions) {
  const DeviceModel device = parse_device(
      R"({"name": "mine", "peak_tflops": {"f32": 10, "f16": 80}, "memory_gbytes_per_s": 500, "memory_gib": 8,
          "memory_efficiency": 0.7, "host_us": 9, "scatter_efficiency": 0.05, "matmul_overlap": 0,
          "matmul": {"f16": {"share": 0.5, "half_length": 30}},
          "sources": {"host_us": "a guess by eye"}, "assumptions": ["scatter_efficiency"]})",
      "x");
  EXPECT_EQ(device.matmul_efficiency_of("f16").share, 0.5);
  EXPECT_EQ(device.matmul_efficiency_of("bf16").share, 0.9);  // runs on f32 units
  EXPECT_EQ(device.matmul_efficiency_of("f16").half_length, 30);
  EXPECT_EQ(device.matmul_efficiency_of("f16").half_tiles, MatmulEfficiency().half_tiles);
  EXPECT_EQ(device.matmul_overlap, 0);
  EXPECT_EQ(device.sources.at("host_us"), "a guess by eye");
  EXPECT_EQ(device.sources.at("matmul.f16"), "the device file");
  const std::vector<std::string> assumed = assumed_constants(device);
  EXPECT_THAT(assumed, testing::IsSupersetOf({"scatter_efficiency", "launch_us", "matmul.f32"}));
  EXPECT_THAT(assumed, testing::Not(testing::Contains("memory_efficiency")));
  EXPECT_EQ(assumed_constants(parse_device(to_json_text(device), "y")), assumed);
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
      {R"({"name": "a", "host_us": "fast", )" + rest, "host_us: found"},
      {R"({"name": "a", "elementwise_passes": 0.5, )" + rest, "elementwise_passes: found 0.5"},
      {R"({"name": "a", "gather_efficiency": 0, )" + rest, "gather_efficiency: found 0"},
      {R"({"name": "a", "matmul_overlap": 2, )" + rest, "matmul_overlap: found 2"},
      {R"({"name": "a", "matmul": {"f16": {"share": 0.5}}, )" + rest, "it has no 'f16'"},
      {R"({"name": "a", "matmul": {"f32": {}}, )" + rest, "matmul.f32.share: missing"},
      {R"({"name": "a", "matmul": {"f32": {"share": 1.1}}, )" + rest, "matmul.f32.share: found 1.1"},
      {R"({"name": "a", "matmul": {"f32": {"share": 1, "half": 2}}, )" + rest, "half: unknown key"},
      {R"({"name": "a", "sources": {"colour": "me"}, )" + rest, "'colour' is none"},
      {R"({"name": "a", "assumptions": ["colour"], )" + rest, "expected the name of a constant"},
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
