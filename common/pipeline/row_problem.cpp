#include "common/pipeline/row_problem.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <string>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/rng.h"

namespace automap::pipeline {
namespace {

constexpr double kBytesPerMs = 1e6;  // of the slowest link of a row's cluster, 1 GB/s
constexpr double kNoLimitGiB = 1e12;
constexpr double kStateFactor = 4;                   // ProblemOptions' default: what memory_limit is meant against
constexpr double kIntraLatencyShare = 0.1;           // of hop_latency
constexpr std::uint32_t kServerStream = 0x53525652;  // "SRVR"

[[noreturn]] void fail(const std::string& what, const std::string& hint = "") {
  throw Error(ErrorKind::kData, "row: " + what, hint);
}

std::string text(double value) {
  return std::to_string(value);
}

// floor(k n / 128): the instruction that point k = 1..128 stands after.
std::int64_t instruction_of_point(std::size_t k, std::uint32_t n) {
  return static_cast<std::int64_t>(k) * static_cast<std::int64_t>(n) / kGranularity;
}

void check_numbers(const RowProblem& row) {
  if (!(std::isfinite(row.scale_ms) && row.scale_ms > 0)) {
    fail("scale_ms is " + text(row.scale_ms) + ", expected a finite number above 0");
  }
  if (row.num_instructions < 2) {
    fail("num_instructions is " + std::to_string(row.num_instructions) + ", expected at least 2");
  }
  const std::int64_t most = std::int64_t{row.servers} * row.devices_per_server;
  if (row.servers < 1 || row.devices_per_server < 1 || most > machine::kMaxDevices) {
    fail(std::to_string(row.servers) + " servers of " + std::to_string(row.devices_per_server) +
         " devices, expected at least 1 of each and at most " + std::to_string(machine::kMaxDevices) +
         " devices in all");
  }
  if (!(std::isfinite(row.intra_over_inter) && row.intra_over_inter > 0)) {
    fail("intra_over_inter is " + text(row.intra_over_inter) + ", expected a finite number above 0");
  }
  if (row.micro_batches < 1) fail("micro_batches is 0, expected at least 1");
  if (row.schedule > Schedule::kAdaptive) {
    fail("schedule is " + std::to_string(static_cast<int>(row.schedule)) +
         ", expected 0 (1f1b), 1 (1f1b-overlap) or 2 (adaptive)");
  }
  if (!(row.memory_limit > 0))
    fail("memory_limit is " + text(row.memory_limit) + ", expected a number above 0 or none");
  if (!(row.forward_fraction > 0 && row.forward_fraction <= 1)) {
    fail("forward_fraction is " + text(row.forward_fraction) + ", expected a number in (0, 1]");
  }
  if (!(std::isfinite(row.stash_factor) && row.stash_factor >= 0)) {
    fail("stash_factor is " + text(row.stash_factor) + ", expected a finite number of at least 0");
  }
  if (!(std::isfinite(row.hop_latency) && row.hop_latency >= 0)) {
    fail("hop_latency is " + text(row.hop_latency) + ", expected a finite number of at least 0");
  }
}

// Checks the fields that only rows of whole samples have.
void check_step(const RowProblem& row) {
  const auto check = [](const char* name, float value, float least, float most) {
    if (value >= least && value <= most) return;
    fail(std::string(name) + " is " + text(value) + ", expected " + text(least) + " to " + text(most));
  };
  constexpr float kMost = 1e6f;
  check("launch_share", row.launch_share, 0, 0.999f);
  check("launch_even", row.launch_even, 0, 1);
  check("gradient_share", row.gradient_share, 0, kMost);
  check("slot_factor", row.slot_factor, 0, kMost);
  check("optimizer_factor", row.optimizer_factor, 0, kMost);
  check("workspace_factor", row.workspace_factor, 0, kMost);
  if (!(std::isfinite(row.bucket) && row.bucket > 0)) {
    fail("bucket is " + text(row.bucket) + ", expected a finite number above 0");
  }
  if (row.gradient_sync > 1) {
    fail("gradient_sync is " + std::to_string(row.gradient_sync) + ", expected 0 (after) or 1 (overlap)");
  }
  if (row.zero > kMostZero)
    fail("zero is " + std::to_string(row.zero) + ", expected 0 to " + std::to_string(kMostZero));
}

[[noreturn]] void fail_at(const char* array, std::size_t k, const std::string& found, const std::string& expected) {
  fail(std::string(array) + ", point " + std::to_string(k + 1) + ": " + found + ", expected " + expected);
}

// One prefix or level array: 128 numbers of [0, 1]; repeated points repeat; prefix sums do not fall.
void check_array(const float* values, const char* name, std::uint32_t n, bool rises) {
  float before = 0;
  for (std::size_t k = 0; k < kGranularity; ++k) {
    const float value = values[k];
    if (!(value >= 0 && value <= 1)) fail_at(name, k, "found " + text(value), "a number in [0, 1]");
    if (rises && value < before) {
      fail_at(name, k, "found " + text(value) + " after " + text(before), "a sum that does not fall");
    }
    if (n < kGranularity && value != before && instruction_of_point(k + 1, n) == instruction_of_point(k, n)) {
      fail_at(name, k, "found " + text(value) + " after " + text(before),
              "the same number again, because no instruction lies between the two points");
    }
    before = value;
  }
}

// The properties in which servers differ.
struct ServerKind {
  int devices = 1;
  double speed = 1;
  double memory = 1;  // times the row's memory_limit, which is the smallest
  double inter = 1;   // times the slowest link
  double intra = 1;   // times the row's
};

// Up to three kinds of servers, each a run of neighbours (racks are bought together) or, in a third of the clusters,
// shuffled. Kind 0 is always there with the slowest links and the least memory, so that the row's own numbers keep
// their meaning: A' and W' are ms at the slowest link.
std::vector<ServerKind> different_servers(const RowProblem& row) {
  Rng rng(row.server_seed, kServerStream, 0);
  const int kinds = std::min<int>(row.servers, 2 + static_cast<int>(rng.below(2)));
  const auto differs = static_cast<unsigned>(1 + rng.below(15));  // which of the four properties, at least one
  std::array<ServerKind, 3> kind{};
  constexpr std::array<double, 5> kSpeeds = {0.4, 0.5, 0.65, 1.5, 2.5};
  constexpr std::array<double, 4> kLinks = {1.25, 1.5, 2, 4};
  for (std::size_t i = 0; i < kind.size(); ++i) {
    kind[i].devices = row.devices_per_server;
    const double speed = kSpeeds[rng.below(kSpeeds.size())];
    const double memory = i == 0 ? 1 : static_cast<double>(1 << rng.below(3));
    const double inter = i == 0 ? 1 : kLinks[rng.below(kLinks.size())];
    const double intra = i == 0 ? 1 : kLinks[rng.below(kLinks.size())];
    // From half of them to all of them.
    const auto fewer = static_cast<int>(rng.below(static_cast<std::uint64_t>(row.devices_per_server / 2) + 1));
    if ((differs & 1) != 0 && i != 0) kind[i].speed = speed;
    if ((differs & 2) != 0) kind[i].memory = memory;
    if ((differs & 4) != 0) {
      kind[i].inter = inter;
      kind[i].intra = intra;
    }
    if ((differs & 8) != 0 && i != 0) kind[i].devices -= fewer;
  }
  std::vector<ServerKind> servers;
  servers.reserve(row.servers);
  for (int s = 0; s < row.servers; ++s) servers.push_back(kind[static_cast<std::size_t>(s * kinds / row.servers)]);
  if (rng.below(3) == 0) {
    for (std::size_t s = servers.size() - 1; s > 0; --s) std::swap(servers[s], servers[rng.below(s + 1)]);
  }
  return servers;
}

bool all_equal(const RowProblem& row) {
  return row.server_seed == 0 || row.servers == 1;
}

Cluster cluster_of_row(const RowProblem& row) {
  Cluster cluster;
  cluster.name = "row";
  cluster.inter_latency_us = static_cast<double>(row.hop_latency) * row.scale_ms * 1e3;
  cluster.intra_latency_us = cluster.inter_latency_us * kIntraLatencyShare;
  const bool limited = std::isfinite(row.memory_limit);
  const double memory_gib =
      limited ? static_cast<double>(row.memory_limit) * row.scale_ms * kBytesPerMs / kBytesPerGiB : kNoLimitGiB;
  // The slowest link in use is 1 GB/s.
  const double ratio = row.intra_over_inter;
  ServerGroup group;
  group.count = row.servers;
  group.devices = row.devices_per_server;
  if (row.servers == 1) {
    group.intra_gbytes_per_s = group.inter_gbytes_per_s = 1;
  } else if (ratio < 1 && row.devices_per_server > 1) {
    group.intra_gbytes_per_s = 1;
    group.inter_gbytes_per_s = 1 / ratio;
  } else {
    group.intra_gbytes_per_s = ratio;
    group.inter_gbytes_per_s = 1;
  }
  group.device = "d";
  DeviceType type;
  type.memory_gib = memory_gib;
  if (all_equal(row)) {
    cluster.servers.push_back(group);
    cluster.devices.emplace(group.device, type);
    return cluster;
  }
  for (const ServerKind& server : different_servers(row)) {
    ServerGroup own = group;
    own.count = 1;
    own.devices = server.devices;
    own.intra_gbytes_per_s *= server.intra;
    own.inter_gbytes_per_s *= server.inter;
    // One device type per (speed, memory): "d1.5/2".
    own.device = "d" + std::to_string(static_cast<int>(server.speed * 100 + 0.5)) + "/" +
                 std::to_string(static_cast<int>(server.memory));
    type.relative_speed = server.speed;
    type.memory_gib = limited ? memory_gib * server.memory : memory_gib;
    cluster.devices.emplace(own.device, type);
    cluster.servers.push_back(own);
  }
  return cluster;
}

// Times at 1 and at all samples, linear between; c_ms is of all of them.
DeviceTimes times_of_row(const RowProblem& row, const std::vector<double>& instructions, const Profile& profile) {
  constexpr double kMostFixed = 0.98;  // of a position's time at all samples
  const double samples = row.samples, phi = row.forward_fraction;
  double all_ms = 0, all_instructions = 0;
  for (std::size_t i = 0; i < profile.c_ms.size(); ++i) {
    all_ms += profile.c_ms[i];
    all_instructions += instructions[i];
  }
  // c(1) = fixed + linear and c(mb) = fixed + linear mb, fixed = u c(1).
  const double u = row.launch_share, even = row.launch_even;
  const double fixed_ms = all_ms * u / (u + (1 - u) * samples);
  DeviceTimes times;
  times.device = profile.device;
  times.samples = samples > 1 ? std::vector<double>{1, samples} : std::vector<double>{1};
  for (const double b : times.samples) {
    std::vector<double> forward, backward;
    for (std::size_t i = 0; i < profile.c_ms.size(); ++i) {
      const double spread = even * instructions[i] / all_instructions + (1 - even) * profile.c_ms[i] / all_ms;
      const double fixed = std::min(fixed_ms * spread, kMostFixed * profile.c_ms[i]);
      const double c = b == samples ? profile.c_ms[i] : fixed + (profile.c_ms[i] - fixed) * (b / samples);
      forward.push_back(phi * c);
      backward.push_back((1 - phi) * c);
    }
    times.forward_ms.push_back(std::move(forward));
    times.backward_ms.push_back(std::move(backward));
  }
  for (const double bytes : profile.w_bytes) {
    times.optimizer_ms.push_back(row.optimizer_factor * bytes / kBytesPerMs);
  }
  return times;
}

// Turns a problem of fractional replicas into one of whole samples.
void make_row_whole(const RowProblem& row, const std::vector<double>& instructions, ProblemParts& parts) {
  Profile& profile = parts.profile;
  ProblemOptions& options = parts.options;
  options.replicas = Replicas::kWhole;
  options.micro_batch_samples = row.samples;
  options.state_factor.reset();
  options.allow_idle_stages = false;
  options.gradient_sync = row.gradient_sync == 1 ? GradientSync::kOverlap : GradientSync::kAfter;
  options.bucket_bytes = static_cast<double>(row.bucket) * row.scale_ms * kBytesPerMs;
  options.optimizer = row.optimizer_factor > 0;
  profile.device = parts.cluster.servers.front().device;
  profile.micro_batch_size = row.samples;
  profile.times.push_back(times_of_row(row, instructions, profile));
  const std::size_t count = profile.c_ms.size();
  for (std::size_t i = 0; i < count; ++i) {
    profile.gradient_bytes.push_back(row.gradient_share * profile.w_bytes[i]);
    profile.slot_bytes.push_back(row.slot_factor * profile.w_bytes[i]);
    if (row.workspace_factor > 0) profile.workspace_bytes.push_back(row.workspace_factor * profile.a_bytes[i]);
    if (row.layers > 0) profile.layer.push_back(std::to_string(i * row.layers / count));
  }
  const int levels = row.zero + 1;
  options.variants.clear();
  for (int v = 0; v < variants_of_row(row); ++v) options.variants.push_back({v % levels, v >= levels});
}

}  // namespace

int devices_of_row(const RowProblem& row) {
  if (all_equal(row)) return row.servers * row.devices_per_server;
  int devices = 0;
  for (const ServerKind& server : different_servers(row)) devices += server.devices;
  return devices;
}

int instructions_of_row(const RowProblem& row) {
  return static_cast<int>(std::min<std::uint32_t>(row.num_instructions, kGranularity));
}

int variants_of_row(const RowProblem& row) {
  return row.samples == 0 ? 1 : (row.zero + 1) * (row.layers > 0 ? 2 : 1);
}

namespace {

// True if `stages` groups, each of a size that divides `samples`, can have `devices` devices in all (< kBits).
template <std::size_t kBits>
bool reachable(int devices, int stages, int samples) {
  std::bitset<kBits> now, next;
  now.set(0);
  for (int stage = 0; stage < stages; ++stage) {
    next.reset();
    for (int size = 1; size <= std::min(devices, samples); ++size) {
      if (samples % size == 0) next |= now << static_cast<std::size_t>(size);
    }
    now = next;
  }
  return now.test(static_cast<std::size_t>(devices));
}

}  // namespace

bool groups_exist(int devices, int stages, int samples) {
  // One or two words do for most rows: asked for each row that is drawn, the room for all sizes took a fifth of that.
  if (devices < 64) return reachable<64>(devices, stages, samples);
  if (devices < 128) return reachable<128>(devices, stages, samples);
  if (devices < 576) return reachable<576>(devices, stages, samples);
  return reachable<machine::kMaxDevices + 1>(devices, stages, samples);
}

bool groups_of_row_exist(const RowProblem& row) {
  return row.samples == 0 || groups_exist(devices_of_row(row), row.stages, row.samples);
}

void check_row(const RowProblem& row) {
  check_numbers(row);
  if (row.samples > 0) check_step(row);
  const float* values = row.caw.data();
  check_array(values, "C'", row.num_instructions, true);
  check_array(values + kGranularity, "A'", row.num_instructions, false);
  check_array(values + 2 * kGranularity, "W'", row.num_instructions, true);
  if (!(values[kGranularity - 1] > 0)) fail("C' is zero everywhere, expected some compute");
  const int most_stages = std::min(devices_of_row(row), instructions_of_row(row));
  if (row.stages < 1 || row.stages > most_stages) {
    fail("stages is " + std::to_string(row.stages) + ", expected 1 to " + std::to_string(most_stages) +
         ", the smaller of devices and instructions");
  }
}

ProblemParts problem_of_row(const RowProblem& row) {
  check_row(row);
  ProblemParts parts;
  parts.cluster = cluster_of_row(row);
  parts.options.micro_batches = row.micro_batches;
  parts.options.memory = std::isfinite(row.memory_limit);
  parts.options.state_factor = kStateFactor;
  Profile& profile = parts.profile;
  profile.model = "row";
  profile.forward_fraction = row.forward_fraction;
  const auto count = static_cast<std::size_t>(instructions_of_row(row));
  profile.c_ms.reserve(count);
  profile.a_bytes.reserve(count);
  profile.w_bytes.reserve(count);
  profile.stash_bytes.reserve(count);
  std::vector<double> instructions;  // of each position
  instructions.reserve(count);
  std::int64_t instructions_before = 0;
  const double scale_ms = row.scale_ms;
  const float* compute = row.caw.data();
  const float* activation = compute + kGranularity;
  const float* weight = activation + kGranularity;
  double compute_before = 0, weight_before = 0;
  for (std::size_t k = 0; k < kGranularity; ++k) {
    if (row.num_instructions < kGranularity &&
        instruction_of_point(k + 1, row.num_instructions) == instruction_of_point(k, row.num_instructions)) {
      continue;
    }
    // Differences of floats are exact in double, so sums over stages are those of the row.
    profile.c_ms.push_back((compute[k] - compute_before) * scale_ms);
    profile.w_bytes.push_back((weight[k] - weight_before) * scale_ms * kBytesPerMs);
    profile.a_bytes.push_back(activation[k] * scale_ms * kBytesPerMs);
    profile.stash_bytes.push_back(row.stash_factor * profile.a_bytes.back());
    compute_before = compute[k];
    weight_before = weight[k];
    const std::int64_t until = instruction_of_point(k + 1, row.num_instructions);
    instructions.push_back(static_cast<double>(until - instructions_before));
    instructions_before = until;
  }
  if (row.samples > 0) make_row_whole(row, instructions, parts);
  return parts;
}

RowProblem row_of_problem(const Profile& profile, const Cluster& cluster, const ProblemOptions& options, int stages,
                          Schedule schedule) {
  const Row made = make_row(profile, cluster);
  const double bytes_per_ms = slowest_link_bytes_per_ms(cluster);
  RowProblem row;
  float* values = row.caw.data();
  std::copy(made.compute.begin(), made.compute.end(), values);
  std::copy(made.activation.begin(), made.activation.end(), values + kGranularity);
  std::copy(made.weight.begin(), made.weight.end(), values + 2 * kGranularity);
  row.scale_ms = static_cast<float>(made.scale_ms);
  row.num_instructions = static_cast<std::uint32_t>(profile.size());
  const int devices = cluster.num_devices();
  // Equal servers of the same total: as many as divide it, at most the present number.
  int servers = cluster.num_servers();
  while (devices % servers != 0) --servers;
  row.servers = static_cast<std::uint16_t>(servers);
  row.devices_per_server = static_cast<std::uint16_t>(devices / servers);
  double intra = std::numeric_limits<double>::infinity(), inter = intra, capacity_gib = intra;
  for (const ServerGroup& group : cluster.servers) {
    if (group.devices > 1) intra = std::min(intra, group.intra_gbytes_per_s);
    inter = std::min(inter, group.inter_gbytes_per_s);
    capacity_gib = std::min(capacity_gib, cluster.devices.at(group.device).memory_gib);
  }
  const bool both_links = servers > 1 && std::isfinite(intra);
  row.intra_over_inter = both_links ? static_cast<float>(intra / inter) : 1;
  row.micro_batches =
      static_cast<std::uint16_t>(std::clamp<int>(options.micro_batches, 1, std::numeric_limits<std::uint16_t>::max()));
  row.stages = static_cast<std::uint16_t>(stages);
  row.schedule = schedule;
  row.forward_fraction = static_cast<float>(profile.forward_fraction);
  // factor W + stash K / g <= capacity is the same as 4 W + (4 / factor) (stash K / g) <= (4 / factor) capacity.
  const double to_state_factor = kStateFactor / std::max(options.state_factor.value_or(kStateFactor), 1e-3);
  if (options.memory) {
    row.memory_limit = static_cast<float>(to_state_factor * capacity_gib * kBytesPerGiB / bytes_per_ms / made.scale_ms);
  }
  double stash_bytes = 0, activation = 0;
  for (double bytes : profile.stash_bytes) stash_bytes += bytes;
  for (std::size_t k = 0; k < kGranularity; ++k) {
    if (!made.repeated[k]) activation += made.activation[k];
  }
  if (activation > 0) {
    row.stash_factor = static_cast<float>(to_state_factor * stash_bytes / bytes_per_ms / made.scale_ms / activation);
  }
  const double latency_us =
      cluster.num_servers() > 1 ? cluster.inter_latency_us : cluster.intra_latency_us / kIntraLatencyShare;
  row.hop_latency = static_cast<float>(latency_us * 1e-3 / made.scale_ms);
  return row;
}

}  // namespace automap::pipeline
