#include "profile/fused_chains.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/graph/dependence.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "common/machine/device.h"
#include "profile/chain_tracker.h"
#include "profile/fused_kernel_model.h"
#include "profile/module_structure.h"
#include "profile/profile_hlo.h"
#include "profile/time_estimator.h"
#include "tests/data_folders.h"

namespace automap::profile {
namespace {

using graph::Graph;
using graph::InstructionId;
using Role = FusedChains::Role;

constexpr FusionRule kAll{true, true, false};
constexpr FusionRule k16Bit{true, true, true};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// As JAX writes it: products in bf16, softmax in f32. 2 sequences of 16, 4 heads of 8.
const std::string kReducers = R"(HloModule m
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
)";
const std::string kForward = R"(ENTRY e {
  q = bf16[2,4,16,8] parameter(0)
  k = bf16[2,4,16,8] parameter(1)
  v = bf16[2,4,16,8] parameter(2)
  s = bf16[2,4,16,16] dot(q, k), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={3}
  c = bf16[] constant(0.35)
  cb = bf16[2,4,16,16] broadcast(c), dimensions={}
  sc = bf16[2,4,16,16] multiply(s, cb)
  w = f32[2,4,16,16] convert(sc)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[2,4,16] reduce(w, low), dimensions={3}, to_apply=max
  mb = f32[2,4,16,16] broadcast(m), dimensions={0,1,2}
  d = f32[2,4,16,16] subtract(w, mb)
  x = f32[2,4,16,16] exponential(d)
  z = f32[2,4,16] reduce(x, zero), dimensions={3}, to_apply=add
  zb = f32[2,4,16,16] broadcast(z), dimensions={0,1,2}
  p = f32[2,4,16,16] divide(x, zb)
  pc = bf16[2,4,16,16] convert(p)
  o = bf16[2,4,16,8] dot(pc, v), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}
)";
const std::string kBackward = R"(  g = bf16[2,4,16,8] parameter(3)
  dv = bf16[2,4,16,8] dot(pc, g), lhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}
  dp = bf16[2,4,16,16] dot(g, v), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={3}
  dpf = f32[2,4,16,16] convert(dp)
  t = f32[2,4,16,16] multiply(dpf, p)
  r = f32[2,4,16] reduce(t, zero), dimensions={3}, to_apply=add
  rb = f32[2,4,16,16] broadcast(r), dimensions={0,1,2}
  u = f32[2,4,16,16] subtract(dpf, rb)
  ds = f32[2,4,16,16] multiply(u, p)
  dsc = bf16[2,4,16,16] convert(ds)
  dss = bf16[2,4,16,16] multiply(dsc, cb)
  dq = bf16[2,4,16,8] dot(dss, k), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}
  dk = bf16[2,4,16,8] dot(dss, q), lhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}
)";
const std::string kForwardEnd = "  ROOT out = (bf16[2,4,16,8]) tuple(o)\n}\n";
const std::string kBackwardEnd =
    "  ROOT out = (bf16[2,4,16,8], bf16[2,4,16,8], bf16[2,4,16,8], bf16[2,4,16,8]) tuple(o, dq, dk, dv)\n}\n";
const std::string kInference = kReducers + kForward + kForwardEnd;
const std::string kStep = kReducers + kForward + kBackward + kBackwardEnd;

const ScoreBand kCausal{0.5, 1, true};

struct Found {
  explicit Found(const std::string& text, const FusionRule& rule = k16Bit)
      : graph(hlo::read_hlo_text(text, "test")), chains(find_fused_chains(graph, rule)) {}

  InstructionId id(const std::string& name) const {
    for (InstructionId i = 0; i < graph.num_instructions(); ++i) {
      if (graph.instruction(i).name == name) return i;
    }
    ADD_FAILURE() << name;
    return 0;
  }
  Role role(const std::string& name) const { return chains.role_of(id(name)); }
  const FusedKernel& kernel(const std::string& anchor) const {
    const FusedKernel* found = chains.kernel_of(id(anchor));
    if (found == nullptr) throw std::runtime_error("no kernel at " + anchor);
    return *found;
  }
  std::set<std::string> names(const std::vector<InstructionId>& ids) const {
    std::set<std::string> out;
    for (const InstructionId i : ids) out.emplace(graph.instruction(i).name);
    return out;
  }

  Graph graph;
  FusedChains chains;
};

using Names = std::set<std::string>;

TEST(FusedChains, ForwardByHand) {
  const Found f(kInference);
  EXPECT_EQ(f.chains.summary(), "1 attention");
  const FusedKernel& kernel = f.kernel("o");
  EXPECT_EQ(f.names(kernel.products), (Names{"s", "o"}));
  EXPECT_EQ(f.names(kernel.reads), (Names{"q", "k", "v"}));
  EXPECT_EQ(kernel.head, 8);
  EXPECT_EQ(kernel.band.edges, 0);
  for (const char* inner : {"s", "sc", "w", "d", "x", "p", "pc", "m", "z"})
    EXPECT_EQ(f.role(inner), Role::kInner) << inner;
  for (const char* outer : {"q", "k", "v"}) EXPECT_EQ(f.role(outer), Role::kNone) << outer;
  // A statistic of four bytes per row: 2 * 4 * 16.
  EXPECT_DOUBLE_EQ(kept_bytes(f.graph, kernel), 512);
}

