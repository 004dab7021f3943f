#include "infer/frontier.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/numbers.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"

namespace automap::infer {
namespace {

using machine::are_alike_and_as_dear;
using machine::Cluster;
using machine::ServerGroup;
using pipeline::FrontierPoint;

// Combinations of servers of several kinds.
constexpr std::size_t kMostCombinations = 48;
constexpr int kEveryNumberUpTo = 8;
constexpr double kMostReach = 1e15;

double within_of(const std::string& text) {
  char* end = nullptr;
  const double percent = std::strtod(text.c_str(), &end);
  while (*end == ' ') ++end;
  if (text.find_first_not_of("0123456789. %") != std::string::npos || std::string(end) != "%" ||
      text.find_first_of("0123456789") == std::string::npos || !(percent >= 0 && percent <= 1e4)) {
    throw Error(ErrorKind::kUsage,
                "--within: found '" + printable(text) + "', expected how much longer than the fastest, in percent",
                "as in --within 10%");
  }
  return percent / 100;
}

// "250k tokens/s", "64 samples", "1e6".
void read_reach(const std::string& text, FrontierRequest* request) {
  const auto fail = [&] {
    throw Error(ErrorKind::kUsage,
                "--reach: found '" + printable(text) + "', expected tokens or samples a second, above 0",
                "as in --reach 250000, --reach 250k or --reach 64samples");
  };
  if (text.empty() || text.find_first_of("0123456789.") != 0) fail();
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  std::string rest(end);
  rest.erase(0, std::min(rest.size(), rest.find_first_not_of(' ')));
  const std::pair<char, double> factors[] = {{'k', 1e3}, {'M', 1e6}, {'G', 1e9}};
  for (const auto& [letter, factor] : factors) {
    if (rest.empty() || rest.front() != letter) continue;
    value *= factor;
    rest.erase(0, 1);
    break;
  }
  rest.erase(0, std::min(rest.size(), rest.find_first_not_of(' ')));
  if (rest.size() > 2 && rest.compare(rest.size() - 2, 2, "/s") == 0) rest.resize(rest.size() - 2);
  if (!rest.empty() && rest != "tokens" && rest != "samples") fail();
  if (!(value > 0 && value <= kMostReach)) fail();
  request->reach = value;
  request->reach_unit = rest;
}

// How many servers of `all` are looked at.
std::vector<int> numbers_of(int all, bool few) {
  std::vector<int> out;
  for (int n = 1; n <= all;) {
    out.push_back(n);
    if (few) {
      n *= 2;
    } else if (n < kEveryNumberUpTo) {
      ++n;
    } else {
      const bool power = (n & (n - 1)) == 0;
      n = power ? n + n / 2 : n / 3 * 4;
    }
  }
  if (out.back() != all) out.push_back(all);
  return out;
}

// That `counts` take no server of a group while one like it in front is left.
bool takes_first_ones(const Cluster& cluster, const std::vector<int>& counts) {
  for (std::size_t g = 1; g < counts.size(); ++g) {
    for (std::size_t f = 0; f < g && counts[g] > 0; ++f) {
      if (counts[f] < cluster.servers[f].count && are_alike_and_as_dear(cluster.servers[f], cluster.servers[g]))
        return false;
    }
  }
  return true;
}

Rented rent(const Cluster& cluster, const std::vector<machine::ServerShare>& shares) {
  Rented rented;
  std::vector<int> devices = machine::devices_of(cluster, shares);
  rented.whole = static_cast<int>(devices.size()) == cluster.num_devices();
  rented.cluster = rented.whole ? cluster : machine::as_whole(machine::on_devices(cluster, devices));
  rented.devices = std::move(devices);
  return rented;
}

int first_server(const Cluster& cluster, std::size_t group) {
  int first = 0;
  for (std::size_t g = 0; g < group; ++g) first += cluster.servers[g].count;
  return first;
}

Rented rent_servers(const Cluster& cluster, const std::vector<int>& counts) {
  std::vector<machine::ServerShare> shares;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    for (int s = 0; s < counts[g]; ++s) shares.push_back({first_server(cluster, g) + s, cluster.servers[g].devices});
  }
  Rented rented = rent(cluster, shares);
  rented.servers = counts;
  return rented;
}

// Every combination of so many servers of each group, but none at all.
std::vector<std::vector<int>> combinations(const std::vector<std::vector<int>>& numbers) {
  std::vector<std::vector<int>> all = {{}};
  for (const std::vector<int>& of_group : numbers) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& one : all) {
      for (const int number : of_group) {
        longer.push_back(one);
        longer.back().push_back(number);
      }
    }
    all = std::move(longer);
  }
  const auto is_none = [](const std::vector<int>& one) {
    return std::all_of(one.begin(), one.end(), [](int number) { return number == 0; });
  };
  all.erase(std::remove_if(all.begin(), all.end(), is_none), all.end());
  return all;
}

