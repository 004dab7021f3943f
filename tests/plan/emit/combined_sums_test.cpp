#include "plan/emit/combined_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/hlo/hlo_reader.h"
#include "plan/emit/emit.h"
#include "tests/common/sharding/decided_module.h"

namespace automap::emit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const char* const kModule = R"(HloModule m

ENTRY e {
  x = f32[4,8]{1,0} parameter(0)
  w = bf16[8,6]{1,0} parameter(1)
  v = f32[8,6]{1,0} parameter(2)
  c = f32[4,6]{1,0} parameter(3)
  h = f32[8,6]{1,0} convert(w)
  p = f32[4,6]{1,0} dot(x, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[4,6]{1,0} dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  m = f32[4,6]{1,0} multiply(q, c)
  s = f32[4,6]{1,0} add(p, m)
  t = f32[4,6]{1,0} tanh(s)
  ROOT r = (f32[4,6]{1,0}, f32[4,6]{1,0}) tuple(s, t)
}
)";

TEST(CombinedSums, AreWrittenByHand) {
  sharding::DecidedModule m(hlo::read_hlo(kModule, "t.hlo").graph, 2);
  ASSERT_FALSE(m.decided.split({m.node("x"), 1}));
  // Apart: XLA reduces both by itself.
  const std::string apart = emit_hlo(m.model, m.decided);
  EXPECT_THAT(apart, Not(HasSubstr("manual")));
  EXPECT_TRUE(CombinedSums(Layout({{&m.model, &m.decided}})).empty());

  m.model.combine_sums(true);
  const std::string text = emit_hlo(m.model, m.decided);
  const auto line = [&](const std::string& begin) {
    const std::size_t at = text.find("\n  " + begin + " = ");
    EXPECT_NE(at, std::string::npos) << begin << "\n" << text;
    return text.substr(at + 3, text.find('\n', at + 1) - at - 3);
  };
  // A device's part of what is summed over, and all of what it is multiplied with.
  EXPECT_EQ(line("%x.sharded.1"),
            "%x.sharded.1 = f32[4,8]{1,0} custom-call(%x), custom_call_target=\"Sharding\", "
            "sharding={devices=[1,2]<=[2]}");
  EXPECT_THAT(line("%x.part.1"), HasSubstr("f32[4,4]{1,0} custom-call(%x.sharded.1)"));
  EXPECT_THAT(line("%h.part.1"), HasSubstr("f32[4,6]{1,0} custom-call(%h.sharded.1)"));
  EXPECT_THAT(line("%c.part.1"), HasSubstr("f32[4,6]{1,0} custom-call(%c.sharded.1)"));
  EXPECT_THAT(line("%c.sharded.1"), HasSubstr("sharding={replicated}"));
  EXPECT_THAT(line("p"), HasSubstr("dot(%x.part.1, %h.part.1)"));
  EXPECT_THAT(line("s"), HasSubstr("add(p, m), sharding={manual}"));
  EXPECT_THAT(line("%s.reduced.1"), HasSubstr("all-reduce(%s), channel_id=1, replica_groups={{0,1}}"));
  EXPECT_THAT(line("t"), HasSubstr("tanh(s.sum.1)"));
  EXPECT_THAT(text, HasSubstr("tuple(s.sum.1, t)"));
  // One all-reduce, read back as a module of its own.
  EXPECT_EQ(text.find("all-reduce("), text.rfind("all-reduce("));
  EXPECT_NO_THROW(hlo::read_hlo(text, "again.hlo"));
}

// Of a whole tensor that is added every device takes its share; integers and three devices have no shares.
TEST(CombinedSums, SharesOfWhatIsWhole) {
  const auto emitted = [](std::string type, int devices) {
    std::string text = R"(HloModule m

ENTRY e {
  x = T[4,24]{1,0} parameter(0)
  w = T[24,6]{1,0} parameter(1)
  v = T[24,6]{1,0} parameter(2)
  c = T[4,6]{1,0} parameter(3)
  p = T[4,6]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = T[4,6]{1,0} dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  m = T[4,6]{1,0} add(c, p)
  s = T[4,6]{1,0} subtract(m, q)
  ROOT r = (T[4,6]{1,0}, T[4,6]{1,0}) tuple(s, c)
}
)";
    for (std::size_t at; (at = text.find("T[")) != std::string::npos;) text.replace(at, 1, type);
    sharding::DecidedModule m(hlo::read_hlo(text, "t.hlo").graph, devices);
    EXPECT_FALSE(m.decided.split({m.node("x"), 1}));
    m.model.combine_sums(true);
    return emit_hlo(m.model, m.decided);
  };
  const std::string text = emitted("bf16", 8);
  EXPECT_THAT(text, HasSubstr("%c.nth.1 = bf16[] constant(0.125), sharding={manual}\n"));
  EXPECT_THAT(text, HasSubstr("%c.nths.1 = bf16[4,6]{1,0} broadcast(%c.nth.1), dimensions={}, sharding={manual}\n"));
  EXPECT_THAT(text, HasSubstr("%c.share.1 = bf16[4,6]{1,0} multiply(%c.part.1, %c.nths.1), sharding={manual}\n"));
  EXPECT_THAT(text, HasSubstr("m = bf16[4,6]{1,0} add(%c.share.1, p), sharding={manual}\n"));
  EXPECT_THAT(text, HasSubstr("all-reduce(%s)"));
  EXPECT_THAT(emitted("s32", 8), Not(HasSubstr("manual")));
  EXPECT_THAT(emitted("f32", 3), Not(HasSubstr("manual")));
}

}  // namespace
}  // namespace automap::emit
