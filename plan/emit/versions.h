// The versions of frameworks for which the words of an emitter are known: looked up in their packages, not guessed.
#pragma once

#include <string>

#include "plan/planners/frameworks.h"

namespace automap::emit {

// The first two numbers of a version.
struct FrameworkVersion {
  int release = 0, part = 0;
  // 0.0 stands for the newest that is known.
  bool newest() const { return release == 0 && part == 0; }
  bool before(int other_release, int other_part) const {
    return !newest() && (release < other_release || (release == other_release && part < other_part));
  }
};

// "0.12 to 0.16" of megatron.
std::string known_versions(const planners::Framework& framework);

// "0.13" of "0.13", "0.13.1", "v0.13.0" and "core_v0.13.0". Throws Error(kUsage) where that is no version, or none that
// is known, with those that are.
FrameworkVersion version_asked(const planners::Framework& framework, const std::string& text);

}  // namespace automap::emit
