#include "common/machine/links.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/machine/device.h"

namespace automap::machine {
namespace {

// Lines as {latency in us, GB/s}.
struct FittedRow {
  CollectiveKind operation;
  int devices, servers;
  std::vector<std::pair<double, double>> lines;
};

enum class Basis { kMeasured, kAssumed };

MeasuredLinks links_of(const std::vector<FittedRow>& fitted, Basis basis = Basis::kMeasured, double faster = 1) {
  MeasuredLinks links;
  for (const FittedRow& row : fitted) {
    CollectiveTime::Lines lines{};
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto& [latency_us, gbytes_per_s] = row.lines[std::min(i, row.lines.size() - 1)];
      lines[i] = {latency_us * 1e-3, 1 / (gbytes_per_s * faster * kBytesPerMsPerGByteS)};
    }
    links.rows.push_back({row.operation, row.devices, row.servers, CollectiveTime(lines), basis == Basis::kAssumed});
  }
  return links;
}

// All rows: scripts/fit_links.py, which prints them and the errors, on every second size from 64 KiB on. In brackets
// the median error on the other sizes.
// V100-SXM2 with NVLink 2, 100 Gbit/s InfiniBand between servers (PyTorch 1.12, measured for Aceso): all-reduce (0.3 %,
// 0.7 %, 1.1 %), all-to-all (3.7 %), sends (0.1 %, 0.6 %). Pairs with one link instead of two have half of it.
const std::vector<FittedRow>& v100_rows() {
  static const std::vector<FittedRow> rows = {
      {CollectiveKind::kAllReduce, 2, 1, {{37.3, 37.52}, {63.87, 38.87}, {223, 41.86}}},
      {CollectiveKind::kAllReduce, 4, 1, {{59.93, 51.82}}},
      {CollectiveKind::kAllReduce, 8, 1, {{75.24, 52.17}, {105.1, 75}}},
      {CollectiveKind::kAllToAll, 8, 1, {{100.2, 49.54}}},
      {CollectiveKind::kPermute, 2, 1, {{36.2, 42.61}}},
      {CollectiveKind::kPermute, 2, 2, {{80.1, 5.357}}},
  };
  return rows;
}

// H100-SXM with NVLink 4 (XLA's table of collectives): all-reduce (6.5 %, 5.0 %, 4.0 %), reduce-scatter (6.9 %, 4.8 %,
// 10.8 %), all-gather (3.3 %, 4.4 %, 12.5 %), all-to-all (12 %, 7.6 %, 12.5 %), sends up to 64 MiB (9.1 %; larger ones
// are up to twice as fast).
const std::vector<FittedRow>& h100_rows() {
  static const std::vector<FittedRow> rows = {
      {CollectiveKind::kAllReduce, 2, 1, {{14.58, 150}, {24.74, 219.6}, {97.79, 247.7}}},
      {CollectiveKind::kAllReduce, 4, 1, {{15.2, 39.52}, {37.56, 175.2}, {87.72, 201.6}}},
      {CollectiveKind::kAllReduce, 8, 1, {{27.28, 52.77}, {43.14, 164.3}, {89.44, 230.6}}},
      {CollectiveKind::kReduceScatter, 2, 1, {{17.09, 334.3}, {111.5, 406}}},
      {CollectiveKind::kReduceScatter, 4, 1, {{12.7, 67.39}, {29.5, 367.4}}},
      {CollectiveKind::kReduceScatter, 8, 1, {{24.09, 353.1}}},
      {CollectiveKind::kAllGather, 2, 1, {{11.31, 170.6}, {20.76, 423.7}, {37.32, 538.3}}},
      {CollectiveKind::kAllGather, 4, 1, {{14.81, 155}, {31.6, 427}}},
      {CollectiveKind::kAllGather, 8, 1, {{13.8, 13.68}, {29.1, 301.5}, {44.92, 396.7}}},
      {CollectiveKind::kAllToAll, 2, 1, {{8.491, 7.402}, {36.02, 359.5}, {64.71, 627.5}}},
      {CollectiveKind::kAllToAll, 4, 1, {{31.53, 203.8}, {39.38, 347.4}, {99.74, 470.1}}},
      {CollectiveKind::kAllToAll, 8, 1, {{25.18, 228}, {45.16, 384.4}}},
      {CollectiveKind::kPermute, 2, 1, {{15.82, 114.6}}},
  };
  return rows;
}

// B200 with NVLink 5 (XLA's table of collectives): all-reduce (15.5 %, 6.5 %, 6.1 %), reduce-scatter (8.7 %, 14.5 %,
// 3.8 %), all-gather (4.4 %, 8.5 %, 8.4 %), all-to-all (6.0 %, 7.8 %, 8.8 %), sends up to 64 MiB (4.9 %).
const std::vector<FittedRow>& b200_rows() {
  static const std::vector<FittedRow> rows = {
      {CollectiveKind::kAllReduce, 2, 1, {{25.59, 130.3}, {41.05, 450.7}}},
      {CollectiveKind::kAllReduce, 4, 1, {{28.32, 19.14}, {34.79, 312.6}, {107, 381.4}}},
      {CollectiveKind::kAllReduce, 8, 1, {{45.19, 119.6}, {87.48, 345.4}}},
      {CollectiveKind::kReduceScatter, 2, 1, {{30.6, 816.2}, {54.55, 898.6}}},
      {CollectiveKind::kReduceScatter, 4, 1, {{29.96, 40.42}, {36.53, 676.9}, {90.65, 820.1}}},
      {CollectiveKind::kReduceScatter, 8, 1, {{35.8, 548.1}, {73.55, 730}}},
      {CollectiveKind::kAllGather, 2, 1, {{19.05, 201.2}, {34.54, 858}}},
      {CollectiveKind::kAllGather, 4, 1, {{25.68, 345.4}, {48.81, 754.3}}},
      {CollectiveKind::kAllGather, 8, 1, {{29.83, 32.68}, {33.74, 551.6}, {47.43, 695.9}}},
      {CollectiveKind::kAllToAll, 2, 1, {{23.38, 20.01}, {35.39, 378.9}, {79.91, 814}}},
      {CollectiveKind::kAllToAll, 4, 1, {{29.42, 112.9}, {47.14, 576.1}, {97.24, 741.5}}},
      {CollectiveKind::kAllToAll, 8, 1, {{33.43, 33.94}, {41.93, 475.8}, {71.79, 710.1}}},
      {CollectiveKind::kPermute, 2, 1, {{26.62, 140.2}}},
  };
  return rows;
}

// Bus bandwidths of an endless all-reduce of eight, GB/s: the one figure known of A100, and what the lines of an H100
// have. Two others are near it and not it: a device's link_gbytes_per_s (240 in device_table.cpp) is a data sheet's
// link as ring formulas reach it, and scripts/device_model/comparisons.py divides vTrain's bytes by a rounded 230.
constexpr double kA100Bus = 229, kH100Bus = 403.5;

// Assumption: the lines of an H100, slower by the one figure known of eight A100; scatters and gathers half an
// all-reduce; sends by the data sheets' links (300 / 450).
MeasuredLinks a100_links() {
  MeasuredLinks all = links_of(h100_rows(), Basis::kAssumed, kA100Bus / kH100Bus), links;
  for (const MeasuredCollective& row : all.rows) {
    if (row.operation == CollectiveKind::kAllReduce) links.rows.push_back(row);
  }
  for (const MeasuredCollective& row : links_of(h100_rows(), Basis::kAssumed, 300.0 / 450).rows) {
    if (row.operation == CollectiveKind::kPermute) links.rows.push_back(row);
  }
  return links;
}

// By device of common/machine/device.h.
const std::map<std::string, MeasuredLinks>& table() {
  static const std::map<std::string, MeasuredLinks> links = {
      {"v100-16gb", links_of(v100_rows())},
      {"v100-32gb", links_of(v100_rows())},
      {"a100-40gb", a100_links()},
      {"a100-80gb", a100_links()},
      {"h100", links_of(h100_rows())},
      // Assumption: the NVLink of an H100.
      {"h200", links_of(h100_rows(), Basis::kAssumed)},
      {"b200", links_of(b200_rows())},
  };
  return links;
}

// The ring's share of the bytes that one device moves.
double ring_share(int devices) {
  return (devices - 1.0) / devices;
}

// The row of the operation with the most devices up to so many; of the fewest when all have more.
const MeasuredCollective* nearest_row(const std::vector<MeasuredCollective>& rows, CollectiveKind operation,
                                      int devices) {
  const MeasuredCollective* best = nullptr;
  for (const MeasuredCollective& row : rows) {
    if (row.operation != operation || row.servers != 1 || row.devices < 2) continue;
    if (best == nullptr) {
      best = &row;
    } else if (row.devices <= devices ? best->devices > devices || best->devices < row.devices
                                      : best->devices > row.devices) {
      best = &row;
    }
  }
  return best;
}

CollectiveTime scaled(const MeasuredCollective& row, int devices, double rounds) {
  if (row.devices == devices) return row.time.times(rounds, rounds);
  return row.time.times(rounds * std::log2(devices) / std::log2(row.devices),
                        rounds * ring_share(devices) / ring_share(row.devices));
}

}  // namespace

