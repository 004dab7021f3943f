#include "common/graph/opcode.h"

#include <array>
#include <cstddef>

namespace automap::graph {
namespace {

constexpr std::array<std::string_view, kNumOpcodes> kNames = {"",
#define AUTOMAP_OPCODE_NAME(enumerator, spelling) spelling,
                                                              AUTOMAP_OPCODES(AUTOMAP_OPCODE_NAME)
#undef AUTOMAP_OPCODE_NAME
};

constexpr std::size_t kSlots = 1024;  // a power of two, some seven times the opcodes: probes end at once

constexpr std::uint32_t spelling_hash(std::string_view s) {
  // First, middle and last characters and the length tell all opcodes apart well enough.
  if (s.empty()) return 0;
  const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(s[i])); };
  std::uint32_t h = static_cast<std::uint32_t>(s.size()) * 0x9e3779b1u;
  h = (h ^ at(0)) * 0x85ebca6bu;
  h = (h ^ at(s.size() / 2)) * 0xc2b2ae35u;
  h = (h ^ at(s.size() - 1)) * 0x27d4eb2fu;
  h = (h ^ at(s.size() / 3)) * 0x165667b1u;
  return (h ^ (h >> 15)) & (kSlots - 1);
}

constexpr std::array<std::uint8_t, kSlots> make_table() {
  std::array<std::uint8_t, kSlots> table{};
  for (int i = 1; i < kNumOpcodes; ++i) {
    std::uint32_t slot = spelling_hash(kNames[static_cast<std::size_t>(i)]);
    while (table[slot] != 0) slot = (slot + 1) & (kSlots - 1);
    table[slot] = static_cast<std::uint8_t>(i);
  }
  return table;
}

static_assert(kNumOpcodes < 256, "Opcode and the table hold an opcode in one byte");
constexpr std::array<std::uint8_t, kSlots> kTable = make_table();

Opcode exact_opcode(std::string_view spelling) {
  for (std::uint32_t slot = spelling_hash(spelling); kTable[slot] != 0; slot = (slot + 1) & (kSlots - 1)) {
    if (kNames[kTable[slot]] == spelling) return static_cast<Opcode>(kTable[slot]);
  }
  return Opcode::kUnknown;
}

bool strip_suffix(std::string_view* s, std::string_view suffix) {
  if (s->size() <= suffix.size() || s->substr(s->size() - suffix.size()) != suffix) return false;
  s->remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::string_view opcode_name(Opcode opcode) {
  return kNames[static_cast<std::size_t>(opcode)];
}

Opcode parse_opcode(std::string_view spelling) {
  const Opcode exact = exact_opcode(spelling);
  if (exact != Opcode::kUnknown) return exact;
  Opcode sugar = Opcode::kUnknown;
  if (strip_suffix(&spelling, "-start")) {
    sugar = Opcode::kAsyncStart;
  } else if (strip_suffix(&spelling, "-update")) {
    sugar = Opcode::kAsyncUpdate;
  } else if (strip_suffix(&spelling, "-done")) {
    sugar = Opcode::kAsyncDone;
  } else {
    return Opcode::kUnknown;
  }
  return exact_opcode(spelling) == Opcode::kUnknown ? Opcode::kUnknown : sugar;
}

bool is_elementwise_unary(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAbs:
    case Opcode::kAcos:
    case Opcode::kAcosh:
    case Opcode::kAsin:
    case Opcode::kAsinh:
    case Opcode::kAtanh:
    case Opcode::kCbrt:
    case Opcode::kCeil:
    case Opcode::kConvert:
    case Opcode::kCopy:
    case Opcode::kCosine:
    case Opcode::kCosh:
    case Opcode::kCountLeadingZeros:
    case Opcode::kErf:
    case Opcode::kExponential:
    case Opcode::kExponentialMinusOne:
    case Opcode::kFloor:
    case Opcode::kImag:
    case Opcode::kIsFinite:
    case Opcode::kLog:
    case Opcode::kLogPlusOne:
    case Opcode::kLogistic:
    case Opcode::kNegate:
    case Opcode::kNot:
    case Opcode::kPopcnt:
    case Opcode::kReal:
    case Opcode::kReducePrecision:
    case Opcode::kRoundNearestAfz:
    case Opcode::kRoundNearestEven:
    case Opcode::kRsqrt:
    case Opcode::kSign:
    case Opcode::kSine:
    case Opcode::kSinh:
    case Opcode::kSqrt:
    case Opcode::kTan:
    case Opcode::kTanh: return true;
    default: return false;
  }
}

