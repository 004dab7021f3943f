// Takes the shardings that a module carries (graph::user_sharding) as given over one axis of devices:
// `--keep-shardings`.
//
// The axis is one of the module's meshes that has as many devices as are planned, or all devices of a mesh as one. The
// part of a sharding that concerns this axis is kept; the rest is left out and named in the plan. Where given shardings
// collide, a tensor is gathered, or exchanged, between the two (a reshard), at the least bytes that a minimum cut finds
// (repair of data_parallel.h), and stored inputs before use (gather_before_use of stored_parts.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/sharding/model.h"

namespace automap::partition {

struct KeptValue {
  sharding::NodeId node = graph::kNone;
  int dim = -1;         // split along; -1: whole, or nothing is kept
  std::string written;  // as the module has it
  std::string left;     // what of it is not kept, and why; empty: nothing
};

struct KeptShardings {
  std::vector<sharding::TensorDim> split;  // no two exclude each other as the model is linked then
  std::vector<sharding::TensorDim> whole;  // not to be split
  std::vector<KeptValue> values;           // in the module's order
  std::string axis;                        // for people
};

// The reason why a plan over so many devices can keep nothing: no mesh has such an axis; empty when it can, or when the
// module has no shardings.
std::string why_not_kept(const sharding::ShardingModel& model);

// The step of the model as it is linked, with these split alone, ms.
using StepOfSplit = std::function<double(const std::vector<sharding::TensorDim>&)>;

// `model` is linked with the gathers that the kept shardings need. `data`: of axes of one size the one that splits most
// data inputs is taken, else the one that splits most variables. Throws Error(kData) with why_not_kept.
KeptShardings keep_shardings(sharding::ShardingModel* model, bool data, const StepOfSplit& step_ms);

}  // namespace automap::partition
