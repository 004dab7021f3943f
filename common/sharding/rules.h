// The rules, one function per family, and their shared helpers. The table is in rule.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/hlo_attributes.h"
#include "common/sharding/rule_builder.h"

namespace automap::sharding {

// rules_elementwise.cpp
void elementwise_rule(RuleBuilder& b);
void free_rule(RuleBuilder& b);
void rng_bit_generator_rule(RuleBuilder& b);
void opaque_rule(RuleBuilder& b);
void whole_rule(RuleBuilder& b);
void collective_rule(RuleBuilder& b);
void moving_collective_rule(RuleBuilder& b);
void custom_call_rule(RuleBuilder& b);
void dimension_size_rule(RuleBuilder& b);

// rules_movement.cpp
void broadcast_rule(RuleBuilder& b);
void reshape_rule(RuleBuilder& b);
void bitcast_rule(RuleBuilder& b);
void bitcast_convert_rule(RuleBuilder& b);
void transpose_rule(RuleBuilder& b);
void slice_rule(RuleBuilder& b);
void pad_rule(RuleBuilder& b);
void concatenate_rule(RuleBuilder& b);
void reverse_rule(RuleBuilder& b);

// rules_contraction.cpp
void dot_rule(RuleBuilder& b);
void ragged_dot_rule(RuleBuilder& b);
void scaled_dot_rule(RuleBuilder& b);
void convolution_rule(RuleBuilder& b);

// rules_reduction.cpp
void reduce_rule(RuleBuilder& b);
void reduce_window_rule(RuleBuilder& b);
void select_and_scatter_rule(RuleBuilder& b);
void sort_rule(RuleBuilder& b);
void topk_call_rule(RuleBuilder& b);
void cholesky_rule(RuleBuilder& b);
void triangular_solve_rule(RuleBuilder& b);
void batch_norm_training_rule(RuleBuilder& b);
void batch_norm_inference_rule(RuleBuilder& b);
void batch_norm_grad_rule(RuleBuilder& b);

// rules_indexing.cpp
void gather_rule(RuleBuilder& b);
void scatter_rule(RuleBuilder& b);
void dynamic_slice_rule(RuleBuilder& b);
void dynamic_update_slice_rule(RuleBuilder& b);

// The reduction that the computation called by an instruction applies to two values: `count` of them at once, each to
// its own pair of parameters (i, count + i). kNone unless it is the same known operation for all, and nothing else: XLA
// cannot promote the type of an all-reduce that also converts.
Reduction applied_reduction(const graph::Graph& graph, graph::InstructionId id, std::int32_t count);

// The borders to exchange for a window that moves along a split dimension: the elements that it needs of the
// neighbours, the same on every device. nullopt when devices' parts do not lie below one another (VALID windows,
// strides that do not divide the extents), or when XLA does something else (windows cropped on the left, filters'
// gradients reversed).
//   input [in] under a window -> [out], both split
std::optional<Halo> halo_of_window(const graph::WindowDimension& w, std::int64_t in, std::int64_t out);
//   input [in] and window [in / dilation], both split, are summed up over: the gradient of a filter [out], whole
std::optional<Halo> halo_of_contraction(const graph::WindowDimension& w, std::int64_t in, std::int64_t out);
// Halo::shared_by: the window over all dimensions of the operand, whatever instruction moves it.
std::string window_text(const std::vector<graph::WindowDimension>& window);
// Halo::padded_with, of the operand that says it: "0", "-inf", or of one that is no constant its number.
std::string padding_text(const graph::Graph& graph, graph::InstructionId id);

// The dimension of `indices` that component `component` of its index vectors (dimension `vector_dim`; the rank of
// `indices`: they are scalars) counts along, from 0 in steps of 1: its value is its own position there. kNone when it
// does not, or nobody can tell. Looks through concatenate and broadcast, as XLA's partitioner does, and no further
// (conversions, the selection that makes negative indices count from the end): what it does not see, it gathers.
std::int32_t counted_dim(const graph::Graph& graph, graph::InstructionId indices, std::int32_t vector_dim,
                         std::int64_t component);

}  // namespace automap::sharding
