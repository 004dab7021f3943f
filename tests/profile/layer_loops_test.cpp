#include "profile/layer_loops.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/hlo/hlo_reader.h"
#include "common/pipeline/turn.h"
#include "profile/profile_hlo.h"
#include "tests/data_folders.h"
#include "tests/sum.h"

namespace automap::profile {
namespace {

// Three positions, the second a loop of four turns that reads 6 of its 30 bytes of weights whole.
TEST(LayerLoops, ALoopBecomesItsTurns) {
  pipeline::Profile p;
  p.c_ms = {1, 8, 2};
  p.a_bytes = {10, 20, 0};
  p.w_bytes = {5, 30, 7};
  p.gradient_bytes = {5, 15, 7};
  p.slot_bytes = {10, 60, 14};
  p.frozen_bytes = {0, 4, 0};
  p.stash_bytes = {1, 40, 2};
  p.workspace_bytes = {1, 9, 1};
  p.layer_entry_bytes = {0, 7, 20};
  p.stage_entry_bytes = {0, 3, 0};
  p.name = {"a.1", "while.2", "c.3"};
  p.op_name = {"a", "w", "c"};
  p.layer = {"in", "", "out"};
  p.shared = {{1, 3, 5, 5, 10}, {2, 3, 4, 4, 8}};
  pipeline::DeviceTimes times{"d", {1, 2}, {{1, 4, 1}, {2, 8, 2}}, {{0, 4, 1}, {0, 8, 2}}, {1, 2, 3}};
  p.times = {times};
  pipeline::WidthColumns wide;
  wide.width = 2;
  wide.w_bytes = {5, 15, 7};
  wide.gradient_bytes = {5, 7.5, 7};
  wide.slot_bytes = {10, 30, 14};
  wide.frozen_bytes = {0, 2, 0};
  wide.stash_bytes = {1, 20, 2};
  wide.workspace_bytes = {1, 9, 1};
  wide.layer_entry_bytes = {0, 3.5, 10};
  wide.stage_entry_bytes = {0, 3, 0};
  wide.times = {times};
  wide.collective_ms = {{0, 2, 0}};
  p.widths = {wide};
  LayerLoop loop;
  loop.position = 1;
  loop.turns = 4;
  loop.layer = "layers";
  loop.whole_weights = 6;
  loop.whole_gradients = 3;
  loop.whole_slots = 12;
  loop.carried_bytes = 8;
  loop.carried_at_widths = {4};
  const Turns turns(3, {loop});
  EXPECT_EQ(turns.size(), 6);
  EXPECT_EQ(turns.first(2), 5);
  EXPECT_EQ(turns.last(1), 4);
  const pipeline::Profile cut = turns.cut(p);
  EXPECT_EQ(cut.c_ms, (std::vector<double>{1, 2, 2, 2, 2, 2}));
  // The input goes from turn to turn; behind the last one goes the loop's result.
  EXPECT_EQ(cut.a_bytes, (std::vector<double>{10, 10, 10, 10, 20, 0}));
  EXPECT_EQ(cut.w_bytes, (std::vector<double>{5, 12, 6, 6, 6, 7}));
  EXPECT_EQ(cut.gradient_bytes, (std::vector<double>{5, 6, 3, 3, 3, 7}));
  EXPECT_EQ(cut.slot_bytes, (std::vector<double>{10, 24, 12, 12, 12, 14}));
  EXPECT_EQ(cut.frozen_bytes, (std::vector<double>{0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(cut.stash_bytes, (std::vector<double>{1, 10, 10, 10, 10, 2}));
  EXPECT_EQ(cut.workspace_bytes, (std::vector<double>{1, 9, 9, 9, 9, 1}));
  // Each turn makes 8 of the 10 bytes that enter the loop anew.
  EXPECT_EQ(cut.layer_entry_bytes, (std::vector<double>{0, 7, 8, 8, 8, 20}));
  EXPECT_EQ(cut.stage_entry_bytes, (std::vector<double>{0, 3, 2, 2, 2, 0}));
  EXPECT_EQ(cut.widths[0].layer_entry_bytes, (std::vector<double>{0, 3.5, 4, 4, 4, 10}));
  EXPECT_EQ(cut.widths[0].stage_entry_bytes, (std::vector<double>{0, 3, 2.5, 2.5, 2.5, 0}));
  EXPECT_EQ(cut.times[0].backward_ms[1], (std::vector<double>{0, 2, 2, 2, 2, 2}));
  EXPECT_EQ(cut.times[0].optimizer_ms, (std::vector<double>{1, 0.5, 0.5, 0.5, 0.5, 3}));
  EXPECT_EQ(cut.widths[0].w_bytes, (std::vector<double>{5, 6, 3, 3, 3, 7}));
  EXPECT_EQ(cut.widths[0].collective_ms[0], (std::vector<double>{0, 0.5, 0.5, 0.5, 0.5, 0}));
  EXPECT_EQ(cut.shared[0].position, 6);
  EXPECT_EQ(cut.shared[1].first, 2);
  EXPECT_EQ(cut.name[3], "while.2[3/4]");
  EXPECT_EQ(cut.layer, (std::vector<std::string>{"in", "layers/0", "layers/1", "layers/2", "layers/3", "out"}));
  pipeline::check_profile(cut, "cut");
}

TEST(LayerLoops, TurnsAreToldByTheirNames) {
  const auto turn = pipeline::turn_of("while.46[3/24]");
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->loop, "while.46");
  EXPECT_EQ(turn->number, 3);
  EXPECT_EQ(turn->all, 24);
  EXPECT_EQ(pipeline::turn_name("while.46", 3, 24), "while.46[3/24]");
  for (const char* name : {"while.46", "", "a[1]", "a[0/2]", "a[3/2]", "a[1/2", "a[/2]", "a[1/x]", "]"}) {
    EXPECT_FALSE(pipeline::turn_of(name)) << name;
  }
}

// As one position and as turns: the same sums, at every number of samples.
TEST(LayerLoops, SumsStay) {
  for (const char* name : {"transformer_scan.hlo.gz", "scan_remat.hlo.gz", "moe_sort.hlo.gz"}) {
    const hlo::HloModule module = hlo::load_hlo(kFixtures + "hlo/" + name);
    ProfileRequest request;
    const ModelProfile cut = profile_module(module, name, request);
    request.whole_loops = true;
    const ModelProfile whole = profile_module(module, name, request);
    EXPECT_GT(cut.profile.size(), whole.profile.size());
    EXPECT_TRUE(cut.uncut_loops.empty());
    EXPECT_FALSE(whole.uncut_loops.empty());
    const pipeline::Profile &a = cut.profile, &b = whole.profile;
    EXPECT_NEAR(sum(a.c_ms), sum(b.c_ms), 1e-9 * sum(b.c_ms));
    EXPECT_NEAR(sum(a.w_bytes), sum(b.w_bytes), 1e-9 * sum(b.w_bytes));
    EXPECT_NEAR(sum(a.gradient_bytes), sum(b.gradient_bytes), 1e-9 * sum(b.gradient_bytes));
    EXPECT_NEAR(sum(a.slot_bytes), sum(b.slot_bytes), 1e-9 * sum(b.slot_bytes));
    EXPECT_NEAR(sum(a.stash_bytes), sum(b.stash_bytes), 1e-9 * sum(b.stash_bytes));
    for (std::size_t point = 0; point < b.times[0].samples.size(); ++point) {
      EXPECT_NEAR(sum(a.times[0].forward_ms[point]), sum(b.times[0].forward_ms[point]), 1e-6);
      EXPECT_NEAR(sum(a.times[0].backward_ms[point]), sum(b.times[0].backward_ms[point]), 1e-6);
    }
    for (const TrainableVariable& variable : cut.variables) {
      EXPECT_LE(variable.first_use, variable.last_use);
      EXPECT_LE(variable.last_use, a.size());
    }
  }
}

TEST(LayerLoops, TurnsOfAScannedDecoder) {
  const ModelProfile m = profile_module(hlo::load_hlo(kFixtures + "hlo/transformer_scan.hlo.gz"), "scan", {});
  int turns = 0;
  std::set<double> compute, weights, behind;
  for (std::size_t i = 0; i < m.profile.name.size(); ++i) {
    const auto turn = pipeline::turn_of(m.profile.name[i]);
    if (!turn) continue;
    EXPECT_EQ(turn->number, ++turns);
    EXPECT_EQ(turn->all, 24);
    EXPECT_EQ(m.profile.layer[i], "params/layers/" + std::to_string(turns - 1));
    compute.insert(m.profile.c_ms[i]);
    weights.insert(m.profile.w_bytes[i]);
    if (turn->number < 24) behind.insert(m.profile.a_bytes[i]);
  }
  EXPECT_EQ(turns, 24);
  EXPECT_EQ(compute.size(), 1u);
  EXPECT_EQ(weights.size(), 1u);
  // The hidden states of 4 x 512 tokens.
  EXPECT_EQ(behind, std::set<double>{4.0 * 512 * 1024 * 4});
}

std::string layer_loop_module(const std::string& body_of, const std::string& bound) {
  return "HloModule m\nsum {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT r = f32[] add(p, q)\n}\n"
         "body {\n  s = (s32[], f32[8,16], f32[4,16,16], f32[16,16]) parameter(0)\n"
         "  i = s32[] get-tuple-element(s), index=0\n  one = s32[] constant(1)\n  n = s32[] add(i, one)\n"
         "  x = f32[8,16] get-tuple-element(s), index=1\n  w = f32[4,16,16] get-tuple-element(s), index=2\n"
         "  b = f32[16,16] get-tuple-element(s), index=3\n" +
         body_of +
         "  ROOT t = (s32[], f32[8,16], f32[4,16,16], f32[16,16]) tuple(n, y, w, b)\n}\n"
         "cond {\n  s = (s32[], f32[8,16], f32[4,16,16], f32[16,16]) parameter(0)\n"
         "  i = s32[] get-tuple-element(s), index=0\n" +
         bound +
         "  ROOT lt = pred[] compare(i, k), direction=LT\n}\n"
         "ENTRY e {\n  in = f32[8,16] parameter(0)\n  w = f32[4,16,16] parameter(1)\n  b = f32[16,16] parameter(2)\n"
         "  zero = s32[] constant(0)\n  first = f32[8,16] tanh(in)\n"
         "  start = (s32[], f32[8,16], f32[4,16,16], f32[16,16]) tuple(zero, first, w, b)\n"
         "  loop = (s32[], f32[8,16], f32[4,16,16], f32[16,16]) while(start), condition=cond, body=body\n"
         "  out = f32[8,16] get-tuple-element(loop), index=1\n  ROOT last = f32[8,16] tanh(out)\n}\n";
}
constexpr const char* kStacked =
    "  zero = s32[] constant(0)\n"
    "  slice = f32[1,16,16] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,16,16}\n"
    "  one_w = f32[16,16] reshape(slice)\n"
    "  y = f32[8,16] dot(x, one_w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";

// A training step of y = tanh(x w) in four turns, which stack x, y and y y for the backward loop. The last follows from
// y.
std::string stacking_module() {
  const std::string state = "(s32[], f32[8,16], f32[4,8,16], f32[4,8,16], f32[4,8,16], f32[4,16,16])";
  const std::string back = "(s32[], f32[8,16], f32[4,16,16], f32[4,8,16], f32[4,8,16], f32[4,8,16], f32[4,16,16])";
  const auto element = [](const std::string& name, const std::string& shape, int index) {
    return "  " + name + " = " + shape + " get-tuple-element(s), index=" + std::to_string(index) + "\n";
  };
  const auto written = [](const std::string& stack, const std::string& value, const std::string& slice,
                          const std::string& whole) {
    return "  " + value + "1 = " + slice + " reshape(" + value + ")\n  " + stack + "n = " + whole +
           " dynamic-update-slice(" + stack + ", " + value + "1, i, zero, zero)\n";
  };
  const auto taken = [](const std::string& stack, const std::string& dims) {
    return "  " + stack + "1 = f32[1," + dims + "] dynamic-slice(" + stack +
           ", i, zero, zero), dynamic_slice_sizes={1," + dims + "}\n  " + stack + "i = f32[" + dims + "] reshape(" +
           stack + "1)\n";
  };
  const std::string head = "  one = s32[] constant(1)\n  zero = s32[] constant(0)\n" + element("i", "s32[]", 0) +
                           "  n = s32[] add(i, one)\n";
  const auto turns = [&](const std::string& of, const std::string& name) {
    return name + " {\n  s = " + of + " parameter(0)\n" + element("i", "s32[]", 0) +
           "  k = s32[] constant(4)\n  ROOT lt = pred[] compare(i, k), direction=LT\n}\n";
  };
  const std::string slice = "f32[1,8,16]", stack = "f32[4,8,16]";
  return "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
         "forward {\n  s = " +
         state + " parameter(0)\n" + head + element("x", "f32[8,16]", 1) + element("xs", stack, 2) +
         element("ys", stack, 3) + element("qs", stack, 4) + element("w", "f32[4,16,16]", 5) + taken("w", "16,16") +
         "  d = f32[8,16] dot(x, wi), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
         "  y = f32[8,16] tanh(d)\n  q = f32[8,16] multiply(y, y)\n" +
         written("xs", "x", slice, stack) + written("ys", "y", slice, stack) + written("qs", "q", slice, stack) +
         "  ROOT t = " + state + " tuple(n, y, xsn, ysn, qsn, w)\n}\n" + turns(state, "more") +
         "backward {\n  s = " + back + " parameter(0)\n" + head + element("g", "f32[8,16]", 1) +
         element("dw", "f32[4,16,16]", 2) + element("xs", stack, 3) + element("ys", stack, 4) +
         element("qs", stack, 5) + element("w", "f32[4,16,16]", 6) + taken("xs", "8,16") + taken("ys", "8,16") +
         taken("qs", "8,16") + taken("w", "16,16") +
         "  yg = f32[8,16] multiply(ysi, g)\n  h = f32[8,16] multiply(qsi, yg)\n"
         "  wg = f32[16,16] dot(xsi, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
         "  xg = f32[8,16] dot(h, wi), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n" +
         written("dw", "wg", "f32[1,16,16]", "f32[4,16,16]") + "  ROOT t = " + back +
         " tuple(n, xg, dwn, xs, ys, qs, w)\n}\n" + turns(back, "less") +
         "ENTRY e {\n  w = f32[4,16,16] parameter(0)\n  in = f32[8,16] parameter(1)\n  none = s32[] constant(0)\n"
         "  nil = f32[] constant(0)\n  empty = f32[4,8,16] broadcast(nil), dimensions={}\n"
         "  start = " +
         state +
         " tuple(none, in, empty, empty, empty, w)\n"
         "  loop = " +
         state +
         " while(start), condition=more, body=forward\n"
         "  out = f32[8,16] get-tuple-element(loop), index=1\n  xs = f32[4,8,16] get-tuple-element(loop), index=2\n"
         "  ys = f32[4,8,16] get-tuple-element(loop), index=3\n  qs = f32[4,8,16] get-tuple-element(loop), index=4\n"
         "  sq = f32[8,16] multiply(out, out)\n  loss = f32[] reduce(sq, nil), dimensions={0,1}, to_apply=add\n"
         "  two = f32[] constant(2)\n  twos = f32[8,16] broadcast(two), dimensions={}\n"
         "  g = f32[8,16] multiply(out, twos)\n  zeros = f32[4,16,16] broadcast(nil), dimensions={}\n"
         "  begin = " +
         back +
         " tuple(none, g, zeros, xs, ys, qs, w)\n"
         "  loop2 = " +
         back +
         " while(begin), condition=less, body=backward\n"
         "  dw = f32[4,16,16] get-tuple-element(loop2), index=2\n  lr = f32[] constant(0.01)\n"
         "  lrs = f32[4,16,16] broadcast(lr), dimensions={}\n  step = f32[4,16,16] multiply(dw, lrs)\n"
         "  new = f32[4,16,16] subtract(w, step)\n  ROOT r = (f32[4,16,16], f32[]) tuple(new, loss)\n}\n";
}

TEST(LayerLoops, TurnsKeepWhatTheOthersFollowFrom) {
  ProfileRequest request;
  const ModelProfile m = profile_module(hlo::read_hlo(stacking_module(), "m"), "m", request);
  ASSERT_TRUE(m.training);
  double kept = 0;
  int turns = 0;
  for (std::size_t i = 0; i < m.profile.name.size(); ++i) {
    if (!pipeline::turn_of(m.profile.name[i])) continue;
    ++turns;
    kept += m.profile.stash_bytes[i];
  }
  EXPECT_EQ(turns, 4);
  // x and y of four turns, without y y; and once more the last y, for the loss.
  EXPECT_EQ(kept, (4 * 2 + 1) * 8 * 16 * 4);
}

TEST(LayerLoops, InferenceHasTurnsToo) {
  const ModelProfile m =
      profile_module(hlo::read_hlo(layer_loop_module(kStacked, "  k = s32[] constant(4)\n"), "m"), "m", {});
  EXPECT_TRUE(m.uncut_loops.empty());
  EXPECT_EQ(m.profile.size(), 7);  // tanh, four turns, the result taken out, tanh
  EXPECT_EQ(m.profile.name[2], "loop[2/4]");
  for (int i = 1; i < 4; ++i) EXPECT_EQ(m.profile.a_bytes[static_cast<std::size_t>(i)], 8 * 16 * 4);
}

// Cast or transposed as a whole in front of the loop, a weight is that of the turns all the same.
TEST(LayerLoops, WeightsOfTurnsAreTheirsInWhateverFormTheyAreRead) {
  const std::string plain = layer_loop_module(kStacked, "  k = s32[] constant(4)\n");
  const std::string given = "  w = f32[4,16,16] parameter(1)\n";
  const auto weights_of_turns = [&](const std::string& form, const std::string& last) {
    std::string text = plain;
    text.replace(text.find(given), given.size(), form);
    const std::string end = "  ROOT last = f32[8,16] tanh(out)\n";
    text.replace(text.find(end), end.size(), last.empty() ? end : last);
    const ModelProfile m = profile_module(hlo::read_hlo(text, "m"), "m", {});
    std::vector<double> of_turns;
    for (std::size_t i = 0; i < m.profile.name.size(); ++i) {
      if (pipeline::turn_of(m.profile.name[i])) of_turns.push_back(m.profile.frozen_bytes[i]);
    }
    return of_turns;
  };
  const double one = 16 * 16 * 4;
  EXPECT_EQ(weights_of_turns(given, ""), (std::vector<double>{2 * one, one, one, one}));  // and b, which all read whole
  const std::vector<std::string> forms = {
      "  m = f32[4,16,16] parameter(1)\n  h = bf16[4,16,16] convert(m)\n  w = f32[4,16,16] convert(h)\n",
      "  m = f32[16,4,16] parameter(1)\n  w = f32[4,16,16] transpose(m), dimensions={1,0,2}\n",
      "  m = f32[64,16] parameter(1)\n  w = f32[4,16,16] reshape(m)\n"};
  for (const std::string& form : forms) {
    EXPECT_EQ(weights_of_turns(form, ""), (std::vector<double>{2 * one, one, one, one})) << form;
  }
  // A value that another instruction reads, too, stands where it is read first.
  const std::string also_read =
      "  s1 = f32[16,1,16] slice(m), slice={[0:16], [0:1], [0:16]}\n  s2 = f32[16,16] reshape(s1)\n"
      "  ROOT last = f32[8,16] dot(out, s2), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";
  EXPECT_EQ(weights_of_turns(forms[1], also_read), (std::vector<double>{one, 0, 0, 0}));
  // Four sums of a weight are no stack of it.
  EXPECT_EQ(weights_of_turns("  m = f32[2,4,16,16] parameter(1)\n  z = f32[] constant(0)\n"
                             "  w = f32[4,16,16] reduce(m, z), dimensions={0}, to_apply=sum\n",
                             "")
                .size(),
            0u);
}

// Steps in time read the same weights in every turn.
TEST(LayerLoops, OtherLoopsStayWholeAndSayWhy) {
  const std::string recurrent = "  y = f32[8,16] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";
  std::string text = layer_loop_module(recurrent, "  k = s32[] constant(5)\n");
  const ModelProfile m = profile_module(hlo::read_hlo(text, "m"), "m", {});
  ASSERT_EQ(m.uncut_loops.size(), 1u);
  EXPECT_FALSE(m.uncut_loops[0].layers);
  EXPECT_NE(m.uncut_loops[0].why.find("no weights are stacked"), std::string::npos);
  // A bound that nobody knows.
  text = layer_loop_module(kStacked,
                           "  half = f32[8,16] get-tuple-element(s), index=1\n  red = s32[8,16] convert(half)\n"
                           "  sl = s32[1,1] slice(red), slice={[0:1], [0:1]}\n  k = s32[] reshape(sl)\n");
  const ModelProfile unknown = profile_module(hlo::read_hlo(text, "m"), "m", {});
  ASSERT_EQ(unknown.uncut_loops.size(), 1u);
  EXPECT_NE(unknown.uncut_loops[0].why.find("does not say how often"), std::string::npos);
}

}  // namespace
}  // namespace automap::profile
