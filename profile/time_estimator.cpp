#include "profile/time_estimator.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "common/graph/attention_calls.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/variables.h"
#include "profile/fused_kernel_model.h"
#include "profile/host_time.h"

namespace automap::profile {
namespace {

using graph::Computation;
using graph::ComputationId;
using graph::Graph;
using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using Kind = KernelKind;
using Role = ComputationRole;

// Calls of calls and loops of loops multiply without limit; times beyond any patience stay numbers.
constexpr double kLongest = 1e24;  // sums of such times are still numbers that files may hold (number_range.h)
// An operand this much smaller than the result is read again by whoever needs it.
constexpr double kTinyShare = 1.0 / 16;

// A set of pairs that is asked and filled once per operand: open addressing.
class PairSet {
 public:
  explicit PairSet(std::size_t most) {
    std::size_t size = 64;
    while (size < most * 2) size *= 2;
    table_.assign(size, 0);
  }
  // false: it was there.
  bool insert(std::uint64_t key) {
    ++key;  // 0 is empty
    std::size_t i = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> 20) & (table_.size() - 1);
    while (table_[i] != 0) {
      if (table_[i] == key) return false;
      i = (i + 1) & (table_.size() - 1);
    }
    table_[i] = key;
    return true;
  }

 private:
  std::vector<std::uint64_t> table_;
};

std::int32_t find_kernel(std::vector<std::int32_t>& parent, std::int32_t i) {
  while (parent[static_cast<std::size_t>(i)] != i) {
    const std::int32_t up = parent[static_cast<std::size_t>(i)];
    parent[static_cast<std::size_t>(i)] = parent[static_cast<std::size_t>(up)];
    i = parent[static_cast<std::size_t>(i)];
  }
  return i;
}

}  // namespace

TimeEstimator::TimeEstimator(const Graph& graph, const ModuleStructure& structure)
    : graph_(graph), structure_(structure) {}

void TimeEstimator::measure() {
  cost_ = graph::analyze_cost(graph_);
  bytes_.resize(static_cast<std::size_t>(graph_.num_instructions()));
  for (InstructionId id = 0; id < graph_.num_instructions(); ++id)
    bytes_[at(id)] = static_cast<double>(graph_.shape_of(id).bytes);
  const auto n = static_cast<std::size_t>(graph_.num_computations());
  sizes_.resize(n);
  summaries_.resize(n);
  for (ComputationId c = 0; c < graph_.num_computations(); ++c) {
    if (graph_.computation(c).count == 0) continue;
    summarize(c);
    if (structure_.role[static_cast<std::size_t>(c)] == Role::kRegion) decide_stores(c);
  }
}

// Element-wise work of a fused loop over `id`, in FP32 operations.
double TimeEstimator::vector_operations(InstructionId id) const {
  const Opcode op = opcode(id);
  const auto n = static_cast<double>(graph_.shape_of(id).num_elements);
  if (op == Opcode::kRngBitGenerator) return bytes(id) / 4 * kRandomOperations;
  if (op == Opcode::kRng) return n * kRandomOperations;
  if (op == Opcode::kCall || op == Opcode::kMap) {
    const auto called = graph_.called(id);
    if (called.empty()) return 0;
    if (op == Opcode::kCall) return summaries_[static_cast<std::size_t>(called[0])].operations;
    const graph::Cost& cost = cost_.instructions[at(id)];
    return cost.flops + cost.transcendentals * kTranscendentalOperations;
  }
  if (graph::is_transcendental(op)) return n * kTranscendentalOperations;
  if (op == Opcode::kDivide || op == Opcode::kRemainder) return n * kDivideOperations;
  return graph::is_elementwise(op) ? n : n / 2;  // moving data costs address arithmetic
}

bool TimeEstimator::is_stored(InstructionId id) const {
  const auto c = static_cast<std::size_t>(graph_.instruction(id).computation);
  const Region& region = structure_.region[c];
  const std::size_t slot = region.local(id);
  if (structure_.role[c] != Role::kRegion || region.constant[slot] != 0) return false;
  const Kind kind = region.kind[slot];
  return kind != Kind::kFree && kind != Kind::kAlias && sizes_[c].stored[slot] != 0;
}

