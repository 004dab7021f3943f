#include "plan/planners/shipped_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "models/features.h"
#include "tests/plan/planners/random_policy.h"

namespace automap::planners {
namespace {

using ::testing::HasSubstr;

std::string complaint_of_kind(const std::function<void()>& body, ErrorKind kind) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ShippedPolicy, EveryPipelinePolicyOfTheSourceTreeIsCompiledIn) {
  std::vector<std::string> files;
  const std::filesystem::path folder = std::filesystem::path(AUTOMAP_SOURCE_DIR) / "models/pretrained";
  if (std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (entry.path().extension() == ".policy" && name.rfind("pipeline", 0) == 0) files.push_back(name);
    }
  }
  std::vector<std::string> names = shipped_policy_names();
  std::sort(names.begin(), names.end());
  std::sort(files.begin(), files.end());
  EXPECT_EQ(names, files);
  if (names.empty()) {
    EXPECT_EQ(shipped_policy(pipeline::Objective::kValue), nullptr);
    GTEST_SKIP() << "no policy in models/pretrained: what is compiled in cannot be compared";
  }
  const auto policy = shipped_policy(pipeline::Objective::kValue);
  ASSERT_NE(policy, nullptr);
  EXPECT_EQ(policy, shipped_policy(pipeline::Objective::kValue));
  EXPECT_NE(shipped_policy(pipeline::Objective::kSimulated), nullptr);
  const auto from_file = load_policy((folder / "pipeline.policy").string());
  EXPECT_EQ(policy->weights(), from_file->weights());
  EXPECT_LT(std::filesystem::file_size(folder / "pipeline.policy"), 2u << 20);
}

TEST(ShippedPolicy, PoliciesThatCannotPlanAreRefusedByName) {
  models::Architecture architecture = random_policy()->architecture();
  const auto with = [](const models::Architecture& changed) {
    return models::Policy(changed, std::vector<float>(models::Policy::num_weights(changed), 0.1f));
  };
  EXPECT_NO_THROW(check_plans(with(architecture), "it"));
  models::Architecture changed = architecture;
  changed.feature_version += 1;
  EXPECT_THAT(complaint_of_kind([&] { check_plans(with(changed), "new.policy"); }, ErrorKind::kData),
              HasSubstr("new.policy: features: found " + std::to_string(models::kFeatures) + " of version " +
                        std::to_string(models::kFeatureVersion + 1)));
  changed = architecture;
  changed.features -= 1;
  EXPECT_THAT(complaint_of_kind([&] { check_plans(with(changed), "short.policy"); }, ErrorKind::kData),
              HasSubstr("short.policy: features: found " + std::to_string(models::kFeatures - 1)));
  changed = architecture;
  changed.family = models::Family::kFlat;
  changed.head = models::Head::kPlain;
  changed.actions = 128;
  EXPECT_THAT(complaint_of_kind([&] { check_plans(with(changed), "flat.policy"); }, ErrorKind::kData),
              HasSubstr("flat.policy: family"));
  EXPECT_THAT(complaint_of_kind([] { load_policy("/nonexistent/x.policy"); }, ErrorKind::kIo), HasSubstr("x.policy"));
}

}  // namespace
}  // namespace automap::planners
