// Typed views of the raw attribute text an Instruction carries. Decoding happens on demand: a Graph holds the text, so
// an attribute nobody asks for can never make a module unreadable.
//
// Every function takes the raw text and the place it stands at. Malformed text throws Error(kData) that names the
// instruction and the attribute, what was found and what was expected. Numbers are decimal, fit int64, and a list has
// at most kMaxListLength of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/graph.h"

namespace automap::graph {

constexpr std::size_t kMaxListLength = 1 << 24;

struct AttributeSite {
  std::string_view instruction;
  std::string_view key;
  const Graph* graph = nullptr;  // names the file, line and column in errors
};

// "7" -> 7, "-1" -> -1.
std::int64_t decode_int(std::string_view raw, const AttributeSite& site);
// "true" -> true, "false" -> false.
bool decode_bool(std::string_view raw, const AttributeSite& site);
// "\"a\\\"b\"" -> a"b; unquoted text is returned as it stands.
std::string decode_string(std::string_view raw);
// "{1,0}" -> [1, 0]; "{}" -> []; "{2}" -> [2].
std::vector<std::int64_t> decode_int_list(std::string_view raw, const AttributeSite& site);

// One dimension of window={size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x1}.
struct WindowDimension {
  std::int64_t size = 1, stride = 1;
  std::int64_t pad_low = 0, pad_high = 0;  // negative: cropped
  std::int64_t base_dilation = 1;          // lhs_dilate
  std::int64_t window_dilation = 1;        // rhs_dilate
  bool reversed = false;
};
// "{size=3x2 pad=0_1x-1_0}" -> two dimensions; "{}" -> none (a pointwise convolution without spatial dimensions).
// All fields given must have as many dimensions as `size`; sizes, strides and dilations are at least 1.
std::vector<WindowDimension> decode_window(std::string_view raw, const AttributeSite& site);

// dim_labels of a convolution. The numbers are dimension positions.
struct ConvolutionDimensions {
  std::int64_t input_batch = 0, input_feature = 0;
  std::vector<std::int64_t> input_spatial;
  std::int64_t kernel_input_feature = 0, kernel_output_feature = 0;
  std::vector<std::int64_t> kernel_spatial;
  std::int64_t output_batch = 0, output_feature = 0;
  std::vector<std::int64_t> output_spatial;
};
// "b01f_01io->b01f" -> input b=0 f=3 spatial [1,2]; kernel i=2 o=3 spatial [0,1]; output b=0 f=3 spatial [1,2].
// "bf_io->bf" has no spatial dimension. A `?` stands for a dimension nobody names and is skipped.
ConvolutionDimensions decode_convolution_dimensions(std::string_view raw, const AttributeSite& site);

struct SliceDimension {
  std::int64_t start = 0, limit = 0, stride = 1;
};
// "{[0:4], [2:8:2]}" -> (0,4,1), (2,8,2).
std::vector<SliceDimension> decode_slice(std::string_view raw, const AttributeSite& site);

struct PaddingDimension {
  std::int64_t low = 0, high = 0;  // negative: cropped
  std::int64_t interior = 0;
};
// "0_0x1_-1_2" -> (0,0,0), (1,-1,2); "" -> none.
std::vector<PaddingDimension> decode_padding(std::string_view raw, const AttributeSite& site);

enum class ComparisonDirection { kEq, kNe, kGe, kGt, kLe, kLt };
// "LT" -> kLt.
ComparisonDirection decode_comparison_direction(std::string_view raw, const AttributeSite& site);

// The number and size of the groups of devices that a collective runs in. 0 means "not said": all devices of the run.
struct ReplicaGroups {
  std::int64_t groups = 0, group_size = 0;
};
// "{{0,1},{2,3}}" -> 2 groups of 2; "{}" -> (0, 0); "[4,2]<=[8]" and "[4,2]<=[2,4]T(1,0)" -> 4 groups of 2;
// "mesh['a'=2,'b'=4]{'b'}" -> 2 groups of 4. Groups of different size report the largest.
ReplicaGroups decode_replica_groups(std::string_view raw, const AttributeSite& site);

// The dimension order of an array's raw layout, minor first: "{1,0:T(8,128)}" -> [1, 0]. Nothing (or no order in it,
// as in "{:S(5)}") means the default of `rank` dimensions: "" with rank 3 -> [2, 1, 0].
// Throws when the order is not a permutation of 0..rank-1.
std::vector<std::int64_t> decode_minor_to_major(std::string_view raw, std::size_t rank, const AttributeSite& site);

// --- The same, of one instruction of a graph. An absent attribute gives the default. ---

std::int64_t int_attribute(const Graph& graph, InstructionId id, std::string_view key, std::int64_t default_value);
bool bool_attribute(const Graph& graph, InstructionId id, std::string_view key, bool default_value);
std::string string_attribute(const Graph& graph, InstructionId id, std::string_view key);
// Absent: empty.
std::vector<std::int64_t> int_list_attribute(const Graph& graph, InstructionId id, std::string_view key);
// int_list_attribute whose entries are distinct dimensions of an array of `rank` dimensions; throws otherwise.
std::vector<std::int64_t> dimension_list_attribute(const Graph& graph, InstructionId id, std::string_view key,
                                                   std::size_t rank);

struct DotDimensions {
  std::vector<std::int64_t> lhs_contracting, rhs_contracting, lhs_batch, rhs_batch;
};
// Dimensions of a dot, ragged-dot or scaled-dot. Positions are checked against the ranks of the first two operands.
DotDimensions dot_dimensions(const Graph& graph, InstructionId id);

// The window of a convolution, reduce-window or select-and-scatter; absent: empty.
std::vector<WindowDimension> window_attribute(const Graph& graph, InstructionId id);
// The array that a convolution or product reads of an operand: of a tuple (values and their positions, where the
// operand is sparse) its first element.
const Shape& array_of(const Graph& graph, InstructionId operand);
// Dimensions of a convolution. Throws when dim_labels is absent, when a position lies outside the ranks of the operands
// or the result, or when the spatial dimensions of the three (and of the window) differ in number.
ConvolutionDimensions convolution_dimensions(const Graph& graph, InstructionId id);

struct GatherDimensions {
  std::vector<std::int64_t> offset_dims, collapsed_slice_dims, start_index_map, operand_batching_dims,
      start_indices_batching_dims, slice_sizes;
  std::int64_t index_vector_dim = 0;
};
GatherDimensions gather_dimensions(const Graph& graph, InstructionId id);

struct ScatterDimensions {
  std::vector<std::int64_t> update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, input_batching_dims,
      scatter_indices_batching_dims;
  std::int64_t index_vector_dim = 0;
};
ScatterDimensions scatter_dimensions(const Graph& graph, InstructionId id);

// The field of a {k=v ...} or JSON backend_config: "known_trip_count":{"n":"24"} -> 24, wherever it stands and however
// it is quoted. Nothing when there is no backend_config or no such field.
std::optional<std::int64_t> known_trip_count(const Graph& graph, InstructionId id);

}  // namespace automap::graph
