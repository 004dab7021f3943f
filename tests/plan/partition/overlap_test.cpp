#include "plan/partition/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "common/hlo/hlo_reader.h"
#include "plan/partition/mesh_planner.h"
#include "plan/partition/planner.h"
#include "plan/partition/price.h"
#include "profile/profile_hlo.h"
#include "tests/sanitized.h"

namespace automap::partition {
namespace {

using graph::NodeId;
using sharding::Propagation;
using sharding::ShardingModel;

constexpr std::uint8_t kOwn = axis_stream(0), kOther = axis_stream(1);

TEST(ListSchedule, ByHand) {
  const std::uint8_t compute = kComputeStream;
  EXPECT_EQ(list_schedule_ms({}), 0);
  EXPECT_EQ(list_schedule_ms({{2, compute, {}}, {3, compute, {}}}), 5);
  // A sum, and its reader.
  EXPECT_EQ(list_schedule_ms({{2, compute, {}}, {3, kOwn, {0}}, {4, compute, {1}}}), 9);
  // The same beside something that waits for nobody.
  EXPECT_EQ(list_schedule_ms({{2, compute, {}}, {3, kOwn, {0}}, {4, compute, {1}}, {3, compute, {}}}), 9);
  // The task with the longest way to the end goes first, wherever it stands.
  EXPECT_EQ(list_schedule_ms({{3, compute, {}}, {2, compute, {}}, {3, kOwn, {1}}, {4, compute, {2}}}), 9);
  // One axis moves one thing at a time, two axes two.
  EXPECT_EQ(list_schedule_ms({{1, compute, {}}, {5, kOwn, {0}}, {5, kOwn, {0}}}), 11);
  EXPECT_EQ(list_schedule_ms({{1, compute, {}}, {5, kOwn, {0}}, {5, kOther, {0}}}), 6);
  // The collective that came first moves first, although the other one has the longer way: 1 + 5 + 2 + 3.
  EXPECT_EQ(list_schedule_ms({{1, compute, {}}, {1, compute, {0}}, {5, kOwn, {0}}, {2, kOwn, {1}}, {3, compute, {3}}}),
            11);
  // A loop with collectives waits for its axis, and what computes meanwhile is done before it.
  const auto both = static_cast<std::uint8_t>(compute | kOwn);
  EXPECT_EQ(list_schedule_ms({{1, compute, {}}, {5, kOwn, {0}}, {10, both, {0}}, {3, compute, {0}}}), 16);
  EXPECT_EQ(list_schedule_ms({{1, compute, {}}, {5, kOther, {0}}, {10, both, {0}}, {3, compute, {0}}}), 14);
  // A task without a stream takes no time and waits for none.
  EXPECT_EQ(list_schedule_ms({{1, compute, {}}, {0, 0, {0}}, {4, kOwn, {1}}, {4, compute, {0}}}), 5);
}

// Millisecond by millisecond.
double slow_schedule_ms(const std::vector<StreamTask>& tasks) {
  const std::size_t n = tasks.size();
  const std::function<double(std::size_t)> way = [&](std::size_t task) {
    double longest = 0;
    for (std::size_t later = 0; later < n; ++later) {
      const auto& before = tasks[later].before;
      if (std::count(before.begin(), before.end(), static_cast<std::int32_t>(task)) > 0)
        longest = std::max(longest, way(later));
    }
    return tasks[task].ms + longest;
  };
  std::vector<double> ways(n), ready_since(n, -1), left(n);
  for (std::size_t i = 0; i < n; ++i) {
    ways[i] = way(i);
    left[i] = tasks[i].ms;
  }
  std::vector<bool> started(n, false), done(n, false);
  for (double now = 0;; ++now) {
    for (std::size_t i = 0; i < n; ++i) {
      if (started[i] && left[i] <= 0) done[i] = true;
    }
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < n; ++i) {
        const auto is_done = [&](std::int32_t before) { return done[at(before)]; };
        if (done[i] || !std::all_of(tasks[i].before.begin(), tasks[i].before.end(), is_done)) continue;
        if (ready_since[i] < 0) ready_since[i] = now;
        if (tasks[i].streams == 0) more = done[i] = true;
      }
    }
    if (std::count(done.begin(), done.end(), true) == static_cast<std::ptrdiff_t>(n)) return now;
    unsigned busy = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (started[i] && !done[i]) busy |= tasks[i].streams;
    }
    const auto start_one = [&](bool computes, unsigned stream) {
      std::size_t best = n;
      for (std::size_t i = 0; i < n; ++i) {
        if (done[i] || started[i] || ready_since[i] < 0 || (busy & tasks[i].streams) != 0) continue;
        if (((tasks[i].streams & kComputeStream) != 0) != computes || (tasks[i].streams & stream) == 0) continue;
        const auto key = [&](std::size_t k) { return std::make_pair(computes ? 0 : ready_since[k], -ways[k]); };
        if (best == n || key(i) < key(best)) best = i;
      }
      if (best == n) return;
      started[best] = true;
      busy |= tasks[best].streams;
    };
    start_one(true, kComputeStream);
    start_one(false, kOwn);
    start_one(false, kOther);
    for (std::size_t i = 0; i < n; ++i) {
      if (started[i] && !done[i]) --left[i];
    }
  }
}

