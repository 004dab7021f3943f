#include "plan/systems/placement/workload_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "common/base/files.h"
#include "common/base/json_reader.h"
#include "common/base/json_text.h"
#include "common/base/text_table.h"

namespace automap::placement {
namespace {

// "cost" of an edge in files whose costs are seconds: bytes over 2 GiB/s (notes on the authors' generator).
constexpr double kBytesPerCostInSeconds = 2147483648.0;

// Ids as in the file -> positions.
class Ids {
 public:
  void add(const JsonValue& value, int position) {
    const auto id = value.integer(-kLargestId, kLargestId);
    const auto [at, fresh] = positions_.emplace(id, position);
    if (!fresh) value.fail("id " + std::to_string(id) + " is also that of nodes[" + std::to_string(at->second) + "]");
  }
  int at(const JsonValue& value) const {
    const auto found = positions_.find(value.integer(-kLargestId, kLargestId));
    if (found == positions_.end()) value.wrong("the id of one of the " + std::to_string(positions_.size()) + " nodes");
    return found->second;
  }

 private:
  std::map<std::int64_t, int> positions_;
};

// Written 1 in some of the authors' files and true in others.
bool yes_or_no(const JsonValue& value) {
  if (value.json().is_boolean()) return value.boolean();
  return value.integer(0, 1) == 1;
}

std::vector<JsonValue> nodes_of(const JsonValue& document) {
  std::vector<JsonValue> out = document.at("nodes").items();
  if (out.size() > static_cast<std::size_t>(kMostNodes)) {
    document.at("nodes").fail("found " + std::to_string(out.size()) + " nodes, at most " + std::to_string(kMostNodes) +
                              " can be placed");
  }
  return out;
}

// Colours of any numbers -> 0, 1, ... in the order of their numbers.
void number_colours(std::vector<std::optional<std::int64_t>> given, Workload* workload) {
  std::map<std::int64_t, int> colours;
  for (const auto& colour : given) {
    if (colour) colours.emplace(*colour, 0);
  }
  int next = 0;
  for (auto& [colour, number] : colours) number = next++;
  for (std::size_t v = 0; v < given.size(); ++v) {
    if (given[v]) workload->nodes[v].colour = colours.at(*given[v]);
  }
}

// Edges and, from their costs in `key`, the transfer of every node's output. `uniform`: all edges of a node must say
// the same; else the largest counts.
void read_edges(const JsonValue& document, const char* key, const std::vector<std::string>& known, const Ids& ids,
                double scale, bool uniform, Workload* workload) {
  std::set<std::pair<int, int>> seen;
  std::vector<double> cost(workload->nodes.size(), -1);
  for (const JsonValue& edge : document.at("edges").items()) {
    edge.only_keys(known);
    const int from = ids.at(edge.at("sourceId")), to = ids.at(edge.at("destId"));
    if (from == to) edge.fail("it goes from " + workload->describe(from) + " to itself");
    if (!seen.emplace(from, to).second) {
      edge.fail("the edge from " + workload->describe(from) + " to " + workload->describe(to) + " is given twice");
    }
    const double found = edge.at(key).not_negative(key == std::string("cost") ? "ms" : "bytes");
    double& known_cost = cost[static_cast<std::size_t>(from)];
    if (uniform && known_cost >= 0 && std::abs(known_cost - found) > 1e-9 * std::max(known_cost, found)) {
      edge.at(key).fail("found " + format_number(found, 9) + ", but another edge of " + workload->describe(from) +
                            " says " + format_number(known_cost, 9),
                        "a node's output is transferred once for all that read it: give all its edges one cost");
    }
    known_cost = std::max(known_cost, found);
    workload->edges.emplace_back(from, to);
  }
  for (std::size_t v = 0; v < cost.size(); ++v) {
    if (cost[v] > 0) workload->nodes[v].transfer_ms = cost[v] * scale;
  }
}

// True if the costs of all edges that give their bytes are the seconds that these take at 2 GiB/s: 1000 times too
// little beside times in ms.
bool costs_in_seconds(const JsonValue& document) {
  bool any = false;
  for (const JsonValue& edge : document.at("edges").items()) {
    if (!edge.has("size") || !edge.json().at("size").is_number()) return false;
    const double bytes = edge.json().at("size").get<double>(), cost = edge.at("cost").not_negative("ms");
    if (bytes <= 0 || cost <= 0) continue;
    if (std::abs(cost * kBytesPerCostInSeconds / bytes - 1) > 1e-3) return false;
    any = true;
  }
  return any;
}

void read_dnn_partitioning(const JsonValue& document, double transfer_scale, WorkloadFile* out) {
  document.only_keys({"maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges"});
  Workload& workload = out->workload;
  workload.accelerators = static_cast<int>(document.at("maxFPGAs").integer(0, kMostDevices));
  workload.cpus = static_cast<int>(document.at("maxCPUs").integer(0, kMostDevices));
  workload.memory_bytes = document.at("maxSizePerFPGA").not_negative("bytes");
  Ids ids;
  std::vector<std::optional<std::int64_t>> colours;
  for (const JsonValue& node : nodes_of(document)) {
    node.only_keys({"id", "name", "supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode", "colorClass",
                    "size", "layerId"});
    ids.add(node.at("id"), workload.size());
    Node made;
    made.id = node.at("id").integer(-kLargestId, kLargestId);
    if (node.has("name")) made.name = node.at("name").text();
    made.on_accelerators = yes_or_no(node.at("supportedOnFpga"));
    made.cpu_ms = node.at("cpuLatency").not_negative("ms");
    // The time of a node that an accelerator cannot run does not matter there; files may contain anything.
    if (made.on_accelerators) made.accelerator_ms = node.at("fpgaLatency").not_negative("ms");
    made.backward = node.has("isBackwardNode") && yes_or_no(node.at("isBackwardNode"));
    if (node.has("size")) made.bytes = node.at("size").not_negative("bytes");
    colours.push_back(node.has("colorClass")
                          ? std::optional<std::int64_t>(node.at("colorClass").integer(-kLargestId, kLargestId))
                          : std::nullopt);
    workload.nodes.push_back(std::move(made));
  }
  number_colours(std::move(colours), &workload);
  read_edges(document, "cost", {"sourceId", "destId", "cost", "size"}, ids, transfer_scale, true, &workload);
  if (transfer_scale == 1 && costs_in_seconds(document)) {
    out->warnings.push_back(
        "the costs of edges are bytes / 2^31, seconds at 2 GiB/s, beside times in ms: transfers count 1000 times too "
        "little, as in the authors' results; --transfer-scale 1000 makes them ms");
  }
}

// One way to run a layer of Piper on one device: the one called vanilla, or the first that is listed.
const JsonValue piper_way(const std::vector<JsonValue>& ways) {
  for (const JsonValue& way : ways) {
    if (way.at("id").text() == "vanilla") return way;
  }
  return ways.front();
}

void read_piper(const JsonValue& document, double transfer_scale, WorkloadFile* out) {
  document.only_keys({"maxDevices", "maxMemoryPerDevice", "bandwidth", "mbsInBatch", "maxBatchSize", "nodes", "edges"});
  Workload& workload = out->workload;
  workload.accelerators = static_cast<int>(document.at("maxDevices").integer(1, kMostDevices));
  workload.cpus = 0;
  workload.memory_bytes = document.at("maxMemoryPerDevice").not_negative("bytes");
  const double bandwidth = document.at("bandwidth").positive("bytes per second");
  Ids ids;
  for (const JsonValue& node : nodes_of(document)) {
    node.only_keys({"id", "name", "TMPCs"});
    ids.add(node.at("id"), workload.size());
    const std::vector<JsonValue> ways = node.at("TMPCs").at("1").items();
    if (ways.empty()) node.at("TMPCs").at("1").fail("there is no way to run the layer on one device");
    const JsonValue way = piper_way(ways);
    Node made;
    made.id = node.at("id").integer(-kLargestId, kLargestId);
    if (node.has("name")) made.name = node.at("name").text();
    made.accelerator_ms = 1000 * way.at("timePerSample").not_negative("seconds");
    // One sample in flight.
    made.bytes = way.at("memoryUsageA").not_negative("bytes") + way.at("memoryUsageB").not_negative("bytes");
    workload.nodes.push_back(std::move(made));
  }
  // Activations forward and their gradients backward.
  read_edges(document, "communicationCost", {"sourceId", "destId", "communicationCost"}, ids,
             transfer_scale * 2 * 1000 / bandwidth, false, &workload);
  out->warnings.push_back(
      "of Piper's choices only one device per stage without recomputation can be expressed here, with the activations "
      "of one sample");
}

}  // namespace

WorkloadFile parse_workload(std::string_view json_text, const std::string& source, double transfer_scale) {
  const JsonSource named{source, ErrorKind::kData,
                         "a workload is the JSON of msr-fiddle/dnn-partitioning or msr-fiddle/piper"};
  const Json json = parse_json(json_text, named);
  const JsonValue document(json, named);
  WorkloadFile out;
  out.sha256 = sha256_hex(json_text);
  if (document.has("maxDevices")) {
    read_piper(document, transfer_scale, &out);
  } else {
    read_dnn_partitioning(document, transfer_scale, &out);
  }
  return out;
}

bool looks_like_workload(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || bytes[first] != '{') return false;
  // Modules have computations, files of ours a schema, a config.json one of the others; within a string the quotes
  // would be escaped.
  for (const char* key : {"\"computations\"", "\"schema\"", "\"model_type\"", "\"architectures\"", "\"_class_name\""}) {
    if (bytes.find(key) != std::string_view::npos) return false;
  }
  return true;
}

