// Measured links in cluster files: tables, lines, logs of nccl-tests, known devices; and what is wrong with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/error.h"
#include "common/machine/cluster.h"
#include "common/machine/nccl_log.h"

namespace automap::machine {
namespace {

using ::testing::HasSubstr;

// A cluster of one kind of server with `collectives`; `intra` a member of the server, or "".
std::string text_of(const std::string& collectives, const std::string& intra = "") {
  return R"({"schema": "automap.cluster/1", "servers": [{"count": 2, "devices": 4, )" + intra +
         R"("inter_gbytes_per_s": 12.5, "device": "mine"}], "devices": {"mine": {"memory_gib": 8}})" +
         (collectives.empty() ? "" : ", \"collectives\": " + collectives) + "}";
}

template <typename Read>
std::string complaint_of_reading(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return std::string(error.what()) + " | " + error.hint();
  }
  return "";
}

std::string wrong(const std::string& collectives) {
  return complaint_of_reading([&] { parse_cluster(text_of(collectives), "c.json"); });
}

TEST(ClusterLinks, ATableBecomesLines) {
  const Cluster cluster = parse_cluster(
      text_of(R"([{"operation": "all-reduce", "devices": 4, "bytes": [65536, 1048576, 16777216, 268435456],
                   "ms": [0.1, 0.2, 1.8, 27.4]}, {"operation": "send", "lines": [{"latency_us": 20, "gbytes_per_s": 40}]}])"),
      "c.json");
  const MeasuredLinks& links = cluster.servers[0].links;
  ASSERT_EQ(links.rows.size(), 2u);
  const CollectiveTime four = *links.inside(CollectiveKind::kAllReduce, 4);
  for (const auto& [bytes, ms] : {std::pair(65536.0, 0.1), {1048576.0, 0.2}, {16777216.0, 1.8}, {268435456.0, 27.4}}) {
    EXPECT_NEAR(four.ms(bytes), ms, 0.1 * ms);
  }
  // No figure for the inside: bus bandwidth of the table's own largest row, within 10 %.
  EXPECT_NEAR(cluster.servers[0].intra_gbytes_per_s, 1.5 * 268435456 / 27.4e6, 1.5);
  EXPECT_DOUBLE_EQ(links.send(true)->latency_ms, 0.02);
  EXPECT_DOUBLE_EQ(links.send(true)->ms_per_byte, 1 / 40e6);
  // Written and read again.
  const Cluster again = parse_cluster(to_json_text(cluster), "again.json");
  EXPECT_EQ(to_json_text(again), to_json_text(cluster));
  EXPECT_NEAR(again.servers[0].links.inside(CollectiveKind::kAllReduce, 4)->ms(1e7), four.ms(1e7), 1e-6);
}

TEST(ClusterLinks, KnownDevicesNeedNoSpeedInside) {
  std::string text = text_of("");
  text.replace(text.find("\"mine\""), 6, "\"h100-80gb\"");
  const Cluster cluster = parse_cluster(text, "c.json");
  EXPECT_EQ(cluster.servers[0].links, known_links("h100"));
  EXPECT_NEAR(cluster.servers[0].intra_gbytes_per_s, 402, 40);
  // A figure in the file counts.
  text.replace(text.find("\"inter"), 0, "\"intra_gbytes_per_s\": 300, ");
  EXPECT_TRUE(parse_cluster(text, "c.json").servers[0].links.empty());
  EXPECT_THAT(complaint_of_reading([] { parse_cluster(text_of(""), "c.json"); }),
              HasSubstr("servers[0]: expected intra_gbytes_per_s, or an all-reduce inside a server among collectives"));
}

TEST(ClusterLinks, PresetsAreMeasuredButThePapers) {
  for (const std::string& name : cluster_preset_names()) {
    const bool paper = name.rfind("config-", 0) == 0;
    for (const ServerGroup& servers : load_cluster(name).servers) {
      EXPECT_EQ(servers.links.empty(), paper) << name;
      EXPECT_EQ(servers.links.send(false).has_value(), !paper) << name;
    }
  }
}

