// Every planner beside the best of all placements of small random workloads.
#include "plan/systems/placement/planning.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "common/base/error.h"
#include "plan/systems/placement/baselines.h"
#include "plan/systems/placement/linearized.h"
#include "plan/systems/placement/units.h"
#include "tests/plan/systems/placement/brute.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace automap::placement {
namespace {

constexpr double kMostWays = 40000;  // of a workload to be placed, that are looked at

std::optional<Answer> ask(const Workload& workload, const std::string& algorithm,
                          Objective objective = Objective::kThroughput, int pieces = 2) {
  Request request;
  request.objective = objective;
  request.algorithm = algorithm;
  request.pieces = pieces;
  request.milp.gap = 0;
  Work work;
  try {
    return find_placement(workload, request, &work);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInfeasible) << e.what();
    return std::nullopt;
  }
}

// The answer's figures are true.
void expect_sound(const Workload& w, const Answer& answer) {
  EXPECT_EQ(why_not(w, answer.placement), "");
  const std::optional<double> load = brute_load(w, answer.placement.device);
  ASSERT_TRUE(load);
  EXPECT_NEAR(*load, max_load_ms(w, answer.placement), 1e-9);
  EXPECT_EQ(brute_contiguous(w, answer.placement.device), answer.contiguous);
  EXPECT_LE(answer.bound_ms, answer.value_ms + 1e-9);
}

class Twin : public ::testing::TestWithParam<bool> {};

TEST_P(Twin, ProgrammeOverIdealsIsExact) {
  SmallOptions options;
  options.training = GetParam();
  int found = 0, none = 0, looser = 0, better = 0;
  for (std::uint64_t seed = 0; seed < 4000u / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    options.most_nodes = seed % 10 == 0 ? 10 : 7;
    options.most_cpus = seed % 5 == 0 ? 2 : 1;
    const Workload w = small_workload(seed, options);
    if (ways(w, w.devices()) > kMostWays) continue;
    const std::optional<double> best = brute_throughput(w, true);
    const std::optional<Answer> answer = ask(w, "dp");
    ASSERT_EQ(answer.has_value(), best.has_value());
    if (!answer) {
      ++none;
      continue;
    }
    ++found;
    EXPECT_NEAR(answer->value_ms, *best, 1e-9);
    EXPECT_TRUE(answer->proven);
    EXPECT_TRUE(answer->contiguous);
    expect_sound(w, *answer);
    EXPECT_LE(simple_bound_ms(w, Objective::kThroughput), *best + 1e-9);
    // Along orders: never better, not always as good.
    const std::optional<Answer> along = ask(w, "dpl");
    if (along) {
      EXPECT_GE(along->value_ms, *best - 1e-9);
      expect_sound(w, *along);
    }
    looser += !along || along->value_ms > *best + 1e-9;
    const std::optional<double> any = brute_throughput(w, false);
    better += *any < *best - 1e-9;
  }
  EXPECT_GT(found, 1500 / kShare);
  EXPECT_GT(none, 15 / kShare);
  if (!kSanitized) {
    EXPECT_GT(looser, 0);
    EXPECT_GT(better, 5);
  }
}

// The same without a bound, on graphs too large to look at all placements.
TEST_P(Twin, BoundsCutNothingOff) {
  SmallOptions options;
  options.training = GetParam();
  options.most_nodes = 22;
  options.most_accelerators = 5;
  for (std::uint64_t seed = 0; seed < 300u / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Workload w = small_workload(seed, options);
    const Units units = contiguous_units(w);
    const std::optional<Ideals> ideals = Ideals::all(units, 20000);
    ASSERT_TRUE(ideals);
    Work work;
    DpCounts with, without, along;
    const std::optional<Split> all = best_split(w, units, *ideals, Milp::kInfinite, &work, &without);
    const std::optional<Split> linearized = best_linearized(w, units, kOrders, &work, &along);
    if (!linearized) continue;
    const std::optional<Split> bounded = best_split(w, units, *ideals, linearized->max_load_ms, &work, &with);
    ASSERT_TRUE(all);
    ASSERT_TRUE(bounded);
    EXPECT_NEAR(all->max_load_ms, bounded->max_load_ms, 1e-9);
    EXPECT_NEAR(all->max_load_ms, max_load_ms(w, placement_of(w, units, bounded->device_of_unit)), 1e-9);
    EXPECT_LE(with.pairs, without.pairs);
    // Nothing is below it.
    EXPECT_FALSE(best_split(w, units, *ideals, all->max_load_ms * (1 - 1e-9) - 1e-9, &work, &with));
  }
}