void TimeEstimator::summarize(ComputationId c) {
  const Computation& computation = graph_.computation(c);
  const Region& region = structure_.region[static_cast<std::size_t>(c)];
  Summary& summary = summaries_[static_cast<std::size_t>(c)];
  summary.operations = 0;
  summary.drawn_bytes = 0;
  summary.parameter_bytes.clear();
  if (structure_.loop[static_cast<std::size_t>(c)] == 0) return;
  for (std::int32_t i = 0; i < computation.count; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    if (region.kind[slot] != Kind::kLoop || region.constant[slot] != 0) continue;
    summary.operations += vector_operations(region.first + i);
    summary.drawn_bytes += drawn_bytes(region.first + i);
  }
  summary.operations = std::min(summary.operations, kLongest);
  for (InstructionId parameter : computation.parameters) {
    double read = 0;
    if (parameter != kNone) {
      const std::size_t slot = region.local(parameter);
      for (std::int32_t reader : region.readers[slot]) read += read_bytes(region.first + reader, parameter);
      read = std::min(read, bytes(parameter));
      if (region.source[region.local(computation.root)] == static_cast<std::int32_t>(slot)) read = bytes(parameter);
    }
    summary.parameter_bytes.push_back(read);
  }
}

// The bytes of the random numbers that a loop draws. They are never written. Drawing takes about as long as reading, so
// that recomputing them is weighed by these bytes.
double TimeEstimator::drawn_bytes(InstructionId id) const {
  switch (opcode(id)) {
    case Opcode::kRng:
    case Opcode::kRngBitGenerator: return bytes(id);
    case Opcode::kCall: return summaries_[static_cast<std::size_t>(graph_.called(id)[0])].drawn_bytes;
    default: return 0;
  }
}

// The bytes that the fused loop or reduction `reader` reads of the stored value `value`.
double TimeEstimator::read_bytes(InstructionId reader, InstructionId value) const {
  switch (opcode(reader)) {
    case Opcode::kSlice:
    case Opcode::kDynamicSlice: return std::min(bytes(value), bytes(reader));
    case Opcode::kCall: {
      const auto called = graph_.called(reader);
      if (called.empty()) return bytes(value);
      const auto& summary = summaries_[static_cast<std::size_t>(called[0])];
      if (structure_.loop[static_cast<std::size_t>(called[0])] == 0) return bytes(value);
      double read = 0;
      const auto operands = graph_.operands(reader);
      for (std::size_t i = 0; i < operands.size() && i < summary.parameter_bytes.size(); ++i) {
        // Aliases of the value have its size; another operand of the same size reads about as much.
        if (operands[i] == value || bytes(operands[i]) == bytes(value)) {
          read = std::max(read, summary.parameter_bytes[i]);
        }
      }
      return std::min(bytes(value), read);
    }
    default: return bytes(value);
  }
}

// Loops of one level that feed each other become one kernel. A value read at later levels too is stored, or made again
// there when reading its inputs once more moves less.
void TimeEstimator::decide_stores(ComputationId c) {
  const Computation& computation = graph_.computation(c);
  const Region& region = structure_.region[static_cast<std::size_t>(c)];
  Sizes& sizes = sizes_[static_cast<std::size_t>(c)];
  const std::size_t n = region.kind.size();
  sizes.stored.assign(n, 0);
  sizes.recompute_bytes.assign(n, 0.0);
  sizes.moved_bytes.assign(n, 0.0);
  sizes.operations.assign(n, 0.0);
  sizes.cluster.resize(n);
  std::iota(sizes.cluster.begin(), sizes.cluster.end(), 0);
  const auto output =
      computation.root == kNone ? n : static_cast<std::size_t>(region.source[region.local(computation.root)]);
  for (std::size_t i = 0; i < n; ++i) {
    if (region.constant[i] != 0 || region.kind[i] == Kind::kAlias) continue;
    if (region.kind[i] != Kind::kLoop) {
      sizes.stored[i] = 1;
      continue;
    }
    const InstructionId id = region.first + static_cast<InstructionId>(i);
    double source_bytes = drawn_bytes(id);
    for (std::int32_t r = region.first_read[i]; r < region.first_read[i + 1]; ++r) {
      const auto from = static_cast<std::size_t>(region.reads[static_cast<std::size_t>(r)]);
      const InstructionId value = region.first + static_cast<InstructionId>(from);
      source_bytes += sizes.stored[from] != 0 ? read_bytes(id, value) : sizes.recompute_bytes[from];
    }
    sizes.recompute_bytes[i] = source_bytes;
    sizes.stored[i] = i == output || is_stored(region, sizes, i) ? 1 : 0;
  }
  join_kernels(region, sizes);
  find_moves(region, sizes);
}

