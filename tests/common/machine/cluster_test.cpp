#include "common/machine/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/machine/device.h"

namespace automap::machine {
namespace {

using ::testing::HasSubstr;

const char kSmall[] = R"({
  "schema": "automap.cluster/1",
  "name": "two kinds",
  "servers": [
    {"count": 2, "devices": 4, "intra_gbytes_per_s": 130, "inter_gbytes_per_s": 3.125, "device": "fast"},
    {"devices": 2, "intra_gbytes_per_s": 12, "inter_gbytes_per_s": 1.25, "device": "v100-16gb"}
  ],
  "intra_latency_us": 2, "inter_latency_us": 30,
  "devices": {"fast": {"memory_gib": 80, "relative_speed": 2.5, "peak_tflops": {"f16": 300}, "memory_gbytes_per_s": 2000}}
})";

// The error of parsing, as "message | hint"; "" when there is none.
std::string complaint(const std::string& text) {
  try {
    parse_cluster(text, "c.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return std::string(error.what()) + " | " + error.hint();
  }
  return "";
}

// kSmall with one piece of text replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Cluster, ReadsEveryField) {
  const Cluster cluster = parse_cluster(kSmall, "c.json");
  EXPECT_EQ(cluster.name, "two kinds");
  EXPECT_EQ(cluster.num_devices(), 10);
  EXPECT_EQ(cluster.num_servers(), 3);
  ASSERT_EQ(cluster.servers.size(), 2u);
  EXPECT_EQ(cluster.servers[0].count, 2);
  EXPECT_EQ(cluster.servers[0].devices, 4);
  EXPECT_EQ(cluster.servers[0].intra_gbytes_per_s, 130);
  EXPECT_EQ(cluster.servers[0].inter_gbytes_per_s, 3.125);
  EXPECT_EQ(cluster.servers[1].count, 1);
  EXPECT_EQ(cluster.intra_latency_us, 2);
  EXPECT_EQ(cluster.inter_latency_us, 30);
  EXPECT_EQ(cluster.devices.at("fast").relative_speed, 2.5);
  EXPECT_EQ(cluster.devices.at("fast").peak_tflops.at("f16"), 300);
  EXPECT_EQ(cluster.devices.at("fast").memory_gbytes_per_s, 2000);
  EXPECT_EQ(cluster.devices.at("v100-16gb").memory_gib, 16);  // from the built-in table
  EXPECT_EQ(cluster.devices.at("v100-16gb").relative_speed, 1);
}

TEST(Cluster, DefaultsAreZeroLatencyAndTheFileName) {
  const Cluster cluster = parse_cluster(
      R"({"servers": [{"devices": 1, "intra_gbytes_per_s": 1, "inter_gbytes_per_s": 1, "device": "a100-80gb"}]})",
      "some/where/lab.json");
  EXPECT_EQ(cluster.name, "lab");
  EXPECT_EQ(cluster.intra_latency_us, 0);
  EXPECT_EQ(cluster.inter_latency_us, 0);
  EXPECT_EQ(cluster.num_devices(), 1);
}

TEST(Cluster, WhatIsWrittenReadsBackTheSame) {
  std::vector<std::string> texts = {kSmall};
  for (const std::string& name : cluster_preset_names()) texts.push_back(to_json_text(load_cluster(name)));
  for (const std::string& text : texts) {
    const Cluster cluster = parse_cluster(text, "c.json");
    const std::string written = to_json_text(cluster);
    const Cluster again = parse_cluster(written, "again.json");
    EXPECT_EQ(to_json_text(again), written);
    EXPECT_EQ(again.name, cluster.name);
    ASSERT_EQ(again.servers.size(), cluster.servers.size());
    for (std::size_t i = 0; i < again.servers.size(); ++i) {
      EXPECT_EQ(again.servers[i].count, cluster.servers[i].count);
      EXPECT_EQ(again.servers[i].devices, cluster.servers[i].devices);
      EXPECT_EQ(again.servers[i].intra_gbytes_per_s, cluster.servers[i].intra_gbytes_per_s);
      EXPECT_EQ(again.servers[i].inter_gbytes_per_s, cluster.servers[i].inter_gbytes_per_s);
      EXPECT_EQ(again.servers[i].device, cluster.servers[i].device);
    }
    EXPECT_EQ(Json::parse(written)["schema"], "automap.cluster/1");
  }
}

TEST(Cluster, PricesAreThoseOfServersAndKeptInFiles) {
  Cluster cluster = load_cluster("h100-2x8");
  EXPECT_EQ(cluster.servers[0].price_per_device_hour, 0);
  EXPECT_EQ(to_json_text(cluster).find("price_per_device_hour"), std::string::npos);
  cluster.servers[0].price_per_device_hour = 2.5;
  EXPECT_EQ(parse_cluster(to_json_text(cluster), "c.json").servers[0].price_per_device_hour, 2.5);
}

