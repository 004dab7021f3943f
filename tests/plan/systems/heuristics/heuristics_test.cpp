#include "plan/systems/heuristics/heuristics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/base/error.h"
#include "plan/systems/heuristics/planning.h"
#include "tests/plan/systems/heuristics/random_work.h"
#include "tests/sanitized.h"

namespace automap::heuristics {
namespace {

using ::testing::HasSubstr;

// The least J of all divisions, one after the other.
double exhaustive_load_ms(const Hypergraph& graph, const Machine& machine, bool acyclic) {
  Devices devices(at(graph.size()), 0);
  double best = std::numeric_limits<double>::infinity();
  for (;;) {
    if (!acyclic || acyclic_between_devices(graph, devices, machine.num_devices()))
      best = std::min(best, cost_of(graph, machine, devices).load_ms);
    std::size_t u = 0;
    while (u < devices.size() && ++devices[u] == machine.num_devices()) devices[u++] = 0;
    if (u == devices.size()) return best;
  }
}

TEST(Heuristics, PlaceEveryUnitAndNothingElse) {
  for (std::uint64_t item = 0; item < 40 / kShare; ++item) {
    Rng rng(1, 2, item);
    const WorkGraph work = random_work(&rng, 5 + static_cast<int>(rng.below(300)));
    const Hypergraph graph = hypergraph_of(work);
    const Machine machine(small_cluster({3, 2}));
    for (const Heuristic& row : heuristic_table()) {
      const Devices devices = row.divide({work, graph, machine, item % 2 == 0});
      ASSERT_EQ(devices.size(), at(graph.size())) << row.name;
      for (const DeviceId d : devices) {
        ASSERT_GE(d, 0) << row.name;
        ASSERT_LT(d, 5) << row.name;
      }
      EXPECT_EQ(devices, row.divide({work, graph, machine, item % 2 == 0})) << row.name;
    }
  }
}

// Where messages are free, dividing can only help.
TEST(Heuristics, AreNoWorseThanOneDeviceWhereMessagesAreFree) {
  for (std::uint64_t item = 0; item < 40 / kShare; ++item) {
    Rng rng(2, 2, item);
    WorkGraph work = random_work(&rng, 5 + static_cast<int>(rng.below(100)));
    for (Value& value : work.values) value.bytes = 0;
    const Hypergraph graph = hypergraph_of(work);
    const Machine machine(small_cluster({2, 2}));
    for (const Candidate& candidate : find_division(work, machine, {}).candidates) {
      EXPECT_LE(candidate.cost.load_ms, graph.total_ms() * (1 + 1e-9)) << candidate.name;
      if (candidate.name != "one-device" && graph.total_ms() > 100) {
        EXPECT_LT(candidate.cost.load_ms, graph.total_ms()) << candidate.name;
      }
    }
  }
}

// A chain of equal tasks is one path, and is cut where a device has its share.
TEST(Heuristics, PathsAreCutAtTheShareOfADevice) {
  WorkGraph work;
  for (int t = 0; t < 8; ++t) {
    Task task;
    task.ms = 1;
    task.unit = t;
    work.tasks.push_back(task);
    if (t > 0) work.values.push_back({t - 1, 0, {t}});
  }
  work.link();
  const Hypergraph graph = hypergraph_of(work);
  const Machine machine(small_cluster({2}));
  const Devices devices = linear_clustering({work, graph, machine});
  for (const DeviceId d : {0, 1}) EXPECT_EQ(std::count(devices.begin(), devices.end(), d), 4);
}

// At most 3 devices and 12 tasks: how far the best candidate is above the optimum.
TEST(Heuristics, AreNearTheBestOfSmallGraphs) {
  for (const bool acyclic : {false, true}) {
    double sum = 0, worst = 0;
    int graphs = 0, divided = 0;
    for (std::uint64_t item = 0; item < 40 / kShare; ++item) {
      Rng rng(3, 2, item);
      const bool two = item % 2 == 0;
      const WorkGraph work = random_work(&rng, two ? 12 : 6 + static_cast<int>(rng.below(4)));
      // Fast enough that dividing pays.
      const Machine machine(small_cluster(two ? std::vector<int>{2} : std::vector<int>{2, 1}, 1, 10));
      Request request;
      request.acyclic = acyclic;
      const Answer answer = find_division(work, machine, request);
      const double optimum = exhaustive_load_ms(hypergraph_of(work), machine, acyclic);
      const double found = answer.candidates[answer.best].cost.load_ms;
      ASSERT_GE(found, optimum * (1 - 1e-9));
      EXPECT_LE(answer.bound_ms, optimum * (1 + 1e-9));
      if (optimum == 0) continue;
      divided += answer.candidates[answer.best].devices_used > 1;
      sum += found / optimum - 1;
      worst = std::max(worst, found / optimum - 1);
      ++graphs;
    }
    RecordProperty(acyclic ? "mean_gap_acyclic" : "mean_gap", std::to_string(sum / graphs));
    RecordProperty(acyclic ? "worst_gap_acyclic" : "worst_gap", std::to_string(worst));
    EXPECT_GT(divided, graphs * 2 / 3);
    EXPECT_LE(sum / graphs, 0.02);
    EXPECT_LE(worst, 0.15);
  }
}

TEST(Planning, CandidatesAreLegal) {
  for (std::uint64_t item = 0; item < 20 / kShare; ++item) {
    Rng rng(4, 2, item);
    const WorkGraph work = random_work(&rng, 120);
    const Hypergraph graph = hypergraph_of(work);
    // A fifth more than the graph needs, over 4 devices.
    const double gib = work.memory_bytes() / 4 * 1.2 / (1024.0 * 1024 * 1024);
    const Machine machine(small_cluster({4}, gib));
    Request request;
    request.acyclic = item % 2 == 0;
    const Answer answer = find_division(work, machine, request);
    ASSERT_EQ(answer.candidates.size(), heuristic_table().size());
    const Candidate& best = answer.candidates[answer.best];
    EXPECT_TRUE(best.fits);
    for (const Candidate& candidate : answer.candidates) {
      EXPECT_EQ(candidate.cost.load_ms, cost_of(graph, machine, candidate.devices).load_ms);
      if (request.acyclic) {
        EXPECT_TRUE(acyclic_between_devices(graph, candidate.devices, 4)) << candidate.name;
      }
      if (!candidate.fits) continue;
      EXPECT_FALSE(candidate.cost.less_than(best.cost)) << candidate.name;
      for (const DeviceLoad& load : device_loads(graph, machine, candidate.devices))
        EXPECT_LE(load.memory_bytes, machine.capacity_bytes(0)) << candidate.name;
    }
    EXPECT_FALSE(answer.candidates.back().fits);  // all on one device
  }
}

TEST(Planning, FasterDevicesGetMore) {
  machine::Cluster cluster = small_cluster({1, 1});
  cluster.servers[1].device = "fast";
  cluster.devices["fast"] = cluster.devices["thing"];
  cluster.devices["fast"].relative_speed = 3;
  const Machine machine(cluster);
  WorkGraph work;
  for (int i = 0; i < 40; ++i) {
    Task task;
    task.ms = 1;
    task.unit = i;
    work.tasks.push_back(task);
  }
  work.link();
  for (const Candidate& candidate : find_division(work, machine, {}).candidates) {
    if (candidate.name == "one-device") {
      EXPECT_DOUBLE_EQ(candidate.cost.load_ms, 40.0 / 3);
    } else {
      EXPECT_DOUBLE_EQ(candidate.cost.load_ms, 10) << candidate.name;
    }
  }
}

template <typename F>
void expect_error(ErrorKind kind, const char* says, F&& f) {
  try {
    f();
    ADD_FAILURE() << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_THAT(std::string(error.what()) + " / " + error.hint(), HasSubstr(says));
  }
}

TEST(Planning, SaysWhatIsWrong) {
  Rng rng(5, 2, 0);
  WorkGraph work = random_work(&rng, 20);
  const Machine machine(small_cluster({2}, 0.001));
  work.tasks[7].name = "large";
  for (Task& task : work.tasks) task.memory_bytes = 0;
  Request request;
  request.heuristic = "multilevle";
  expect_error(ErrorKind::kUsage, "did you mean multilevel?", [&] { find_division(work, machine, request); });
  request.heuristic = "xyzzy";
  expect_error(ErrorKind::kUsage, "topo-chunk, linear-clustering", [&] { find_division(work, machine, request); });
  work.tasks[7].memory_bytes = 2e6;
  expect_error(ErrorKind::kInfeasible, "with large keeps 1.91 MiB; the largest device has 1.02 MiB",
               [&] { find_division(work, machine, {}); });
  work.tasks[7].memory_bytes = 1e6;
  for (Task& task : work.tasks) task.memory_bytes = 1e6;
  expect_error(ErrorKind::kInfeasible, "all 2 devices together have", [&] { find_division(work, machine, {}); });
  // Three of 0.6 of a device each: they fit together, but not each.
  for (Task& task : work.tasks) task.memory_bytes = 0;
  WorkGraph three;
  for (int i = 0; i < 3; ++i) {
    Task task;
    task.ms = 1;
    task.unit = i;
    task.memory_bytes = 0.6 * machine.capacity_bytes(0);
    three.tasks.push_back(task);
  }
  three.link();
  expect_error(ErrorKind::kInfeasible, "no heuristic found", [&] { find_division(three, machine, {}); });
}

}  // namespace
}  // namespace automap::heuristics