TEST(FusedChains, GradientByHand) {
  const Found f(kStep);
  EXPECT_EQ(f.chains.summary(), "1 attention, 1 attention gradient");
  const FusedKernel& kernel = f.kernel("dq");
  EXPECT_EQ(f.names(kernel.products), (Names{"s", "dp", "dv", "dq", "dk"}));
  EXPECT_EQ(f.names(kernel.reads), (Names{"q", "k", "v", "g"}));
  EXPECT_EQ(f.names(kernel.writes), (Names{"dv", "dq", "dk"}));
  EXPECT_EQ(f.role("dk"), Role::kResult);
  EXPECT_EQ(f.role("dp"), Role::kInner);
  EXPECT_EQ(f.role("ds"), Role::kInner);
  // dQ adds up in 32 bits, with a number per row.
  EXPECT_DOUBLE_EQ(fused_workspace_bytes(f.graph, kernel), 2 * 4 * 16 * 8 * 4 + 512);
}

TEST(FusedChains, CausalMasksAreSeenThroughConstantsAndCalls) {
  const std::string mask = R"(  i = s32[16,16] iota(), iota_dimension=0
  j = s32[16,16] iota(), iota_dimension=1
  lower = pred[16,16] compare(j, i), direction=LE
  lowers = pred[2,4,16,16] broadcast(lower), dimensions={2,3}
  never = bf16[2,4,16,16] broadcast(never0), dimensions={}
  masked = bf16[2,4,16,16] select(lowers, sc, never)
  w = f32[2,4,16,16] convert(masked)
)";
  const std::string text = replaced(replaced(kStep, "  w = f32[2,4,16,16] convert(sc)\n", mask),
                                    "  c = ", "  never0 = bf16[] constant(-1e4)\n  c = ");
  const Found f(text);
  EXPECT_EQ(f.chains.summary(), "1 attention (1 causal), 1 attention gradient");
  EXPECT_TRUE(f.kernel("o").band.causal);
  EXPECT_DOUBLE_EQ(f.kernel("o").band.kept, 17.0 / 32);
  // A mask that compares with a length, not with another place, is none.
  const Found padded(replaced(text, "compare(j, i), direction=LE", "compare(j, five), direction=LE")
                         .replace(0, 0, "")
                         .insert(text.find("  i = s32"),
                                 "  five0 = s32[] constant(5)\n  five = s32[16,16] broadcast(five0), dimensions={}\n"));
  EXPECT_EQ(padded.chains.causal, 0);
  EXPECT_EQ(padded.chains.attention, 1);
}

// kInference with 4 heads of `n` by `n` scores: `mask` makes `masked` out of sc with i (queries), j (keys), and those
// with `small` added or subtracted.
Found masked(const std::string& mask, std::int64_t n, std::int64_t small) {
  const std::string size = std::to_string(n);
  std::string text =
      replaced(kInference, "  w = f32[2,4,16,16] convert(sc)\n", R"(  i = s32[16,16] iota(), iota_dimension=0
  j = s32[16,16] iota(), iota_dimension=1
  none0 = s32[] constant(0)
  none = s32[16,16] broadcast(none0), dimensions={}
  width0 = s32[] constant()" + std::to_string(small) + R"()
  width = s32[16,16] broadcast(width0), dimensions={}
  iw = s32[16,16] add(i, width)
  jw = s32[16,16] add(j, width)
  never0 = bf16[] constant(-1e4)
  never = bf16[2,4,16,16] broadcast(never0), dimensions={}
  lengths = s32[2,16] parameter(3)
  length = s32[2,4,16,16] broadcast(lengths), dimensions={0,3}
)" + mask + "  w = f32[2,4,16,16] convert(masked)\n");
  for (std::size_t at = 0; (at = text.find("16", at)) != std::string::npos;) {
    const bool type = text[at - 1] == 'f';
    if (!type) text.replace(at, 2, size);
    at += type ? 2 : size.size();
  }
  return Found(text);
}
const std::string kSpread = R"(  spread = pred[2,4,16,16] broadcast(keep), dimensions={2,3}
  masked = bf16[2,4,16,16] select(spread, sc, never)
)";

