#include "common/hlo/proto_attributes.h"

#include <algorithm>

#include "common/graph/opcode.h"
#include "common/hlo/proto_texts.h"

namespace automap::hlo::proto {

using namespace graph;

namespace {

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
  // Text cannot hold an attribute without a value (the padding of a scalar).
  void put(std::string_view key, std::string_view value) {
    if (value.empty()) return;
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

}  // namespace automap::hlo::proto