TEST(ListSchedule, IsTheSlowOne) {
  Rng rng(7, 0, 0);
  for (int round = 0; round < 3000; ++round) {
    std::vector<StreamTask> tasks(1 + rng.below(12));
    double all = 0;
    std::map<unsigned, double> of_stream;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      static const std::uint8_t kStreams[] = {kComputeStream,
                                              kComputeStream,
                                              kComputeStream,
                                              kOwn,
                                              kOwn,
                                              kOther,
                                              0,
                                              kComputeStream | kOwn,
                                              kComputeStream | kOwn | kOther};
      tasks[i].streams = kStreams[rng.below(std::size(kStreams))];
      if (tasks[i].streams != 0) tasks[i].ms = static_cast<double>(1 + rng.below(6));
      for (std::size_t before = 0; before < i; ++before) {
        if (rng.below(4) == 0) tasks[i].before.push_back(static_cast<std::int32_t>(before));
      }
      all += tasks[i].ms;
      for (const unsigned stream : {unsigned{kComputeStream}, unsigned{kOwn}, unsigned{kOther}}) {
        if ((tasks[i].streams & stream) != 0) of_stream[stream] += tasks[i].ms;
      }
    }
    const double ms = list_schedule_ms(tasks);
    ASSERT_EQ(ms, slow_schedule_ms(tasks)) << round;
    EXPECT_LE(ms, all);
    for (const auto& [stream, used] : of_stream) EXPECT_GE(ms, used);
  }
}

struct OverlapCase {
  OverlapCase(hlo::HloModule read, int shards, const std::string& cluster_name,
              const std::vector<graph::VariableRequest>* variables = nullptr)
      : module(std::move(read)),
        cluster(machine::load_cluster(cluster_name)),
        device(profile::reference_device("", cluster)) {
    sharding::ModelOptions options;
    options.shards = shards;
    options.variables = variables;
    model = std::make_unique<ShardingModel>(ShardingModel::build(module.graph, options));
    cost = std::make_unique<PartitionCost>(*model, device, cluster);
  }
  static OverlapCase fixture(const std::string& name, int shards = 8, const std::string& cluster = "config-a") {
    return OverlapCase(hlo::load_hlo(AUTOMAP_SOURCE_DIR "/fixtures/hlo/" + name), shards, cluster);
  }
  static OverlapCase text(const std::string& text, int shards = 8) {
    return OverlapCase(hlo::read_hlo(text, "test.hlo"), shards, "config-a");
  }
  Propagation decide(Rng* rng) const {
    Propagation decided(model->linkage());
    for (int i = 0; i < 1000 && !decided.undecided().empty(); ++i) {
      const auto undecided = decided.undecided();
      const sharding::GroupId group = undecided[rng->below(undecided.size())];
      const sharding::TensorDim input = model->linkage().inputs(group)[0];
      if (rng->below(3) == 0 || decided.split(input)) decided.keep_whole(input);
    }
    return decided;
  }
  hlo::HloModule module;
  machine::Cluster cluster;
  machine::DeviceModel device;
  std::unique_ptr<ShardingModel> model;
  std::unique_ptr<PartitionCost> cost;
};

