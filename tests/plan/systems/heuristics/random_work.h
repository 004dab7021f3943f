// Random work graphs and small clusters for tests.
#pragma once

#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/machine/cluster.h"
#include "plan/systems/heuristics/heuristics.h"

namespace automap::heuristics {

// `counts` devices by server; inside 1 byte takes 1e-6 ms (1 GB/s), between servers four times as long.
inline machine::Cluster small_cluster(const std::vector<int>& counts, double memory_gib = 1, double gbytes_per_s = 1) {
  machine::Cluster out;
  out.name = "small";
  for (const int devices : counts) out.servers.push_back({1, devices, gbytes_per_s, gbytes_per_s / 4, "thing"});
  machine::DeviceType type;
  type.memory_gib = memory_gib;
  out.devices["thing"] = type;
  return out;
}

// Whole times, so that moments coincide; some of no time; values that many read; units of a few tasks. Megabytes, so
// that a message takes about as long as a task. States first, read by what follows.
inline WorkGraph random_work(Rng* rng, int tasks) {
  WorkGraph out;
  std::vector<std::vector<TaskId>> readers(static_cast<std::size_t>(tasks));
  for (TaskId t = 0; t < tasks; ++t) {
    Task task;
    task.name = "task" + std::to_string(t);
    task.opcode = "dot";
    const bool state = t < tasks / 5;
    task.pass = state ? Pass::kState : t < tasks / 2 ? Pass::kForward : Pass::kBackward;
    task.ms = state || rng->below(6) == 0 ? 0 : static_cast<double>(1 + rng->below(9));
    task.memory_bytes = static_cast<double>(rng->below(4)) * 1e6;
    task.unit = t;
    task.pinned = state;
    // The update of a state that came before.
    if (t > 3 * tasks / 4 && rng->below(3) == 0) {
      task.unit = static_cast<UnitId>(rng->below(static_cast<std::uint64_t>(tasks / 5 + 1)));
      task.pass = Pass::kUpdate;
      task.pinned = true;
    }
    out.tasks.push_back(task);
    for (std::uint64_t edges = t == 0 || state ? 0 : 1 + rng->below(3); edges > 0; --edges) {
      const auto from = rng->below(2) == 0 ? rng->below(static_cast<std::uint64_t>(t))
                                           : static_cast<std::uint64_t>(t) - 1 -
                                                 rng->below(std::min<std::uint64_t>(3, static_cast<std::uint64_t>(t)));
      auto& list = readers[from];
      if (list.empty() || list.back() != t) list.push_back(t);
    }
  }
  for (TaskId t = 0; t < tasks; ++t) {
    auto& list = readers[at(t)];
    if (!list.empty()) out.values.push_back({t, static_cast<double>(rng->below(5)) * 1e6, list});
  }
  out.link();
  return out;
}

inline Devices random_devices(Rng* rng, std::int32_t units, int devices) {
  Devices out;
  for (UnitId u = 0; u < units; ++u)
    out.push_back(static_cast<DeviceId>(rng->below(static_cast<std::uint64_t>(devices))));
  return out;
}

}  // namespace automap::heuristics
