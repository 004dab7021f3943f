// Cuts linkage groups where that pays: a gather lets an instruction read a tensor whole that is split elsewhere, or
// make one whole that is kept in parts (sharding::Gather), so that one indivisible reshape does not keep a whole layer
// whole.
//
// Groups fall into *pieces* where a cut can be worth it: at matrix products and convolutions, and where a dimension
// does not pass (it is blocked, or parted into sizes that the devices do not divide). All other instructions hold their
// tensors together. A piece is split or not; a product is split by one of its factors or by none; a tensor that is read
// whole somewhere is gathered, once for all its readers. The cheapest choice is a labelling (labelling.h):
//   split by a factor    all tensors of the factor are split with it; its compute is divided, partial sums are reduced.
//                        One operand of a product or a convolution may also lie whole (every device takes its
//                        part: nothing moves), or be split along another dimension: an all-to-all, or a part of the
//                        gathered tensor
//   split by another     its operands are whole, or gathered: an all-gather; its result is whole, or every device
//                        keeps its part: nothing moves
// With rows_whole, products of weights are split along the weights' own dimensions alone. Never split: pieces that no
// weight decides, neither by itself nor by other pieces split with it: the batch, and values that exist only between
// instructions. Where the cheapest labelling splits such a piece it is forbidden, and solved again. But attention
// (products.h) is split by any dimension that pays, with or without weights: a part of the queries on every device
// where the devices do not divide the heads.
//
// Every collective pays its own latency here; PartitionCost, where several go out together, judges the result.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/work.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/labelling.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/products.h"

namespace automap::partition {

struct Resharding {
  std::vector<sharding::Gather> gathers;   // for ShardingModel::relink
  std::vector<sharding::TensorDim> split;  // one tensor of every piece that is split
  double saved_ms = 0;                     // by this plan, collectives counted
  double bound_ms = 0;                     // no choice saves more
  bool proven = false;
  std::int64_t sites = 0, nodes = 0;  // of the labelling and of its search
  std::int32_t width = 0;

  // bound_ms, and whether it is reached.
  void set_bound(double ms);
};

// The groups that a plan decides, ascending; `model` is linked with the gathers found.
std::vector<sharding::GroupId> split_groups(const sharding::ShardingModel& model, const Resharding& found);

// The treatment of values between split products (norms, residuals, dropout).
enum class Between : std::uint8_t {
  kWhole,      // sums are made whole: classic tensor parallelism (Shoeybi et al., 2019)
  kByWeights,  // may be split where weights decide it, along the hidden dimension or that of a position embedding
  // Also along dimensions that neither weights decide nor the batch holds: the sequence (sequence parallelism,
  // Korthikanti et al., 2022). More choices: a search that is often 10 times as long, and shorter steps now and then.
  kSequences,
};

struct ReshardingOptions {
  // In a mesh, the axis that this one is nested in: a dimension that both split must be divisible by both.
  const sharding::Propagation* outer = nullptr;
  Between between = Between::kByWeights;
  const RowsOfWeights* rows_whole = nullptr;  // of the model: products of weights are not split along these
};

// `model` is linked without gathers. memory_limit_bytes 0: no limit. Nothing split and saved_ms 0 where nothing helps;
// saved_ms is -infinity when nothing fits.
Resharding find_resharding(const sharding::ShardingModel& model, const PartitionCost& cost, double memory_limit_bytes,
                           Work& work, const ReshardingOptions& options = {});

// The same for a data axis: `batch` is split, and beside it *experts* may be, where that is worth its exchanges:
// weights of which a product takes one for every place of a dimension (the experts of a mixture, by einsum or sorted).
// Examples are split, then tokens go to their experts and come back; nothing else of the model is split. saved_ms
// counts from nothing split. Nothing is split where the model has no experts.
Resharding find_expert_resharding(const sharding::ShardingModel& model, const PartitionCost& cost,
                                  const std::vector<sharding::TensorDim>& batch, Work& work);

}  // namespace automap::partition
