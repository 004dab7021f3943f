#include "common/graph/hlo_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "common/base/check.h"
#include "common/graph/attention_calls.h"
#include "common/graph/dependence.h"
#include "common/graph/trip_count.h"

namespace automap::graph {
namespace {

constexpr double kPointerBytes = 8;
constexpr double kLargestCost = 1e100;

double ceil_log2(double n) {
  return n <= 1 ? 0 : std::ceil(std::log2(n));
}
double floor_log2(double n) {
  return n <= 1 ? 0 : std::floor(std::log2(n));
}

double elements(const Shape& shape) {
  return static_cast<double>(shape.num_elements);
}

// Solves (a x) mod m == b for the smallest x >= 0, a and m coprime.
std::int64_t solve_congruence(std::int64_t a, std::int64_t b, std::int64_t m) {
  // Extended Euclid on (a mod m, m).
  std::int64_t old_r = a % m, r = m, old_s = 1, s = 0;
  while (r != 0) {
    const std::int64_t q = old_r / r;
    std::swap(old_r, r);
    r -= q * old_r;
    std::swap(old_s, s);
    s -= q * old_s;
  }
  const std::int64_t inverse = ((old_s % m) + m) % m;
  // b < m <= 2^31 (see count_hits), so the product fits.
  return static_cast<std::int64_t>((static_cast<unsigned long long>(inverse) * static_cast<unsigned long long>(b)) %
                                   static_cast<unsigned long long>(m));
}

// The number of i in [0, count) for which first + i * step is a multiple of `dilation` inside [0, limit * dilation).
double count_hits(double first, std::int64_t step, std::int64_t count, std::int64_t dilation, double limit) {
  // Range of i by position alone; then every `period`-th i that hits a multiple of the dilation.
  const double last_position = (limit - 1) * static_cast<double>(dilation);
  if (limit < 1 || count < 1) return 0;
  const double stride = static_cast<double>(step);
  const double low = std::max(0.0, std::ceil(-first / stride));
  const double high = std::min(static_cast<double>(count - 1), std::floor((last_position - first) / stride));
  if (low > high) return 0;
  const std::int64_t divisor = std::gcd(step, dilation);
  const std::int64_t period = dilation / divisor;
  if (period == 1 && dilation == 1) return high - low + 1;
  if (period > (std::int64_t{1} << 31)) return 0;  // a hole between all positions of any real array
  double residue = std::fmod(-first, static_cast<double>(dilation));
  if (residue < 0) residue += static_cast<double>(dilation);
  const auto target = static_cast<std::int64_t>(residue);
  if (target % divisor != 0) return 0;
  const auto x = static_cast<double>(
      solve_congruence((step / divisor) % period, (target / divisor) % period, period));  // i == x (mod period)
  const double p = static_cast<double>(period);
  const auto up_to = [&](double i) { return i < x ? 0 : std::floor((i - x) / p) + 1; };
  return up_to(high) - up_to(low - 1);
}

class CostAnalysis {
 public:
  CostAnalysis(const Graph& graph, WhileCounting counting) : graph_(graph), counting_(counting) {
    if (counting == WhileCounting::kTripCount) trip_counts_ = trip_counts(graph);
  }

  ModuleCost run() {
    result_.instructions.resize(static_cast<std::size_t>(graph_.num_instructions()));
    result_.computations.resize(static_cast<std::size_t>(graph_.num_computations()));
    for (ComputationId c = 0; c < graph_.num_computations(); ++c) {
      const Computation& computation = graph_.computation(c);
      Cost& sum = result_.computations[static_cast<std::size_t>(c)];
      for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
        const Cost cost = cost_of(id);
        result_.instructions[static_cast<std::size_t>(id)] = cost;
        sum += cost;
      }
      // Calls of calls multiply without limit; figures beyond any machine stay numbers.
      for (double* figure : {&sum.flops, &sum.transcendentals, &sum.bytes}) *figure = std::min(*figure, kLargestCost);
    }
    if (graph_.entry_id() != kNone) result_.total = result_.computations[static_cast<std::size_t>(graph_.entry_id())];
    return std::move(result_);
  }

