// Pins the totals of every fixture: FLOPs, bytes by part, milliseconds. A change of them is a change of every plan:
// AUTOMAP_WRITE_TOTALS=1 writes them anew, and the commit that does so says why they changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "common/hlo/hlo_reader.h"
#include "profile/profile_hlo.h"
#include "tests/sum.h"

namespace automap::profile {
namespace {

using Totals = std::map<std::string, double>;

const std::string kFile = std::string(AUTOMAP_SOURCE_DIR) + "/tests/data/fixture_totals.txt";

Totals totals_of(const std::filesystem::path& fixture) {
  ProfileRequest request;
  request.device = "v100-16gb";
  request.more_devices = {"h100"};
  const ModelProfile m = profile_module(hlo::load_hlo(fixture.string()), fixture.string(), request);
  const pipeline::Profile& p = m.profile;
  Totals totals = {{"total_flops", m.total_flops},
                   {"executed_flops", m.executed_flops},
                   {"model_flops", m.work.model_flops},
                   {"variable_bytes", m.memory.variable_bytes},
                   {"slot_bytes", m.memory.slot_bytes},
                   {"frozen_bytes", m.memory.frozen_bytes},
                   {"input_bytes", m.memory.input_bytes},
                   {"stash_bytes", m.memory.stash_bytes},
                   {"gradient_bytes", sum(p.gradient_bytes)},
                   {"crossing_bytes", sum(p.a_bytes)},
                   {"workspace_bytes", *std::max_element(p.workspace_bytes.begin(), p.workspace_bytes.end())},
                   {"forward_ms", m.forward_ms},
                   {"backward_ms", m.backward_ms},
                   {"optimizer_ms", m.optimizer_ms}};
  for (const pipeline::DeviceTimes& times : p.times) {
    const auto last = times.samples.size() - 1;  // the most samples
    totals[times.device + ".forward_ms"] = sum(times.forward_ms[last]);
    totals[times.device + ".backward_ms"] = sum(times.backward_ms[last]);
    totals[times.device + ".optimizer_ms"] = sum(times.optimizer_ms);
  }
  return totals;
}

std::map<std::string, Totals> pinned() {
  std::map<std::string, Totals> all;
  std::ifstream in(kFile);
  std::string fixture, key;
  double value = 0;
  while (in >> fixture >> key >> value) all[fixture][key] = value;
  return all;
}

TEST(FixtureTotals, AreWhatTheyWere) {
  std::map<std::string, Totals> now;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo")) {
    const std::string name = entry.path().filename().string();
    // One form of each module: the text with its names.
    const bool text = name.find(".hlo") != std::string::npos && name.find(".stripped") == std::string::npos;
    if (text) now[name.substr(0, name.find('.'))] = totals_of(entry.path());
  }
  if (std::getenv("AUTOMAP_WRITE_TOTALS") != nullptr) {
    std::ofstream out(kFile);
    for (const auto& [fixture, totals] : now) {
      for (const auto& [key, value] : totals) {
        char line[200];
        std::snprintf(line, sizeof line, "%s %s %.10g\n", fixture.c_str(), key.c_str(), value);
        out << line;
      }
    }
    GTEST_SKIP() << "wrote " << kFile;
  }
  const std::map<std::string, Totals> before = pinned();
  ASSERT_EQ(now.size(), before.size());
  for (const auto& [fixture, totals] : before) {
    ASSERT_TRUE(now.count(fixture)) << fixture;
    ASSERT_EQ(now[fixture].size(), totals.size()) << fixture;
    for (const auto& [key, value] : totals) {
      EXPECT_NEAR(now[fixture][key], value, 1e-6 * std::fabs(value)) << fixture << " " << key;
    }
  }
}

}  // namespace
}  // namespace automap::profile
