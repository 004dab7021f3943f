// PipeDream's profile text (graph.txt), also used by DAPPLE: a DAG of layers with measured times.
//
//   node4 -- Linear(8, 8) -- forward_compute_time=1.5, backward_compute_time=3.0, activation_size=[32; 16],
//   parameter_size=64 <blank or tab>node4 -- node5
//
// Times in ms, sizes in bytes; after planning, nodes may end in " -- stage_id=2" (ignored).
#pragma once

#include <string>
#include <string_view>

#include "common/pipeline/profile.h"

namespace automap::io {

// True when the first line that is not blank looks like a node of this format.
bool is_pipedream(std::string_view text);

// The DAG as a chain: a topological order in which every node stands directly after the last of its inputs and branches
// stay together (depth first from the sinks, inputs in file order).
// As PipeDream does: sources named Input... and sinks named __getitem__... are left out.
// c = forward + backward time; phi = total forward / total; w = parameter_size; stash = activation_size (the sum of a
// list); a = the activations of all nodes before the cut that a node behind it reads, each once, in full.
// Worked case: 1 -> 2 -> 4, 1 -> 3 -> 4, activations 10, 20, 30, 40: order 1 2 3 4, a = 10, 10 + 20, 20 + 30, 0.
// Throws Error(kData) with source:line on anything malformed, an undefined or duplicate node, or a cycle.
pipeline::Profile parse_pipedream(std::string_view text, const std::string& source);

}  // namespace automap::io
