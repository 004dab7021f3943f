#include "common/hlo/proto_attributes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "common/graph/opcode.h"
#include "common/graph/scan.h"

namespace automap::hlo::proto {

using namespace graph;

namespace {

constexpr std::int64_t kTuple = 13, kOpaque = 14, kToken = 17, kBuffer = 34;

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// "1,0"
void put_ints(const Ints& values, std::string* out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out->push_back(',');
    *out += std::to_string(values[i]);
  }
}
std::string braced(const Ints& values) {
  std::string out = "{";
  put_ints(values, &out);
  return out + "}";
}
std::string bracketed(const Ints& values) {
  std::string out = "[";
  put_ints(values, &out);
  return out + "]";
}
std::string bools(const Ints& values) {
  std::string out = "{";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out.push_back(',');
    out += values[i] != 0 ? "true" : "false";
  }
  return out + "}";
}
std::string quoted(std::string_view s) {
  return "\"" + c_escape(s) + "\"";
}
// What HLO text has as a bare word; anything else in its place is put in quotes.
std::string bare(std::string_view s) {
  const bool word =
      !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return scan::is(scan::kIdentifier, c); });
  return word ? std::string(s) : quoted(s);
}

std::string number(double v) {
  char text[64];
  std::snprintf(text, sizeof text, "%.6g", v);
  if (std::strtod(text, nullptr) != v) std::snprintf(text, sizeof text, "%.17g", v);
  return text;
}
std::string number32(double v) {
  const auto f = static_cast<float>(v);
  char text[64];
  std::snprintf(text, sizeof text, "%.6g", static_cast<double>(f));
  if (std::strtof(text, nullptr) != f) std::snprintf(text, sizeof text, "%.9g", static_cast<double>(f));
  return text;
}

// Whether a backend config or frontend attribute reads as one JSON object, so that XLA prints it without quotes:
// balanced braces with respect to strings, and nothing behind the last.
bool is_json_object(std::string_view s) {
  if (s.empty() || s.front() != '{') return false;
  std::int64_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '\'' || c == '/') {
      return false;  // no JSON, and not to be left bare: readers may take it for a string or a comment
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1 == s.size();
    }
  }
  return false;
}

// The value of an enum in lower case, without a prefix: ("RNG_UNIFORM") -> "rng_uniform".
std::string enum_text(const EnumValues& values, std::int64_t value) {
  const std::string_view name = values.name(value);
  return name.empty() ? "unknown_" + std::to_string(value) : std::string(name);
}

std::string axis_ref(const AxisRefProto& ref, const MeshProto* mesh) {
  std::string out = "'";
  const auto index = static_cast<std::size_t>(ref.mesh_axis_index);
  if (mesh != nullptr && ref.mesh_axis_index >= 0 && index < mesh->axes.size()) {
    out += c_escape(mesh->axes[index].name);
  } else {
    out += "axis" + std::to_string(ref.mesh_axis_index);
  }
  out += "'";
  if (ref.sub_axis_info != nullptr) {
    out += ":(" + std::to_string(ref.sub_axis_info->pre_size) + ")" + std::to_string(ref.sub_axis_info->size);
  }
  return out;
}

std::string axis_list(const std::vector<AxisRefProto>& axes, const MeshProto* mesh) {
  std::string out = "{";
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (i != 0) out += ", ";
    out += axis_ref(axes[i], mesh);
  }
  return out + "}";
}

// "mesh['x'=2,'y'=4]"
std::string mesh_text(const MeshProto* mesh) {
  std::string out = "mesh[";
  if (mesh != nullptr) {
    for (std::size_t i = 0; i < mesh->axes.size(); ++i) {
      if (i != 0) out.push_back(',');
      out += "'" + c_escape(mesh->axes[i].name) + "'=" + std::to_string(mesh->axes[i].size);
    }
  }
  out.push_back(']');
  if (mesh != nullptr && mesh->iota_transform != nullptr) {
    out += ", device_ids=(" + bracketed(mesh->iota_transform->reshape_dims);
    if (!mesh->iota_transform->transpose_perm.empty()) {
      out += "T(";
      put_ints(mesh->iota_transform->transpose_perm, &out);
      out += ")";
    }
    out += ")";
  } else if (mesh != nullptr && !mesh->device_ids.empty()) {
    out += ", device_ids=(";
    put_ints(mesh->device_ids, &out);
    out += ")";
  }
  return out;
}

std::string named_sharding_text(const NamedShardingProto& s) {
  const MeshProto* mesh = s.mesh.get();
  if (mesh != nullptr && mesh->axes.empty() && !mesh->device_ids.empty()) {
    return "{maximal_" + mesh_text(mesh) + "}";
  }
  std::string out = "{" + mesh_text(mesh) + ", [";
  for (std::size_t i = 0; i < s.dim_shardings.size(); ++i) {
    const DimensionSharding& d = s.dim_shardings[i];
    if (i != 0) out += ", ";
    out += "{";
    for (std::size_t a = 0; a < d.axes.size(); ++a) {
      if (a != 0) out += ", ";
      out += axis_ref(d.axes[a], mesh);
    }
    if (!d.is_closed) out += d.axes.empty() ? "?" : ", ?";
    out += "}";
  }
  out += "]";
  if (!s.replicated_axes.empty()) out += ", replicated=" + axis_list(s.replicated_axes, mesh);
  if (!s.unreduced_axes.empty()) out += ", unreduced=" + axis_list(s.unreduced_axes, mesh);
  if (!s.manual_axes.empty()) out += ", manual=" + axis_list(s.manual_axes, mesh);
  return out + "}";
}

