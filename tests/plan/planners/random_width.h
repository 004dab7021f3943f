#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/pipeline/profile.h"
#include "common/pipeline/random_problem.h"

namespace automap::planners {

// A profile at a width as a partition might leave it: some positions divided, some whole, collectives on top.
inline pipeline::WidthColumns random_width(const pipeline::Profile& profile, int width, std::uint64_t seed) {
  pipeline::CounterRandom random(seed, 77);
  pipeline::WidthColumns out;
  out.width = width;
  const auto n = static_cast<std::size_t>(profile.size());
  std::vector<double> share(n), moved(n);
  for (std::size_t i = 0; i < n; ++i) {
    share[i] = random.uniform() < 0.8 ? 1.0 / width : 1;
    moved[i] = random.uniform() < 0.3 ? profile.c_ms[i] * random.uniform(0, 0.3) : 0;
  }
  const auto part = [&](std::vector<double> column) {
    for (std::size_t i = 0; i < column.size(); ++i) column[i] *= share[i];
    return column;
  };
  out.w_bytes = part(profile.w_bytes);
  out.gradient_bytes = part(profile.gradient_bytes);
  out.slot_bytes = part(profile.slot_bytes);
  out.frozen_bytes = part(profile.frozen_bytes);
  out.stash_bytes = part(profile.stash_bytes);
  out.workspace_bytes = part(profile.workspace_bytes);
  for (pipeline::DeviceTimes times : profile.times) {
    for (auto* table : {&times.forward_ms, &times.backward_ms}) {
      for (std::vector<double>& row : *table) {
        row = part(std::move(row));
        for (std::size_t i = 0; i < n; ++i) row[i] += moved[i] / 2;
      }
    }
    times.optimizer_ms = part(times.optimizer_ms);
    out.times.push_back(std::move(times));
    out.collective_ms.push_back(moved);
  }
  return out;
}

}  // namespace automap::planners
