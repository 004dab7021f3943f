// The number of iterations of a `while`, when the module says it or its loop counter can be followed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/graph/graph.h"

namespace automap::graph {

// The trip count of the `while` instruction `id`, or nothing when it is not known. In this order:
// 1. backend_config's known_trip_count;
// 2. the condition compares one element i of the loop state with a bound N (LT, LE, GT, GE, NE, EQ, either side), i
//    starts from a constant, the body adds or subtracts a constant, and N is a constant or an element of the state that
//    starts from one and is handed on unchanged. Values are followed through tuples, get-tuple-element, copies,
//    converts, scalar reshapes, optimization barriers, calls and fusions, and out of a computation that has one caller.
// Worked cases: i = 0; while (i < 24) i = i + 1 -> 24. i = 10; while (i >= 0) i = i - 3 -> 4. i = 5; while (i < 5) ->
// 0.
std::optional<std::int64_t> trip_count(const Graph& graph, InstructionId id);

// The trip count of every `while` of the module; index = InstructionId, nullopt for other opcodes and unknown counts.
std::vector<std::optional<std::int64_t>> trip_counts(const Graph& graph);

}  // namespace automap::graph
