// ADP: decides along which dimension to split the step inputs (paper 3.3, 4.3).
//
// The candidates are the linkage groups of the step inputs. A batch group that some instruction forbids (a similarity
// of every example with every other, a batch folded into a minor dimension, routing over all tokens) is repaired: the
// cheapest tensors on the way are gathered there (sharding::Gather), and the plan says so.
#pragma once

#include <string>
#include <vector>

#include "common/sharding/model.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/partition_search.h"

namespace automap::partition {

struct RepairResult {
  bool possible = false;
  std::vector<sharding::Gather> gathers;  // for ShardingModel::relink; those that the model had come first
  int gathered_tensors = 0;               // distinct; slices of results are none
  double gathered_bytes = 0;              // per step: of the tensors gathered, each once however many read it
  // The share of the work tied to the requested split that is still split (1: nothing had to be repaired).
  double split_share = 0;
  std::string why_not;  // when not possible
};
// Looks for few and small gathers that make `at`'s group possible, of at most `most_gathers` tensors. `model` is
// relinked while looking and is left with the gathers found (or as it was).
//
// A minimum cut decides which tensor dimensions stay split and which become whole. Between the two sides lie the
// gathers (bytes of the whole tensor x times; a result is cut for nothing, by slicing it where it is made); work that
// becomes whole has a price too, so that not just everything is gathered at the start. Where two dimensions of one
// tensor, or two factors of one instruction, are on the split side, the cheaper one is taken off it, one such place
// after the other.
RepairResult repair(sharding::ShardingModel* model, sharding::TensorDim at, int most_gathers = 64);
// The same for several dimensions that are to be split together: also their groups must not exclude each other (images
// and texts that only meet in a similarity of every image with every text).
RepairResult repair(sharding::ShardingModel* model, const std::vector<sharding::TensorDim>& together,
                    int most_gathers = 64);

// The batch dimension of each data input that has one: the step's batch size where it is known (dimension 0 when that
// fits, else the first that does), else dimension 0 of the largest data input and of inputs with its extent. Random
// keys have none.
std::vector<sharding::TensorDim> find_batch(const sharding::ShardingModel& model);

}  // namespace automap::partition
