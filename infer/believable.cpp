#include "infer/believable.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/join.h"
#include "common/machine/device.h"
#include "common/machine/expected_error.h"

namespace automap::infer {
namespace {

using machine::Cluster;
using machine::ExpectedError;
using machine::ServerGroup;

// In the order of the servers.
std::vector<std::string> device_types(const Cluster& cluster) {
  std::vector<std::string> types;
  for (const ServerGroup& servers : cluster.servers) {
    if (std::find(types.begin(), types.end(), servers.device) == types.end()) types.push_back(servers.device);
  }
  return types;
}

bool links_measured(const Cluster& cluster) {
  return std::none_of(cluster.servers.begin(), cluster.servers.end(),
                      [](const ServerGroup& servers) { return servers.links.empty(); });
}

std::string text_of(const ExpectedError& error) {
  return "±" + std::to_string(std::lround(100 * error.share)) + " % " +
         (error.basis.empty() ? "assumed" : "expected, from " + error.basis);
}

}  // namespace

ExpectedErrors expected_errors(const pipeline::Profile& profile, const Cluster& cluster) {
  ExpectedErrors errors;
  for (const std::string& type : device_types(cluster)) {
    errors.compute = std::max(errors.compute, machine::compute_error(type, profile.work).share);
  }
  errors.links = machine::link_error(links_measured(cluster)).share;
  errors.memory = machine::memory_error().share;
  return errors;
}

std::vector<std::string> expected_errors_text(const pipeline::Profile& profile, const Cluster& cluster) {
  std::vector<std::string> lines;
  for (const std::string& type : device_types(cluster)) {
    std::string line = type + ", " + (profile.work.empty() ? "work unknown" : "mostly " + profile.work) + ": " +
                       text_of(machine::compute_error(type, profile.work));
    if (const auto device = machine::find_device(type)) {
      const std::vector<std::string> assumed = machine::assumed_constants(*device);
      if (!assumed.empty()) line += "; assumptions: " + join(assumed);
    }
    lines.push_back(std::move(line));
  }
  if (cluster.num_devices() > 1) {
    const bool measured = links_measured(cluster);
    lines.push_back(std::string("links ") + (measured ? "as measured" : "by ring formulas") + ": " +
                    text_of(machine::link_error(measured)));
  }
  return lines;
}

}  // namespace automap::infer