bool TimeEstimator::is_stored(const Region& region, const Sizes& sizes, std::size_t i) {
  levels_.clear();
  for (std::int32_t reader : region.readers[i]) {
    const Kind kind = region.kind[static_cast<std::size_t>(reader)];
    if (kind != Kind::kLoop && kind != Kind::kReduce) return true;
    if (region.level[static_cast<std::size_t>(reader)] != region.level[i])
      levels_.push_back(region.level[static_cast<std::size_t>(reader)]);
  }
  if (levels_.empty()) return false;
  std::sort(levels_.begin(), levels_.end());
  levels_.erase(std::unique(levels_.begin(), levels_.end()), levels_.end());
  const auto later = static_cast<double>(levels_.size());
  return sizes.recompute_bytes[i] * later > bytes(region.first + static_cast<InstructionId>(i)) * (1 + later);
}

// Small values (scalars, their broadcasts) are made again by every kernel that needs them, so they tie nothing
// together.
void TimeEstimator::join_kernels(const Region& region, Sizes& sizes) {
  const std::size_t n = region.kind.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (region.kind[i] != Kind::kLoop || region.constant[i] != 0) continue;
    const InstructionId id = region.first + static_cast<InstructionId>(i);
    if (sizes.recompute_bytes[i] < bytes(id) * kTinyShare) continue;
    for (std::int32_t reader : region.readers[i]) {
      const auto r = static_cast<std::size_t>(reader);
      const bool joins = region.kind[r] == Kind::kLoop || region.kind[r] == Kind::kReduce;
      if (!joins || region.constant[r] != 0 || region.level[r] != region.level[i]) continue;
      if (bytes(id) < bytes(region.first + reader) * kTinyShare && region.kind[r] == Kind::kLoop) continue;
      sizes.cluster[static_cast<std::size_t>(find_kernel(sizes.cluster, reader))] =
          find_kernel(sizes.cluster, static_cast<std::int32_t>(i));
    }
  }
  join_siblings(region, sizes);
  for (std::size_t i = 0; i < n; ++i) sizes.cluster[i] = find_kernel(sizes.cluster, static_cast<std::int32_t>(i));
}

// Loops and reductions of one level that go over all of the same value read it once, in one kernel.
void TimeEstimator::join_siblings(const Region& region, Sizes& sizes) {
  const std::size_t n = region.kind.size();
  const auto goes_over = [&](std::size_t reader, InstructionId value) {
    if (region.constant[reader] != 0) return false;
    const InstructionId id = region.first + static_cast<InstructionId>(reader);
    if (region.kind[reader] == Kind::kReduce) return true;
    return region.kind[reader] == Kind::kLoop && opcode(id) != Opcode::kTranspose &&
           graph_.shape_of(id).num_elements == graph_.shape_of(value).num_elements;
  };
  for (std::size_t i = 0; i < n; ++i) {
    if (region.constant[i] != 0 || region.readers[i].size() < 2) continue;
    const InstructionId value = region.first + static_cast<InstructionId>(i);
    if (!graph_.shape_of(value).is_array()) continue;
    sibling_of_level_.clear();
    for (std::int32_t reader : region.readers[i]) {
      const auto r = static_cast<std::size_t>(reader);
      if (!goes_over(r, value)) continue;
      const auto [sibling, first] = sibling_of_level_.try_emplace(region.level[r], reader);
      if (!first) {
        sizes.cluster[static_cast<std::size_t>(find_kernel(sizes.cluster, reader))] =
            find_kernel(sizes.cluster, sibling->second);
      }
    }
  }
}

