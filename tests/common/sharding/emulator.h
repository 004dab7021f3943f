// A slow, obvious interpreter of single HLO instructions on small arrays, and of one instruction whose tensors are cut
// over devices by one factor of its rule: the twin that the rules are checked against. Numbers are doubles; use small
// integers and everything is exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/hlo_attributes.h"
#include "common/sharding/rule.h"

namespace automap::sharding::emulator {

using graph::Graph;
using graph::InstructionId;
using graph::Opcode;
using Dims = std::vector<std::int64_t>;

inline std::int64_t elements(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

struct Value {
  Dims dims;
  std::vector<double> data;  // row-major

  Value() = default;
  explicit Value(Dims all, double fill = 0)
      : dims(std::move(all)), data(static_cast<std::size_t>(elements(dims)), fill) {}
  double& at(const Dims& index) { return data[offset(index)]; }
  double at(const Dims& index) const { return data[offset(index)]; }
  bool operator==(const Value& other) const { return dims == other.dims && data == other.data; }

 private:
  std::size_t offset(const Dims& index) const {
    if (index.size() != dims.size()) throw std::logic_error("an index of another rank");
    std::int64_t at = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (index[i] < 0 || index[i] >= dims[i]) throw std::logic_error("an index out of range");
      at = at * dims[i] + index[i];
    }
    return static_cast<std::size_t>(at);
  }
};

// Every index of an array of these dimensions, row-major.
template <typename F>
void for_each(const Dims& dims, const F& f) {
  Dims index(dims.size(), 0);
  for (std::int64_t left = elements(dims); left > 0; --left) {
    f(static_cast<const Dims&>(index));
    for (std::size_t i = dims.size(); i-- > 0;) {
      if (++index[i] < dims[i]) break;
      index[i] = 0;
    }
  }
}

// One device's part: per slot, its beginning and the extents of the whole tensor.
struct Part {
  std::vector<Dims> begin, whole, local;
};

inline double scalar_operation(const Graph& graph, InstructionId id, const std::vector<double>& x) {
  switch (graph.instruction(id).opcode) {
    case Opcode::kNegate: return -x[0];
    case Opcode::kAbs: return std::fabs(x[0]);
    case Opcode::kConvert:
    case Opcode::kCopy: return x[0];
    case Opcode::kNot: return x[0] == 0 ? 1 : 0;
    case Opcode::kAdd: return x[0] + x[1];
    case Opcode::kSubtract: return x[0] - x[1];
    case Opcode::kMultiply: return x[0] * x[1];
    case Opcode::kMaximum: return std::max(x[0], x[1]);
    case Opcode::kMinimum: return std::min(x[0], x[1]);
    case Opcode::kAnd: return x[0] != 0 && x[1] != 0 ? 1 : 0;
    case Opcode::kOr: return x[0] != 0 || x[1] != 0 ? 1 : 0;
    case Opcode::kSelect: return x[0] != 0 ? x[1] : x[2];
    case Opcode::kClamp: return std::min(std::max(x[1], x[0]), x[2]);
    case Opcode::kCompare: {
      const std::string_view direction = *graph.attribute(id, "direction");
      if (direction == "LT") return x[0] < x[1] ? 1 : 0;
      if (direction == "GT") return x[0] > x[1] ? 1 : 0;
      if (direction == "EQ") return x[0] == x[1] ? 1 : 0;
      throw std::logic_error("no such comparison here");
    }
    default: throw std::logic_error("no such operation here: " + std::string(graph.instruction(id).opcode_name));
  }
}

// A computation on scalars: its result, or the elements of its tuple.
inline std::vector<double> apply(const Graph& graph, graph::ComputationId id, const std::vector<double>& arguments) {
  const graph::Computation& computation = graph.computation(id);
  std::vector<double> values(static_cast<std::size_t>(computation.count), 0);
  const auto value = [&](InstructionId at) -> double& {
    return values[static_cast<std::size_t>(at - computation.first)];
  };
  for (InstructionId at = computation.first; at < computation.first + computation.count; ++at) {
    const graph::Instruction& instruction = graph.instruction(at);
    if (instruction.opcode == Opcode::kParameter) {
      value(at) = arguments.at(static_cast<std::size_t>(instruction.number));
    } else if (instruction.opcode != Opcode::kTuple) {
      std::vector<double> x;
      for (const InstructionId operand : graph.operands(at)) x.push_back(value(operand));
      value(at) = scalar_operation(graph, at, x);
    }
  }
  std::vector<double> results;
  if (graph.instruction(computation.root).opcode == Opcode::kTuple) {
    for (const InstructionId operand : graph.operands(computation.root)) results.push_back(value(operand));
  } else {
    results.push_back(value(computation.root));
  }
  return results;
}

inline bool has(const Dims& dims, std::int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// Groups and blocks do not overlap devices.
inline std::int64_t divided(std::int64_t all, std::int64_t parts) {
  if (parts == 0 || all % parts != 0 || all < parts) throw std::logic_error("groups or blocks that do not fit");
  return all / parts;
}

inline Value convolution(const Graph& graph, InstructionId id, const Value& in, const Value& kernel,
                         const Dims& local) {
  const auto d = graph::convolution_dimensions(graph, id);
  const auto window = graph::window_attribute(graph, id);
  const auto extent = [](const Value& v, std::int64_t dim) { return v.dims[static_cast<std::size_t>(dim)]; };
  Value out(local);
  const std::int64_t features_in = extent(kernel, d.kernel_input_feature);
  // The number of groups follows from the parts on this device.
  const std::int64_t feature_groups = divided(extent(in, d.input_feature), features_in);
  const std::int64_t batch_groups = divided(extent(in, d.input_batch), extent(out, d.output_batch));
  Dims kernel_window;
  for (const std::int64_t dim : d.kernel_spatial) kernel_window.push_back(extent(kernel, dim));
  for_each(local, [&](const Dims& at) {
    const std::int64_t batch = at[static_cast<std::size_t>(d.output_batch)];
    const std::int64_t feature = at[static_cast<std::size_t>(d.output_feature)];
    const std::int64_t features_out = extent(out, d.output_feature);
    const std::int64_t feature_group = feature / divided(features_out, feature_groups);
    const std::int64_t batch_group = feature / divided(features_out, batch_groups);
    double sum = 0;
    for_each(kernel_window, [&](const Dims& k) {
      Dims x(in.dims.size()), w(kernel.dims.size());
      for (std::size_t s = 0; s < k.size(); ++s) {
        const auto& win = window[s];
        const std::int64_t place =
            at[static_cast<std::size_t>(d.output_spatial[s])] * win.stride + k[s] * win.window_dilation - win.pad_low;
        if (place < 0 || place % win.base_dilation != 0) return;
        x[static_cast<std::size_t>(d.input_spatial[s])] = place / win.base_dilation;
        if (place / win.base_dilation >= extent(in, d.input_spatial[s])) return;
        w[static_cast<std::size_t>(d.kernel_spatial[s])] = win.reversed ? kernel_window[s] - 1 - k[s] : k[s];
      }
      for (std::int64_t i = 0; i < features_in; ++i) {
        x[static_cast<std::size_t>(d.input_batch)] = batch_group * extent(out, d.output_batch) + batch;
        x[static_cast<std::size_t>(d.input_feature)] = feature_group * features_in + i;
        w[static_cast<std::size_t>(d.kernel_input_feature)] = i;
        w[static_cast<std::size_t>(d.kernel_output_feature)] = feature;
        sum += in.at(x) * kernel.at(w);
      }
    });
    out.at(at) = sum;
  });
  return out;
}

// Sum over the contracted dimensions; `use` says per pair of places which of them count (ragged, scaled).
inline Value dot(const Graph& graph, InstructionId id, const Value& lhs, const Value& rhs, const Dims& local,
                 std::size_t first_out, const Dims& skipped_rhs,
                 const std::function<double(const Dims& out, const Dims& l, Dims* r)>& weight) {
  const auto d = graph::dot_dimensions(graph, id);
  Value out(local);
  Dims contracted;
  for (const std::int64_t dim : d.lhs_contracting) contracted.push_back(lhs.dims[static_cast<std::size_t>(dim)]);
  for_each(local, [&](const Dims& at) {
    Dims l(lhs.dims.size(), 0), r(rhs.dims.size(), 0);
    std::size_t o = first_out;
    for (std::size_t i = 0; i < d.lhs_batch.size(); ++i) {
      l[static_cast<std::size_t>(d.lhs_batch[i])] = r[static_cast<std::size_t>(d.rhs_batch[i])] = at[o++];
    }
    for (std::size_t i = 0; i < l.size(); ++i) {
      const auto dim = static_cast<std::int64_t>(i);
      if (!has(d.lhs_batch, dim) && !has(d.lhs_contracting, dim)) l[i] = at[o++];
    }
    for (std::size_t i = 0; i < r.size(); ++i) {
      const auto dim = static_cast<std::int64_t>(i);
      if (!has(d.rhs_batch, dim) && !has(d.rhs_contracting, dim) && !has(skipped_rhs, dim)) r[i] = at[o++];
    }
    for_each(contracted, [&](const Dims& k) {
      for (std::size_t i = 0; i < k.size(); ++i) {
        l[static_cast<std::size_t>(d.lhs_contracting[i])] = r[static_cast<std::size_t>(d.rhs_contracting[i])] = k[i];
      }
      const double factor = weight ? weight(at, l, &r) : 1;
      if (factor != 0) out.at(at) += factor * lhs.at(l) * rhs.at(r);
    });
  });
  return out;
}

inline Value gather(const Graph& graph, InstructionId id, const Value& operand, const Value& indices,
                    const Part& part) {
  const auto d = graph::gather_dimensions(graph, id);
  Value out(part.local[2]);
  for_each(out.dims, [&](const Dims& at) {
    Dims place(indices.dims.size(), 0), windowed;
    std::size_t next = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (has(d.offset_dims, static_cast<std::int64_t>(i))) {
        windowed.push_back(at[i]);
        continue;
      }
      if (static_cast<std::int64_t>(next) == d.index_vector_dim) ++next;
      place[next++] = at[i];
    }
    Dims from(operand.dims.size(), 0);
    std::size_t window = 0;
    bool here = true;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto dim = static_cast<std::int64_t>(i);
      const auto batching = std::find(d.operand_batching_dims.begin(), d.operand_batching_dims.end(), dim);
      if (batching != d.operand_batching_dims.end()) {
        from[i] = place[static_cast<std::size_t>(
            d.start_indices_batching_dims[static_cast<std::size_t>(batching - d.operand_batching_dims.begin())])];
        continue;
      }
      const std::int64_t whole = part.whole[0][i], size = d.slice_sizes[i];
      std::int64_t start = 0;
      const auto mapped = std::find(d.start_index_map.begin(), d.start_index_map.end(), dim);
      if (mapped != d.start_index_map.end()) {
        Dims vector = place;
        if (d.index_vector_dim < static_cast<std::int64_t>(vector.size())) {
          vector[static_cast<std::size_t>(d.index_vector_dim)] = mapped - d.start_index_map.begin();
        }
        start = std::clamp<std::int64_t>(static_cast<std::int64_t>(indices.at(vector)), 0, whole - size);
      }
      const std::int64_t in_window = has(d.collapsed_slice_dims, dim) ? 0 : windowed[window++];
      from[i] = size == whole ? in_window : start - part.begin[0][i] + in_window;
      // A device that does not have it reads 0.
      if (from[i] < 0 || from[i] >= operand.dims[i]) here = false;
    }
    out.at(at) = here ? operand.at(from) : 0;
  });
  return out;
}

