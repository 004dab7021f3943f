#include "profile/module_structure.h"

#include <algorithm>
#include <limits>
#include <string_view>
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
using Kind = KernelKind;
using Role = ComputationRole;

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

class StructureFinder {
 public:
  StructureFinder(const Graph& graph, ModuleStructure* out) : graph_(graph), out_(*out) {}

  void run() {
    const auto n = static_cast<std::size_t>(graph_.num_computations());
    find_roles();
    out_.region.resize(n);
    out_.loop.assign(n, 0);
    out_.part.assign(n, 0);
    out_.pure.assign(n, 0);
    out_.random.assign(n, 0);
    inside_.assign(n, 0);
    part_.assign(n, Part::kNothing);
    for (ComputationId c = 0; c < graph_.num_computations(); ++c) {
      const Computation& computation = graph_.computation(c);
      if (computation.count == 0) continue;
      Region& region = out_.region[static_cast<std::size_t>(c)];
      region = prepare(computation);
      summarize(c, computation, region);
      if (out_.role[static_cast<std::size_t>(c)] != Role::kRegion) continue;
      find_levels(region);
      draw_late(region);
      if (computation.root != kNone) {
        const auto root = static_cast<std::size_t>(region.source[region.local(computation.root)]);
        out_.random[static_cast<std::size_t>(c)] = region.random[root];
      }
    }
    const auto trips = graph::trip_counts(graph_);
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      if (opcode(id) != Opcode::kWhile) continue;
      const auto count = trips[static_cast<std::size_t>(id)];
      out_.whiles.push_back({id, count.value_or(1), count.has_value()});
    }
  }

 private:
  Opcode opcode(InstructionId id) const { return graph_.instruction(id).opcode; }

  void find_roles() {
    out_.role.assign(static_cast<std::size_t>(graph_.num_computations()), Role::kRegion);
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      for (ComputationId callee : graph_.called(id)) {
        Role role = Role::kRegion;
        switch (opcode(id)) {
          case Opcode::kCall:
          case Opcode::kWhile:
          case Opcode::kConditional:
          case Opcode::kScan:
          case Opcode::kAsyncStart: break;
          case Opcode::kFusion: role = Role::kFusion; break;
          default: role = Role::kPerElement;
        }
        Role& known = out_.role[static_cast<std::size_t>(callee)];
        // A computation that is used in two ways keeps the one with the larger cost.
        known = first_use_.insert(callee).second ? role : std::min(known, role);
      }
    }
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
      case Opcode::kRng:
      case Opcode::kRngBitGenerator:
      case Opcode::kSetDimensionSize:
      case Opcode::kSlice:
      case Opcode::kTranspose: return true;
      case Opcode::kCall: {
        const auto called = graph_.called(id);
        return called.size() == 1 && out_.loop[static_cast<std::size_t>(called[0])] != 0;
      }
      default: return false;
    }
  }

  // The bits of a generator whose result is (state, bits).
  bool is_drawn_bits(InstructionId id) const {
    return draws_from(id) && graph::int_attribute(graph_, id, "index", 0) == 1;
  }
  bool draws_from(InstructionId id) const {
    return opcode(id) == Opcode::kGetTupleElement && opcode(graph_.operands(id)[0]) == Opcode::kRngBitGenerator;
  }

  // The effect of a computation that accesses a part of its first argument and does nothing else.
  enum class Part : std::uint8_t { kNothing, kRead, kWritten };

  // True if these extents of an array lie in memory without a gap.
  static bool is_contiguous(const graph::Shape& whole, const graph::Shape& part) {
    if (!whole.is_array() || !part.is_array() || whole.dims.size() != part.dims.size()) return false;
    std::size_t dim = 0;
    while (dim < part.dims.size() && part.dims[dim] == 1) ++dim;
    return std::equal(part.dims.begin() + static_cast<std::ptrdiff_t>(std::min(dim + 1, part.dims.size())),
                      part.dims.end(),
                      whole.dims.begin() + static_cast<std::ptrdiff_t>(std::min(dim + 1, part.dims.size())));
  }

  // A part that lies together is read where it lies, and written there by what makes it: what a loop over layers takes
  // of stacked weights and adds to stacked activations is not copied (XLA: dynamic slice fusions, updates in place).
  Part part_of(InstructionId id) const {
    const auto operands = graph_.operands(id);
    switch (opcode(id)) {
      case Opcode::kDynamicSlice:
        return !operands.empty() && is_contiguous(graph_.shape_of(operands[0]), graph_.shape_of(id)) ? Part::kRead
                                                                                                     : Part::kNothing;
      case Opcode::kDynamicUpdateSlice:
        return operands.size() > 1 && is_contiguous(graph_.shape_of(operands[0]), graph_.shape_of(operands[1]))
                   ? Part::kWritten
                   : Part::kNothing;
      case Opcode::kCall: {
        const auto called = graph_.called(id);
        return called.size() == 1 ? part_[static_cast<std::size_t>(called[0])] : Part::kNothing;
      }
      default: return Part::kNothing;
    }
  }

  // True if the value is computed. A value that is only handed on (loop state, arguments) has to be copied.
  bool is_made(InstructionId id, const Region& region) const {
    const InstructionId from = region.first + region.source[region.local(id)];
    if (opcode(from) == Opcode::kGetTupleElement) return opcode(graph_.operands(from)[0]) != Opcode::kParameter;
    return opcode(from) != Opcode::kParameter && region.constant[region.local(from)] == 0 &&
           part_of(from) == Part::kNothing;
  }

  bool costs_nothing(InstructionId id, const Region& region) const {
    const auto operands = graph_.operands(id);
    switch (part_of(id)) {
      case Part::kNothing: return false;
      case Part::kRead: return true;
      case Part::kWritten: break;
    }
    return operands.size() > 1 && region.constant[region.local(operands[0])] == 0 && is_made(operands[1], region);
  }

  // Classifies a body that reads or writes a part of its first argument, by indices that it may compute, and reshapes.
  Part part_of_body(const Computation& computation, const Region& region) const {
    if (computation.root == kNone) return Part::kNothing;
    const InstructionId root = region.first + region.source[region.local(computation.root)];
    const Part part = opcode(root) == Opcode::kCall ? Part::kNothing : part_of(root);
    if (part == Part::kNothing || computation.parameters.empty()) return Part::kNothing;
    const auto is_parameter = [&](InstructionId id, std::size_t number) {
      return number < computation.parameters.size() &&
             region.first + region.source[region.local(id)] == computation.parameters[number];
    };
    if (!is_parameter(graph_.operands(root)[0], 0)) return Part::kNothing;
    if (part == Part::kWritten && !is_parameter(graph_.operands(root)[1], 1)) return Part::kNothing;
    for (std::int32_t i = 0; i < computation.count; ++i) {
      const InstructionId id = region.first + i;
      const auto slot = static_cast<std::size_t>(i);
      const Kind kind = region.kind[slot];
      const bool scalar = graph_.shape_of(id).is_array() && graph_.shape_of(id).num_elements <= 1;
      if (id != root && !scalar && kind != Kind::kFree && kind != Kind::kAlias && region.constant[slot] == 0) {
        return Part::kNothing;
      }
    }
    return part;
  }

  Kind kind_of(InstructionId id) const {
    const Opcode op = opcode(id);
    const bool bits = is_drawn_bits(id);
    if (is_free(op) && !bits) return Kind::kFree;
    switch (out_.fused.role_of(id)) {
      case FusedChains::Role::kNone: break;
      case FusedChains::Role::kInner:
        return op == Opcode::kReshape || op == Opcode::kBitcast ? Kind::kAlias : Kind::kFree;
      case FusedChains::Role::kResult:
      case FusedChains::Role::kAnchor: return Kind::kKernel;
    }
    if (bits) return Kind::kAlias;
    switch (op) {
      case Opcode::kBitcast:
      case Opcode::kReshape:
      case Opcode::kAddDependency:
      case Opcode::kDomain: return Kind::kAlias;
      case Opcode::kOptBarrier: return graph_.shape_of(id).is_tuple() ? Kind::kFree : Kind::kAlias;
      case Opcode::kCustomCall:
        // As graph::analyze_cost() counts them: marks cost nothing, whatever they take and give.
        if (!graph::is_annotation(graph_, id) &&
            !graph::is_sharding_mark(graph::string_attribute(graph_, id, "custom_call_target"))) {
          return Kind::kKernel;
        }
        return graph_.operands(id).size() != 1 || graph_.shape_of(id).is_tuple() ? Kind::kFree : Kind::kAlias;
      case Opcode::kReduce: return Kind::kReduce;
      case Opcode::kCall:
        if (is_inside(id)) return Kind::kFree;
        [[fallthrough]];
      default: return is_loop(id) ? Kind::kLoop : Kind::kKernel;
    }
  }

  // A call of a function that a chain holds all of.
  bool is_inside(InstructionId id) const {
    const auto called = graph_.called(id);
    return called.size() == 1 && inside_[static_cast<std::size_t>(called[0])] != 0;
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
      if ((kind == Kind::kAlias && operands.size() == 0) || costs_nothing(id, region)) kind = Kind::kFree;
      region.kind[i] = kind;
      bool constant = op == Opcode::kConstant || op == Opcode::kIota;
      if (!constant && is_pure(op)) {
        constant = true;
        for (InstructionId operand : operands) constant &= region.constant[region.local(operand)] != 0;
        for (ComputationId callee : graph_.called(id)) {
          constant &= out_.pure[static_cast<std::size_t>(callee)] != 0;
        }
        if (operands.empty() && graph_.called(id).empty()) constant = false;
      }
      region.constant[i] = constant ? 1 : 0;
      region.source[i] = kind == Kind::kAlias ? region.source[region.local(operands[0])] : static_cast<std::int32_t>(i);
      if (kind == Kind::kAlias || draws_from(id)) continue;  // the next state is no reader of the bits
      for (InstructionId operand : operands) {
        auto& readers = region.readers[static_cast<std::size_t>(region.source[region.local(operand)])];
        if (readers.empty() || readers.back() != static_cast<std::int32_t>(i)) {
          readers.push_back(static_cast<std::int32_t>(i));
        }
      }
    }
    skip_matmul_transposes(computation, region);
    return region;
  }

  // A transpose that only matrix products read is a flag of theirs, and one that alone reads a product's result is how
  // the product writes it; neither is a copy: it becomes an alias.
  void skip_matmul_transposes(const Computation& computation, Region& region) const {
    constexpr std::size_t kManyReaders = 64;  // keeps chains of transposes from copying long lists
    const std::size_t n = region.kind.size();
    std::vector<std::int32_t> moved(n, kNone);
    const std::int32_t output = computation.root == kNone ? kNone : region.source[region.local(computation.root)];
    bool any = false;
    for (std::size_t i = n; i-- > 0;) {
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      if (opcode(id) != Opcode::kTranspose || graph_.operands(id).size() != 1) continue;
      auto& readers = region.readers[i];
      if (readers.size() > kManyReaders) continue;
      const std::int32_t from = region.source[region.local(graph_.operands(id)[0])];
      auto& up = region.readers[static_cast<std::size_t>(from)];
      const bool only_matmul =
          !readers.empty() && output != static_cast<std::int32_t>(i) &&
          std::all_of(readers.begin(), readers.end(), [&](std::int32_t reader) {
            return is_matmul(opcode(region.first + reader)) || moved[static_cast<std::size_t>(reader)] != kNone;
          });
      const bool of_product = is_matmul(opcode(region.first + from)) && up.size() == 1 && output != from;
      if (!only_matmul && !of_product) continue;
      moved[i] = from;
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

  void summarize(ComputationId c, const Computation& computation, const Region& region) {
    bool loop = computation.root != kNone && graph_.shape_of(computation.root).is_array();
    bool pure = true;
    for (std::int32_t i = 0; i < computation.count; ++i) {
      const InstructionId id = region.first + i;
      const auto slot = static_cast<std::size_t>(i);
      const Kind kind = region.kind[slot];
      if (kind == Kind::kReduce || kind == Kind::kKernel) loop = loop && region.constant[slot] != 0;
      const Opcode op = opcode(id);
      if (op != Opcode::kParameter && op != Opcode::kConstant && op != Opcode::kIota && !is_pure(op)) pure = false;
      for (ComputationId callee : graph_.called(id)) pure = pure && out_.pure[static_cast<std::size_t>(callee)] != 0;
    }
    part_[static_cast<std::size_t>(c)] = part_of_body(computation, region);
    out_.part[static_cast<std::size_t>(c)] = part_[static_cast<std::size_t>(c)] != Part::kNothing;
    inside_[static_cast<std::size_t>(c)] = holds_inner(computation, region) ? 1 : 0;
    out_.loop[static_cast<std::size_t>(c)] = loop ? 1 : 0;
    out_.pure[static_cast<std::size_t>(c)] = pure ? 1 : 0;
  }

  bool holds_inner(const Computation& computation, const Region& region) const {
    bool any = false;
    for (std::int32_t i = 0; i < computation.count; ++i) {
      const auto slot = static_cast<std::size_t>(i);
      const InstructionId id = region.first + i;
      any = any || out_.fused.is_inner(id) || (opcode(id) == Opcode::kCall && is_inside(id));
      if (region.kind[slot] != Kind::kFree && region.kind[slot] != Kind::kAlias && region.constant[slot] == 0)
        return false;
    }
    return any;
  }

  // Rows of a longer extent do not stay on the chip (a vocabulary).
  static constexpr std::int64_t kLongestRow = 16384;

  bool reduces_rows(InstructionId id) const {
    if (opcode(id) != Opcode::kReduce || graph_.operands(id).size() != 2) return false;
    const graph::Shape& in = graph_.shape_of(graph_.operands(id)[0]);
    if (graph_.shape_of(id).dims.empty()) return false;
    std::vector<char> reduced(in.dims.size(), 0);
    for (const std::int64_t dim : graph::int_list_attribute(graph_, id, "dimensions")) {
      if (dim >= 0 && dim < static_cast<std::int64_t>(reduced.size())) reduced[static_cast<std::size_t>(dim)] = 1;
    }
    std::int64_t row = 1;
    for (std::size_t dim = 0; dim < reduced.size(); ++dim) {
      if (in.dims[dim] == 1) continue;
      if (reduced[dim] == 0 && row > 1) return false;  // kept behind a reduced one
      if (reduced[dim] != 0) row *= in.dims[dim];
    }
    return row <= kLongestRow;
  }

  // A value that a loop makes is ready in the loop's own kernel, and so is a row's reduction, except for a reduction
  // across rows; what another reduction or any other kernel makes is ready one kernel later.
  void find_levels(Region& region) const {
    const std::size_t n = region.kind.size();
    region.level.assign(n, 0);
    region.row.assign(n, 0);
    region.first_read.assign(n + 1, 0);
    std::vector<char> after_row(n, 0);  // needs a row's reduction of its own level
    for (std::size_t i = 0; i < n; ++i) {
      region.first_read[i] = static_cast<std::int32_t>(region.reads.size());
      const Kind kind = region.kind[i];
      if (kind == Kind::kAlias || region.constant[i] != 0) continue;
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      region.row[i] = kind == Kind::kReduce && reduces_rows(id) ? 1 : 0;
      const bool fuses = kind == Kind::kLoop || kind == Kind::kReduce;
      const bool across = kind == Kind::kReduce && region.row[i] == 0;
      std::int32_t level = 0;
      const auto first = region.reads.size();
      for (InstructionId operand : graph_.operands(id)) {
        const auto from = static_cast<std::size_t>(region.source[region.local(operand)]);
        if (region.constant[from] != 0) continue;
        region.reads.push_back(static_cast<std::int32_t>(from));
        const Kind made_by = region.kind[from];
        const bool rows = region.row[from] != 0 || after_row[from] != 0;
        const bool later = made_by == Kind::kKernel || (made_by == Kind::kReduce && region.row[from] == 0) ||
                           ((made_by == Kind::kLoop || made_by == Kind::kReduce) && (!fuses || (across && rows)));
        level = std::max(level, region.level[from] + (later ? 1 : 0));
      }
      region.level[i] = level;
      for (std::size_t r = first; r < region.reads.size(); ++r) {
        const auto from = static_cast<std::size_t>(region.reads[r]);
        if (region.level[from] == level && (region.row[from] != 0 || after_row[from] != 0)) after_row[i] = 1;
      }
    }
    region.first_read[n] = static_cast<std::int32_t>(region.reads.size());
  }

  // Random numbers are made by the kernel that first reads them, whenever their key was ready.
  void draw_late(Region& region) const {
    constexpr std::int64_t kFew = 16;  // operands this much smaller (a key, a rate) tie a draw to nothing
    const std::size_t n = region.kind.size();
    region.random.assign(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      if (region.kind[i] != Kind::kLoop || region.constant[i] != 0) continue;
      const InstructionId id = region.first + static_cast<InstructionId>(i);
      const Opcode op = opcode(id);
      bool random = op == Opcode::kRng || op == Opcode::kRngBitGenerator ||
                    (op == Opcode::kCall && out_.random[static_cast<std::size_t>(graph_.called(id)[0])] != 0);
      if (!random) {
        bool other = false;
        for (std::int32_t r = region.first_read[i]; r < region.first_read[i + 1]; ++r) {
          const auto from = static_cast<std::size_t>(region.reads[static_cast<std::size_t>(r)]);
          const graph::Shape& read = graph_.shape_of(region.first + static_cast<InstructionId>(from));
          random = random || region.random[from] != 0;
          other = other || (region.random[from] == 0 &&
                            (!read.is_array() || read.num_elements * kFew > graph_.shape_of(id).num_elements));
        }
        random = random && !other;
      }
      region.random[i] = random ? 1 : 0;
    }
    for (std::size_t i = n; i-- > 0;) {
      if (region.random[i] == 0 || region.readers[i].empty()) continue;
      std::int32_t first = std::numeric_limits<std::int32_t>::max();
      for (const std::int32_t reader : region.readers[i]) {
        const auto r = static_cast<std::size_t>(reader);
        const bool fuses = region.kind[r] == Kind::kLoop || region.kind[r] == Kind::kReduce;
        first = std::min(first, region.level[r] - (fuses ? 0 : 1));
      }
      region.level[i] = std::max(region.level[i], first);
    }
  }

  const Graph& graph_;
  ModuleStructure& out_;
  std::unordered_set<ComputationId> first_use_;
  std::vector<char> inside_;  // by computation: all of it is inside chains
  std::vector<Part> part_;    // by computation
};

}  // namespace

ModuleStructure::ModuleStructure(const Graph& graph, FusedChains chains) : fused(std::move(chains)) {
  StructureFinder(graph, this).run();
}

}  // namespace automap::profile