// "[4,2]<=[8]" or "[4,2]<=[2,4]T(1,0)".
std::string iota_tiles(const Ints& tile_dims, const Ints& reshape_dims, const Ints& transpose_perm) {
  std::string out = bracketed(tile_dims) + "<=" + bracketed(reshape_dims);
  bool identity = true;
  for (std::size_t i = 0; i < transpose_perm.size(); ++i) {
    identity = identity && transpose_perm[i] == static_cast<std::int64_t>(i);
  }
  if (!identity) {
    out += "T(";
    put_ints(transpose_perm, &out);
    out += ")";
  }
  return out;
}

std::string replica_groups_text(const std::vector<ReplicaGroup>& groups) {
  std::string out = "{";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i != 0) out.push_back(',');
    out += braced(groups[i].replica_ids);
  }
  return out + "}";
}

std::string iota_groups_text(const IotaReplicaGroupListProto& list) {
  return iota_tiles({list.num_replica_groups, list.num_devices_per_group}, list.iota_reshape_dims,
                    list.iota_transpose_perm);
}

std::string window_text(const Window& window) {
  const std::vector<WindowDimension>& dims = window.dimensions;
  const auto joined = [&](const auto& text) {
    std::string out;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (i != 0) out.push_back('x');
      out += text(dims[i]);
    }
    return out;
  };
  const auto any = [&](const auto& test) { return std::any_of(dims.begin(), dims.end(), test); };
  std::string out = "{size=" + joined([](const WindowDimension& d) { return std::to_string(d.size); });
  if (any([](const WindowDimension& d) { return d.stride != 1; })) {
    out += " stride=" + joined([](const WindowDimension& d) { return std::to_string(d.stride); });
  }
  if (any([](const WindowDimension& d) { return d.padding_low != 0 || d.padding_high != 0; })) {
    out += " pad=" + joined([](const WindowDimension& d) {
             return std::to_string(d.padding_low) + "_" + std::to_string(d.padding_high);
           });
  }
  if (any([](const WindowDimension& d) { return d.base_dilation != 1; })) {
    out += " lhs_dilate=" + joined([](const WindowDimension& d) { return std::to_string(d.base_dilation); });
  }
  if (any([](const WindowDimension& d) { return d.window_dilation != 1; })) {
    out += " rhs_dilate=" + joined([](const WindowDimension& d) { return std::to_string(d.window_dilation); });
  }
  if (any([](const WindowDimension& d) { return d.window_reversal; })) {
    out += " rhs_reversal=" + joined([](const WindowDimension& d) { return d.window_reversal ? "1" : "0"; });
  }
  return out + "}";
}

std::string dim_labels_text(const ConvolutionDimensionNumbers& dnums) {
  // Positions beyond the number of labels would be a hole; those become '?' as in XLA.
  const auto labels = [](std::int64_t a, char a_label, std::int64_t b, char b_label, const Ints& spatial) {
    std::string out(spatial.size() + 2, '?');
    const auto set = [&](std::int64_t at, char label) {
      if (at >= 0 && static_cast<std::size_t>(at) < out.size()) out[static_cast<std::size_t>(at)] = label;
    };
    set(a, a_label);
    set(b, b_label);
    for (std::size_t i = 0; i < spatial.size(); ++i) set(spatial[i], static_cast<char>('0' + i % 10));
    return out;
  };
  return labels(dnums.input_batch_dimension, 'b', dnums.input_feature_dimension, 'f', dnums.input_spatial_dimensions) +
         "_" +
         labels(dnums.kernel_input_feature_dimension, 'i', dnums.kernel_output_feature_dimension, 'o',
                dnums.kernel_spatial_dimensions) +
         "->" +
         labels(dnums.output_batch_dimension, 'b', dnums.output_feature_dimension, 'f',
                dnums.output_spatial_dimensions);
}

std::string metadata_text(const OpMetadata& m) {
  std::string out;
  const auto put = [&](std::string_view key, const std::string& value) {
    if (!out.empty()) out.push_back(' ');
    out += key;
    out.push_back('=');
    out += value;
  };
  const auto text = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) put(key, quoted(value));
  };
  const auto integer = [&](std::string_view key, std::int64_t value) {
    if (value != 0) put(key, std::to_string(value));
  };
  text("op_type", m.op_type);
  text("op_name", m.op_name);
  text("source_file", m.source_file);
  integer("source_line", m.source_line);
  integer("source_end_line", m.source_end_line);
  integer("source_column", m.source_column);
  integer("source_end_column", m.source_end_column);
  if (!m.profile_type.empty()) put("profile_type", braced(m.profile_type));
  text("deduplicated_name", m.deduplicated_name);
  text("scheduling_name", m.scheduling_name);
  integer("stack_frame_id", m.stack_frame_id);
  return out.empty() ? out : "{" + out + "}";
}