TEST(FusedChains, OfBandsTheShareThatIsKept) {
  struct Case {
    const char* what;
    std::string mask;
    std::function<bool(std::int64_t, std::int64_t)> keeps;
    std::int64_t small;
    int edges;
    bool causal;
  };
  const std::string additive = R"(  free0 = bf16[] constant(0)
  free = bf16[16,16] broadcast(free0), dimensions={}
  no0 = bf16[] constant(-1e9)
  no = bf16[16,16] broadcast(no0), dimensions={}
  bias = bf16[16,16] select(keep, free, no)
  biases = bf16[2,4,16,16] broadcast(bias), dimensions={2,3}
  masked = bf16[2,4,16,16] add(sc, biases)
)";
  const Case cases[] = {
      {"lower", "  keep = pred[16,16] compare(i, j), direction=GE\n" + kSpread, [](auto q, auto k) { return q >= k; },
       0, 1, true},
      {"difference",
       "  df = s32[16,16] subtract(i, j)\n  keep = pred[16,16] compare(df, none), direction=GE\n" + kSpread,
       [](auto q, auto k) { return q - k >= 0; }, 0, 1, true},
      {"added", "  keep = pred[16,16] compare(i, j), direction=GE\n" + additive, [](auto q, auto k) { return q >= k; },
       0, 1, true},
      {"offset", "  keep = pred[16,16] compare(iw, j), direction=GE\n" + kSpread,
       [](auto q, auto k) { return q + 5 >= k; }, 5, 1, true},
      {"lower and lengths", R"(  keep = pred[16,16] compare(i, j), direction=GE
  wide = pred[2,4,16,16] broadcast(keep), dimensions={2,3}
  at = s32[2,4,16,16] broadcast(j), dimensions={2,3}
  within = pred[2,4,16,16] compare(at, length), direction=LT
  both = pred[2,4,16,16] and(wide, within)
  masked = bf16[2,4,16,16] select(both, sc, never)
)",
       [](auto q, auto k) { return q >= k; }, 0, 1, true},
      {"window", R"(  past = pred[16,16] compare(i, j), direction=GE
  near = pred[16,16] compare(i, jw), direction=LE
  keep = pred[16,16] and(past, near)
)" + kSpread,
       [](auto q, auto k) { return q >= k && q <= k + 3; }, 3, 2, false},
      {"both sides", R"(  past = pred[16,16] compare(iw, j), direction=GE
  near = pred[16,16] compare(i, jw), direction=LE
  keep = pred[16,16] and(past, near)
)" + kSpread,
       [](auto q, auto k) { return q + 8 >= k && q <= k + 8; }, 8, 2, false},
  };
  for (const Case& c : cases) {
    for (const std::int64_t n : {16, 20, 1024}) {
      std::int64_t kept = 0;
      for (std::int64_t q = 0; q < n; ++q) {
        for (std::int64_t k = 0; k < n; ++k) kept += c.keeps(q, k) ? 1 : 0;
      }
      const Found f = masked(c.mask, n, c.small);
      const ScoreBand& band = f.kernel("o").band;
      const double share = static_cast<double>(kept) / static_cast<double>(n * n);
      EXPECT_NEAR(band.kept, share, n > 32 ? 0.02 * share : 1e-12) << c.what << " " << n;
      EXPECT_EQ(band.edges, c.edges) << c.what << " " << n;
      EXPECT_EQ(band.causal, c.causal) << c.what << " " << n;
    }
  }
  EXPECT_EQ(masked(cases[5].mask, 16, 3).chains.summary(), "1 attention (1 banded)");
}

TEST(FusedChains, MasksThatNobodySkips) {
  const auto edges = [](const std::string& mask, std::int64_t small) {
    const Found f = masked(mask, 64, small);
    EXPECT_EQ(f.chains.summary(), "1 attention");
    EXPECT_EQ(f.kernel("o").band.kept, 1) << mask;
    return f.kernel("o").band.edges;
  };
  // All keys are kept; a soft bias; a value that is not low; chunks; keys behind a place; a mask that is 0.
  EXPECT_EQ(edges("  keep = pred[16,16] compare(iw, j), direction=GE\n" + kSpread, 5000), 0);
  EXPECT_EQ(edges(R"(  later = pred[16,16] compare(i, j), direction=GT
  a0 = bf16[] constant(0.1)
  a = bf16[16,16] broadcast(a0), dimensions={}
  b0 = bf16[] constant(0.2)
  b = bf16[16,16] broadcast(b0), dimensions={}
  bias = bf16[16,16] select(later, a, b)
  biases = bf16[2,4,16,16] broadcast(bias), dimensions={2,3}
  masked = bf16[2,4,16,16] add(sc, biases)
)",
                  0),
            0);
  EXPECT_EQ(edges(R"(  keep = pred[16,16] compare(i, j), direction=GE
  spread = pred[2,4,16,16] broadcast(keep), dimensions={2,3}
  masked = bf16[2,4,16,16] select(spread, sc, cb)
)",
                  0),
            0);
  EXPECT_EQ(edges(R"(  qi = s32[16,16] divide(i, width)
  ki = s32[16,16] divide(j, width)
  keep = pred[16,16] compare(qi, ki), direction=EQ
)" + kSpread,
                  8),
            0);
  EXPECT_EQ(edges("  keep = pred[16,16] compare(j, width), direction=LT\n" + kSpread, 8), 0);
  // A mask that an input may turn off.
  EXPECT_EQ(edges(R"(  keep = pred[16,16] compare(i, j), direction=GE
  free0 = bf16[] constant(0)
  free = bf16[16,16] broadcast(free0), dimensions={}
  no0 = bf16[] constant(-1e9)
  no = bf16[16,16] broadcast(no0), dimensions={}
  bias = bf16[16,16] select(keep, free, no)
  on = pred[16,16] parameter(4)
  chosen = bf16[16,16] select(on, bias, free)
  biases = bf16[2,4,16,16] broadcast(chosen), dimensions={2,3}
  masked = bf16[2,4,16,16] add(sc, biases)
)",
                  0),
            0);
}

TEST(FusedChains, TimeFollowsTheScoresThatAreKept) {
  const auto ms = [](const ScoreBand& band) { return band.kept / attention_share_of_peak(64, 1024, band, false); };
  const double all = ms({}), causal = ms(kCausal);
  EXPECT_NEAR(causal / all, 0.6, 0.03);  // half, and the tiles on the diagonal
  // |q - k| <= 512 keeps three quarters: slower than causal, no faster than its share.
  EXPECT_GT(ms({0.75, 2, false}), causal);
  EXPECT_LE(ms({0.75, 2, false}), all);
  // 16 keys of 1024: two tiles of eight at least.
  EXPECT_NEAR(ms({16.0 / 1024, 2, false}) / all, 0.21, 0.05);
  EXPECT_LE(ms({0.99, 2, false}), all);
  // The kernel of a module takes its band's share of the products.
  const auto compute_ms = [](const Found& f) {
    const graph::ModuleCost cost = graph::analyze_cost(f.graph);
    const machine::DeviceModel device = machine::load_device("h100");
    return fused_work(KernelModel(f.graph, cost, device), f.graph, f.kernel("o")).compute_ms;
  };
  const double whole = compute_ms(masked("  masked = bf16[2,4,16,16] add(sc, sc)\n", 1024, 0));
  const double half = compute_ms(masked("  keep = pred[16,16] compare(i, j), direction=GE\n" + kSpread, 1024, 0));
  EXPECT_NEAR(half / whole, 0.6, 0.03);
}

