// The HLO opcodes we know. Others are Opcode::kUnknown and keep their name in Instruction::opcode_name.
#pragma once

#include <cstdint>
#include <string_view>

// X(enumerator, spelling), in the alphabetical order of the spelling. Add an opcode here and nowhere else.
#define AUTOMAP_OPCODES(X)                               \
  X(kAbs, "abs")                                         \
  X(kAcos, "acos")                                       \
  X(kAcosh, "acosh")                                     \
  X(kAdd, "add")                                         \
  X(kAddDependency, "add-dependency")                    \
  X(kAfterAll, "after-all")                              \
  X(kAllGather, "all-gather")                            \
  X(kAllGatherDone, "all-gather-done")                   \
  X(kAllGatherStart, "all-gather-start")                 \
  X(kAllReduce, "all-reduce")                            \
  X(kAllReduceDone, "all-reduce-done")                   \
  X(kAllReduceStart, "all-reduce-start")                 \
  X(kAllToAll, "all-to-all")                             \
  X(kAnd, "and")                                         \
  X(kAsin, "asin")                                       \
  X(kAsinh, "asinh")                                     \
  X(kAsyncDone, "async-done")                            \
  X(kAsyncStart, "async-start")                          \
  X(kAsyncUpdate, "async-update")                        \
  X(kAtan2, "atan2")                                     \
  X(kAtanh, "atanh")                                     \
  X(kBatchNormGrad, "batch-norm-grad")                   \
  X(kBatchNormInference, "batch-norm-inference")         \
  X(kBatchNormTraining, "batch-norm-training")           \
  X(kBitcast, "bitcast")                                 \
  X(kBitcastConvert, "bitcast-convert")                  \
  X(kBroadcast, "broadcast")                             \
  X(kCall, "call")                                       \
  X(kCbrt, "cbrt")                                       \
  X(kCeil, "ceil")                                       \
  X(kCholesky, "cholesky")                               \
  X(kClamp, "clamp")                                     \
  X(kCollectiveBroadcast, "collective-broadcast")        \
  X(kCollectivePermute, "collective-permute")            \
  X(kCollectivePermuteDone, "collective-permute-done")   \
  X(kCollectivePermuteStart, "collective-permute-start") \
  X(kCompare, "compare")                                 \
  X(kComplex, "complex")                                 \
  X(kConcatenate, "concatenate")                         \
  X(kConditional, "conditional")                         \
  X(kConstant, "constant")                               \
  X(kConvert, "convert")                                 \
  X(kConvolution, "convolution")                         \
  X(kCopy, "copy")                                       \
  X(kCopyDone, "copy-done")                              \
  X(kCopyStart, "copy-start")                            \
  X(kCosh, "cosh")                                       \
  X(kCosine, "cosine")                                   \
  X(kCountLeadingZeros, "count-leading-zeros")           \
  X(kCustomCall, "custom-call")                          \
  X(kDivide, "divide")                                   \
  X(kDomain, "domain")                                   \
  X(kDot, "dot")                                         \
  X(kDynamicReshape, "dynamic-reshape")                  \
  X(kDynamicSlice, "dynamic-slice")                      \
  X(kDynamicUpdateSlice, "dynamic-update-slice")         \
  X(kErf, "erf")                                         \
  X(kExponential, "exponential")                         \
  X(kExponentialMinusOne, "exponential-minus-one")       \
  X(kFft, "fft")                                         \
  X(kFloor, "floor")                                     \
  X(kFusion, "fusion")                                   \
  X(kGather, "gather")                                   \
  X(kGetDimensionSize, "get-dimension-size")             \
  X(kGetTupleElement, "get-tuple-element")               \
  X(kImag, "imag")                                       \
  X(kInfeed, "infeed")                                   \
  X(kIota, "iota")                                       \
  X(kIsFinite, "is-finite")                              \
  X(kLog, "log")                                         \
  X(kLogPlusOne, "log-plus-one")                         \
  X(kLogistic, "logistic")                               \
  X(kMap, "map")                                         \
  X(kMaximum, "maximum")                                 \
  X(kMinimum, "minimum")                                 \
  X(kMulhi, "mulhi")                                     \
  X(kMultiply, "multiply")                               \
  X(kNegate, "negate")                                   \
  X(kNot, "not")                                         \
  X(kOptBarrier, "opt-barrier")                          \
  X(kOr, "or")                                           \
  X(kOutfeed, "outfeed")                                 \
  X(kPad, "pad")                                         \
  X(kParameter, "parameter")                             \
  X(kPartitionId, "partition-id")                        \
  X(kPopcnt, "popcnt")                                   \
  X(kPower, "power")                                     \
  X(kRaggedAllToAll, "ragged-all-to-all")                \
  X(kRaggedDot, "ragged-dot")                            \
  X(kReal, "real")                                       \
  X(kRecv, "recv")                                       \
  X(kRecvDone, "recv-done")                              \
  X(kReduce, "reduce")                                   \
  X(kReducePrecision, "reduce-precision")                \
  X(kReduceScatter, "reduce-scatter")                    \
  X(kReduceWindow, "reduce-window")                      \
  X(kRemainder, "remainder")                             \
  X(kReplicaId, "replica-id")                            \
  X(kReshape, "reshape")                                 \
  X(kReverse, "reverse")                                 \
  X(kRng, "rng")                                         \
  X(kRngBitGenerator, "rng-bit-generator")               \
  X(kRngGetAndUpdateState, "rng-get-and-update-state")   \
  X(kRoundNearestAfz, "round-nearest-afz")               \
  X(kRoundNearestEven, "round-nearest-even")             \
  X(kRsqrt, "rsqrt")                                     \
  X(kScaledDot, "scaled-dot")                            \
  X(kScan, "scan")                                       \
  X(kScatter, "scatter")                                 \
  X(kSelect, "select")                                   \
  X(kSelectAndScatter, "select-and-scatter")             \
  X(kSend, "send")                                       \
  X(kSendDone, "send-done")                              \
  X(kSetDimensionSize, "set-dimension-size")             \
  X(kShiftLeft, "shift-left")                            \
  X(kShiftRightArithmetic, "shift-right-arithmetic")     \
  X(kShiftRightLogical, "shift-right-logical")           \
  X(kSign, "sign")                                       \
  X(kSine, "sine")                                       \
  X(kSinh, "sinh")                                       \
  X(kSlice, "slice")                                     \
  X(kSort, "sort")                                       \
  X(kSqrt, "sqrt")                                       \
  X(kStochasticConvert, "stochastic-convert")            \
  X(kSubtract, "subtract")                               \
  X(kTan, "tan")                                         \
  X(kTanh, "tanh")                                       \
  X(kTopk, "topk")                                       \
  X(kTranspose, "transpose")                             \
  X(kTriangularSolve, "triangular-solve")                \
  X(kTuple, "tuple")                                     \
  X(kWhile, "while")                                     \
  X(kXor, "xor")