TEST(ClusterLinks, WhatIsAssumedIsSaid) {
  const auto of = [](const char* preset) { return load_cluster(preset).servers[0].links; };
  EXPECT_EQ(of("v100-2x8").assumed(true), false);
  EXPECT_EQ(of("v100-2x8").assumed(false), false);
  EXPECT_EQ(of("h100-2x8").assumed(true), false);
  EXPECT_EQ(of("h100-2x8").assumed(false), true);  // an eighth of the port
  EXPECT_EQ(of("a100-2x8").assumed(true), true);   // an H100's lines
  EXPECT_EQ(of("h200-2x8").assumed(true), true);
  EXPECT_EQ(of("config-a").assumed(true), std::nullopt);
  EXPECT_EQ(known_links("h100").assumed(false), std::nullopt);
  // Written and read again.
  const Cluster cluster = load_cluster("a100-2x8");
  EXPECT_EQ(parse_cluster(to_json_text(cluster), "again.json").servers[0].links.assumed(true), true);
  // A user's own rows are measured.
  const Cluster own = parse_cluster(
      text_of(R"([{"operation": "all-reduce", "devices": 4, "lines": [{"latency_us": 20, "gbytes_per_s": 40}]}])"),
      "c.json");
  EXPECT_EQ(own.servers[0].links.assumed(true), false);
  EXPECT_EQ(own.servers[0].links.assumed(false), std::nullopt);
}

TEST(ClusterLinks, OwnMeasurementsAddToKnownLinks) {
  const auto links_with = [](const std::string& row) {
    std::string text = text_of("[" + row + "]");
    text.replace(text.find("\"mine\""), 6, "\"h100-80gb\"");
    return parse_cluster(text, "c.json").servers[0];
  };
  const std::string line = R"("lines": [{"latency_us": 20, "gbytes_per_s": 40}]})";
  const ServerGroup send = links_with(R"({"operation": "send", )" + line);
  EXPECT_DOUBLE_EQ(send.links.send(true)->ms_per_byte, 1 / 40e6);
  EXPECT_EQ(send.links.inside(CollectiveKind::kAllReduce, 8),
            known_links("h100").inside(CollectiveKind::kAllReduce, 8));
  EXPECT_NEAR(send.intra_gbytes_per_s, 402, 40);
  const ServerGroup two = links_with(R"({"operation": "all-reduce", "devices": 8, "servers": 2, )" + line);
  EXPECT_DOUBLE_EQ(two.links.across(CollectiveKind::kAllReduce, 8, 2)->ms_per_byte(), 1 / 40e6);
  EXPECT_EQ(two.links.send(true), known_links("h100").send(true));
  // An own all-reduce inside a server says what all others do.
  const ServerGroup inside = links_with(R"({"operation": "all-reduce", "devices": 4, )" + line);
  EXPECT_EQ(inside.links.rows.size(), 1u);
}