// As PyTorch/XLA writes it: batches of heads in one dimension, the mask selected, dropout drawn outside.
TEST(FusedChains, MergedHeadsAndDropout) {
  std::string text = kStep;
  text = replaced(text, "  pc = bf16[2,4,16,16] convert(p)\n", R"(  pd = bf16[2,4,16,16] convert(p)
  pf = bf16[8,16,16] reshape(pd)
  key = u32[4] parameter(4)
  draw = (u32[4], u8[8,16,16]) rng-bit-generator(key), algorithm=rng_philox
  bits = u8[8,16,16] get-tuple-element(draw), index=1
  keep0 = u8[] constant(230)
  keep = u8[8,16,16] broadcast(keep0), dimensions={}
  kept = pred[8,16,16] compare(bits, keep), direction=LT
  none0 = bf16[] constant(0)
  none = bf16[8,16,16] broadcast(none0), dimensions={}
  dropped = bf16[8,16,16] select(kept, pf, none)
  pc = bf16[2,4,16,16] reshape(dropped)
)");
  text = replaced(text, "  dpf = f32[2,4,16,16] convert(dp)\n", R"(  dpr = bf16[8,16,16] reshape(dp)
  dpk = bf16[8,16,16] select(kept, dpr, none)
  dpm = bf16[2,4,16,16] reshape(dpk)
  dpf = f32[2,4,16,16] convert(dpm)
)");
  const Found f(text);
  EXPECT_EQ(f.chains.summary(), "1 attention, 1 attention gradient");
  for (const char* inner : {"kept", "bits", "draw", "dropped", "dpk"}) EXPECT_EQ(f.role(inner), Role::kInner) << inner;
  // Bits that somebody else reads, too, are the kernel's input.
  const Found shared(
      replaced(replaced(text, "ROOT out = (", "ROOT out = (u8[8,16,16], "), "tuple(o,", "tuple(bits, o,"));
  EXPECT_EQ(shared.chains.summary(), f.chains.summary());
  EXPECT_EQ(shared.role("kept"), Role::kInner);
  EXPECT_EQ(shared.role("bits"), Role::kNone);
  EXPECT_EQ(shared.names(shared.kernel("o").reads), (Names{"q", "k", "v", "bits"}));
}

// Four heads of queries share two of keys and values: repeated for each of them, as PyTorch does.
TEST(FusedChains, GroupedHeads) {
  std::string text = kInference;
  for (const char* name : {"k", "v"}) {
    const std::string n = name;
    text = replaced(text, "  " + n + " = bf16[2,4,16,8] parameter(", "  " + n + "0 = bf16[2,2,16,8] parameter(");
    text = replaced(text, "  s = ",
                    "  " + n + "1 = bf16[2,2,2,16,8] broadcast(" + n + "0), dimensions={0,1,3,4}\n  " + n +
                        " = bf16[2,4,16,8] reshape(" + n + "1)\n  s = ");
  }
  const Found f(text);
  EXPECT_EQ(f.chains.summary(), "1 attention");
  EXPECT_EQ(f.names(f.kernel("o").reads), (Names{"q", "k0", "v0"}));
}

// Divided by the sum behind the second product, as MaxText does; the sum leaves the kernel.
TEST(FusedChains, NormalizedBehind) {
  std::string text = replaced(kInference, "  pc = bf16[2,4,16,16] convert(p)\n", "  pc = bf16[2,4,16,16] convert(x)\n");
  text = replaced(text, "  p = f32[2,4,16,16] divide(x, zb)\n", "");
  text = replaced(text, "  zb = f32[2,4,16,16] broadcast(z), dimensions={0,1,2}\n", "");
  text = replaced(text, "  ROOT out = (bf16[2,4,16,8]) tuple(o)\n", R"(  zc = bf16[2,4,16] convert(z)
  zo = bf16[2,4,16,8] broadcast(zc), dimensions={0,1,2}
  ROOT out = bf16[2,4,16,8] divide(o, zo)
)");
  EXPECT_EQ(Found(text).chains.summary(), "1 attention");
}