// Properties of every step.
void expect_between(const PartitionCost& cost, const Propagation& decided) {
  const PlanEstimate estimate = estimate_step(cost, decided, true);
  ASSERT_TRUE(estimate.overlapped_ms);
  const PartitionCost::StepParts parts = cost.parts(decided);
  double compute = 0, own = 0, other = 0;
  for (const double ms : parts.compute_ms) compute += ms;
  for (const PartitionCost::CollectivePart& part : parts.collectives) {
    EXPECT_GE(part.ms, -1e-12);
    (part.other_axis ? other : own) += part.ms;
  }
  const double near = 1e-9 * estimate.step_ms;
  EXPECT_NEAR(compute, estimate.compute_ms, near);
  EXPECT_NEAR(own, estimate.collective_ms - estimate.other_axis_ms, near);
  EXPECT_NEAR(other, estimate.other_axis_ms, near);
  // As simulated, before estimate_step() rounds.
  const double ms = overlapped_ms(cost, decided);
  EXPECT_NEAR(ms, *estimate.overlapped_ms, near);
  EXPECT_LE(ms, estimate.step_ms + near);
  EXPECT_GE(ms, std::max({compute, own, other}) - near);
  EXPECT_EQ(estimate.expected_ms(), *estimate.overlapped_ms);
  const PlanEstimate apart = estimate_step(cost, decided, false);
  EXPECT_FALSE(apart.overlapped_ms);
  EXPECT_EQ(apart.expected_ms(), estimate.step_ms);
}

TEST(Overlap, IsBetweenTheLongestStreamAndTheSum) {
  Rng rng(1, 0, 0);
  for (const char* name : {"tiny_mlp.hlo", "lit_small.hlo.gz", "t5_6_6.hlo.gz", "transformer_scan.hlo.gz",
                           "scan_remat.hlo.gz", "moe_sort.hlo.gz", "set_prediction.hlo.gz", "mamba.hlo.gz"}) {
    const OverlapCase c = OverlapCase::fixture(name);
    for (int round = 0; round < 5; ++round) {
      SCOPED_TRACE(name + (" " + std::to_string(round)));
      expect_between(*c.cost, c.decide(&rng));
    }
  }
}

TEST(Overlap, WithoutCollectivesItIsTheSum) {
  Rng rng(2, 0, 0);
  for (const char* name : {"tiny_mlp.hlo", "transformer_scan.hlo.gz", "moe_sort.hlo.gz"}) {
    const OverlapCase eight = OverlapCase::fixture(name), one = OverlapCase::fixture(name, 1);
    const Propagation whole(eight.model->linkage());
    const PlanEstimate estimate = eight.cost->estimate(whole);
    EXPECT_NEAR(overlapped_ms(*eight.cost, whole), estimate.step_ms, 1e-9 * estimate.step_ms) << name;
    // On one device splitting means nothing.
    const Propagation decided = one.decide(&rng);
    const PlanEstimate alone = one.cost->estimate(decided);
    EXPECT_NEAR(overlapped_ms(*one.cost, decided), alone.step_ms, 1e-9 * alone.step_ms) << name;
  }
}

