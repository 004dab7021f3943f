// The choice of device cuts beside every sequence of cuts there is.
#include "models/usable_device_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "models/plan_space.h"
#include "tests/models/whole_problem.h"

namespace automap::models {
namespace {

using pipeline::Problem;

// All ways to cut into `stages` groups that stages can have, at these cuts.
void each_way(const Problem& problem, int stages, const std::vector<int>& cuts,
              const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> way;
  const std::function<void(int)> next = [&](int from) {
    if (static_cast<int>(way.size()) + 1 == stages) {
      if (problem.group(from, problem.num_devices()).valid) visit(way);
      return;
    }
    for (const int cut : cuts) {
      if (cut <= from || !problem.group(from, cut).valid) continue;
      way.push_back(cut);
      next(cut);
      way.pop_back();
    }
  };
  next(0);
}

std::set<int> cuts_of_ways(const Problem& problem, int stages, const std::vector<int>& cuts) {
  std::set<int> found;
  each_way(problem, stages, cuts, [&](const std::vector<int>& way) { found.insert(way.begin(), way.end()); });
  return found;
}

bool near_server(const Problem& problem, int d, int radius) {
  for (int b = 1; b < problem.num_devices(); ++b) {
    if (problem.server_of_device(b - 1) != problem.server_of_device(b) && std::abs(b - d) <= radius) return true;
  }
  return radius < 0;
}

TEST(UsableDeviceCuts, EachComesWithAPlanAndNoneIsMissedWhereThereIsRoom) {
  int some_groups_only = 0, chosen = 0, all = 0, none = 0;
  for (int i = 0; i < 600; ++i) {
    SCOPED_TRACE(i);
    const WholeProblem whole = whole_problem(9000 + i, 12, 6, i % 2 == 0 ? 4 : 8);
    const Problem problem = whole.made.problem();
    const int devices = problem.num_devices(), stages = 2 + i % 3, radius = i % 5 == 0 ? 1 : -1;
    if (devices < stages) continue;
    const bool any_group = static_cast<int>(problem.group_sizes().size()) == devices;
    std::vector<int> every;
    for (int d = 1; d < devices; ++d) {
      if (near_server(problem, d, radius)) every.push_back(d);
    }
    const std::set<int> usable = cuts_of_ways(problem, stages, every);
    const int most = stages + i % 7;
    const std::vector<int> cuts = usable_device_cuts(problem, stages, most, radius);
    ASSERT_TRUE(std::is_sorted(cuts.begin(), cuts.end()));
    ASSERT_LE(static_cast<int>(cuts.size()), std::max(most, stages - 1));
    // If all cuts fit, none is left out: the plan space itself finds the usable ones.
    if (devices - 1 <= most) {
      EXPECT_EQ(cuts, every);
      continue;
    }
    const std::set<int> set(cuts.begin(), cuts.end());
    if (any_group) {
      EXPECT_LE(set.size(), every.size());
      EXPECT_TRUE(std::includes(every.begin(), every.end(), set.begin(), set.end()));
      continue;
    }
    ++some_groups_only;
    none += usable.empty();
    EXPECT_EQ(cuts.empty(), usable.empty());
    EXPECT_EQ(cuts_of_ways(problem, stages, cuts), set);
    if (static_cast<int>(usable.size()) <= most) {
      ++all;
      EXPECT_EQ(set, usable);
    } else {
      ++chosen;
    }
  }
  EXPECT_GT(some_groups_only, 100);
  EXPECT_GT(chosen, 30);
  EXPECT_GT(all, 30);
  EXPECT_GT(none, 10);
}

// 376 devices on 59 servers of several sizes in two stages: 188 and 188 is all there is.
TEST(UsableDeviceCuts, TheOnlyPlanIsFoundAmongManyDevices) {
  WholeProblem whole = whole_problem(1, 12, 1, 1);
  machine::Cluster& cluster = whole.made.cluster;
  const machine::ServerGroup first = cluster.servers.front();
  cluster.servers.clear();
  for (int s = 0; s < 59; ++s) {
    cluster.servers.push_back(first);
    cluster.servers.back().devices = s < 22 ? 7 : 6;
  }
  whole.made.options.micro_batch_samples = 376;  // divided by 1, 2, 4, 8, 47, 94, 188
  const Problem problem = whole.made.problem();
  ASSERT_EQ(problem.num_devices(), 376);
  EXPECT_EQ(usable_device_cuts(problem, 2, 64, -1), std::vector<int>{188});
  PlanSpaceOptions options;
  options.stages = 2;
  EXPECT_EQ(PlanSpace(problem, options).device_cuts(), std::vector<int>{188});
}

}  // namespace
}  // namespace automap::models
