// Attributes measured times to the parts of a model, and scales a profile by them.
//
// - Instructions: by name, where the module is the one that ran (a name that another op_name contradicts does not
//   count; names alone do where half of the file's are the module's); else by op_name, which compilers keep; else by
//   the longest part of it that instructions of the module begin with. What several instructions share goes to them as
//   they are estimated.
// - Modules, annotations and layers: by words and numbers of their path. "transformer.h.3.attn" is in layer h/3. Where
//   words differ, as many of one name as the model has layers of one kind are these, in the order of their numbers
//   ("Block_0" to "Block_11" with twelve layers); what then lies outside of them is outside of the model's.
// - A layer that is measured as a whole has its time spread over its positions as they are estimated, pass by pass.
//
// Then each position takes what was measured of it. A layer of which only some positions have a time (the others run in
// their kernels) is scaled as a whole, and so is the rest of the model, by what the measured part takes of its
// estimate. Forward and backward are told apart where the file does; else the estimate does. The optimizer's column is
// scaled where its update was measured. Bytes, links and collectives inside of replicas stay, and other devices and
// numbers of samples are scaled alike.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/graph/graph.h"
#include "profile/measured/measured_times.h"
#include "profile/profiler.h"

namespace automap::measured {

struct Attribution {
  std::string source, form, steps_by;
  std::int64_t steps = 1;
  double samples = 0;  // of the micro-batch that was measured
  // Times of one step, in ms: all measured computation, and the parts of it that were attributed.
  double measured_ms = 0, forward_ms = 0, backward_ms = 0, optimizer_ms = 0, other_ms = 0;
  double communication_ms = 0;                            // beside that
  std::vector<std::pair<std::string, double>> left_over;  // what is nobody's, ms, the longest first
  std::int64_t positions = 0, measured_positions = 0;     // that take time by the estimate; that have a measured one
  double measured_compute = 0;                            // share of the estimated compute that these are
  double factor = 1;                                      // both passes now, to what they were estimated
  std::vector<std::string> notes;

  double attributed_ms() const { return forward_ms + backward_ms + optimizer_ms + other_ms; }
};

// `model` is of `graph`, made with ProfilerOptions::places. `samples`: of the micro-batch that was measured, where the
// user says it; 0: as the file says, else the model's own. Throws Error(kData) when next to nothing can be attributed,
// and when the file says other numbers of samples or positions.
Attribution apply_measured(const MeasuredTimes& times, const graph::Graph& graph, double samples,
                           profile::ModelProfile* model);

// Gives instructions that have no op_name the one that they have in `ran`, the module as it ran: traces of the CPU name
// instructions after optimization, and nothing else.
void add_op_names(const graph::Graph& ran, MeasuredTimes* times);

// Sentences for people on the attribution of measured time, and on its effect on the profile. attribution_json gives
// both to scripts.
struct AttributionSentences {
  std::string measured, scaled;
};
AttributionSentences attribution_sentences(const Attribution& attribution);
Json attribution_json(const Attribution& attribution);

}  // namespace automap::measured