TEST(ClusterLinks, WrongTablesNameTheElement) {
  const std::string row = R"({"operation": "all-reduce", "devices": 4, )";
  EXPECT_THAT(wrong(R"([{"operation": "all-reduse", "devices": 4, "bytes": [1], "ms": [1]}])"),
              HasSubstr("collectives[0].operation: found \"all-reduse\", expected one of all-reduce, reduce-scatter"));
  EXPECT_THAT(wrong("[" + row + R"("bytes": [1e5, 1e6, 1e7], "ms": [0.1, 0.2]}])"),
              HasSubstr("collectives[0].ms: found 2 times for 3 sizes, expected one for each"));
  EXPECT_THAT(wrong("[" + row + R"("bytes": [1e5, 1e6, 1e7], "ms": [0.1, null, 1]}])"),
              HasSubstr("collectives[0].ms[1]: found null, expected a number of ms above 0"));
  EXPECT_THAT(wrong("[" + row + R"("bytes": [1e5, 1e6, 1e7], "ms": [0.1, -0.2, 1]}])"),
              HasSubstr("collectives[0].ms[1]: found -0.2, expected a number of ms above 0"));
  EXPECT_THAT(wrong("[" + row + R"("bytes": [1e5, 1e6, 1e7], "ms": [0.1, 0.4, 0.3]}])"),
              HasSubstr("collectives[0].ms[2]: found 0.3, expected a time not below the one before"));
  EXPECT_THAT(wrong("[" + row + R"("bytes": [1e5, 1e7, 1e6], "ms": [0.1, 0.4, 0.5]}])"),
              HasSubstr("collectives[0].bytes[2]: found 1000000.0, expected a size above the one before"));
  EXPECT_THAT(wrong("[" + row + R"("bytes": [1e5, 1e6], "ms": [0.1, 0.4]}])"),
              HasSubstr("collectives[0].bytes: found 2 sizes, expected at least 3"));
  EXPECT_THAT(wrong("[" + row + R"("bytes": [1e3, 1e4, 1e5], "ms": [0.1, 0.4, 0.5]}])"),
              HasSubstr("collectives[0].bytes: the largest size is 100000 bytes, expected at least 1048576"));
  EXPECT_THAT(wrong("[" + row + R"("lines": []}])"),
              HasSubstr("collectives[0].lines: found [], expected 1 to 3 lines"));
  EXPECT_THAT(wrong("[" + row + R"("lines": [{"latency_us": 1, "gbytes_per_s": 0}]}])"),
              HasSubstr("collectives[0].lines[0].gbytes_per_s: found 0, expected a number of GB/s above 0"));
  EXPECT_THAT(wrong("[" + row + R"("lines": [{"latency_us": 1, "gbytes_per_s": 9}], "ms": [1]}])"),
              HasSubstr("collectives[0]: expected one of bytes and ms, lines, or nccl_tests"));
  EXPECT_THAT(wrong(R"([{"operation": "all-reduce", "devices": 1, "lines": [{"latency_us": 1, "gbytes_per_s": 9}]}])"),
              HasSubstr("collectives[0].devices: found 1, expected a whole number from 2"));
  EXPECT_THAT(wrong(R"([{"operation": "all-reduce", "devices": 4, "servers": 3,
                         "lines": [{"latency_us": 1, "gbytes_per_s": 9}]}])"),
              HasSubstr("collectives[0].servers: found 3, expected a number that divides the devices"));
  const std::string good = row + R"("lines": [{"latency_us": 1, "gbytes_per_s": 9}]})";
  EXPECT_THAT(wrong("[" + good + ", " + good + "]"),
              HasSubstr("collectives[1]: all-reduce of 4 devices on 1 servers is given twice"));
  EXPECT_THAT(wrong("[]"), HasSubstr("collectives: found [], expected at least one measured operation"));
}

