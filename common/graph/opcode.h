// The table of all opcodes of HLO that XLA knows, with their spelling in HLO text and their traits: one row each. Facts
// about single opcodes stand here and in no list elsewhere.
//
// To add an opcode, add its row here (sorted by spelling). An element-wise one is then complete. Another one needs its
// rule in common/sharding/rule.cpp, which does not compile without; where the defaults of its row are not the whole
// truth, also its FLOPs (hlo_cost.cpp), its shape check (graph_builder_checks.cpp) and its attributes in protobufs
// (common/hlo/proto_attributes.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

// X(enumerator, spelling, fewest operands, most operands (-1: any number), traits)
#define AUTOMAP_OPCODES(X)                                                              \
  X(kAbs, "abs", 1, 1, kArithmetic)                                                     \
  X(kAcos, "acos", 1, 1, kFunction)                                                     \
  X(kAcosh, "acosh", 1, 1, kFunction)                                                   \
  X(kAdd, "add", 2, 2, kArithmetic)                                                     \
  X(kAddDependency, "add-dependency", 2, 2, kNoCost)                                    \
  X(kAfterAll, "after-all", 0, -1, kNoCost)                                             \
  X(kAllGather, "all-gather", 1, -1, kCollective | kListsDimensions)                    \
  X(kAllGatherDone, "all-gather-done", 1, 1, kPlain)                                    \
  X(kAllGatherStart, "all-gather-start", 1, -1, kCollective | kListsDimensions)         \
  X(kAllReduce, "all-reduce", 1, -1, kCollective | kApplies)                            \
  X(kAllReduceDone, "all-reduce-done", 1, 1, kPlain)                                    \
  X(kAllReduceStart, "all-reduce-start", 1, -1, kCollective | kApplies)                 \
  X(kAllToAll, "all-to-all", 0, -1, kCollective)                                        \
  X(kAnd, "and", 2, 2, kArithmetic)                                                     \
  X(kAsin, "asin", 1, 1, kFunction)                                                     \
  X(kAsinh, "asinh", 1, 1, kFunction)                                                   \
  X(kAsyncDone, "async-done", 1, 1, kPlain)                                             \
  X(kAsyncStart, "async-start", 0, -1, kPlain)                                          \
  X(kAsyncUpdate, "async-update", 1, 1, kPlain)                                         \
  X(kAtan2, "atan2", 2, 2, kFunction)                                                   \
  X(kAtanh, "atanh", 1, 1, kFunction)                                                   \
  X(kBatchNormGrad, "batch-norm-grad", 5, 5, kHeavy)                                    \
  X(kBatchNormInference, "batch-norm-inference", 5, 5, kPlain)                          \
  X(kBatchNormTraining, "batch-norm-training", 3, 3, kHeavy)                            \
  X(kBitcast, "bitcast", 1, 1, kMovement | kNoCost)                                     \
  X(kBitcastConvert, "bitcast-convert", 1, 1, kElementwise)                             \
  X(kBroadcast, "broadcast", 1, 1, kMovement | kListsDimensions)                        \
  X(kCall, "call", 0, -1, kHeavy)                                                       \
  X(kCbrt, "cbrt", 1, 1, kFunction)                                                     \
  X(kCeil, "ceil", 1, 1, kArithmetic)                                                   \
  X(kCholesky, "cholesky", 1, 1, kHeavy)                                                \
  X(kClamp, "clamp", 3, 3, kElementwise)                                                \
  X(kCollectiveBroadcast, "collective-broadcast", 1, -1, kCollective)                   \
  X(kCollectivePermute, "collective-permute", 1, -1, kCollective)                       \
  X(kCollectivePermuteDone, "collective-permute-done", 1, 1, kPlain)                    \
  X(kCollectivePermuteStart, "collective-permute-start", 1, -1, kCollective)            \
  X(kCompare, "compare", 2, 2, kArithmetic)                                             \
  X(kComplex, "complex", 2, 2, kArithmetic)                                             \
  X(kConcatenate, "concatenate", 1, -1, kListsDimensions)                               \
  X(kConditional, "conditional", 2, -1, kPlain)                                         \
  X(kConstant, "constant", 0, 0, kNoCost)                                               \
  X(kConvert, "convert", 1, 1, kArithmetic | kMovement)                                 \
  X(kConvolution, "convolution", 2, -1, kHeavy)                                         \
  X(kCopy, "copy", 1, 1, kSameDims | kMovement)                                         \
  X(kCopyDone, "copy-done", 1, 1, kPlain)                                               \
  X(kCopyStart, "copy-start", 1, 1, kPlain)                                             \
  X(kCosh, "cosh", 1, 1, kFunction)                                                     \
  X(kCosine, "cosine", 1, 1, kFunction)                                                 \
  X(kCountLeadingZeros, "count-leading-zeros", 1, 1, kArithmetic)                       \
  X(kCustomCall, "custom-call", 0, -1, kNeverFree)                                      \
  X(kDivide, "divide", 2, 2, kArithmetic)                                               \
  X(kDomain, "domain", 1, 1, kNoCost)                                                   \
  X(kDot, "dot", 2, -1, kHeavy)                                                         \
  X(kDynamicReshape, "dynamic-reshape", 1, -1, kPlain)                                  \
  X(kDynamicSlice, "dynamic-slice", 1, -1, kPlain)                                      \
  X(kDynamicUpdateSlice, "dynamic-update-slice", 2, -1, kPlain)                         \
  X(kErf, "erf", 1, 1, kFunction)                                                       \
  X(kExponential, "exponential", 1, 1, kFunction)                                       \
  X(kExponentialMinusOne, "exponential-minus-one", 1, 1, kFunction)                     \
  X(kFft, "fft", 1, 1, kHeavy)                                                          \
  X(kFloor, "floor", 1, 1, kArithmetic)                                                 \
  X(kFusion, "fusion", 0, -1, kHeavy)                                                   \
  X(kGather, "gather", 2, 2, kPlain)                                                    \
  X(kGetDimensionSize, "get-dimension-size", 1, 1, kListsDimensions)                    \
  X(kGetTupleElement, "get-tuple-element", 1, 1, kNoCost)                               \
  X(kImag, "imag", 1, 1, kArithmetic)                                                   \
  X(kInfeed, "infeed", 0, -1, kHeavy | kNeverFree)                                      \
  X(kIota, "iota", 0, 0, kPlain)                                                        \
  X(kIsFinite, "is-finite", 1, 1, kArithmetic)                                          \
  X(kLog, "log", 1, 1, kFunction)                                                       \
  X(kLogPlusOne, "log-plus-one", 1, 1, kFunction)                                       \
  X(kLogistic, "logistic", 1, 1, kFunction)                                             \
  X(kMap, "map", 0, -1, kListsDimensions | kApplies)                                    \
  X(kMaximum, "maximum", 2, 2, kArithmetic)                                             \
  X(kMinimum, "minimum", 2, 2, kArithmetic)                                             \
  X(kMulhi, "mulhi", 2, 2, kArithmetic)                                                 \
  X(kMultiply, "multiply", 2, 2, kArithmetic)                                           \
  X(kNegate, "negate", 1, 1, kArithmetic)                                               \
  X(kNot, "not", 1, 1, kArithmetic)                                                     \
  X(kOptBarrier, "opt-barrier", 0, -1, kMovement)                                       \
  X(kOr, "or", 2, 2, kArithmetic)                                                       \
  X(kOutfeed, "outfeed", 0, -1, kPlain)                                                 \
  X(kPad, "pad", 2, 2, kPlain)                                                          \
  X(kParameter, "parameter", 0, 0, kNoCost | kNeverFree)                                \
  X(kPartitionId, "partition-id", 0, 0, kPlain)                                         \
  X(kPopcnt, "popcnt", 1, 1, kArithmetic)                                               \
  X(kPower, "power", 2, 2, kFunction)                                                   \
  X(kRaggedAllToAll, "ragged-all-to-all", 0, -1, kCollective)                           \
  X(kRaggedDot, "ragged-dot", 0, -1, kHeavy)                                            \
  X(kReal, "real", 1, 1, kArithmetic)                                                   \
  X(kRecv, "recv", 0, -1, kHeavy | kNeverFree)                                          \
  X(kRecvDone, "recv-done", 0, -1, kHeavy | kNeverFree)                                 \
  X(kReduce, "reduce", 2, -1, kListsDimensions | kApplies)                              \
  X(kReducePrecision, "reduce-precision", 1, 1, kArithmetic | kMovement)                \
  X(kReduceScatter, "reduce-scatter", 1, -1, kCollective | kListsDimensions | kApplies) \
  X(kReduceWindow, "reduce-window", 2, -1, kHeavy | kApplies)                           \
  X(kRemainder, "remainder", 2, 2, kArithmetic)                                         \
  X(kReplicaId, "replica-id", 0, 0, kPlain)                                             \
  X(kReshape, "reshape", 1, 1, kMovement)                                               \
  X(kReverse, "reverse", 1, 1, kMovement | kListsDimensions)                            \
  X(kRng, "rng", 0, -1, kNeverFree)                                                     \
  X(kRngBitGenerator, "rng-bit-generator", 1, 1, kNeverFree)                            \
  X(kRngGetAndUpdateState, "rng-get-and-update-state", 0, 0, kHeavy | kNeverFree)       \
  X(kRoundNearestAfz, "round-nearest-afz", 1, 1, kArithmetic)                           \
  X(kRoundNearestEven, "round-nearest-even", 1, 1, kArithmetic)                         \
  X(kRsqrt, "rsqrt", 1, 1, kFunction)                                                   \
  X(kScaledDot, "scaled-dot", 0, -1, kHeavy)                                            \
  X(kScan, "scan", 0, -1, kHeavy | kApplies)                                            \
  X(kScatter, "scatter", 3, -1, kHeavy | kApplies)                                      \
  X(kSelect, "select", 3, 3, kElementwise)                                              \
  X(kSelectAndScatter, "select-and-scatter", 3, 3, kHeavy)                              \
  X(kSend, "send", 0, -1, kPlain)                                                       \
  X(kSendDone, "send-done", 0, -1, kPlain)                                              \
  X(kSetDimensionSize, "set-dimension-size", 2, 2, kListsDimensions)                    \
  X(kShiftLeft, "shift-left", 2, 2, kArithmetic)                                        \
  X(kShiftRightArithmetic, "shift-right-arithmetic", 2, 2, kArithmetic)                 \
  X(kShiftRightLogical, "shift-right-logical", 2, 2, kArithmetic)                       \
  X(kSign, "sign", 1, 1, kArithmetic)                                                   \
  X(kSine, "sine", 1, 1, kFunction)                                                     \
  X(kSinh, "sinh", 1, 1, kFunction)                                                     \
  X(kSlice, "slice", 1, 1, kPlain)                                                      \
  X(kSort, "sort", 1, -1, kHeavy | kListsDimensions | kApplies)                         \
  X(kSqrt, "sqrt", 1, 1, kFunction)                                                     \
  X(kStochasticConvert, "stochastic-convert", 2, 2, kArithmetic)                        \
  X(kSubtract, "subtract", 2, 2, kArithmetic)                                           \
  X(kTan, "tan", 1, 1, kFunction)                                                       \
  X(kTanh, "tanh", 1, 1, kFunction)                                                     \
  X(kTopk, "topk", 1, 1, kHeavy)                                                        \
  X(kTranspose, "transpose", 1, 1, kMovement | kListsDimensions)                        \
  X(kTriangularSolve, "triangular-solve", 2, 2, kHeavy)                                 \
  X(kTuple, "tuple", 0, -1, kPlain)                                                     \
  X(kWhile, "while", 1, 1, kHeavy | kNeverFree)                                         \
  X(kXor, "xor", 2, 2, kArithmetic)