// Chains that look alike but differ are never fused, whole or in parts.
TEST(FusedChains, NearMisses) {
  const auto none = [](const std::string& text, const FusionRule& rule = kAll) {
    const Found f(text, rule);
    EXPECT_EQ(f.chains.summary(), "");
    EXPECT_TRUE(f.chains.kernels.empty());
    EXPECT_TRUE(std::all_of(f.chains.role.begin(), f.chains.role.end(), [](Role role) { return role == Role::kNone; }));
    return f.chains.missed;
  };
  // Over queries: what is summed is not what the second product contracts.
  std::string queries = kInference;
  for (const char* name :
       {"m = f32[2,4,16] reduce(w, low), dimensions={", "z = f32[2,4,16] reduce(x, zero), dimensions={"})
    queries = replaced(queries, std::string(name) + "3}", std::string(name) + "2}");
  for (const char* name : {"broadcast(m), dimensions={", "broadcast(z), dimensions={"})
    queries = replaced(queries, std::string(name) + "0,1,2}", std::string(name) + "0,1,3}");
  EXPECT_EQ(none(queries), 0);
  // With its gradient it is the mirror image of attention, but for what follows from what.
  std::string trained = kStep;
  for (const char* name :
       {"m = f32[2,4,16] reduce(w, low), dimensions={", "z = f32[2,4,16] reduce(x, zero), dimensions={",
        "r = f32[2,4,16] reduce(t, zero), dimensions={"})
    trained = replaced(trained, std::string(name) + "3}", std::string(name) + "2}");
  for (const char* name : {"broadcast(m), dimensions={", "broadcast(z), dimensions={", "broadcast(r), dimensions={"})
    trained = replaced(trained, std::string(name) + "0,1,2}", std::string(name) + "0,1,3}");
  none(replaced(trained, "  g = bf16[2,4,16,8] parameter(3)\n", "  g = bf16[2,4,16,8] multiply(o, o)\n"));
  // Probabilities that are returned, averaged over heads, or read in another step; scores that are.
  const std::string out = "  ROOT out = (bf16[2,4,16,8]) tuple(o)\n";
  EXPECT_EQ(none(replaced(kInference, out, "  ROOT out = (bf16[2,4,16,8], f32[2,4,16,16]) tuple(o, p)\n")), 1);
  EXPECT_EQ(none(replaced(kInference, out,
                          "  h = f32[2,16,16] reduce(p, zero), dimensions={1}, to_apply=add\n"
                          "  ROOT out = (bf16[2,4,16,8], f32[2,16,16]) tuple(o, h)\n")),
            1);
  EXPECT_EQ(none(replaced(kInference, out, "  ROOT out = (bf16[2,4,16,8], bf16[2,4,16,16]) tuple(o, s)\n")), 1);
  // Their entropy is no statistic that kernels have.
  EXPECT_EQ(none(replaced(kInference, out,
                          "  l = f32[2,4,16,16] multiply(p, d)\n"
                          "  h = f32[2,4,16] reduce(l, zero), dimensions={3}, to_apply=add\n"
                          "  ROOT out = (bf16[2,4,16,8], f32[2,4,16]) tuple(o, h)\n")),
            1);
  // The gradient of the scores is wanted, too (a bias that is trained).
  EXPECT_EQ(none(replaced(replaced(kStep, "ROOT out = (", "ROOT out = (f32[2,4,16,16], "), "tuple(o,", "tuple(ds, o,")),
            1);
  // Two things are summed with the same weights; the scores are a sum of two products.
  EXPECT_EQ(none(replaced(replaced(kInference, out,
                                   "  o2 = bf16[2,4,16,8] dot(pc, q), lhs_batch_dims={0,1}, "
                                   "lhs_contracting_dims={3}, rhs_batch_dims={0,1}, "
                                   "rhs_contracting_dims={2}\n  ROOT out = (bf16[2,4,16,8], "
                                   "bf16[2,4,16,8]) tuple(o, o2)\n"),
                          "HloModule m", "HloModule m")),
            1);
  EXPECT_EQ(none(replaced(kInference, "  sc = bf16[2,4,16,16] multiply(s, cb)\n",
                          "  s2 = bf16[2,4,16,16] dot(q, v), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, "
                          "rhs_batch_dims={0,1}, rhs_contracting_dims={3}\n  sc = bf16[2,4,16,16] add(s, s2)\n")),
            0);
  // Not normalized at all.
  EXPECT_EQ(none(replaced(replaced(kInference, "z = f32[2,4,16] reduce(x, zero), dimensions={3}, to_apply=add",
                                   "z = f32[2,4,16] reduce(x, low), dimensions={3}, to_apply=max"),
                          "HloModule m", "HloModule m")),
            0);
  // Heads that do not fit into a kernel.
  std::string wide = kInference;
  for (std::size_t at; (at = wide.find("16,8]")) != std::string::npos;) wide.replace(at, 5, "16,512]");
  none(wide);
  EXPECT_EQ(Found(wide, kAll).chains.missed_head, 1);
}

TEST(FusedChains, ReasonsForWhatIsAsWritten) {
  std::string single = kStep;
  for (std::size_t at; (at = single.find("bf16")) != std::string::npos;) single.replace(at, 4, "f32");
  const FusedChains typed = Found(single, k16Bit).chains;
  EXPECT_EQ(typed.missed, 1);
  EXPECT_EQ(typed.missed_type, 1);
  const std::string read =
      replaced(kInference, kForwardEnd, "  ROOT out = (bf16[2,4,16,8], f32[2,4,16,16]) tuple(o, p)\n}\n");
  const FusedChains others = Found(read, kAll).chains;
  EXPECT_EQ(others.missed - others.missed_type - others.missed_head, 1);
}