std::vector<std::vector<int>> numbers_of_servers(const Cluster& cluster) {
  if (cluster.servers.size() == 1) {
    std::vector<std::vector<int>> all;
    for (const int number : numbers_of(cluster.servers.front().count, false)) all.push_back({number});
    return all;
  }
  for (const bool few : {false, true}) {
    std::vector<std::vector<int>> numbers;
    double product = 1;
    for (const ServerGroup& group : cluster.servers) {
      numbers.push_back(numbers_of(group.count, few));
      numbers.back().insert(numbers.back().begin(), 0);
      product *= static_cast<double>(numbers.back().size());
    }
    if (product <= static_cast<double>(kMostCombinations)) return combinations(numbers);
  }
  // Every group alone, and with all groups in front of it.
  std::vector<std::vector<int>> all;
  const std::size_t groups = cluster.servers.size();
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<int> in_front(groups, 0);
    for (std::size_t f = 0; f <= g; ++f) in_front[f] = cluster.servers[f].count;
    all.push_back(in_front);
    for (const int number : numbers_of(cluster.servers[g].count, true)) {
      std::vector<int> alone(groups, 0);
      alone[g] = number;
      if (alone != in_front) all.push_back(alone);
    }
  }
  return all;
}

double rate_of(const FrontierPoint& point, const std::string& unit) {
  return unit == "tokens" ? point.tokens_per_s : point.samples_per_s;
}

bool dominates(const FrontierPoint& one, const FrontierPoint& other) {
  const auto figures = [](const FrontierPoint& point) {
    return std::make_tuple(point.step_ms, point.devices, point.cost.price_per_hour);
  };
  return one.step_ms <= other.step_ms && one.devices <= other.devices &&
         one.cost.price_per_hour <= other.cost.price_per_hour && figures(one) != figures(other);
}

// The number in three digits, none above it.
std::string at_most_text(double value) {
  const double last_digit = std::pow(10, std::floor(std::log10(value)) - 2);
  const double rounded = std::floor(value / last_digit) * last_digit;
  return rounded >= 100 ? std::to_string(std::llround(rounded)) : format_number(rounded);
}

std::string unit_of(const FrontierRequest& request, const std::vector<FrontierPoint>& points) {
  if (!request.reach_unit.empty()) return request.reach_unit;
  return std::any_of(points.begin(), points.end(), [](const FrontierPoint& point) { return point.tokens_per_s > 0; })
             ? "tokens"
             : "samples";
}

}  // namespace

std::optional<FrontierRequest> frontier_asked(const OptionTable& table, const InferOptions& o) {
  const bool minimizes = o.minimize != "none", within = o.within != "none", reaches = o.reach != "none";
  if (!minimizes && !within && !reaches) return std::nullopt;
  FrontierRequest request;
  request.least = minimizes ? o.minimize : "devices";
  if (within) request.within = within_of(o.within);
  if (reaches) read_reach(o.reach, &request);
  const std::string mode = minimizes ? "--minimize" : within ? "--within" : "--reach";
  if (within && !minimizes) {
    throw Error(ErrorKind::kUsage, "--within " + o.within + " without --minimize: nobody says what is to be least",
                "add --minimize devices or --minimize cost");
  }
  if (request.least == "time" && (within || reaches)) {
    throw Error(
        ErrorKind::kUsage,
        "--minimize time takes the fastest: " + std::string(within ? "--within" : "--reach") + " would change nothing",
        "--minimize devices or --minimize cost chooses among those that are fast enough");
  }
  const std::pair<const char*, bool> others[] = {{"plan", !o.plan.empty()},
                                                 {"layout", !o.layout.empty()},
                                                 {"sweep", o.sweep},
                                                 {"vary", !o.vary.empty()},
                                                 {"compare-clusters", !o.compare_clusters.empty()},
                                                 {"search-state", !o.search_state.empty()}};
  for (const auto& [option, given] : others) {
    if (!given) continue;
    throw Error(ErrorKind::kUsage, mode + " asks about several numbers of devices: --" + option + " does not fit it",
                table.source_of(option) == "flag" ? "drop one of them" : "it is set in " + table.source_of(option));
  }
  return request;
}

std::string servers_text(const Rented& rented) {
  const std::vector<ServerGroup>& groups = rented.cluster.servers;
  std::string out;
  for (std::size_t g = 0; g < groups.size();) {
    int count = 0;
    const std::size_t first = g;
    for (; g < groups.size() && are_alike_and_as_dear(groups[first], groups[g]); ++g) count += groups[g].count;
    out += (out.empty() ? "" : " + ") + std::to_string(count) + " x " + std::to_string(groups[first].devices) + " " +
           groups[first].device;
  }
  return out;
}

