// FLOPs, transcendental operations and bytes accessed of HLO, by the conventions of XLA's HloCostAnalysis, so that the
// figures can be compared with what XLA itself reports.
//
// Conventions: a multiply-add is 2 FLOPs; dot = 2 |out| prod(contracting); convolution counts only the window positions
// that meet real input (no padding, no dilation holes); an element-wise instruction is |out| FLOPs, or |out|
// transcendentals for exponentials, roots, logarithms, trigonometry, power, erf; reduce = reducer * (|in| - |out|);
// reduce-window = reducer * (window - 1) |out|; scatter = combiner * |updates|; sort = n ceil(log2 n); while =
// condition + body ONCE; conditional = the maximum over its branches, each figure by itself; call and fusion = inside;
// scan = its step times its length; batch-norm and custom-call = 0. Bytes accessed = all operands + the output; 0 for
// parameters, constants, get-tuple-element, bitcasts and transposes that only relabel the layout; slices and gathers
// count what they move.
//
// Here: XLA adds -1 FLOPs and -1 bytes for each custom-call ("unknown"); we add 0 and count them, but for attention
// that a library does (attention_calls.h), whose work follows from its shapes. XLA sums in single precision, we in
// double: totals differ by rounding (about 1e-5).
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/hlo_attributes.h"

namespace automap::graph {

struct Cost {
  double flops = 0;
  double transcendentals = 0;
  double bytes = 0;

  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    transcendentals += other.transcendentals;
    bytes += other.bytes;
    return *this;
  }
};

enum class WhileCounting {
  kOnce,       // XLA's convention
  kTripCount,  // times the trip count where it is known (trip_count.h), once where it is not
};

struct ModuleCost {
  std::vector<Cost> instructions;  // per InstructionId, what it calls included
  std::vector<Cost> computations;  // per ComputationId: the sum over its own instructions
  Cost total;                      // of the entry
  std::int64_t custom_calls = 0;   // instructions of the whole module whose cost nobody can know
  double custom_call_bytes = 0;    // what those read and write; in no other figure
};

// One pass over the module, callees before callers. Sums over a computation stop at 1e100. Throws Error(kData) naming
// the instruction when an attribute that the count needs is malformed.
ModuleCost analyze_cost(const Graph& graph, WhileCounting counting = WhileCounting::kOnce);

// 2 |out| prod(contracting dimensions): FLOPs of one dot or scaled-dot, and of a ragged-dot whose rows are not summed.
double dot_flops(const Graph& graph, InstructionId id);
double convolution_flops(const Graph& graph, InstructionId id);
// The number of steps of a scan; 1 where its operands do not say it.
std::int64_t scan_length(const Graph& graph, InstructionId id);

// The number of the kernel * output position pairs of one spatial dimension that meet real input. Exact while the
// smaller of kernel and output is at most 2^20 positions; beyond that the count of 2^20 evenly spread positions,
// scaled. Worked case: input 4, kernel 3, output 4, padding 1: 10 of 12.
double valid_positions(std::int64_t input, std::int64_t kernel, std::int64_t output, const WindowDimension& window);

}  // namespace automap::graph