TEST_P(Twin, IntegerProgrammesOfThroughputAreExact) {
  if (!milp_solver_missing().empty()) GTEST_SKIP() << milp_solver_missing() << ": its programmes were not compared";
  SmallOptions options;
  options.training = GetParam();
  options.most_nodes = 6;
  options.most_accelerators = 2;
  int found = 0, apart = 0;
  for (std::uint64_t seed = 0; seed < 200u / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Workload w = small_workload(seed, options);
    const std::optional<double> one_go = brute_throughput(w, true), any = brute_throughput(w, false);
    const std::optional<Answer> milp = ask(w, "milp"), milp_any = ask(w, "milp-noncontiguous");
    ASSERT_EQ(milp.has_value(), one_go.has_value());
    ASSERT_EQ(milp_any.has_value(), any.has_value());
    if (milp) {
      EXPECT_NEAR(milp->value_ms, *one_go, 1e-6);
    }
    if (!milp_any) continue;
    ++found;
    EXPECT_NEAR(milp_any->value_ms, *any, 1e-6);
    EXPECT_TRUE(milp_any->proven);
    EXPECT_NEAR(milp_any->bound_ms, *any, 1e-5);
    expect_sound(w, *milp_any);
    apart += !one_go || *any < *one_go - 1e-9;
  }
  EXPECT_GT(found, 100 / kShare);
  if (!kSanitized) {
    EXPECT_GT(apart, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Placement, Twin, ::testing::Bool(),
                         [](const auto& which) { return std::string(which.param ? "Training" : "Inference"); });

TEST(Latency, IntegerProgrammesAreExact) {
  if (!milp_solver_missing().empty()) GTEST_SKIP() << milp_solver_missing() << ": its programmes were not compared";
  SmallOptions options;
  options.most_nodes = 6;
  options.most_accelerators = 2;
  int found = 0, pieces_help = 0;
  for (std::uint64_t seed = 0; seed < 100u / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Workload w = small_workload(seed, options);
    // A piece that takes no time may wait for itself.
    for (Node& node : w.nodes) {
      node.accelerator_ms += 1;
      node.cpu_ms += 1;
    }
    const std::optional<double> one = brute_latency(w, 1);
    const std::optional<Answer> milp = ask(w, "milp", Objective::kLatency);
    if (one) {
      ASSERT_TRUE(milp);
      // Quick planners may have found more pieces than one.
      EXPECT_LE(milp->value_ms, *one + 1e-6);
      if (milp->contiguous) {
        EXPECT_NEAR(milp->value_ms, *one, 1e-6);
      }
    }
    if (ways(w, 2 * w.accelerators + 1) > kMostWays) continue;
    const std::optional<double> two = brute_latency(w, 2);
    const std::optional<Answer> milp_two = ask(w, "milp-noncontiguous", Objective::kLatency);
    if (!two) continue;
    ASSERT_TRUE(milp_two);
    EXPECT_LE(milp_two->value_ms, *two + 1e-6);
    EXPECT_EQ(why_not(w, milp_two->placement), "");
    EXPECT_GE(*two, simple_bound_ms(w, Objective::kLatency) - 1e-9);
    ++found;
    pieces_help += !one || *two < *one - 1e-9;
    if (milp_two->placement.piece.empty()) continue;
    std::vector<int> choice;
    int most = 0;
    for (std::size_t v = 0; v < w.nodes.size(); ++v) {
      const int d = milp_two->placement.device[v];
      most = std::max(most, milp_two->placement.piece[v]);
      choice.push_back(d < w.accelerators ? d * 2 + milp_two->placement.piece[v] : 2 * w.accelerators);
    }
    if (most <= 1) {
      EXPECT_NEAR(brute_latency_of(w, 2, choice).value(), milp_two->value_ms, 1e-9);
    }
    if (most <= 1) {
      EXPECT_NEAR(milp_two->value_ms, *two, 1e-6);
    }
  }
  EXPECT_GT(found, 20 / kShare);
  if (!kSanitized) {
    EXPECT_GT(pieces_help, 0);
  }
}

// For any placement: the evaluation, and pieces where one go is not possible.
TEST(Latency, IsThatOfTheRunsOneByOne) {
  int in_one = 0, apart = 0;
  for (std::uint64_t seed = 0; seed < 3000u / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallOptions options;
    options.most_nodes = 9;
    Workload w = small_workload(seed, options);
    w.memory_bytes = 1e300;
    w.cpus = 1;
    for (Node& node : w.nodes) node.accelerator_ms += 1, node.cpu_ms += 1;
    Rng rng(seed, 0x51, 0);
    Placement placement;
    std::vector<int> choice;
    for (Node& node : w.nodes) {
      node.colour = kNoColour;
      node.on_accelerators = true;
      placement.device.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(w.accelerators + 1))));
    }
    const std::optional<double> got = latency_ms(w, placement), expected = brute_latency_of(w, 1, placement.device);
    ASSERT_EQ(got.has_value(), expected.has_value());
    if (got) {
      EXPECT_NEAR(*got, *expected, 1e-9);
    }
    const Placement pieces = in_pieces(w, placement);
    EXPECT_EQ(pieces.piece.empty(), got.has_value());
    const std::optional<double> then = latency_ms(w, pieces);
    ASSERT_TRUE(then);
    (got ? in_one : apart) += 1;
    if (got) continue;
    const int count = 1 + *std::max_element(pieces.piece.begin(), pieces.piece.end());
    for (std::size_t v = 0; v < w.nodes.size(); ++v) {
      const int d = placement.device[v];
      choice.push_back(d < w.accelerators ? d * count + pieces.piece[v] : w.accelerators * count);
    }
    EXPECT_NEAR(brute_latency_of(w, count, choice).value(), *then, 1e-9);
  }
  EXPECT_GT(in_one, 100 / kShare);
  EXPECT_GT(apart, 100 / kShare);
}