 private:
  // XLA's size of an array: sub-byte elements take a byte each unless the layout packs them (E(n)), and a dynamic array
  // stores its sizes in front.
  double array_bytes(const Shape& shape, std::string_view layout) const {
    if (shape.type == ElementType::kOpaque) return kPointerBytes;
    if (!shape.is_array()) return 0;
    double bytes = static_cast<double>(shape.bytes);
    if (shape.bits > 0 && shape.bits < 8 && layout.find("E(") == std::string_view::npos) bytes = elements(shape);
    if (shape.dynamic) bytes += 4.0 * static_cast<double>(shape.dims.size());
    return bytes;
  }
  double leaf_bytes(const Shape& shape, std::string_view layout) const {
    if (!shape.is_tuple()) return array_bytes(shape, layout);
    double sum = 0;
    for_each_leaf(shape, [&](const Shape& leaf) { sum += array_bytes(leaf, {}); });
    return sum;
  }
  double leaf_elements(const Shape& shape) const {
    double sum = 0;
    for_each_leaf(shape, [&](const Shape& leaf) { sum += elements(leaf); });
    return sum;
  }
  // Tuples nest, so an explicit stack instead of recursion.
  template <typename Visit>
  void for_each_leaf(const Shape& shape, Visit visit) const {
    std::vector<const Shape*> open = {&shape};
    while (!open.empty()) {
      const Shape* top = open.back();
      open.pop_back();
      if (!top->is_tuple()) {
        visit(*top);
        continue;
      }
      for (auto element = top->elements.rbegin(); element != top->elements.rend(); ++element) {
        open.push_back(&graph_.shape(*element));
      }
    }
  }

  const Shape& shape_of(InstructionId id) const { return graph_.shape_of(id); }
  double output_bytes(InstructionId id) const { return leaf_bytes(shape_of(id), graph_.instruction(id).layout); }
  // A tuple operand is read as its table of pointers.
  double operand_bytes(InstructionId id) const {
    const Shape& shape = shape_of(id);
    if (shape.is_tuple()) return kPointerBytes * static_cast<double>(shape.elements.size());
    return array_bytes(shape, graph_.instruction(id).layout);
  }
  double all_bytes(InstructionId id) const {
    double bytes = output_bytes(id);
    for (InstructionId operand : graph_.operands(id)) bytes += operand_bytes(operand);
    return bytes;
  }
  // 0 for an operand that a malformed instruction of an accepted module does not have.
  double operand_bytes_at(InstructionId id, std::size_t i) const {
    const auto operands = graph_.operands(id);
    return i < operands.size() ? operand_bytes(operands[i]) : 0;
  }
  double operand_elements_at(InstructionId id, std::size_t i) const {
    const auto operands = graph_.operands(id);
    return i < operands.size() ? elements(shape_of(operands[i])) : 0;
  }
  // The first array of the result (reductions of several arrays at once give a tuple).
  const Shape& first_result(InstructionId id) const {
    const Shape* shape = &shape_of(id);
    while (shape->is_tuple() && !shape->elements.empty()) shape = &graph_.shape(shape->elements[0]);
    return *shape;
  }

  Cost called_cost(InstructionId id, std::size_t i) const {
    const auto called = graph_.called(id);
    if (i >= called.size()) return {};
    AM_CHECK(called[i] < graph_.instruction(id).computation);  // the builder sorts computations callees first
    return result_.computations[static_cast<std::size_t>(called[i])];
  }

  // Adds `times` applications of a function; memory is counted by the caller.
  static void apply(Cost& cost, const Cost& function, double times) {
    cost.flops += function.flops * std::max(0.0, times);
    cost.transcendentals += function.transcendentals * std::max(0.0, times);
  }

  Cost scatter_cost(InstructionId id) const {
    Cost cost;
    // Operands: n arrays, the indices, n updates.
    const std::size_t n = graph_.operands(id).size() / 2;
    for (std::size_t i = 0; i < n; ++i) cost.bytes += 3 * operand_bytes_at(id, n + 1 + i);
    cost.bytes += operand_bytes_at(id, n);
    apply(cost, called_cost(id, 0), operand_elements_at(id, n + 1));
    return cost;
  }

  Cost ragged_dot_cost(InstructionId id) const {
    Cost cost;
    // Every row is multiplied with the weights of its group alone: as many as of one dense product. (XLA's own count
    // drops as many leading dimensions of the result as there are group dimensions.)
    cost.flops = dot_flops(graph_, id);
    // Rows that are summed over, each into its own group's result.
    const std::vector<std::int64_t> ragged = int_list_attribute(graph_, id, "lhs_ragged_dims");
    const std::vector<std::int64_t> summed = int_list_attribute(graph_, id, "lhs_contracting_dims");
    const Shape& sizes = graph_.shape_of(graph_.operands(id)[2]);
    const bool by_group = !ragged.empty() && std::find(summed.begin(), summed.end(), ragged[0]) != summed.end();
    if (by_group && !sizes.dims.empty() && sizes.dims.back() > 0) {
      cost.flops /= static_cast<double>(sizes.dims.back());
    }
    cost.bytes = all_bytes(id);
    return cost;
  }

