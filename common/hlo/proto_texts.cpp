#include "common/hlo/proto_texts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "common/graph/scan.h"
#include "common/hlo/proto_attributes.h"

namespace automap::hlo::proto {

namespace scan = graph::scan;

namespace {

// "1,0"
void put_ints(const Ints& values, std::string* out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out->push_back(',');
    *out += std::to_string(values[i]);
  }
}

std::string bracketed(const Ints& values) {
  std::string out = "[";
  put_ints(values, &out);
  return out + "]";
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

}  // namespace

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string braced(const Ints& values) {
  std::string out = "{";
  put_ints(values, &out);
  return out + "}";
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

std::string enum_text(const EnumValues& values, std::int64_t value) {
  const std::string_view name = values.name(value);
  return name.empty() ? "unknown_" + std::to_string(value) : std::string(name);
}

std::string axis_list(const std::vector<AxisRefProto>& axes, const MeshProto* mesh) {
  std::string out = "{";
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (i != 0) out += ", ";
    out += axis_ref(axes[i], mesh);
  }
  return out + "}";
}

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
      if (v->number != 0 && v->number != kTupleType) all[at] = lower(v->name);
    }
    all[kOpaqueType] = "opaque";
    return all;
  }();
  if (element_type == kTupleType) return {};
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
  if (shape.element_type == kTupleType) {
    std::string out = "(";
    for (const ShapeProto& element : shape.tuple_shapes) {
      if (out.size() > 1) out += ", ";
      out += shape_text(element, types, layouts);
    }
    return out + ")";
  }
  if (shape.element_type == kBufferType && shape.tuple_shapes.size() == 1) {
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
  if (layouts && shape.element_type != kTokenType && shape.element_type != kOpaqueType)
    out += layout_text(shape, types);
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