// Plans of both kinds, with gathers, on one axis and on two.
TEST(Overlap, OfPlans) {
  for (const char* name : {"tiny_mlp.hlo", "gpt2.hlo.gz", "scan_remat.hlo.gz", "moe_small.hlo.gz"}) {
    if (kSanitized && name != std::string("tiny_mlp.hlo")) break;
    for (const bool data : {false, true}) {
      SCOPED_TRACE(std::string(name) + (data ? " data" : " operators"));
      const OverlapCase c = OverlapCase::fixture(name, 2);
      PlanningRequest request;
      request.data = data;
      request.reshard = !data;
      request.objective = data ? models::PartitionObjective::kCount : models::PartitionObjective::kTime;
      const Planned planned = make_plan(c.model.get(), c.device, c.cluster, request);
      expect_between(*c.cost, planned.decided);
    }
    for (const Zero zero : {Zero::kOff, Zero::kOptimizer, Zero::kFull}) {
      SCOPED_TRACE(std::string(name) + " zero " + std::to_string(static_cast<int>(zero)));
      const OverlapCase c = OverlapCase::fixture(name, 1);
      MeshRequest request;
      request.data = request.model = 2;
      request.zero = zero;
      request.operators.reshard = true;
      const PlannedMesh planned = make_mesh_plan(*c.model, c.device, c.cluster, request);
      const sharding::DecidedAxis outer{&planned.data.model, &*planned.data.decided};
      const OtherAxis left = left_by(outer, 2, c.device, c.cluster);
      const PartitionCost cost(planned.model.model, c.device, c.cluster, &left);
      const PlanEstimate estimate = cost.estimate(*planned.model.decided);
      EXPECT_GT(estimate.other_axis_ms, 0);
      EXPECT_GT(estimate.collective_ms, estimate.other_axis_ms);
      expect_between(cost, *planned.model.decided);
      EXPECT_EQ(price(outer, {&planned.model.model, &*planned.model.decided}, c.device, c.cluster, true)
                    .estimate.overlapped_ms,
                estimate_step(cost, *planned.model.decided, true).overlapped_ms);
    }
  }
}

// Sums that are combined are priced, and simulated, where the written module has them.
TEST(Overlap, OfCombinedSums) {
  for (const char* name : {"tiny_mlp.hlo", "t5_6_6.hlo.gz", "transformer_scan.hlo.gz"}) {
    SCOPED_TRACE(name);
    const OverlapCase c = OverlapCase::fixture(name);
    c.model->combine_sums(true);
    PlanningRequest request;
    request.reshard = true;
    const Planned planned = make_plan(c.model.get(), c.device, c.cluster, request);
    expect_between(*c.cost, planned.decided);
  }
}

