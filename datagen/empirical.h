// The family of rows that perturbs profiles of real models: the models of fixtures/ (datagen/fixture_profiles.inc, made
// by scripts/make_fixture_profiles.py), or profiles of the user's own.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/profile.h"
#include "datagen/families.h"

namespace automap::datagen {

// A profile as rows are made of it: running sums, so that a row costs as much for a large model as for a small one.
struct EmpiricalProfile {
  std::string model;
  std::vector<double> c_sum, w_sum;  // [n + 1], from 0
  std::vector<double> a;             // [n], n >= 2

  std::size_t size() const { return a.size(); }
};
EmpiricalProfile empirical_profile(const pipeline::Profile& profile);

// The models of fixtures/, at up to 128 points each.
const std::vector<EmpiricalProfile>& fixture_profiles();
// SHA-256 of their sources: a part of every configuration that uses them.
const std::string& fixture_profiles_sha256();

// p: window, warp, mix, jitter, keep_ratio.
void make_empirical(const double* p, Workspace& work);

}  // namespace automap::datagen
