// Collectives and messages as measured: their sanity on every known device, the fit of lines against times with known
// lines and against a search, groups that were not measured, and what several servers share.
#include "common/machine/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/rng.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/machine/link_fit.h"
#include "common/machine/links.h"

namespace automap::machine {
namespace {

constexpr CollectiveKind kCollectives[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                           CollectiveKind::kAllGather, CollectiveKind::kAllToAll};

// Properties that bounds and the exact solver rely on.
void expect_sane(const CollectiveTime& time) {
  EXPECT_EQ(time.ms(0), 0);
  double before = 0, per_byte = std::numeric_limits<double>::infinity();
  for (double bytes = 64; bytes < 1e11; bytes *= 1.7) {
    const double ms = time.ms(bytes);
    EXPECT_GT(ms, before) << bytes;
    EXPECT_LE(ms / bytes, per_byte * (1 + 1e-12)) << bytes;
    EXPECT_GE(ms, (time.latency_ms() + bytes * time.ms_per_byte()) * (1 - 1e-12)) << bytes;
    for (const double share : {0.5, 0.1, 0.01}) {
      EXPECT_LE(ms, (time.ms(share * bytes) + time.ms((1 - share) * bytes)) * (1 + 1e-12)) << bytes;
    }
    before = ms;
    per_byte = ms / bytes;
  }
}

CollectiveGroup group_of(const MeasuredLinks& links, int servers, int per_server) {
  CollectiveGroup group;
  group.devices = servers * per_server;
  group.servers = servers;
  group.devices_per_server = per_server;
  group.intra_bytes_per_ms = 1e8;
  group.inter_bytes_per_ms = 1e7;
  group.intra_latency_ms = 0.003;
  group.inter_latency_ms = 0.02;
  group.measured = links.empty() ? nullptr : &links;
  return group;
}

TEST(Collectives, GrowWithBytesFallPerByteAndGainNothingFromParts) {
  std::vector<MeasuredLinks> all = {{}};
  for (const std::string& name : device_names()) {
    if (!known_links(name).empty()) all.push_back(known_links(name));
  }
  EXPECT_EQ(all.size(), 8u);  // seven devices beside none; those known by their data sheets have none
  for (const MeasuredLinks& links : all) {
    for (const int servers : {1, 2, 5}) {
      for (const int per_server : {1, 2, 3, 4, 6, 8, 16}) {
        if (servers * per_server == 1) continue;
        const CollectiveGroup group = group_of(links, servers, per_server);
        for (const CollectiveKind operation : kCollectives) {
          for (const Ring ring : {Ring::kFlat, Ring::kNccl}) expect_sane(collective(operation, group, ring));
        }
        expect_sane(exchange(group, servers == 1));
        expect_sane(collective(CollectiveKind::kPermute, group, Ring::kNccl));
      }
    }
  }
}

TEST(Collectives, OneDeviceMovesNothing) {
  for (const MeasuredLinks& links : {MeasuredLinks(), known_links("h100")}) {
    const CollectiveGroup group = group_of(links, 1, 1);
    for (const CollectiveKind operation : kCollectives) {
      EXPECT_EQ(collective(operation, group, Ring::kNccl).ms(1e9), 0);
    }
  }
}

// Bus bandwidth: what one device moves per ms of an endless message.
double bus(const CollectiveTime& time, int devices, double rounds) {
  return rounds * (devices - 1) / devices / time.ms_per_byte();
}

TEST(Collectives, BusBandwidthOfANumberOfDevicesIsThatOfTheTablesRows) {
  for (const std::string& name : device_names()) {
    const MeasuredLinks& links = known_links(name);
    for (const MeasuredCollective& row : links.rows) {
      if (row.operation == CollectiveKind::kPermute || row.servers != 1) continue;
      const double rounds = row.operation == CollectiveKind::kAllReduce ? 2 : 1;
      const double of_row = bus(row.time, row.devices, rounds);
      EXPECT_EQ(links.inside(row.operation, row.devices)->ms(1e6), row.time.ms(1e6)) << name;
      // Up to the next number measured, it is this one's.
      bool more = false;
      for (const MeasuredCollective& other : links.rows) {
        more = more || (other.operation == row.operation && other.devices == row.devices + 1);
      }
      if (more) continue;
      EXPECT_NEAR(bus(*links.inside(row.operation, row.devices + 1), row.devices + 1, rounds), of_row, 1e-9 * of_row);
    }
  }
  // The figures that the issue names: bus bandwidth in GB/s.
  EXPECT_NEAR(bus_bytes_per_ms(known_links("v100-32gb")) * 1e-6, 130, 13);
  EXPECT_NEAR(bus_bytes_per_ms(known_links("a100-80gb")) * 1e-6, 229, 5);
  EXPECT_NEAR(bus_bytes_per_ms(known_links("h100")) * 1e-6, 402, 40);
  const CollectiveTime pair = *known_links("v100-16gb").inside(CollectiveKind::kAllReduce, 2);
  EXPECT_NEAR(bus(pair, 2, 2) * 1e-6, 42, 4);
  // Permutes of 4 to 64 MB on H100: 60 to 117 GB/s.
  const CollectiveGroup h100 = group_of(known_links("h100"), 1, 2);
  for (double bytes = 4e6; bytes <= 64e6; bytes *= 2) {
    const double rate = bytes / collective(CollectiveKind::kPermute, h100, Ring::kNccl).ms(bytes) * 1e-6;
    EXPECT_GT(rate, 60);
    EXPECT_LT(rate, 117);
  }
}

TEST(Collectives, WhatWasNotMeasuredComesFromWhatWas) {
  MeasuredLinks links;
  links.rows.push_back({CollectiveKind::kAllReduce, 4, 1, {0.04, 3e-6}});
  const CollectiveTime half = *links.inside(CollectiveKind::kReduceScatter, 4);
  EXPECT_DOUBLE_EQ(half.ms(1e6), 0.5 * (0.04 + 3));
  // The ring's share: 7/8 of the bytes in place of 3/4; log2 8 steps in place of log2 4.
  const CollectiveTime eight = *links.inside(CollectiveKind::kAllReduce, 8);
  EXPECT_DOUBLE_EQ(eight.ms(1e6), 0.06 + 3 * (7.0 / 8) / (3.0 / 4));
  EXPECT_FALSE(links.across(CollectiveKind::kAllReduce, 8, 2));
  EXPECT_FALSE(links.send(true));

  MeasuredLinks gathers;
  gathers.rows.push_back({CollectiveKind::kAllGather, 4, 1, {0.02, 1e-6}});
  EXPECT_DOUBLE_EQ(gathers.inside(CollectiveKind::kAllReduce, 4)->ms(1e6), 2 * (0.02 + 1));
  EXPECT_DOUBLE_EQ(gathers.inside(CollectiveKind::kReduceScatter, 4)->ms(1e6), 0.02 + 1);
  MeasuredLinks sends;
  sends.rows.push_back({CollectiveKind::kPermute, 2, 1, {0.02, 1e-6}});
  EXPECT_FALSE(sends.inside(CollectiveKind::kAllReduce, 4));
}

TEST(Collectives, DevicesOfAServerShareItsPort) {
  MeasuredLinks links;
  links.rows.push_back({CollectiveKind::kAllReduce, 8, 1, {0.1, 1e-8}});
  links.rows.push_back({CollectiveKind::kPermute, 2, 1, {0.05, 1e-7}});    // 1e7 bytes per ms and pair
  links.rows.push_back({CollectiveKind::kPermute, 2, 2, {0.08, 2.5e-7}});  // 4e6 bytes per ms and pair, 1e7 the port
  const CollectiveGroup group = group_of(links, 2, 8);
  const MessageLinks messages = message_links(group);
  EXPECT_DOUBLE_EQ(bytes_per_ms(messages, {1, 1, false}), 4e6);
  EXPECT_DOUBLE_EQ(bytes_per_ms(messages, {2, 1, false}), 8e6);
  EXPECT_DOUBLE_EQ(bytes_per_ms(messages, {3, 1, false}), 1e7);
  EXPECT_DOUBLE_EQ(bytes_per_ms(messages, {8, 1, false}), 1e7);
  EXPECT_DOUBLE_EQ(bytes_per_ms(messages, {8, 2, false}), 2e7);
  EXPECT_DOUBLE_EQ(bytes_per_ms(messages, {3, 1, true}), 3e7);
  // All hops at once, at the pace of the slower: of sixteen devices each port sends fifteen shares twice.
  EXPECT_DOUBLE_EQ(all_reduce(group, Ring::kNccl).ms(1e8), 0.1 + 2 * 0.08 + 2 * 15.0 / 16 * 1e8 / 1e7);
  // Where ports are faster than what is inside, every hop inside sends fifteen shares, too: what was measured has
  // seven.
  CollectiveGroup slow_inside = group;
  slow_inside.inter_bytes_per_ms = 1e12;
  links.rows[2].time = {0.08, 1e-12};
  EXPECT_NEAR(all_reduce(slow_inside, Ring::kNccl).ms(1e8), 0.1 + 2 * 0.08 + 1e8 * 1e-8 * (15.0 / 16) / (7.0 / 8),
              1e-9);
  slow_inside.measured = nullptr;
  slow_inside.intra_bytes_per_ms = 1e5;
  slow_inside.intra_latency_ms = slow_inside.inter_latency_ms = 0;
  EXPECT_DOUBLE_EQ(all_reduce(slow_inside, Ring::kNccl).ms(1e8), 2 * 15.0 / 16 * 1e8 / 1e5);
  links.rows[2].time = {0.08, 2.5e-7};
  // In an all-to-all a port sends the data that eight devices have for the other eight.
  CollectiveGroup by_figures = group;
  by_figures.measured = nullptr;
  by_figures.intra_latency_ms = by_figures.inter_latency_ms = 0;
  EXPECT_DOUBLE_EQ(all_to_all(by_figures, Ring::kNccl).ms(1e6), 8 * 0.5 * 1e6 / 1e7);
  by_figures.servers = 1;
  by_figures.devices = 8;
  EXPECT_DOUBLE_EQ(all_to_all(by_figures, Ring::kNccl).ms(1e6), 7.0 / 8 * 1e6 / by_figures.intra_bytes_per_ms);
  // Measured over the servers itself: nothing is made up.
  links.rows.push_back({CollectiveKind::kAllReduce, 16, 2, {0.3, 2e-7}});
  EXPECT_DOUBLE_EQ(all_reduce(group, Ring::kNccl).ms(1e8), 0.3 + 20);
  // The papers' ring knows the figures only.
  EXPECT_DOUBLE_EQ(all_reduce(group, Ring::kFlat).ms(1e8), 2 * 15 * 0.02 + 2 * 15.0 / 16 * 1e8 / 1e7);
}

// --- The fit ---

std::vector<MeasuredTime> times_of(const CollectiveTime& time, double factor = 2) {
  std::vector<MeasuredTime> points;
  for (double bytes = 65536; bytes < 4e9; bytes *= factor) points.push_back({bytes, time.ms(bytes)});
  return points;
}

double squared(Span<const MeasuredTime> points, const CollectiveTime& time) {
  double sum = 0;
  for (const MeasuredTime& point : points) sum += std::pow(time.ms(point.bytes) / point.ms - 1, 2);
  return sum;
}

TEST(LinkFit, FindsTheLinesThatTimesWereMadeFrom) {
  // Each holds over several sizes.
  CollectiveTime::Lines lines = {{{0.02, 2e-7}, {0.1, 2e-8}, {0.4, 5e-9}}};
  const CollectiveTime three(lines);
  const CollectiveTime found = fit_lines(times_of(three));
  EXPECT_LT(largest_error(times_of(three), found), 1e-6);
  EXPECT_LT(largest_error(times_of(three, 1.3), found), 1e-6);
  EXPECT_NEAR(found.ms_per_byte(), 5e-9, 1e-14);
  EXPECT_NEAR(found.latency_ms(), 0.02, 1e-6);
  const CollectiveTime one(0.03, 1e-8);
  EXPECT_LT(largest_error(times_of(one), fit_lines(times_of(one), 1)), 1e-9);
}

// The slow twin: random lines, kept where they are better. None may be much better than the fit.
TEST(LinkFit, NoRandomLinesAreMuchBetter) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    Rng random(7, seed, 0);
    const CollectiveTime::Lines lines = {{{0.02, 1e-7}, {0.06, 2e-8}, {0.5, 4e-9}}};
    std::vector<MeasuredTime> points = times_of(CollectiveTime(lines));
    for (MeasuredTime& point : points) point.ms *= random.uniform(0.85, 1.15);
    const CollectiveTime found = fit_lines(points);
    const double error = squared(points, found);
    double least = std::numeric_limits<double>::infinity();
    CollectiveTime::Lines best = found.lines();
    for (int i = 0; i < 20000; ++i) {
      CollectiveTime::Lines tried = best;
      for (CollectiveLine& line : tried) {
        line.latency_ms *= random.uniform(0.97, 1.03);
        line.ms_per_byte *= random.uniform(0.97, 1.03);
      }
      const double other = squared(points, CollectiveTime(tried));
      if (other < least) {
        least = other;
        if (other < squared(points, CollectiveTime(best))) best = tried;
      }
    }
    EXPECT_LT(error, std::max(1.6 * least, least + 0.02)) << seed;
  }
}

TEST(LinkFit, LargerMessagesThanMeasuredAreNoGuess) {
  // Hardly any bandwidth to be seen: latency all the way.
  std::vector<MeasuredTime> points;
  for (double bytes = 1024; bytes <= 1 << 20; bytes *= 2) points.push_back({bytes, 0.05 + bytes * 1e-12});
  const CollectiveTime found = fit_lines(points);
  EXPECT_GE(found.ms(1e9), 0.5 * 1e9 * points.back().ms / points.back().bytes * (1 - 1e-9));
  expect_sane(found);
}

TEST(LinkFit, SmallMessagesAreLeftOutWhereLargeOnesAre) {
  const CollectiveTime one(0.03, 1e-8);
  std::vector<MeasuredTime> points = times_of(one);
  points.insert(points.begin(), {1024, 0.9});
  EXPECT_LT(largest_error(points, fit_lines(points)), 1e-9);
}

}  // namespace
}  // namespace automap::machine
