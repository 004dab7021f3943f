// XLA's HLO messages (xla/service/hlo.proto, xla/xla_data.proto) as plain structs, and the one table of their fields
// that both decoders share: binary protobuf (here) and proto3 JSON (hlo_json.h). proto_graph.h makes a Graph of them.
//
// Why not libprotobuf: XLA's .proto files move every few weeks, and a generated reader would tie the project to one
// snapshot of them and to one version of the protobuf runtime. What we need is sixty fields whose numbers never change
// (that is protobuf's promise), unknown fields skipped, and hostile input bounded in depth, in size and in what it can
// make us allocate. That is this one file.
//
// Strings are views into the decoded bytes, or into the Strings arena where JSON had to be unescaped.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace automap::hlo::proto {

// Literal elements kept per constant; constants larger than this keep their shape only, as in XLA's own dumps.
constexpr std::size_t kMaxLiteralElements = 65536;
// Nesting of messages (tuple shapes, tuple shardings, tuple literals): protobuf's own limit.
constexpr int kMaxMessageDepth = 100;

using Ints = std::vector<std::int64_t>;

struct TileProto {
  Ints dimensions;
};
struct SplitConfigProto {
  std::int64_t dimension = 0;
  Ints split_indices;
};
struct ShapeProto;
struct LayoutProto {
  Ints minor_to_major, dim_level_types, dim_unique, dim_ordered;
  std::vector<TileProto> tiles;
  std::vector<SplitConfigProto> split_configs;
  std::int64_t element_size_in_bits = 0, memory_space = 0, tail_padding_alignment_in_elements = 0,
               dynamic_shape_metadata_prefix_bytes = 0, index_primitive_type = 0, pointer_primitive_type = 0;
  std::unique_ptr<ShapeProto> physical_shape;
};
struct ShapeProto {
  std::int64_t element_type = 0;
  Ints dimensions, is_dynamic_dimension;
  std::vector<ShapeProto> tuple_shapes;
  std::unique_ptr<LayoutProto> layout;
};
struct ProgramShapeProto {
  std::vector<ShapeProto> parameters;
  std::unique_ptr<ShapeProto> result;
  std::vector<std::string_view> parameter_names;
};

struct OpMetadata {
  std::string_view op_type, op_name, source_file, deduplicated_name, scheduling_name;
  std::int64_t source_line = 0, source_end_line = 0, source_column = 0, source_end_column = 0, stack_frame_id = 0;
  Ints profile_type;
};

struct LiteralProto {
  std::unique_ptr<ShapeProto> shape;
  // One of these holds the elements. Capped at kMaxLiteralElements + 1 numbers.
  Ints preds, s32s, s64s, u32s, u64s;  // u64s: the bits
  std::vector<double> f32s, f64s, c64s, c128s;
  // Little-endian elements; types below 8 bits take a byte each.
  std::string_view s1s, s2s, s4s, s8s, u1s, u2s, u4s, u8s, s16s, u16s, f16s, bf16s, f8e5m2s, f8e4m3fns, f8e4m3b11fnuzs,
      f8e5m2fnuzs, f8e4m3fnuzs, f8e4m3s, f8e3m4s, f4e2m1fns, f8e8m0fnus, f6e3m2fns, f6e2m3fns;
  std::vector<LiteralProto> tuple_literals;
};