TEST(ClusterLinks, WhatNoLinksDoIsWrong) {
  const auto table = [](const std::string& bytes, const std::string& ms) {
    return wrong(R"([{"operation": "all-reduce", "devices": 4, "bytes": [)" + bytes + R"(], "ms": [)" + ms + "]}]");
  };
  const std::string sizes = "65536, 1048576, 16777216, 268435456";
  EXPECT_EQ(table(sizes, "0.03, 0.06, 0.21, 2.5"), "");
  // In us, and in s.
  EXPECT_THAT(
      table(sizes, "30, 60, 210, 2500"),
      HasSubstr("collectives[0].ms[1]: found 60, expected a bus bandwidth from 0.1 to 1e+04 GB/s, this is 0.0262"));
  EXPECT_THAT(table(sizes, "3e-5, 6e-5, 2.1e-4, 2.5e-3"), HasSubstr("expected a bus bandwidth from 0.1 to 1e+04 GB/s"));
  EXPECT_THAT(table(sizes, "0.2, 0.21, 0.22, 0.23"),
              HasSubstr("collectives[0].ms[3]: found 0.23, expected a time above the 0.21 ms of 1.05e+06 bytes"));
  EXPECT_THAT(table("65536, 1048576, 16777216, 1e30", "0.03, 0.06, 0.21, 2.5"),
              HasSubstr("collectives[0].bytes[3]: found 1e+30, expected a size of at most 1e+13 bytes"));
  EXPECT_THAT(table(sizes, "0.03, 0.06, 0.0601, 250"),
              HasSubstr("collectives[0].ms[3]: found 250, expected at most 8 times what the bytes grow by: 0.0601 ms"));
  EXPECT_THAT(table("8, 16, 1073741824", "0.02, 0.02, 10"),
              HasSubstr("collectives[0].bytes[2]: found 1073741824, expected at most 128 times the size before"));
  EXPECT_THAT(wrong(R"([{"operation": "send", "lines": [{"latency_us": 20, "gbytes_per_s": 40e9}]}])"),
              HasSubstr("collectives[0].lines[0].gbytes_per_s: found 40000000000.0, expected a bus bandwidth"));
  const std::string lines = R"("lines": [{"latency_us": 20, "gbytes_per_s": 40}]})";
  EXPECT_THAT(wrong(R"([{"operation": "all-reduce", "devices": 8, )" + lines + "]"),
              HasSubstr("collectives[0]: found 8 devices on 1 server, expected at most 4 on each"));
  EXPECT_EQ(wrong(R"([{"operation": "all-reduce", "devices": 8, "servers": 2, )" + lines +
                  R"(, {"operation": "all-reduce", "devices": 4, )" + lines + "]"),
            "");
  // 60 GB/s of bus bandwidth.
  const auto with_intra = [&](const std::string& intra) {
    return complaint_of_reading([&] {
      parse_cluster(text_of(R"([{"operation": "all-reduce", "devices": 4, )" + lines + "]",
                            "\"intra_gbytes_per_s\": " + intra + ", "),
                    "c.json");
    });
  };
  EXPECT_THAT(with_intra("1"), HasSubstr("servers[0].intra_gbytes_per_s: found 1, expected within 2.0 times what "
                                         "collectives show, 60.0 GB/s"));
  EXPECT_EQ(with_intra("100"), "");
}

// --- Logs ---

// As all_reduce_perf prints it: sizes 65536..16777216, `rows` in place of the rows when given.
std::string log_of(const std::string& rows = "") {
  std::string text =
      "# Collective test starting: all_reduce_perf\n"
      "# nThread 1 nGpus 2 minBytes 65536 maxBytes 16777216 step: 16(factor) warmup iters: 5 iters: 20 validation: 1\n"
      "#\n# Using devices\n"
      "#  Rank  0 Group  0 Pid   8424 on     node1 device  0 [0x07] NVIDIA A100\n"
      "#  Rank  1 Group  0 Pid   8424 on     node1 device  1 [0x0f] NVIDIA A100\n#\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
      "#wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";
  text += !rows.empty() ? rows
                        : "           65536         16384     float     sum      -1    40.00    1.64    1.64      0    "
                          "39.00    1.68    1.68      0\n"
                          "         1048576        262144     float     sum      -1    60.00   17.48   17.48      0    "
                          "61.00   17.19   17.19      0\n"
                          "        16777216       4194304     float     sum      -1   200.00   83.89   83.89      0    "
                          "210.0   79.89   79.89      0\n";
  return text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 33.3\n";
}

std::string wrong_log(const std::string& text) {
  return complaint_of_reading([&] { parse_nccl_log(text, "a.log"); });
}

