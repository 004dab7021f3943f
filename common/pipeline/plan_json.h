// The plan as a file: `automap.plan/3` JSON; versions 1 and 2 are read, too. docs/formats/plan.md describes every key,
// plan.schema.json checks it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/plan_envelope.h"
#include "common/pipeline/plan_price.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"

namespace automap {
class Json;
}

namespace automap::pipeline {

// Turns of a loop over layers that a stage runs.
struct LoopTurns {
  std::string loop;  // HLO name of the `while`
  std::int64_t first = 0, last = 0, all = 0;
};

// One part of the model, on one group of devices. Instructions are numbered from 1.
struct PlanPart {
  int first_instruction = 0, last_instruction = 0;
  std::string first_name, last_name;    // HLO names of these instructions; empty when the profile has none
  std::vector<LoopTurns> loop_turns;    // empty: it runs none, or the profile has no names
  std::string first_layer, last_layer;  // first and last layer that it computes; empty when unknown
  double transfer_ms = 0;               // one way to the next part; 0 for the last
  double weight_bytes = 0;              // its trainable variables
  // Times of this part alone, for one micro-batch; its gradients in the order they are reduced. Ordered schedules only.
  struct Work {
    double forward_ms = 0, backward_ms = 0, weights_ms = 0;
    std::vector<SyncBucket> sync;
  };
  std::optional<Work> work;
  // The names where it begins and ends: a layer where that is known, else an instruction; empty: neither is known.
  const std::string& first() const { return first_layer.empty() ? first_name : first_layer; }
  const std::string& last() const { return last_layer.empty() ? last_name : last_layer; }
};

// One stage as people and scripts read it: a group of devices with its part of the model, the first of them where the
// schedule gives it several. Devices are numbered from 1.
struct PlanStage : PlanPart {
  std::vector<PlanPart> more_parts;
  int first_device = 0, devices = 0;  // in the order of the plan's own devices
  std::vector<int> device_numbers;    // what those are called in the cluster; of version 3
  // From version 2 on. replicas * width = devices; a replica computes `samples` of every micro-batch.
  int replicas = 0, width = 1;
  double samples = 0;
  StageVariant variant;
  double forward_ms = 0, backward_ms = 0;  // of one micro-batch, the recomputed forward in the backward
  std::vector<SyncBucket> sync;            // gradients, in the order they are reduced
  double shared_gradients_ms = 0;          // their exchange with other stages, behind the sync, once per step
  double optimizer_ms = 0;                 // once per step, behind that
  MemoryParts memory;                      // on each of its devices
  double compute_ms = 0;                   // forward + backward of one micro-batch
  double allreduce_ms = 0;                 // the sum of `sync`
  double memory_bytes = 0;                 // on each of its devices
  double capacity_bytes = 0;               // of its smallest device, without the reserve
  int in_flight = 0;                       // K_s; of several parts the most, each counted once for every part
  std::vector<const PlanPart*> own_parts() const;
  double sends_ms() const;  // of one micro-batch: the transfers behind its parts, one way
};

struct PlanAlternative {
  std::string planner;
  int stages = 0;
  double step_ms = 0, simulated_step_ms = 0, planning_ms = 0;
};

// A limit on the step time (plan/planners/planner.h).
struct PlanLimitText {
  std::string kind;
  int stage = 0;
  double ms = 0, share = 0;
  std::string text;
};

// One sentence of the answer in words, behind its label; an empty label goes on with the one before.
struct PlanSentence {
  std::string label, text;
};

// The best plan found whose cuts lie between whole layers, of the same schedule (its stages and their widths may
// differ).
struct LayerSplit {
  std::vector<std::string> split_before;                     // [S-1] the layer each later stage starts with
  std::vector<std::string> split_spec;                       // [S-1] their module paths, "h.5"; empty: not known
  std::string no_split_spec;                                 // why it is not known
  std::map<std::string, std::vector<int>> layers_per_stage;  // numbered stack -> [S] layers of it in each stage
  // [S] the layers that begin in each stage, in the model's order, and those of them that hold variables. Empty of a
  // file that does not say.
  std::vector<std::vector<std::string>> stage_layers, stage_modules;
  std::vector<int> cuts, device_cuts;  // [S-1]
  std::vector<int> widths;             // [S] of their replicas
  double step_ms = 0, simulated_step_ms = 0;
};

// Every planner alone on the same question (plan/planners/planner_table.h).
struct PlannerTableRow {
  std::string planner;
  int stages = 0;  // 0: it found no plan, and the lengths and the gap are 0, too
  double step_ms = 0, simulated_step_ms = 0;
  double gap = 0;  // step_ms / reference_ms - 1
  double planning_ms = 0;
  bool cut_by_time = false;
};
struct PlannerTable {
  double reference_ms = 0;
  std::string reference_method;  // as lower_bound_method; "exact over all cuts": the reference is the least V there is
  std::vector<PlannerTableRow> rows;
};

// The progress of a search that learned on this problem (plan/planners/online.h).
struct PlanLearning {
  std::uint64_t plays = 0, earlier_plays = 0, updates = 0;  // earlier: of sessions before this one
  double seconds = 0;                                       // all sessions
  // The shortest plan on the grid became this long; seconds of searching, earlier sessions included.
  struct Step {
    std::uint64_t play = 0;
    double seconds = 0, length_ms = 0;
  };
  std::vector<Step> steps;  // each shorter than the one before
};

// The effect on the plan when one of its inputs is a little wrong (plan/planners/sensitivity.h).
struct PlanSensitivity {
  std::string changed;           // "compute 10 % slower"
  double simulated_step_ms = 0;  // of this plan then; 0: it no longer fits
  double best_ms = 0;            // of the best plan found then, this one among them; 0: nothing fits
  std::string best;              // that plan in words; empty: this one
  double loss() const { return simulated_step_ms > 0 ? simulated_step_ms / best_ms - 1 : 0; }
};

// The best plan found whose replicas are all of one width.
struct PlanWidth {
  int width = 1, stages = 0;
  double step_ms = 0, simulated_step_ms = 0;
};

// The share of its devices that a step uses (infer/utilization.h); each 0: not known.
struct PlanUtilization {
  double samples_per_s = 0, tokens_per_s = 0;
  double model_tflops = 0;  // of each device
  double mfu = 0, hfu = 0;  // model and hardware FLOPs over the peak of the plan's devices
};

// The best of one kind of plan on the same costs (plan/planners/kinds.h).
struct PlanCorner {
  std::string name;    // "data parallel"
  bool fits = false;   // false: there is none; `why` says the reason, and the rest but memory is 0
  std::string layout;  // of an even grid: "dp=2,pp=3,tp=4,micro-batch-size=2"
  int stages = 0, width = 1, devices = 0, micro_batches = 0;
  double micro_batch_samples = 0;
  double step_ms = 0, simulated_step_ms = 0;
  // Memory of the fullest device. If no plan fits: the need of the plan that needs least, or 0 (not in the file).
  double memory_bytes = 0, capacity_bytes = 0;
  PlanUtilization utilization;
  std::string why;       // what limits it
  std::string left_out;  // why it is not the plan: it is shorter, or no plan has its schedule yet
  // For schedules with several parts for each group, and for stages of different widths: the instructions behind which
  // the model is cut into parts, part p for group p mod stages.
  std::vector<int> chunk_cuts;
  std::vector<int> stage_devices, stage_widths;  // [S] of stages of different widths, `width` is the largest
};

// The plans that bounds cover, where replicas of several widths were looked at.
enum class BoundedWidths : std::uint8_t {
  kAll,  // of all plans: only one width was looked at
  kOne,  // of plans whose stages are all of one width
  kAny,  // of plans of stages of any widths
};
// Lower bounds on the step time of such plans; each 0: not known.
struct PlanBounds {
  double value_ms = 0, simulated_ms = 0;
  std::string method;
};

// A step that somebody measured of a layout, by which the times that the plan was made from are corrected
// (plan/planners/measured_step.h).
struct MeasuredStep {
  std::string layout;
  double batch = 0;
  double measured_ms = 0, estimated_ms = 0;              // estimated: before the correction
  double compute_factor = 1, network_factor = 1;         // how many times as long both take now
  std::string error_class;                               // what else such errors are found of: "h100, matmul bf16, ..."
  double usual_factor_least = 1, usual_factor_most = 1;  // four of five errors of the class
  double factor() const { return measured_ms / estimated_ms; }
  bool usual() const { return usual_factor_least <= factor() && factor() <= usual_factor_most; }
};

// The settings of a framework that reproduce the plan (plan/emit/to_type.h). Written, not read.
struct PlanToType {
  std::string framework;
  std::vector<std::string> arguments;  // one word each, without quotes
  std::vector<std::string> missing;    // what they leave to do, one sentence each
  std::string cannot;                  // what of the plan the framework cannot run, or cannot be told
  std::string hint;                    // what to do about it
  // If it cannot: the plan that the arguments describe, in words. Empty: there are no arguments.
  std::string instead;
  double instead_ms = 0;  // its simulated step
};

struct PlanDocument : PlanEnvelope {
  std::string cluster;
  int version = 3;  // of the file
  int micro_batches = 0;
  double micro_batch_samples = 0;  // mb; 0: unknown (version 1)
  double batch() const { return micro_batches * micro_batch_samples; }
  std::string replicas, gradient_sync;  // "whole", "overlap" and so on; empty in version 1
  int num_instructions = 0, num_devices = 0;
  std::int64_t attention_heads = 0;  // Profile::attention_heads
  Plan plan;
  std::vector<PlanStage> stages;
  double step_ms = 0, simulated_step_ms = 0;
  // Between these a measured step is expected (plan/planners/believable.h). 0: not said. Written, and not read.
  double expected_least_ms = 0, expected_most_ms = 0;
  PlanUtilization utilization;  // written, and not read
  double lower_bound_ms = 0;    // 0: none was computed (null in the file, gap too)
  std::string lower_bound_method;
  double simulated_bound_ms = 0;  // no plan's simulated step is shorter, whatever its warm-up; 0: not known
  // No order of the plan's own parts on its groups, in their memory, takes less (any_order_bound_ms); 0: one stage.
  // Written, not read.
  double order_bound_ms = 0;
  // Numbers of devices whose plans the bounds are about (describe_plan: its own), and those of which only some splits
  // of the batch were looked at, which the bounds hold for.
  std::vector<int> bound_devices, bound_devices_in_part;
  bool bound_all_devices = false;  // whichever devices of the cluster, in whatever order
  // The options that left only some plans, which the bounds are about: "--micro-batch 8".
  std::vector<std::string> bound_within;
  // Further premises that all plans share which the bounds cover, and the rules among them that cost much (`relaxed`).
  // Written, not read.
  struct BoundPremises {
    std::vector<int> widths;
    std::vector<std::string> schedules;
    int least_stages = 1, most_stages = 1;
    std::vector<double> micro_batch_samples;  // ascending
    std::vector<std::string> rules;
  };
  BoundPremises premises;
  struct Relaxed {
    std::string rule, options;
    double simulated_ms = 0;
    bool possible = true;  // on these machines
  };
  std::vector<Relaxed> relaxed;
  // The widths that the bounds cover; they hold for this plan. The bounds about plans of any widths, beside bounds of
  // kOne; about plans of one width, beside those of kAny.
  BoundedWidths bounded = BoundedWidths::kAll;
  PlanBounds other_bounds;
  double gap = 0;  // step_ms / lower_bound_ms - 1
  std::string planner;
  std::string objective;  // "value" or "simulated"
  double planning_ms = 0;
  double found_ms = 0;                 // when, since planning began, the plan was met; 0: not said
  double proven_ms = 0;                // when its V was known to be the least; 0: it is not known to be
  bool cut_by_time = false;            // a time limit or an interrupt ended the search
  std::optional<PlanLearning> online;  // only of the planner online
  std::vector<PlanAlternative> alternatives;
  std::vector<PlanLimitText> limits;
  std::vector<PlanWidth> widths;  // empty: only one was looked at
  // For every width beyond 1 that stages have, ascending: the plan of the kind `operator` by which the devices of each
  // replica hold its tensors (docs/formats/plan.md), as JSON. Read as they are.
  std::vector<std::string> partitions;
  std::vector<std::string> inside_replicas;  // the same in sentences, not in the file
  std::vector<PlanCorner> corners;           // the shortest first; only when asked for
  std::optional<LayerSplit> layer_split;
  std::optional<PlannerTable> planner_table;  // only when asked for
  std::vector<PlanSensitivity> sensitivity;   // only when asked for
  std::optional<MeasuredStep> measured_step;  // nothing: times are as estimated
  std::optional<PlanCost> cost;               // nothing: prices are not known. Written, not read
  std::optional<PlanFrontier> frontier;       // only when asked for
  std::optional<PlanToType> to_type;
  std::vector<std::string>
      estimates;  // how far the numbers under the plan are expected to be off (plan/planners/believable.h)
  std::vector<PlanSentence> report;            // of documents that somebody wrote or printed: the answer in sentences
  std::vector<const PlanPart*> parts() const;  // of the model, in its order
  std::vector<int> stage_widths() const;       // [S]
  bool mixed_widths() const;                   // they differ
};

// The stage that fills the largest share of its devices' memory, from 0.
std::size_t fullest_stage(const PlanDocument& document);

// The part of the document that follows from the problem and the plan: structure, stages, both step lengths.
// `profile` must be the one `problem` was made from.
PlanDocument describe_plan(const Problem& problem, const Profile& profile, const Plan& plan);
// The same of stages of any widths; `profile` is that of single devices, or of any width.
PlanDocument describe_plan(const PlacedPlan& placed, const Profile& profile);

// As the document has it.
Json utilization_json(const PlanUtilization& of);

// The document, indented, with a final newline.
std::string to_json_text(const PlanDocument& document);

// Throws Error(kData) naming `source`, the key, what was found and expected: not JSON, another schema, a newer
// version than 1 (says so by name), a kind other than "pipeline", missing or contradicting values.
PlanDocument parse_plan(std::string_view json_text, const std::string& source);
// Reads `path` ("-" = standard input), gzipped or not.
PlanDocument load_plan(const std::string& path);

// True when the text is a JSON object whose "schema" starts with "automap.plan/".
bool looks_like_plan(std::string_view text);

}  // namespace automap::pipeline