struct WindowDimension {
  std::int64_t size = 0, stride = 0, padding_low = 0, padding_high = 0, window_dilation = 0, base_dilation = 0;
  bool window_reversal = false;
};
struct Window {
  std::vector<WindowDimension> dimensions;
};
struct ConvolutionDimensionNumbers {
  std::int64_t input_batch_dimension = 0, input_feature_dimension = 0, kernel_input_feature_dimension = 0,
               kernel_output_feature_dimension = 0, output_batch_dimension = 0, output_feature_dimension = 0;
  Ints input_spatial_dimensions, kernel_spatial_dimensions, output_spatial_dimensions;
};
struct SliceDimensions {
  std::int64_t start = 0, limit = 0, stride = 0;
};
struct PaddingConfigDimension {
  std::int64_t edge_padding_low = 0, edge_padding_high = 0, interior_padding = 0;
};
struct PaddingConfig {
  std::vector<PaddingConfigDimension> dimensions;
};
struct DotDimensionNumbers {
  Ints lhs_contracting_dimensions, rhs_contracting_dimensions, lhs_batch_dimensions, rhs_batch_dimensions;
};
struct RaggedDotDimensionNumbers {
  std::unique_ptr<DotDimensionNumbers> dot_dimension_numbers;
  Ints lhs_ragged_dimensions, rhs_group_dimensions;
};
struct GatherDimensionNumbers {
  Ints offset_dims, collapsed_slice_dims, start_index_map, operand_batching_dims, start_indices_batching_dims;
  std::int64_t index_vector_dim = 0;
};
struct ScatterDimensionNumbers {
  Ints update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, input_batching_dims,
      scatter_indices_batching_dims;
  std::int64_t index_vector_dim = 0;
};
struct PrecisionConfig {
  Ints operand_precision;
  std::int64_t algorithm = 0;
};
struct TriangularSolveOptions {
  bool left_side = false, lower = false, unit_diagonal = false;
  std::int64_t transpose_a = 0;
};
struct CholeskyOptions {
  bool lower = false;
};
struct ParameterReplication {
  Ints replicated_at_leaf_buffers;
};
struct OutputOperandAliasing {
  Ints output_shape_index, operand_shape_index;
  std::int64_t operand_index = 0;
};
struct SourceTarget {
  std::int64_t source = 0, target = 0;
};
struct Statistic {
  std::string_view stat_name;
  double stat_val = 0;
};
struct StatisticsViz {
  std::int64_t stat_index_to_visualize = 0;
  std::vector<Statistic> statistics;
};
struct Tolerance {
  double atol = 0, rtol = 0;
  std::int64_t ulps = 0;
};
struct ResultAccuracy {
  std::int64_t mode = 0;
  std::unique_ptr<Tolerance> tolerance;
};

struct MeshAxis {
  std::string_view name;
  std::int64_t size = 0;
};
struct IotaTransform {
  Ints reshape_dims, transpose_perm;
};
struct MeshProto {
  std::vector<MeshAxis> axes;
  Ints device_ids;
  std::unique_ptr<IotaTransform> iota_transform;
};
struct SubAxis {
  std::int64_t pre_size = 0, size = 0;
};
struct AxisRefProto {
  std::int64_t mesh_axis_index = 0;
  std::unique_ptr<SubAxis> sub_axis_info;
};
struct DimensionSharding {
  std::vector<AxisRefProto> axes;
  bool is_closed = false;
};
struct NamedShardingProto {
  std::unique_ptr<MeshProto> mesh;
  std::vector<DimensionSharding> dim_shardings;
  std::vector<AxisRefProto> replicated_axes, unreduced_axes, manual_axes;
};
struct OpSharding {
  std::int64_t type = 0, shard_group_id = 0, shard_group_type = 0;
  bool replicate_on_last_tile_dim = false, is_shard_group = false;
  Ints tile_assignment_dimensions, tile_assignment_devices, last_tile_dims, iota_reshape_dims, iota_transpose_perm;
  std::vector<OpSharding> tuple_shardings;
  std::unique_ptr<NamedShardingProto> named_sharding;
};
// ShapeProto::element_type of shapes that are no arrays.
constexpr std::int64_t kTupleType = 13, kOpaqueType = 14, kTokenType = 17, kBufferType = 34;
// OpSharding::type.
constexpr std::int64_t kReplicated = 0, kMaximal = 1, kTupleSharding = 2, kOther = 3, kManual = 4, kUnknownSharding = 5,
                       kUnreduced = 6;

struct ReplicaGroup {
  Ints replica_ids;
};
struct IotaReplicaGroupListProto {
  std::int64_t num_replica_groups = 0, num_devices_per_group = 0;
  Ints iota_reshape_dims, iota_transpose_perm;
};
struct CollectiveDeviceListProto {
  std::vector<ReplicaGroup> replica_groups;
  std::unique_ptr<IotaReplicaGroupListProto> iota_replica_group_list;  // until 2025 it stood here
};
struct MeshAxesReplicaGroupListProto {
  std::unique_ptr<MeshProto> mesh;
  std::vector<AxisRefProto> axes;
};