std::string frontend_attributes_text(const FrontendAttributes& attributes) {
  std::vector<const MapEntry*> entries;
  for (const MapEntry& e : attributes.map) entries.push_back(&e);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const MapEntry* a, const MapEntry* b) { return a->key < b->key; });
  std::string out = "{";
  for (const MapEntry* e : entries) {
    if (out.size() > 1) out.push_back(',');
    out += bare(e->key);
    out.push_back('=');
    out += is_json_object(e->value) ? std::string(e->value) : quoted(e->value);
  }
  return out + "}";
}

// A permutation names pairs of devices instead of groups.
bool has_replica_groups(Opcode opcode) {
  return is_collective(opcode) && opcode != Opcode::kCollectivePermute && opcode != Opcode::kCollectivePermuteStart;
}

class Printer {
 public:
  Printer(const HloInstructionProto& i, bool predicate, const Names& names, const TypeNames& types, AttributeList* out)
      : i_(i), opcode_(parse_opcode(i.opcode)), predicate_(predicate), names_(names), types_(types), out_(*out) {}

  void all() {
    shapes_and_dimensions();
    collectives();
    options();
    custom_call();
    called();
    common();
  }

 private:
  void put(std::string_view key, std::string_view value) {
    AttributeText text;
    text.key = key;
    text.begin = out_.buffer.size();
    out_.buffer += value;
    text.end = out_.buffer.size();
    out_.items.push_back(text);
  }
  void put(std::string_view key, std::int64_t value) { put(key, std::string_view(std::to_string(value))); }
  void flag(std::string_view key, bool value) {
    if (value) put(key, std::string_view("true"));
  }
  void list(std::string_view key, const Ints& values) {
    if (!values.empty()) put(key, braced(values));
  }

  void shapes_and_dimensions() {
    if (opcode_ == Opcode::kIota) {
      if (!i_.dimensions.empty()) put("iota_dimension", i_.dimensions[0]);
    } else if (opcode_ == Opcode::kReshape) {
      if (!i_.dimensions.empty()) put("inferred_dimension", i_.dimensions[0]);
    } else if (!i_.dimensions.empty() || has_trait(opcode_, trait::kListsDimensions)) {
      put("dimensions", braced(i_.dimensions));
    }
    if (opcode_ == Opcode::kGetTupleElement) put("index", i_.tuple_index);
    if (i_.window != nullptr && !i_.window->dimensions.empty()) put("window", window_text(*i_.window));
    if (i_.convolution_dimension_numbers != nullptr) {
      put("dim_labels", dim_labels_text(*i_.convolution_dimension_numbers));
    }
    if (i_.feature_group_count > 1) put("feature_group_count", i_.feature_group_count);
    if (i_.batch_group_count > 1) put("batch_group_count", i_.batch_group_count);
    const RaggedDotDimensionNumbers* ragged = i_.ragged_dot_dimension_numbers.get();
    const DotDimensionNumbers* dot = i_.dot_dimension_numbers.get();
    if (ragged != nullptr && ragged->dot_dimension_numbers != nullptr) dot = ragged->dot_dimension_numbers.get();
    if (dot != nullptr) {
      list("lhs_batch_dims", dot->lhs_batch_dimensions);
      put("lhs_contracting_dims", braced(dot->lhs_contracting_dimensions));
      list("rhs_batch_dims", dot->rhs_batch_dimensions);
      put("rhs_contracting_dims", braced(dot->rhs_contracting_dimensions));
    }
    if (ragged != nullptr) {
      list("lhs_ragged_dims", ragged->lhs_ragged_dimensions);
      list("rhs_group_dims", ragged->rhs_group_dimensions);
    }
    if (i_.precision_config != nullptr) {
      const Ints& precisions_used = i_.precision_config->operand_precision;
      if (std::any_of(precisions_used.begin(), precisions_used.end(), [](std::int64_t p) { return p != 0; })) {
        std::string text = "{";
        for (std::size_t k = 0; k < precisions_used.size(); ++k) {
          if (k != 0) text.push_back(',');
          text += lower(enum_text(precisions(), precisions_used[k]));
        }
        put("operand_precision", text + "}");
      }
      if (i_.precision_config->algorithm != 0) {
        std::string text = lower(enum_text(algorithms(), i_.precision_config->algorithm));
        if (text.rfind("alg_", 0) == 0) text.erase(0, 4);
        put("algorithm", text);
      }
    }
    if (i_.padding_type != 0) put("padding_type", enum_text(padding_types(), i_.padding_type));
    if (!i_.slice_dimensions.empty() || opcode_ == Opcode::kSlice) {
      const bool strides = std::any_of(i_.slice_dimensions.begin(), i_.slice_dimensions.end(),
                                       [](const SliceDimensions& d) { return d.stride != 1; });
      std::string text = "{";
      for (std::size_t k = 0; k < i_.slice_dimensions.size(); ++k) {
        const SliceDimensions& d = i_.slice_dimensions[k];
        if (k != 0) text += ", ";
        text += "[" + std::to_string(d.start) + ":" + std::to_string(d.limit);
        if (strides) text += ":" + std::to_string(d.stride);
        text += "]";
      }
      put("slice", text + "}");
    }
    list("dynamic_slice_sizes", i_.dynamic_slice_sizes);
    if (i_.padding_config != nullptr) {
      const auto& dims = i_.padding_config->dimensions;
      const bool interior =
          std::any_of(dims.begin(), dims.end(), [](const auto& d) { return d.interior_padding != 0; });
      std::string text;
      for (std::size_t k = 0; k < dims.size(); ++k) {
        if (k != 0) text.push_back('x');
        text += std::to_string(dims[k].edge_padding_low) + "_" + std::to_string(dims[k].edge_padding_high);
        if (interior) text += "_" + std::to_string(dims[k].interior_padding);
      }
      put("padding", text);
    }
    if (const GatherDimensionNumbers* g = i_.gather_dimension_numbers.get()) {
      put("offset_dims", braced(g->offset_dims));
      put("collapsed_slice_dims", braced(g->collapsed_slice_dims));
      put("start_index_map", braced(g->start_index_map));
      list("operand_batching_dims", g->operand_batching_dims);
      list("start_indices_batching_dims", g->start_indices_batching_dims);
      put("index_vector_dim", g->index_vector_dim);
      put("slice_sizes", braced(i_.gather_slice_sizes));
    }
    if (const ScatterDimensionNumbers* s = i_.scatter_dimension_numbers.get()) {
      put("update_window_dims", braced(s->update_window_dims));
      put("inserted_window_dims", braced(s->inserted_window_dims));
      put("scatter_dims_to_operand_dims", braced(s->scatter_dims_to_operand_dims));
      list("input_batching_dims", s->input_batching_dims);
      list("scatter_indices_batching_dims", s->scatter_indices_batching_dims);
      put("index_vector_dim", s->index_vector_dim);
    }
    flag("indices_are_sorted", i_.indices_are_sorted);
    flag("unique_indices", i_.unique_indices);
  }