bool TimeEstimator::is_fused(const Region& region, const Sizes& sizes, std::size_t i) const {
  const bool dead = region.kind[i] == Kind::kLoop && sizes.stored[i] == 0 && region.readers[i].empty();
  return (region.kind[i] == Kind::kLoop || region.kind[i] == Kind::kReduce) && region.constant[i] == 0 && !dead;
}

// Each kernel reads a stored value once and writes what is stored.
void TimeEstimator::find_moves(const Region& region, Sizes& sizes) {
  const std::size_t n = region.kind.size();
  PairSet seen(region.reads.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (!is_fused(region, sizes, i)) continue;
    const InstructionId id = region.first + static_cast<InstructionId>(i);
    const auto cluster = static_cast<std::size_t>(sizes.cluster[i]);
    double moved = sizes.stored[i] != 0 ? bytes(id) : 0;
    for (std::int32_t r = region.first_read[i]; r < region.first_read[i + 1]; ++r) {
      const auto from = static_cast<std::size_t>(region.reads[static_cast<std::size_t>(r)]);
      const InstructionId value = region.first + static_cast<InstructionId>(from);
      const bool here = region.kind[from] == Kind::kLoop && region.level[from] == region.level[i];
      if (here && static_cast<std::size_t>(sizes.cluster[from]) == cluster) continue;
      const double read = sizes.stored[from] != 0 ? read_bytes(id, value) : sizes.recompute_bytes[from];
      const bool part = sizes.stored[from] != 0 && read < bytes(value);
      const std::uint64_t key =
          part ? (std::uint64_t{1} << 62) | (std::uint64_t{i} << 31) | from : (std::uint64_t{cluster} << 31) | from;
      if (seen.insert(key)) moved += read;
    }
    sizes.moved_bytes[i] = moved;
    if (region.kind[i] == Kind::kLoop) sizes.operations[i] = vector_operations(id);
  }
}

// The kernels that count as launches: all, those of software that launches one operation after the other, products
// alone.
enum class Launches : std::uint8_t { kEvery, kEager, kProducts };

// One estimate: the extents as measured, on one device.
class DeviceEstimate {
 public:
  DeviceEstimate(const TimeEstimator& sizes, const machine::DeviceModel& device, Launches launches = Launches::kEvery)
      : graph_(sizes.graph_),
        structure_(sizes.structure_),
        from_(sizes),
        device_(device),
        launches_(launches),
        kernels_(graph_, sizes.cost_, device) {}

  InstructionTimes run() {
    find_times();
    times_.whiles = structure_.whiles;
    add_notices();
    return std::move(times_);
  }

  std::vector<double> run_ms() {
    find_times();
    return std::move(times_.ms);
  }

 private:
  void find_times() {
    times_.ms.assign(static_cast<std::size_t>(graph_.num_instructions()), 0.0);
    total_ms_.assign(static_cast<std::size_t>(graph_.num_computations()), 0.0);
    for (ComputationId c = 0; c < graph_.num_computations(); ++c) estimate(c);
    share_out();
  }

  std::size_t at(InstructionId id) const { return static_cast<std::size_t>(id); }
  Opcode opcode(InstructionId id) const { return graph_.instruction(id).opcode; }

