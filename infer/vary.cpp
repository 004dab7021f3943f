#include "infer/vary.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/suggest.h"
#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"

namespace automap::infer {
namespace {

constexpr std::size_t kMostValues = 64;
constexpr double kLargestValue = 1e9;

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

double positive_number(const std::string& text, bool whole, const std::string& name) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool digits =
      !text.empty() && text.find_first_not_of(whole ? "0123456789" : "0123456789.e+") == std::string::npos;
  if (!digits || *end != '\0' || !(value > 0 && value <= kLargestValue) || (whole && value != std::floor(value))) {
    throw Error(ErrorKind::kUsage,
                "--vary " + name + ": found '" + text + "', expected " + (whole ? "a whole number" : "a number") +
                    " above 0, or a range of them",
                "as in --vary " + name + (whole ? "=64,128,256 or " : "=16,40,80 or ") + name + "=8..64");
  }
  return value;
}

// "8..64": doubled from the first to the last, both included.
std::vector<std::string> values_of_range(const std::string& text, std::size_t dots, bool whole,
                                         const std::string& name) {
  const double first = positive_number(text.substr(0, dots), whole, name);
  const double last = positive_number(text.substr(dots + 2), whole, name);
  if (last < first) {
    throw Error(ErrorKind::kUsage, "--vary " + name + ": the range '" + text + "' ends below its beginning");
  }
  std::vector<std::string> values;
  const auto add = [&](double value) { values.push_back(format_number(value, whole ? 12 : 6)); };
  for (double value = first; value < last; value *= 2) add(value);
  add(last);
  // "16.0000" -> "16".
  for (std::string& value : values) {
    if (value.find('.') == std::string::npos) continue;
    value.erase(value.find_last_not_of('0') + 1);
    if (value.back() == '.') value.pop_back();
  }
  return values;
}

Varied parse_vary(const std::string& text) {
  Varied varied;
  const std::size_t equals = std::min(text.find('='), text.size());
  varied.name = text.substr(0, equals);
  std::vector<std::string> known = varied_options();
  for (const std::string& figure : varied_figures()) known.push_back(figure);
  if (!is_among(known, varied.name)) {
    const std::string near = closest_name(varied.name, known);
    throw Error(ErrorKind::kUsage, "--vary: found '" + varied.name + "', expected one of " + join(known),
                varied.name == "cluster" || varied.name == "clusters" ? "--compare-clusters A,B compares clusters"
                : near.empty()                                        ? "as in --vary batch=64,128,256"
                                                                      : "did you mean '" + near + "'?");
  }
  const bool whole = varied.option() || varied.name == "devices";
  for (const std::string& part : split_at_commas(text.substr(std::min(equals + 1, text.size())))) {
    const std::size_t dots = part.find("..");
    if (dots != std::string::npos) {
      for (std::string& value : values_of_range(part, dots, whole, varied.name))
        varied.values.push_back(std::move(value));
    } else {
      positive_number(part, whole, varied.name);
      varied.values.push_back(part);
    }
  }
  return varied;
}

}  // namespace

std::vector<std::string> varied_options() {
  return {"batch", "micro-batch", "micro-batches", "sequence"};
}

std::vector<std::string> varied_figures() {
  return {"devices", "memory_gib", "inter_gbytes_per_s"};
}

bool Varied::option() const {
  return is_among(varied_options(), name);
}

bool Varied::remakes_model() const {
  return name == "sequence" || !option();
}