inline std::vector<Value> scatter(const Graph& graph, InstructionId id, const std::vector<Value>& operands,
                                  const Part& part) {
  const auto d = graph::scatter_dimensions(graph, id);
  const std::size_t n = operands.size() / 2;
  std::vector<Value> out(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(n));
  const Value& indices = operands[n];
  for_each(operands[n + 1].dims, [&](const Dims& at) {
    Dims place(indices.dims.size(), 0), windowed, sizes;
    std::size_t next = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (has(d.update_window_dims, static_cast<std::int64_t>(i))) {
        windowed.push_back(at[i]);
        sizes.push_back(part.whole[n + 1][i]);
        continue;
      }
      if (static_cast<std::int64_t>(next) == d.index_vector_dim) ++next;
      place[next++] = at[i];
    }
    Dims to(out[0].dims.size(), 0);
    std::size_t window = 0;
    for (std::size_t i = 0; i < to.size(); ++i) {
      const auto dim = static_cast<std::int64_t>(i);
      const auto batching = std::find(d.input_batching_dims.begin(), d.input_batching_dims.end(), dim);
      if (batching != d.input_batching_dims.end()) {
        to[i] = place[static_cast<std::size_t>(
            d.scatter_indices_batching_dims[static_cast<std::size_t>(batching - d.input_batching_dims.begin())])];
        continue;
      }
      std::int64_t start = 0;
      const auto mapped = std::find(d.scatter_dims_to_operand_dims.begin(), d.scatter_dims_to_operand_dims.end(), dim);
      if (mapped != d.scatter_dims_to_operand_dims.end()) {
        Dims vector = place;
        if (d.index_vector_dim < static_cast<std::int64_t>(vector.size())) {
          vector[static_cast<std::size_t>(d.index_vector_dim)] = mapped - d.scatter_dims_to_operand_dims.begin();
        }
        start = static_cast<std::int64_t>(indices.at(vector));
      }
      const bool inserted = has(d.inserted_window_dims, dim);
      const std::int64_t size = inserted ? 1 : sizes[window];
      const std::int64_t in_window = inserted ? 0 : windowed[window++];
      if (start < 0 || start + size > part.whole[0][i]) return;  // updates that do not fit are dropped
      to[i] = size == part.whole[0][i] ? in_window : start - part.begin[0][i] + in_window;
      if (to[i] < 0 || to[i] >= out[0].dims[i]) return;  // another device's
    }
    std::vector<double> arguments;
    for (std::size_t i = 0; i < n; ++i) arguments.push_back(out[i].at(to));
    for (std::size_t i = 0; i < n; ++i) arguments.push_back(operands[n + 1 + i].at(at));
    const std::vector<double> results = apply(graph, graph.called(id)[0], arguments);
    for (std::size_t i = 0; i < n; ++i) out[i].at(to) = results[i];
  });
  return out;
}