TEST(Cluster, PresetsOfThePaper) {
  const std::pair<const char*, int> expected[] = {{"config-a", 2}, {"config-b", 3}, {"config-c", 4}};
  for (const auto& [name, servers] : expected) {
    const Cluster cluster = load_cluster(name);
    EXPECT_EQ(cluster.name, name);
    EXPECT_EQ(cluster.num_servers(), servers);
    EXPECT_EQ(cluster.num_devices(), 8 * servers);
    ASSERT_EQ(cluster.servers.size(), 1u);
    EXPECT_EQ(cluster.servers[0].intra_gbytes_per_s, 130);
    EXPECT_EQ(cluster.servers[0].inter_gbytes_per_s, 25.0 / 8);  // 25 Gbit/s
    EXPECT_EQ(cluster.devices.at(cluster.servers[0].device).memory_gib, 16);
  }
}

TEST(Cluster, EveryPresetPassesItsOwnCheck) {
  const std::vector<std::string> names = cluster_preset_names();
  EXPECT_THAT(names, ::testing::IsSupersetOf({"a100-40gb-2x8", "a100-4x8", "h100-4x8", "h200-2x8"}));
  for (const std::string& name : names) EXPECT_NO_THROW(check_cluster(load_cluster(name), name));
}

// Profiles and clusters know the same devices by the same names.
TEST(ClusterDevices, EveryNameOfTheTable) {
  for (const std::string& name : device_names_and_aliases()) {
    const Cluster cluster = parse_cluster(
        R"({"servers": [{"devices": 2, "intra_gbytes_per_s": 1, "inter_gbytes_per_s": 1, "device": ")" + name + "\"}]}",
        "c.json");
    EXPECT_EQ(cluster.devices.at(name).memory_gib, find_device(name)->memory_gib) << name;
    EXPECT_EQ(cluster.devices.at(name).peak_tflops, find_device(name)->peak_tflops) << name;
  }
}

TEST(Cluster, NamesNearAPresetAreFoundByTheirWords) {
  for (const auto& [asked, meant] :
       {std::pair("a100-80gb-2y8", "a100-2x8"), std::pair("a100-40gb-2y8", "a100-40gb-2x8"),
        std::pair("dgx-h100", "h100-1x8"), std::pair("h10-4x8", "h100-4x8"), std::pair("confg-b", "config-b")}) {
    try {
      load_cluster(asked);
      ADD_FAILURE() << asked;
    } catch (const Error& error) {
      EXPECT_THAT(error.hint(), HasSubstr(std::string("did you mean ") + meant + "? ")) << asked;
    }
  }
}

TEST(Cluster, NamesSayWhatIsInThem) {
  const Cluster large = load_cluster("h100-512x8@400g");
  EXPECT_EQ(large.name, "h100-512x8@400g");
  EXPECT_EQ(large.num_servers(), 512);
  EXPECT_EQ(large.num_devices(), 4096);
  EXPECT_EQ(large.servers[0].intra_gbytes_per_s, 450);
  EXPECT_EQ(large.servers[0].inter_gbytes_per_s, 400);
  EXPECT_NO_THROW(check_cluster(large, "large"));
  // Servers of other sizes have as many ports as devices, and older ones one in all.
  EXPECT_EQ(load_cluster("h100-2x4").servers[0].inter_gbytes_per_s, 200);
  EXPECT_EQ(load_cluster("v100-2x4").servers[0].inter_gbytes_per_s, 12.5);
  EXPECT_EQ(load_cluster("v100-16gb-8x8").devices.at("v100-16gb").memory_gib, 16);
  // Networks: ports of a rate, for every device or counted.
  for (const auto& [network, gbytes] : {std::pair("hdr4", 100.0), std::pair("hdr", 200.0), std::pair("100g", 100.0),
                                        std::pair("100gx1", 12.5), std::pair("edr1", 12.5), std::pair("xdr", 800.0)}) {
    const Cluster cluster = load_cluster(std::string("a100-80gb-128x8@") + network);
    EXPECT_EQ(cluster.servers[0].inter_gbytes_per_s, gbytes) << network;
    // One device sends through its part of the ports.
    EXPECT_NEAR(cluster.servers[0].links.send(false)->ms_per_byte * 1e6, 1 / (gbytes / 8), 1e-9) << network;
  }
  // Two names of one cluster are one; files and presets keep theirs.
  EXPECT_EQ(to_json_text(load_cluster("a100-80gb-2x8")), to_json_text(load_cluster("a100-2x8")));
  EXPECT_EQ(to_json_text(load_cluster("h100-80gb-4x8")), to_json_text(load_cluster("h100-4x8")));
  // More servers of a preset's kind are the preset but for their number.
  Cluster more = load_cluster("v100-16x8"), preset = load_cluster("v100-4x8");
  preset.name = more.name;
  preset.servers[0].count = 16;
  EXPECT_EQ(to_json_text(more), to_json_text(preset));
  for (const std::string& device : device_names()) {
    EXPECT_NO_THROW(check_cluster(load_cluster(device + "-3x8"), device)) << device;
  }
}

