#include "profile/device_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/trip_count.h"

namespace automap::profile {
namespace {

using graph::Computation;
using graph::ComputationId;
using graph::Graph;
using graph::Instruction;
using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using graph::Shape;

// Vector work per element, in units of one FP32 operation.
constexpr double kTranscendentalOperations = 8;
constexpr double kDivideOperations = 4;
constexpr double kRandomOperations = 20;
// Vector units issue one operation where a multiply-add counts two, and reach this share of that.
constexpr double kVectorEfficiency = 0.7 / 2;
// How much of the shorter of computing and moving data hides behind the longer.
constexpr double kOverlap = 0.95;
// A matrix product works on output tiles of this many elements; a quarter of the cores' worth of tiles, or a contracted
// length of 128, halves its efficiency. Longer than kSplitLength, the contraction is split to make more tiles.
constexpr double kTile = 128.0 * 128.0;
constexpr double kHalfLength = 128;
constexpr double kSplitLength = 4096;
// Convolutions against matrix products of the same size: on matrix units, on vector units, and there for 3x3 windows
// that move by one, which are computed with fewer multiplications (Winograd's F(2x2, 3x3) saves 2.25, not all of it is
// gained).
constexpr double kConvolutionEfficiency = 0.7;
constexpr double kVectorConvolutionEfficiency = 0.9;
constexpr double kWinogradGain = 2;
// A grouped convolution with fewer features per group than this leaves matrix units idle.
constexpr double kFullGroup = 32;
// Passes over memory.
constexpr double kSortPasses = 4;
constexpr double kBatchNormPasses = 1.5;
// Calls of calls and loops of loops multiply without limit; times beyond any patience stay numbers.
constexpr double kLongest = 1e100;
// An operand this much smaller than the result is read again by whoever needs it.
constexpr double kTinyShare = 1.0 / 16;

enum class Kind : std::uint8_t {
  kFree,    // names a value: parameter, tuple element, ...
  kAlias,   // the same memory as its operand
  kLoop,    // element-wise or data movement that a fused loop can do on the fly
  kReduce,  // ends a fused loop
  kKernel,  // a kernel of its own
};

bool is_free(Opcode opcode) {
  switch (opcode) {
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kAfterAll:
    case Opcode::kPartitionId:
    case Opcode::kReplicaId:
    case Opcode::kGetDimensionSize:
    case Opcode::kIota:
    case Opcode::kAllGatherDone:
    case Opcode::kAllReduceDone:
    case Opcode::kCollectivePermuteDone:
    case Opcode::kCopyDone:
    case Opcode::kAsyncDone:
    case Opcode::kAsyncUpdate:
    case Opcode::kRecv:
    case Opcode::kRecvDone:
    case Opcode::kSend:
    case Opcode::kSendDone:
    case Opcode::kInfeed:
    case Opcode::kOutfeed: return true;
    default: return false;
  }
}

bool is_matmul(Opcode opcode) {
  return opcode == Opcode::kDot || opcode == Opcode::kScaledDot || opcode == Opcode::kRaggedDot ||
         opcode == Opcode::kConvolution;
}

// Its result is the same whenever its operands are: what follows from constants alone can be made anywhere for free.
bool is_pure(Opcode opcode) {
  switch (opcode) {
    case Opcode::kUnknown:
    case Opcode::kCustomCall:
    case Opcode::kRng:
    case Opcode::kRngBitGenerator:
    case Opcode::kRngGetAndUpdateState:
    case Opcode::kInfeed:
    case Opcode::kOutfeed:
    case Opcode::kSend:
    case Opcode::kSendDone:
    case Opcode::kRecv:
    case Opcode::kRecvDone:
    case Opcode::kPartitionId:
    case Opcode::kReplicaId:
    case Opcode::kParameter:
    case Opcode::kAfterAll:
    case Opcode::kWhile: return false;
    default: return !is_collective(opcode);
  }
}

// Custom calls that only mark a value.
bool is_annotation(std::string_view target) {
  return target == "Sharding" || target == "SPMDFullToShardShape" || target == "SPMDShardToFullShape" ||
         target == "annotate_device_placement" || target == "xla.sdy.FuncResultSharding" ||
         target == "LayoutConstraint" || target == "MoveToHost" || target == "MoveToDevice" || target == "PinToHost";
}

std::string_view matmul_type(const Shape& shape) {
  using graph::ElementType;
  switch (shape.type) {
    case ElementType::kF64:
    case ElementType::kC128: return "f64";
    case ElementType::kF16: return "f16";
    case ElementType::kBf16: return "bf16";
    case ElementType::kF8:
    case ElementType::kF6:
    case ElementType::kF4: return "f8";
    case ElementType::kF32:
    case ElementType::kC64: return "tf32";
    case ElementType::kS8:
    case ElementType::kU8:
    case ElementType::kS4:
    case ElementType::kU4: return "i8";
    default: return "f32";
  }
}

// Milliseconds a kernel computes and moves data.
struct Work {
  double compute_ms = 0;
  double memory_ms = 0;