namespace automap::graph {

enum class Opcode : std::uint8_t {
  kUnknown,
#define AUTOMAP_OPCODE_ENUMERATOR(enumerator, spelling, fewest, most, traits) enumerator,
  AUTOMAP_OPCODES(AUTOMAP_OPCODE_ENUMERATOR)
#undef AUTOMAP_OPCODE_ENUMERATOR
};

// A set of facts about an opcode.
using OpcodeTraits = std::uint16_t;
namespace trait {
constexpr OpcodeTraits kPlain = 0;
// The result has the operands' dimensions, element by element (convert, compare and complex change the type).
constexpr OpcodeTraits kSameDims = 1 << 0;
// Element i of the result depends on element i of the operands only (convert, select, compare and clamp included;
// copy, broadcast and reshape not). Costs a FLOP per element.
constexpr OpcodeTraits kElementwise = 1 << 1;
// Costs a transcendental per element instead of a FLOP.
constexpr OpcodeTraits kTranscendental = 1 << 2;
// With one operand: the result holds the operand's elements, each at least once (rounded at most).
constexpr OpcodeTraits kMovement = 1 << 3;
// Neither FLOPs nor bytes by XLA's cost analysis.
constexpr OpcodeTraits kNoCost = 1 << 4;
// Work that nobody does twice to save a transfer. Collectives are heavy without it.
constexpr OpcodeTraits kHeavy = 1 << 5;
// Its value does not follow from its operands (inputs, random numbers, loops, unknown calls): it is not made of
// constants even where they all are.
constexpr OpcodeTraits kNeverFree = 1 << 6;
// Moves or combines data between devices; the starts of asynchronous pairs included, their ends not.
constexpr OpcodeTraits kCollective = 1 << 7;
// HLO text has dimensions={...} on it even when there are none.
constexpr OpcodeTraits kListsDimensions = 1 << 8;
// Calls one computation on elements: to_apply.
constexpr OpcodeTraits kApplies = 1 << 9;

constexpr OpcodeTraits kArithmetic = kSameDims | kElementwise;
constexpr OpcodeTraits kFunction = kArithmetic | kTranscendental;
}  // namespace trait

struct OpcodeRow {
  std::string_view name;  // "dot" for kDot; "" for kUnknown
  std::int8_t fewest_operands = 0;
  std::int8_t most_operands = -1;
  OpcodeTraits traits = trait::kPlain;
};

constexpr int kNumOpcodes = 1
#define AUTOMAP_OPCODE_COUNT(enumerator, spelling, fewest, most, traits) +1
    AUTOMAP_OPCODES(AUTOMAP_OPCODE_COUNT)
#undef AUTOMAP_OPCODE_COUNT
    ;

namespace trait {
constexpr std::array<OpcodeRow, kNumOpcodes> kRows = {{{"", 0, -1, kHeavy},
#define AUTOMAP_OPCODE_ROW(enumerator, spelling, fewest, most, traits) {spelling, fewest, most, traits},
                                                       AUTOMAP_OPCODES(AUTOMAP_OPCODE_ROW)
#undef AUTOMAP_OPCODE_ROW
}};
}  // namespace trait

constexpr const OpcodeRow& opcode_row(Opcode opcode) {
  return trait::kRows[static_cast<std::size_t>(opcode)];
}
// Any of `traits`.
constexpr bool has_trait(Opcode opcode, OpcodeTraits traits) {
  return (opcode_row(opcode).traits & traits) != 0;
}

// "dot" for kDot; "" for kUnknown.
constexpr std::string_view opcode_name(Opcode opcode) {
  return opcode_row(opcode).name;
}
// kUnknown when the spelling is not one of ours. The sugar "<op>-start", "-update" and "-done" of an op we know, but
// that has no opcode of its own ("slice-start"), is kAsyncStart, kAsyncUpdate, kAsyncDone. Constant time.
Opcode parse_opcode(std::string_view spelling);

// The number of operands that an opcode takes: min..max, max = -1 for "any number".
struct Arity {
  int min = 0;
  int max = -1;
};
constexpr Arity opcode_arity(Opcode opcode) {
  return {opcode_row(opcode).fewest_operands, opcode_row(opcode).most_operands};
}

// trait::kSameDims of one operand, of two.
constexpr bool is_elementwise_unary(Opcode opcode) {
  return has_trait(opcode, trait::kSameDims) && opcode_row(opcode).most_operands == 1;
}
constexpr bool is_elementwise_binary(Opcode opcode) {
  return has_trait(opcode, trait::kSameDims) && opcode_row(opcode).most_operands == 2;
}
constexpr bool is_elementwise(Opcode opcode) {
  return has_trait(opcode, trait::kElementwise);
}
constexpr bool is_transcendental(Opcode opcode) {
  return has_trait(opcode, trait::kTranscendental);
}
constexpr bool is_collective(Opcode opcode) {
  return has_trait(opcode, trait::kCollective);
}

}  // namespace automap::graph