// In f32 on vector units, too: what is computed again there costs more than what is moved.
TEST(FusedChains, NoSlowerThanAsWritten) {
  for (const char* type : {"f32", "bf16"}) {
    std::string text = kStep;
    for (std::size_t at; (at = text.find("bf16")) != std::string::npos;) text.replace(at, 4, "@");
    for (std::size_t at; (at = text.find("@")) != std::string::npos;) text.replace(at, 1, type);
    for (std::size_t at; (at = text.find("16,8]")) != std::string::npos;) text.replace(at, 5, "197,64]");
    for (std::size_t at; (at = text.find("16,16]")) != std::string::npos;) text.replace(at, 6, "197,197]");
    for (std::size_t at; (at = text.find("[2,4,16]")) != std::string::npos;) text.replace(at, 8, "[2,4,197]");
    for (std::size_t at; (at = text.find("[2,4,")) != std::string::npos;) text.replace(at, 5, "[64,12,");
    for (const char* name : {"v100-32gb", "a100-80gb", "h100"}) {
      const machine::DeviceModel device = machine::load_device(name);
      const auto ms = [&](const FusionRule& rule) {
        const Found f(text, rule);
        const ModuleStructure structure(f.graph, f.chains);
        TimeEstimator estimator(f.graph, structure);
        estimator.measure();
        const InstructionTimes times = estimator.estimate(device);
        return std::accumulate(times.ms.begin(), times.ms.end(), 0.0);
      };
      EXPECT_LE(ms(kAll), ms({})) << type << " " << name;
    }
  }
}

TEST(FusedChains, TypesAndModes) {
  std::string single = kStep;
  for (std::size_t at; (at = single.find("bf16")) != std::string::npos;) single.replace(at, 4, "f32");
  EXPECT_EQ(Found(single, k16Bit).chains.summary(), "");
  EXPECT_EQ(Found(single, kAll).chains.summary(), "1 attention, 1 attention gradient");
  const auto device = [](const char* name) { return machine::load_device(name); };
  const FusionRule ampere = fusion_rule(AttentionMode::kAuto, {device("a100-80gb")});
  EXPECT_TRUE(ampere.attention && ampere.loss && ampere.only_16bit);
  EXPECT_FALSE(fusion_rule(AttentionMode::kAuto, {device("v100-16gb")}).attention);
  EXPECT_FALSE(fusion_rule(AttentionMode::kAuto, {device("a100-80gb"), device("v100-16gb")}).attention);
  const FusionRule all = fusion_rule(AttentionMode::kFused, {device("v100-16gb")});
  EXPECT_TRUE(all.attention && !all.only_16bit);
  EXPECT_FALSE(fusion_rule(AttentionMode::kAsWritten, {device("h100")}).attention);
  EXPECT_EQ(parse_attention_mode("as-written"), AttentionMode::kAsWritten);
  EXPECT_THROW(parse_attention_mode("flash"), Error);
}

// A function that two layers call is inside when it is at both places, and outside when one of them is something else.
TEST(FusedChains, SharedFunctions) {
  const std::string function = R"(soften { a = f32[2,4,16,16] parameter(0)
  ROOT y = f32[2,4,16,16] exponential(a) }
)";
  std::string text = replaced(kInference, "ENTRY", function + "ENTRY");
  text = replaced(text, "x = f32[2,4,16,16] exponential(d)", "x = f32[2,4,16,16] call(d), to_apply=soften");
  EXPECT_EQ(Found(text).chains.summary(), "1 attention");
  text = replaced(text, "  ROOT out = (bf16[2,4,16,8]) tuple(o)\n",
                  "  other = f32[2,4,16,16] parameter(3)\n  e = f32[2,4,16,16] call(other), to_apply=soften\n"
                  "  ROOT out = (bf16[2,4,16,8], f32[2,4,16,16]) tuple(o, e)\n");
  EXPECT_EQ(Found(text).chains.summary(), "");
  EXPECT_EQ(Found(text).chains.missed, 1);
}

// logits [2,8,32] of labels: the loss, and its gradient as JAX writes it (a scatter of -1 beside the softmax).
const std::string kLoss = kReducers + R"(ENTRY e {
  h = bf16[2,8,4] parameter(0)
  w = bf16[4,32] parameter(1)
  label = s32[2,8] parameter(2)
  l = bf16[2,8,32] dot(h, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  f = f32[2,8,32] convert(l)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[2,8] reduce(f, low), dimensions={2}, to_apply=max
  mb = f32[2,8,32] broadcast(m), dimensions={0,1}
  d = f32[2,8,32] subtract(f, mb)
  x = f32[2,8,32] exponential(d)
  z = f32[2,8] reduce(x, zero), dimensions={2}, to_apply=add
  lz = f32[2,8] log(z)
  lb = f32[2,8,32] broadcast(lz), dimensions={0,1}
  logp = f32[2,8,32] subtract(d, lb)
  lab = s32[2,8,32] broadcast(label), dimensions={0,1}
  i = s32[2,8,32] iota(), iota_dimension=2
  hot = pred[2,8,32] compare(i, lab), direction=EQ
  hotf = f32[2,8,32] convert(hot)
  picked = f32[2,8,32] multiply(logp, hotf)
  loss = f32[2,8] reduce(picked, zero), dimensions={2}, to_apply=add
  zb = f32[2,8,32] broadcast(z), dimensions={0,1}
  p = f32[2,8,32] divide(x, zb)
  g = f32[2,8,32] subtract(p, hotf)
  gc = bf16[2,8,32] convert(g)
  dw = bf16[4,32] dot(h, gc), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  ROOT out = (f32[2,8], bf16[4,32]) tuple(loss, dw)
}
)";

TEST(FusedChains, CrossEntropyByHand) {
  const Found f(kLoss);
  EXPECT_EQ(f.chains.summary(), "1 cross-entropy, 1 cross-entropy gradient");
  EXPECT_EQ(f.names(f.kernel("z").reads), (Names{"l"}));
  EXPECT_EQ(f.names(f.kernel("gc").reads), (Names{"l"}));
  EXPECT_EQ(f.names(f.kernel("gc").writes), (Names{"gc"}));
  for (const char* inner : {"f", "x", "logp", "picked", "p", "g", "m"}) EXPECT_EQ(f.role(inner), Role::kInner) << inner;
  EXPECT_EQ(f.role("loss"), Role::kResult);
  for (const char* outer : {"l", "dw"}) EXPECT_EQ(f.role(outer), Role::kNone) << outer;
}