// A module without loops and conditionals, from one event to the next, each time looking at everything.
double slow_overlapped_ms(const OverlapCase& c, const Propagation& decided) {
  const graph::FlowGraph& flow = c.model->flow();
  const PartitionCost::StepParts parts = c.cost->parts(decided);
  const std::size_t n = at(flow.size()), all = n + parts.collectives.size();
  const auto ms = [&](std::size_t i) { return i < n ? parts.compute_ms[i] : parts.collectives[i - n].ms; };
  // The tasks that `i` waits for.
  std::vector<std::set<std::size_t>> needs(all);
  for (std::size_t m = n; m < all; ++m) {
    const sharding::Collective& move = parts.collectives[m - n].collective;
    const bool sum = move.reduces();
    needs[m].insert(at(move.node));
    for (const NodeId user : flow.users(move.node)) {
      const bool asks = std::count(move.sources.begin(), move.sources.end(), user) > 0;
      if (sum || asks) needs[at(user)].insert(m);
    }
    for (std::size_t k = n; k < all && !sum; ++k) {
      const sharding::Collective& other = parts.collectives[k - n].collective;
      if (other.reduces() && other.node == move.node) needs[m].insert(k);
    }
  }
  for (NodeId id = 0; id < flow.size(); ++id) {
    for (const NodeId operand : flow.operands(id)) needs[at(id)].insert(at(operand));
  }
  std::vector<double> way(all, -1);
  const std::function<double(std::size_t)> way_of = [&](std::size_t i) {
    if (way[i] >= 0) return way[i];
    double longest = 0;
    for (std::size_t later = 0; later < all; ++later) {
      if (needs[later].count(i) > 0) longest = std::max(longest, way_of(later));
    }
    return way[i] = ms(i) + longest;
  };
  constexpr double kNever = HUGE_VAL;
  std::vector<double> ready(all, kNever), end(all, kNever);
  double now = 0;
  while (true) {
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < all; ++i) {
        const auto is_done = [&](std::size_t before) { return end[before] <= now; };
        if (ready[i] < kNever || !std::all_of(needs[i].begin(), needs[i].end(), is_done)) continue;
        ready[i] = now;
        if (ms(i) <= 0) end[i] = now;
        more = true;
      }
    }
    for (const bool moves : {false, true}) {
      std::size_t best = all;
      bool busy = false;
      for (std::size_t i = moves ? n : 0; i < (moves ? all : n); ++i) {
        busy = busy || (end[i] < kNever && end[i] > now);
        if (ready[i] == kNever || end[i] < kNever) continue;
        const auto key = [&](std::size_t k) { return std::make_pair(moves ? ready[k] : 0, -way_of(k)); };
        if (best == all || key(i) < key(best)) best = i;
      }
      if (!busy && best < all) end[best] = now + ms(best);
    }
    double next = kNever;
    for (std::size_t i = 0; i < all; ++i) {
      if (end[i] > now) next = std::min(next, end[i]);
    }
    if (next == kNever) return now;
    now = next;
  }
}

TEST(Overlap, IsTheSlowOne) {
  Rng rng(3, 0, 0);
  for (const char* name : {"tiny_mlp.hlo", "lit_small.hlo.gz", "moe_small.hlo.gz"}) {
    OverlapCase c = OverlapCase::fixture(name, 4);
    for (int round = 0; round < 4; ++round) {
      SCOPED_TRACE(name + (" " + std::to_string(round)));
      const Propagation decided = c.decide(&rng);
      const double slow = slow_overlapped_ms(c, decided);
      EXPECT_NEAR(overlapped_ms(*c.cost, decided), slow, 1e-9 * slow);
    }
    // With gathers.
    PlanningRequest request;
    request.reshard = true;
    const Planned planned = make_plan(c.model.get(), c.device, c.cluster, request);
    const double slow = slow_overlapped_ms(c, planned.decided);
    EXPECT_NEAR(overlapped_ms(*c.cost, planned.decided), slow, 1e-9 * slow);
  }
}

// Nine turns of two products whose sum is reduced; `beside` them something that nobody in the turn awaits.
std::string loop_text(bool beside) {
  std::string extra = "  z = f32[512,512] get-tuple-element(p), index=4\n";
  if (beside) extra += "  y = f32[512,512] tanh(z)\n";
  return "HloModule m\n"
         "cond {\n"
         "  p = (s32[], f32[512,512], f32[512,2048], f32[2048,512], f32[512,512]) parameter(0)\n"
         "  i = s32[] get-tuple-element(p), index=0\n  n = s32[] constant(9)\n"
         "  ROOT c = pred[] compare(i, n), direction=LT\n}\n"
         "body {\n"
         "  p = (s32[], f32[512,512], f32[512,2048], f32[2048,512], f32[512,512]) parameter(0)\n"
         "  i = s32[] get-tuple-element(p), index=0\n  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
         "  h = f32[512,512] get-tuple-element(p), index=1\n  a = f32[512,2048] get-tuple-element(p), index=2\n"
         "  b = f32[2048,512] get-tuple-element(p), index=3\n" +
         extra +
         "  u = f32[512,2048] dot(h, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
         "  t = f32[512,2048] tanh(u)\n"
         "  v = f32[512,512] dot(t, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
         "  ROOT r = (s32[], f32[512,512], f32[512,2048], f32[2048,512], f32[512,512]) tuple(j, v, a, b, " +
         (beside ? "y" : "z") +
         ")\n}\n"
         "ENTRY e {\n"
         "  x = f32[512,512] parameter(0)\n  a = f32[512,2048] parameter(1)\n  b = f32[2048,512] parameter(2)\n"
         "  zero = s32[] constant(0)\n"
         "  s = (s32[], f32[512,512], f32[512,2048], f32[2048,512], f32[512,512]) tuple(zero, x, a, b, x)\n"
         "  w = (s32[], f32[512,512], f32[512,2048], f32[2048,512], f32[512,512]) while(s), condition=cond, "
         "body=body\n"
         "  o = f32[512,512] get-tuple-element(w), index=1\n  q = f32[512,512] get-tuple-element(w), index=4\n"
         "  ROOT f = (f32[512,512], f32[512,512]) tuple(o, q)\n}\n";
}