  double sum() const { return compute_ms + memory_ms; }
  double overlapped() const { return sum() - kOverlap * std::min(compute_ms, memory_ms); }
};

class Estimator {
 public:
  Estimator(const Graph& graph, const DeviceModel& device) : graph_(graph), device_(device) {}

  InstructionTimes run() {
    const auto n = static_cast<std::size_t>(graph_.num_instructions());
    times_.ms.assign(n, 0.0);
    cost_ = graph::analyze_cost(graph_);
    find_roles();
    const auto trips = graph::trip_counts(graph_);
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      if (graph_.instruction(id).opcode != Opcode::kWhile) continue;
      const auto count = trips[static_cast<std::size_t>(id)];
      times_.whiles.push_back({id, count.value_or(1), count.has_value()});
    }
    total_ms_.assign(static_cast<std::size_t>(graph_.num_computations()), 0.0);
    summaries_.resize(static_cast<std::size_t>(graph_.num_computations()));
    for (ComputationId c = 0; c < graph_.num_computations(); ++c) estimate(c);
    share_out();
    add_notices();
    return std::move(times_);
  }

 private:
  // How a computation is used: on its own (entry, call, loop bodies, branches), as one kernel (fusion), or per element.
  enum class Role : std::uint8_t { kRegion, kFusion, kPerElement };

  // What callers need to know of a computation that is nothing but one fused loop.
  struct Summary {
    bool loop = false;  // calls of it fuse with their neighbours
    bool pure = false;
    double operations = 0;                // vector work of one execution
    std::vector<double> parameter_bytes;  // read of each parameter
  };

  std::size_t at(InstructionId id) const { return static_cast<std::size_t>(id); }
  Opcode opcode(InstructionId id) const { return graph_.instruction(id).opcode; }
  double elements(InstructionId id) const { return static_cast<double>(graph_.shape_of(id).num_elements); }
  double bytes(InstructionId id) const { return static_cast<double>(graph_.shape_of(id).bytes); }
  double operand_bytes(InstructionId id) const {
    double sum = 0;
    for (InstructionId operand : graph_.operands(id)) sum += bytes(operand);
    return sum;
  }

  double memory_ms(double moved) const {
    return moved / (device_.memory_gbytes_per_s * device_.memory_efficiency) * 1e-6;
  }
  double vector_ms(double operations, const Shape& shape) const {
    const bool wide = shape.type == graph::ElementType::kF64 || shape.type == graph::ElementType::kC128;
    const double peak = device_.matmul_tflops(wide ? "f64" : "f32");
    return operations / (peak * kVectorEfficiency) * 1e-9;
  }
  double launch_ms() const { return device_.launch_us * 1e-3; }

  void find_roles() {
    roles_.assign(static_cast<std::size_t>(graph_.num_computations()), Role::kRegion);
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      for (ComputationId callee : graph_.called(id)) {
        Role role = Role::kRegion;
        switch (opcode(id)) {
          case Opcode::kCall:
          case Opcode::kWhile:
          case Opcode::kConditional:
          case Opcode::kAsyncStart: break;
          case Opcode::kFusion: role = Role::kFusion; break;
          default: role = Role::kPerElement;
        }
        Role& known = roles_[static_cast<std::size_t>(callee)];
        // A computation that is used in two ways keeps the one with the larger cost.
        known = first_use_.insert(callee).second ? role : std::min(known, role);
      }
    }
  }