bool is_elementwise_binary(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAdd:
    case Opcode::kAnd:
    case Opcode::kAtan2:
    case Opcode::kCompare:
    case Opcode::kComplex:
    case Opcode::kDivide:
    case Opcode::kMaximum:
    case Opcode::kMinimum:
    case Opcode::kMulhi:
    case Opcode::kMultiply:
    case Opcode::kOr:
    case Opcode::kPower:
    case Opcode::kRemainder:
    case Opcode::kShiftLeft:
    case Opcode::kShiftRightArithmetic:
    case Opcode::kShiftRightLogical:
    case Opcode::kStochasticConvert:
    case Opcode::kSubtract:
    case Opcode::kXor: return true;
    default: return false;
  }
}

Arity opcode_arity(Opcode opcode) {
  if (is_elementwise_unary(opcode)) return {1, 1};
  if (is_elementwise_binary(opcode)) return {2, 2};
  switch (opcode) {
    case Opcode::kConstant:
    case Opcode::kIota:
    case Opcode::kParameter:
    case Opcode::kPartitionId:
    case Opcode::kReplicaId:
    case Opcode::kRngGetAndUpdateState: return {0, 0};
    case Opcode::kAllGatherDone:
    case Opcode::kAllReduceDone:
    case Opcode::kAsyncDone:
    case Opcode::kAsyncUpdate:
    case Opcode::kBitcast:
    case Opcode::kBitcastConvert:
    case Opcode::kBroadcast:
    case Opcode::kCholesky:
    case Opcode::kCollectivePermuteDone:
    case Opcode::kCopyDone:
    case Opcode::kCopyStart:
    case Opcode::kDomain:
    case Opcode::kFft:
    case Opcode::kGetDimensionSize:
    case Opcode::kGetTupleElement:
    case Opcode::kReshape:
    case Opcode::kReverse:
    case Opcode::kRngBitGenerator:
    case Opcode::kSlice:
    case Opcode::kTopk:
    case Opcode::kTranspose:
    case Opcode::kWhile: return {1, 1};
    case Opcode::kAddDependency:
    case Opcode::kGather:
    case Opcode::kPad:
    case Opcode::kSetDimensionSize:
    case Opcode::kTriangularSolve: return {2, 2};
    case Opcode::kBatchNormTraining:
    case Opcode::kClamp:
    case Opcode::kSelect:
    case Opcode::kSelectAndScatter: return {3, 3};
    case Opcode::kBatchNormGrad:
    case Opcode::kBatchNormInference: return {5, 5};
    case Opcode::kAllGather:
    case Opcode::kAllGatherStart:
    case Opcode::kAllReduce:
    case Opcode::kAllReduceStart:
    case Opcode::kCollectiveBroadcast:
    case Opcode::kCollectivePermute:
    case Opcode::kCollectivePermuteStart:
    case Opcode::kConcatenate:
    case Opcode::kDynamicReshape:
    case Opcode::kDynamicSlice:
    case Opcode::kReduceScatter:
    case Opcode::kSort: return {1, -1};
    case Opcode::kConditional:
    case Opcode::kConvolution:
    case Opcode::kDot:
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kReduce:
    case Opcode::kReduceWindow: return {2, -1};
    case Opcode::kScatter: return {3, -1};
    default: return {0, -1};
  }
}

bool is_collective(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAllGather:
    case Opcode::kAllGatherStart:
    case Opcode::kAllReduce:
    case Opcode::kAllReduceStart:
    case Opcode::kAllToAll:
    case Opcode::kCollectiveBroadcast:
    case Opcode::kCollectivePermute:
    case Opcode::kCollectivePermuteStart:
    case Opcode::kRaggedAllToAll:
    case Opcode::kReduceScatter: return true;
    default: return false;
  }
}

}  // namespace automap::graph