  Cost select_and_scatter_cost(InstructionId id) const {
    Cost cost;
    cost.bytes = all_bytes(id);
    double window = 1;
    for (const WindowDimension& dimension : window_attribute(graph_, id)) {
      window *= static_cast<double>(dimension.size);
    }
    apply(cost, called_cost(id, 0), operand_elements_at(id, 1) * (window - 1));
    apply(cost, called_cost(id, 1), operand_elements_at(id, 1));
    return cost;
  }

  Cost fft_cost(InstructionId id) const {
    Cost cost;
    cost.bytes = all_bytes(id);
    double factors = 1;
    for (std::int64_t length : int_list_attribute(graph_, id, "fft_length")) {
      factors *= floor_log2(static_cast<double>(length));
    }
    cost.flops = 8 * factors * operand_elements_at(id, 0);  // 4 multiply-adds per complex product
    return cost;
  }

  Cost while_cost(InstructionId id) const {
    Cost cost = called_cost(id, 0);
    cost += called_cost(id, 1);
    if (counting_ == WhileCounting::kTripCount) {
      const auto trips = static_cast<double>(trip_counts_[static_cast<std::size_t>(id)].value_or(1));
      cost.flops *= trips;
      cost.transcendentals *= trips;
      cost.bytes *= trips;
    }
    return cost;
  }

  Cost conditional_cost(InstructionId id) const {
    Cost cost;
    for (std::size_t i = 0; i < graph_.called(id).size(); ++i) {
      const Cost branch = called_cost(id, i);
      cost.flops = std::max(cost.flops, branch.flops);
      cost.transcendentals = std::max(cost.transcendentals, branch.transcendentals);
      cost.bytes = std::max(cost.bytes, branch.bytes);
    }
    return cost;
  }

  Cost cost_of(InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    Cost cost;
    if (graph_.is_faulty(id)) {  // its shapes may say anything: only what it reads and writes is counted
      cost.bytes = all_bytes(id);
      return cost;
    }
    const Shape& shape = shape_of(id);
    if (is_elementwise(instruction.opcode)) {
      (is_transcendental(instruction.opcode) ? cost.transcendentals : cost.flops) = elements(shape);
      cost.bytes = all_bytes(id);
      return cost;
    }
    if (has_trait(instruction.opcode, trait::kNoCost)) return cost;
    switch (instruction.opcode) {
      case Opcode::kTuple: cost.bytes = operand_bytes(id); return cost;
      case Opcode::kInfeed: cost.bytes = leaf_bytes(shape, instruction.layout); return cost;
      case Opcode::kOutfeed:
        for (InstructionId operand : graph_.operands(id)) {
          cost.bytes += leaf_bytes(shape_of(operand), graph_.instruction(operand).layout);
        }
        return cost;
      case Opcode::kCustomCall: return custom_call_cost(id);
      case Opcode::kScan: return scan_cost(id);
      case Opcode::kTranspose:
        if (!only_relabels(id)) cost.bytes = all_bytes(id);
        return cost;
      case Opcode::kSlice: cost.bytes = 2 * output_bytes(id); return cost;
      case Opcode::kDynamicSlice: cost.bytes = 2 * output_bytes(id) + operand_bytes_at(id, 1); return cost;
      case Opcode::kDynamicUpdateSlice: cost.bytes = 2 * operand_bytes_at(id, 1) + operand_bytes_at(id, 2); return cost;
      case Opcode::kGather: cost.bytes = 2 * output_bytes(id) + operand_bytes_at(id, 1); return cost;
      case Opcode::kScatter: return scatter_cost(id);
      case Opcode::kDot:
      case Opcode::kScaledDot:
        cost.flops = dot_flops(graph_, id);
        cost.bytes = all_bytes(id);
        return cost;
      case Opcode::kRaggedDot: return ragged_dot_cost(id);
      case Opcode::kConvolution:
        cost.flops = convolution_flops(graph_, id);
        cost.bytes = all_bytes(id);
        return cost;
      case Opcode::kMap:
        cost.bytes = all_bytes(id);
        apply(cost, called_cost(id, 0), elements(shape));
        return cost;
      case Opcode::kReduce:
        cost.bytes = all_bytes(id);
        apply(cost, called_cost(id, 0), operand_elements_at(id, 0) - elements(first_result(id)));
        return cost;
      case Opcode::kReduceWindow:
        cost.bytes = all_bytes(id);
        apply(cost, called_cost(id, 0), reduce_window_steps(id));
        return cost;
      case Opcode::kSelectAndScatter: return select_and_scatter_cost(id);
      case Opcode::kSort: {
        cost.bytes = all_bytes(id);
        const double n = operand_elements_at(id, 0);
        cost.flops = n * ceil_log2(n);
        return cost;
      }
      case Opcode::kFft: return fft_cost(id);
      case Opcode::kTriangularSolve: {
        cost.bytes = all_bytes(id) - operand_bytes_at(id, 0) / 2;
        cost.flops = 2 * last_dimension(id) * operand_elements_at(id, 1);
        return cost;
      }
      case Opcode::kCholesky:
        cost.bytes = operand_bytes_at(id, 0);
        cost.flops = std::floor(last_dimension(id) * operand_elements_at(id, 0) / 3);
        return cost;
      case Opcode::kRng:
        cost.bytes = all_bytes(id);
        cost.transcendentals = elements(shape);
        return cost;
      case Opcode::kRngBitGenerator:
        cost.bytes = all_bytes(id);
        cost.transcendentals = leaf_elements(shape);
        return cost;
      case Opcode::kAllReduce:
      case Opcode::kAllReduceStart:
        cost.bytes = all_bytes(id);
        cost.flops = leaf_elements(shape);
        return cost;
      case Opcode::kCall:
      case Opcode::kAsyncStart: return called_cost(id, 0);
      case Opcode::kFusion: return fusion_cost(id);
      case Opcode::kWhile: return while_cost(id);
      case Opcode::kConditional: return conditional_cost(id);
      default: cost.bytes = all_bytes(id); return cost;
    }
  }

