#include "common/pipeline/profile.h"

#include <cmath>

#include "common/base/error.h"

namespace automap::pipeline {

void check_profile(const Profile& profile, const std::string& source) {
  const std::size_t n = profile.c_ms.size();
  if (n < 2) {
    throw Error(ErrorKind::kData,
                source + ": a profile needs at least 2 forward instructions, found " + std::to_string(n),
                "a model of one instruction cannot be cut into stages");
  }
  const auto check_column = [&](const std::vector<double>& column, const char* name) {
    if (column.size() != n) {
      throw Error(ErrorKind::kData, source + ": column " + name + " has " + std::to_string(column.size()) +
                                        " values where c_ms has " + std::to_string(n));
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(column[i]) || column[i] < 0) {
        throw Error(ErrorKind::kData, source + ": column " + name + ", instruction " + std::to_string(i + 1) +
                                          ": found " + std::to_string(column[i]) +
                                          ", expected a finite value of at least 0");
      }
    }
  };
  check_column(profile.c_ms, "c_ms");
  check_column(profile.a_bytes, "a_bytes");
  check_column(profile.w_bytes, "w_bytes");
  check_column(profile.stash_bytes, "stash_bytes");
  const auto check_names = [&](const std::vector<std::string>& column, const char* name) {
    if (!column.empty() && column.size() != n) {
      throw Error(ErrorKind::kData, source + ": column " + name + " has " + std::to_string(column.size()) +
                                        " values where c_ms has " + std::to_string(n));
    }
  };
  check_names(profile.name, "name");
  check_names(profile.op_name, "op_name");
  check_names(profile.layer, "layer");
  double total = 0;
  for (double c : profile.c_ms) total += c;
  if (!(total > 0) || !std::isfinite(total)) {
    throw Error(ErrorKind::kData, source + ": the compute times c_ms sum to " + std::to_string(total) +
                                      ", expected a finite sum above 0");
  }
  if (!(profile.forward_fraction > 0 && profile.forward_fraction <= 1)) {
    throw Error(ErrorKind::kData, source + ": forward_fraction is " + std::to_string(profile.forward_fraction) +
                                      ", expected a value in (0, 1]");
  }
}

}  // namespace automap::pipeline