struct MapEntry {
  std::string_view key, value;
};
struct FrontendAttributes {
  std::vector<MapEntry> map;
};

struct HloInstructionProto {
  std::string_view name, opcode, comparison_direction, comparison_type, custom_call_target, fusion_kind, backend_config,
      infeed_config, outfeed_config, async_execution_thread;
  std::int64_t id = 0, parameter_number = 0, tuple_index = 0, channel_id = 0, all_reduce_id = 0;
  Ints operand_ids, called_computation_ids, control_predecessor_ids, dimensions, dynamic_slice_sizes,
      gather_slice_sizes, fft_length;
  std::unique_ptr<ShapeProto> shape, outfeed_shape;
  std::unique_ptr<OpMetadata> metadata;
  std::unique_ptr<LiteralProto> literal;
  std::unique_ptr<Window> window;
  std::unique_ptr<ConvolutionDimensionNumbers> convolution_dimension_numbers;
  std::unique_ptr<PaddingConfig> padding_config;
  std::unique_ptr<DotDimensionNumbers> dot_dimension_numbers;
  std::unique_ptr<RaggedDotDimensionNumbers> ragged_dot_dimension_numbers;
  std::unique_ptr<GatherDimensionNumbers> gather_dimension_numbers;
  std::unique_ptr<ScatterDimensionNumbers> scatter_dimension_numbers;
  std::unique_ptr<PrecisionConfig> precision_config;
  std::unique_ptr<TriangularSolveOptions> triangular_solve_options;
  std::unique_ptr<CholeskyOptions> cholesky_options;
  std::unique_ptr<ParameterReplication> parameter_replication;
  std::unique_ptr<OpSharding> sharding, domain_entry_sharding, domain_exit_sharding;
  std::unique_ptr<CollectiveDeviceListProto> collective_device_list;
  std::unique_ptr<IotaReplicaGroupListProto> iota_collective_device_list;
  std::unique_ptr<MeshAxesReplicaGroupListProto> mesh_axes_replica_group_list;
  std::unique_ptr<FrontendAttributes> frontend_attributes;
  std::unique_ptr<StatisticsViz> statistics_viz;
  std::unique_ptr<ResultAccuracy> result_accuracy;
  std::vector<SliceDimensions> slice_dimensions;
  std::vector<ReplicaGroup> replica_groups;
  std::vector<SourceTarget> source_target_pairs;
  std::vector<ShapeProto> operand_shapes_with_layout;
  std::vector<OutputOperandAliasing> output_operand_aliasing;
  double epsilon = 0;
  std::int64_t feature_group_count = 0, batch_group_count = 0, feature_index = 0, delta = 0, k = 0, num_carries = 0;
  std::int64_t cross_program_prefetch_index = -1;  // -1: absent
  std::int32_t exponent_bits = 0, mantissa_bits = 0;
  std::int32_t distribution = 0, fft_type = 0, rng_algorithm = 0, padding_type = 0, custom_call_schedule = 0,
               custom_call_api_version = 0, is_associative = 0, conv_kind = 0;
  bool use_global_device_ids = false, is_host_transfer = false, is_stable = false, constrain_layout = false,
       custom_call_has_side_effect = false, indices_are_sorted = false, unique_indices = false, largest = false,
       is_composite = false, is_reverse = false;
};

struct HloComputationProto {
  std::string_view name, execution_thread;
  std::vector<HloInstructionProto> instructions;
  std::int64_t id = 0, root_id = 0;
};

struct HloScheduleProto {};  // that there is one is all that the text form says, too

struct AliasEntryProto {
  Ints output_shape_index, parameter_shape_index;
  std::int64_t parameter_number = 0, kind = 0;
};
struct HloInputOutputAliasProto {
  std::vector<AliasEntryProto> entries;
};
struct BufferDonorEntryProto {
  std::int64_t parameter_number = 0;
  Ints parameter_shape_index;
};
struct HloBufferDonorProto {
  std::vector<BufferDonorEntryProto> entries;
};
struct FileLocation {
  std::int64_t file_name_id = 0, function_name_id = 0, line = 0, column = 0, end_line = 0, end_column = 0;
};
struct StackFrame {
  std::int64_t file_location_id = 0, parent_frame_id = 0;
};
struct StackFrameIndexProto {
  std::vector<std::string_view> file_names, function_names;
  std::vector<FileLocation> file_locations;
  std::vector<StackFrame> stack_frames;
};
struct DeviceAssignmentProto {
  std::int64_t replica_count = 0, computation_count = 0;
};

