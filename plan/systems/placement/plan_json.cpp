#include "plan/systems/placement/plan_json.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_reader.h"
#include "common/base/json_text.h"
#include "common/base/numbers.h"
#include "common/pipeline/plan_reader.h"

namespace automap::placement {
namespace {

constexpr const char* kKind = "placement";
constexpr int kMostPieces = 1 << 20;

// Adds the device's part of the model: its forward nodes by name, and all HLO instructions of these.
void add_names(const ModelWorkload& made, const Answer& answer, int d, Json* device) {
  Json names = Json::array(), instructions = Json::array();
  for (int v = 0; v < made.workload.size(); ++v) {
    const Node& node = made.workload.nodes[at(v)];
    if (answer.placement.device[at(v)] != d || node.backward) continue;
    names.push_back(node.name);
    for (const std::string& name : made.instructions[at(v)]) instructions.push_back(name);
  }
  (*device)[to_string(made.granularity)] = std::move(names);
  (*device)["instructions"] = std::move(instructions);
}

// The placement as cuts of a pipeline, null where it is none.
Json pipeline_json(const ModelWorkload& made, const Answer& answer) {
  std::string why;
  const std::optional<pipeline::Plan> plan = pipeline_plan(made, answer.placement, &why);
  if (!plan) return nullptr;
  Json devices = Json::array();
  for (std::size_t i = 0; i < made.ends.size(); ++i) {
    const int device = answer.placement.device[i] + 1;
    if (i == 0 || devices.back() != device) devices.push_back(device);
  }
  return {{"cuts", plan->cuts}, {"accelerators", devices}};
}

Json devices_json(const Workload& workload, const Request& request, const Answer& answer, const ModelWorkload* made) {
  Json out = Json::array();
  const std::vector<DeviceLoad> loads = device_loads(workload, answer.placement);
  const bool latency = request.objective == Objective::kLatency;
  for (int d = 0; d < workload.devices(); ++d) {
    const bool cpu = d >= workload.accelerators;
    Json device = {{"kind", cpu ? "cpu" : "accelerator"},
                   {"number", 1 + (cpu ? d - workload.accelerators : d)},
                   {"load_ms", loads[at(d)].total_ms()},
                   {"compute_ms", loads[at(d)].compute_ms},
                   {"in_ms", loads[at(d)].in_ms},
                   {"out_ms", loads[at(d)].out_ms},
                   {"memory_bytes", whole_bytes(loads[at(d)].bytes)},
                   {"nodes", Json::array()}};
    std::map<int, Json> pieces;
    for (int v = 0; v < workload.size(); ++v) {
      if (answer.placement.device[at(v)] != d) continue;
      const Json id = workload.nodes[at(v)].id;
      device["nodes"].push_back(id);
      if (latency && !cpu && !answer.placement.piece.empty()) pieces[answer.placement.piece[at(v)]].push_back(id);
    }
    if (pieces.size() > 1) {
      device["pieces"] = Json::array();
      for (auto& [number, nodes] : pieces) device["pieces"].push_back(std::move(nodes));
    }
    if (made != nullptr) add_names(*made, answer, d, &device);
    out.push_back(std::move(device));
  }
  return out;
}

// Puts nodes on devices, each once.
class Placing {
 public:
  explicit Placing(const Workload& workload) : workload_(workload) {
    for (int v = 0; v < workload.size(); ++v) positions_[workload.nodes[at(v)].id] = v;
    out_.device.assign(workload.nodes.size(), -1);
  }

  void put(const JsonValue& id, int device) {
    const int v = position(id);
    int& placed = out_.device[at(v)];
    if (placed >= 0) id.fail("node " + std::to_string(workload_.nodes[at(v)].id) + " is placed twice");
    placed = device;
  }
  void piece(const JsonValue& id, int device, int number) {
    const int v = position(id);
    if (out_.device[at(v)] != device) id.wrong("a node of this device");
    if (out_.piece.empty()) out_.piece.assign(workload_.nodes.size(), 0);
    out_.piece[at(v)] = number;
  }

  Placement done(const std::string& source) {
    for (int v = 0; v < workload_.size(); ++v) {
      if (out_.device[at(v)] < 0) {
        throw Error(ErrorKind::kData, source + ": " + workload_.describe(v) + " is on no device",
                    "is this a placement of another workload?");
      }
    }
    return std::move(out_);
  }

 private:
  int position(const JsonValue& id) const {
    const auto found = positions_.find(id.integer(-kLargestId, kLargestId));
    if (found == positions_.end()) id.wrong("the id of a node of the workload");
    return found->second;
  }

