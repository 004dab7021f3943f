// One table says what training frameworks express. A plan for a framework (Question::framework) runs by the framework's
// own options and classes, without a change of the framework. The emitters of plans and the costs of software have the
// same rows.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap::planners {

struct Question;
struct Candidate;

// The positions at which stages may end.
enum class FrameworkCuts {
  kInstructions,  // anywhere
  kLayers,        // between whole layers
  kStackLayers,   // between whole layers of the one stack that the model has, and right behind it
  kEqualLayers,   // so that every stage has as many layers, of the one stack that the model has
};
const char* to_string(FrameworkCuts cuts);  // "anywhere", "whole layers", "layers of one stack", "equal layers"

struct Framework {
  const char* name;  // as --for has it
  const char* what;  // the version that the row speaks of
  // Schedules for plans of several stages. With one stage every framework accumulates gradients, one micro-batch after
  // the other.
  std::vector<pipeline::Schedule> schedules;
  // True for one mesh of devices: all stages have the same number of replicas, one width and one ZeRO level.
  bool mesh;
  // ZeRO levels where replicas of one device make one stage, where those of several devices do, and of several stages.
  // Each list is within the one before it.
  std::vector<int> zero_alone, zero_wide, zero_stages;
  bool whole_heads;         // the devices of a replica hold as many whole heads of attention each
  bool wide_stages;         // replicas of several devices stand in pipelines, too
  bool whole_gradients;     // in pipelines ZeRO 2 and 3 shard gradients after the last micro-batch alone
  bool even_servers;        // as many devices of every server that it runs on, as servers_inexpressible has it
  bool whole_rounds;        // a pipeline has a multiple of its stages as micro-batches
  bool recompute_by_stage;  // else all stages recompute their layers, or none does
  FrameworkCuts cuts;
  // Of its own models, where its words name the layers of one stack as those do, so that cuts are those of the stack;
  // null: its words take the model's names.
  const char* own_first_module;
  const char* by;  // options and classes that this rests on, as the framework spells them, without dashes in front
};

const std::vector<Framework>& all_frameworks();
std::vector<std::string> framework_names();
// The row without limits: every plan of AutoMap.
const Framework& any_framework();
// Throws Error(kUsage) with the nearest name, and all of them.
const Framework& find_framework(const std::string& name);
// True if the framework excludes anything that AutoMap plans.
bool limits_plans(const Framework& framework);
bool has_schedule(const Framework& framework, pipeline::Schedule schedule);
// True if one of these layers is called as the first module of the framework's own models.
bool has_own_names(const Framework& framework, const std::vector<std::string>& layers);
// The levels for replicas of so many devices in so many stages.
const std::vector<int>& zero_levels(const Framework& framework, int stages, int width);
// The default schedule of a plan of so many stages; for `any` the adaptive one.
pipeline::Schedule usual_schedule(const Framework& framework, int stages);

// The reason why replicas of so many devices in so many stages do not run, worded as by inexpressible(); empty: they
// do. `heads`: Profile::attention_heads.
std::string width_inexpressible(const Framework& framework, int stages, int width, std::int64_t heads);
std::string micro_batches_inexpressible(const Framework& framework, int stages, int micro_batches);
// The reason why a mesh of servers that hold as many devices each has no place for these: `used` devices of every
// server, in stages of so many devices (0: of any number), replicas of `width`; worded as by inexpressible(). Empty: it
// has one, because stages and replicas fill servers, or are filled by them.
std::string servers_inexpressible(const std::vector<int>& used, int of_stage, int width);
// The reason why these numbers of layers, one for each part, do not run where a framework wants them equal, worded as
// by inexpressible(); empty: they do.
std::string equal_layers_inexpressible(const std::vector<int>& counts);

// The first property of a plan that the framework cannot run, as the end of a sentence ("stages of different widths");
// empty: the framework runs the plan. If the profile names fewer than two layers, every cut counts as one between
// layers.
std::string inexpressible(const Framework& framework, const pipeline::PlacedPlan& placed,
                          const pipeline::Profile& profile);
// The same for a plan as its file states it. `layers`: the layers at its cuts; null: they do not all lie between
// layers.
std::string inexpressible(const Framework& framework, const pipeline::PlanDocument& document,
                          const pipeline::LayerSplit* layers);
std::string inexpressible(const Framework& framework, const Candidate& one, const pipeline::Profile& profile);
inline bool expresses(const Framework& framework, const Candidate& one, const pipeline::Profile& profile) {
  return inexpressible(framework, one, profile).empty();
}

// The cuts at which several stages may end where their numbers of layers need not be equal, ascending; empty: none, or
// all.
std::vector<int> framework_cuts(const Framework& framework, const pipeline::Profile& profile);

// The batch where nobody gives one: usual_batch() of the profile's micro-batch, and where the framework's pipelines
// want multiples of their stages as micro-batches the next number of samples that also splits into multiples of
// rounds_of_pipelines(), if it is less than twice as many. It depends on the framework, the cluster and the stages
// asked for, not on a plan.
std::int64_t usual_batch_of(const Question& question);
// An odd number; 1: the framework wants no multiples, or powers of two are all that is wanted. A pipeline may have as
// many stages as are asked for, or any number that divides the devices.
std::int64_t rounds_of_pipelines(const Question& question);

// The cuts at which parts of a stage may end: in front of layers that hold variables, since those are the modules that
// the framework's words name. Empty: all.
std::vector<int> part_ends(const Question& question);

// Restricts the question's options to those that the framework has in plans of so many stages; 0: of any number.
pipeline::ProblemOptions framework_options(const Framework& framework, int stages, pipeline::ProblemOptions options);

// Drops the widths of replicas that the question's framework has not in plans of so many stages: those that split heads
// of attention, and of several stages those that its pipelines lack. 0: of any number.
void drop_widths(int stages, Question& question);

// Leaves of the question what its framework has: schedules, variants, equal replicas, kinds beside the plan. What is
// left is a superset of the framework's plans, so that its bounds hold for these. Twice is as once. Throws
// Error(kUsage) where nothing is left.
void apply_framework(Question& question);
// The question that apply_framework leaves, asked of any framework.
Question of_any_framework(const Question& question);

// "schedule 1f1b, all stages with as many replicas of one width and one ZeRO level, cut at whole layers, ...": for the
// head of a report.
std::string framework_text(const Framework& framework);
// The reason why plans are cut at instructions though the framework needs layers: one sentence; empty: they are not.
std::string no_layers_text(const Framework& framework, const pipeline::Profile& profile);

}  // namespace automap::planners
