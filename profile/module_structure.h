// The properties of a module that the estimate of times needs whatever its extents: which instructions fuse, the
// readers of each value, and which kernels have to wait for which. They are found once and used for every batch and
// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "profile/fused_chains.h"
#include "profile/instruction_times.h"

namespace automap::profile {

enum class KernelKind : std::uint8_t {
  kFree,    // names a value: parameter, tuple element, ...; or inside a library's kernel
  kAlias,   // the same memory as its operand
  kLoop,    // element-wise or data movement that a fused loop can do on the fly
  kReduce,  // ends a fused loop
  kKernel,  // a kernel of its own
};

// The use of a computation: on its own (entry, call, loop bodies, branches), as one kernel (fusion), or per element.
enum class ComputationRole : std::uint8_t { kRegion, kFusion, kPerElement };

// The instructions of one computation, indexed from its first one.
struct Region {
  graph::InstructionId first = 0;
  std::vector<KernelKind> kind;
  std::vector<char> constant;                      // follows from constants and iota alone
  std::vector<std::int32_t> source;                // whose memory it shares; itself when it is no alias
  std::vector<std::vector<std::int32_t>> readers;  // by source, ascending
  // Reductions over the trailing dimensions whose row stays on the chip: what reads their results goes on in the same
  // kernel (softmax, layer norm).
  std::vector<char> row;
  std::vector<std::int32_t> level;  // how many finished kernels it has to wait for; of regions only
  std::vector<char> random;         // drawn, or what follows from draws alone; of regions only

  // The operands that instruction i reads, by source and in their order, without constants: reads[first_read[i] ..
  // first_read[i + 1]). In regions only.
  std::vector<std::int32_t> first_read, reads;

  std::size_t local(graph::InstructionId id) const { return static_cast<std::size_t>(id - first); }
};

struct ModuleStructure {
  std::vector<ComputationRole> role;  // by computation, as all here
  std::vector<Region> region;
  // True if a computation is just one fused loop: calls of it fuse with their neighbours.
  std::vector<char> loop;
  // Reads or writes a part of its first argument and nothing else: calls of it cost nothing where that is in place.
  std::vector<char> part;
  std::vector<char> pure;    // the same result whenever the operands are
  std::vector<char> random;  // its result is drawn, or follows from draws alone
  std::vector<InstructionTimes::While> whiles;

  FusedChains fused;

  // `fused` (of the same module): what is inside a chain is free, and its kernels are kernels of their own.
  explicit ModuleStructure(const graph::Graph& graph, FusedChains fused = {});
};

}  // namespace automap::profile