TEST(FusedChains, CrossEntropyNearMisses) {
  const auto summary = [](const std::string& text) { return Found(text, kAll).chains.summary(); };
  const std::string out = "  ROOT out = (f32[2,8], bf16[4,32]) tuple(loss, dw)\n";
  // Probabilities or their logarithms that are wanted, too.
  EXPECT_EQ(summary(replaced(kLoss, out, "  ROOT out = (f32[2,8], bf16[4,32], f32[2,8,32]) tuple(loss, dw, p)\n")), "");
  EXPECT_EQ(summary(replaced(kLoss, out, "  ROOT out = (f32[2,8], bf16[4,32], f32[2,8,32]) tuple(loss, dw, logp)\n")),
            "");
  // Soft labels (distillation): nobody picks one class.
  EXPECT_EQ(summary(replaced(kLoss, "  hotf = f32[2,8,32] convert(hot)\n", "  hotf = f32[2,8,32] parameter(3)\n")), "");
  // A softmax alone.
  EXPECT_EQ(summary(replaced(replaced(kLoss, "  lz = f32[2,8] log(z)\n", "  lz = f32[2,8] negate(z)\n"), "m", "m")),
            "");
  // A router of experts: the probability of the chosen one goes on, and the squares of the log-sum are a loss.
  const std::string router = replaced(replaced(kLoss, "multiply(logp, hotf)", "multiply(p, hotf)"),
                                      "  g = f32[2,8,32] subtract(p, hotf)\n", "  g = f32[2,8,32] copy(picked)\n");
  const auto last = [&](std::string text) {
    // p stands before what reads it.
    const std::string p = "  p = f32[2,8,32] divide(x, zb)\n",
                      zb = "  zb = f32[2,8,32] broadcast(z), dimensions={0,1}\n";
    return replaced(replaced(replaced(std::move(text), p, ""), zb, ""), "  picked = ", zb + p + "  picked = ");
  };
  EXPECT_EQ(summary(last(replaced(router, "tuple(loss, dw)", "tuple(lz, dw)"))), "");
  // Logits that are returned are stored anyway.
  EXPECT_EQ(summary(replaced(kLoss, out, "  ROOT out = (f32[2,8], bf16[4,32], bf16[2,8,32]) tuple(loss, dw, l)\n")),
            "1 cross-entropy, 1 cross-entropy gradient");
}

TEST(FusedChains, ReshapedDimensions) {
  EXPECT_EQ(reshaped_dimension({2, 16, 8, 64}, 2, {32, 8, 64}), 1);
  EXPECT_EQ(reshaped_dimension({32, 8, 64}, 1, {2, 16, 8, 64}), 2);
  EXPECT_EQ(reshaped_dimension({2, 16, 8, 64}, 2, {2, 128, 64}), std::nullopt);
  EXPECT_EQ(reshaped_dimension({4, 4, 4}, 1, {16, 4}), std::nullopt);
  EXPECT_EQ(reshaped_dimension({4, 1, 4}, 2, {4, 4}), 1);
}

TEST(FusedChains, ShareOfThePeakIsWhatWasMeasured) {
  // TFLOP/s of 989 on an H100, heads of 128: pytorch/benchmark #2391.
  const std::pair<int, double> measured[] = {{512, 430.3},  {1024, 517.1}, {2048, 565.5},
                                             {4096, 590.2}, {8192, 614.2}, {16384, 620.7}};
  for (const auto& [keys, tflops] : measured)
    EXPECT_NEAR(attention_share_of_peak(128, keys, {}, false) * 989 / tflops, 1, 0.02) << keys;
  EXPECT_LT(attention_share_of_peak(64, 2048, {}, false), attention_share_of_peak(128, 2048, {}, false));
  EXPECT_LT(attention_share_of_peak(128, 2048, kCausal, false), attention_share_of_peak(128, 2048, {}, false));
  EXPECT_LT(attention_share_of_peak(128, 2048, {}, true), attention_share_of_peak(128, 2048, {}, false));
}

// Slow and obvious: whoever reads a tile inside a chain is in a chain.
void expect_closed(const Graph& graph, const FusedChains& chains, const std::string& what) {
  if (chains.role.empty()) return;
  graph::FlowOptions options;
  options.loops = true;
  const graph::FlowGraph flow = graph::FlowGraph::build(graph, options);
  std::set<std::int64_t> tiles;
  for (const FusedKernel& kernel : chains.kernels) tiles.insert(graph.shape_of(kernel.tile).num_elements);
  std::set<graph::NodeId> results(flow.results().begin(), flow.results().end());
  for (graph::NodeId id = 0; id < flow.size(); ++id) {
    const graph::FlowNode& node = flow.node(id);
    if (node.leaf != graph::kNone || !chains.is_inner(node.instruction)) continue;
    EXPECT_EQ(results.count(id), 0u) << what;
    if (!flow.shape(id).is_array() || tiles.count(flow.shape(id).num_elements) == 0) continue;
    for (const graph::NodeId user : flow.users(id)) {
      EXPECT_TRUE(chains.role_of(flow.node(user).instruction) != Role::kNone ||
                  flow.node(user).opcode == graph::Opcode::kGather)
          << what << ": " << graph.instruction(flow.node(user).instruction).name << " reads "
          << graph.instruction(node.instruction).name;
    }
  }
}