// The results of one instruction on one device's parts. The attributes are the whole instruction's; sizes that change
// with a splitting come from `part`.
inline std::vector<Value> run(const Graph& graph, InstructionId id, const std::vector<Value>& operands,
                              const Part& part) {
  const graph::Instruction& instruction = graph.instruction(id);
  const std::size_t first_result = operands.size();
  const Dims& local = part.local[first_result];
  const auto make = [&](const std::function<double(const Dims&)>& f) {
    Value out(local);
    for_each(local, [&](const Dims& at) { out.at(at) = f(at); });
    return std::vector<Value>{std::move(out)};
  };
  const auto list = [&](const char* key) { return graph::int_list_attribute(graph, id, key); };
  switch (instruction.opcode) {
    case Opcode::kConstant: return make([&](const Dims&) { return std::stod(std::string(instruction.payload)); });
    case Opcode::kIota: {
      const auto dim = static_cast<std::size_t>(graph::int_attribute(graph, id, "iota_dimension", 0));
      return make([&](const Dims& at) { return static_cast<double>(at[dim] + part.begin[first_result][dim]); });
    }
    case Opcode::kBroadcast:
      return make([&](const Dims& at) {
        Dims from;
        for (const std::int64_t dim : list("dimensions")) from.push_back(at[static_cast<std::size_t>(dim)]);
        return operands[0].at(from);
      });
    case Opcode::kReshape: {
      Value out = operands[0];
      out.dims = local;
      if (elements(local) != static_cast<std::int64_t>(out.data.size()))
        throw std::logic_error("a reshape of another size");
      return {out};
    }
    case Opcode::kTranspose:
      return make([&](const Dims& at) {
        const Dims permutation = list("dimensions");
        Dims from(at.size());
        for (std::size_t i = 0; i < at.size(); ++i) from[static_cast<std::size_t>(permutation[i])] = at[i];
        return operands[0].at(from);
      });
    case Opcode::kSlice: {
      const auto slices = graph::decode_slice(*graph.attribute(id, "slice"), {});
      return make([&](const Dims& at) {
        Dims from(at.size());
        for (std::size_t i = 0; i < at.size(); ++i) from[i] = slices[i].start + at[i] * slices[i].stride;
        return operands[0].at(from);
      });
    }
    case Opcode::kPad: {
      const auto padding = graph::decode_padding(*graph.attribute(id, "padding"), {});
      return make([&](const Dims& at) {
        Dims from(at.size());
        for (std::size_t i = 0; i < at.size(); ++i) {
          const std::int64_t place = at[i] - padding[i].low;
          if (place < 0 || place % (padding[i].interior + 1) != 0) return operands[1].data[0];
          from[i] = place / (padding[i].interior + 1);
          if (from[i] >= operands[0].dims[i]) return operands[1].data[0];
        }
        return operands[0].at(from);
      });
    }
    case Opcode::kConcatenate: {
      const auto dim = static_cast<std::size_t>(list("dimensions")[0]);
      return make([&](const Dims& at) {
        Dims from = at;
        for (const Value& operand : operands) {
          if (from[dim] < operand.dims[dim]) return operand.at(from);
          from[dim] -= operand.dims[dim];
        }
        throw std::logic_error("beyond the concatenated operands");
      });
    }
    case Opcode::kReverse:
      return make([&](const Dims& at) {
        Dims from = at;
        for (const std::int64_t dim : list("dimensions")) {
          const auto i = static_cast<std::size_t>(dim);
          from[i] = local[i] - 1 - at[i];
        }
        return operands[0].at(from);
      });
    case Opcode::kDot: return {dot(graph, id, operands[0], operands[1], local, 0, {}, nullptr)};
    case Opcode::kRaggedDot: {
      const auto d = graph::dot_dimensions(graph, id);
      const std::int64_t ragged = list("lhs_ragged_dims")[0];
      const Dims groups = list("rhs_group_dims");
      const bool contracting = has(d.lhs_contracting, ragged);
      // The group that a place along the ragged dimension is in; -1 behind the last.
      const auto group_of = [&](std::int64_t place) {
        for (std::int64_t g = 0; g < operands[2].dims[0]; ++g) {
          place -= static_cast<std::int64_t>(operands[2].at({g}));
          if (place < 0) return g;
        }
        return std::int64_t{-1};
      };
      return {dot(graph, id, operands[0], operands[1], local, contracting ? 1 : 0, groups,
                  [&](const Dims& at, const Dims& l, Dims* r) {
                    const std::int64_t group = group_of(l[static_cast<std::size_t>(ragged)]);
                    if (group < 0) return 0.0;
                    if (contracting) return group == at[0] ? 1.0 : 0.0;
                    if (!groups.empty()) (*r)[static_cast<std::size_t>(groups[0])] = group;
                    return 1.0;
                  })};
    }
    case Opcode::kScaledDot:
      return {dot(graph, id, operands[0], operands[1], local, 0, {}, [&](const Dims&, const Dims& l, Dims* r) {
        double weight = 1;
        for (std::size_t side = 0; side < 2; ++side) {
          const Value& scale = operands[side + 2];
          Dims at = side == 0 ? l : *r;
          if (scale.dims.empty()) at.clear();
          for (std::size_t i = 0; i < at.size(); ++i) at[i] /= divided(operands[side].dims[i], scale.dims[i]);
          weight *= scale.at(at);
        }
        return weight;
      })};
    case Opcode::kConvolution: return {convolution(graph, id, operands[0], operands[1], local)};
    case Opcode::kReduce: {
      const std::size_t n = operands.size() / 2;
      const Dims reduced = list("dimensions");
      std::vector<Value> out;
      for (std::size_t i = 0; i < n; ++i) out.emplace_back(part.local[first_result + i], operands[n + i].data[0]);
      for_each(operands[0].dims, [&](const Dims& at) {
        Dims to;
        for (std::size_t i = 0; i < at.size(); ++i) {
          if (!has(reduced, static_cast<std::int64_t>(i))) to.push_back(at[i]);
        }
        std::vector<double> arguments;
        for (std::size_t i = 0; i < n; ++i) arguments.push_back(out[i].at(to));
        for (std::size_t i = 0; i < n; ++i) arguments.push_back(operands[i].at(at));
        const std::vector<double> results = apply(graph, graph.called(id)[0], arguments);
        for (std::size_t i = 0; i < n; ++i) out[i].at(to) = results[i];
      });
      return out;
    }
    case Opcode::kReduceWindow: {
      const auto window = graph::window_attribute(graph, id);
      Dims sizes;
      for (const auto& w : window) sizes.push_back(w.size);
      return make([&](const Dims& at) {
        double value = operands[1].data[0];
        for_each(sizes, [&](const Dims& k) {
          Dims from(at.size());
          for (std::size_t i = 0; i < at.size(); ++i) {
            const std::int64_t place = at[i] * window[i].stride + k[i] * window[i].window_dilation - window[i].pad_low;
            if (place < 0 || place % window[i].base_dilation != 0) return;
            from[i] = place / window[i].base_dilation;
            if (from[i] >= operands[0].dims[i]) return;
          }
          value = apply(graph, graph.called(id)[0], {value, operands[0].at(from)})[0];
        });
        return value;
      });
    }
    case Opcode::kSelectAndScatter: {
      const auto window = graph::window_attribute(graph, id);
      Dims sizes;
      for (const auto& w : window) sizes.push_back(w.size);
      Value out(local, operands[2].data[0]);
      for_each(operands[1].dims, [&](const Dims& at) {
        std::optional<Dims> selected;
        for_each(sizes, [&](const Dims& k) {
          Dims from(at.size());
          for (std::size_t i = 0; i < at.size(); ++i) {
            from[i] = at[i] * window[i].stride + k[i] - window[i].pad_low;
            if (from[i] < 0 || from[i] >= operands[0].dims[i]) return;
          }
          if (!selected ||
              apply(graph, graph.called(id)[0], {operands[0].at(*selected), operands[0].at(from)})[0] == 0) {
            selected = from;
          }
        });
        if (!selected) return;
        out.at(*selected) = apply(graph, graph.called(id)[1], {out.at(*selected), operands[1].at(at)})[0];
      });
      return {out};
    }
    case Opcode::kSort:
    case Opcode::kCustomCall: {  // TopK
      const bool sort = instruction.opcode == Opcode::kSort;
      const std::size_t dim = sort ? static_cast<std::size_t>(list("dimensions")[0]) : operands[0].dims.size() - 1;
      std::vector<Value> out;
      for (std::size_t i = first_result; i < part.local.size(); ++i) out.emplace_back(part.local[i]);
      Dims lines = operands[0].dims;
      lines[dim] = 1;
      for_each(lines, [&](const Dims& line) {
        std::vector<std::int64_t> order(static_cast<std::size_t>(operands[0].dims[dim]));
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
        const auto value = [&](std::size_t operand, std::int64_t i) {
          Dims at = line;
          at[dim] = i;
          return operands[operand].at(at);
        };
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
          if (!sort) return value(0, a) > value(0, b);
          std::vector<double> arguments;
          for (std::size_t i = 0; i < operands.size(); ++i) {
            arguments.push_back(value(i, a));
            arguments.push_back(value(i, b));
          }
          return apply(graph, graph.called(id)[0], arguments)[0] != 0;
        });
        for (std::size_t o = 0; o < out.size(); ++o) {
          for (std::int64_t i = 0; i < out[o].dims[dim]; ++i) {
            Dims at = line;
            at[dim] = i;
            const std::int64_t from = order[static_cast<std::size_t>(i)];
            out[o].at(at) = sort ? value(o, from) : o == 0 ? value(0, from) : static_cast<double>(from);
          }
        }
      });
      return out;
    }
    case Opcode::kGather: return {gather(graph, id, operands[0], operands[1], part)};
    case Opcode::kScatter: return scatter(graph, id, operands, part);
    case Opcode::kDynamicSlice:
    case Opcode::kDynamicUpdateSlice: {
      const bool update = instruction.opcode == Opcode::kDynamicUpdateSlice;
      const Dims& window = update ? operands[1].dims : local;
      Dims start(window.size());
      for (std::size_t i = 0; i < start.size(); ++i) {
        const std::size_t first = update ? 2 : 1;
        const double place = operands[first].dims.empty() ? operands[first + i].data[0] : operands[first].data[i];
        start[i] = std::clamp<std::int64_t>(static_cast<std::int64_t>(place), 0, operands[0].dims[i] - window[i]);
      }
      Value out(local);
      if (update) out = operands[0];
      for_each(window, [&](const Dims& at) {
        Dims there = at;
        for (std::size_t i = 0; i < at.size(); ++i) there[i] += start[i];
        if (update) {
          out.at(there) = operands[1].at(at);
        } else {
          out.at(at) = operands[0].at(there);
        }
      });
      return {out};
    }
    default:
      return make([&](const Dims& at) {
        std::vector<double> x;
        for (const Value& operand : operands) x.push_back(operand.dims.empty() ? operand.data[0] : operand.at(at));
        return scalar_operation(graph, id, x);
      });
  }
}

