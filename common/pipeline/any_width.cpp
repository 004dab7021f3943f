#include "common/pipeline/any_width.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace automap::pipeline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Columns of a problem that some group of replicas of its width has.
struct Kind {
  const Problem* problem;
  const DeviceGroup* group;
  bool operator<(const Kind& o) const {
    return std::make_tuple(problem, group->columns, group->scale) <
           std::make_tuple(o.problem, o.group->columns, o.group->scale);
  }
};
// Single devices in a group, the most first (so the fewest samples) -> the kinds of such groups with a device of one
// type.
using Kinds = std::map<int, std::set<Kind>, std::greater<>>;

std::vector<std::string> devices_of_servers(const machine::Cluster& cluster) {
  std::vector<std::string> devices;
  for (const machine::ServerGroup& servers : cluster.servers) {
    devices.insert(devices.end(), static_cast<std::size_t>(servers.count), servers.device);
  }
  return devices;
}

std::map<std::string, Kinds> kinds_of(const MixedProblem& mixed, const machine::Cluster& cluster) {
  const std::vector<std::string> device_of = devices_of_servers(cluster);
  std::map<std::string, Kinds> kinds;
  for (const int width : mixed.widths()) {
    const Problem& problem = mixed.problem(width);
    for (int d0 = 0; d0 < problem.num_devices(); ++d0) {
      for (const int size : problem.group_sizes()) {
        if (d0 + size > problem.num_devices()) break;
        const DeviceGroup& group = problem.group(d0, d0 + size);
        if (!group.valid) continue;
        for (int server = group.first_server; server <= group.last_server; ++server) {
          kinds[device_of[static_cast<std::size_t>(server)]][size * width].insert({&problem, &group});
        }
      }
    }
  }
  return kinds;
}

// The least time of every position over the kinds and their variants.
void take_least(const std::set<Kind>& kinds, std::vector<double>& forward, std::vector<double>& backward) {
  for (const Kind& kind : kinds) {
    for (const int variant : kind.problem->useful_variants(*kind.group)) {
      const StageColumns& columns = kind.problem->columns(*kind.group, variant);
      for (std::size_t i = 0; i < forward.size(); ++i) {
        const double both = columns.both[i + 1] - columns.both[i];
        const double back = columns.backward[i + 1] - columns.backward[i];
        forward[i] = std::min(forward[i], std::max(0.0, (both - back) * kind.group->scale));
        backward[i] = std::min(backward[i], std::max(0.0, back * kind.group->scale));
      }
    }
  }
}

}  // namespace

std::unique_ptr<Problem> any_width_problem(const MixedProblem& mixed, const Profile& profile,
                                           const machine::Cluster& cluster) {
  const std::vector<int> widths = mixed.widths();
  const Problem& any = mixed.problem(widths.front());
  const int parts =
      std::accumulate(widths.begin(), widths.end(), 1, [](int a, int b) { return static_cast<int>(std::lcm(a, b)); });
  const auto n = static_cast<std::size_t>(profile.size());
  ProblemOptions options = any.options();
  options.micro_batch_samples = any.micro_batch_samples() * parts;
  options.width = 1;
  options.variants = {StageVariant()};
  options.memory = false;
  options.allow_empty_stages = true;
  options.allow_idle_stages = true;
  options.behind_backward = false;

  Profile relaxed;
  relaxed.device = profile.device;
  relaxed.micro_batch_size = any.profile_samples() * parts;
  relaxed.forward_fraction = profile.forward_fraction;
  relaxed.c_ms = profile.c_ms;
  relaxed.a_bytes = profile.a_bytes;
  relaxed.w_bytes.assign(n, 0);
  relaxed.stash_bytes.assign(n, 0);
  machine::Cluster alike = cluster;  // each type has times of its own
  for (auto& [name, device] : alike.devices) device.relative_speed = 1;
  for (const auto& [device, of_type] : kinds_of(mixed, cluster)) {
    DeviceTimes times;
    times.device = device;
    times.optimizer_ms.assign(n, 0);
    for (const auto& [size, kinds] : of_type) {
      times.samples.push_back(options.micro_batch_samples / size);
      times.forward_ms.emplace_back(n, kInfinity);
      times.backward_ms.emplace_back(n, kInfinity);
      take_least(kinds, times.forward_ms.back(), times.backward_ms.back());
    }
    relaxed.times.push_back(std::move(times));
  }
  return std::make_unique<Problem>(relaxed, alike, options);
}

}  // namespace automap::pipeline
