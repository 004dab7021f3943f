// All programs of a step that is cut, with the values that each reads and makes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/programs/step_cut.h"

namespace automap::programs {

// The way in which the values of all micro-batches become one that is read once.
enum class Combine : std::uint8_t { kNone, kMean, kEach };

struct Program {
  Unit unit;
  int group = 0;
  std::vector<graph::NodeId> reads;   // inputs of the step among them, in the order of the module's parameters
  std::vector<graph::NodeId> makes;   // the leaves of its result
  std::vector<graph::NodeId> inside;  // ascending
  std::string name() const;           // "forward.0", "update.1.0"
};

struct Result {
  std::int32_t number = 0;
  graph::NodeId node = graph::kNone;  // kNone: `input`, as it came
  std::int32_t input = graph::kNone;
  Unit made_by;
  Combine combine = Combine::kNone;
};

struct ProgramSet {
  std::vector<Program> programs;              // forwards, backwards, updates; none that makes nothing
  std::vector<Result> results;                // by number
  std::map<graph::NodeId, Unit> made_by;      // of what goes from a program to another or is a result
  std::map<graph::NodeId, Combine> combined;  // of what updates read of micro-batches
};

// Throws Error(kData) naming the tensor of the step that cannot be combined over micro-batches.
ProgramSet cut_programs(const StepCut& cut, const std::vector<bool>& recompute);  // by group

}  // namespace automap::programs