namespace automap::graph {

enum class Opcode : std::uint8_t {
  kUnknown,
#define AUTOMAP_OPCODE_ENUMERATOR(enumerator, spelling) enumerator,
  AUTOMAP_OPCODES(AUTOMAP_OPCODE_ENUMERATOR)
#undef AUTOMAP_OPCODE_ENUMERATOR
};

constexpr int kNumOpcodes = 1
#define AUTOMAP_OPCODE_COUNT(enumerator, spelling) +1
    AUTOMAP_OPCODES(AUTOMAP_OPCODE_COUNT)
#undef AUTOMAP_OPCODE_COUNT
    ;

// "dot" for kDot; "" for kUnknown.
std::string_view opcode_name(Opcode opcode);
// kUnknown when the spelling is not one of ours. The sugar "<op>-start", "-update" and "-done" of an op we know, but
// that has no opcode of its own ("slice-start"), is kAsyncStart, kAsyncUpdate, kAsyncDone. Constant time.
Opcode parse_opcode(std::string_view spelling);

// How many operands an opcode takes: min..max, max = -1 for "any number".
struct Arity {
  int min = 0;
  int max = -1;
};
Arity opcode_arity(Opcode opcode);

// Result and operand have the same dimensions, element by element (convert and is-finite change the type).
bool is_elementwise_unary(Opcode opcode);
// Both operands and the result have the same dimensions, element by element (compare and complex change the type).
bool is_elementwise_binary(Opcode opcode);
// Moves or combines data between devices; the starts of asynchronous pairs included, their ends not.
bool is_collective(Opcode opcode);

}  // namespace automap::graph
