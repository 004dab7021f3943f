#include "plan/programs/program_set.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/graph/variables.h"

namespace automap::programs {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;

std::string Program::name() const {
  const std::string part = std::to_string(unit.part);
  switch (unit.kind) {
    case Kind::kForward: return "forward." + part;
    case Kind::kBackward: return "backward." + part;
    default: return "update." + part + "." + std::to_string(unit.phase);
  }
}

namespace {

class Cutter {
 public:
  Cutter(const StepCut& cut, const std::vector<bool>& recompute)
      : cut_(cut), flow_(cut.step().flow), recompute_(recompute), stamp_(static_cast<std::size_t>(flow_.size()), 0) {}

  ProgramSet run() {
    find_results();
    // From the last program to the first: a program must make what all later ones read.
    for (int phase = cut_.num_phases(); phase-- > 0;) {
      for (int group = cut_.num_groups(); group-- > 0;) add({Kind::kUpdate, group, phase});
    }
    for (int part = 0; part < cut_.num_parts(); ++part) add({Kind::kBackward, part, 0});
    for (int part = cut_.num_parts(); part-- > 0;) add({Kind::kForward, part, 0});
    std::reverse(out_.programs.begin(), out_.programs.end());
    return std::move(out_);
  }

 private:
  bool small_float(NodeId id) const { return flow_.shape(id).num_elements == 1 && graph::is_float(flow_.shape(id)); }

  void find_results() {
    const auto& results = flow_.results();
    std::vector<int> owner_of(results.size(), 0);
    std::vector<bool> is_state(results.size(), false);
    for (std::size_t k = 0; k < cut_.step().inputs.size(); ++k) {
      const std::int32_t r = cut_.step().inputs[k].result;
      if (r == kNone) continue;
      owner_of[static_cast<std::size_t>(r)] = cut_.owner(static_cast<std::int32_t>(k));
      is_state[static_cast<std::size_t>(r)] = true;
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      Result result;
      result.number = static_cast<std::int32_t>(r);
      if (cut_.input_of(results[r]) != kNone) {
        result.input = cut_.input_of(results[r]);
        out_.results.push_back(result);
        continue;
      }
      result.node = results[r];
      result.made_by = cut_.home(results[r], owner_of[r]);
      if (result.made_by.kind != Kind::kUpdate) {
        const bool mean = small_float(results[r]) || (is_state[r] && graph::is_float(flow_.shape(results[r])));
        if (!mean && is_state[r] && cut_.request().micro_batches > 1) {
          throw Error(ErrorKind::kData,
                      "result " + std::to_string(r) + " " + cut_.named(results[r]) +
                          " is state that every micro-batch changes, and no floating-point number to take the mean of",
                      "plan with one micro-batch, or keep it out of the step");
        }
        result.combine = mean ? Combine::kMean : Combine::kEach;
      }
      made_by(results[r], result.made_by);
      out_.results.push_back(result);
    }
  }

  void made_by(NodeId id, const Unit& unit) {
    out_.made_by.emplace(id, unit);
    std::vector<NodeId>& list = exports_[key(unit)];
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  }

  static std::int64_t key(const Unit& unit) {
    return (static_cast<std::int64_t>(unit.kind) * 4096 + unit.phase) * 65536 + unit.part;
  }

  bool is_inside(NodeId id, const Unit& unit) const {
    const Unit& made = cut_.unit(id);
    if (made == unit || made.kind == Kind::kRepeat) return true;
    // The forward again.
    return unit.kind == Kind::kBackward && made.kind == Kind::kForward && made.part == unit.part &&
           recompute_[static_cast<std::size_t>(cut_.group(unit))];
  }

  void add(const Unit& unit) {
    const auto exported = exports_.find(key(unit));
    if (exported == exports_.end()) return;
    Program program;
    program.unit = unit;
    program.group = cut_.group(unit);
    program.makes = exported->second;
    std::sort(program.makes.begin(), program.makes.end());
    ++round_;
    std::vector<NodeId> stack = program.makes;
    const std::vector<NodeId>& makes = program.makes;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      int& stamp = stamp_[static_cast<std::size_t>(id)];
      if (stamp == round_) continue;
      stamp = round_;
      const bool own = std::binary_search(makes.begin(), makes.end(), id) && out_.made_by.at(id) == unit;
      if (cut_.input_of(id) != kNone) {
        program.reads.push_back(id);
        if (unit.kind == Kind::kUpdate && cut_.is_batch(cut_.input_of(id)) && cut_.request().micro_batches > 1)
          refuse(id);
        continue;
      }
      if (!own && !is_inside(id, unit)) {
        program.reads.push_back(id);
        made_by(id, cut_.unit(id));
        if (unit.kind == Kind::kUpdate && cut_.unit(id).kind != Kind::kUpdate) combine(id);
        continue;
      }
      program.inside.push_back(id);
      for (const NodeId operand : flow_.operands(id)) stack.push_back(operand);
    }
    std::sort(program.inside.begin(), program.inside.end());
    std::sort(program.reads.begin(), program.reads.end());
    out_.programs.push_back(std::move(program));
  }

  // An update reads the values of every micro-batch.
  void combine(NodeId id) {
    if (cut_.request().micro_batches > 1 && !cut_.is_gradient(id) && !small_float(id)) refuse(id);
    out_.combined[id] = graph::is_float(flow_.shape(id)) ? Combine::kMean : Combine::kNone;
    if (!graph::is_float(flow_.shape(id)) && cut_.request().micro_batches > 1) refuse(id);
  }

  [[noreturn]] void refuse(NodeId id) const {
    throw Error(ErrorKind::kData,
                "the update reads " + cut_.named(id) +
                    ", which every micro-batch makes anew and which is neither the gradient of one variable nor a "
                    "floating-point number",
                "a plan of one micro-batch can be cut there (--micro-batch as large as the batch)");
  }

  const StepCut& cut_;
  const FlowGraph& flow_;
  const std::vector<bool>& recompute_;
  std::vector<int> stamp_;
  int round_ = 0;
  std::map<std::int64_t, std::vector<NodeId>> exports_;
  ProgramSet out_;
};

}  // namespace

ProgramSet cut_programs(const StepCut& cut, const std::vector<bool>& recompute) {
  return Cutter(cut, recompute).run();
}

}  // namespace automap::programs