  void collectives() {
    const std::int64_t channel = i_.channel_id > 0 ? i_.channel_id : i_.all_reduce_id;
    if (channel > 0) put("channel_id", channel);
    if (i_.iota_collective_device_list != nullptr) {
      put("replica_groups", iota_groups_text(*i_.iota_collective_device_list));
    } else if (i_.mesh_axes_replica_group_list != nullptr) {
      const MeshProto* mesh = i_.mesh_axes_replica_group_list->mesh.get();
      put("replica_groups", mesh_text(mesh) + axis_list(i_.mesh_axes_replica_group_list->axes, mesh));
    } else if (i_.collective_device_list != nullptr && i_.collective_device_list->iota_replica_group_list != nullptr &&
               i_.collective_device_list->iota_replica_group_list->num_replica_groups > 0) {
      put("replica_groups", iota_groups_text(*i_.collective_device_list->iota_replica_group_list));
    } else if (i_.collective_device_list != nullptr && !i_.collective_device_list->replica_groups.empty()) {
      put("replica_groups", replica_groups_text(i_.collective_device_list->replica_groups));
    } else if (!i_.replica_groups.empty() || has_replica_groups(opcode_)) {
      put("replica_groups", replica_groups_text(i_.replica_groups));
    }
    if (!i_.source_target_pairs.empty() || opcode_ == Opcode::kCollectivePermute) {
      std::string text = "{";
      for (std::size_t k = 0; k < i_.source_target_pairs.size(); ++k) {
        if (k != 0) text.push_back(',');
        text += "{" + std::to_string(i_.source_target_pairs[k].source) + "," +
                std::to_string(i_.source_target_pairs[k].target) + "}";
      }
      put("source_target_pairs", text + "}");
    }
    if (opcode_ != Opcode::kCustomCall) flag("constrain_layout", i_.constrain_layout);
    flag("use_global_device_ids", i_.use_global_device_ids);
    flag("is_host_transfer", i_.is_host_transfer);
  }

