#include "plan/systems/heuristics/division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "plan/systems/heuristics/refinement.h"
#include "tests/plan/systems/heuristics/random_work.h"
#include "tests/sanitized.h"

namespace automap::heuristics {
namespace {

using ::testing::HasSubstr;

WorkGraph three_tasks() {
  WorkGraph graph;
  for (const double ms : {2.0, 1.0, 3.0}) {
    Task task;
    task.ms = ms;
    task.unit = static_cast<UnitId>(graph.tasks.size());
    graph.tasks.push_back(task);
  }
  graph.values.push_back({0, 500'000, {1, 2}});
  graph.link();
  return graph;
}

// The worked case of division.h: a message of 500 kB takes 0.5 ms, and goes once.
TEST(Division, ChargesAValueOncePerDevice) {
  const WorkGraph work = three_tasks();
  const Hypergraph graph = hypergraph_of(work);
  const Machine machine(small_cluster({2}));
  const std::vector<DeviceLoad> loads = device_loads(graph, machine, {0, 1, 1});
  EXPECT_DOUBLE_EQ(loads[0].total_ms(), 2.5);
  EXPECT_DOUBLE_EQ(loads[1].total_ms(), 4.5);
  const Cost cost = cost_of(graph, machine, {0, 1, 1});
  EXPECT_DOUBLE_EQ(cost.load_ms, 4.5);
  EXPECT_EQ(cost.cut_bytes, 500'000);
  EXPECT_EQ(cost_of(graph, machine, {0, 0, 0}).cut_bytes, 0);
  EXPECT_DOUBLE_EQ(imbalance(machine, loads), 4.0 / 3 - 1);
  EXPECT_DOUBLE_EQ(imbalance(machine, device_loads(graph, machine, {1, 0, 0})), 4.0 / 3 - 1);
}

// Between servers a message takes the slower way.
TEST(Division, KnowsServers) {
  const Hypergraph graph = hypergraph_of(three_tasks());
  const Machine machine(small_cluster({1, 1}));
  EXPECT_DOUBLE_EQ(cost_of(graph, machine, {0, 1, 1}).load_ms, 6);
}

TEST(Machine, FirstDevicesAndSlowOnes) {
  const Machine machine(small_cluster({2, 2}));
  const Machine first = machine.first(3);
  EXPECT_EQ(first.num_devices(), 3);
  EXPECT_EQ(first.total_speed(), 3);
  for (DeviceId a = 0; a < 3; ++a) {
    for (DeviceId b = 0; b < 3; ++b) EXPECT_EQ(first.message_ms(a, b, 1e6), machine.message_ms(a, b, 1e6));
  }
  EXPECT_DOUBLE_EQ(first.message_ms(0, 1, 1e6), 1);
  EXPECT_DOUBLE_EQ(first.message_ms(0, 2, 1e6), 4);
  EXPECT_DOUBLE_EQ(first.mean_message_ms(1e6), 3);  // one pair of three is inside a server
  EXPECT_EQ(machine.message_ms(0, 1, 0), 0);
  EXPECT_DOUBLE_EQ(machine.slowed({1, 2, 1, 1}).task_ms(3, 1), 6);
}

// The cost kept up to date, the predicted cost and the cost from scratch are the same.
TEST(Division, IncrementalCostIsTheCostFromScratch) {
  for (std::uint64_t item = 0; item < 60 / kShare; ++item) {
    Rng rng(1, 1, item);
    const WorkGraph work = random_work(&rng, 10 + static_cast<int>(rng.below(60)));
    const Hypergraph graph = hypergraph_of(work);
    const Machine machine(small_cluster({2, 3}));
    Division division(graph, machine, item % 2 == 0);
    division.move_all(random_devices(&rng, graph.size(), 5));
    for (int i = 0; i < 200; ++i) {
      const auto unit = static_cast<UnitId>(rng.below(static_cast<std::uint64_t>(graph.size())));
      const auto to = static_cast<DeviceId>(rng.below(6)) - 1;  // sometimes nowhere
      const Division::Outcome foretold = division.after(unit, to);
      const bool may = to != kNone && division.allowed(unit, to);
      division.move(unit, to);
      const Cost now = division.cost(), scratch = cost_of(graph, machine, division.devices());
      ASSERT_NEAR(now.load_ms, scratch.load_ms, 1e-9);
      ASSERT_EQ(now.cut_bytes, scratch.cut_bytes);
      ASSERT_NEAR(foretold.cost.load_ms, scratch.load_ms, 1e-9);
      ASSERT_EQ(foretold.cost.cut_bytes, scratch.cut_bytes);
      const std::vector<DeviceLoad> loads = device_loads(graph, machine, division.devices());
      bool fits = true;
      for (DeviceId d = 0; d < 5; ++d) {
        ASSERT_NEAR(division.load(d).total_ms(), loads[at(d)].total_ms(), 1e-9);
        ASSERT_EQ(division.load(d).memory_bytes, loads[at(d)].memory_bytes);
        fits = fits && loads[at(d)].memory_bytes <= machine.capacity_bytes(d);
      }
      if (item % 2 == 0) {
        EXPECT_EQ(may, to != kNone && fits && acyclic_between_devices(graph, division.devices(), 5));
      }
    }
  }
}

// For few units, compared with following every way.
TEST(Division, AcyclicMeansThatNoWayComesBack) {
  for (std::uint64_t item = 0; item < 300; ++item) {
    Rng rng(2, 1, item);
    const Hypergraph graph = hypergraph_of(random_work(&rng, 10));
    const Devices devices = random_devices(&rng, graph.size(), 3);
    // reach[a][b]: a way over devices from a to b.
    std::vector<std::vector<bool>> reach(3, std::vector<bool>(3, false));
    for (UnitId u = 0; u < graph.size(); ++u) {
      for (const UnitId next : graph.before[at(u)]) {
        if (devices[at(u)] != devices[at(next)]) reach[at(devices[at(u)])][at(devices[at(next)])] = true;
      }
    }
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t a = 0; a < 3; ++a) {
        for (std::size_t b = 0; b < 3; ++b) reach[a][b] = reach[a][b] || (reach[a][k] && reach[k][b]);
      }
    }
    EXPECT_EQ(acyclic_between_devices(graph, devices, 3), !(reach[0][0] || reach[1][1] || reach[2][2]));
    Devices legal = devices;
    make_acyclic(graph, 3, &legal);
    EXPECT_TRUE(acyclic_between_devices(graph, legal, 3));
    if (acyclic_between_devices(graph, devices, 3)) {
      EXPECT_EQ(legal, devices);
    }
  }
}

// A contracted graph costs what the fine one does.
TEST(Division, CostsTheSameInAContractedGraph) {
  for (std::uint64_t item = 0; item < 50; ++item) {
    Rng rng(3, 1, item);
    const Hypergraph fine = hypergraph_of(random_work(&rng, 40));
    const Machine machine(small_cluster({4}));
    std::vector<std::int32_t> number(at(fine.size()));
    for (UnitId u = 0; u < fine.size(); ++u) number[at(u)] = u < 6 ? u : static_cast<std::int32_t>(rng.below(6));
    const Hypergraph coarse = contract(fine, number, std::min(6, fine.size()));
    const Devices devices = random_devices(&rng, coarse.size(), 4);
    Devices finer;
    for (const std::int32_t n : number) finer.push_back(devices[at(n)]);
    const Cost a = cost_of(fine, machine, finer), b = cost_of(coarse, machine, devices);
    EXPECT_NEAR(a.load_ms, b.load_ms, 1e-9);
    EXPECT_EQ(a.cut_bytes, b.cut_bytes);
    EXPECT_EQ(acyclic_between_devices(fine, finer, 4), acyclic_between_devices(coarse, devices, 4));
  }
}

TEST(Refinement, NeverMakesWorseAndKeepsWhatIsLegal) {
  for (std::uint64_t item = 0; item < 60 / kShare; ++item) {
    Rng rng(4, 1, item);
    const Hypergraph graph = hypergraph_of(random_work(&rng, 50));
    const Machine machine(small_cluster({2, 2}, 0.05));
    const bool acyclic = item % 2 == 0;
    Devices devices = random_devices(&rng, graph.size(), 4);
    if (acyclic) make_acyclic(graph, 4, &devices);
    Division division(graph, machine, acyclic);
    division.move_all(devices);
    const bool fits = make_fit(&division);
    const Cost before = division.cost();
    refine(&division);
    const Cost after = cost_of(graph, machine, division.devices());
    EXPECT_FALSE(before.less_than(after));
    EXPECT_NEAR(division.cost().load_ms, after.load_ms, 1e-9);
    if (acyclic) {
      EXPECT_TRUE(acyclic_between_devices(graph, division.devices(), 4));
    }
    EXPECT_TRUE(!fits || division.fits_everywhere());
  }
}

TEST(WorkGraph, RefusesWhatIsNone) {
  const auto refused = [](const std::function<void(WorkGraph*)>& change, const char* says) {
    WorkGraph graph = three_tasks();
    change(&graph);
    try {
      graph.link();
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  refused([](WorkGraph* g) { g->tasks.clear(); }, "no task");
  refused([](WorkGraph* g) { g->tasks[1].ms = -1; }, "task 1");
  refused([](WorkGraph* g) { g->values[0].bytes = std::numeric_limits<double>::quiet_NaN(); }, "value 0");
  refused([](WorkGraph* g) { g->values[0].consumers.clear(); }, "nobody reads it");
  refused([](WorkGraph* g) { g->values[0].consumers = {0}; }, "a cycle");
  refused([](WorkGraph* g) { g->values[0].consumers = {1, 1}; }, "named twice");
  refused([](WorkGraph* g) { g->values[0].producer = 7; }, "its producer is no task");
}

}  // namespace
}  // namespace automap::heuristics