TEST(Planning, BaselinesAreSoundAndNeverBetterThanTheBest) {
  std::vector<std::string> planners = {"greedy", "local-search", "pipedream", "auto"};
  if (scotch_missing().empty()) {
    planners.push_back("scotch");
  } else {
    std::cout << "SKIPPED: " << scotch_missing() << ": it was not compared\n";
  }
  std::map<std::string, int> found;
  for (std::uint64_t seed = 0; seed < 400u / kShare; ++seed) {
    SmallOptions options;
    options.most_nodes = 7;
    options.training = seed % 2 == 1;
    const Workload w = small_workload(seed, options);
    if (ways(w, w.devices()) > kMostWays) continue;
    const std::optional<double> any = brute_throughput(w, false);
    for (const std::string& planner : planners) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << planner);
      const std::optional<Answer> answer = ask(w, planner);
      if (!answer) continue;
      ++found[planner];
      expect_sound(w, *answer);
      ASSERT_TRUE(any);
      EXPECT_GE(answer->value_ms, *any - 1e-9);
      if (planner == "pipedream") {
        EXPECT_TRUE(answer->contiguous);
      }
    }
  }
  for (const std::string& planner : planners) EXPECT_GT(found[planner], 50 / kShare);
}

// Checks the question to Scotch and the use of its answer: a program in its place keeps the one and gives the other.
class OtherScotch : public ::testing::Test {
 protected:
  OtherScotch() {
    const char* path = std::getenv("PATH");
    if (path != nullptr) path_ = path;
    ::setenv("PATH", (folder_.path() + ":" + path_).c_str(), 1);
  }
  ~OtherScotch() override { ::setenv("PATH", path_.c_str(), 1); }

  void answers(const std::string& shell) {
    std::ofstream(folder_.file("scotch_gpart")) << "#!/bin/sh\n" << shell << "\n";
    std::filesystem::permissions(folder_.file("scotch_gpart"), std::filesystem::perms::owner_all);
  }
  std::string question() const {
    std::ifstream in(folder_.file("asked"));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const TemporaryFolder folder_;
  std::string path_;
};

TEST_F(OtherScotch, GraphAndParts) {
  Workload w;
  w.accelerators = 2;
  w.cpus = 1;
  // Forward 0 -> 1 -> 2, backward 3 of 1's colour reads 0 and 1; 2 is the CPU's; 4 is by itself.
  w.nodes = {{"", 0, 2, 20, 1, 0.5, kNoColour, false, true},
             {"", 1, 1, 10, 1, 0.25, 0, false, true},
             {"", 2, 0, 7, 1, 0, kNoColour, false, false},
             {"", 3, 3, 30, 1, 0, 0, true, true},
             {"", 4, 0, 1, 1, 0, kNoColour, false, true}};
  w.edges = {{0, 1}, {1, 2}, {0, 3}, {1, 3}, {4, 0}};
  answers("echo \"$@\" >" + folder_.file("asked") + "; cat >>" + folder_.file("asked") +
          "; echo 3; echo 1 0; echo 0 1; echo 2 1");
  const Answer answer = ask(w, "scotch").value();
  // The output of 0 is transferred once for both that read it; what costs nothing holds together as well.
  EXPECT_EQ(question(), "-Cd 2 - -\n0\n3 4\n0 011\n2000000 2 500000 1 1 2\n4000000 1 500000 0\n0 1 1 0\n");
  EXPECT_EQ(answer.placement.device, (std::vector<int>{1, 0, 2, 0, 1}));
  EXPECT_EQ(answer.value_ms, max_load_ms(w, answer.placement));
  EXPECT_EQ(answer.planner, "scotch");
  w.memory_bytes = 1;
  Request request;
  request.algorithm = "scotch";
  Work work;
  try {
    find_placement(w, request, &work);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInfeasible);
    EXPECT_NE(std::string(e.what()).find("does not heed memory"), std::string::npos) << e.what();
  }
  // Nothing to cut.
  for (Node& node : w.nodes) node.on_accelerators = false;
  answers("exit 1");
  EXPECT_EQ(ask(w, "scotch")->placement.device, std::vector<int>(5, 2));
}