TEST(Overlap, EveryTurnOfALoopByItself) {
  for (const bool beside : {false, true}) {
    const OverlapCase c = OverlapCase::text(loop_text(beside));
    Propagation decided(c.model->linkage());
    ASSERT_FALSE(decided.split({c.model->inputs()[at(c.model->find_input("b"))].node, 0}));
    for (const sharding::GroupId group : decided.undecided()) decided.keep_whole(c.model->linkage().inputs(group)[0]);
    const PartitionCost::StepParts parts = c.cost->parts(decided);
    ASSERT_EQ(parts.collectives.size(), 1u);
    EXPECT_EQ(parts.collectives[0].collective.times, 9);
    const double moved = parts.collectives[0].ms;
    double chain = 0, others = 0;
    for (NodeId id = 0; id < c.model->flow().size(); ++id) {
      const std::string name(c.module.graph.instruction(c.model->flow().node(id).instruction).name);
      (name == "u" || name == "t" || name == "v" ? chain : others) += parts.compute_ms[at(id)];
    }
    ASSERT_GT(moved, 0);
    // The counter, and what else nobody awaits, run while the sum of their turn does; no turn begins before that is
    // there.
    EXPECT_TRUE(beside ? others > 0.2 * moved : others < moved) << others << " " << moved;
    EXPECT_NEAR(overlapped_ms(*c.cost, decided), chain + std::max(moved, others), 1e-9 * chain);
  }
}

// The branches of a conditional are one piece: what is beside it waits, what is inside hides inside.
TEST(Overlap, OfAConditional) {
  const std::string text =
      "HloModule m\n"
      "yes {\n  p = (f32[512,2048], f32[2048,512]) parameter(0)\n"
      "  a = f32[512,2048] get-tuple-element(p), index=0\n"
      "  b = f32[2048,512] get-tuple-element(p), index=1\n"
      "  ROOT v = f32[512,512] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
      "no {\n  p = (f32[512,2048], f32[2048,512]) parameter(0)\n  k = f32[] constant(1)\n"
      "  ROOT v = f32[512,512] broadcast(k), dimensions={}\n}\n"
      "ENTRY e {\n  a = f32[512,2048] parameter(0)\n  b = f32[2048,512] parameter(1)\n"
      "  c = pred[] parameter(2)\n  z = f32[512,512] parameter(3)\n"
      "  s = (f32[512,2048], f32[2048,512]) tuple(a, b)\n"
      "  v = f32[512,512] conditional(c, s, s), true_computation=yes, false_computation=no\n"
      "  y = f32[512,512] dot(z, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
      "  ROOT f = (f32[512,512], f32[512,512]) tuple(v, y)\n}\n";
  const OverlapCase c = OverlapCase::text(text);
  Propagation decided(c.model->linkage());
  ASSERT_FALSE(decided.split({c.model->inputs()[at(c.model->find_input("b"))].node, 0}));
  const PlanEstimate estimate = c.cost->estimate(decided);
  ASSERT_GT(estimate.collective_ms, 0);
  EXPECT_NEAR(overlapped_ms(*c.cost, decided), estimate.step_ms, 1e-9 * estimate.step_ms);
}

