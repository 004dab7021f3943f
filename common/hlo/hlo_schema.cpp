// The field numbers and names of XLA's messages, as of 2026. Fields that we do not read are simply not here: both
// decoders skip unknown fields.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "common/hlo/hlo_proto.h"

namespace automap::hlo::proto {
namespace {

template <typename C, typename T>
C class_of(T C::*);
template <typename C, typename T>
T type_of(T C::*);

template <auto Member>
void* member_of(void* message) {
  using C = decltype(class_of(Member));
  return &(static_cast<C*>(message)->*Member);
}

template <typename T>
struct IsUnique : std::false_type {};
template <typename T>
struct IsUnique<std::unique_ptr<T>> : std::true_type {};

template <typename T>
const Schema& schema_of();

template <>
const Schema& schema_of<ShapeProto>();  // layouts may hold shapes, shapes hold layouts

template <typename T>
void* add_one(void* member) {
  auto& pointer = *static_cast<std::unique_ptr<T>*>(member);
  if (pointer == nullptr) pointer = std::make_unique<T>();
  return pointer.get();
}
template <typename T>
void* add_repeated(void* member) {
  return &static_cast<std::vector<T>*>(member)->emplace_back();
}

template <auto Member>
Field field(std::uint32_t number, std::string_view name, Wire wire) {
  using T = decltype(type_of(Member));
  Field f;
  f.number = number;
  f.name = name;
  f.wire = wire;
  f.member = &member_of<Member>;
  if constexpr (std::is_same_v<T, std::int64_t>) {
    f.store = Store::kInt64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    f.store = Store::kInt32;
  } else if constexpr (std::is_same_v<T, bool>) {
    f.store = Store::kBool;
  } else if constexpr (std::is_same_v<T, double>) {
    f.store = Store::kDouble;
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    f.store = Store::kText;
  } else if constexpr (std::is_same_v<T, Ints>) {
    f.store = Store::kInts;
    f.repeated = true;
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    f.store = Store::kDoubles;
    f.repeated = true;
  } else if constexpr (std::is_same_v<T, std::vector<std::string_view>>) {
    f.store = Store::kTexts;
    f.repeated = true;
  } else if constexpr (IsUnique<T>::value) {
    using M = typename T::element_type;
    f.store = Store::kMessage;
    f.message_schema = &schema_of<M>;
    f.add_message = &add_one<M>;
  } else {
    using M = typename T::value_type;
    f.store = Store::kMessage;
    f.repeated = true;
    f.message_schema = &schema_of<M>;
    f.add_message = &add_repeated<M>;
  }
  return f;
}

template <auto Member>
Field message(std::uint32_t number, std::string_view name) {
  return field<Member>(number, name, Wire::kMessage);
}
template <auto Member>
Field integer(std::uint32_t number, std::string_view name) {
  return field<Member>(number, name, Wire::kInt);
}
template <auto Member>
Field boolean(std::uint32_t number, std::string_view name) {
  return field<Member>(number, name, Wire::kBool);
}
template <auto Member>
Field text(std::uint32_t number, std::string_view name) {
  return field<Member>(number, name, Wire::kString);
}
template <auto Member>
Field bytes(std::uint32_t number, std::string_view name) {
  return field<Member>(number, name, Wire::kBytes);
}
template <auto Member>
Field enumeration(std::uint32_t number, std::string_view name, EnumValues values) {
  Field f = field<Member>(number, name, Wire::kEnum);
  f.enum_values = values;
  return f;
}
Field literal(Field f) {
  f.literal_data = true;
  return f;
}

template <typename T>
Schema make(std::string_view name, std::vector<Field> fields) {
  Schema s;
  s.message = name;
  s.bytes = sizeof(T);
  s.fields = std::move(fields);
  for (std::size_t i = 0; i < s.fields.size(); ++i) {
    const Field& f = s.fields[i];
    if (f.number >= s.by_number.size()) s.by_number.resize(f.number + 1, -1);
    s.by_number[f.number] = static_cast<std::int16_t>(i);
    std::string camel;
    for (std::size_t k = 0; k < f.name.size(); ++k) {
      char c = f.name[k];
      if (c == '_') continue;
      if (k > 0 && f.name[k - 1] == '_' && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
      camel.push_back(c);
    }
    s.by_name.emplace_back(std::string(f.name), static_cast<std::int16_t>(i));
    if (camel != f.name) s.by_name.emplace_back(std::move(camel), static_cast<std::int16_t>(i));
  }
  std::sort(s.by_name.begin(), s.by_name.end());
  return s;
}

template <std::size_t N>
EnumValues values_of(const EnumValue (&values)[N]) {
  return {values, values + N};
}

constexpr EnumValue kPrimitiveTypes[] = {{"PRED", 1},
                                         {"S8", 2},
                                         {"S16", 3},
                                         {"S32", 4},
                                         {"S64", 5},
                                         {"U8", 6},
                                         {"U16", 7},
                                         {"U32", 8},
                                         {"U64", 9},
                                         {"F16", 10},
                                         {"F32", 11},
                                         {"F64", 12},
                                         {"TUPLE", 13},
                                         {"OPAQUE_TYPE", 14},
                                         {"C64", 15},
                                         {"BF16", 16},
                                         {"TOKEN", 17},
                                         {"C128", 18},
                                         {"F8E5M2", 19},
                                         {"F8E4M3FN", 20},
                                         {"S4", 21},
                                         {"U4", 22},
                                         {"F8E4M3B11FNUZ", 23},
                                         {"F8E5M2FNUZ", 24},
                                         {"F8E4M3FNUZ", 25},
                                         {"S2", 26},
                                         {"U2", 27},
                                         {"F8E4M3", 28},
                                         {"F8E3M4", 29},
                                         {"S1", 30},
                                         {"U1", 31},
                                         {"F4E2M1FN", 32},
                                         {"F8E8M0FNU", 33},
                                         {"BUFFER", 34},
                                         {"F6E3M2FN", 35},
                                         {"F6E2M3FN", 36},
                                         {"PRIMITIVE_TYPE_INVALID", 0}};
constexpr EnumValue kPrecisions[] = {{"DEFAULT", 0}, {"HIGH", 1}, {"HIGHEST", 2}, {"PACKED_NIBBLE", 3}};
constexpr EnumValue kAlgorithms[] = {{"ALG_UNSET", 0},
                                     {"ALG_DOT_ANY_F8_ANY_F8_F32", 1},
                                     {"ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM", 2},
                                     {"ALG_DOT_F16_F16_F16", 3},
                                     {"ALG_DOT_F16_F16_F32", 4},
                                     {"ALG_DOT_BF16_BF16_BF16", 5},
                                     {"ALG_DOT_BF16_BF16_F32", 6},
                                     {"ALG_DOT_BF16_BF16_F32_X3", 7},
                                     {"ALG_DOT_BF16_BF16_F32_X6", 8},
                                     {"ALG_DOT_TF32_TF32_F32", 9},
                                     {"ALG_DOT_TF32_TF32_F32_X3", 10},
                                     {"ALG_DOT_F32_F32_F32", 11},
                                     {"ALG_DOT_F64_F64_F64", 12},
                                     {"ALG_DOT_BF16_BF16_F32_X9", 13}};
constexpr EnumValue kDistributions[] = {{"RNG_INVALID", 0}, {"RNG_UNIFORM", 1}, {"RNG_NORMAL", 2}};
constexpr EnumValue kFftTypes[] = {{"FFT", 0}, {"IFFT", 1}, {"RFFT", 2}, {"IRFFT", 3}};
constexpr EnumValue kRngAlgorithms[] = {{"RNG_DEFAULT", 0}, {"RNG_THREE_FRY", 1}, {"RNG_PHILOX", 2}};
constexpr EnumValue kPaddingTypes[] = {{"PADDING_INVALID", 0}, {"PADDING_VALID", 1}, {"PADDING_SAME", 2}};
constexpr EnumValue kTransposes[] = {{"TRANSPOSE_INVALID", 0}, {"NO_TRANSPOSE", 1}, {"TRANSPOSE", 2}, {"ADJOINT", 3}};
constexpr EnumValue kCustomCallSchedules[] = {{"SCHEDULE_NONE", 0}, {"SCHEDULE_LATEST", 1}, {"SCHEDULE_EARLIEST", 2}};
constexpr EnumValue kCustomCallApiVersions[] = {{"API_VERSION_UNSPECIFIED", 0},
                                                {"API_VERSION_ORIGINAL", 1},
                                                {"API_VERSION_STATUS_RETURNING", 2},
                                                {"API_VERSION_STATUS_RETURNING_UNIFIED", 3},
                                                {"API_VERSION_TYPED_FFI", 4}};
constexpr EnumValue kShardingTypes[] = {{"REPLICATED", 0}, {"MAXIMAL", 1}, {"TUPLE", 2},    {"OTHER", 3},
                                        {"MANUAL", 4},     {"UNKNOWN", 5}, {"UNREDUCED", 6}};
constexpr EnumValue kShardGroupTypes[] = {{"AS", 0}, {"LIKE", 1}};
constexpr EnumValue kAliasKinds[] = {{"UNDEFINED_ALIAS", 0}, {"MAY_ALIAS", 1}, {"MUST_ALIAS", 2}};
constexpr EnumValue kProfileTypes[] = {{"INVALID", 0}, {"WINDOW", 1}, {"FLAG", 2}, {"INTEGER", 3}};
constexpr EnumValue kDimLevelTypes[] = {
    {"DIM_DENSE", 0}, {"DIM_COMPRESSED", 1}, {"DIM_SINGLETON", 2}, {"DIM_LOOSE_COMPRESSED", 3}};
constexpr EnumValue kAccuracyModes[] = {{"DEFAULT", 0}, {"HIGHEST", 1}};
constexpr EnumValue kTriStates[] = {{"TRI_STATE_UNSPECIFIED", 0}, {"TRI_STATE_TRUE", 1}, {"TRI_STATE_FALSE", 2}};
constexpr EnumValue kConvolutionKinds[] = {{"CONVOLUTION_KIND_UNSET", 0},
                                           {"CONVOLUTION_KIND_FPROP", 1},
                                           {"CONVOLUTION_KIND_DGRAD", 2},
                                           {"CONVOLUTION_KIND_WGRAD", 3}};

// Made once per message; the tables refer to each other by function, so that messages may contain themselves.
#define AUTOMAP_SCHEMA(Message, ...)                                                 \
  template <>                                                                        \
  const Schema& schema_of<Message>() {                                               \
    using M = Message;                                                               \
    static const Schema schema = make<M>(#Message, std::vector<Field>{__VA_ARGS__}); \
    return schema;                                                                   \
  }

AUTOMAP_SCHEMA(TileProto, integer<&M::dimensions>(1, "dimensions"))
AUTOMAP_SCHEMA(SplitConfigProto, integer<&M::dimension>(1, "dimension"), integer<&M::split_indices>(2, "split_indices"))
AUTOMAP_SCHEMA(LayoutProto, integer<&M::minor_to_major>(1, "minor_to_major"), message<&M::tiles>(6, "tiles"),
               integer<&M::element_size_in_bits>(7, "element_size_in_bits"),
               integer<&M::memory_space>(8, "memory_space"),
               enumeration<&M::dim_level_types>(9, "dim_level_types", values_of(kDimLevelTypes)),
               message<&M::physical_shape>(10, "physical_shape"),
               enumeration<&M::index_primitive_type>(11, "index_primitive_type", values_of(kPrimitiveTypes)),
               enumeration<&M::pointer_primitive_type>(12, "pointer_primitive_type", values_of(kPrimitiveTypes)),
               boolean<&M::dim_unique>(13, "dim_unique"), boolean<&M::dim_ordered>(14, "dim_ordered"),
               integer<&M::dynamic_shape_metadata_prefix_bytes>(15, "dynamic_shape_metadata_prefix_bytes"),
               integer<&M::tail_padding_alignment_in_elements>(16, "tail_padding_alignment_in_elements"),
               message<&M::split_configs>(17, "split_configs"))
AUTOMAP_SCHEMA(ShapeProto, enumeration<&M::element_type>(2, "element_type", values_of(kPrimitiveTypes)),
               integer<&M::dimensions>(3, "dimensions"), message<&M::tuple_shapes>(4, "tuple_shapes"),
               message<&M::layout>(5, "layout"), boolean<&M::is_dynamic_dimension>(6, "is_dynamic_dimension"))
AUTOMAP_SCHEMA(ProgramShapeProto, message<&M::parameters>(1, "parameters"), message<&M::result>(2, "result"),
               text<&M::parameter_names>(3, "parameter_names"))
AUTOMAP_SCHEMA(OpMetadata, text<&M::op_type>(1, "op_type"), text<&M::op_name>(2, "op_name"),
               text<&M::source_file>(3, "source_file"), integer<&M::source_line>(4, "source_line"),
               enumeration<&M::profile_type>(5, "profile_type", values_of(kProfileTypes)),
               text<&M::deduplicated_name>(12, "deduplicated_name"), integer<&M::stack_frame_id>(15, "stack_frame_id"),
               text<&M::scheduling_name>(16, "scheduling_name"), integer<&M::source_end_line>(17, "source_end_line"),
               integer<&M::source_column>(18, "source_column"), integer<&M::source_end_column>(19, "source_end_column"))
AUTOMAP_SCHEMA(LiteralProto, message<&M::shape>(1, "shape"), literal(boolean<&M::preds>(2, "preds")),
               bytes<&M::u8s>(3, "u8s"), literal(integer<&M::s32s>(4, "s32s")), literal(integer<&M::s64s>(5, "s64s")),
               literal(integer<&M::u32s>(6, "u32s")), literal(integer<&M::u64s>(7, "u64s")),
               literal(field<&M::f32s>(8, "f32s", Wire::kFloat)), literal(field<&M::f64s>(9, "f64s", Wire::kDouble)),
               message<&M::tuple_literals>(10, "tuple_literals"), bytes<&M::f16s>(11, "f16s"),
               literal(field<&M::c64s>(12, "c64s", Wire::kFloat)), bytes<&M::bf16s>(13, "bf16s"),
               bytes<&M::s8s>(15, "s8s"), bytes<&M::u16s>(16, "u16s"), bytes<&M::s16s>(17, "s16s"),
               literal(field<&M::c128s>(18, "c128s", Wire::kDouble)), bytes<&M::f8e5m2s>(19, "f8e5m2s"),
               bytes<&M::f8e4m3fns>(20, "f8e4m3fns"), bytes<&M::s4s>(21, "s4s"), bytes<&M::u4s>(22, "u4s"),
               bytes<&M::f8e4m3b11fnuzs>(23, "f8e4m3b11fnuzs"), bytes<&M::f8e5m2fnuzs>(24, "f8e5m2fnuzs"),
               bytes<&M::f8e4m3fnuzs>(25, "f8e4m3fnuzs"), bytes<&M::s2s>(26, "s2s"), bytes<&M::u2s>(27, "u2s"),
               bytes<&M::f8e4m3s>(28, "f8e4m3s"), bytes<&M::f8e3m4s>(29, "f8e3m4s"), bytes<&M::s1s>(30, "s1s"),
               bytes<&M::u1s>(31, "u1s"), bytes<&M::f4e2m1fns>(32, "f4e2m1fns"),
               bytes<&M::f8e8m0fnus>(33, "f8e8m0fnus"), bytes<&M::f6e3m2fns>(35, "f6e3m2fns"),
               bytes<&M::f6e2m3fns>(36, "f6e2m3fns"))
AUTOMAP_SCHEMA(WindowDimension, integer<&M::size>(1, "size"), integer<&M::stride>(2, "stride"),
               integer<&M::padding_low>(3, "padding_low"), integer<&M::padding_high>(4, "padding_high"),
               integer<&M::window_dilation>(5, "window_dilation"), integer<&M::base_dilation>(6, "base_dilation"),
               boolean<&M::window_reversal>(7, "window_reversal"))
AUTOMAP_SCHEMA(Window, message<&M::dimensions>(1, "dimensions"))
AUTOMAP_SCHEMA(ConvolutionDimensionNumbers,
               integer<&M::kernel_input_feature_dimension>(3, "kernel_input_feature_dimension"),
               integer<&M::kernel_output_feature_dimension>(4, "kernel_output_feature_dimension"),
               integer<&M::kernel_spatial_dimensions>(6, "kernel_spatial_dimensions"),
               integer<&M::input_batch_dimension>(7, "input_batch_dimension"),
               integer<&M::input_feature_dimension>(8, "input_feature_dimension"),
               integer<&M::output_batch_dimension>(9, "output_batch_dimension"),
               integer<&M::output_feature_dimension>(10, "output_feature_dimension"),
               integer<&M::input_spatial_dimensions>(11, "input_spatial_dimensions"),
               integer<&M::output_spatial_dimensions>(12, "output_spatial_dimensions"))
AUTOMAP_SCHEMA(SliceDimensions, integer<&M::start>(1, "start"), integer<&M::limit>(2, "limit"),
               integer<&M::stride>(3, "stride"))
AUTOMAP_SCHEMA(PaddingConfigDimension, integer<&M::edge_padding_low>(1, "edge_padding_low"),
               integer<&M::edge_padding_high>(2, "edge_padding_high"),
               integer<&M::interior_padding>(3, "interior_padding"))
AUTOMAP_SCHEMA(PaddingConfig, message<&M::dimensions>(1, "dimensions"))
AUTOMAP_SCHEMA(DotDimensionNumbers, integer<&M::lhs_contracting_dimensions>(1, "lhs_contracting_dimensions"),
               integer<&M::rhs_contracting_dimensions>(2, "rhs_contracting_dimensions"),
               integer<&M::lhs_batch_dimensions>(3, "lhs_batch_dimensions"),
               integer<&M::rhs_batch_dimensions>(4, "rhs_batch_dimensions"))
AUTOMAP_SCHEMA(RaggedDotDimensionNumbers, message<&M::dot_dimension_numbers>(1, "dot_dimension_numbers"),
               integer<&M::lhs_ragged_dimensions>(2, "lhs_ragged_dimensions"),
               integer<&M::rhs_group_dimensions>(3, "rhs_group_dimensions"))
AUTOMAP_SCHEMA(GatherDimensionNumbers, integer<&M::offset_dims>(1, "offset_dims"),
               integer<&M::collapsed_slice_dims>(2, "collapsed_slice_dims"),
               integer<&M::start_index_map>(3, "start_index_map"), integer<&M::index_vector_dim>(4, "index_vector_dim"),
               integer<&M::operand_batching_dims>(5, "operand_batching_dims"),
               integer<&M::start_indices_batching_dims>(6, "start_indices_batching_dims"))
AUTOMAP_SCHEMA(ScatterDimensionNumbers, integer<&M::update_window_dims>(1, "update_window_dims"),
               integer<&M::inserted_window_dims>(2, "inserted_window_dims"),
               integer<&M::scatter_dims_to_operand_dims>(3, "scatter_dims_to_operand_dims"),
               integer<&M::index_vector_dim>(4, "index_vector_dim"),
               integer<&M::input_batching_dims>(5, "input_batching_dims"),
               integer<&M::scatter_indices_batching_dims>(6, "scatter_indices_batching_dims"))
AUTOMAP_SCHEMA(PrecisionConfig, enumeration<&M::operand_precision>(1, "operand_precision", values_of(kPrecisions)),
               enumeration<&M::algorithm>(2, "algorithm", values_of(kAlgorithms)))
AUTOMAP_SCHEMA(TriangularSolveOptions, boolean<&M::left_side>(1, "left_side"), boolean<&M::lower>(2, "lower"),
               boolean<&M::unit_diagonal>(3, "unit_diagonal"),
               enumeration<&M::transpose_a>(4, "transpose_a", values_of(kTransposes)))
AUTOMAP_SCHEMA(CholeskyOptions, boolean<&M::lower>(1, "lower"))
AUTOMAP_SCHEMA(ParameterReplication, boolean<&M::replicated_at_leaf_buffers>(1, "replicated_at_leaf_buffers"))
AUTOMAP_SCHEMA(OutputOperandAliasing, integer<&M::output_shape_index>(1, "output_shape_index"),
               integer<&M::operand_index>(2, "operand_index"),
               integer<&M::operand_shape_index>(3, "operand_shape_index"))
AUTOMAP_SCHEMA(SourceTarget, integer<&M::source>(1, "source"), integer<&M::target>(2, "target"))
AUTOMAP_SCHEMA(Statistic, text<&M::stat_name>(1, "stat_name"), field<&M::stat_val>(2, "stat_val", Wire::kDouble))
AUTOMAP_SCHEMA(StatisticsViz, integer<&M::stat_index_to_visualize>(1, "stat_index_to_visualize"),
               message<&M::statistics>(2, "statistics"))
AUTOMAP_SCHEMA(Tolerance, field<&M::atol>(1, "atol", Wire::kDouble), field<&M::rtol>(2, "rtol", Wire::kDouble),
               integer<&M::ulps>(3, "ulps"))
AUTOMAP_SCHEMA(ResultAccuracy, enumeration<&M::mode>(1, "mode", values_of(kAccuracyModes)),
               message<&M::tolerance>(2, "tolerance"))
AUTOMAP_SCHEMA(MeshAxis, text<&M::name>(1, "name"), integer<&M::size>(2, "size"))
AUTOMAP_SCHEMA(IotaTransform, integer<&M::reshape_dims>(1, "reshape_dims"),
               integer<&M::transpose_perm>(2, "transpose_perm"))
AUTOMAP_SCHEMA(MeshProto, message<&M::axes>(1, "axes"), integer<&M::device_ids>(2, "device_ids"),
               message<&M::iota_transform>(3, "iota_transform"))
AUTOMAP_SCHEMA(SubAxis, integer<&M::pre_size>(1, "pre_size"), integer<&M::size>(2, "size"))
AUTOMAP_SCHEMA(AxisRefProto, integer<&M::mesh_axis_index>(1, "mesh_axis_index"),
               message<&M::sub_axis_info>(2, "sub_axis_info"))
AUTOMAP_SCHEMA(DimensionSharding, message<&M::axes>(1, "axes"), boolean<&M::is_closed>(2, "is_closed"))
AUTOMAP_SCHEMA(NamedShardingProto, message<&M::mesh>(2, "mesh"), message<&M::dim_shardings>(3, "dim_shardings"),
               message<&M::replicated_axes>(4, "replicated_axes"), message<&M::unreduced_axes>(5, "unreduced_axes"),
               message<&M::manual_axes>(7, "manual_axes"))
AUTOMAP_SCHEMA(OpSharding, enumeration<&M::type>(1, "type", values_of(kShardingTypes)),
               integer<&M::tile_assignment_dimensions>(3, "tile_assignment_dimensions"),
               integer<&M::tile_assignment_devices>(4, "tile_assignment_devices"),
               message<&M::tuple_shardings>(5, "tuple_shardings"),
               boolean<&M::replicate_on_last_tile_dim>(6, "replicate_on_last_tile_dim"),
               enumeration<&M::last_tile_dims>(8, "last_tile_dims", values_of(kShardingTypes)),
               integer<&M::iota_reshape_dims>(9, "iota_reshape_dims"),
               integer<&M::iota_transpose_perm>(10, "iota_transpose_perm"),
               boolean<&M::is_shard_group>(11, "is_shard_group"), integer<&M::shard_group_id>(12, "shard_group_id"),
               enumeration<&M::shard_group_type>(13, "shard_group_type", values_of(kShardGroupTypes)),
               message<&M::named_sharding>(14, "named_sharding"))
AUTOMAP_SCHEMA(ReplicaGroup, integer<&M::replica_ids>(1, "replica_ids"))
AUTOMAP_SCHEMA(IotaReplicaGroupListProto, integer<&M::num_replica_groups>(1, "num_replica_groups"),
               integer<&M::num_devices_per_group>(2, "num_devices_per_group"),
               integer<&M::iota_reshape_dims>(3, "iota_reshape_dims"),
               integer<&M::iota_transpose_perm>(4, "iota_transpose_perm"))
AUTOMAP_SCHEMA(CollectiveDeviceListProto, message<&M::replica_groups>(1, "replica_groups"),
               message<&M::iota_replica_group_list>(2, "iota_replica_group_list"))
AUTOMAP_SCHEMA(MeshAxesReplicaGroupListProto, message<&M::mesh>(1, "mesh"), message<&M::axes>(2, "axes"))
AUTOMAP_SCHEMA(MapEntry, text<&M::key>(1, "key"), text<&M::value>(2, "value"))

Field string_map(Field f) {
  f.string_map = true;
  return f;
}
AUTOMAP_SCHEMA(FrontendAttributes, string_map(message<&M::map>(1, "map")))

AUTOMAP_SCHEMA(
    HloInstructionProto, text<&M::name>(1, "name"), text<&M::opcode>(2, "opcode"), message<&M::shape>(3, "shape"),
    message<&M::metadata>(7, "metadata"), message<&M::literal>(8, "literal"),
    integer<&M::parameter_number>(9, "parameter_number"), text<&M::fusion_kind>(11, "fusion_kind"),
    integer<&M::tuple_index>(13, "tuple_index"), integer<&M::dimensions>(14, "dimensions"),
    message<&M::window>(15, "window"), message<&M::convolution_dimension_numbers>(16, "convolution_dimension_numbers"),
    message<&M::slice_dimensions>(17, "slice_dimensions"), integer<&M::exponent_bits>(18, "exponent_bits"),
    integer<&M::mantissa_bits>(19, "mantissa_bits"), integer<&M::dynamic_slice_sizes>(20, "dynamic_slice_sizes"),
    message<&M::padding_config>(21, "padding_config"), bytes<&M::outfeed_config>(22, "outfeed_config"),
    enumeration<&M::distribution>(23, "distribution", values_of(kDistributions)),
    field<&M::epsilon>(24, "epsilon", Wire::kFloat), integer<&M::feature_index>(25, "feature_index"),
    integer<&M::channel_id>(26, "channel_id"), bytes<&M::infeed_config>(27, "infeed_config"),
    text<&M::custom_call_target>(28, "custom_call_target"), message<&M::outfeed_shape>(29, "outfeed_shape"),
    message<&M::dot_dimension_numbers>(30, "dot_dimension_numbers"),
    enumeration<&M::fft_type>(31, "fft_type", values_of(kFftTypes)), integer<&M::fft_length>(32, "fft_length"),
    message<&M::gather_dimension_numbers>(33, "gather_dimension_numbers"),
    integer<&M::gather_slice_sizes>(34, "gather_slice_sizes"), integer<&M::id>(35, "id"),
    integer<&M::operand_ids>(36, "operand_ids"), integer<&M::control_predecessor_ids>(37, "control_predecessor_ids"),
    integer<&M::called_computation_ids>(38, "called_computation_ids"), message<&M::sharding>(40, "sharding"),
    bytes<&M::backend_config>(43, "backend_config"), integer<&M::all_reduce_id>(45, "all_reduce_id"),
    boolean<&M::is_host_transfer>(47, "is_host_transfer"),
    message<&M::scatter_dimension_numbers>(48, "scatter_dimension_numbers"),
    message<&M::replica_groups>(49, "replica_groups"), integer<&M::feature_group_count>(50, "feature_group_count"),
    message<&M::precision_config>(51, "precision_config"), message<&M::source_target_pairs>(52, "source_target_pairs"),
    message<&M::domain_entry_sharding>(54, "domain_entry_sharding"),
    message<&M::domain_exit_sharding>(55, "domain_exit_sharding"),
    boolean<&M::constrain_layout>(56, "constrain_layout"),
    message<&M::operand_shapes_with_layout>(57, "operand_shapes_with_layout"),
    integer<&M::batch_group_count>(58, "batch_group_count"),
    message<&M::triangular_solve_options>(59, "triangular_solve_options"), boolean<&M::is_stable>(60, "is_stable"),
    message<&M::parameter_replication>(61, "parameter_replication"),
    message<&M::cholesky_options>(62, "cholesky_options"), text<&M::comparison_direction>(63, "comparison_direction"),
    boolean<&M::custom_call_has_side_effect>(65, "custom_call_has_side_effect"), integer<&M::delta>(66, "delta"),
    boolean<&M::indices_are_sorted>(67, "indices_are_sorted"),
    message<&M::frontend_attributes>(68, "frontend_attributes"), boolean<&M::unique_indices>(69, "unique_indices"),
    enumeration<&M::rng_algorithm>(70, "rng_algorithm", values_of(kRngAlgorithms)),
    boolean<&M::use_global_device_ids>(71, "use_global_device_ids"), text<&M::comparison_type>(72, "comparison_type"),
    message<&M::output_operand_aliasing>(74, "output_operand_aliasing"),
    enumeration<&M::padding_type>(75, "padding_type", values_of(kPaddingTypes)),
    enumeration<&M::custom_call_schedule>(76, "custom_call_schedule", values_of(kCustomCallSchedules)),
    enumeration<&M::custom_call_api_version>(77, "custom_call_api_version", values_of(kCustomCallApiVersions)),
    text<&M::async_execution_thread>(79, "async_execution_thread"),
    integer<&M::cross_program_prefetch_index>(80, "cross_program_prefetch_index"), integer<&M::k>(81, "k"),
    message<&M::statistics_viz>(82, "statistics_viz"), boolean<&M::largest>(85, "largest"),
    message<&M::collective_device_list>(87, "collective_device_list"), boolean<&M::is_composite>(89, "is_composite"),
    message<&M::ragged_dot_dimension_numbers>(90, "ragged_dot_dimension_numbers"),
    message<&M::result_accuracy>(91, "result_accuracy"),
    message<&M::iota_collective_device_list>(92, "iota_collective_device_list"),
    message<&M::mesh_axes_replica_group_list>(93, "mesh_axes_replica_group_list"),
    boolean<&M::is_reverse>(94, "is_reverse"), integer<&M::num_carries>(95, "num_carries"),
    enumeration<&M::is_associative>(96, "is_associative", values_of(kTriStates)),
    enumeration<&M::conv_kind>(97, "conv_kind", values_of(kConvolutionKinds)))
AUTOMAP_SCHEMA(HloComputationProto, text<&M::name>(1, "name"), message<&M::instructions>(2, "instructions"),
               integer<&M::id>(5, "id"), integer<&M::root_id>(6, "root_id"),
               text<&M::execution_thread>(8, "execution_thread"))
AUTOMAP_SCHEMA(HloScheduleProto)
AUTOMAP_SCHEMA(AliasEntryProto, integer<&M::output_shape_index>(1, "output_shape_index"),
               integer<&M::parameter_number>(2, "parameter_number"),
               integer<&M::parameter_shape_index>(3, "parameter_shape_index"),
               enumeration<&M::kind>(4, "kind", values_of(kAliasKinds)))
AUTOMAP_SCHEMA(HloInputOutputAliasProto, message<&M::entries>(1, "entries"))
AUTOMAP_SCHEMA(BufferDonorEntryProto, integer<&M::parameter_number>(1, "parameter_number"),
               integer<&M::parameter_shape_index>(2, "parameter_shape_index"))
AUTOMAP_SCHEMA(HloBufferDonorProto, message<&M::entries>(1, "entries"))
AUTOMAP_SCHEMA(FileLocation, integer<&M::file_name_id>(1, "file_name_id"),
               integer<&M::function_name_id>(2, "function_name_id"), integer<&M::line>(3, "line"),
               integer<&M::column>(4, "column"), integer<&M::end_line>(5, "end_line"),
               integer<&M::end_column>(6, "end_column"))
AUTOMAP_SCHEMA(StackFrame, integer<&M::file_location_id>(1, "file_location_id"),
               integer<&M::parent_frame_id>(2, "parent_frame_id"))
AUTOMAP_SCHEMA(StackFrameIndexProto, text<&M::file_names>(1, "file_names"),
               text<&M::function_names>(2, "function_names"), message<&M::file_locations>(3, "file_locations"),
               message<&M::stack_frames>(4, "stack_frames"))
AUTOMAP_SCHEMA(DeviceAssignmentProto, integer<&M::replica_count>(1, "replica_count"),
               integer<&M::computation_count>(2, "computation_count"))
AUTOMAP_SCHEMA(HloModuleProto, text<&M::name>(1, "name"), text<&M::entry_computation_name>(2, "entry_computation_name"),
               message<&M::computations>(3, "computations"), message<&M::host_program_shape>(4, "host_program_shape"),
               integer<&M::id>(5, "id"), integer<&M::entry_computation_id>(6, "entry_computation_id"),
               message<&M::schedule>(7, "schedule"), message<&M::input_output_alias>(8, "input_output_alias"),
               message<&M::device_assignment>(15, "device_assignment"),
               message<&M::stack_frame_index>(17, "stack_frame_index"), message<&M::buffer_donor>(18, "buffer_donor"),
               message<&M::frontend_attributes>(19, "frontend_attributes"))
#undef AUTOMAP_SCHEMA

}  // namespace

std::string_view EnumValues::name(std::int64_t number) const {
  for (const EnumValue* v = begin; v != end; ++v) {
    if (v->number == number) return v->name;
  }
  return {};
}

const Field* Schema::find(std::uint32_t number) const {
  if (number >= by_number.size() || by_number[number] < 0) return nullptr;
  return &fields[static_cast<std::size_t>(by_number[number])];
}

const Field* Schema::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name.begin(), by_name.end(), name,
                                   [](const auto& entry, std::string_view n) { return entry.first < n; });
  if (it == by_name.end() || it->first != name) return nullptr;
  return &fields[static_cast<std::size_t>(it->second)];
}

const Schema& module_schema() {
  return schema_of<HloModuleProto>();
}

EnumValues primitive_types() {
  return values_of(kPrimitiveTypes);
}
EnumValues precisions() {
  return values_of(kPrecisions);
}
EnumValues algorithms() {
  return values_of(kAlgorithms);
}
EnumValues distributions() {
  return values_of(kDistributions);
}
EnumValues fft_types() {
  return values_of(kFftTypes);
}
EnumValues rng_algorithms() {
  return values_of(kRngAlgorithms);
}
EnumValues padding_types() {
  return values_of(kPaddingTypes);
}
EnumValues transposes() {
  return values_of(kTransposes);
}
EnumValues custom_call_schedules() {
  return values_of(kCustomCallSchedules);
}
EnumValues custom_call_api_versions() {
  return values_of(kCustomCallApiVersions);
}

}  // namespace automap::hlo::proto
