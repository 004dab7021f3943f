#include "infer/prices.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/number_range.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "common/machine/device.h"

namespace automap::infer {
namespace {

constexpr const char* kHowToSay =
    "--price 2.5 says it of all devices, --price h100=2.5,a100-80gb=1.2 by type, and "
    "price_per_device_hour in the servers of a cluster file";

double price_of(const std::string& text) {
  char* end = nullptr;
  const double price = std::strtod(text.c_str(), &end);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789.e+-") == std::string::npos;
  if (!digits || *end != '\0' || !in_figure_range(price)) {
    throw Error(ErrorKind::kUsage,
                "--price: found '" + printable(text) + "', expected the price of a device for an hour, " + kFigureRange,
                "as in --price 2.5, or --price h100=2.5,a100-80gb=1.2");
  }
  return price;
}

// Whether `name` is the type's name, or another one of it.
bool is_type(const std::string& name, const std::string& type) {
  if (name == type) return true;
  const auto one = machine::find_device(name), other = machine::find_device(type);
  return one && other && one->name == other->name;
}

std::vector<std::string> types_of(const machine::Cluster& cluster) {
  std::vector<std::string> types;
  for (const machine::ServerGroup& group : cluster.servers) {
    if (std::find(types.begin(), types.end(), group.device) == types.end()) types.push_back(group.device);
  }
  return types;
}

}  // namespace

void set_prices(const std::string& text, machine::Cluster* cluster) {
  if (text.find('=') == std::string::npos) {
    const double price = price_of(text);
    for (machine::ServerGroup& group : cluster->servers) group.price_per_device_hour = price;
    return;
  }
  const std::vector<std::string> types = types_of(*cluster);
  std::set<std::string> seen;
  for (const std::string& part : split_at_commas(text)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) price_of("");
    const std::string name = part.substr(0, equals);
    const double price = price_of(part.substr(equals + 1));
    const auto type =
        std::find_if(types.begin(), types.end(), [&](const std::string& one) { return is_type(name, one); });
    if (type == types.end()) {
      const std::string near = closest_name(name, types);
      throw Error(ErrorKind::kUsage,
                  "--price: cluster '" + printable(cluster->name) + "' has no device '" + printable(name) + "'",
                  near.empty() ? "it has " + join(types) : "did you mean '" + near + "'?");
    }
    if (!seen.insert(*type).second) {
      throw Error(ErrorKind::kUsage, "--price: '" + printable(name) + "' comes twice", "name it once");
    }
    for (machine::ServerGroup& group : cluster->servers) {
      if (group.device == *type) group.price_per_device_hour = price;
    }
  }
}

double price_per_hour(const machine::Cluster& cluster) {
  double sum = 0;
  for (const machine::ServerGroup& group : cluster.servers) {
    if (!(group.price_per_device_hour > 0)) return 0;
    sum += group.price_per_device_hour * group.count * group.devices;
  }
  return sum;
}

void check_prices(const machine::Cluster& cluster, bool needed) {
  std::vector<std::string> missing;
  for (std::size_t g = 0; g < cluster.servers.size(); ++g) {
    const machine::ServerGroup& group = cluster.servers[g];
    if (group.price_per_device_hour > 0) continue;
    missing.push_back("servers[" + std::to_string(g) + "] (" + printable(group.device) + ")");
  }
  const bool none = missing.size() == cluster.servers.size();
  if (missing.empty() || (none && !needed)) return;
  throw Error(ErrorKind::kUsage,
              "cluster '" + printable(cluster.name) + "' says no price of " +
                  (none ? "its devices, and --minimize cost needs it"
                        : join(missing) + ", and a price of its other devices alone says no cost"),
              kHowToSay);
}

}  // namespace automap::infer