  const Workload& workload_;
  std::map<std::int64_t, int> positions_;
  Placement out_;
};

void read_own(const JsonValue& document, const Workload& workload, Placing* placing) {
  for (const JsonValue& device : document.at("devices").items()) {
    const std::string kind = device.at("kind").text();
    if (kind != "cpu" && kind != "accelerator") device.at("kind").wrong("\"accelerator\" or \"cpu\"");
    const bool cpu = kind == "cpu";
    // Devices that are left empty may be more than there are.
    const std::vector<JsonValue> nodes = device.at("nodes").items();
    if (nodes.empty()) continue;
    const int most = cpu ? workload.cpus : workload.accelerators;
    const int d = static_cast<int>(device.at("number").integer(1, most)) - 1 + (cpu ? workload.accelerators : 0);
    for (const JsonValue& id : nodes) placing->put(id, d);
    if (!device.has("pieces")) continue;
    int number = 0;
    for (const JsonValue& piece : device.at("pieces").items()) {
      if (number >= kMostPieces) device.at("pieces").fail("there are too many");
      for (const JsonValue& id : piece.items()) placing->piece(id, d, number);
      ++number;
    }
  }
}

void read_authors(const JsonValue& document, const Workload& workload, Placing* placing) {
  for (const bool cpu : {false, true}) {
    const char* key = cpu ? "cpus" : "fpgas";
    int used = 0;
    for (const JsonValue& device : document.at(key).items()) {
      const std::vector<JsonValue> nodes = device.at("nodes").items();
      if (nodes.empty()) continue;
      if (used == (cpu ? workload.cpus : workload.accelerators)) {
        document.at(key).fail("more of them hold nodes than the " + std::to_string(used) + " that there are");
      }
      for (const JsonValue& id : nodes) placing->put(id, (cpu ? workload.accelerators : 0) + used);
      ++used;
    }
  }
}

}  // namespace

std::string device_name(const Workload& workload, int device) {
  const bool cpu = device >= workload.accelerators;
  return (cpu ? "CPU core " : "accelerator ") + std::to_string(1 + (cpu ? device - workload.accelerators : device));
}

std::string to_json_text(const Workload& workload, const Request& request, const Answer& answer,
                         const PlanNotes& notes) {
  Json tried = Json::array();
  for (const Tried& t : answer.tried) {
    tried.push_back({{"planner", t.planner}, {"value_ms", or_null(t.value_ms)}, {"planning_ms", t.planning_ms}});
  }
  const bool limited = workload.memory_bytes < std::numeric_limits<double>::infinity();
  Json document = {
      {"objective", to_string(request.objective)},
      {"value_ms", answer.value_ms},
      {"lower_bound_ms", answer.bound_ms},
      {"bound_of", answer.bound_of},
      {"gap", answer.bound_ms > 0 ? Json(answer.value_ms / answer.bound_ms - 1) : Json()},
      {"proven", answer.proven},
      {"contiguous", answer.contiguous},
      {"accelerators", workload.accelerators},
      {"cpus", workload.cpus},
      {"capacity_bytes", limited ? Json(whole_bytes(workload.memory_bytes)) : Json()},
      {"devices", devices_json(workload, request, answer, notes.made)},
      {"planner", answer.planner},
      {"algorithm", notes.algorithm},
      {"units", answer.units},
      {"ideals", answer.ideals},
      {"pairs", answer.pairs},
      {"planning_ms", notes.planning_ms},
      {"cut_by_time", answer.cut_by_time},
      {"alternatives", tried},
  };
  Json json = pipeline::in_envelope(pipeline::kPlanSchema, kKind, notes, std::move(document));
  if (notes.made != nullptr) {
    json["granularity"] = to_string(notes.made->granularity);
    if (notes.made->granularity == Granularity::kLayers) json["pipeline"] = pipeline_json(*notes.made, answer);
  }
  return json_text(json);
}

Placement parse_placement(std::string_view json_text, const std::string& source, const Workload& workload) {
  const JsonSource named{source, ErrorKind::kData,
                         "a placement is a plan of the kind placement, or what the authors' programs write"};
  Json json = parse_json(json_text, named);
  const bool own = json.is_object() && json.contains("schema");
  if (own) json = pipeline::parse_plan_json(json_text, source);
  const JsonValue document(json, named);
  Placing placing(workload);
  if (own) {
    if (document.at("kind").text() != kKind) document.at("kind").wrong("\"placement\"");
    read_own(document, workload, &placing);
  } else {
    read_authors(document, workload, &placing);
  }
  return placing.done(source);
}

Placement load_placement(const std::string& path, const Workload& workload) {
  const std::string source = input_name(path);
  return parse_placement(gunzip_if_gzip(read_file(path, pipeline::kMaxPlanBytes), source, pipeline::kMaxPlanBytes),
                         source, workload);
}

}  // namespace automap::placement