TEST(Cluster, NamesThatAreWrongSayWhy) {
  const auto message = [](const std::string& name) {
    try {
      load_cluster(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << name;
      return std::string(error.what()) + " | " + error.hint();
    }
    ADD_FAILURE() << name;
    return std::string();
  };
  for (const char* name : {"h100-513x8", "h100-99999999x99999999", "h100-999999999999x8", "h100-0x8", "h100-2x0"}) {
    EXPECT_THAT(message(name), HasSubstr("at most 4096 devices in all")) << name;
  }
  for (const char* network :
       {"", "g", "400", "400gb", "0g", "hdr0", "hdr65", "400gx", "400gx0", "999999999g", "ib", "edrhdr"}) {
    EXPECT_THAT(message(std::string("h100-2x8@") + network), HasSubstr("no network \"" + std::string(network) + "\""));
  }
  for (const char* name : {"z100-2x8", "h100-2x8x2", "h100-2", "h100-x8", "-2x8", "@400g", "h100@400g"}) {
    EXPECT_THAT(message(name), HasSubstr("DEVICE-SERVERSxDEVICES")) << name;
  }
}

TEST(Cluster, UnknownPresetListsThemAndGuesses) {
  try {
    load_cluster("config-d");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("\"config-d\""));
    EXPECT_THAT(error.hint(), HasSubstr("did you mean config-"));
    for (const std::string& name : cluster_preset_names()) EXPECT_THAT(error.hint(), HasSubstr(name));
  }
}

TEST(Cluster, FilesAreReadAndBadPathsNamed) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("automap-cluster-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "mine.json").string();
  std::ofstream(path) << kSmall;
  EXPECT_EQ(load_cluster(path).num_devices(), 10);
  for (const std::string& bad : {(folder / "missing.json").string(), folder.string()}) {
    try {
      load_cluster(bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(bad));
      EXPECT_THAT(error.hint(), HasSubstr("config-a"));
    }
  }
  std::ofstream(path, std::ios::trunc) << "";
  EXPECT_THROW(load_cluster(path), Error);
  std::filesystem::remove_all(folder);
}

