#include "plan/planners/any_width.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/numbers.h"

namespace automap::planners {

using pipeline::DeviceGroup;
using pipeline::DeviceTimes;
using pipeline::MixedProblem;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::StageColumns;
using pipeline::StageVariant;

namespace {

// Groups that share columns of the problem of one width.
struct Kind {
  const Problem* problem;
  const DeviceGroup* group;
  bool operator<(const Kind& o) const { return group->columns < o.group->columns; }
};
// Width -> the kinds of groups of some number of single devices that hold a device of some type.
using KindsOfWidths = std::map<int, std::set<Kind>>;
// That number, the most first (so the fewest samples).
using KindsOfSizes = std::map<int, KindsOfWidths, std::greater<>>;

std::vector<std::string> devices_of_servers(const machine::Cluster& cluster) {
  std::vector<std::string> devices;
  for (const machine::ServerGroup& servers : cluster.servers) {
    devices.insert(devices.end(), static_cast<std::size_t>(servers.count), servers.device);
  }
  return devices;
}

std::map<std::string, KindsOfSizes> kinds_of(const MixedProblem& mixed, const machine::Cluster& cluster) {
  const std::vector<std::string> device_of = devices_of_servers(cluster);
  std::map<std::string, KindsOfSizes> kinds;
  for (const int width : mixed.widths()) {
    const Problem& problem = mixed.problem(width);
    for (int d0 = 0; d0 < problem.num_devices(); ++d0) {
      for (const int size : problem.group_sizes()) {
        if (d0 + size > problem.num_devices()) break;
        const DeviceGroup& group = problem.group(d0, d0 + size);
        if (!group.valid) continue;
        const int last = problem.server_of_device(d0 + size - 1);
        for (int server = problem.server_of_device(d0); server <= last; ++server) {
          kinds[device_of[static_cast<std::size_t>(server)]][size * width][width].insert({&problem, &group});
        }
      }
    }
  }
  return kinds;
}

void lower_each(std::vector<double>& least, const std::vector<double>& other) {
  for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], other[i]);
}

struct Times {
  std::vector<double> forward, backward;  // [n]
};

// The least time of every position over the kinds and variants of a stage.
Times least_of(const std::set<Kind>& kinds, std::size_t n) {
  Times least{std::vector<double>(n, kInfinity), std::vector<double>(n, kInfinity)};
  std::set<std::tuple<const double*, const double*, double>> seen;  // many have the same times
  for (const Kind& kind : kinds) {
    for (const int variant : kind.problem->useful_variants(*kind.group)) {
      const StageColumns& columns = kind.problem->columns(*kind.group, variant);
      if (!seen.emplace(columns.both, columns.backward, kind.group->scale).second) continue;
      for (std::size_t i = 0; i < n; ++i) {
        const double both = columns.both[i + 1] - columns.both[i];
        const double back = columns.backward[i + 1] - columns.backward[i];
        least.forward[i] = std::min(least.forward[i], std::max(0.0, (both - back) * kind.group->scale));
        least.backward[i] = std::min(least.backward[i], std::max(0.0, back * kind.group->scale));
      }
    }
  }
  return least;
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
  options.variants.assign(widths.size(), StageVariant());  // each a width
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
  Problem::TimesOfVariants of_widths(widths.size());
  for (const auto& [device, of_type] : kinds_of(mixed, cluster)) {
    DeviceTimes least;
    least.device = device;
    least.optimizer_ms.assign(n, 0);
    for (const auto& [size, of_size] : of_type) least.samples.push_back(options.micro_batch_samples / size);
    std::vector<DeviceTimes> of_width(widths.size(), least);
    for (const auto& [size, of_size] : of_type) {
      least.forward_ms.emplace_back(n, kInfinity);
      least.backward_ms.emplace_back(n, kInfinity);
      std::map<int, Times> times;
      for (const auto& [width, kinds] : of_size) {
        const Times& own = times[width] = least_of(kinds, n);
        lower_each(least.forward_ms.back(), own.forward);
        lower_each(least.backward_ms.back(), own.backward);
      }
      for (std::size_t w = 0; w < widths.size(); ++w) {
        const auto found = times.find(widths[w]);
        const Times& own = found != times.end() ? found->second : times.begin()->second;
        of_width[w].forward_ms.push_back(own.forward);
        of_width[w].backward_ms.push_back(own.backward);
      }
    }
    relaxed.times.push_back(std::move(least));
    for (std::size_t w = 0; w < widths.size(); ++w) of_widths[w].push_back(std::move(of_width[w]));
  }
  return std::make_unique<Problem>(relaxed, alike, options, of_widths);
}

}  // namespace automap::planners
