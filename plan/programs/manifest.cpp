#include "plan/programs/manifest.h"

#include <map>
#include <set>
#include <vector>

namespace automap::programs {

using graph::kNone;
using graph::NodeId;

namespace {

const char* word(Kind kind) {
  switch (kind) {
    case Kind::kForward: return "forward";
    case Kind::kBackward: return "backward";
    default: return "update";
  }
}

const char* word(Combine combine) {
  switch (combine) {
    case Combine::kMean: return "mean";
    case Combine::kEach: return "each";
    default: return "none";
  }
}

class Manifest {
 public:
  Manifest(const StepCut& cut, const ProgramSet& set) : cut_(cut), set_(set) {
    for (const Program& program : set.programs) {
      for (const NodeId id : program.reads) readers_[id].push_back(&program);
    }
  }

  Json programs(const std::string& prefix, const std::string& ending) const {
    Json all = Json::array();
    for (const Program& program : set_.programs) {
      Json one = {{"name", program.name()},
                  {"kind", word(program.unit.kind)},
                  {"group", program.group},
                  {program.unit.kind == Kind::kUpdate ? "phase" : "part",
                   program.unit.kind == Kind::kUpdate ? program.unit.phase : program.unit.part},
                  {"file", file_of(program, prefix, ending)}};
      Json reads = Json::array(), makes = Json::array(), sends = Json::array(), receives = Json::array();
      for (const NodeId id : program.reads) {
        reads.push_back(value_name(cut_, id));
        if (cut_.input_of(id) != kNone) continue;
        const int from = cut_.group(set_.made_by.at(id));
        if (from != program.group) receives.push_back({{"value", value_name(cut_, id)}, {"from", from}});
      }
      for (const NodeId id : program.makes) {
        makes.push_back(value_name(cut_, id));
        for (const int to : others(id, program.group)) sends.push_back({{"value", value_name(cut_, id)}, {"to", to}});
      }
      one["reads"] = std::move(reads);
      one["makes"] = std::move(makes);
      one["receives"] = std::move(receives);
      one["sends"] = std::move(sends);
      all.push_back(std::move(one));
    }
    return all;
  }

  Json values() const {
    Json all = Json::object();
    for (const auto& [id, unit] : set_.made_by) {
      const auto combined = set_.combined.find(id);
      Json one = {{"shape", std::string(cut_.step().flow.shape(id).text)},
                  {"instruction",
                   std::string(cut_.step().flow.graph().instruction(cut_.step().flow.node(id).instruction).name)},
                  {"bytes", cut_.step().flow.shape(id).bytes},
                  {"group", cut_.group(unit)},
                  {"what", cut_.is_gradient(id)           ? "gradient"
                           : unit.kind == Kind::kForward  ? "activation"
                           : unit.kind == Kind::kBackward ? "activation gradient"
                                                          : "update"}};
      // The group that made a value of a micro-batch keeps it until then.
      if (unit.kind == Kind::kForward && read_by(id, Kind::kBackward, cut_.group(unit))) one["kept_until"] = "backward";
      if (combined != set_.combined.end()) one["accumulated"] = word(combined->second);
      all[value_name(cut_, id)] = std::move(one);
    }
    return all;
  }

  Json results() const {
    Json all = Json::array();
    for (const Result& result : set_.results) {
      if (result.node == kNone) {
        all.push_back(
            {{"input", "p" + std::to_string(cut_.step().inputs[static_cast<std::size_t>(result.input)].parameter)}});
      } else {
        Json one = {{"value", value_name(cut_, result.node)}};
        if (result.combine != Combine::kNone) one["combine"] = word(result.combine);
        all.push_back(std::move(one));
      }
    }
    return all;
  }

  // Groups that read each input: they have a copy of it.
  Json holders() const {
    Json all = Json::object();
    for (std::size_t k = 0; k < cut_.step().inputs.size(); ++k) {
      const graph::EntryInput& input = cut_.step().inputs[k];
      std::set<int> groups;
      const auto found = readers_.find(input.node);
      if (found != readers_.end()) {
        for (const Program* program : found->second) groups.insert(program->group);
      }
      all["p" + std::to_string(input.parameter)] = {{"owner", cut_.owner(static_cast<std::int32_t>(k))},
                                                    {"held_by", std::vector<int>(groups.begin(), groups.end())}};
    }
    return all;
  }

 private:
  std::set<int> others(NodeId id, int group) const {
    std::set<int> to;
    const auto found = readers_.find(id);
    if (found == readers_.end()) return to;
    for (const Program* program : found->second) {
      if (program->group != group) to.insert(program->group);
    }
    return to;
  }

  bool read_by(NodeId id, Kind kind, int group) const {
    const auto found = readers_.find(id);
    if (found == readers_.end()) return false;
    for (const Program* program : found->second) {
      if (program->unit.kind == kind && program->group == group) return true;
    }
    return false;
  }

  const StepCut& cut_;
  const ProgramSet& set_;
  std::map<NodeId, std::vector<const Program*>> readers_;
};

}  // namespace

std::string value_name(const StepCut& cut, NodeId id) {
  const std::int32_t input = cut.input_of(id);
  return input == kNone ? "v" + std::to_string(id)
                        : "p" + std::to_string(cut.step().inputs[static_cast<std::size_t>(input)].parameter);
}

std::string file_of(const Program& program, const std::string& prefix, const std::string& ending) {
  return prefix + program.name() + ending;
}

Json programs_json(const StepCut& cut, const ProgramSet& set, const std::string& prefix, const std::string& ending) {
  const Manifest manifest(cut, set);
  return {
      {"groups", cut.num_groups()},  {"phases", cut.num_phases()},    {"programs", manifest.programs(prefix, ending)},
      {"values", manifest.values()}, {"results", manifest.results()}, {"holders", manifest.holders()}};
}

Json inputs_json(const StepCut& cut) {
  Json all = Json::array();
  for (std::size_t k = 0; k < cut.step().inputs.size(); ++k) {
    const graph::EntryInput& input = cut.step().inputs[k];
    const bool batch = cut.is_batch(static_cast<std::int32_t>(k));
    Json one = {{"parameter", input.parameter},
                {"name", input.name},
                {"role", batch ? "batch" : graph::to_string(input.role)},
                {"shape", std::string(cut.step().flow.shape(input.node).text)}};
    if (input.result != kNone) one["result"] = input.result;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace automap::programs