TEST(Cluster, ErrorsNameTheKeyAndWhatWasExpected) {
  EXPECT_EQ(complaint(kSmall), "");
  EXPECT_THAT(complaint(with("\"devices\": 4", "\"devices\": 0")), HasSubstr("c.json: servers[0].devices: found 0"));
  EXPECT_THAT(complaint(with("\"devices\": 4", "\"devices\": -3")), HasSubstr("servers[0].devices: found -3"));
  EXPECT_THAT(complaint(with("\"devices\": 4", "\"devices\": 1.5")), HasSubstr("expected a whole number"));
  EXPECT_THAT(complaint(with("\"devices\": 4", "\"devices\": 1e300")), HasSubstr("servers[0].devices"));
  EXPECT_THAT(complaint(with("\"devices\": 4", "\"devices\": \"4\"")),
              HasSubstr("found \"4\", expected a whole number from 1"));
  EXPECT_THAT(complaint(with("\"devices\": 4", "\"devices\": 4000")), HasSubstr("8002 devices in all"));
  // The built-in types are known, too, when the file describes none.
  EXPECT_THAT(complaint(with("\"device\": \"v100-16gb\"", "\"device\": \"tpu\"")),
              HasSubstr("known: v100-16gb, v100-32gb, a100-40gb"));
  EXPECT_THAT(complaint(with("\"count\": 2", "\"count\": 2000000000")), HasSubstr("servers[0].count"));
  EXPECT_THAT(complaint(with("\"intra_gbytes_per_s\": 130", "\"intra_gbytes_per_s\": -130")),
              HasSubstr("servers[0].intra_gbytes_per_s: found -130"));
  EXPECT_THAT(complaint(with("\"inter_gbytes_per_s\": 1.25", "\"inter_gbytes_per_s\": 0")),
              HasSubstr("servers[1].inter_gbytes_per_s: found 0"));
  EXPECT_THAT(complaint(with("\"intra_latency_us\": 2", "\"intra_latency_us\": -2")), HasSubstr("intra_latency_us"));
  EXPECT_THAT(complaint(with("\"memory_gib\": 80", "\"memory_gib\": 0")), HasSubstr("devices.fast.memory_gib"));
  EXPECT_THAT(complaint(with("\"memory_gib\": 80, ", "")), HasSubstr("devices.fast.memory_gib: missing"));
  EXPECT_THAT(complaint(with("\"relative_speed\": 2.5", "\"relative_speed\": null")), HasSubstr("found null"));
  for (const char* speed : {"1e-7", "1e18"}) {
    EXPECT_THAT(complaint(with("\"relative_speed\": 2.5", std::string("\"relative_speed\": ") + speed)),
                HasSubstr("expected from 1e-6 to 1e6"));
  }
  const auto memory_of = [](const std::string& figure) {
    return complaint(with("\"memory_gbytes_per_s\": 2000", "\"memory_gbytes_per_s\": " + figure));
  };
  for (const char* figure : {"5e-324", "1e300"}) {
    EXPECT_THAT(memory_of(figure), HasSubstr("a number whose size is 0 or from 1e-30 to 1e30"));
  }
  for (const char* figure : {"1e-10", "1e13", "-5"}) {
    EXPECT_THAT(memory_of(figure), HasSubstr("expected a number of GB/s from 1e-9 to 1e12"));
  }
  EXPECT_THAT(complaint(with("{\"f16\": 300}", "{\"f16\": 0}")), HasSubstr("devices.fast.peak_tflops.f16"));
  EXPECT_THAT(complaint(with("{\"f16\": 300}", "300")), HasSubstr("expected an object"));
  EXPECT_THAT(complaint(with("\"device\": \"fast\"", "\"device\": \"fest\"")),
              ::testing::AllOf(HasSubstr("servers[0].device"), HasSubstr("did you mean fast?")));
  EXPECT_THAT(
      complaint(with("\"inter_latency_us\": 30", "\"inter_latency_ms\": 30")),
      ::testing::AllOf(HasSubstr("inter_latency_ms: unknown key"), HasSubstr("did you mean inter_latency_us?")));
  EXPECT_THAT(complaint(with("\"count\": 2", "\"cuont\": 2")), HasSubstr("servers[0].cuont: unknown key"));
  EXPECT_THAT(complaint(with("\"name\": \"two kinds\"", "\"name\": 2")), HasSubstr("name: found 2, expected a string"));
  EXPECT_THAT(complaint(with("\"intra_latency_us\": 2", "\"intra_latency_us\": 2, \"intra_latency_us\": 3")),
              HasSubstr("given twice"));
  EXPECT_THAT(complaint(with("cluster/1", "cluster/2")),
              ::testing::AllOf(HasSubstr("automap.cluster/2"), HasSubstr("newer version")));
  EXPECT_THAT(complaint(with("automap.cluster/1", "automap.plan/1")), HasSubstr("not a cluster file"));
  EXPECT_THAT(complaint(R"({"servers": []})"), HasSubstr("servers: empty"));
  EXPECT_THAT(complaint(R"({"servers": {}})"), HasSubstr("expected an array"));
  EXPECT_THAT(complaint(R"({"servers": [7]})"), HasSubstr("servers[0]: found 7, expected an object"));
  EXPECT_THAT(complaint("{}"), HasSubstr("servers: missing"));
  EXPECT_THAT(complaint("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(complaint("{\n  \"servers\" 3\n}"), HasSubstr("c.json:2:13: not JSON"));
  EXPECT_THAT(complaint(with("130", "1e999")), HasSubstr("c.json"));
}

TEST(Cluster, HostileTextEndsInAnErrorNotACrash) {
  EXPECT_NE(complaint(""), "");
  EXPECT_NE(complaint(std::string(200000, '[')), "");
  EXPECT_NE(complaint(std::string(1000, '\0')), "");
  EXPECT_NE(complaint("{\"\xff\xfe\": 1}"), "");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_NE(complaint(deep), "");
  // Every prefix of a good file is a bad file.
  const std::string good = kSmall;
  for (std::size_t end = 0; end < good.size() - 1; ++end) ASSERT_NE(complaint(good.substr(0, end)), "") << end;
}

TEST(Cluster, CheckSeesWhatOnlyCodeCanWrite) {
  Cluster cluster = load_cluster("config-a");
  cluster.servers[0].intra_gbytes_per_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(check_cluster(cluster, "here"), Error);
  cluster = load_cluster("config-a");
  cluster.intra_latency_us = std::numeric_limits<double>::infinity();
  EXPECT_THROW(check_cluster(cluster, "here"), Error);
  cluster = load_cluster("config-a");
  cluster.servers.assign(300, cluster.servers[0]);
  EXPECT_THROW(check_cluster(cluster, "here"), Error);
}

}  // namespace
}  // namespace automap::machine