  Cost custom_call_cost(InstructionId id) {
    Cost cost;
    if (is_annotation(graph_, id) || is_sharding_mark(string_attribute(graph_, id, "custom_call_target"))) return cost;
    const std::optional<AttentionCall> attention = attention_call(graph_, id);
    if (attention) {
      cost.flops = attention->flops();
      cost.transcendentals =
          attention->batch * attention->heads * attention->queries * attention->keys * attention->kept;
      cost.bytes = all_bytes(id);
      return cost;
    }
    ++result_.custom_calls;
    result_.custom_call_bytes += all_bytes(id);
    return cost;
  }

  Cost scan_cost(InstructionId id) const {
    Cost cost = called_cost(id, 0);
    const auto length = static_cast<double>(scan_length(graph_, id));
    cost.flops *= length;
    cost.transcendentals *= length;
    cost.bytes *= length;
    return cost;
  }

  double last_dimension(InstructionId id) const {
    const auto operands = graph_.operands(id);
    if (operands.empty() || shape_of(operands[0]).dims.empty()) return 0;
    return static_cast<double>(shape_of(operands[0]).dims.back());
  }

  // A transpose whose result layout is the permuted operand layout moves nothing.
  bool only_relabels(InstructionId id) const {
    const auto operands = graph_.operands(id);
    if (operands.size() != 1) return false;
    const Shape& from = shape_of(operands[0]);
    const Shape& to = shape_of(id);
    const std::size_t rank = to.dims.size();
    const std::vector<std::int64_t> permutation = dimension_list_attribute(graph_, id, "dimensions", rank);
    if (permutation.size() != rank || from.dims.size() != rank) return false;
    const Instruction& instruction = graph_.instruction(id);
    const auto order = decode_minor_to_major(instruction.layout, rank, {instruction.name, "layout", &graph_});
    const Instruction& operand = graph_.instruction(operands[0]);
    const auto from_order = decode_minor_to_major(operand.layout, rank, {operand.name, "layout", &graph_});
    for (std::size_t i = 0; i < rank; ++i) {
      if (permutation[static_cast<std::size_t>(order[i])] != from_order[i]) return false;
    }
    return true;
  }