struct HloModuleProto {
  std::string_view name, entry_computation_name;
  std::int64_t id = 0, entry_computation_id = 0;
  std::vector<HloComputationProto> computations;
  std::unique_ptr<ProgramShapeProto> host_program_shape;
  std::unique_ptr<HloScheduleProto> schedule;
  std::unique_ptr<HloInputOutputAliasProto> input_output_alias;
  std::unique_ptr<HloBufferDonorProto> buffer_donor;
  std::unique_ptr<DeviceAssignmentProto> device_assignment;
  std::unique_ptr<StackFrameIndexProto> stack_frame_index;
  std::unique_ptr<FrontendAttributes> frontend_attributes;
};

// --- The table of fields ---

struct Schema;

// The encoding of a value. kInt covers every integer type, bool and enum (varints; JSON numbers, strings, names).
enum class Wire : std::uint8_t { kInt, kBool, kFloat, kDouble, kString, kBytes, kEnum, kMessage };
// The type of the member in which a field is stored.
enum class Store : std::uint8_t { kInt64, kInt32, kBool, kDouble, kText, kInts, kDoubles, kTexts, kMessage };

struct EnumValue {
  std::string_view name;
  std::int32_t number;
};
struct EnumValues {
  const EnumValue* begin = nullptr;
  const EnumValue* end = nullptr;
  // "" when no value has this number.
  std::string_view name(std::int64_t number) const;
};

struct Field {
  std::uint32_t number = 0;
  std::string_view name;  // snake_case
  Wire wire = Wire::kInt;
  Store store = Store::kInt64;
  bool repeated = false;
  bool literal_data = false;  // numbers beyond kMaxLiteralElements + 1 are dropped
  bool string_map = false;    // map<string, string>: in JSON an object
  EnumValues enum_values;
  void* (*member)(void* message) = nullptr;
  const Schema& (*message_schema)() = nullptr;
  void* (*add_message)(void* member) = nullptr;  // the submessage (a new one when repeated)
};

struct Schema {
  std::string_view message;  // "HloInstructionProto"
  std::size_t bytes = 0;     // of one struct
  std::vector<Field> fields;
  // nullptr when unknown. Names in snake_case or lowerCamelCase.
  const Field* find(std::uint32_t number) const;
  const Field* find(std::string_view name) const;

  std::vector<std::int16_t> by_number;
  std::vector<std::pair<std::string, std::int16_t>> by_name;  // sorted
};

const Schema& module_schema();  // HloModuleProto

// "F32", "S4", "TUPLE"; element types by number.
EnumValues primitive_types();
EnumValues precisions();
EnumValues algorithms();
EnumValues distributions();
EnumValues fft_types();
EnumValues rng_algorithms();
EnumValues padding_types();
EnumValues transposes();
EnumValues custom_call_schedules();
EnumValues custom_call_api_versions();

// Text that no input holds verbatim: JSON strings with escapes, base64.
using Strings = std::deque<std::string>;

// Bounds what a decoder allocates: empty messages cost two bytes of input and hundreds of memory.
class Budget {
 public:
  explicit Budget(std::size_t input_bytes) : left_((std::uint64_t{64} << 20) + std::uint64_t{64} * input_bytes) {}
  // False when the budget is spent.
  bool take(std::size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

 private:
  std::uint64_t left_;
};

// True when `bytes` look like a protobuf message: well-formed fields to the end at the top level.
bool looks_like_protobuf(std::string_view bytes);

// The module in `bytes`: an HloModuleProto itself, or any message that wraps one (HloProto, HloSnapshot,
// HloUnoptimizedSnapshot, module tuning data). `bytes` must outlive the result.
// Throws Error(kData) naming `source`, the byte offset and the field.
HloModuleProto decode_binary(std::string_view bytes, const std::string& source);

}  // namespace automap::hlo::proto