  void options() {
    switch (opcode_) {
      case Opcode::kReducePrecision:
        put("exponent_bits", i_.exponent_bits);
        put("mantissa_bits", i_.mantissa_bits);
        break;
      case Opcode::kRng: put("distribution", lower(enum_text(distributions(), i_.distribution))); break;
      case Opcode::kRngBitGenerator: put("algorithm", lower(enum_text(rng_algorithms(), i_.rng_algorithm))); break;
      case Opcode::kRngGetAndUpdateState: put("delta", i_.delta); break;
      case Opcode::kBatchNormTraining:
      case Opcode::kBatchNormInference:
      case Opcode::kBatchNormGrad:
        put("epsilon", number32(i_.epsilon));
        put("feature_index", i_.feature_index);
        break;
      case Opcode::kFft:
        put("fft_type", enum_text(fft_types(), i_.fft_type));
        put("fft_length", braced(i_.fft_length));
        break;
      case Opcode::kCompare:
        put("direction", bare(i_.comparison_direction));
        // The other types follow from the operands' element type.
        if (i_.comparison_type == "TOTALORDER") put("type", i_.comparison_type);
        break;
      case Opcode::kTopk:
        put("k", i_.k);
        flag("largest", i_.largest);
        break;
      case Opcode::kCholesky: flag("lower", i_.cholesky_options != nullptr && i_.cholesky_options->lower); break;
      case Opcode::kTriangularSolve:
        if (const TriangularSolveOptions* t = i_.triangular_solve_options.get()) {
          flag("left_side", t->left_side);
          flag("lower", t->lower);
          flag("unit_diagonal", t->unit_diagonal);
          if (t->transpose_a != 0) put("transpose_a", enum_text(transposes(), t->transpose_a));
        }
        break;
      case Opcode::kDomain:
        if (i_.domain_entry_sharding != nullptr && i_.domain_exit_sharding != nullptr) {
          // The message calls the operand's side the entry, the text calls it the exit.
          put("domain", "{kind=\"sharding\", entry=" + sharding_text(*i_.domain_exit_sharding) +
                            ", exit=" + sharding_text(*i_.domain_entry_sharding) + "}");
        }
        break;
      case Opcode::kInfeed:
        if (!i_.infeed_config.empty()) put("infeed_config", quoted(i_.infeed_config));
        break;
      case Opcode::kOutfeed:
        if (i_.outfeed_shape != nullptr) put("outfeed_shape", shape_text(*i_.outfeed_shape, types_, true));
        if (!i_.outfeed_config.empty()) put("outfeed_config", quoted(i_.outfeed_config));
        break;
      case Opcode::kFusion: put("kind", i_.fusion_kind.empty() ? std::string("kLoop") : bare(i_.fusion_kind)); break;
      case Opcode::kScan:
        flag("is_reverse", i_.is_reverse);
        put("num_carries", i_.num_carries);
        if (i_.is_associative != 0) put("is_associative", std::string_view(i_.is_associative == 1 ? "true" : "false"));
        break;
      default: break;
    }
    flag("is_stable", i_.is_stable);
    if (i_.cross_program_prefetch_index >= 0 && opcode_ == Opcode::kCopyStart) {
      put("cross_program_prefetch_index", i_.cross_program_prefetch_index);
    }
    if (i_.parameter_replication != nullptr && !i_.parameter_replication->replicated_at_leaf_buffers.empty()) {
      put("parameter_replication", bools(i_.parameter_replication->replicated_at_leaf_buffers));
    }
    if (const ResultAccuracy* accuracy = i_.result_accuracy.get()) {
      if (accuracy->tolerance != nullptr) {
        const Tolerance& t = *accuracy->tolerance;
        put("result_accuracy", "{tolerance={atol=" + number(t.atol) + ",rtol=" + number(t.rtol) +
                                   ",ulps=" + std::to_string(t.ulps) + "}}");
      } else if (accuracy->mode == 1) {
        put("result_accuracy", std::string_view("{mode=highest}"));
      }
    }
    if (i_.conv_kind > 0) {
      constexpr std::string_view kKinds[] = {"unset", "fprop", "dgrad", "wgrad"};
      if (i_.conv_kind < 4) put("conv_kind", kKinds[i_.conv_kind]);
    }
  }

  void custom_call() {
    if (opcode_ == Opcode::kCustomCall) {
      put("custom_call_target", quoted(i_.custom_call_target));
      if (i_.constrain_layout) {
        std::string text = "{";
        for (const ShapeProto& shape : i_.operand_shapes_with_layout) {
          if (text.size() > 1) text += ", ";
          text += shape_text(shape, types_, true);
        }
        put("operand_layout_constraints", text + "}");
      }
      flag("custom_call_has_side_effect", i_.custom_call_has_side_effect);
    }
    if (!i_.output_operand_aliasing.empty()) {
      std::string text = "{";
      for (const OutputOperandAliasing& a : i_.output_operand_aliasing) {
        if (text.size() > 1) text += ", ";
        text += braced(a.output_shape_index) + ": (" + std::to_string(a.operand_index) + ", " +
                braced(a.operand_shape_index) + ")";
      }
      put("output_to_operand_aliasing", text + "}");
    }
    if (opcode_ == Opcode::kCustomCall) {
      if (i_.custom_call_schedule != 0) put("schedule", enum_text(custom_call_schedules(), i_.custom_call_schedule));
      if (i_.custom_call_api_version > 1) {
        put("api_version", enum_text(custom_call_api_versions(), i_.custom_call_api_version));
      }
    }
  }

  std::string reference(std::int64_t id) const { return "%" + std::string(names_.computation(id)); }
  std::string references(std::string_view separator) const {
    std::string text = "{";
    for (std::size_t k = 0; k < i_.called_computation_ids.size(); ++k) {
      if (k != 0) text += separator;
      text += reference(i_.called_computation_ids[k]);
    }
    return text + "}";
  }

