#include "plan/planners/believable.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/base/join.h"
#include "common/machine/device.h"
#include "common/machine/link_kinds.h"
#include "plan/planners/expected_error.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using machine::ServerGroup;

// In the order of the servers.
std::vector<std::string> device_types(const Cluster& cluster) {
  std::vector<std::string> types;
  for (const ServerGroup& servers : cluster.servers) {
    const std::string type = machine::device_type(servers.device);
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  return types;
}

// True where the links inside servers (between servers) were measured themselves, in all servers; nothing: there are no
// such links.
struct LinkBasis {
  bool measured = false;
  std::string text;
};
std::optional<LinkBasis> link_basis(const Cluster& cluster, bool inside) {
  const auto uses = [&](const ServerGroup& servers) {
    return inside ? servers.devices > 1 : cluster.num_servers() > 1;
  };
  bool any = false, figures = false, taken_over = false;
  for (const ServerGroup& servers : cluster.servers) {
    if (!uses(servers)) continue;
    any = true;
    const std::optional<bool> assumed = servers.links.assumed(inside);
    figures = figures || !assumed;
    taken_over = taken_over || assumed.value_or(false);
  }
  if (!any) return std::nullopt;
  const std::string where = inside ? "links inside servers" : "links between servers";
  if (figures) return LinkBasis{false, where + " by the cluster's figures"};
  if (taken_over) return LinkBasis{false, where + " as other ones were measured"};
  return LinkBasis{true, where + " as measured"};
}

std::string text_of(const ExpectedError& error) {
  const auto percent = [](double share) { return std::to_string(std::lround(100 * share)) + " %"; };
  const std::string range = error.less == error.more
                                ? "±" + percent(error.more)
                                : percent(error.less) + " shorter to " + percent(error.more) + " longer";
  return range + " " + (error.basis.empty() ? "assumed" : "expected, from " + error.basis);
}

// Whose times count for devices of a type: a profile that has none of the type is taken at its word.
std::string timed_as(const pipeline::Profile& profile, const std::string& type) {
  const bool own = std::any_of(profile.times.begin(), profile.times.end(),
                               [&](const pipeline::DeviceTimes& times) { return times.device == type; });
  return own || profile.device.empty() ? type : profile.device;
}

// "matmul bf16" -> {"matmul", "bf16"}.
struct NamedWork {
  std::string operation, type;
};
NamedWork split(const std::string& work) {
  const std::size_t space = work.find(' ');
  return space == std::string::npos ? NamedWork{work, ""} : NamedWork{work.substr(0, space), work.substr(space + 1)};
}

// The units that the work runs on; f32 products on those of tf32 where a device has them.
std::string units_of(const machine::DeviceModel& device, const std::string& type) {
  return device.units_of(type == "f32" ? "tf32" : type);
}

// Assumed constants that do not matter for the work are left out.
std::vector<std::string> assumptions_of(const machine::DeviceModel& device, const std::string& of) {
  const NamedWork work = split(of);
  const std::string units = units_of(device, work.type);
  std::vector<std::string> matter;
  for (const std::string& name : machine::assumed_constants(device)) {
    const bool other_type = name.rfind("matmul.", 0) == 0 && name != "matmul." + units;
    // The share of types without a row of their own.
    const bool no_row = name == "matmul_efficiency" && device.matmul.count(units) != 0;
    const bool convolution = name.find("convolution") != std::string::npos && work.operation != "convolution";
    if (of.empty() || (!other_type && !no_row && !convolution)) matter.push_back(name);
  }
  return matter;
}

std::string device_text(const pipeline::Profile& profile, const std::string& type,
                        const std::optional<machine::DeviceModel>& own) {
  const std::string timed = timed_as(profile, type);
  const std::optional<machine::DeviceModel> device =
      own && own->name == timed ? own : machine::find_changed_device(timed);
  std::string line = type;
  if (timed != type) line += ", counted as " + timed;
  if (profile.work.empty()) {
    line += ", work unknown";
  } else {
    const std::string as = split(profile.work).type;
    const std::string units = device ? units_of(*device, as) : as;
    line += ", mostly " + profile.work + (units != as ? " on units for " + units : "");
  }
  line += ": " + text_of(compute_error(timed, profile.work));
  if (device) {
    const std::vector<std::string> assumed = assumptions_of(*device, profile.work);
    if (!assumed.empty()) line += "; assumptions: " + join(assumed);
  }
  return line;
}

}  // namespace

ExpectedErrors expected_errors(const pipeline::Profile& profile, const Cluster& cluster) {
  ExpectedErrors errors;
  for (const std::string& type : device_types(cluster)) {
    const ExpectedError error = compute_error(timed_as(profile, type), profile.work);
    errors.compute_less = std::max(errors.compute_less, error.less);
    errors.compute_more = std::max(errors.compute_more, error.more);
  }
  const auto links = [&](bool inside) {
    const std::optional<LinkBasis> basis = link_basis(cluster, inside);
    return basis ? link_error(basis->measured).larger() : 0;
  };
  errors.links_inside = links(true);
  errors.links_between = links(false);
  errors.memory = memory_error().larger();
  return errors;
}

std::vector<std::string> expected_errors_text(const pipeline::Profile& profile, const Cluster& cluster,
                                              const std::optional<machine::DeviceModel>& own) {
  std::vector<std::string> lines;
  for (const std::string& type : device_types(cluster)) lines.push_back(device_text(profile, type, own));
  for (const bool inside : {true, false}) {
    if (const std::optional<LinkBasis> basis = link_basis(cluster, inside))
      lines.push_back(basis->text + ": " + text_of(link_error(basis->measured)));
  }
  if (!profile.stash_bytes.empty()) {
    lines.push_back("memory of activations and workspace: " + text_of(memory_error()));
  }
  return lines;
}

}  // namespace automap::planners