std::string workload_json_text(const Workload& workload) {
  Json nodes = Json::array(), edges = Json::array();
  for (const Node& node : workload.nodes) {
    Json made = {{"id", node.id}};
    if (!node.name.empty()) made["name"] = node.name;
    made["supportedOnFpga"] = node.on_accelerators;
    made["cpuLatency"] = node.cpu_ms;
    made["fpgaLatency"] = node.accelerator_ms;
    made["isBackwardNode"] = node.backward;
    if (node.colour != kNoColour) made["colorClass"] = node.colour;
    made["size"] = node.bytes;
    nodes.push_back(std::move(made));
  }
  for (const auto& [from, to] : workload.edges) {
    const Node &source = workload.nodes[static_cast<std::size_t>(from)],
               &target = workload.nodes[static_cast<std::size_t>(to)];
    edges.push_back({{"sourceId", source.id}, {"destId", target.id}, {"cost", source.transfer_ms}});
  }
  return json_text(Json{{"maxSizePerFPGA", std::min(workload.memory_bytes, kNoLimitBytes)},
                        {"maxFPGAs", workload.accelerators},
                        {"maxCPUs", workload.cpus},
                        {"nodes", nodes},
                        {"edges", edges}});
}

WorkloadFile load_workload(const std::string& path, double transfer_scale) {
  const std::string source = input_name(path);
  return parse_workload(gunzip_if_gzip(read_file(path), source), source, transfer_scale);
}

}  // namespace automap::placement