  // Element-wise work of a fused loop over `id`, in FP32 operations.
  double vector_operations(InstructionId id) const {
    const Opcode op = opcode(id);
    const double n = elements(id);
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

  bool is_loop(InstructionId id) const {
    const Opcode op = opcode(id);
    if (graph::is_elementwise(op)) return true;
    switch (op) {
      case Opcode::kBroadcast:
      case Opcode::kConcatenate:
      case Opcode::kCopy:
      case Opcode::kDynamicReshape:
      case Opcode::kDynamicSlice:
      case Opcode::kMap:
      case Opcode::kPad:
      case Opcode::kReverse:
      case Opcode::kSetDimensionSize:
      case Opcode::kSlice:
      case Opcode::kTranspose: return true;
      case Opcode::kCall: {
        const auto called = graph_.called(id);
        return called.size() == 1 && summaries_[static_cast<std::size_t>(called[0])].loop;
      }
      default: return false;
    }
  }

  Kind kind_of(InstructionId id) const {
    const Opcode op = opcode(id);
    if (is_free(op)) return Kind::kFree;
    switch (op) {
      case Opcode::kBitcast:
      case Opcode::kReshape:
      case Opcode::kAddDependency:
      case Opcode::kDomain: return Kind::kAlias;
      case Opcode::kOptBarrier: return graph_.shape_of(id).is_tuple() ? Kind::kFree : Kind::kAlias;
      case Opcode::kCustomCall:
        if (graph_.operands(id).size() == 1 &&
            is_annotation(graph::string_attribute(graph_, id, "custom_call_target"))) {
          return graph_.shape_of(id).is_tuple() ? Kind::kFree : Kind::kAlias;
        }
        return Kind::kKernel;
      case Opcode::kReduce: return Kind::kReduce;
      default: return is_loop(id) ? Kind::kLoop : Kind::kKernel;
    }
  }

  // Everything about the instructions of the computation being estimated, indexed from its first instruction.
  struct Region {
    InstructionId first = 0;
    std::vector<Kind> kind;
    std::vector<char> constant;                      // follows from constants and iota alone
    std::vector<std::int32_t> source;                // whose memory it shares; itself when it is no alias
    std::vector<std::vector<std::int32_t>> readers;  // by source, ascending
    std::vector<std::int32_t> level;                 // how many finished kernels it has to wait for
    std::vector<char> stored;                        // written to memory
    std::vector<double> recompute_bytes;             // read to make a value that is not stored
    std::vector<std::int32_t> cluster;               // union-find over one kernel's loops
  };

  std::int32_t find_cluster(Region& region, std::int32_t i) const {
    auto& parent = region.cluster;
    while (parent[static_cast<std::size_t>(i)] != i) {
      const std::int32_t up = parent[static_cast<std::size_t>(i)];
      parent[static_cast<std::size_t>(i)] = parent[static_cast<std::size_t>(up)];
      i = parent[static_cast<std::size_t>(i)];
    }
    return i;
  }

  void estimate(ComputationId c) {
    const Computation& computation = graph_.computation(c);
    if (computation.count == 0) return;
    Region region = prepare(computation);
    summarize(c, computation, region);
    const Role role = roles_[static_cast<std::size_t>(c)];
    if (role == Role::kPerElement) return;
    if (role == Role::kFusion) {
      // One kernel: memory is met at its edges (fusion_ms); inside only arithmetic counts.
      for (std::int32_t i = 0; i < computation.count; ++i) {
        const InstructionId id = region.first + i;
        if (region.constant[static_cast<std::size_t>(i)] != 0) continue;
        const Kind kind = region.kind[static_cast<std::size_t>(i)];
        if (kind == Kind::kFree || kind == Kind::kAlias) continue;
        times_.ms[at(id)] = kind == Kind::kLoop     ? vector_ms(vector_operations(id), graph_.shape_of(id))
                            : kind == Kind::kReduce ? reduce_work(id).compute_ms
                            : has_own_total(id)     ? called_ms(id)
                                                    : kernel_work(id, region).compute_ms;
      }
    } else {
      decide_stores(computation, region);
      charge_loops(computation, region);
      for (std::int32_t i = 0; i < computation.count; ++i) {
        const auto slot = static_cast<std::size_t>(i);
        if (region.kind[slot] != Kind::kKernel || region.constant[slot] != 0) continue;
        times_.ms[at(region.first + i)] = kernel_ms(region.first + i, region);
      }
    }
    double total = 0;
    for (std::int32_t i = 0; i < computation.count; ++i) total += times_.ms[at(region.first + i)];
    total_ms_[static_cast<std::size_t>(c)] = std::min(total, kLongest);
  }

  Region prepare(const Computation& computation) const {
    Region region;
    region.first = computation.first;
    const auto n = static_cast<std::size_t>(computation.count);
    region.kind.resize(n);
    region.constant.assign(n, 0);
    region.source.resize(n);
    region.readers.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      const Opcode op = opcode(id);
      const auto operands = graph_.operands(id);
      Kind kind = kind_of(id);
      if (kind == Kind::kAlias && operands.size() == 0) kind = Kind::kFree;
      region.kind[i] = kind;
      bool constant = op == Opcode::kConstant || op == Opcode::kIota;
      if (!constant && is_pure(op)) {
        constant = true;
        for (InstructionId operand : operands) constant &= region.constant[local(region, operand)] != 0;
        for (ComputationId callee : graph_.called(id)) {
          constant &= summaries_[static_cast<std::size_t>(callee)].pure;
        }
        if (operands.empty() && graph_.called(id).empty()) constant = false;
      }
      region.constant[i] = constant ? 1 : 0;
      region.source[i] =
          kind == Kind::kAlias ? region.source[local(region, operands[0])] : static_cast<std::int32_t>(i);
      if (kind == Kind::kAlias) continue;
      for (InstructionId operand : operands) {
        auto& readers = region.readers[static_cast<std::size_t>(region.source[local(region, operand)])];
        if (readers.empty() || readers.back() != static_cast<std::int32_t>(i)) {
          readers.push_back(static_cast<std::int32_t>(i));
        }
      }
    }
    skip_matmul_transposes(computation, region);
    return region;
  }