  void estimate(ComputationId c) {
    const Computation& computation = graph_.computation(c);
    const Role role = structure_.role[static_cast<std::size_t>(c)];
    if (computation.count == 0 || role == Role::kPerElement) return;
    const Region& region = structure_.region[static_cast<std::size_t>(c)];
    if (role == Role::kRegion) charge_loops(region, from_.sizes_[static_cast<std::size_t>(c)]);
    for (std::int32_t i = 0; i < computation.count; ++i) {
      const auto slot = static_cast<std::size_t>(i);
      if (region.constant[slot] != 0) continue;
      const InstructionId id = region.first + i;
      if (role == Role::kFusion) {
        times_.ms[at(id)] = inner_ms(id, region, slot);
      } else if (region.kind[slot] == Kind::kKernel) {
        times_.ms[at(id)] = kernel_ms(id, region);
      }
    }
    double total = 0;
    for (std::int32_t i = 0; i < computation.count; ++i) total += times_.ms[at(region.first + i)];
    total_ms_[static_cast<std::size_t>(c)] = std::min(total, kLongest);
  }

  // A fusion is one kernel: memory is met at its edges (called_ms); inside only arithmetic counts.
  double inner_ms(InstructionId id, const Region& region, std::size_t slot) const {
    switch (region.kind[slot]) {
      case Kind::kFree:
      case Kind::kAlias: return 0;
      case Kind::kLoop: return kernels_.vector_ms(from_.vector_operations(id), graph_.shape_of(id));
      case Kind::kReduce: return kernels_.reduce_work(id).compute_ms;
      case Kind::kKernel: break;
    }
    return has_own_total(id) ? called_ms(id) : kernels_.kernel_work(id, first_is_constant(id, region)).compute_ms;
  }

  bool first_is_constant(InstructionId id, const Region& region) const {
    const auto operands = graph_.operands(id);
    return !operands.empty() && region.constant[region.local(operands[0])] != 0;
  }

  // A kernel's time is shared among its instructions by their own work, a launch among those that write.
  void charge_loops(const Region& region, const TimeEstimator::Sizes& sizes) {
    const std::size_t n = region.kind.size();
    own_.assign(n, {});
    sum_.assign(n, {});
    writers_.assign(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      if (!from_.is_fused(region, sizes, i)) continue;
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      const auto cluster = static_cast<std::size_t>(sizes.cluster[i]);
      Work& work = own_[i];
      work = region.kind[i] == Kind::kReduce ? kernels_.reduce_work(id)
                                             : Work{kernels_.vector_ms(sizes.operations[i], graph_.shape_of(id)), 0};
      work.memory_ms = kernels_.memory_ms(sizes.moved_bytes[i] * device_.elementwise_passes);
      sum_[cluster].compute_ms += work.compute_ms;
      sum_[cluster].memory_ms += work.memory_ms;
      if (sizes.stored[i] != 0 && counts(id)) writers_[cluster] += 1;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (!from_.is_fused(region, sizes, i)) continue;
      const auto cluster = static_cast<std::size_t>(sizes.cluster[i]);
      const double work_ms = sum_[cluster].overlapped();
      double ms = sum_[cluster].sum() > 0 ? own_[i].sum() * (work_ms / sum_[cluster].sum()) : 0;
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      if (sizes.stored[i] != 0 && counts(id)) {
        ms += (kernel_ms(id, work_ms) - work_ms) / writers_[cluster];
      }
      times_.ms[at(id)] = ms;
    }
  }

  bool has_own_total(InstructionId id) const {
    switch (opcode(id)) {
      case Opcode::kCall:
      case Opcode::kFusion:
      case Opcode::kWhile:
      case Opcode::kConditional:
      case Opcode::kScan:
      case Opcode::kAsyncStart: return !graph_.called(id).empty();
      default: return false;
    }
  }

