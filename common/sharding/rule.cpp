#include "common/sharding/rule.h"

#include <array>
#include <utility>

#include "common/base/error.h"
#include "common/sharding/rule_builder.h"
#include "common/sharding/rules.h"

namespace automap::sharding {

using graph::InstructionId;
using graph::kNumOpcodes;
using graph::Opcode;
using graph::Shape;

namespace {

using Rule = void (*)(RuleBuilder& builder);

struct Row {
  RuleFamily family;
  Rule rule = nullptr;
};

// --- The families. ---

constexpr Row kElementwise{
    {"elementwise", "every dimension passes between all operands and the result; scalars serve all"}, elementwise_rule};
constexpr Row kFree{{"free", "every dimension of the result may be split by itself"}, free_rule};
constexpr Row kRngBits{{"rng-bit-generator", "the state stays whole, the numbers take any splitting"},
                       rng_bit_generator_rule};
constexpr Row kBroadcast{{"broadcast", "dimensions of the operand pass, new ones may be split while it is whole"},
                         broadcast_rule};
constexpr Row kReshape{{"reshape", "the major dimensions of merged or cut groups pass, the minor ones cannot be split"},
                       reshape_rule};
constexpr Row kBitcast{{"bitcast", "as reshape where both layouts are row-major, else nothing passes"}, bitcast_rule};
constexpr Row kBitcastConvert{{"bitcast-convert", "every dimension passes but one that comes or goes with the width"},
                              bitcast_convert_rule};
constexpr Row kTranspose{{"transpose", "every dimension passes to its new place"}, transpose_rule};
constexpr Row kSlice{{"slice",
                      "dimensions taken in full pass, and every nth element of all where borders are exchanged; others "
                      "would need neighbours"},
                     slice_rule};
constexpr Row kPad{{"pad",
                    "dimensions without padding pass, and shifts and padding between elements by exchanging borders; "
                    "others would need neighbours"},
                   pad_rule};
constexpr Row kConcatenate{{"concatenate", "every dimension passes but the concatenated one"}, concatenate_rule};
constexpr Row kReverse{{"reverse", "every dimension passes but the reversed ones"}, reverse_rule};
constexpr Row kDot{{"dot", "batch and free dimensions pass; a contracted pair leaves partial sums"}, dot_rule};
constexpr Row kRaggedDot{{"ragged-dot", "as dot, with the ragged dimension and the groups whole"}, ragged_dot_rule};
constexpr Row kScaledDot{{"scaled-dot", "as dot, in whole blocks of the scales"}, scaled_dot_rule};
constexpr Row kConvolution{
    {"convolution",
     "batch and output features pass, input features leave partial sums, depthwise and batch groups pass; spatial "
     "dimensions only under a window of one element, or by exchanging borders"},
    convolution_rule};
constexpr Row kReduce{{"reduce",
                       "kept dimensions pass; reduced ones leave partial results when the reducer is known and starts "
                       "from its neutral value"},
                      reduce_rule};
constexpr Row kReduceWindow{
    {"reduce-window", "dimensions under a window of one element pass, others by exchanging borders"},
    reduce_window_rule};
constexpr Row kSelectAndScatter{{"select-and-scatter",
                                 "dimensions under a window of one element pass, and those under windows side by side "
                                 "where borders are exchanged"},
                                select_and_scatter_rule};
constexpr Row kSort{{"sort", "every dimension passes but the sorted one"}, sort_rule};
constexpr Row kCholesky{{"cholesky", "batch dimensions pass, the matrices stay whole"}, cholesky_rule};
constexpr Row kTriangularSolve{{"triangular-solve", "batch dimensions pass, the matrices stay whole"},
                               triangular_solve_rule};
constexpr Row kGather{
    {"gather",
     "dimensions read in full and batch dimensions pass; a dimension of which one place is read leaves partial sums"},
    gather_rule};
constexpr Row kScatter{
    {"scatter",
     "dimensions written in full, or one place at a time, and batching dimensions pass; other dimensions of the "
     "indices leave partial results when the combiner is known"},
    scatter_rule};
constexpr Row kDynamicSlice{{"dynamic-slice", "dimensions read in full pass, others stay whole"}, dynamic_slice_rule};
constexpr Row kDynamicUpdateSlice{{"dynamic-update-slice", "dimensions written in full pass, others stay whole"},
                                  dynamic_update_slice_rule};
constexpr Row kBatchNormTraining{
    {"batch-norm-training", "batch and spatial dimensions pass with partial statistics, features stay whole"},
    batch_norm_training_rule};
constexpr Row kBatchNormInference{{"batch-norm-inference", "every dimension passes but the features"},
                                  batch_norm_inference_rule};
constexpr Row kBatchNormGrad{
    {"batch-norm-grad",
     "batch and spatial dimensions pass with partial gradients of scale and offset, features stay whole"},
    batch_norm_grad_rule};
constexpr Row kCollective{{"collective", "every dimension passes from an operand to its result"}, collective_rule};
constexpr Row kMovingCollective{{"moving-collective", "every dimension passes but the one along which data moves"},
                                moving_collective_rule};
constexpr Row kCustomCall{
    {"custom-call", "annotations pass everything, TopK all but its last dimension, nobody looks into others"},
    custom_call_rule};
constexpr Row kDimensionSize{{"get-dimension-size", "the dimension that is measured stays whole"}, dimension_size_rule};
constexpr Row kWhole{{"whole", "could be split, but XLA's partitioner gathers it: everything stays whole"}, whole_rule};
constexpr Row kOpaque{{"opaque", "nothing is known to pass, everything stays whole", true, false}, opaque_rule};
constexpr Row kStructural{
    {"structural", "only hands values on or runs a computation; what is in it has rules of its own", false, true},
    opaque_rule};

// --- The table. What is not element-wise arithmetic has its row here, or this file does not compile. ---

constexpr const Row* own_row(Opcode opcode) {
  switch (opcode) {
    case Opcode::kClamp:
    case Opcode::kMap:
    case Opcode::kSelect: return &kElementwise;
    case Opcode::kConstant:
    case Opcode::kIota:
    case Opcode::kParameter:
    case Opcode::kPartitionId:
    case Opcode::kReplicaId:
    case Opcode::kRng: return &kFree;
    case Opcode::kRngBitGenerator: return &kRngBits;
    case Opcode::kBroadcast: return &kBroadcast;
    case Opcode::kReshape: return &kReshape;
    case Opcode::kBitcast: return &kBitcast;
    case Opcode::kBitcastConvert: return &kBitcastConvert;
    case Opcode::kTranspose: return &kTranspose;
    case Opcode::kSlice: return &kSlice;
    case Opcode::kPad: return &kPad;
    case Opcode::kConcatenate: return &kConcatenate;
    case Opcode::kReverse: return &kReverse;
    case Opcode::kDot: return &kDot;
    case Opcode::kRaggedDot: return &kRaggedDot;
    case Opcode::kScaledDot: return &kScaledDot;
    case Opcode::kConvolution: return &kConvolution;
    case Opcode::kReduce: return &kReduce;
    case Opcode::kReduceWindow: return &kReduceWindow;
    case Opcode::kSelectAndScatter: return &kSelectAndScatter;
    case Opcode::kSort: return &kSort;
    case Opcode::kCholesky: return &kCholesky;
    case Opcode::kTriangularSolve: return &kTriangularSolve;
    case Opcode::kGather: return &kGather;
    case Opcode::kScatter: return &kScatter;
    case Opcode::kDynamicSlice: return &kDynamicSlice;
    case Opcode::kDynamicUpdateSlice: return &kDynamicUpdateSlice;
    case Opcode::kAllReduce:
    case Opcode::kAllReduceDone:
    case Opcode::kAllReduceStart:
    case Opcode::kCollectiveBroadcast:
    case Opcode::kCollectivePermute: return &kCollective;
    case Opcode::kAllGather:
    case Opcode::kAllToAll:
    case Opcode::kReduceScatter: return &kMovingCollective;
    case Opcode::kCustomCall: return &kCustomCall;
    case Opcode::kGetDimensionSize: return &kDimensionSize;
    case Opcode::kBatchNormGrad: return &kBatchNormGrad;
    case Opcode::kBatchNormInference: return &kBatchNormInference;
    case Opcode::kBatchNormTraining: return &kBatchNormTraining;
    case Opcode::kFft:
    case Opcode::kTopk: return &kWhole;
    case Opcode::kAddDependency:
    case Opcode::kAsyncDone:
    case Opcode::kAsyncStart:
    case Opcode::kAsyncUpdate:
    case Opcode::kCall:
    case Opcode::kConditional:
    case Opcode::kCopyDone:
    case Opcode::kCopyStart:
    case Opcode::kDomain:
    case Opcode::kFusion:
    case Opcode::kGetTupleElement:
    case Opcode::kOptBarrier:
    case Opcode::kTuple:
    case Opcode::kWhile: return &kStructural;
    case Opcode::kUnknown:
    case Opcode::kAfterAll:
    case Opcode::kAllGatherDone:
    case Opcode::kAllGatherStart:
    case Opcode::kCollectivePermuteDone:
    case Opcode::kCollectivePermuteStart:
    case Opcode::kDynamicReshape:
    case Opcode::kInfeed:
    case Opcode::kOutfeed:
    case Opcode::kRaggedAllToAll:
    case Opcode::kRecv:
    case Opcode::kRecvDone:
    case Opcode::kRngGetAndUpdateState:
    case Opcode::kScan:
    case Opcode::kSend:
    case Opcode::kSendDone:
    case Opcode::kSetDimensionSize: return &kOpaque;
    default: return graph::has_trait(opcode, graph::trait::kSameDims) ? &kElementwise : nullptr;
  }
}

constexpr std::array<const Row*, kNumOpcodes> kTable = [] {
  std::array<const Row*, kNumOpcodes> table{};
  for (int i = 0; i < kNumOpcodes; ++i) table[static_cast<std::size_t>(i)] = own_row(static_cast<Opcode>(i));
  return table;
}();

// The compiler's complaint says which one has none: "HasRow<...Opcode::k...>".
template <Opcode opcode>
struct HasRow {
  static_assert(kTable[static_cast<std::size_t>(opcode)] != nullptr, "give this opcode a row in own_row()");
};
#define AUTOMAP_CHECK_ROW(enumerator, spelling, fewest, most, traits) template struct HasRow<Opcode::enumerator>;
AUTOMAP_OPCODES(AUTOMAP_CHECK_ROW)
#undef AUTOMAP_CHECK_ROW

const Row& row_of(Opcode opcode) {
  return *kTable[static_cast<std::size_t>(opcode)];
}

// Leaves (and tuples) of a tuple that anybody can mean; the flow graph refuses more (graph::kMaxFlowNodes).
constexpr std::size_t kMaxLeaves = 1 << 20;

void add_leaves(const graph::Graph& graph, const Shape& shape, std::vector<const Shape*>* out) {
  // The tuples that are open, and the element of each that comes next: no recursion, tuples may be deep.
  std::vector<std::pair<const Shape*, std::size_t>> open = {{&shape, 0}};
  for (std::size_t steps = 0; !open.empty() && steps < kMaxLeaves; ++steps) {
    auto& [tuple, next] = open.back();
    if (next == tuple->elements.size()) {
      open.pop_back();
      continue;
    }
    const Shape& element = graph.shape(tuple->elements[next++]);
    if (element.is_tuple()) {
      open.emplace_back(&element, 0);
    } else {
      out->push_back(element.is_array() ? &element : nullptr);
    }
  }
}

}  // namespace

const char* to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone: return "none";
    case Reduction::kAdd: return "add";
    case Reduction::kMultiply: return "multiply";
    case Reduction::kMinimum: return "minimum";
    case Reduction::kMaximum: return "maximum";
    case Reduction::kAnd: return "and";
    case Reduction::kOr: return "or";
  }
  return "?";
}