// Among what is at hand, and no proof about it but its bound.
TEST(Overlap, PlansAreChosenByIt) {
  for (const char* name : {"tiny_mlp.hlo", "lit_small.hlo.gz", "t5_6_6.hlo.gz", "scan_remat.hlo.gz"}) {
    SCOPED_TRACE(name);
    PlanningRequest request;
    request.reshard = true;
    const OverlapCase apart = OverlapCase::fixture(name);
    const Planned added_up = make_plan(apart.model.get(), apart.device, apart.cluster, request);
    EXPECT_FALSE(added_up.plan.overlapped_ms);
    EXPECT_FALSE(added_up.plan.overlapped_bound_ms);
    request.overlap = true;
    const OverlapCase c = OverlapCase::fixture(name);
    const Planned planned = make_plan(c.model.get(), c.device, c.cluster, request);
    const PartitionPlan& plan = planned.plan;
    ASSERT_TRUE(plan.overlapped_ms);
    EXPECT_EQ(plan.expected_ms(), *plan.overlapped_ms);
    EXPECT_EQ(plan.overlapped_bound_ms, c.cost->least_step_ms(8));
    EXPECT_LE(*plan.overlapped_bound_ms, *plan.overlapped_ms);
    EXPECT_LE(*plan.overlapped_ms, plan.step_ms);
    EXPECT_GE(plan.step_ms, added_up.plan.step_ms * (1 - 1e-9));
    EXPECT_LE(*plan.overlapped_ms,
              estimate_step(*apart.cost, added_up.decided, true).expected_ms() * (1 + 0.01) + 1e-9);
    for (const PartitionAlternative& other : plan.alternatives) {
      ASSERT_TRUE(other.overlapped_ms) << other.planner;
      EXPECT_LE(*other.overlapped_ms, other.step_ms);
      // A cut has to save one percent.
      if (other.planner == "groups cut" || other.planner == "no group cut" || other.planner == "replicate") {
        EXPECT_LE(0.99 * *plan.overlapped_ms, *other.overlapped_ms) << other.planner;
      }
      if (other.planner == "groups cut") {
        EXPECT_TRUE(planned.cut_added_up);
        EXPECT_LE(other.step_ms, 0.99 * plan.step_ms);
      }
    }
  }
}

// Sums that may be combined never make the step longer: overlapped, waiting for the last summand may cost more than one
// all-reduce saves.
TEST(Overlap, CombinedSumsAreNoLonger) {
  for (const char* name : {"transformer_remat.hlo.gz", "t5_6_6.hlo.gz", "gpt2.hlo.gz"}) {
    SCOPED_TRACE(name);
    PlanningRequest request;
    request.reshard = request.overlap = true;
    const OverlapCase apart = OverlapCase::fixture(name), combined = OverlapCase::fixture(name);
    combined.model->combine_sums(true);
    const double apart_ms = make_plan(apart.model.get(), apart.device, apart.cluster, request).plan.expected_ms();
    const Planned planned = make_plan(combined.model.get(), combined.device, combined.cluster, request);
    EXPECT_LE(planned.plan.expected_ms(), apart_ms * (1 + 1e-9));
    EXPECT_EQ(planned.plan.sums_combined, combined.model->sums_combined());
    EXPECT_EQ(&planned.decided.linkage(), &combined.model->linkage());
  }
}