std::vector<Rented> rented_parts(const Cluster& cluster) {
  std::vector<Rented> parts;
  for (const std::vector<int>& counts : numbers_of_servers(cluster)) {
    if (takes_first_ones(cluster, counts)) parts.push_back(rent_servers(cluster, counts));
  }
  for (std::size_t g = 0; g < cluster.servers.size(); ++g) {
    std::vector<int> alone(cluster.servers.size(), 0);
    alone[g] = 1;
    if (!takes_first_ones(cluster, alone)) continue;
    for (int devices = 1; devices < cluster.servers[g].devices; devices *= 2) {
      parts.push_back(rent(cluster, {{first_server(cluster, g), devices}}));
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Rented& a, const Rented& b) { return a.devices.size() > b.devices.size(); });
  return parts;
}

std::optional<Rented> part_between(const Cluster& cluster, const std::vector<Rented>& rented,
                                   const std::vector<FrontierPoint>& points, const FrontierRequest& request) {
  if (cluster.servers.size() != 1) return std::nullopt;
  const std::optional<std::size_t> chosen = choose(points, request);
  if (!chosen || rented[*chosen].servers.empty()) return std::nullopt;
  const int own = rented[*chosen].servers.front();
  int below = 0, above = cluster.servers.front().count + 1;
  for (const Rented& part : rented) {
    if (part.servers.empty()) continue;
    const int servers = part.servers.front();
    if (servers < own) below = std::max(below, servers);
    if (servers > own) above = std::min(above, servers);
  }
  if (own - below > 1) return rent_servers(cluster, {(own + below) / 2});
  // More devices than the fewest are no answer.
  if (request.least != "devices" && above <= cluster.servers.front().count && above - own > 1) {
    return rent_servers(cluster, {(own + above) / 2});
  }
  return std::nullopt;
}

std::optional<std::size_t> choose(const std::vector<FrontierPoint>& points, const FrontierRequest& request) {
  double least_ms = kInfinity;
  for (const FrontierPoint& point : points) {
    if (point.found()) least_ms = std::min(least_ms, point.step_ms);
  }
  const std::string unit = unit_of(request, points);
  std::optional<std::size_t> chosen;
  const auto order = [&](const FrontierPoint& point) {
    const double cost = point.cost.per_step, devices = point.devices;
    if (request.least == "time") return std::make_tuple(point.step_ms, devices, cost);
    if (request.least == "devices") return std::make_tuple(devices, cost, point.step_ms);
    return std::make_tuple(cost, point.step_ms, devices);
  };
  for (std::size_t p = 0; p < points.size(); ++p) {
    const FrontierPoint& point = points[p];
    if (!point.found()) continue;
    if (request.reach && rate_of(point, unit) == 0) {
      throw Error(ErrorKind::kUsage, "--reach: how many " + unit + " this model has is not known",
                  "ask for samples, as in --reach 64samples");
    }
    if (request.within && point.step_ms > least_ms * (1 + *request.within)) continue;
    if (request.reach && rate_of(point, unit) < *request.reach) continue;
    if (!chosen || order(point) < order(points[*chosen])) chosen = p;
  }
  return chosen;
}

Error unreached(const std::vector<FrontierPoint>& points, const FrontierRequest& request, const std::string& cluster) {
  const std::string unit = unit_of(request, points);
  const auto most = std::max_element(points.begin(), points.end(),
                                     [&](const auto& a, const auto& b) { return rate_of(a, unit) < rate_of(b, unit); });
  AM_CHECK(request.reach && most != points.end() && most->found());
  const double rate = rate_of(*most, unit);
  return Error(ErrorKind::kInfeasible,
               "no part of cluster '" + printable(cluster) + "' reaches " + format_number(*request.reach, 6) + " " +
                   unit + " a second; the most is " + format_number(rate, 6) + ", on " +
                   plural(most->devices, "device") + " (" + most->servers + ")",
               "name a larger --cluster, or --reach " + at_most_text(rate) + unit + " at most");
}

pipeline::PlanFrontier frontier_of(std::vector<FrontierPoint> points, std::size_t chosen,
                                   const FrontierRequest& request) {
  pipeline::PlanFrontier frontier;
  frontier.minimized = request.least;
  frontier.within = request.within;
  frontier.reach = request.reach;
  if (request.reach) frontier.reach_unit = unit_of(request, points);
  points[chosen].chosen = true;
  for (FrontierPoint& point : points) {
    point.best = point.found() && std::none_of(points.begin(), points.end(), [&](const FrontierPoint& other) {
                   return other.found() && dominates(other, point);
                 });
  }
  std::stable_sort(points.begin(), points.end(), [](const FrontierPoint& a, const FrontierPoint& b) {
    return std::make_pair(a.devices, a.step_ms) < std::make_pair(b.devices, b.step_ms);
  });
  frontier.points = std::move(points);
  return frontier;
}

}  // namespace automap::infer