TEST(NcclLog, ReadsRanksHostsAndTheShorterTime) {
  const NcclLog log = parse_nccl_log(log_of(), "a.log");
  EXPECT_EQ(log.operation, CollectiveKind::kAllReduce);
  EXPECT_EQ(log.devices, 2);
  EXPECT_EQ(log.servers, 1);
  ASSERT_EQ(log.times.size(), 3u);
  EXPECT_EQ(log.times[2].bytes, 16777216);
  EXPECT_DOUBLE_EQ(log.times[0].ms, 0.039);
  EXPECT_DOUBLE_EQ(log.times[2].ms, 0.2);
}

TEST(NcclLog, OtherTestsAndHosts) {
  std::string text = log_of();
  text.replace(text.find("all_reduce_perf"), 15, "all_gather_perf");
  text.replace(text.find("node1"), 5, "node2");
  for (std::size_t at; (at = text.find("     sum  ")) != std::string::npos;) text.replace(at, 10, "    none  ");
  const NcclLog log = parse_nccl_log(text, "a.log");
  EXPECT_EQ(log.operation, CollectiveKind::kAllGather);
  EXPECT_EQ(log.servers, 2);
  EXPECT_EQ(log.times.size(), 3u);
}

TEST(NcclLog, WhatIsCutOrWrongIsNamedByLineAndColumn) {
  const std::string whole = log_of();
  // Cut within a row, and behind one.
  EXPECT_THAT(wrong_log(whole.substr(0, whole.find("60.00") + 20)),
              HasSubstr("a.log:11:81: the row ends here, expected two times"));
  EXPECT_THAT(wrong_log(whole.substr(0, whole.find("        16777216       4194304"))),
              HasSubstr("the log was cut: it ends at 1048576 bytes, its first line says up to 16777216"));
  EXPECT_THAT(wrong_log(whole.substr(0, whole.find("           65536         16384"))), HasSubstr("no row of times"));
  EXPECT_THAT(wrong_log(""), HasSubstr("no row of times"));
  std::string text = whole;
  text.erase(text.find("         1048576"),
             text.find("        16777216       4194304") - text.find("         1048576"));
  EXPECT_THAT(wrong_log(text), ::testing::AllOf(HasSubstr("a.log:11:9"), HasSubstr("a size is missing")));
  text = whole;
  text.replace(text.find("         1048576        262144"), 30, "           65536         16384");
  EXPECT_THAT(wrong_log(text), HasSubstr("a.log:11:12: found size 65536, expected one above that of the row before"));
  text = whole;
  text.replace(text.find("60.00"), 5, "-60.0");
  EXPECT_THAT(wrong_log(text), HasSubstr("a.log:11:61: found a time of -60.0 us, expected one above 0"));
  text = whole;
  text.replace(text.find("200.00"), 6, " 20.00");
  text.replace(text.find("210.0"), 5, " 20.0");
  EXPECT_THAT(wrong_log(text), HasSubstr("the time falls to less than half although the size grows"));
  text = whole;
  text.replace(text.find("all_reduce_perf"), 15, "unknown_program");
  EXPECT_THAT(wrong_log(text), HasSubstr("no line names the test"));
  text = whole;
  text.erase(text.find("#  Rank  0"), text.find("#  Rank  1") - text.find("#  Rank  0"));
  EXPECT_THAT(wrong_log(text), HasSubstr("found 1 lines of ranks"));
}

