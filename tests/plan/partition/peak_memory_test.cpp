#include "plan/partition/peak_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "common/hlo/hlo_reader.h"

namespace automap::partition {
namespace {

using graph::kNone;
using graph::NodeId;

struct PeakCase {
  hlo::HloModule module;
  sharding::ShardingModel model;

  explicit PeakCase(const std::string& text) : module(hlo::read_hlo(text, "test")), model(build(module.graph)) {}
  static sharding::ShardingModel build(const graph::Graph& graph) {
    sharding::ModelOptions options;
    options.shards = 2;
    return sharding::ShardingModel::build(graph, options);
  }
  std::vector<double> whole() const { return std::vector<double>(at(model.flow().size()), 1); }
  PeakMemory peak() const { return peak_memory(model, whole()); }
  NodeId node(const std::string& name) const {
    for (NodeId id = 0; id < model.flow().size(); ++id) {
      if (module.graph.instruction(model.flow().node(id).instruction).name == name) return id;
    }
    ADD_FAILURE() << name;
    return 0;
  }
  std::string peak_at() const {
    const PeakMemory found = peak();
    if (found.at == kNone) return "-";
    return std::string(module.graph.instruction(model.flow().node(found.at).instruction).name);
  }
};

const std::string kDot = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";

// The worked case of the header.
TEST(PeakMemory, WorkedCase) {
  const PeakCase c("HloModule m\nENTRY e {\n  x = f32[4,4] parameter(0)\n  y = f32[4,4] dot(x, x)" + kDot +
                   "  p = f32[4,4] dot(y, y)" + kDot + "  ROOT z = f32[4,4] tanh(p)\n}\n");
  const PeakMemory peak = c.peak();
  EXPECT_EQ(peak.arguments, 64);
  EXPECT_EQ(peak.results, 64);
  EXPECT_EQ(peak.temporaries, 64);  // one of y and p, while the other one lies where z will
  EXPECT_EQ(peak.total, 192);
  EXPECT_EQ(c.peak_at(), "p");
}

TEST(PeakMemory, FusedInstructionsTakeNothing) {
  const PeakCase c(
      "HloModule m\nENTRY e {\n  x = f32[4,4] parameter(0)\n  b = f32[4] parameter(1)\n  y = f32[4,4] dot(x, x)" +
      kDot +
      "  wide = f32[4,4] broadcast(b), dimensions={1}\n  sum = f32[4,4] add(y, wide)\n  t = f32[4,4] tanh(sum)\n"
      "  two = f32[] constant(2)\n  twos = f32[4,4] broadcast(two), dimensions={}\n"
      "  ROOT z = f32[4,4] multiply(t, twos)\n}\n");
  EXPECT_EQ(c.peak().arguments, 80);
  EXPECT_EQ(c.peak().temporaries, 0);  // y lies where z is written over it
  EXPECT_EQ(c.peak().total, 144);
}

// exp has two readers, and is kept; a sum of one tensor and a broadcast is made twice.
TEST(PeakMemory, CostlyInstructionsAreKept) {
  const auto module = [](const std::string& what) {
    return "HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }\n"
           "ENTRY e {\n  x = f32[4,4] parameter(0)\n  w = f32[4,4] parameter(1)\n  y = f32[4,4] dot(x, w)" +
           kDot + "  one = f32[] constant(1)\n  ones = f32[4,4] broadcast(one), dimensions={}\n  v = f32[4,4] " + what +
           "\n  p = f32[4,4] negate(v)\n  q = f32[4,4] abs(v)\n  ROOT r = (f32[4,4], f32[4,4]) tuple(p, q)\n}\n";
  };
  EXPECT_EQ(PeakCase(module("add(y, ones)")).peak().temporaries, 64);    // y
  EXPECT_EQ(PeakCase(module("exponential(y)")).peak().temporaries, 64);  // exp in the place of y
  EXPECT_EQ(PeakCase(module("transpose(y), dimensions={1,0}")).peak().temporaries, 64);
  const PeakCase cheap(module("add(y, ones)"));
  EXPECT_EQ(memory_steps(cheap.model, cheap.whole(), {}).steps.size(), 3u);
  const PeakCase costly(module("exponential(y)"));
  EXPECT_EQ(memory_steps(costly.model, costly.whole(), {}).steps.size(), 4u);
}

TEST(PeakMemory, ProductsReadInOrder) {
  const auto module = [](const std::string& dims) {
    return "HloModule m\nENTRY e {\n  x = f32[4,8] parameter(0)\n  y = f32[4,4] parameter(1)\n  ROOT z = f32[4,8,4] "
           "dot(x, y), " +
           dims + "\n}\n";
  };
  // The batch first: nothing is copied.
  EXPECT_EQ(
      PeakCase(
          "HloModule m\nENTRY e {\n  x = f32[4,8,2] parameter(0)\n  y = f32[4,2,8] parameter(1)\n  ROOT z = f32[4,8,8] "
          "dot(x, y), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
          "rhs_contracting_dims={1}\n}\n")
          .peak()
          .temporaries,
      0);
  // The batch second: x is copied, 256 bytes.
  EXPECT_EQ(
      PeakCase(
          "HloModule m\nENTRY e {\n  x = f32[8,4,2] parameter(0)\n  y = f32[4,2,8] parameter(1)\n  ROOT z = f32[4,8,8] "
          "dot(x, y), lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
          "rhs_contracting_dims={1}\n}\n")
          .peak()
          .temporaries,
      256);
  EXPECT_EQ(PeakCase(module("lhs_batch_dims={0}, rhs_batch_dims={0}")).peak().temporaries, 0);
}

const char* const kLoop =
    "HloModule m\n"
    "body {\n  s = (s32[], f32[8], f32[8]) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
    "  a = f32[8] get-tuple-element(s), index=1\n  w = f32[8] get-tuple-element(s), index=2\n"
    "  one = s32[] constant(1)\n  j = s32[] add(i, one)\n  e = f32[8] exponential(a)\n  n = f32[8] sort(e), "
    "dimensions={0}, "
    "to_apply=less\n  b = f32[8] multiply(n, w)\n  ROOT t = (s32[], f32[8], f32[8]) tuple(j, b, w)\n}\n"
    "less {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT l = pred[] compare(p, q), direction=LT\n}\n"
    "cond {\n  s = (s32[], f32[8], f32[8]) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n  k = s32[] "
    "constant(3)\n"
    "  ROOT l = pred[] compare(i, k), direction=LT\n}\n";

// The state (32 + 4), and within the loop the exponential, which sort reads and does not write over.
TEST(PeakMemory, Loops) {
  const PeakCase c(std::string(kLoop) +
                   "ENTRY e {\n  x = f32[8] parameter(0)\n  w = f32[8] parameter(1)\n  zero = s32[] constant(0)\n"
                   "  s = (s32[], f32[8], f32[8]) tuple(zero, x, w)\n"
                   "  r = (s32[], f32[8], f32[8]) while(s), condition=cond, body=body\n"
                   "  a = f32[8] get-tuple-element(r), index=1\n  ROOT z = f32[8] negate(a)\n}\n");
  EXPECT_EQ(c.peak().arguments, 64);
  EXPECT_EQ(c.peak().results, 32);
  // Where z will be lies the state's tensor; the counter, the exponential and what sort makes of it remain.
  EXPECT_EQ(c.peak().temporaries, 4 + 64);
}

// Zeros that a loop begins with are as large as its state, whose part they have.
TEST(PeakMemory, LoopsBeginWithWhatTheyNeed) {
  const PeakCase c(std::string(kLoop) +
                   "ENTRY e {\n  w = f32[8] parameter(0)\n  zero = s32[] constant(0)\n  null = f32[] constant(0)\n"
                   "  x = f32[8] broadcast(null), dimensions={}\n  s = (s32[], f32[8], f32[8]) tuple(zero, x, w)\n"
                   "  r = (s32[], f32[8], f32[8]) while(s), condition=cond, body=body\n"
                   "  a = f32[8] get-tuple-element(r), index=1\n  ROOT z = f32[8] exponential(a)\n}\n");
  EXPECT_EQ(c.peak().temporaries, 4 + 64);
  std::vector<double> part = c.whole();
  for (const graph::FlowLoop& loop : c.model.flow().loops()) {
    for (const NodeId parameter : loop.parameter) part[at(parameter)] = 0.5;
  }
  const MemorySteps steps = memory_steps(c.model, part, {});
  double zeros = 0;
  for (const MemoryBuffer& buffer : steps.buffers) {
    if (buffer.writer != kNone && buffer.node == c.node("x")) zeros = buffer.bytes;
  }
  EXPECT_EQ(zeros, 16);
}

TEST(PeakMemory, OneBranchRuns) {
  const PeakCase c(
      "HloModule m\n"
      "few {\n  x = f32[4,4] parameter(0)\n  ROOT t = f32[4,4] tanh(x)\n}\n"
      "many {\n  x = f32[4,4] parameter(0)\n  a = f32[4,4] dot(x, x)" +
      kDot + "  b = f32[4,4] dot(a, a)" + kDot + "  ROOT c = f32[4,4] dot(b, a)" + kDot +
      "}\n"
      "ENTRY e {\n  p = pred[] parameter(0)\n  x = f32[4,4] parameter(1)\n"
      "  ROOT z = f32[4,4] conditional(p, x, x), true_computation=few, false_computation=many\n}\n");
  // a, b and c of the larger branch.
  EXPECT_EQ(c.peak().results, 64);
  EXPECT_EQ(c.peak().temporaries, 192);
}

// A gradient as large as what it updates: with the argument given away, the new value takes its place.
TEST(PeakMemory, ResultsInTheirArgumentsPlace) {
  const std::string body =
      "ENTRY e {\n  w = f32[4,4] parameter(0)\n  x = f32[4,4] parameter(1)\n  g = f32[4,4] dot(x, x)" + kDot +
      "  ROOT n = f32[4,4] subtract(w, g)\n}\n";
  const PeakMemory kept = PeakCase("HloModule m\n" + body).peak();
  EXPECT_EQ(kept.arguments, 128);
  EXPECT_EQ(kept.results, 64);
  EXPECT_EQ(kept.temporaries, 0);  // g lies where n will
  const PeakMemory given = PeakCase("HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\n" + body).peak();
  EXPECT_EQ(given.results, 0);
  EXPECT_EQ(given.temporaries, 64);  // g
  EXPECT_EQ(given.total, 192);
}

TEST(PeakMemory, ArgumentsGivenBackAreCopied) {
  const PeakMemory peak = PeakCase(
                              "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  y = f32[4] negate(x)\n"
                              "  ROOT t = (f32[4], f32[4], f32[4]) tuple(x, y, y)\n}\n")
                              .peak();
  EXPECT_EQ(peak.results, 48);
  EXPECT_EQ(peak.total, 64);
}

TEST(PeakMemory, PartsAndCopies) {
  const PeakCase c(
      "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\nENTRY e {\n  x = f32[4,4] parameter(0)\n"
      "  y = f32[4,4] dot(x, x)" +
      kDot + "  u = f32[4,4] dot(y, y)" + kDot + "  ROOT z = f32[4,4] dot(u, y)" + kDot + "}\n");
  std::vector<double> part = c.whole();
  EXPECT_EQ(peak_memory(c.model, part).temporaries, 128);  // y and u
  part[at(c.node("y"))] = 0.25;
  EXPECT_EQ(peak_memory(c.model, part).temporaries, 80);
  EXPECT_EQ(peak_memory(c.model, part).total, 144);
  // Whole for u alone: y's part, its copy and u.
  TensorCopy copy;
  copy.tensor = c.node("y");
  copy.readers = {c.node("u")};
  EXPECT_EQ(peak_memory(c.model, part, {copy}).temporaries, 16 + 64 + 64);
  // Made whole, then sliced.
  copy.readers = {c.node("y")};
  EXPECT_EQ(peak_memory(c.model, part, {copy}).temporaries, 80);
  part[at(c.node("u"))] = 0.25;
  EXPECT_EQ(peak_memory(c.model, part, {copy}).temporaries, 16 + 64);
}

TEST(PeakMemory, NothingRuns) {
  const PeakMemory peak = PeakCase("HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n").peak();
  EXPECT_EQ(peak.arguments, 16);
  EXPECT_EQ(peak.results, 16);
  EXPECT_EQ(peak.temporaries, 0);
  EXPECT_EQ(peak.at, kNone);
}

// Straight-line modules of a few dozen instructions; `given`: results take arguments' places.
std::string random_buffers_module(Rng& rng, bool given) {
  constexpr int kParameters = 3;
  std::string text = "ENTRY e {\n";
  std::vector<std::string> names;
  for (int i = 0; i < kParameters; ++i) {
    names.push_back("p" + std::to_string(i));
    text += "  " + names.back() + " = f32[4,4] parameter(" + std::to_string(i) + ")\n";
  }
  const int count = 3 + static_cast<int>(rng.below(30));
  for (int i = 0; i < count; ++i) {
    const std::string a = names[rng.below(names.size())], b = names[names.size() - 1 - rng.below(3)];
    const std::vector<std::string> ops = {
        "dot(" + a + ", " + b + ")" + kDot,         "add(" + a + ", " + b + ")\n", "tanh(" + b + ")\n",
        "transpose(" + b + "), dimensions={1,0}\n", "negate(" + a + ")\n",         "dot(" + b + ", " + a + ")" + kDot};
    const std::string name = "v" + std::to_string(i);
    text += "  " + name + " = f32[4,4] " + ops[rng.below(ops.size())];
    names.push_back(name);
  }
  const std::string x = names.back(), y = names[names.size() - 2];
  text += "  ROOT r = (f32[4,4], f32[4,4]) tuple(" + x + ", " + y + ")\n}\n";
  const std::string alias = ", input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }";
  return "HloModule m" + (given ? alias : "") + "\n" + text;
}

// The twin: what is alive at a step is looked up anew at each, from where every buffer is written and read last.
double slow_peak(const MemorySteps& steps, const std::vector<std::int32_t>& order) {
  std::vector<int> position(steps.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) position[at(order[i])] = static_cast<int>(i);
  const int end = static_cast<int>(order.size());
  struct Span {
    int from = -1, last = -1;
    bool aligned = false;
    double bytes = 0;
  };
  std::vector<Span> spans(steps.buffers.size());
  for (std::size_t b = 0; b < spans.size(); ++b) {
    if (steps.buffers[b].writer != kNone) spans[b].from = position[at(steps.buffers[b].writer)];
    spans[b].last = std::max(-1, spans[b].from);
    spans[b].bytes = steps.buffers[b].bytes;
    for (const MemoryRead& read : steps.reads) {
      if (read.buffer != static_cast<std::int32_t>(b) || position[at(read.step)] < spans[b].last) continue;
      spans[b].last = position[at(read.step)];
      spans[b].aligned = read.aligned;
    }
    if (steps.buffers[b].stays) spans[b].last = end;
  }
  for (std::size_t b = 0; b < spans.size(); ++b) {
    const std::int32_t other = steps.buffers[b].in_place_of;
    if (other == kNone) continue;
    const Span& before = spans[at(other)];
    if (before.last < spans[b].from || (before.last == spans[b].from && before.aligned)) spans[b].bytes = 0;
  }
  double peak = 0;
  for (int i = 0; i < end; ++i) {
    double alive = 0;
    for (const Span& span : spans) alive += span.from <= i && span.last >= i ? span.bytes : 0;
    // If two buffers overlap at this step alone, one may lie where the other was.
    for (const std::int32_t b : steps.writes_of(order[static_cast<std::size_t>(i)])) {
      if (spans[at(b)].bytes <= 0) continue;
      for (const MemoryRead& read : steps.reads_of(order[static_cast<std::size_t>(i)])) {
        if (!read.aligned || spans[at(read.buffer)].last != i || spans[at(read.buffer)].bytes != spans[at(b)].bytes)
          continue;
        alive -= spans[at(b)].bytes;
        break;
      }
    }
    peak = std::max(peak, alive);
  }
  return peak;
}

TEST(PeakMemory, AgreesWithLookingEverythingUpAnew) {
  Rng rng(20, 1, 0);
  int more = 0;
  for (int round = 0; round < 300; ++round) {
    const PeakCase c(random_buffers_module(rng, true));
    const MemorySteps steps = memory_steps(c.model, c.whole(), {});
    const std::vector<std::int32_t> order = order_steps(steps, 0);
    EXPECT_EQ(peak_memory(steps).temporaries, slow_peak(steps, order)) << c.module.graph.source_text();
    more += peak_memory(steps).temporaries > 128 ? 1 : 0;
  }
  EXPECT_GT(more, 50);
}

// Every step runs once, after all that write what it reads; and memory of results is lent at most once at a time: what
// is alive does not exceed arguments, results and temporaries.
TEST(PeakMemory, OrdersAndGuests) {
  Rng rng(21, 1, 0);
  for (int round = 0; round < 300; ++round) {
    const PeakCase c(random_buffers_module(rng, false));
    const MemorySteps steps = memory_steps(c.model, c.whole(), {});
    const std::vector<std::int32_t> order = order_steps(steps, 0);
    std::vector<bool> written(steps.buffers.size(), false), seen(steps.steps.size(), false);
    for (const std::int32_t step : order) {
      EXPECT_FALSE(seen[at(step)]);
      seen[at(step)] = true;
      for (const MemoryRead& read : steps.reads_of(step))
        EXPECT_TRUE(written[at(read.buffer)] || steps.buffers[at(read.buffer)].writer == kNone);
      for (const std::int32_t b : steps.writes_of(step)) written[at(b)] = true;
    }
    EXPECT_EQ(order.size(), steps.steps.size());
    MemorySteps plain = steps;
    plain.results = 0;  // nobody is lent anything
    const double without = peak_memory(plain).temporaries, with = peak_memory(steps).temporaries;
    EXPECT_LE(with, without);
    EXPECT_GE(with + steps.results, without);
  }
}

TEST(PeakMemory, OfOneAxis) {
  PeakCase c(
      "HloModule m\nENTRY e {\n  x = f32[4,4] parameter(0)\n  w = f32[4,8] parameter(1)\n  ROOT y = f32[4,8] dot(x, "
      "w)" +
      kDot + "}\n");
  sharding::Propagation decided(c.model.linkage());
  ASSERT_FALSE(decided.split({c.node("w"), 1}));
  const std::vector<double> parts = parts_of_axis(decided);
  EXPECT_EQ(parts[at(c.node("w"))], 0.5);
  EXPECT_EQ(parts[at(c.node("x"))], 1);
  EXPECT_EQ(peak_memory(c.model, parts).total, 64 + 64 + 64);
  EXPECT_TRUE(copies_of_axis(c.model, decided).empty());
}

}  // namespace
}  // namespace automap::partition
