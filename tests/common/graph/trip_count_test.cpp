#include "common/graph/trip_count.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

std::optional<std::int64_t> count_of(const std::string& text) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  const auto counts = trip_counts(graph);
  std::optional<std::int64_t> found;
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    if (graph.instruction(id).opcode != Opcode::kWhile) {
      EXPECT_FALSE(counts[static_cast<std::size_t>(id)].has_value());
      continue;
    }
    EXPECT_EQ(counts[static_cast<std::size_t>(id)], trip_count(graph, id));
    found = counts[static_cast<std::size_t>(id)];
  }
  return found;
}

// A loop over (s32 counter, f32[4]) with the given pieces.
std::string loop(const std::string& first, const std::string& step_op, const std::string& step,
                 const std::string& compare, const std::string& bound) {
  return R"(HloModule m
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  step = s32[] constant()" +
         step + R"()
  j = s32[] )" +
         step_op + R"((i, step)
  y = f32[4] negate(x)
  ROOT r = (s32[], f32[4]) tuple(j, y)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant()" +
         bound + R"()
  ROOT c = pred[] compare)" +
         compare + R"(
}
ENTRY e {
  x = f32[4] parameter(0)
  zero = s32[] constant()" +
         first + R"()
  t = (s32[], f32[4]) tuple(zero, x)
  ROOT w = (s32[], f32[4]) while(t), condition=condition, body=body
})";
}

TEST(TripCount, WorkedCases) {
  EXPECT_EQ(count_of(loop("0", "add", "1", "(i, n), direction=LT", "24")), 24);
  EXPECT_EQ(count_of(loop("10", "subtract", "3", "(i, n), direction=GE", "0")), 4);
  EXPECT_EQ(count_of(loop("5", "add", "1", "(i, n), direction=LT", "5")), 0);
  EXPECT_EQ(count_of(loop("0", "add", "1", "(n, i), direction=GT", "24")), 24);
}

// Against running the loop.
TEST(TripCount, AgreesWithRunningTheLoop) {
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const char* directions[] = {"LT", "LE", "GT", "GE", "NE", "EQ"};
  int known = 0;
  for (int round = 0; round < 400; ++round) {
    const int first = draw(-20, 20), bound = draw(-20, 20), step = draw(-4, 4);
    const int which = draw(0, 5);
    const bool swapped = draw(0, 1) == 1;
    const auto holds = [&](int i) {
      const int a = swapped ? bound : i, b = swapped ? i : bound;
      switch (which) {
        case 0: return a < b;
        case 1: return a <= b;
        case 2: return a > b;
        case 3: return a >= b;
        case 4: return a != b;
        default: return a == b;
      }
    };
    std::optional<std::int64_t> expected = 0;
    for (int i = first; holds(i); i += step) {
      if (++*expected > 1000) {
        expected.reset();
        break;
      }
    }
    const auto found = count_of(loop(std::to_string(first), "add", std::to_string(step),
                                     std::string(swapped ? "(n, i)" : "(i, n)") + ", direction=" + directions[which],
                                     std::to_string(bound)));
    if (found) {
      ++known;
      EXPECT_EQ(found, expected) << first << " step " << step << " " << directions[which] << " " << bound;
    } else {
      // Only endless loops, and those whose counter stands still, are not known.
      EXPECT_TRUE(!expected || step == 0) << first << " step " << step << " " << directions[which] << " " << bound;
    }
  }
  EXPECT_GT(known, 150);
}

TEST(TripCount, KnownTripCountOfTheCompiler) {
  std::string text = loop("0", "add", "1", "(i, n), direction=LT", "24");
  const std::string head = "condition=condition, body=body";
  text.replace(text.find(head), head.size(), head + R"(, backend_config={"known_trip_count":{"n":"7"}})");
  EXPECT_EQ(count_of(text), 7);
  text = loop("0", "multiply", "2", "(i, n), direction=LT", "24");
  text.replace(text.find(head), head.size(), head + R"(, backend_config="{\"known_trip_count\":{\"n\":\"9\"}}")");
  EXPECT_EQ(count_of(text), 9);
}

TEST(TripCount, UnknownWhenTheCounterIsNotLinear) {
  EXPECT_FALSE(count_of(loop("0", "multiply", "2", "(i, n), direction=LT", "24")).has_value());
  EXPECT_FALSE(count_of(loop("0", "add", "-1", "(i, n), direction=LT", "24")).has_value());
}

TEST(TripCount, ThroughCallsConvertsAndAnInvariantBound) {
  const std::string text = R"(HloModule m
next {
  k = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT r = s32[] add(one, k)
}
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
body {
  s = (f32[4], s32[], s32[]) parameter(0)
  x = f32[4] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  c = s32[] copy(i)
  j = s32[] call(c), to_apply=next
  ROOT r = (f32[4], s32[], s32[]) tuple(x, j, n)
}
condition {
  s = (f32[4], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  ROOT c = pred[] call(i, n), to_apply=less
}
inner {
  x = f32[4] parameter(0)
  n = s32[] parameter(1)
  zero = s64[] constant(0)
  i = s32[] convert(zero)
  t = (f32[4], s32[], s32[]) tuple(x, i, n)
  ROOT w = (f32[4], s32[], s32[]) while(t), condition=condition, body=body
}
ENTRY e {
  x = f32[4] parameter(0)
  n = s32[] constant(12)
  ROOT r = (f32[4], s32[], s32[]) call(x, n), to_apply=inner
})";
  EXPECT_EQ(count_of(text), 12);
  // A bound that the body changes is no bound.
  std::string changed = text;
  const std::string handed_on = "tuple(x, j, n)";
  changed.replace(changed.find(handed_on), handed_on.size(), "tuple(x, j, j)");
  EXPECT_FALSE(count_of(changed).has_value());
  // Two callers: the start is no longer one value.
  std::string twice = text;
  const std::string one_call = "ROOT r = (f32[4], s32[], s32[]) call(x, n), to_apply=inner";
  twice.replace(twice.find(one_call), one_call.size(),
                "m = s32[] constant(5)\n  q = (f32[4], s32[], s32[]) call(x, m), to_apply=inner\n  " + one_call);
  EXPECT_FALSE(count_of(twice).has_value());
}

}  // namespace
}  // namespace automap::graph
