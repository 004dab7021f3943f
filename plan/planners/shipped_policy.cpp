#include "plan/planners/shipped_policy.h"

#include <cstddef>
#include <map>
#include <string_view>

#include "common/base/error.h"
#include "models/features.h"

namespace automap::planners {
namespace {

constexpr const char* kDefaultName = "pipeline.policy";

int number_of(pipeline::Objective objective) {
  return objective == pipeline::Objective::kSimulated ? 1 : 0;
}

// All shipped policies by name; parsing takes well below a millisecond each.
const std::map<std::string, std::shared_ptr<const models::Policy>>& shipped() {
  static const auto policies = [] {
    std::map<std::string, std::shared_ptr<const models::Policy>> found;
    for (const internal::ShippedFile* file = internal::kShippedFiles; file->name != nullptr; ++file) {
      const std::string_view bytes(reinterpret_cast<const char*>(file->data), file->size);
      const std::string source = std::string(file->name) + " (compiled in)";
      auto policy = std::make_shared<const models::Policy>(models::Policy::parse(bytes, source));
      check_plans(*policy, source);
      found.emplace(file->name, std::move(policy));
    }
    return found;
  }();
  return policies;
}

}  // namespace

std::vector<std::string> shipped_policy_names() {
  std::vector<std::string> names;
  for (const internal::ShippedFile* file = internal::kShippedFiles; file->name != nullptr; ++file) {
    names.emplace_back(file->name);
  }
  return names;
}

std::shared_ptr<const models::Policy> shipped_policy(pipeline::Objective objective) {
  const auto& policies = shipped();
  const auto usual = policies.find(kDefaultName);
  const int wanted = number_of(objective);
  if (usual != policies.end() && usual->second->architecture().objective == wanted) return usual->second;
  for (const auto& [name, policy] : policies) {
    if (policy->architecture().objective == wanted) return policy;
  }
  return usual == policies.end() ? nullptr : usual->second;
}

std::shared_ptr<const models::Policy> load_policy(const std::string& path) {
  auto policy = std::make_shared<const models::Policy>(models::Policy::load(path));
  check_plans(*policy, path);
  return policy;
}

void check_plans(const models::Policy& policy, const std::string& source) {
  const models::Architecture& architecture = policy.architecture();
  if (architecture.family != models::Family::kAfterState) {
    throw Error(ErrorKind::kData,
                source + ": family: found the flat network of the paper's environment, expected one of after-states",
                "automap-train evaluates flat networks; those of its other presets plan here");
  }
  if (architecture.features != models::kFeatures || architecture.feature_version != models::kFeatureVersion) {
    throw Error(ErrorKind::kData,
                source + ": features: found " + std::to_string(architecture.features) + " of version " +
                    std::to_string(architecture.feature_version) + ", expected " + std::to_string(models::kFeatures) +
                    " of version " + std::to_string(models::kFeatureVersion),
                "train a policy with this version of AutoMap");
  }
}

}  // namespace automap::planners