// Sums of weights stay within what Scotch counts in.
TEST_F(OtherScotch, LargeTimes) {
  Workload w;
  w.accelerators = 2;
  for (int v = 0; v < 2; ++v) w.nodes.push_back({"", v, 4e6, 4e6, 1, 1e6, kNoColour, false, true});
  w.edges = {{0, 1}};
  answers("cat >" + folder_.file("asked") + "; echo 2; echo 0 0; echo 1 1");
  EXPECT_EQ(ask(w, "scotch")->value_ms, 5e6);
  EXPECT_EQ(question(), "0\n2 2\n0 011\n1000000000 1 250000000 1\n1000000000 1 250000000 0\n");
  for (Node& node : w.nodes) node.accelerator_ms = 1e300;
  EXPECT_TRUE(ask(w, "scotch"));
}

TEST_F(OtherScotch, WrongAnswers) {
  Workload w;
  w.accelerators = 2;
  for (int v = 0; v < 2; ++v) w.nodes.push_back({"", v, 1, 1, 1, 1, kNoColour, false, true});
  Request request;
  request.algorithm = "scotch";
  request.milp.seconds = 0.3;
  const auto fails = [&](const std::string& shell, ErrorKind kind, const std::string& says) {
    answers(shell);
    Work work;
    try {
      find_placement(w, request, &work);
      ADD_FAILURE() << "no error: " << shell;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind) << e.what();
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
    }
  };
  fails("exec sleep 86400", ErrorKind::kInfeasible, "in time");
  request.milp.seconds = 600;
  fails("echo no such thing >&2; exit 2", ErrorKind::kIo, "no such thing");
  fails("echo 2; echo 0 0; echo 1 1; exit 2", ErrorKind::kIo, "exit code 2");
  fails("kill -11 $$", ErrorKind::kIo, "exit code 139");
  for (const char* text : {"", "x", "2", "2 0 0", "2 0 0 1", "2 0 0 1 2", "2 0 0 1 -1", "2 0 0 0 1", "2 0 0 2 1",
                           "3 0 0 1 1", "2 0 0 1 1 1", "2 0 0 1 1x", "2 0 0 1 99999999999"}) {
    fails(std::string("echo '") + text + "'", ErrorKind::kIo, "wrote no placement");
  }
  fails("exec yes 1", ErrorKind::kIo, "wrote no placement");
}

// A worked case: two branches of 3 ms, transfers of 1 ms, two accelerators.
TEST(Planning, WorkedCase) {
  Workload w;
  w.accelerators = 2;
  for (int v = 0; v < 4; ++v) {
    Node node;
    node.id = v;
    node.accelerator_ms = v == 1 || v == 2 ? 3 : 1;
    node.transfer_ms = 1;
    w.nodes.push_back(node);
  }
  w.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  // {0, 1} and {2, 3}: 4 + out of 0 and 1; {2, 3}: 4 + in of 0 and 1.
  const Answer answer = ask(w, "dp").value();
  EXPECT_EQ(answer.value_ms, 6);
  EXPECT_EQ(answer.ideals, 6);
  // Alone: everything on one accelerator takes 8, as no transfer is needed.
  EXPECT_EQ(ask(w, "dp", Objective::kLatency)->value_ms, 1 + 3 + 2 + 2 + 4);
  EXPECT_EQ(ask(w, "greedy", Objective::kLatency)->value_ms, 8);
}

