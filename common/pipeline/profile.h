// What every pipeline planner reads about a model: compute, activation, weight and stash per forward instruction.
// Symbols c, a, w, k, φ and n as in docs/cost-model.md (paper 4.5.1). File forms: common/io/profile_file.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automap::pipeline {

struct Profile {
  std::string model;            // a name for people
  std::string device;           // the reference device that c_ms is measured or estimated on
  double micro_batch_size = 0;  // samples per micro-batch; 0 when unknown
  // φ: the forward share of c, in (0, 1). 1 for an inference module (no backward).
  double forward_fraction = 1.0 / 3.0;
  std::string source_sha256;  // of the bytes the profile was made from; empty when unknown

  // One entry per forward instruction 1..n (index i-1), in data-flow order.
  std::vector<double> c_ms;         // forward + own backward of one micro-batch on one reference device
  std::vector<double> a_bytes;      // bytes crossing the cut after the instruction, one direction, per micro-batch
  std::vector<double> w_bytes;      // trainable variables first used here = gradient bytes to all-reduce
  std::vector<double> stash_bytes;  // kept from forward to backward, per micro-batch
  // Each either empty or of size n.
  std::vector<std::string> name;     // HLO instruction name
  std::vector<std::string> op_name;  // framework name
  std::vector<std::string> layer;    // the layer a user knows, "encoder/layer/17"

  std::int64_t size() const { return static_cast<std::int64_t>(c_ms.size()); }
};

// Throws Error(kData) naming `source`, the column and the row when the profile cannot be planned: fewer than two
// instructions, columns of different length, a value that is negative or not finite, all compute zero,
// φ outside (0, 1].
void check_profile(const Profile& profile, const std::string& source);

}  // namespace automap::pipeline