  void called() {
    const Ints& ids = i_.called_computation_ids;
    if (ids.empty()) return;
    switch (opcode_) {
      case Opcode::kWhile:
        if (ids.size() != 2) break;
        put("condition", reference(ids[1]));  // the message has the body first
        put("body", reference(ids[0]));
        return;
      case Opcode::kConditional:
        if (predicate_ && ids.size() == 2) {
          put("true_computation", reference(ids[0]));
          put("false_computation", reference(ids[1]));
        } else {
          put("branch_computations", references(", "));
        }
        return;
      case Opcode::kSelectAndScatter:
        if (ids.size() != 2) break;
        put("select", reference(ids[0]));
        put("scatter", reference(ids[1]));
        return;
      case Opcode::kFusion:
      case Opcode::kAsyncStart:
      case Opcode::kAsyncUpdate:
      case Opcode::kAsyncDone:
        if (ids.size() != 1) break;
        put("calls", reference(ids[0]));
        return;
      case Opcode::kCall:
        if (ids.size() != 1) break;
        put("to_apply", reference(ids[0]));
        flag("is_composite", i_.is_composite);
        return;
      case Opcode::kCustomCall:
        if (ids.size() == 1) {
          put("to_apply", reference(ids[0]));
        } else {
          put("called_computations", references(", "));
        }
        return;
      default:
        // One that all share, printed once although some opcodes repeat it per operand.
        if (!has_trait(opcode_, trait::kApplies) ||
            std::any_of(ids.begin(), ids.end(), [&](std::int64_t id) { return id != ids[0]; })) {
          break;
        }
        put("to_apply", reference(ids[0]));
        return;
    }
    put("called_computations", references(", "));
  }

  void common() {
    if (!i_.async_execution_thread.empty() && i_.async_execution_thread != "main") {
      put("async_execution_thread", quoted(i_.async_execution_thread));
    }
    if (i_.sharding != nullptr) put("sharding", sharding_text(*i_.sharding));
    if (i_.frontend_attributes != nullptr && !i_.frontend_attributes->map.empty()) {
      put("frontend_attributes", frontend_attributes_text(*i_.frontend_attributes));
    }
    if (!i_.control_predecessor_ids.empty()) {
      std::string text = "{";
      for (const std::int64_t id : i_.control_predecessor_ids) {
        const std::string_view name = names_.instruction(id);
        if (name.empty()) continue;
        if (text.size() > 1) text += ", ";
        text += "%" + std::string(name);
      }
      put("control-predecessors", text + "}");
    }
    if (i_.statistics_viz != nullptr && !i_.statistics_viz->statistics.empty()) {
      std::string text = "{visualizing_index=" + std::to_string(i_.statistics_viz->stat_index_to_visualize);
      for (const Statistic& s : i_.statistics_viz->statistics) {
        text += "," + bare(s.stat_name) + "=" + number(s.stat_val);
      }
      put("statistics", text + "}");
    }
    if (i_.metadata != nullptr) {
      const std::string text = metadata_text(*i_.metadata);
      if (!text.empty()) put("metadata", text);
    }
    if (!i_.backend_config.empty()) {
      put("backend_config",
          is_json_object(i_.backend_config) ? std::string(i_.backend_config) : quoted(i_.backend_config));
    }
  }

  const HloInstructionProto& i_;
  const Opcode opcode_;
  const bool predicate_;
  const Names& names_;
  const TypeNames& types_;
  AttributeList& out_;
};

}  // namespace

std::string c_escape(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (const char c : s) {
    switch (c) {
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '"': out += "\\\""; break;
      case '\'': out += "\\'"; break;
      case '\\': out += "\\\\"; break;
      default: {
        const auto u = static_cast<unsigned char>(c);
        if (u >= 0x20 && u < 0x7f) {
          out.push_back(c);
        } else {
          out.push_back('\\');
          out.push_back(static_cast<char>('0' + (u >> 6)));
          out.push_back(static_cast<char>('0' + ((u >> 3) & 7)));
          out.push_back(static_cast<char>('0' + (u & 7)));
        }
      }
    }
  }
  return out;
}

std::string_view TypeNames::name(std::int64_t element_type) const {
  constexpr std::int64_t kFirstUnknown = 1000000;
  if (unknown != nullptr && element_type >= kFirstUnknown &&
      element_type - kFirstUnknown < static_cast<std::int64_t>(unknown->size())) {
    return (*unknown)[static_cast<std::size_t>(element_type - kFirstUnknown)];
  }
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    const EnumValues values = primitive_types();
    for (const EnumValue* v = values.begin; v != values.end; ++v) {
      const auto at = static_cast<std::size_t>(v->number);
      if (at >= all.size()) all.resize(at + 1);
      if (v->number != 0 && v->number != kTuple) all[at] = lower(v->name);
    }
    all[kOpaque] = "opaque";
    return all;
  }();
  if (element_type == kTuple) return {};
  if (element_type < 0 || element_type >= static_cast<std::int64_t>(names.size()) ||
      names[static_cast<std::size_t>(element_type)].empty()) {
    return "unknown";
  }
  return names[static_cast<std::size_t>(element_type)];
}