const char* to_string(Block block) {
  switch (block) {
    case Block::kHalo: return "needs neighbouring elements";
    case Block::kWhole: return "needed whole";
    case Block::kMinor: return "minor part of a reshape";
    case Block::kOpaque: return "not looked into";
  }
  return "?";
}

const RuleFamily& rule_family(Opcode opcode) {
  return row_of(opcode).family;
}

std::vector<const Shape*> slots_of(const graph::Graph& graph, InstructionId id) {
  const auto operands = graph.operands(id);
  const Shape& result = graph.shape_of(id);
  std::vector<const Shape*> slots;
  slots.reserve(operands.size() + (result.is_tuple() ? result.elements.size() : 1));
  for (const InstructionId operand : operands) {
    const Shape& shape = graph.shape_of(operand);
    slots.push_back(shape.is_array() ? &shape : nullptr);
  }
  if (result.is_tuple()) {
    add_leaves(graph, result, &slots);
  } else {
    slots.push_back(result.is_array() ? &result : nullptr);
  }
  return slots;
}

namespace {

OpRule ask(const graph::Graph& graph, InstructionId id, std::int64_t least_extent) {
  RuleBuilder builder(graph, id, least_extent);
  if (!builder.refused()) {
    try {
      row_of(graph.instruction(id).opcode).rule(builder);
    } catch (const Error&) {  // a malformed attribute
      builder.refuse();
    }
  }
  return builder.finish();
}

}  // namespace

OpRule rule_of(const graph::Graph& graph, InstructionId id) {
  return ask(graph, id, 2);
}

OpRule growth_rule_of(const graph::Graph& graph, InstructionId id) {
  return ask(graph, id, 1);
}

}  // namespace automap::sharding