std::optional<CollectiveTime> MeasuredLinks::inside(CollectiveKind operation, int devices) const {
  if (devices <= 1) return CollectiveTime();
  if (const MeasuredCollective* row = nearest_row(rows, operation, devices)) return scaled(*row, devices, 1);
  if (operation != CollectiveKind::kAllReduce) {
    if (const MeasuredCollective* row = nearest_row(rows, CollectiveKind::kAllReduce, devices))
      return scaled(*row, devices, 0.5);
    if (operation == CollectiveKind::kAllToAll) return std::nullopt;
  }
  for (const CollectiveKind half : {CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
    const double rounds = operation == CollectiveKind::kAllReduce ? 2 : 1;
    if (const MeasuredCollective* row = nearest_row(rows, half, devices)) return scaled(*row, devices, rounds);
  }
  return std::nullopt;
}

std::optional<CollectiveTime> MeasuredLinks::across(CollectiveKind operation, int devices, int servers) const {
  for (const MeasuredCollective& row : rows) {
    if (row.operation == operation && row.devices == devices && row.servers == servers) return row.time;
  }
  return std::nullopt;
}

std::optional<bool> MeasuredLinks::assumed(bool inside) const {
  std::optional<bool> any;
  for (const MeasuredCollective& row : rows) {
    if ((row.servers == 1) == inside) any = any.value_or(false) || row.assumed;
  }
  return any;
}

std::optional<CollectiveLine> MeasuredLinks::send(bool inside) const {
  const auto time = across(CollectiveKind::kPermute, 2, inside ? 1 : 2);
  return time ? time->lines().back() : std::optional<CollectiveLine>();
}

const MeasuredLinks& known_links(const std::string& device) {
  static const MeasuredLinks none;
  const std::optional<DeviceModel> model = find_device(device);
  const auto found = model ? table().find(model->name) : table().end();
  return found == table().end() ? none : found->second;
}

const MeasuredLinks& known_links(const DeviceModel& device) {
  const std::optional<DeviceModel> known = find_device(device.name);
  return known_links(known && known->link_gbytes_per_s == device.link_gbytes_per_s ? device.name : std::string());
}

MeasuredLinks with_known(const MeasuredLinks& rows, const MeasuredLinks& known) {
  MeasuredLinks all = rows;
  for (const MeasuredCollective& row : known.rows) {
    const bool given = std::any_of(rows.rows.begin(), rows.rows.end(), [&](const MeasuredCollective& own) {
      return own.operation == row.operation && (own.servers == 1) == (row.servers == 1);
    });
    if (!given) all.rows.push_back(row);
  }
  return all;
}

double bus_bytes_per_ms(const MeasuredLinks& links) {
  const MeasuredCollective* row = nearest_row(links.rows, CollectiveKind::kAllReduce, 1 << 30);
  if (row == nullptr || !(row->time.ms_per_byte() > 0)) return 0;
  return 2 * ring_share(row->devices) / row->time.ms_per_byte();
}

const MeasuredLinks* slower(const MeasuredLinks* a, const MeasuredLinks* b) {
  if (a == b || a == nullptr || b == nullptr) return a == b ? a : nullptr;
  return bus_bytes_per_ms(*b) < bus_bytes_per_ms(*a) ? b : a;
}

}  // namespace automap::machine