std::string layout_text(const ShapeProto& shape, const TypeNames& types) {
  if (shape.layout == nullptr) return {};
  const LayoutProto& layout = *shape.layout;
  std::string extra;
  if (!layout.dim_level_types.empty() && std::any_of(layout.dim_level_types.begin(), layout.dim_level_types.end(),
                                                     [](std::int64_t t) { return t != 0; })) {
    constexpr char kLetters[] = {'D', 'C', 'S', 'H'};
    extra += "D(";
    for (std::size_t d = 0; d < layout.dim_level_types.size(); ++d) {
      const std::int64_t t = layout.dim_level_types[d];
      if (d != 0) extra.push_back(',');
      extra.push_back(t >= 0 && t < 4 ? kLetters[t] : '?');
      if (d < layout.dim_unique.size() && layout.dim_unique[d] == 0) extra.push_back('+');
      if (d < layout.dim_ordered.size() && layout.dim_ordered[d] == 0) extra.push_back('~');
    }
    extra.push_back(')');
  }
  if (!layout.tiles.empty()) {
    extra.push_back('T');
    for (const TileProto& tile : layout.tiles) {
      extra.push_back('(');
      for (std::size_t d = 0; d < tile.dimensions.size(); ++d) {
        if (d != 0) extra.push_back(',');
        // The smallest integer says "combine with the next dimension".
        extra +=
            tile.dimensions[d] == std::numeric_limits<std::int64_t>::min() ? "*" : std::to_string(tile.dimensions[d]);
      }
      extra.push_back(')');
    }
  }
  if (layout.tail_padding_alignment_in_elements > 1) {
    extra += "L(" + std::to_string(layout.tail_padding_alignment_in_elements) + ")";
  }
  if (layout.index_primitive_type != 0) extra += "#(" + std::string(types.name(layout.index_primitive_type)) + ")";
  if (layout.pointer_primitive_type != 0) extra += "*(" + std::string(types.name(layout.pointer_primitive_type)) + ")";
  if (layout.element_size_in_bits > 0) extra += "E(" + std::to_string(layout.element_size_in_bits) + ")";
  if (layout.memory_space != 0) extra += "S(" + std::to_string(layout.memory_space) + ")";
  if (!layout.split_configs.empty()) {
    extra += "SC";
    for (const SplitConfigProto& s : layout.split_configs) {
      extra += "(" + std::to_string(s.dimension) + ":";
      put_ints(s.split_indices, &extra);
      extra += ")";
    }
  }
  if (layout.dynamic_shape_metadata_prefix_bytes > 0) {
    extra += "M(" + std::to_string(layout.dynamic_shape_metadata_prefix_bytes) + ")";
  }
  if (shape.dimensions.empty() && extra.empty()) return {};
  std::string out = "{";
  put_ints(layout.minor_to_major, &out);
  if (!extra.empty()) out += ":" + extra;
  return out + "}";
}

std::string shape_text(const ShapeProto& shape, const TypeNames& types, bool layouts) {
  if (shape.element_type == kTuple) {
    std::string out = "(";
    for (const ShapeProto& element : shape.tuple_shapes) {
      if (out.size() > 1) out += ", ";
      out += shape_text(element, types, layouts);
    }
    return out + ")";
  }
  if (shape.element_type == kBuffer && shape.tuple_shapes.size() == 1) {
    return "b(" + shape_text(shape.tuple_shapes[0], types, layouts) + ")";
  }
  std::string out(types.name(shape.element_type));
  out.push_back('[');
  for (std::size_t d = 0; d < shape.dimensions.size(); ++d) {
    if (d != 0) out.push_back(',');
    const bool dynamic = d < shape.is_dynamic_dimension.size() && shape.is_dynamic_dimension[d] != 0;
    if (dynamic && shape.dimensions[d] <= 0) {
      out.push_back('?');
      continue;
    }
    if (dynamic) out += "<=";
    out += std::to_string(shape.dimensions[d]);
  }
  out.push_back(']');
  if (layouts && shape.element_type != kToken && shape.element_type != kOpaque) out += layout_text(shape, types);
  return out;
}

