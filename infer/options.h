// The options of automap-infer, and the requests that are made of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/base/work.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "infer/input.h"
#include "infer/plan_file.h"
#include "plan/planners/planner.h"
#include "plan/planners/question.h"
#include "plan/planners/score.h"
#include "plan/planners/sweep.h"

namespace automap::infer {

struct InferOptions {
  InputOptions input;
  std::string cluster, device, output, policy, plan, layout;
  double measured_step_s = std::numeric_limits<double>::infinity();  // of the layout; infinite: none
  std::string timeline, trace, report;                               // files of pictures (infer/pictures.h)
  std::string emit_programs;                                         // a folder
  bool sweep = false, details = false;
  std::vector<std::string> explain;          // words of infer/explain.h, commas between
  std::string compare_clusters, csv, chart;  // names, commas between; files
  std::vector<std::string> vary;             // "batch=64,128"
  pipeline::ProblemOptions problem;
  std::string batch = "auto", micro_batch = "auto", micro_batches = "auto", replicas = "whole",
              gradient_sync = "overlap";
  std::string price, minimize = "none", within = "none", reach = "none";  // infer/prices.h, infer/frontier.h
  std::string zero = "auto", recompute = "auto", state_factor = "auto";
  bool optimizer = true, allow_idle_stages = false;
  double bucket_mib = 25, memory_reserve = 10;
  std::string stages = "auto", schedule = "auto", planner = "auto", objective = "auto", grid = "128", value = "full";
  int max_stages = 16, beam = 0;
  bool refine = false, no_refine = false, all_planners = false, planner_table = false, sensitivity = false,
       json = false;
  std::string explore = "auto", limit = "all", framework = "any",  // --for
      software = "auto";
  bool lone_replicas = false;  // by the limit
  std::string chunks = "auto", zero_bubble = "auto", mixed_widths = "auto";
  bool beside_asked = false;  // one of these was named
  std::string effort = to_string(Effort::kNormal);
  int threads = 0;
  // --planner online.
  std::string from = "shipped", radius = "none", search_state;
  std::uint64_t seed = 1, plays = 0;
  double time_limit_s = std::numeric_limits<double>::infinity();

  bool measured() const { return std::isfinite(measured_step_s); }
  // A plan is looked for, not one that is given scored: of a layout that was measured, too.
  bool searches() const { return plan.empty() && (layout.empty() || measured()) && !sweep; }
};

// What their rows say of them besides kInProvenance.
constexpr OptionTraits kNarrows = 15 * kFirstOwnTrait;          // narrows(): four bits
constexpr OptionTraits kAsked = kFirstOwnTrait << 4;            // part of the question, for people
constexpr OptionTraits kOfSearch = kFirstOwnTrait << 5;         // changes nothing where no plan is looked for
constexpr OptionTraits kOfSearchOrSweep = kFirstOwnTrait << 6;  // the same, but --sweep looks at it
constexpr OptionTraits kForOnline = kFirstOwnTrait << 7;        // for --planner online alone
constexpr OptionTraits kOfGivenPlan = kFirstOwnTrait << 8;      // changes what a given plan takes (not whether it fits)
constexpr OptionTraits kAskedAgain = kFirstOwnTrait << 9;  // kept when a plan is asked for again, for another framework
// May leave some plans out, which the bounds are not about then; its place (1 to 15) where plans list those that do.
constexpr OptionTraits narrows(int place) {
  return static_cast<OptionTraits>(place) * kFirstOwnTrait;
}

// Declares them; they are filled in when the table parses.
void declare_options(OptionTable& table, InferOptions& options);

// The functions below turn options into requests. They throw Error(kUsage) naming the option and what was expected.
// check_mode comes first: it refuses options that --plan, --layout or --sweep have no use for, so that none is ignored.
void check_mode(const OptionTable& table, const InferOptions& options);
// --measured-step is the step of a --layout, and corrects the times of one search. Throws Error(kUsage).
void check_measured(const InferOptions& options);
// --chunks, --zero-bubble and --mixed-widths ask for plans beside that of one width. Throws Error(kUsage) where other
// options leave those out.
void ask_for_beside(const OptionTable& table, InferOptions* options);
// Refuses options of --planner online where another planner is asked for, and --policy with --planner online. Throws
// Error(kUsage).
void check_online(const OptionTable& table, const InferOptions& options);
// Narrows the options and the request to the kinds of plans that --limit names. Throws Error(kUsage) where another
// option asks for what it leaves out, or where it leaves nothing that uses more than one device.
void limit_kinds(const OptionTable& table, InferOptions* options, planners::PlanRequest* request);
// The framework of --for. Throws Error(kUsage) where another option asks for what the framework does not have.
const planners::Framework& framework_asked(const OptionTable& table, const InferOptions& options);
// The names of those that are kOfGivenPlan.
const std::vector<std::string>& options_of_given_plans();
// Sets open options to the settings that a given plan was made with; returns how the command line departs from them,
// one sentence each. Throws Error(kData) naming the file when a setting in it is not valid for its option.
std::vector<std::string> take_settings(const GivenPlan& given, OptionTable& table);
planners::StageOverrides make_overrides(const OptionTable& table, const InferOptions& options);
planners::SweepRequest make_sweep(const OptionTable& table, const InferOptions& options);
// The question about a model on a cluster, without the policy.
planners::Question make_question(const InferOptions& options, const pipeline::Profile& profile,
                                 const machine::Cluster& cluster);
planners::StepRequest make_step(const InferOptions& options);
planners::PlanRequest make_request(const InferOptions& options);
// True if the best plan of every kind is searched, too. Quick planners answer at once: with them only on request.
bool explores(const InferOptions& options, const planners::PlanRequest& request);
// The given options that exclude plans, which the bounds then do not cover.
std::vector<std::string> narrowing_options(const OptionTable& table);
// The options given that are part of the question, for people: "--batch 256, --for megatron".
std::string asked_text(const OptionTable& table);

}  // namespace automap::infer