  double called_ms(InstructionId id) const {
    const auto called = graph_.called(id);
    const auto total = [&](std::size_t i) { return total_ms_[static_cast<std::size_t>(called[i])]; };
    switch (opcode(id)) {
      case Opcode::kFusion:
        return kernel_ms(id, Work{total(0), kernels_.memory_ms(from_.cost_.instructions[at(id)].bytes)}.overlapped());
      case Opcode::kWhile: {
        if (launches_ != Launches::kEvery && !has_floats(graph_.shape_of(id))) return 0;
        const auto loop =
            std::lower_bound(structure_.whiles.begin(), structure_.whiles.end(), id,
                             [](const InstructionTimes::While& w, InstructionId i) { return w.instruction < i; });
        double body = 0;
        for (std::size_t i = 0; i < called.size(); ++i) body += total(i);
        return std::min(kLongest, body * static_cast<double>(loop->trip_count));
      }
      case Opcode::kScan: return std::min(kLongest, total(0) * static_cast<double>(graph::scan_length(graph_, id)));
      case Opcode::kConditional: {
        double longest = 0;
        for (std::size_t i = 0; i < called.size(); ++i) longest = std::max(longest, total(i));
        return longest;
      }
      default: return total(0);
    }
  }

  double kernel_ms(InstructionId id, const Region& region) const {
    switch (structure_.fused.role_of(id)) {
      case FusedChains::Role::kAnchor: return fused_kernel_ms(kernels_, graph_, *structure_.fused.kernel_of(id));
      case FusedChains::Role::kResult: return 0;
      default: break;
    }
    if (has_own_total(id)) return called_ms(id);
    if (is_collective(opcode(id))) return kernels_.collective_ms(id);
    return kernel_ms(id, kernels_.kernel_work(id, first_is_constant(id, region)).overlapped());
  }

  double kernel_ms(InstructionId id, double work_ms) const {
    return counts(id) ? kernels_.kernel_ms(work_ms) : work_ms;
  }
  bool counts(InstructionId id) const {
    switch (launches_) {
      case Launches::kEvery: return true;
      case Launches::kEager: return is_launched(id);
      case Launches::kProducts: return is_product(id);
    }
    return true;
  }
  bool is_product(InstructionId id) const { return opcode(id) == Opcode::kDot || opcode(id) == Opcode::kConvolution; }

  // True if software that launches one operation after the other has a kernel for it. Keys, random bits, masks and
  // indices are made by the kernels that use them; weights are cast all at once, and transposed where they are read.
  bool is_launched(InstructionId id) const {
    if (is_product(id)) return true;
    if (!has_floats(graph_.shape_of(id))) return false;
    bool moves = false;
    for (; moves_alone(opcode(id)) && graph_.operands(id).size() == 1; id = graph_.operands(id)[0]) moves = true;
    return !moves || opcode(id) != Opcode::kParameter;
  }

  static bool moves_alone(Opcode opcode) {
    return opcode == Opcode::kConvert || opcode == Opcode::kTranspose || opcode == Opcode::kCopy ||
           opcode == Opcode::kReshape || opcode == Opcode::kBitcast || opcode == Opcode::kGetTupleElement;
  }

  bool has_floats(const graph::Shape& shape) const {
    return shape.is_array() ? graph::is_float(shape)
                            : std::any_of(shape.elements.begin(), shape.elements.end(),
                                          [&](graph::ShapeId element) { return has_floats(graph_.shape(element)); });
  }

