#include "common/graph/training_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "common/base/error.h"
#include "common/hlo/hlo_text.h"
#include "tests/common/graph/training_modules.h"

namespace automap::graph {
namespace {

using testing::HasSubstr;

// The analysis with the graph it points into.
struct Analyzed {
  explicit Analyzed(const std::string& text, const TrainingStepOptions& options = {})
      : graph(hlo::read_hlo_text(text, "test")), step(analyze_training_step(graph, options)) {}
  Graph graph;
  TrainingStep step;

  // Names of the instructions of a part, in the order of the text, free ones left out.
  std::string names(Part part) const {
    std::string out;
    for (NodeId id = 0; id < step.flow.size(); ++id) {
      if (step.part[static_cast<std::size_t>(id)] != part) continue;
      out += (out.empty() ? "" : " ") + std::string(graph.instruction(step.flow.node(id).instruction).name);
    }
    return out;
  }
  std::string inputs(InputRole role) const {
    std::string out;
    for (const EntryInput& input : step.inputs) {
      if (input.role == role) out += (out.empty() ? "" : " ") + input.parameter_name;
    }
    return out;
  }
};

constexpr const char* kForward = "h0 b1b h1 h o0 b2b o e e2 total loss";
constexpr const char* kForwardWithoutLoss = "h0 b1b h1 h o0 b2b o e";
constexpr const char* kBackward = "de gb2 gw2 dh hh slope dh1 gb1 gw1";
constexpr const char* kAllResults =
    "ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss)";

TEST(TrainingStep, PlainDescent) {
  const Analyzed a(plain_descent(kAllResults));
  EXPECT_TRUE(a.step.training);
  EXPECT_EQ(a.step.loss_result, 4);
  EXPECT_EQ(a.names(Part::kForward), kForward);
  EXPECT_EQ(a.names(Part::kBackward), kBackward);
  EXPECT_EQ(a.names(Part::kOptimizer), "nw1 nb1 nw2 nb2");
  EXPECT_EQ(a.names(Part::kGlue), "");
  EXPECT_EQ(a.inputs(InputRole::kVariable), "w1 b1 w2 b2");
  EXPECT_EQ(a.inputs(InputRole::kStepInput), "x y");
  EXPECT_EQ(a.step.batch, 16);
  EXPECT_EQ(a.step.split, "dataflow");
}

TEST(TrainingStep, LossThatIsNotReturned) {
  const Analyzed a(plain_descent("ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2]) tuple(nw1, nb1, nw2, nb2)"));
  EXPECT_TRUE(a.step.training);
  EXPECT_EQ(a.step.loss_result, kNone);
  EXPECT_EQ(a.names(Part::kForward), kForwardWithoutLoss);
  EXPECT_EQ(a.names(Part::kBackward), kBackward);
  EXPECT_EQ(a.names(Part::kGlue), "e2 total loss");
}

TEST(TrainingStep, TheLossAmongOtherNumbers) {
  // A norm of the gradients, a norm of the weights, an accuracy that no gradient can flow through, a rate, twice the
  // loss; the loss itself stands last.
  const Analyzed a(two_layers("  rate = f32[] parameter(6)", R"(
  rates1 = f32[4,8] broadcast(rate), dimensions={}
  d1 = f32[4,8] multiply(gw1, rates1)
  nw1 = f32[4,8] subtract(w1, d1)
  nb1 = f32[8] subtract(b1, gb1)
  nw2 = f32[8,2] subtract(w2, gw2)
  nb2 = f32[2] subtract(b2, gb2)
  gg = f32[4,8] multiply(gw1, gw1)
  gnorm = f32[] reduce(gg, zero), dimensions={0,1}, to_apply=sum
  ww = f32[4,8] multiply(w1, w1)
  wnorm = f32[] reduce(ww, zero), dimensions={0,1}, to_apply=sum
  right = pred[16,2] compare(o, y), direction=EQ
  rightf = f32[16,2] convert(right)
  accuracy = f32[] reduce(rightf, zero), dimensions={0,1}, to_apply=sum
  twice = f32[] add(loss, loss)
  rate2 = f32[] add(rate, rate)
  ROOT r = (f32[], f32[], f32[], f32[], f32[], f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(gnorm, wnorm, accuracy, twice, rate2, nw1, nb1, nw2, nb2, loss))"));
  EXPECT_EQ(a.step.loss_result, 9);
  EXPECT_EQ(a.names(Part::kForward), kForward);
  EXPECT_EQ(a.names(Part::kBackward), kBackward);
  EXPECT_EQ(a.inputs(InputRole::kVariable), "w1 b1 w2 b2");
}

TEST(TrainingStep, MomentumStatisticsCounterAndFrozenWeights) {
  const Analyzed a(two_layers(R"(  m1 = f32[4,8] parameter(6)
  mean = f32[8] parameter(7)
  count = s32[] parameter(8)
  idle = f32[3] parameter(9))",
                              R"(
  nm1 = f32[4,8] add(m1, gw1)
  nw1 = f32[4,8] subtract(w1, nm1)
  nw2 = f32[8,2] subtract(w2, gw2)
  nb2 = f32[2] subtract(b2, gb2)
  batchmean = f32[8] reduce(h1, zero), dimensions={0}, to_apply=sum
  nmean = f32[8] add(mean, batchmean)
  onei = s32[] constant(1)
  ncount = s32[] add(count, onei)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[4,8], f32[8], s32[], f32[]) tuple(nw1, b1, nw2, nb2, nm1, nmean, ncount, loss))"));
  EXPECT_EQ(a.inputs(InputRole::kVariable), "w1 w2 b2");
  EXPECT_EQ(a.inputs(InputRole::kSlot), "m1");
  EXPECT_EQ(a.inputs(InputRole::kState), "mean count");
  EXPECT_EQ(a.inputs(InputRole::kFrozen), "b1");
  EXPECT_EQ(a.inputs(InputRole::kUnused), "idle");
  EXPECT_EQ(a.names(Part::kForward), kForward);
  EXPECT_EQ(a.names(Part::kGlue), "gb1 batchmean nmean ncount");
  EXPECT_EQ(a.names(Part::kOptimizer), "nm1 nw1 nw2 nb2");
}

TEST(TrainingStep, LowPrecisionCopiesOfMasterWeights) {
  const Analyzed a(two_layers(R"(  f1 = f32[4,8] parameter(6)
  f2 = f32[8,2] parameter(7)
  f3 = f32[8] parameter(8)
  f4 = f32[2] parameter(9))",
                              R"(
  nf1 = f32[4,8] subtract(f1, gw1)
  nf2 = f32[8,2] subtract(f2, gw2)
  nf3 = f32[8] subtract(f3, gb1)
  nf4 = f32[2] subtract(f4, gb2)
  c1 = bf16[4,8] convert(nf1)
  c2 = bf16[8,2] convert(nf2)
  c3 = bf16[8] convert(nf3)
  c4 = bf16[2] convert(nf4)
  r1 = f32[4,8] convert(c1)
  r2 = f32[8,2] convert(c2)
  r3 = f32[8] convert(c3)
  r4 = f32[2] convert(c4)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[4,8], f32[8,2], f32[8], f32[2], f32[]) tuple(r1, r3, r2, r4, nf1, nf2, nf3, nf4, loss))"));
  EXPECT_EQ(a.inputs(InputRole::kVariable), "w1 b1 w2 b2");
  EXPECT_EQ(a.inputs(InputRole::kSlot), "f1 f2 f3 f4");
  EXPECT_EQ(a.names(Part::kForward), kForward);
}

TEST(TrainingStep, BareGradientsInAnyOrder) {
  for (const char* results : {"ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2]) tuple(gw1, gb1, gw2, gb2)",
                              "ROOT r = (f32[2], f32[8,2], f32[8], f32[4,8]) tuple(gb2, gw2, gb1, gw1)",
                              "ROOT r = (f32[], f32[2], f32[8,2], f32[8], f32[4,8]) tuple(loss, gb2, gw2, gb1, gw1)"}) {
    const Analyzed a(two_layers("", results));
    EXPECT_EQ(a.inputs(InputRole::kVariable), "w1 b1 w2 b2") << results;
    EXPECT_EQ(a.names(Part::kBackward), kBackward) << results;
    EXPECT_EQ(a.names(Part::kOptimizer), "") << results;
  }
}

// The optimizer's state may be missing among the inputs, or among the results.
TEST(TrainingStep, AModuleWithoutItsOptimizersState) {
  const auto warnings = [](const std::string& text) {
    const Graph graph = hlo::read_hlo_text(text, "test");
    std::string out;
    for (const std::string& warning : analyze_training_step(graph).warnings) out += warning + "\n";
    return out;
  };
  const std::string result = "ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss)";
  // Averages of squares of the four gradients; `begin`: what an average was before.
  const auto rooted = [&](const std::string& parameters, const std::string& begin, const std::string& returned) {
    std::string update;
    for (const auto& [name, shape, dims] : {std::tuple("w1", "f32[4,8]", 2), std::tuple("b1", "f32[8]", 1),
                                            std::tuple("w2", "f32[8,2]", 2), std::tuple("b2", "f32[2]", 1)}) {
      const std::string n = name, g = "g" + n, of = std::string(" = ") + shape + " ";
      update += "  v0" + n + of + (begin.empty() ? "broadcast(zero), dimensions={}" : "copy(" + begin + n + ")") + "\n";
      update += "  q" + n + of + "multiply(" + g + ", " + g + ")\n  v" + n + of + "add(v0" + n + ", q" + n + ")\n  s" +
                n + of + "sqrt(v" + n + ")\n  u" + n + of + "divide(" + g + ", s" + n + ")\n  n" + n + of +
                "subtract(" + n + ", u" + n + ")\n";
    }
    return two_layers(parameters, update + returned);
  };
  const std::string moments =
      "  v_w1 = f32[4,8] parameter(6)\n  v_b1 = f32[8] parameter(7)\n  v_w2 = f32[8,2] parameter(8)\n"
      "  v_b2 = f32[2] parameter(9)";
  EXPECT_EQ(warnings(rooted(moments, "v_",
                            "ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[4,8], f32[8], f32[8,2], f32[2], f32[]) "
                            "tuple(nw1, nb1, nw2, nb2, vw1, vb1, vw2, vb2, loss)")),
            "");
  // They begin at zero in the module.
  const std::string anew = warnings(rooted("", "", result));
  EXPECT_NE(anew.find("no input holds the optimizer's state"), std::string::npos) << anew;
  EXPECT_NE(anew.find("takes the state as an argument"), std::string::npos) << anew;
  // They are read, but not returned: state all the same, and no frozen weights.
  const std::string kept = rooted(moments, "v_", result);
  EXPECT_NE(warnings(kept).find("4 inputs (232 B) of the optimizer's state have no new value"), std::string::npos)
      << warnings(kept);
  const Analyzed a(kept);
  EXPECT_EQ(a.inputs(InputRole::kSlot), "v_w1 v_b1 v_w2 v_b2");
  EXPECT_EQ(a.inputs(InputRole::kFrozen), "");
  // Plain descent has no state; PyTorch's modules look like it before the first step of an optimizer that has.
  EXPECT_EQ(warnings(plain_descent(result)), "");
  std::string lazy = plain_descent(result);
  lazy.replace(lazy.find("HloModule m"), 11, "HloModule IrToHlo.3");
  EXPECT_NE(warnings(lazy).find("plain SGD has none"), std::string::npos) << warnings(lazy);
  EXPECT_NE(warnings(lazy).find("mark_step()"), std::string::npos) << warnings(lazy);
  // No optimizer at all.
  const std::string bare =
      warnings(two_layers("", "ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2]) tuple(gw1, gb1, gw2, gb2)"));
  EXPECT_NE(bare.find("updates no variable"), std::string::npos) << bare;
}

TEST(TrainingStep, AUserListDecides) {
  const std::vector<VariableRequest> requests{{"w2", "head", "vars:1"}, {"0", "", "vars:2"}};
  TrainingStepOptions options;
  options.variables = &requests;
  const Analyzed a(plain_descent(kAllResults), options);
  ASSERT_EQ(a.step.variables.size(), 2u);
  EXPECT_EQ(a.step.inputs[static_cast<std::size_t>(a.step.variables[0])].name, "head");
  EXPECT_EQ(a.inputs(InputRole::kVariable), "w1 w2");
  EXPECT_EQ(a.names(Part::kForward), kForward);
  // Gradients of the others are not asked for; this one needs everything but them.
  EXPECT_EQ(a.names(Part::kBackward), "de gw2 dh hh slope dh1 gw1");
}

// A listed variable that no result is the new value of tells nothing about who keeps state of its shape.
TEST(TrainingStep, StateIsThatOfUpdatedVariables) {
  const std::vector<VariableRequest> requests{
      {"w1", "", "vars:1"}, {"b1", "", "vars:2"}, {"w2", "", "vars:3"}, {"b2", "", "vars:4"}};
  TrainingStepOptions options;
  options.variables = &requests;
  const auto with = [&](const std::string& results) {
    return Analyzed(two_layers("  rates = f32[8] parameter(6)", R"(
  rate = f32[4,8] broadcast(rates), dimensions={1}
  sw1 = f32[4,8] multiply(gw1, rate)
  nw1 = f32[4,8] subtract(w1, sw1)
  nb1 = f32[8] subtract(b1, gb1)
  nw2 = f32[8,2] subtract(w2, gw2)
  nb2 = f32[2] subtract(b2, gb2)
  )" + results),
                    options);
  };
  const Analyzed updated = with("ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss)");
  EXPECT_EQ(updated.inputs(InputRole::kSlot), "rates");
  const Analyzed kept = with("ROOT r = (f32[4,8], f32[8,2], f32[2], f32[]) tuple(nw1, nw2, nb2, loss)");
  EXPECT_EQ(kept.inputs(InputRole::kVariable), "w1 b1 w2 b2");
  EXPECT_EQ(kept.inputs(InputRole::kSlot), "");
}

TEST(TrainingStep, OptimizerThatMultipliesMatrices) {
  const Analyzed a(two_layers("  m = f32[4,8] parameter(6)", R"(
  nm = f32[4,8] add(m, gw1)
  mm = f32[4,4] dot(nm, nm), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  u = f32[4,8] dot(mm, nm), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  nw1 = f32[4,8] subtract(w1, u)
  nb1 = f32[8] subtract(b1, gb1)
  nw2 = f32[8,2] subtract(w2, gw2)
  nb2 = f32[2] subtract(b2, gb2)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[4,8], f32[]) tuple(nw1, nb1, nw2, nb2, nm, loss))"));
  EXPECT_EQ(a.names(Part::kBackward), kBackward);
  EXPECT_EQ(a.names(Part::kOptimizer), "nm mm u nw1 nb1 nw2 nb2");
  EXPECT_EQ(a.inputs(InputRole::kSlot), "m");
}

TEST(TrainingStep, InferenceIsForwardAltogether) {
  const Analyzed a(R"(HloModule m
ENTRY e {
  w = f32[4,4] parameter(0)
  x = f32[16,4] parameter(1)
  h = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,4] tanh(h)
  dead = f32[16,4] negate(h)
  ROOT r = (f32[16,4], f32[16,4]) tuple(t, h)
})");
  EXPECT_FALSE(a.step.training);
  EXPECT_EQ(a.names(Part::kForward), "h t");
  EXPECT_EQ(a.names(Part::kGlue), "dead");
  EXPECT_EQ(a.inputs(InputRole::kStepInput), "x");
  EXPECT_EQ(a.inputs(InputRole::kFrozen), "w");
}

// A step of a sampler or of a recurrent network hands a changed input back, as an optimizer does.
TEST(TrainingStep, StateOfAnInferenceModuleIsNoVariable) {
  const Analyzed a(R"(HloModule m
ENTRY e {
  u = f32[4,4] parameter(0)
  w = f32[4,4] parameter(1)
  x = f32[16,4] parameter(2)
  h = f32[16,4] dot(x, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,4] tanh(h)
  n = f32[16,4] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[16,4] subtract(x, n)
})");
  EXPECT_FALSE(a.step.training);
  EXPECT_EQ(a.inputs(InputRole::kVariable), "");
  EXPECT_EQ(a.names(Part::kForward), "h t n y");
}

// The same module, run as the body of a loop over micro-batches that adds up gradients.
TEST(TrainingStep, GradientAccumulationInsideALoop) {
  const Analyzed a(R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
cond { t = (s32[], f32[4,2], f32[4,2], f32[16,4], f32[]) parameter(0)  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(4)  ROOT l = pred[] compare(i, n), direction=LT }
body {
  t = (s32[], f32[4,2], f32[4,2], f32[16,4], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  acc = f32[4,2] get-tuple-element(t), index=1
  w = f32[4,2] get-tuple-element(t), index=2
  x = f32[16,4] get-tuple-element(t), index=3
  lacc = f32[] get-tuple-element(t), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = f32[] constant(0)
  o = f32[16,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[16,2] sine(o)
  l = f32[] reduce(s, z), dimensions={0,1}, to_apply=sum
  ln = f32[] add(lacc, l)
  c = f32[16,2] cosine(o)
  g = f32[4,2] dot(x, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  gn = f32[4,2] add(acc, g)
  ROOT r = (s32[], f32[4,2], f32[4,2], f32[16,4], f32[]) tuple(j, gn, w, x, ln)
}
ENTRY e {
  w0 = f32[4,2] parameter(0)
  x0 = f32[16,4] parameter(1)
  z = f32[] constant(0)
  zi = s32[] constant(0)
  zz = f32[4,2] broadcast(z), dimensions={}
  t = (s32[], f32[4,2], f32[4,2], f32[16,4], f32[]) tuple(zi, zz, w0, x0, z)
  loop = (s32[], f32[4,2], f32[4,2], f32[16,4], f32[]) while(t), condition=cond, body=body
  grad = f32[4,2] get-tuple-element(loop), index=1
  loss = f32[] get-tuple-element(loop), index=4
  nw = f32[4,2] subtract(w0, grad)
  ROOT r = (f32[4,2], f32[]) tuple(nw, loss)
})");
  ASSERT_EQ(a.step.expanded_whiles.size(), 1u);
  EXPECT_EQ(a.inputs(InputRole::kVariable), "w0");
  EXPECT_EQ(a.names(Part::kForward), "o s l ln");
  EXPECT_EQ(a.names(Part::kBackward), "c g");
  EXPECT_EQ(a.step.micro_batches, 4);
  EXPECT_EQ(a.step.micro_batch_loop, a.step.expanded_whiles[0]);
  EXPECT_THAT(a.step.warnings.at(0), HasSubstr("loop loop adds up the gradients of 4 micro-batches"));
}

TEST(TrainingStep, TupleParameterAsOnTpu) {
  const Analyzed a(R"(HloModule m
ENTRY e {
  arg = (f32[4,2], f32[16,4]) parameter(0)
  w = f32[4,2] get-tuple-element(arg), index=0
  x = f32[16,4] get-tuple-element(arg), index=1
  o = f32[16,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[16,2] tanh(o)
  v = f32[2,16] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  vt = f32[16,2] transpose(v), dimensions={1,0}
  d = f32[16,2] multiply(s, vt)
  g = f32[4,2] dot(x, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nw = f32[4,2] subtract(w, g)
  z = f32[] constant(0)
  q = f32[16,2] dot(s, s), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={}, rhs_contracting_dims={}
  f = f32[32] reshape(q)
  l = f32[] dot(f, f), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (f32[4,2], f32[]) tuple(nw, l)
})");
  EXPECT_EQ(a.inputs(InputRole::kVariable), "arg{0}");
  EXPECT_EQ(a.inputs(InputRole::kStepInput), "arg{1}");
  EXPECT_EQ(a.step.loss_result, 1);
}

}  // namespace
}  // namespace automap::graph
