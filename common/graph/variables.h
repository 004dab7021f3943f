// Assigns roles to a module's inputs: variables, optimizer slots, frozen weights, other state, step inputs.
//
// Found by data flow, with names only as a help. A result leaf is the new value of an input when that input reaches it
// through element-wise arithmetic of the result's own size; it is *updated by a gradient* when the other values that
// flow in that way come out of heavier work (a matrix product, a reduction over the batch, a scatter, ...). A variable
// is an input that is updated by a gradient which depends on it; a slot is updated by a gradient that does not
// (moments). docs/profile.md tells the whole story.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/dependence.h"
#include "common/graph/graph.h"

namespace automap::graph {

// One line of a --variables file.
struct VariableRequest {
  std::string parameter;  // name or number
  std::string name;       // to show; may be empty
  std::string where;      // "vars.txt:3", for errors
};

// The forms: one per line "parameter [display name]" (# starts a comment; "number:name, shape" is read too); a JSON
// list of strings, numbers or {"parameter", "name"} objects; a JSON object {parameter: name}; a profile document with
// "trainable_variables". Throws Error(kData) naming source:line and what was expected; an empty list is an error.
std::vector<VariableRequest> parse_variable_list(std::string_view text, const std::string& source);
// Reads the file first; throws Error(kIo) as read_file does.
std::vector<VariableRequest> load_variable_list(const std::string& path);

enum class InputRole {
  kVariable,   // trained
  kSlot,       // updated by a gradient, but not what the gradient is of: moments, accumulators, averages
  kState,      // updated, but not by a gradient: running statistics, counters, random keys, loss scale
  kFrozen,     // a weight that the step reads and does not update
  kStepInput,  // data of this step
  kUnused,     // nothing reads it
};
const char* to_string(InputRole role);

struct EntryInput {
  std::int32_t parameter = 0;  // number
  std::int32_t leaf = kNone;   // of a tuple parameter
  NodeId node = kNone;
  std::string parameter_name;  // HLO name, "{leaf}" appended for a leaf of a tuple parameter
  std::string name;            // for people: the framework's path, else parameter_name
  InputRole role = InputRole::kUnused;
  std::int32_t result = kNone;  // the result leaf that holds its new value
  NodeId gradient = kNone;      // of a variable: the node that holds its gradient; kNone when there is none
};

// The update that makes a result leaf (one per result leaf).
struct ResultUpdate {
  std::int32_t input = kNone;                            // index of the input it is the new value of
  std::vector<std::pair<std::int32_t, int>> candidates;  // inputs of its dimensions that reach it: index, distance
  std::vector<NodeId> sources;  // heavier work that flows in: where element-wise arithmetic ends
  NodeId gradient =
      kNone;  // the last node, seen from the sources, that all of them flow through; kNone without sources
};

// Follows every result leaf back through the arithmetic of an update step.
std::vector<ResultUpdate> find_updates(const FlowGraph& flow, const std::vector<EntryInput>& inputs,
                                       const std::vector<bool>& free);

// The gradient behind an update that works on it with matrix products (orthogonalized momentum): the walk of
// find_updates from result leaf `leaf`, but through heavy work that reads nothing larger than the variable and none of
// the forward pass. kNone when that leads nowhere.
std::vector<NodeId> find_deep_gradients(const FlowGraph& flow, const std::vector<EntryInput>& inputs,
                                        const std::vector<bool>& free, const std::vector<bool>& forward,
                                        const std::vector<NodeId>& leaves);

// The inputs with their names, roles not yet decided.
std::vector<EntryInput> list_inputs(const FlowGraph& flow);

// Result leaf -> input leaf from the header's input_output_alias; kNone where there is none. Malformed text is ignored
// (aliasing is a hint).
std::vector<std::int32_t> read_aliases(const FlowGraph& flow);

// Requests -> indices of inputs, in order, without repeats. A request names a parameter by number, HLO name (with or
// without '%') or framework path. Throws Error(kData) naming the line, the parameter and the nearest known names.
// `of_request`, when given, gets the input of every request, repeats included.
std::vector<std::int32_t> match_requests(const std::vector<EntryInput>& inputs,
                                         const std::vector<VariableRequest>& requests,
                                         std::vector<std::int32_t>* of_request = nullptr);

bool is_float(const Shape& shape);

}  // namespace automap::graph
