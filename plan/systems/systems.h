// Published planners and ours as systems that are asked the same question: the same profile, cluster, batch, widths,
// ZeRO levels and recomputation (plan/systems/rivals says what is each paper's and where a stand-in departs). Every
// plan of a pipeline is judged by our simulation, with as much in flight as its memory allows; any other plan by the
// system's own simulation, and the answer says so. For a workload for placement (plan/systems/placement/workload.h)
// only the systems that place nodes have an answer: the largest load of a device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/hlo/hlo_reader.h"
#include "plan/planners/question.h"
#include "plan/systems/placement/workload.h"

namespace automap::systems {

struct Question {
  // About a model; about a workload only the request counts. Of a rival the stages of the request count; ours takes the
  // effort, the time limit and the policy, too.
  planners::Question plan;
  const hlo::HloModule* module = nullptr;         // of the model; null: a profile
  const placement::Workload* workload = nullptr;  // null: a model
  double batch = 0;                               // samples of a step
};

// Whose figure Answer::step_ms is. Those of one judge can be compared.
enum class Judge {
  kOurs,          // our simulation of a pipeline
  kOwnSimulator,  // the system's own: its plan is none of ours
  kLargestLoad,   // of a device per sample, of a workload
};
const char* to_string(Judge judge);  // "our simulation", ...

struct Answer {
  bool asked = true;  // false: what the question is about is none of its business, and why_not says why
  bool found = false;
  std::string why_not;  // where there is none: one sentence
  std::string plan;     // for people: "4 stages on 8, 8, 8, 8 devices, 16 micro-batches of 32"
  double own_ms = 0;    // what its own model puts first by, ms; 0: it has none
  Judge judge = Judge::kOurs;
  double step_ms = 0;        // as `judge` says
  double fullest_share = 0;  // of a device's memory; above 1 it does not fit
  bool fits() const { return !(fullest_share > 1); }
  double search_s = 0;             // wall time
  double simulated_bound_ms = -1;  // ours: no plan that was considered is shorter; negative: not known
  double gap() const { return simulated_bound_ms > 0 ? step_ms / simulated_bound_ms - 1 : -1; }
};

struct System {
  const char* key;         // of --systems
  const char* name;        // of tables
  const char* source;      // the paper
  const char* objective;   // what its own model is
  const char* expresses;   // what its plans can be
  const char* leaves_out;  // what it cannot express
  Answer (*plan)(const Question& question);
  enum class Of { kModels, kModules, kBoth, kWorkloads };
  Of of = Of::kModels;  // kModules: HLO only; kWorkloads: models, too, but those are asked about by name only
  bool places_nodes() const { return of == Of::kBoth || of == Of::kWorkloads; }
};
// Ours first.
const std::vector<System>& all_systems();

// "all", or keys separated by commas. Throws Error(kUsage) naming the one that is not known. All of a workload are
// more: ways to place one that stand beside each other there.
std::vector<const System*> systems_of(std::string_view names, bool workload = false);

// The answer with its search time. An answer without a plan says why; only errors that are nobody's plan are thrown.
Answer ask(const System& system, const Question& question);

}  // namespace automap::systems