  // A transpose that only matrix products read is a flag of theirs, not a copy: it becomes an alias.
  void skip_matmul_transposes(const Computation& computation, Region& region) const {
    constexpr std::size_t kManyReaders = 64;  // keeps chains of transposes from copying long lists
    const std::size_t n = region.kind.size();
    std::vector<std::int32_t> moved(n, kNone);
    const std::int32_t output = computation.root == kNone ? kNone : region.source[local(region, computation.root)];
    bool any = false;
    for (std::size_t i = n; i-- > 0;) {
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      if (opcode(id) != Opcode::kTranspose || graph_.operands(id).size() != 1) continue;
      auto& readers = region.readers[i];
      if (readers.empty() || readers.size() > kManyReaders || output == static_cast<std::int32_t>(i)) continue;
      const bool only_matmul = std::all_of(readers.begin(), readers.end(), [&](std::int32_t reader) {
        return is_matmul(opcode(region.first + reader)) || moved[static_cast<std::size_t>(reader)] != kNone;
      });
      if (!only_matmul) continue;
      moved[i] = region.source[local(region, graph_.operands(id)[0])];
      auto& up = region.readers[static_cast<std::size_t>(moved[i])];
      up.insert(up.end(), readers.begin(), readers.end());
      region.kind[i] = Kind::kAlias;
      any = true;
    }
    if (!any) return;
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t target = moved[static_cast<std::size_t>(region.source[i])];
      if (target != kNone) region.source[i] = region.source[static_cast<std::size_t>(target)];
      auto& readers = region.readers[i];
      readers.erase(
          std::remove_if(readers.begin(), readers.end(),
                         [&](std::int32_t reader) { return moved[static_cast<std::size_t>(reader)] != kNone; }),
          readers.end());
      std::sort(readers.begin(), readers.end());
      readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    }
  }

  std::size_t local(const Region& region, InstructionId id) const {
    return static_cast<std::size_t>(id - region.first);
  }

  void summarize(ComputationId c, const Computation& computation, const Region& region) {
    Summary& summary = summaries_[static_cast<std::size_t>(c)];
    summary.loop = computation.root != kNone && graph_.shape_of(computation.root).is_array();
    summary.pure = true;
    for (std::int32_t i = 0; i < computation.count; ++i) {
      const InstructionId id = region.first + i;
      const auto slot = static_cast<std::size_t>(i);
      const Kind kind = region.kind[slot];
      if (kind == Kind::kReduce || kind == Kind::kKernel) summary.loop = summary.loop && region.constant[slot] != 0;
      if (kind == Kind::kLoop && region.constant[slot] == 0) summary.operations += vector_operations(id);
      const Opcode op = opcode(id);
      if (op != Opcode::kParameter && op != Opcode::kConstant && op != Opcode::kIota && !is_pure(op)) {
        summary.pure = false;
      }
      for (ComputationId callee : graph_.called(id)) {
        summary.pure = summary.pure && summaries_[static_cast<std::size_t>(callee)].pure;
      }
    }
    summary.operations = std::min(summary.operations, kLongest);
    if (!summary.loop) return;
    for (InstructionId parameter : computation.parameters) {
      double read = 0;
      if (parameter != kNone) {
        const std::size_t slot = local(region, parameter);
        for (std::int32_t reader : region.readers[slot]) read += read_bytes(region.first + reader, parameter);
        read = std::min(read, bytes(parameter));
        if (region.source[local(region, computation.root)] == static_cast<std::int32_t>(slot)) read = bytes(parameter);
      }
      summary.parameter_bytes.push_back(read);
    }
  }

  // What the fused loop or reduction `reader` reads of the stored value `value`.
  double read_bytes(InstructionId reader, InstructionId value) const {
    switch (opcode(reader)) {
      case Opcode::kSlice:
      case Opcode::kDynamicSlice: return std::min(bytes(value), bytes(reader));
      case Opcode::kCall: {
        const auto called = graph_.called(reader);
        if (called.empty()) return bytes(value);
        const auto& summary = summaries_[static_cast<std::size_t>(called[0])];
        if (!summary.loop) return bytes(value);
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

  // Levels: a value that a loop makes is ready in the loop's own kernel; what a reduction or any other kernel makes is
  // ready one kernel later. Loops of one level that feed each other become one kernel. A value read at later levels too
  // is stored, or made again there when reading its inputs once more moves less.
  void decide_stores(const Computation& computation, Region& region) const {
    const auto n = static_cast<std::size_t>(computation.count);
    region.level.assign(n, 0);
    region.stored.assign(n, 0);
    region.recompute_bytes.assign(n, 0.0);
    region.cluster.resize(n);
    std::iota(region.cluster.begin(), region.cluster.end(), 0);
    for (std::size_t i = 0; i < n; ++i) {
      const Kind kind = region.kind[i];
      if (kind == Kind::kAlias || region.constant[i] != 0) continue;
      std::int32_t level = 0;
      for (InstructionId operand : graph_.operands(region.first + static_cast<InstructionId>(i))) {
        const auto from = static_cast<std::size_t>(region.source[local(region, operand)]);
        if (region.constant[from] != 0) continue;
        const Kind made_by = region.kind[from];
        const bool later = made_by == Kind::kReduce || made_by == Kind::kKernel ||
                           (made_by == Kind::kLoop && kind != Kind::kLoop && kind != Kind::kReduce);
        level = std::max(level, region.level[from] + (later ? 1 : 0));
      }
      region.level[i] = level;
    }
    const auto output = computation.root == kNone
                            ? std::size_t{0}
                            : static_cast<std::size_t>(region.source[local(region, computation.root)]);
    std::vector<std::int32_t> levels;
    for (std::size_t i = 0; i < n; ++i) {
      if (region.constant[i] != 0 || region.kind[i] == Kind::kAlias) continue;
      if (region.kind[i] != Kind::kLoop) {
        region.stored[i] = 1;
        continue;
      }
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      double source_bytes = 0;
      for (InstructionId operand : graph_.operands(id)) {
        const auto from = static_cast<std::size_t>(region.source[local(region, operand)]);
        if (region.constant[from] != 0) continue;
        const InstructionId value = region.first + static_cast<InstructionId>(from);
        source_bytes += region.stored[from] != 0 ? read_bytes(id, value) : region.recompute_bytes[from];
      }
      region.recompute_bytes[i] = source_bytes;
      bool stored = i == output && computation.root != kNone;
      levels.clear();
      for (std::int32_t reader : region.readers[i]) {
        const Kind kind = region.kind[static_cast<std::size_t>(reader)];
        if (kind != Kind::kLoop && kind != Kind::kReduce) {
          stored = true;
        } else if (region.level[static_cast<std::size_t>(reader)] != region.level[i]) {
          levels.push_back(region.level[static_cast<std::size_t>(reader)]);
        }
      }
      std::sort(levels.begin(), levels.end());
      levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
      const auto later = static_cast<double>(levels.size());
      if (source_bytes * later > bytes(id) * (1 + later)) stored = true;
      region.stored[i] = stored ? 1 : 0;
    }
    // Small values (scalars, their broadcasts) are made again by every kernel that needs them, so they tie nothing
    // together.
    for (std::size_t i = 0; i < n; ++i) {
      if (region.kind[i] != Kind::kLoop || region.constant[i] != 0) continue;
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      if (region.recompute_bytes[i] < bytes(id) * kTinyShare) continue;
      for (std::int32_t reader : region.readers[i]) {
        const auto r = static_cast<std::size_t>(reader);
        const bool joins = region.kind[r] == Kind::kLoop || region.kind[r] == Kind::kReduce;
        if (!joins || region.constant[r] != 0 || region.level[r] != region.level[i]) continue;
        if (bytes(id) < bytes(region.first + reader) * kTinyShare && region.kind[r] == Kind::kLoop) continue;
        region.cluster[static_cast<std::size_t>(find_cluster(region, reader))] =
            find_cluster(region, static_cast<std::int32_t>(i));
      }
    }
  }

  Work reduce_work(InstructionId id) const {
    const graph::Cost& cost = cost_.instructions[at(id)];
    const auto operands = graph_.operands(id);
    const Shape& shape = operands.empty() ? graph_.shape_of(id) : graph_.shape_of(operands[0]);
    return {vector_ms(cost.flops + cost.transcendentals * kTranscendentalOperations, shape), 0};
  }

  // Loops and reductions: each kernel (cluster) reads a stored value once and writes what is stored; its time is shared
  // among its instructions by their own work, a launch among those that write.
  void charge_loops(const Computation& computation, Region& region) {
    const auto n = static_cast<std::size_t>(computation.count);
    std::vector<Work> own(n), sum(n);
    std::vector<double> writers(n, 0.0);
    std::unordered_set<std::uint64_t> seen;
    const auto fused = [&](std::size_t i) {
      const bool dead = region.kind[i] == Kind::kLoop && region.stored[i] == 0 && region.readers[i].empty();
      return (region.kind[i] == Kind::kLoop || region.kind[i] == Kind::kReduce) && region.constant[i] == 0 && !dead;
    };
    for (std::size_t i = 0; i < n; ++i) {
      if (!fused(i)) continue;
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      const auto cluster = static_cast<std::size_t>(find_cluster(region, static_cast<std::int32_t>(i)));
      double moved = region.stored[i] != 0 ? bytes(id) : 0;
      for (InstructionId operand : graph_.operands(id)) {
        const auto from = static_cast<std::size_t>(region.source[local(region, operand)]);
        if (region.constant[from] != 0) continue;
        const InstructionId value = region.first + static_cast<InstructionId>(from);
        const bool here = region.kind[from] == Kind::kLoop && region.level[from] == region.level[i];
        if (here && static_cast<std::size_t>(find_cluster(region, static_cast<std::int32_t>(from))) == cluster)
          continue;
        const double read = region.stored[from] != 0 ? read_bytes(id, value) : region.recompute_bytes[from];
        const bool part = region.stored[from] != 0 && read < bytes(value);
        const std::uint64_t key =
            part ? (std::uint64_t{1} << 63) | (std::uint64_t{i} << 31) | from : (std::uint64_t{cluster} << 31) | from;
        if (seen.insert(key).second) moved += read;
      }
      Work& work = own[i];
      work = region.kind[i] == Kind::kReduce ? reduce_work(id)
                                             : Work{vector_ms(vector_operations(id), graph_.shape_of(id)), 0};
      work.memory_ms = memory_ms(moved);
      sum[cluster].compute_ms += work.compute_ms;
      sum[cluster].memory_ms += work.memory_ms;
      if (region.stored[i] != 0) writers[cluster] += 1;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (!fused(i)) continue;
      const auto cluster = static_cast<std::size_t>(find_cluster(region, static_cast<std::int32_t>(i)));
      double ms = sum[cluster].sum() > 0 ? own[i].sum() * (sum[cluster].overlapped() / sum[cluster].sum()) : 0;
      if (region.stored[i] != 0 && writers[cluster] > 0) ms += launch_ms() / writers[cluster];
      times_.ms[at(region.first + static_cast<InstructionId>(i))] = ms;
    }
  }

  bool has_own_total(InstructionId id) const {
    switch (opcode(id)) {
      case Opcode::kCall:
      case Opcode::kFusion:
      case Opcode::kWhile:
      case Opcode::kConditional:
      case Opcode::kAsyncStart: return !graph_.called(id).empty();
      default: return false;
    }
  }

  double called_ms(InstructionId id) const {
    const auto called = graph_.called(id);
    const auto total = [&](std::size_t i) { return total_ms_[static_cast<std::size_t>(called[i])]; };
    switch (opcode(id)) {
      case Opcode::kFusion:
        return Work{total(0), memory_ms(cost_.instructions[at(id)].bytes)}.overlapped() + launch_ms();
      case Opcode::kWhile: {
        const auto loop =
            std::lower_bound(times_.whiles.begin(), times_.whiles.end(), id,
                             [](const InstructionTimes::While& w, InstructionId i) { return w.instruction < i; });
        double body = 0;
        for (std::size_t i = 0; i < called.size(); ++i) body += total(i);
        return body * static_cast<double>(loop->trip_count);
      }
      case Opcode::kConditional: {
        double longest = 0;
        for (std::size_t i = 0; i < called.size(); ++i) longest = std::max(longest, total(i));
        return longest;
      }
      default: return total(0);
    }
  }

  double kernel_ms(InstructionId id, const Region& region) {
    if (has_own_total(id)) return called_ms(id);
    if (is_collective(opcode(id))) return collective_ms(id);
    const Work work = kernel_work(id, region);
    return work.overlapped() + launch_ms();
  }

  Work kernel_work(InstructionId id, const Region& region) const {
    const graph::Cost& cost = cost_.instructions[at(id)];
    const Shape& shape = graph_.shape_of(id);
    const double all_bytes = operand_bytes(id) + bytes(id);
    const double vector_operations = cost.flops + cost.transcendentals * kTranscendentalOperations;
    Work work{vector_ms(vector_operations, shape), memory_ms(all_bytes)};
    switch (opcode(id)) {
      case Opcode::kDot:
      case Opcode::kScaledDot:
      case Opcode::kRaggedDot: work.compute_ms = dot_ms(id); break;
      case Opcode::kConvolution: work.compute_ms = convolution_ms(id); break;
      case Opcode::kGather: work.memory_ms = memory_ms(cost.bytes); break;
      case Opcode::kDynamicUpdateSlice:
      case Opcode::kScatter: {
        // In place, except that an operand made from constants has to be written first.
        work.memory_ms = memory_ms(cost.bytes);
        const auto operands = graph_.operands(id);
        if (!operands.empty() && region.constant[local(region, operands[0])] != 0) {
          work.memory_ms += memory_ms(bytes(operands[0]));
        }
        break;
      }
      case Opcode::kSort: work.memory_ms = memory_ms(all_bytes * kSortPasses); break;
      case Opcode::kRng:
      case Opcode::kRngBitGenerator:
        work.compute_ms = vector_ms(cost.transcendentals * kRandomOperations, shape);
        break;
      case Opcode::kBatchNormTraining:
      case Opcode::kBatchNormInference:
      case Opcode::kBatchNormGrad: work.memory_ms = memory_ms(all_bytes * kBatchNormPasses); break;
      case Opcode::kReduceWindow:
      case Opcode::kSelectAndScatter: {
        // A window over a whole dimension is a running sum, done in a logarithmic number of steps.
        double window = 1;
        for (const graph::WindowDimension& dimension : graph::window_attribute(graph_, id)) {
          window *= static_cast<double>(dimension.size);
        }
        constexpr double kDirect = 64;
        if (window > kDirect) {
          work.compute_ms = vector_ms(vector_operations / window * 2 * std::log2(window), shape);
        }
        break;
      }
      default: break;
    }
    return work;
  }

  double tensor_ms(double flops, std::string_view type, double share) const {
    return flops / (device_.matmul_tflops(type) * share) * 1e-9;
  }

  double dot_ms(InstructionId id) const {
    const graph::DotDimensions dims = graph::dot_dimensions(graph_, id);
    const InstructionId lhs = graph_.operands(id)[0];
    const InstructionId rhs = graph_.operands(id)[1];
    const auto product = [&](InstructionId of, const std::vector<std::int64_t>& which) {
      double result = 1;
      for (std::int64_t dim : which) {
        result *= static_cast<double>(graph_.shape_of(of).dims[static_cast<std::size_t>(dim)]);
      }
      return result;
    };
    const double k = product(lhs, dims.lhs_contracting);
    const double batch = product(lhs, dims.lhs_batch);
    const double lhs_rest = std::max(1.0, elements(lhs) / std::max(1.0, k * batch));
    const double n = std::max(1.0, elements(id) / std::max(1.0, lhs_rest * batch));
    double flops = 2 * elements(id) * k;
    const Shape& lhs_shape = graph_.shape_of(lhs);
    const Shape& rhs_shape = graph_.shape_of(rhs);
    if (lhs_shape.type == graph::ElementType::kC64 || lhs_shape.type == graph::ElementType::kC128) flops *= 4;
    // The wider operand decides; integers wider than a byte have no matrix units.
    std::string_view type = matmul_type(lhs_shape.bits >= rhs_shape.bits ? lhs_shape : rhs_shape);
    if (type == "tf32" && wants_full_precision(id)) type = "f32";
    const double share = matmul_share_of_peak(device_, batch, lhs_rest, n, k);
    return std::min(tensor_ms(flops, type, share), vector_ms(flops, lhs_shape));
  }

  bool wants_full_precision(InstructionId id) const {
    const auto precision = graph_.attribute(id, "operand_precision");
    return precision && precision->find("highest") != std::string_view::npos;
  }

  double convolution_ms(InstructionId id) const {
    const double flops = cost_.instructions[at(id)].flops;
    const double outputs = std::max(1.0, elements(id));
    const double k = std::max(1.0, flops / (2 * outputs));
    const graph::ConvolutionDimensions dims = graph::convolution_dimensions(graph_, id);
    const auto features = static_cast<double>(graph_.shape_of(id).dims[static_cast<std::size_t>(dims.output_feature)]);
    const auto feature_groups = static_cast<double>(graph::int_attribute(graph_, id, "feature_group_count", 1));
    const auto batch_groups = static_cast<double>(graph::int_attribute(graph_, id, "batch_group_count", 1));
    const double groups = std::max(1.0, std::max(feature_groups, batch_groups));
    const double n = std::max(1.0, features / groups);
    const InstructionId lhs = graph_.operands(id)[0];
    std::string_view type = matmul_type(graph_.shape_of(lhs));
    if (type == "tf32" && wants_full_precision(id)) type = "f32";
    double share = matmul_share_of_peak(device_, groups, outputs / (n * groups), n, k);
    if (device_.matmul_tflops(type) > device_.matmul_tflops("f32")) {
      share *= kConvolutionEfficiency;
    } else {
      share *= kVectorConvolutionEfficiency * (groups == 1 && slides_3x3(id, dims) ? kWinogradGain : 1);
    }
    if (groups > 1) share *= std::min(1.0, n / kFullGroup);
    return std::min(tensor_ms(flops, type, share), vector_ms(flops, graph_.shape_of(lhs)));
  }

  // A 3x3 window that moves by one, or the gradient of such a kernel: there the 3x3 positions are the result.
  bool slides_3x3(InstructionId id, const graph::ConvolutionDimensions& dims) const {
    const std::vector<graph::WindowDimension> window = graph::window_attribute(graph_, id);
    if (window.size() != 2 || dims.output_spatial.size() != 2) return false;
    bool forward = true, gradient = true;
    for (std::size_t i = 0; i < window.size(); ++i) {
      const graph::WindowDimension& dimension = window[i];
      if (dimension.stride != 1 || dimension.window_dilation != 1 || dimension.base_dilation != 1) return false;
      forward = forward && dimension.size == 3;
      gradient = gradient && graph_.shape_of(id).dims[static_cast<std::size_t>(dims.output_spatial[i])] == 3;
    }
    return forward || gradient;
  }

  double collective_ms(InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    double devices = 0;
    if (const auto raw = graph_.attribute(id, "replica_groups")) {
      devices =
          static_cast<double>(graph::decode_replica_groups(*raw, {instruction.name, "replica_groups"}).group_size);
    }
    if (devices == 0) devices = std::max(header_count("num_partitions"), header_count("replica_count"));
    const Opcode op = instruction.opcode;
    double share = 0, moved = operand_bytes(id);
    if (op == Opcode::kCollectivePermute || op == Opcode::kCollectivePermuteStart) {
      share = 1;
    } else if (op == Opcode::kCollectiveBroadcast) {
      share = devices > 1 ? 1 : 0;
    } else {
      share = devices > 1 ? (devices - 1) / devices : 0;
      if (op == Opcode::kAllReduce || op == Opcode::kAllReduceStart) share *= 2;
      if (op == Opcode::kAllGather || op == Opcode::kAllGatherStart) moved *= devices;
    }
    ++collectives_;
    if (device_.link_gbytes_per_s <= 0 || share == 0) return 0;
    const double ms = moved * share / device_.link_gbytes_per_s * 1e-6 + launch_ms();
    return ms;
  }

  double header_count(std::string_view key) const {
    const auto raw = graph_.header_attribute(key);
    return raw ? static_cast<double>(graph::decode_int(*raw, {"HloModule", key})) : 1.0;
  }

  // Bodies of fusions and of calls that fuse with their neighbours: their instructions share what the calls of them
  // take, so that a body always sums to its mean call. Callers first, since bodies nest.
  void share_out() {
    const auto n = static_cast<std::size_t>(graph_.num_computations());
    std::vector<double> sum(n, 0.0), calls(n, 0.0);
    for (ComputationId c = graph_.num_computations(); c-- > 0;) {
      const auto slot = static_cast<std::size_t>(c);
      const Computation& computation = graph_.computation(c);
      const bool shared = roles_[slot] == Role::kFusion || (roles_[slot] == Role::kRegion && summaries_[slot].loop);
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
    std::int64_t custom_calls = 0, unknown_opcodes = 0;
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      if (opcode(id) == Opcode::kCustomCall && kind_of(id) == Kind::kKernel) ++custom_calls;
      if (opcode(id) == Opcode::kUnknown) ++unknown_opcodes;
    }
    const auto say = [&](std::int64_t count, const std::string& one, const std::string& many, const std::string& rest) {
      if (count > 0) times_.notices.push_back((count == 1 ? "1 " + one : std::to_string(count) + " " + many) + rest);
    };
    say(unknown_loops, "while loop", "while loops", " of unknown trip count, counted once");
    say(custom_calls, "custom call", "custom calls",
        " of unknown work, counted as reading the operands and writing the result");
    say(unknown_opcodes, "instruction", "instructions",
        " of unknown opcode, counted as reading the operands and writing the result");
    if (collectives_ > 0) {
      say(collectives_, "collective", "collectives",
          device_.link_gbytes_per_s > 0
              ? " already in the module, counted by ring formulas at the link bandwidth of " + device_.name
              : " already in the module, counted as free: the device has no link_gbytes_per_s");
    }
  }

  const Graph& graph_;
  const DeviceModel& device_;
  InstructionTimes times_;
  graph::ModuleCost cost_;
  std::vector<Role> roles_;
  std::unordered_set<ComputationId> first_use_;
  std::vector<Summary> summaries_;
  std::vector<double> total_ms_;
  std::int64_t collectives_ = 0;
};

}  // namespace

double matmul_share_of_peak(const DeviceModel& device, double batch, double m, double n, double k) {
  const double tiles = batch * m * n / kTile * std::max(1.0, k / kSplitLength);
  const double half_tiles = static_cast<double>(device.cores) / 4;
  // An empty product takes no time whatever its efficiency; keep the ratio finite.
  const double share = device.matmul_efficiency * (tiles / (tiles + half_tiles)) * (k / (k + kHalfLength));
  return std::max(share, 1e-9);
}

InstructionTimes estimate_times(const Graph& graph, const DeviceModel& device) {
  return Estimator(graph, device).run();
}

}  // namespace automap::profile