// A node that is longer than a device's share of all; nodes that fill a device to its last byte.
TEST(Planning, LargeNodesAndFullDevices) {
  Workload w;
  w.accelerators = 2;
  w.memory_bytes = 4;
  for (int v = 0; v < 3; ++v) {
    Node node;
    node.id = v;
    node.accelerator_ms = v == 1 ? 10 : 1;
    node.bytes = 2;
    w.nodes.push_back(node);
  }
  w.edges = {{0, 1}, {1, 2}};
  EXPECT_EQ(simple_bound_ms(w, Objective::kThroughput), 10);
  EXPECT_EQ(greedy(w, colour_units(w)), (std::vector<int>{0, 0, 1}));
}

// Two sets that are contiguous each by itself and need each other's results.
TEST(Planning, SetsThatNeedEachOtherAreNotContiguous) {
  Workload w;
  w.accelerators = 2;
  for (int v = 0; v < 4; ++v) w.nodes.push_back({"", v, 1, 1, 1, 0, v == 0 || v == 3 ? 0 : 1, false, true});
  w.edges = {{0, 1}, {2, 3}};
  const Placement apart{{0, 1, 1, 0}, {}};
  EXPECT_EQ(why_not(w, apart), "");
  EXPECT_FALSE(contiguous(w, apart));
  EXPECT_FALSE(latency_ms(w, apart));
  EXPECT_EQ(max_load_ms(w, apart), 2);
  EXPECT_EQ(ask(w, "dp")->value_ms, 4);  // one unit
}

void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& body) {
  try {
    body();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_NE((std::string(e.what()) + e.hint()).find(part), std::string::npos) << e.what() << " | " << e.hint();
  }
}

TEST(Planning, WhatCannotBe) {
  SmallOptions options;
  options.training = true;
  Workload w = small_workload(3, options);
  Work work;
  Request request;
  request.algorithm = "magic";
  expect_error(ErrorKind::kUsage, "magic", [&] { find_placement(w, request, &work); });
  request.algorithm = "dp";
  request.objective = Objective::kLatency;
  expect_error(ErrorKind::kUsage, "backward", [&] { find_placement(w, request, &work); });
  options.training = false;
  w = small_workload(4, options);
  request.algorithm = "local-search";
  expect_error(ErrorKind::kUsage, "does not know latency", [&] { find_placement(w, request, &work); });
  // Wide: 2^12 ideals.
  w = Workload();
  w.accelerators = 2;
  for (int v = 0; v < 12; ++v) w.nodes.push_back({"", v, 1, 1, 1, 0, kNoColour, false, true});
  request = Request();
  request.algorithm = "dp";
  request.max_ideals = 4095;
  expect_error(ErrorKind::kInfeasible, "more than 4095 ideals", [&] { find_placement(w, request, &work); });
  request.max_ideals = 4096;
  EXPECT_EQ(find_placement(w, request, &work).ideals, 4096);
  request.max_ideals = 100;
  request.algorithm = "auto";
  const Answer answer = find_placement(w, request, &work);
  EXPECT_EQ(answer.planner, "dpl");
  EXPECT_FALSE(answer.proven);
  ASSERT_EQ(answer.warnings.size(), 1u);
  // Three parts of 5 on two accelerators of 9.
  w = Workload();
  w.accelerators = 2;
  w.memory_bytes = 9;
  for (int v = 0; v < 3; ++v) w.nodes.push_back({"", v, 1, 1, 5, 0, kNoColour, false, true});
  for (const char* planner : {"dp", "dpl", "auto", "greedy", "local-search"}) {
    request.algorithm = planner;
    expect_error(ErrorKind::kInfeasible, "--memory", [&] { find_placement(w, request, &work); });
  }
  if (!milp_solver_missing().empty()) return;
  for (const char* planner : {"milp", "milp-noncontiguous"}) {
    request.algorithm = planner;
    expect_error(ErrorKind::kInfeasible, "fits", [&] { find_placement(w, request, &work); });
    request.objective = Objective::kLatency;
    expect_error(ErrorKind::kInfeasible, "fits", [&] { find_placement(w, request, &work); });
    request.objective = Objective::kThroughput;
  }
}

// Ends with what there is.
TEST(Planning, StoppedWork) {
  Workload w;
  w.accelerators = 4;
  for (int v = 0; v < 12; ++v) w.nodes.push_back({"", v, 1.0 + v, 1, 1, 0, kNoColour, false, true});
  Request request;
  Work some(WorkLimits::of_units(100000));
  const Answer answer = find_placement(w, request, &some);
  EXPECT_EQ(answer.planner, "dpl");
  EXPECT_FALSE(answer.proven);
  EXPECT_FALSE(answer.warnings.empty());
  Work none(WorkLimits::of_units(1));
  expect_error(ErrorKind::kStopped, "stopped", [&] { find_placement(w, request, &none); });
}

}  // namespace
}  // namespace automap::placement