Varied check_varied(const OptionTable& table, const InferOptions& o) {
  if (o.vary.size() + (o.compare_clusters.empty() ? 0 : 1) > 1) {
    throw Error(ErrorKind::kUsage, "one thing is changed at a time: --vary or --compare-clusters, once",
                "one call for each of them");
  }
  const std::string mode = o.vary.empty() ? "--compare-clusters" : "--vary";
  const std::pair<const char*, bool> others[] = {{"measured-step", o.measured()},
                                                 {"plan", !o.plan.empty()},
                                                 {"layout", !o.layout.empty()},
                                                 {"sweep", o.sweep},
                                                 {"details", o.details},
                                                 {"explain", !o.explain.empty()},
                                                 {"output", !o.output.empty()},
                                                 {"sensitivity", o.sensitivity},
                                                 {"planner-table", o.planner_table},
                                                 {"all-planners", o.all_planners},
                                                 {"search-state", !o.search_state.empty()},
                                                 {"timeline", !o.timeline.empty()},
                                                 {"trace", !o.trace.empty()},
                                                 {"report", !o.report.empty()},
                                                 {"emit-programs", !o.emit_programs.empty()}};
  for (const auto& [option, given] : others) {
    if (!given) continue;
    throw Error(ErrorKind::kUsage, mode + " compares plans of several questions: --" + option + " is for one",
                std::string("drop --") + option + "; --json holds every plan");
  }
  Varied varied;
  if (o.vary.empty()) {
    if (table.source_of("cluster") == "flag") {
      throw Error(ErrorKind::kUsage, "--cluster and --compare-clusters exclude one another",
                  "name " + o.cluster + " among the clusters to compare");
    }
    varied = {"cluster", split_at_commas(o.compare_clusters)};
  } else {
    varied = parse_vary(o.vary.front());
    const std::string source = varied.option() ? table.source_of(varied.name) : "default";
    if (source != "default") {
      throw Error(ErrorKind::kUsage,
                  "--vary " + varied.name + " and --" + varied.name + (source == "flag" ? "" : " of " + source) +
                      " exclude one another",
                  is_among(varied.values, table.value_of(varied.name))
                      ? "leave --" + varied.name + " out: the values have it"
                      : "name " + table.value_of(varied.name) + " among the values");
    }
  }
  if (o.input.path == "-" && varied.remakes_model()) {
    throw Error(ErrorKind::kUsage, mode + " reads the model again for every value, and standard input is read once",
                "give the model as a file");
  }
  for (const auto& [name, file] : {std::pair("csv", &o.csv), std::pair("chart", &o.chart)}) {
    if (!o.json || *file != "-") continue;
    throw Error(ErrorKind::kUsage, std::string("--json and --") + name + " - both want standard output",
                std::string("give --") + name + " a file");
  }
  for (std::size_t i = 0; i < varied.values.size(); ++i) {
    const auto end = varied.values.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(varied.values.begin(), end, varied.values[i]) != end) {
      throw Error(ErrorKind::kUsage, mode + ": '" + varied.values[i] + "' comes twice", "name it once");
    }
    if (varied.values[i].empty()) {
      throw Error(ErrorKind::kUsage, mode + ": there is nothing between two commas", "name a value, or drop a comma");
    }
  }
  if (varied.values.size() > kMostValues) {
    throw Error(ErrorKind::kUsage, mode + ": found " + std::to_string(varied.values.size()) + " values, expected " +
                                       std::to_string(kMostValues) + " at most");
  }
  return varied;
}

machine::Cluster with_figure(machine::Cluster cluster, const std::string& name, double value) {
  if (name == "memory_gib") {
    for (auto& [device, type] : cluster.devices) type.memory_gib = value;
  } else if (name == "inter_gbytes_per_s") {
    for (machine::ServerGroup& servers : cluster.servers) {
      const double factor = value / servers.inter_gbytes_per_s;
      servers.inter_gbytes_per_s = value;
      for (machine::MeasuredCollective& row : servers.links.rows) {
        if (row.servers > 1) row.time = row.time.times(1, 1 / factor);
      }
    }
  } else {
    if (value > machine::kMaxDevices) {
      throw Error(ErrorKind::kUsage, "a cluster has " + format_count(machine::kMaxDevices) + " devices at most");
    }
    const int devices = static_cast<int>(value);
    machine::ServerGroup& last = cluster.servers.back();
    const int missing = devices - cluster.num_devices();
    if (missing > 0) last.count += (missing + last.devices - 1) / last.devices;
    if (devices < cluster.num_devices()) cluster = machine::first_devices(cluster, devices);
    cluster = machine::as_whole(std::move(cluster));
  }
  return cluster;
}

}  // namespace automap::infer
