#include "common/graph/opcode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace automap::graph {
namespace {

TEST(Opcode, EverySpellingIsFoundAndPrinted) {
  for (int i = 1; i < kNumOpcodes; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    ASSERT_FALSE(opcode_name(opcode).empty());
    EXPECT_EQ(parse_opcode(opcode_name(opcode)), opcode) << opcode_name(opcode);
  }
  EXPECT_EQ(opcode_name(Opcode::kUnknown), "");
}

TEST(Opcode, SpellingsAreSortedAndUnique) {
  for (int i = 2; i < kNumOpcodes; ++i) {
    EXPECT_LT(opcode_name(static_cast<Opcode>(i - 1)), opcode_name(static_cast<Opcode>(i)));
  }
}

TEST(Opcode, UnknownSpellings) {
  for (const char* s : {"", "ad", "addd", "Add", "frobnicate", "-start", "frobnicate-start", "add-", "kAdd"}) {
    EXPECT_EQ(parse_opcode(s), Opcode::kUnknown) << s;
  }
  // Single-character changes of every known spelling are either unknown or another known one, never a wrong hit.
  for (int i = 1; i < kNumOpcodes; ++i) {
    std::string s(opcode_name(static_cast<Opcode>(i)));
    for (char& c : s) {
      const char old = c;
      c = 'q';
      const Opcode found = parse_opcode(s);
      if (found != Opcode::kUnknown) {
        EXPECT_EQ(opcode_name(found), s);
      }
      c = old;
    }
  }
}

TEST(Opcode, AsyncSugarOfKnownOpcodes) {
  EXPECT_EQ(parse_opcode("slice-start"), Opcode::kAsyncStart);
  EXPECT_EQ(parse_opcode("custom-call-update"), Opcode::kAsyncUpdate);
  EXPECT_EQ(parse_opcode("reduce-scatter-done"), Opcode::kAsyncDone);
  EXPECT_EQ(parse_opcode("all-reduce-start"), Opcode::kAllReduceStart);  // has an opcode of its own
}

TEST(Opcode, Arity) {
  EXPECT_EQ(opcode_arity(Opcode::kAdd).min, 2);
  EXPECT_EQ(opcode_arity(Opcode::kAdd).max, 2);
  EXPECT_EQ(opcode_arity(Opcode::kTanh).max, 1);
  EXPECT_EQ(opcode_arity(Opcode::kSelect).max, 3);
  EXPECT_EQ(opcode_arity(Opcode::kParameter).max, 0);
  EXPECT_EQ(opcode_arity(Opcode::kTuple).max, -1);
  EXPECT_EQ(opcode_arity(Opcode::kUnknown).min, 0);
  EXPECT_EQ(opcode_arity(Opcode::kUnknown).max, -1);
  for (int i = 0; i < kNumOpcodes; ++i) {
    const Arity arity = opcode_arity(static_cast<Opcode>(i));
    EXPECT_TRUE(arity.max == -1 || arity.min <= arity.max);
    EXPECT_FALSE(is_elementwise_unary(static_cast<Opcode>(i)) && is_elementwise_binary(static_cast<Opcode>(i)));
  }
}

TEST(Opcode, TraitsOfARowFitEachOther) {
  for (int i = 0; i < kNumOpcodes; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const std::string name(opcode_name(opcode));
    const Arity arity = opcode_arity(opcode);
    if (is_transcendental(opcode)) {
      EXPECT_TRUE(is_elementwise(opcode)) << name;
    }
    // Whose dimensions the result has is clear for one or two operands only.
    EXPECT_EQ(has_trait(opcode, trait::kSameDims), is_elementwise_unary(opcode) || is_elementwise_binary(opcode))
        << name;
    if (is_elementwise_binary(opcode)) {
      EXPECT_EQ(arity.min, 2) << name;
    }
    // One FLOP per element, or none and no bytes, or much work: one of them.
    const int kinds = is_elementwise(opcode) + has_trait(opcode, trait::kNoCost) +
                      has_trait(opcode, trait::kHeavy | trait::kCollective);
    EXPECT_LE(kinds, 1) << name;
    if (has_trait(opcode, trait::kMovement)) {
      EXPECT_TRUE(arity.min == 1 || opcode == Opcode::kOptBarrier) << name;
    }
  }
  EXPECT_TRUE(is_transcendental(Opcode::kTanh) && !is_transcendental(Opcode::kAdd));
  EXPECT_TRUE(is_elementwise(Opcode::kSelect) && !is_elementwise(Opcode::kCopy));
  EXPECT_TRUE(is_collective(Opcode::kAllGatherStart) && !is_collective(Opcode::kAllGatherDone));
}

}  // namespace
}  // namespace automap::graph
