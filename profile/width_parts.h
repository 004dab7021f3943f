// Describes a module as each device of a replica of several devices holds and computes it: the part of its positions
// that a partition of its tensors (plan/partition/widths.h) leaves to a device. The profile's columns at a width follow
// from it.
#pragma once

#include <vector>

#include "common/graph/dependence.h"
#include "common/machine/collectives.h"

namespace automap::profile {

struct WidthParts {
  int width = 1;
  // By instruction: the share of its time that a device keeps, its launch aside. 1: every device does all of it.
  std::vector<double> op_share;
  // By instruction inside of loops: the same share of the bytes of its result, and of its gathered copy (copy_share).
  std::vector<double> inner_share, inner_copy_share;
  // By node of TrainingStep::flow: the share of its bytes that a device keeps.
  std::vector<double> tensor_share;
  // By node: the share of its gathered copy that is kept, besides, from the forward to the backward pass, as both read
  // it.
  std::vector<double> copy_share;
  // A collective of one step of the module, at its own number of samples.
  struct Collective {
    graph::NodeId node = graph::kNone;  // of TrainingStep::flow, whose result it is (or in which it stands: a loop's)
    double ms = 0, bytes = 0;
    machine::CollectiveTime time;  // of other bytes, in proportion
  };
  std::vector<std::vector<Collective>> collectives;  // by ProfilerOptions::devices
};

}  // namespace automap::profile