// Cuts that pay added up, and too little overlapped, are said and shown.
TEST(Overlap, CutsThatPayOnlyAddedUp) {
  const OverlapCase apart = OverlapCase::fixture("lit_small.hlo.gz", 2),
                    c = OverlapCase::fixture("lit_small.hlo.gz", 2);
  PlanningRequest request;
  request.reshard = true;
  const Planned added_up = make_plan(apart.model.get(), apart.device, apart.cluster, request);
  EXPECT_EQ(added_up.plan.planner, "reshard");
  request.overlap = true;
  const Planned planned = make_plan(c.model.get(), c.device, c.cluster, request);
  EXPECT_NE(planned.plan.planner, "reshard");
  EXPECT_TRUE(planned.cut_added_up);
  EXPECT_FALSE(planned.nearly_cut);
  EXPECT_TRUE(c.model->gathers().empty());
  const auto& alternatives = planned.plan.alternatives;
  const auto cut =
      std::find_if(alternatives.begin(), alternatives.end(), [](const auto& a) { return a.planner == "groups cut"; });
  ASSERT_NE(cut, alternatives.end());
  EXPECT_DOUBLE_EQ(cut->step_ms, added_up.plan.step_ms);
  EXPECT_GT(*cut->overlapped_ms, 0.99 * *planned.plan.overlapped_ms);
}

// A gather of the other axis that splitting would shorten: as long as the large product hides it that is worth less
// than the sum that splitting needs at the end.
TEST(Overlap, NothingIsSplitWhereThatIsQuicker) {
  const std::string text =
      "HloModule m\n"
      "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
      "ENTRY e {\n  q = f32[2048,2048] parameter(0)\n  x = f32[4096] parameter(1)\n  w = f32[4096] parameter(2)\n"
      "  e = f32[2048,2048] dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  zero = f32[] constant(0)\n"
      "  s = f32[] reduce(e, zero), dimensions={0,1}, to_apply=add\n  t = f32[4096] broadcast(s), dimensions={}\n"
      "  h = f32[4096] multiply(x, t)\n"
      "  ROOT y = f32[] dot(h, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n}\n";
  const std::vector<graph::VariableRequest> variables = {{"w", "", ""}};
  const auto plan = [&](double gathered_bytes) {
    OverlapCase c(hlo::read_hlo(text, "test.hlo"), 2, "config-a", &variables);
    c.cluster.intra_latency_us = 50;
    OtherAxis other;
    other.op_share.assign(at(c.model->flow().size()), 1);
    other.shares.held = other.shares.made = other.op_share;
    other.devices = 2;
    other.links = shard_links(c.cluster, 2, 8);
    sharding::Collective gather;
    gather.kind = CollectiveKind::kAllGather;
    gather.node = c.model->inputs()[at(c.model->find_input("w"))].node;
    gather.bytes = gathered_bytes;
    other.collectives.push_back(gather);
    PlanningRequest request;
    request.overlap = true;
    request.other = &other;
    return make_plan(c.model.get(), c.device, c.cluster, request);
  };
  // Shorter than the product, and much longer.
  for (const double bytes : {4e5, 1e9}) {
    SCOPED_TRACE(bytes);
    const Planned planned = plan(bytes);
    const auto& alternatives = planned.plan.alternatives;
    const auto replicate =
        std::find_if(alternatives.begin(), alternatives.end(), [](const auto& a) { return a.planner == "replicate"; });
    ASSERT_NE(replicate, alternatives.end());
    ASSERT_FALSE(planned.answers.empty());
    EXPECT_LT(planned.answers.front().score.step_ms, replicate->step_ms);  // added up
    EXPECT_LE(*planned.plan.overlapped_ms, *replicate->overlapped_ms);
    const bool whole = planned.plan.planner == "replicate";
    EXPECT_EQ(whole, bytes < 1e8);
    EXPECT_EQ(planned.plan.partitioned, whole ? 0 : 1);
    EXPECT_EQ(planned.plan.proven, !whole);
    EXPECT_EQ(planned.nothing_split,
              whole ? "with collectives beside compute no splitting that was found is quicker" : "");
    EXPECT_EQ(planned.plan.value == 0, whole);
  }
}

}  // namespace
}  // namespace automap::partition