inline std::vector<Dims> slot_dims(const Graph& graph, InstructionId id) {
  std::vector<Dims> all;
  for (const graph::Shape* shape : slots_of(graph, id)) all.push_back(shape->dims);
  return all;
}

inline Part whole_part(const Graph& graph, InstructionId id) {
  Part part;
  part.whole = part.local = slot_dims(graph, id);
  for (const Dims& dims : part.whole) part.begin.emplace_back(dims.size(), 0);
  return part;
}

inline double identity(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMultiply:
    case Reduction::kAnd: return 1;
    case Reduction::kMinimum: return std::numeric_limits<double>::infinity();
    case Reduction::kMaximum: return -std::numeric_limits<double>::infinity();
    default: return 0;
  }
}

inline double combine(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::kAdd: return a + b;
    case Reduction::kMultiply: return a * b;
    case Reduction::kMinimum: return std::min(a, b);
    case Reduction::kMaximum: return std::max(a, b);
    case Reduction::kAnd: return a != 0 && b != 0 ? 1 : 0;
    case Reduction::kOr: return a != 0 || b != 0 ? 1 : 0;
    case Reduction::kNone: break;
  }
  throw std::logic_error("no reduction");
}

// Runs the instruction on `devices` devices with the parts that the factor prescribes, and puts the results together.
// Returns "" when that is the whole result, else the difference.
inline std::string check_factor(const Graph& graph, InstructionId id, const std::vector<Value>& operands,
                                const std::vector<Value>& expected, const Factor& factor, int devices) {
  const Part whole = whole_part(graph, id);
  const std::size_t first_result = operands.size();
  std::vector<Value> joined;
  for (std::size_t i = first_result; i < whole.whole.size(); ++i) joined.emplace_back(whole.whole[i]);
  for (int device = 0; device < devices; ++device) {
    Part part = whole;
    for (const SlotDim at : factor.dims) {
      const auto slot = static_cast<std::size_t>(at.slot), dim = static_cast<std::size_t>(at.dim);
      if (whole.whole[slot][dim] % devices != 0) return "a member is not divisible";
      part.local[slot][dim] /= devices;
      part.begin[slot][dim] = part.local[slot][dim] * device;
    }
    std::vector<Value> mine;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      Value value(part.local[i]);
      for_each(value.dims, [&](const Dims& at) {
        Dims from = at;
        for (std::size_t k = 0; k < from.size(); ++k) from[k] += part.begin[i][k];
        value.at(at) = operands[i].at(from);
      });
      mine.push_back(std::move(value));
    }
    // The array that is scattered into counts once. A reduction starts on every device, as XLA's partitioner has it.
    if (factor.reduction != Reduction::kNone && device > 0 && graph.instruction(id).opcode == Opcode::kScatter) {
      for (std::size_t i = 0; i < operands.size() / 2; ++i) {
        std::fill(mine[i].data.begin(), mine[i].data.end(), identity(factor.reduction));
      }
    }
    std::vector<Value> results;
    try {
      results = run(graph, id, mine, part);
    } catch (const std::exception& e) {
      return "device " + std::to_string(device) + ": " + e.what();
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      const std::size_t slot = first_result + r;
      const bool partial = std::find(factor.partial.begin(), factor.partial.end(), static_cast<std::int32_t>(slot)) !=
                           factor.partial.end();
      const bool cut = part.local[slot] != whole.local[slot];
      if (partial && cut) return "a result that is cut and partial";
      if (results[r].dims != part.local[slot]) return "a result of another shape";
      std::string wrong;
      for_each(results[r].dims, [&](const Dims& at) {
        Dims to = at;
        for (std::size_t k = 0; k < to.size(); ++k) to[k] += part.begin[slot][k];
        double& value = joined[r].at(to);
        if (partial && device > 0) {
          value = combine(factor.reduction, value, results[r].at(at));
        } else {
          if (!partial && !cut && device > 0 && value != results[r].at(at))
            wrong = "devices disagree on a whole result";
          value = results[r].at(at);
        }
      });
      if (!wrong.empty()) return wrong;
    }
  }
  for (std::size_t r = 0; r < joined.size(); ++r) {
    if (!(joined[r] == expected[r])) return "result " + std::to_string(r) + " is another one";
  }
  return "";
}

}  // namespace automap::sharding::emulator