  double reduce_window_steps(InstructionId id) const {
    const std::vector<WindowDimension> window = window_attribute(graph_, id);
    const Shape& result = first_result(id);
    double size = 1;
    std::size_t reduced = 0, padded = 0, reduced_at = 0;
    for (std::size_t i = 0; i < window.size(); ++i) {
      size *= static_cast<double>(window[i].size);
      if (window[i].size != 1) {
        ++reduced;
        reduced_at = i;
      }
      if (window[i].pad_low != 0 || window[i].pad_high != 0) ++padded;
    }
    const double outputs = elements(result);
    // A window over everything on both sides of each position is a reduction that is then broadcast.
    if (reduced == 1 && padded == 1 && shape_of(id).is_array() && reduced_at < result.dims.size()) {
      const WindowDimension& dimension = window[reduced_at];
      const double span = static_cast<double>(result.dims[reduced_at]);
      if (dimension.pad_low != 0 && dimension.pad_low == dimension.pad_high &&
          static_cast<double>(dimension.size) == 2.0 * static_cast<double>(dimension.pad_low) + 1 &&
          static_cast<double>(dimension.pad_low) == span - 1 && span > 0) {
        return std::floor(outputs / span) + (span - 1);
      }
    }
    return (size - 1) * outputs;
  }

  // Arithmetic of the body; memory only where the fusion meets it: results, parameters as they are read, and constants
  // too large to be immediate.
  Cost fusion_cost(InstructionId id) const {
    const auto called = graph_.called(id);
    if (called.empty()) return {};
    const Computation& body = graph_.computation(called[0]);
    if (const auto kind = graph_.attribute(id, "kind"); kind && *kind == "kCustom") {
      for (InstructionId inner = body.first; inner < body.first + body.count; ++inner) {
        const Opcode opcode = graph_.instruction(inner).opcode;
        if (opcode == Opcode::kGather || opcode == Opcode::kScatter) {
          return result_.instructions[static_cast<std::size_t>(inner)];
        }
      }
    }
    Cost cost = called_cost(id, 0);
    cost.bytes = 0;
    const auto written = [&](InstructionId producer, const Shape& shape, std::string_view layout) {
      const Instruction& maker = graph_.instruction(producer);
      if (maker.opcode == Opcode::kDynamicUpdateSlice) return operand_bytes_at(producer, 1);
      return array_bytes(shape, layout);
    };
    const Shape& shape = shape_of(id);
    const auto root_operands = graph_.operands(body.root);
    if (!shape.is_tuple()) {
      cost.bytes += written(body.root, shape, graph_.instruction(id).layout);
    } else if (graph_.instruction(body.root).opcode == Opcode::kTuple &&
               root_operands.size() == shape.elements.size()) {
      for (InstructionId part : root_operands) {
        if (shape_of(part).is_tuple()) {
          cost.bytes += leaf_bytes(shape_of(part), {});
        } else {
          cost.bytes += written(part, shape_of(part), graph_.instruction(part).layout);
        }
      }
    } else {
      cost.bytes += leaf_bytes(shape, {});
    }
    for (InstructionId inner = body.first; inner < body.first + body.count; ++inner) {
      const Instruction& instruction = graph_.instruction(inner);
      constexpr double kImmediateElements = 8;
      if (instruction.opcode == Opcode::kConstant && elements(shape_of(inner)) > kImmediateElements) {
        cost.bytes += operand_bytes(inner);
      }
    }
    for (InstructionId parameter : body.parameters) {
      if (parameter == kNone) continue;
      if (!shape_of(parameter).is_tuple()) {
        cost.bytes += read_bytes(parameter);
        continue;
      }
      for (InstructionId user : graph_.users(parameter)) {
        if (graph_.instruction(user).opcode == Opcode::kGetTupleElement && !shape_of(user).is_tuple()) {
          cost.bytes += read_bytes(user);
        }
      }
    }
    return cost;
  }

  // Bytes that a fusion reads of one of its parameters: the slices where only slices are used, else all of it once.
  double read_bytes(InstructionId value) const {
    double bytes = 0;
    const double whole = operand_bytes(value);
    bool read_whole = false;
    const auto need_whole = [&] {
      if (!read_whole) bytes += whole;
      read_whole = true;
    };
    for (InstructionId user : graph_.users(value)) {
      switch (graph_.instruction(user).opcode) {
        case Opcode::kSlice: bytes += output_bytes(user); break;
        case Opcode::kDynamicSlice:
          if (graph_.operands(user)[0] == value) {
            bytes += output_bytes(user);
          } else {
            need_whole();
          }
          break;
        case Opcode::kDynamicUpdateSlice:
          if (graph_.operands(user)[0] != value) need_whole();  // else updated in place
          break;
        case Opcode::kBroadcast:
        case Opcode::kReshape: bytes += whole; break;
        default: need_whole();
      }
    }
    return bytes;
  }