TEST(NcclLog, WrongResultsAndOtherTestsAreSaid) {
  const std::string whole = log_of();
  const auto with = [&](const std::string& what, const std::string& by) {
    std::string text = whole;
    const auto at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
  };
  EXPECT_THAT(wrong_log(with("17.48   17.48      0", "17.48   17.48      3")),
              HasSubstr("a.log:11:88: found 3 wrong values, expected 0"));
  EXPECT_THAT(wrong_log(with("values : 0 OK", "values : 3 FAILED")), HasSubstr("a.log:13:"));
  // The last column of a row is missing.
  EXPECT_THAT(
      wrong_log(with("61.00   17.19   17.19      0", "61.00   17.19   17.19")),
      HasSubstr("the row ends here, expected two times, each with two bandwidths and a number of errors: #wrong "
                "of the second is missing"));
  EXPECT_THAT(wrong_log(with("60.00   17.48", "  nan   17.48")),
              HasSubstr("found a time of nan us, expected one above 0 | measure again"));
  EXPECT_EQ(wrong_log(with("17.19   17.19      0", "17.19   17.19    N/A")), "");
  EXPECT_THAT(wrong_log(with("all_reduce_perf", "broadcast_perf")),
              HasSubstr("a.log:1:29: broadcast is not supported; expected one of all_reduce_perf, "));
  EXPECT_THAT(wrong_log(""), HasSubstr("a.log:1:1: the file is empty"));
  EXPECT_THAT(wrong_log(with("nGpus 2", "nGpus 8")),
              HasSubstr("found 2 lines of ranks (#  Rank ...), expected at least 8"));
  // As mpirun --tag-output prints it, and without an operation and root, as older versions do.
  std::string tagged;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = whole.find('\n', at);
    tagged += "[1,0]<stdout>:" + whole.substr(at, end + 1 - at);
    at = end + 1;
  }
  EXPECT_EQ(parse_nccl_log(tagged, "a.log").times.size(), 3u);
  EXPECT_THAT(wrong_log(tagged.replace(tagged.find("60.00"), 5, "-60.0")),
              HasSubstr("a.log:11:75: found a time of -60"));
  std::string old = whole;
  for (std::size_t at; (at = old.find("     sum      -1")) != std::string::npos;)
    old.replace(at, 16, std::string(16, ' '));
  EXPECT_EQ(parse_nccl_log(old, "a.log").times.size(), 3u);
  // Times of 0.1 s and more have no decimal point; they are no root for that.
  old.replace(old.find("200.00"), 6, "200000");
  old.replace(old.find("210.0"), 5, "210000");
  const NcclLog long_times = parse_nccl_log(old, "a.log");
  ASSERT_EQ(long_times.times.size(), 3u);
  EXPECT_DOUBLE_EQ(long_times.times[2].ms, 200);
}

TEST(NcclLog, EveryCutOfItIsALogOrAnError) {
  const std::string whole = log_of();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    try {
      EXPECT_GE(parse_nccl_log(whole.substr(0, size), "a.log").times.size(), 3u) << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << size;
    }
  }
}

class ClusterLog : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("automap-links-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  std::filesystem::path folder_;
};

TEST_F(ClusterLog, IsReadBesideTheClusterFile) {
  write("ar.log", log_of());
  write("c.json", text_of(R"([{"nccl_tests": "ar.log"}])"));
  const Cluster cluster = load_cluster((folder_ / "c.json").string());
  EXPECT_NEAR(cluster.servers[0].links.inside(CollectiveKind::kAllReduce, 2)->ms(16777216), 0.2, 0.01);
  write("c.json", text_of(R"([{"nccl_tests": "ar.log", "devices": 8}])"));
  EXPECT_THAT(complaint_of_reading([&] { load_cluster((folder_ / "c.json").string()); }),
              HasSubstr("collectives[0].devices: found 8, expected the log's, 2"));
  write("ar.log", log_of().substr(0, 700));
  write("c.json", text_of(R"([{"nccl_tests": "ar.log"}])"));
  EXPECT_THAT(complaint_of_reading([&] { load_cluster((folder_ / "c.json").string()); }), HasSubstr("ar.log:"));
  std::filesystem::remove(folder_ / "ar.log");
  try {
    load_cluster((folder_ / "c.json").string());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("c.json: collectives[0].nccl_tests"), HasSubstr("ar.log")));
  }
}

}  // namespace
}  // namespace automap::machine
