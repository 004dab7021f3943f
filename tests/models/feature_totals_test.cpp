// Pins the features on random problems, by their version: a policy reads what it was trained on. A change of them is a
// new kFeatureVersion; AUTOMAP_WRITE_TOTALS=1 writes the file of that version.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "models/features.h"
#include "models/plan_space.h"
#include "tests/models/whole_problem.h"

namespace automap::models {
namespace {

const std::string kFile =
    std::string(AUTOMAP_SOURCE_DIR) + "/tests/data/features_v" + std::to_string(kFeatureVersion) + ".txt";

// Mean and mean square of each.
std::vector<std::pair<double, double>> totals() {
  std::vector<std::pair<double, double>> sums(kFeatures);
  int rows = 0;
  for (int i = 0; i < 200; ++i) {
    const WholeProblem whole = whole_problem(5000 + i, 40, 4, 8);
    const pipeline::Problem problem = whole.made.problem();
    const int most = std::min({8, problem.num_devices(), problem.num_instructions()});
    if (most < 2) continue;
    const int stages = 2 + i % (most - 1);
    const PlanSpace space(problem, every_pivot(problem, stages, whole.schedule));
    std::vector<Prefix> front = {space.root()}, children;
    std::vector<int> parent_of;
    for (int s = 0; s + 1 < stages && !front.empty(); ++s) {
      children.clear();
      space.expand(front, 6, children, parent_of);
      front.clear();
      for (const Prefix& prefix : children) {
        float row[kFeatures];
        const Rollouts rollouts = space.rollouts(prefix);
        after_state_features(space, prefix, rollouts, prefix.bound_ms * (1.2 + 0.1 * s), row);
        for (std::size_t f = 0; f < kFeatures; ++f) {
          sums[f].first += row[f];
          sums[f].second += static_cast<double>(row[f]) * row[f];
        }
        ++rows;
        if (front.size() < 3) front.push_back(prefix);
      }
    }
  }
  for (auto& [mean, square] : sums) {
    mean /= rows;
    square /= rows;
  }
  return sums;
}

TEST(FeatureTotals, AreThoseOfTheirVersion) {
  const std::vector<std::pair<double, double>> now = totals();
  if (std::getenv("AUTOMAP_WRITE_TOTALS") != nullptr) {
    std::ofstream out(kFile);
    for (std::size_t f = 0; f < kFeatures; ++f) {
      char line[200];
      std::snprintf(line, sizeof line, "%.7g %.7g %s\n", now[f].first, now[f].second, kFeatureNames[f]);
      out << line;
    }
    GTEST_SKIP() << "wrote " << kFile;
  }
  std::ifstream in(kFile);
  std::string name;
  double mean = 0, square = 0;
  for (std::size_t f = 0; f < kFeatures; ++f) {
    ASSERT_TRUE(std::getline(in >> mean >> square >> std::ws, name)) << kFile;
    EXPECT_EQ(name, kFeatureNames[f]);
    EXPECT_NEAR(now[f].first, mean, 1e-4 * (1 + std::fabs(mean))) << name;
    EXPECT_NEAR(now[f].second, square, 1e-4 * (1 + square)) << name;
  }
}

}  // namespace
}  // namespace automap::models