  const Graph& graph_;
  WhileCounting counting_;
  std::vector<std::optional<std::int64_t>> trip_counts_;
  ModuleCost result_;
};

}  // namespace

double valid_positions(std::int64_t input, std::int64_t kernel, std::int64_t output, const WindowDimension& window) {
  // Pairs (k, o) with position o * stride - pad_low + k * dilation on a real input element. Walk the shorter of the two
  // and count the other in closed form.
  constexpr std::int64_t kMaxWalk = std::int64_t{1} << 20;
  const bool walk_kernel = kernel <= output;
  const std::int64_t walked = walk_kernel ? kernel : output;
  const std::int64_t counted = walk_kernel ? output : kernel;
  const std::int64_t walk_step = walk_kernel ? window.window_dilation : window.stride;
  const std::int64_t count_step = walk_kernel ? window.stride : window.window_dilation;
  const std::int64_t samples = std::min(walked, kMaxWalk);
  double sum = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const double at =
        samples == walked
            ? static_cast<double>(i)
            : std::floor((static_cast<double>(i) + 0.5) * static_cast<double>(walked) / static_cast<double>(samples));
    const double first = at * static_cast<double>(walk_step) - static_cast<double>(window.pad_low);
    sum += count_hits(first, count_step, counted, window.base_dilation, static_cast<double>(input));
  }
  return samples == walked ? sum : sum * (static_cast<double>(walked) / static_cast<double>(samples));
}

double dot_flops(const Graph& graph, InstructionId id) {
  const DotDimensions dims = dot_dimensions(graph, id);
  const Shape& lhs = graph.shape_of(graph.operands(id)[0]);
  double width = 1;
  for (std::int64_t dim : dims.lhs_contracting) {
    width *= static_cast<double>(lhs.dims[static_cast<std::size_t>(dim)]);
  }
  return 2 * elements(graph.shape_of(id)) * width;
}

double convolution_flops(const Graph& graph, InstructionId id) {
  const ConvolutionDimensions dims = convolution_dimensions(graph, id);
  const std::vector<WindowDimension> window = window_attribute(graph, id);
  const auto operands = graph.operands(id);
  const auto extent = [&](InstructionId of, std::int64_t dim) {
    return array_of(graph, of).dims[static_cast<std::size_t>(dim)];
  };
  double positions = 1;
  for (std::size_t i = 0; i < window.size() && i < dims.input_spatial.size(); ++i) {
    positions *=
        valid_positions(extent(operands[0], dims.input_spatial[i]), extent(operands[1], dims.kernel_spatial[i]),
                        extent(id, dims.output_spatial[i]), window[i]);
  }
  const std::int64_t feature_groups = std::max<std::int64_t>(1, int_attribute(graph, id, "feature_group_count", 1));
  const std::int64_t batch_groups = std::max<std::int64_t>(1, int_attribute(graph, id, "batch_group_count", 1));
  const auto input_features = static_cast<double>(extent(operands[0], dims.input_feature) / feature_groups);
  const auto batch = static_cast<double>(extent(operands[0], dims.input_batch) / batch_groups);
  return 2 * input_features * static_cast<double>(extent(id, dims.output_feature)) * batch * positions;
}

std::int64_t scan_length(const Graph& graph, InstructionId id) {
  const auto operands = graph.operands(id);
  const auto called = graph.called(id);
  const std::vector<std::int64_t> dims = int_list_attribute(graph, id, "dimensions");
  if (called.size() != 1 || dims.empty()) return 1;
  const std::vector<InstructionId>& step = graph.computation(called[0]).parameters;
  for (std::size_t i = 0; i < operands.size() && i < step.size(); ++i) {
    const Shape& whole = graph.shape_of(operands[i]);
    // The step takes one slice of each scanned array, and carried values as they are.
    if (!whole.is_array() || whole.dims.size() != graph.shape_of(step[i]).dims.size() + 1) continue;
    if (dims[0] >= 0 && dims[0] < static_cast<std::int64_t>(whole.dims.size())) {
      return whole.dims[static_cast<std::size_t>(dims[0])];
    }
  }
  return 1;
}

ModuleCost analyze_cost(const Graph& graph, WhileCounting counting) {
  return CostAnalysis(graph, counting).run();
}

}  // namespace automap::graph
