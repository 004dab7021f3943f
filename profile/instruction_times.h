// The times of a module's instructions on one device connect a device model with the profiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/graph.h"

namespace automap::profile {

struct InstructionTimes {
  // Per InstructionId of the whole module, in ms, finite and >= 0: one execution of the instruction, including all that
  // it calls (call, fusion, map, async-start: the callee once; conditional: the most expensive branch; while: condition
  // and body times the trip count). So the entry's instructions sum to the time of one execution of the module, and a
  // callee's instructions must not be added to their caller's. The instructions of a called computation (or of a while
  // body) sum to one execution of it, averaged over its callers; those of a function that is applied element by element
  // (the reducer of a reduce, the comparison of a sort) are 0.
  std::vector<double> ms;
  // The host time to launch each instruction, in the same manner, counted in two ways (host_time.h); empty where no
  // pass can wait for it, since every kernel does (kCompiledHostUs).
  struct Host {
    std::vector<double> by_kernels, by_products;
  };
  Host host_ms;

  struct While {
    graph::InstructionId instruction = graph::kNone;
    std::int64_t trip_count = 1;
    bool inferred = false;  // false: not known from the module, counted once
  };
  std::vector<While> whiles;  // every `while` of the module, ascending

  // The assumptions of the estimate, one sentence each, for people ("3 while loops of unknown trip count counted
  // once").
  std::vector<std::string> notices;
};

}  // namespace automap::profile