TEST(FusedChains, FixturesHaveWhatTheirModelsHave) {
  const std::pair<const char*, const char*> expected[] = {
      {"bert48", "48 attentions, 48 attention gradients, 2 cross-entropies, 2 cross-entropy gradients"},
      {"gpt2", "12 attentions (12 causal), 12 attention gradients, 1 cross-entropy, 1 cross-entropy gradient"},
      {"gpt2_forward", "12 attentions (12 causal)"},
      {"lit_small", "4 attentions, 2 attention gradients"},
      {"resnet50", "1 cross-entropy, 1 cross-entropy gradient"},
      {"t5_6_6", "18 attentions (6 causal), 18 attention gradients, 1 cross-entropy, 1 cross-entropy gradient"},
      {"tiny_mlp", ""},
      {"transformer_bf16", "6 attentions (6 causal), 6 attention gradients, 1 cross-entropy, 1 cross-entropy gradient"},
      {"transformer_remat",
       "12 attentions (12 causal), 6 attention gradients, 1 cross-entropy, 1 cross-entropy gradient"},
      {"transformer_scan", "1 attention (1 causal), 1 attention gradient, 1 cross-entropy, 1 cross-entropy gradient"},
      {"vit_forward", "12 attentions"},
  };
  for (const auto& [name, summary] : expected) {
    std::string path = kHloFixtures + name + ".hlo";
    if (!std::filesystem::exists(path)) path += ".gz";
    const hlo::HloModule module = load_model(path, "").module;
    const FusedChains chains = find_fused_chains(module.graph, kAll);
    EXPECT_EQ(chains.summary(), summary) << name;
    expect_closed(module.graph, chains, name);
    const FusedChains short_ones = find_fused_chains(module.graph, k16Bit);
    EXPECT_EQ(short_ones.attention, std::string(name) == "transformer_bf16" ? 6 : 0) << name;
  }
}

// A loop over layers keeps Q, K, V and a number per row for its gradient's loop, not the stacks of probabilities.
TEST(FusedChains, LoopsOverLayers) {
  const hlo::HloModule module = load_model(kHloFixtures + "transformer_scan.hlo.gz", "").module;
  EXPECT_EQ(find_fused_chains(module.graph, kAll).dropped_leaves.size(), 2u);
  ProfileRequest request;
  request.attention = AttentionMode::kAsWritten;
  const ModelProfile written = profile_module(module, "scan", request);
  request.attention = AttentionMode::kFused;
  const ModelProfile fused = profile_module(module, "scan", request);
  // 24 layers of 4 x 16 heads x 512 x 512 in f32 (the exponentials follow from the probabilities); 24 of 4 x 16 x 512
  // statistics come instead.
  const double stacks = 24.0 * 4 * 16 * 512 * 512 * 4, statistics = 24.0 * 4 * 16 * 512 * 4;
  const double saved = written.memory.stash_bytes - fused.memory.stash_bytes;
  EXPECT_NEAR(saved, stacks - statistics, 0.1 * stacks);
  EXPECT_LT(fused.forward_ms, written.forward_ms);
  EXPECT_LT(fused.backward_ms, written.backward_ms);
}

// Nothing crosses a cut inside a chain but what the chain is made of.
TEST(FusedChains, CutsInsideChains) {
  const hlo::HloModule module = load_model(kHloFixtures + "gpt2_forward.hlo.gz", "").module;
  ProfileRequest request;
  request.attention = AttentionMode::kAsWritten;
  const ModelProfile written = profile_module(module, "gpt2", request);
  request.attention = AttentionMode::kFused;
  const ModelProfile fused = profile_module(module, "gpt2", request);
  const auto most = [](const std::vector<double>& a) { return *std::max_element(a.begin(), a.end()); };
  ASSERT_EQ(fused.profile.size(), written.profile.size());
  EXPECT_LT(most(fused.profile.a_bytes), 0.5 * most(written.profile.a_bytes));
}

TEST(FusedChains, CorpusModulesAreClosed) {
  const char* corpus = std::getenv("AUTOMAP_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: its modules were not searched for chains";
  const std::pair<const char*, std::pair<int, int>> expected[] = {
      // forward and backward of 12 layers; a loop over layers once, and once more where it is recomputed
      {"train_1dev/vit_train_1dev", {12, 12}},        {"train_1dev/clip_train_1dev", {24, 24}},
      {"train_1dev/paligemma_train_1dev", {14, 13}},  {"train_1dev/nv_maxtext_1n1g_train", {2, 1}},
      {"train_spmd/llama3_8b_train_fsdp8", {2, 1}},   {"infer_pairs/flan_t5_large_fwd_1dev", {72, 0}},
      {"infer_pairs/llama3_8b_prefill_1dev", {1, 0}}, {"train_1dev/mlp_mixer_train_1dev", {0, 0}},
      {"infer_1dev/alphafold3_fwd_1dev", {30, 0}},
  };
  for (const auto& [name, count] : expected) {
    const hlo::HloModule module = load_model(std::string(corpus) + "/hlo/" + name + ".before_opt.hlo", "").module;
    const FusedChains chains = find_fused_chains(module.graph, kAll);
    EXPECT_EQ(chains.attention, count.first) << name;
    EXPECT_EQ(chains.attention_gradients, count.second) << name;
    expect_closed(module.graph, chains, name);
  }
}

}  // namespace
}  // namespace automap::profile