  // Bodies of fusions and of calls that fuse with their neighbours: their instructions share what the calls of them
  // take, so that a body always sums to its mean call. Callers first, since bodies nest.
  void share_out() {
    const auto n = static_cast<std::size_t>(graph_.num_computations());
    std::vector<double> sum(n, 0.0), calls(n, 0.0);
    for (ComputationId c = graph_.num_computations(); c-- > 0;) {
      const auto slot = static_cast<std::size_t>(c);
      const Computation& computation = graph_.computation(c);
      const bool shared =
          structure_.role[slot] == Role::kFusion ||
          (structure_.role[slot] == Role::kRegion && (structure_.loop[slot] != 0 || structure_.part[slot] != 0));
      if (shared && calls[slot] > 0) {
        const double mean = sum[slot] / calls[slot];
        const InstructionId end = computation.first + computation.count;
        double own = 0;
        for (InstructionId id = computation.first; id < end; ++id) own += times_.ms[at(id)];
        for (InstructionId id = computation.first; id < end; ++id) {
          double& ms = times_.ms[at(id)];
          ms = own > 0 ? ms * (mean / own) : (id == computation.root ? mean : 0);
        }
      }
      for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
        const Opcode op = opcode(id);
        if ((op != Opcode::kCall && op != Opcode::kFusion) || graph_.called(id).empty()) continue;
        const auto callee = static_cast<std::size_t>(graph_.called(id)[0]);
        sum[callee] += times_.ms[at(id)];
        calls[callee] += 1;
      }
    }
  }

  void add_notices() {
    std::int64_t unknown_loops = 0;
    for (const InstructionTimes::While& loop : times_.whiles) unknown_loops += loop.inferred ? 0 : 1;
    std::int64_t custom_calls = 0, unknown_opcodes = 0, collectives = 0;
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      const auto c = static_cast<std::size_t>(graph_.instruction(id).computation);
      const Region& region = structure_.region[c];
      const std::size_t slot = region.local(id);
      const bool kernel = region.kind[slot] == Kind::kKernel;
      if (opcode(id) == Opcode::kCustomCall && kernel && !graph::attention_call(graph_, id)) ++custom_calls;
      if (opcode(id) == Opcode::kUnknown) ++unknown_opcodes;
      if (is_collective(opcode(id)) && kernel && region.constant[slot] == 0 && structure_.role[c] == Role::kRegion)
        ++collectives;
    }
    const auto say = [&](std::int64_t count, const std::string& one, const std::string& many, const std::string& rest) {
      if (count > 0) times_.notices.push_back((count == 1 ? "1 " + one : std::to_string(count) + " " + many) + rest);
    };
    say(unknown_loops, "while loop", "while loops", " of unknown trip count, counted once");
    say(custom_calls, "custom call", "custom calls",
        " of unknown work, counted as reading the operands and writing the result");
    say(unknown_opcodes, "instruction", "instructions",
        " of unknown opcode, counted as reading the operands and writing the result");
    if (collectives > 0) {
      say(collectives, "collective", "collectives",
          device_.link_gbytes_per_s > 0
              ? " already in the module, counted by ring formulas at the link bandwidth of " + device_.name
              : " already in the module, counted as free: the device has no link_gbytes_per_s");
    }
  }

  const Graph& graph_;
  const ModuleStructure& structure_;
  const TimeEstimator& from_;
  const machine::DeviceModel& device_;
  const Launches launches_;
  KernelModel kernels_;
  InstructionTimes times_;
  std::vector<double> total_ms_;
  std::vector<Work> own_, sum_;
  std::vector<double> writers_;
};

InstructionTimes TimeEstimator::estimate(const machine::DeviceModel& device) const {
  InstructionTimes out = DeviceEstimate(*this, device).run();
  out.host_ms = estimate_host_ms(device);
  return out;
}

std::vector<double> TimeEstimator::estimate_ms(const machine::DeviceModel& device) const {
  return DeviceEstimate(*this, device).run_ms();
}

// By what the times grow when launches take as long as the host needs for them.
InstructionTimes::Host TimeEstimator::estimate_host_ms(const machine::DeviceModel& device) const {
  if (device.host_us <= machine::kCompiledHostUs) return {};
  machine::DeviceModel launching = device, resting = device;
  launching.launch_us = device.host_us;
  resting.launch_us = launching.host_us = resting.host_us = 0;
  const std::vector<double> work = DeviceEstimate(*this, resting).run_ms();
  const auto host = [&](Launches launches, double times) {
    std::vector<double> ms = DeviceEstimate(*this, launching, launches).run_ms();
    for (std::size_t i = 0; i < ms.size(); ++i) ms[i] = std::max(0.0, ms[i] - work[i]) * times;
    return ms;
  };
  return {host(Launches::kEager, 1), host(Launches::kProducts, kKernelsOfAProduct)};
}

InstructionTimes estimate_times(const Graph& graph, const machine::DeviceModel& device) {
  const ModuleStructure structure(graph);
  TimeEstimator estimator(graph, structure);
  estimator.measure();
  return estimator.estimate(device);
}

}  // namespace automap::profile