std::string sharding_text(const OpSharding& s) {
  if (s.named_sharding != nullptr) return named_sharding_text(*s.named_sharding);
  if (s.type == kTupleSharding) {
    std::string out = "{";
    for (std::size_t k = 0; k < s.tuple_shardings.size(); ++k) {
      if (k != 0) out += ", ";
      out += sharding_text(s.tuple_shardings[k]);
    }
    return out + "}";
  }
  std::string group;
  if (s.is_shard_group) {
    group = (s.shard_group_type == 0 ? " shard_as " : " shard_like ") + std::to_string(s.shard_group_id);
  }
  switch (s.type) {
    case kReplicated: return "{replicated" + group + "}";
    case kManual: return "{manual" + group + "}";
    case kUnknownSharding: return "{unknown" + group + "}";
    case kUnreduced: return "{unreduced" + group + "}";
    case kMaximal: {
      const std::int64_t device = s.tile_assignment_devices.empty() ? 0 : s.tile_assignment_devices[0];
      return "{maximal device=" + std::to_string(device) + group + "}";
    }
    default: break;
  }
  std::string out = "{devices=";
  if (!s.iota_reshape_dims.empty()) {
    out += iota_tiles(s.tile_assignment_dimensions, s.iota_reshape_dims, s.iota_transpose_perm);
  } else {
    out += bracketed(s.tile_assignment_dimensions);
    put_ints(s.tile_assignment_devices, &out);
  }
  if (s.replicate_on_last_tile_dim) out += " last_tile_dim_replicate";
  if (!s.last_tile_dims.empty()) {
    out += " last_tile_dims={";
    for (std::size_t k = 0; k < s.last_tile_dims.size(); ++k) {
      if (k != 0) out += ", ";
      switch (s.last_tile_dims[k]) {
        case kReplicated: out += "replicated"; break;
        case kMaximal: out += "maximal"; break;
        case kManual: out += "manual"; break;
        case kUnreduced: out += "unreduced"; break;
        default: out += "unknown"; break;
      }
    }
    out += "}";
  }
  return out + group + "}";
}

void instruction_attributes(const HloInstructionProto& instruction, bool predicate, const Names& names,
                            const TypeNames& types, AttributeList* out) {
  Printer(instruction, predicate, names, types, out).all();
}

void header_attributes(const HloModuleProto& module, const TypeNames& types, AttributeList* out) {
  const auto put = [&](std::string_view key, const std::string& value) {
    AttributeText text;
    text.key = key;
    text.begin = out->buffer.size();
    out->buffer += value;
    text.end = out->buffer.size();
    out->items.push_back(text);
  };
  if (module.schedule != nullptr) put("is_scheduled", "true");
  if (module.input_output_alias != nullptr && !module.input_output_alias->entries.empty()) {
    std::string text = "{ ";
    for (const AliasEntryProto& e : module.input_output_alias->entries) {
      if (text.size() > 2) text += ", ";
      text += braced(e.output_shape_index) + ": (" + std::to_string(e.parameter_number) + ", " +
              braced(e.parameter_shape_index);
      text += e.kind == 2 ? ", must-alias)" : e.kind == 1 ? ", may-alias)" : ")";
    }
    put("input_output_alias", text + " }");
  }
  if (module.buffer_donor != nullptr && !module.buffer_donor->entries.empty()) {
    std::string text = "{ ";
    for (const BufferDonorEntryProto& e : module.buffer_donor->entries) {
      if (text.size() > 2) text += ", ";
      text += "(" + std::to_string(e.parameter_number) + ", " + braced(e.parameter_shape_index) + ")";
    }
    put("buffer_donor", text + " }");
  }
  if (module.host_program_shape != nullptr && module.host_program_shape->result != nullptr) {
    std::string text = "{(";
    const std::vector<ShapeProto>& parameters = module.host_program_shape->parameters;
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      if (k != 0) text += ", ";
      text += shape_text(parameters[k], types, true);
    }
    text += ")->" + shape_text(*module.host_program_shape->result, types, true) + "}";
    put("entry_computation_layout", text);
  }
  if (const DeviceAssignmentProto* d = module.device_assignment.get()) {
    if (d->replica_count > 1) put("replica_count", std::to_string(d->replica_count));
    if (d->computation_count > 1) put("num_partitions", std::to_string(d->computation_count));
  }
  if (module.frontend_attributes != nullptr && !module.frontend_attributes->map.empty()) {
    put("frontend_attributes", frontend_attributes_text(*module.frontend_attributes));
  }
}

std::string stack_tables(const StackFrameIndexProto& index) {
  if (index.file_names.empty() && index.stack_frames.empty() && index.file_locations.empty()) return {};
  std::string out = "FileNames\n";
  const auto names = [&](const std::vector<std::string_view>& list) {
    for (std::size_t k = 0; k < list.size(); ++k) out += std::to_string(k + 1) + " " + quoted(list[k]) + "\n";
  };
  names(index.file_names);
  out += "\nFunctionNames\n";
  names(index.function_names);
  out += "\nFileLocations\n";
  for (std::size_t k = 0; k < index.file_locations.size(); ++k) {
    const FileLocation& f = index.file_locations[k];
    out += std::to_string(k + 1) + " {file_name_id=" + std::to_string(f.file_name_id) +
           " function_name_id=" + std::to_string(f.function_name_id) + " line=" + std::to_string(f.line) +
           " end_line=" + std::to_string(f.end_line) + " column=" + std::to_string(f.column) +
           " end_column=" + std::to_string(f.end_column) + "}\n";
  }
  out += "\nStackFrames\n";
  for (std::size_t k = 0; k < index.stack_frames.size(); ++k) {
    const StackFrame& f = index.stack_frames[k];
    // The text's parent numbers are one higher than the message's, whose 0 says "none".
    out += std::to_string(k + 1) + " {file_location_id=" + std::to_string(f.file_location_id) +
           " parent_frame_id=" + std::to_string(f.parent_frame_id + 1) + "}\n";
  }
  out.pop_back();
  return out;
}

}  // namespace automap::hlo::proto
