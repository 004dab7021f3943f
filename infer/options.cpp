#include "infer/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "common/architecture/names.h"
#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/machine/cluster.h"
#include "common/machine/cluster_names.h"
#include "infer/explain.h"
#include "infer/frontier.h"
#include "infer/pictures.h"
#include "infer/software.h"
#include "infer/vary.h"
#include "profile/description_options.h"
#include "profile/fused_chains.h"
#include "profile/measured/measured_options.h"

namespace automap::infer {
namespace {

using pipeline::Schedule;

std::vector<std::string> schedule_choices() {
  std::vector<std::string> names;
  for (const Schedule schedule : pipeline::all_schedules()) names.push_back(to_string(schedule));
  names.push_back("auto");
  return names;
}

std::vector<std::string> planner_choices() {
  std::vector<std::string> names;
  for (const planners::PlannerKind planner : planners::all_planners()) names.push_back(to_string(planner));
  names.push_back(to_string(planners::PlannerKind::kOnline));
  if (std::find(names.begin(), names.end(), "auto") == names.end()) names.insert(names.begin(), "auto");
  return names;
}

double number_of(const std::string& text, const char* option, double smallest, double largest) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= smallest && value <= largest)) {
    throw Error(ErrorKind::kUsage, std::string("--") + option + ": found '" + text +
                                       "', expected auto or a number from " + format_number(smallest) + " to " +
                                       format_number(largest));
  }
  return value;
}

// The variants of a stage: every ZeRO level asked for, with and without recomputation.
std::vector<pipeline::StageVariant> make_variants(const InferOptions& o, bool fractional,
                                                  const pipeline::Profile& profile) {
  std::vector<int> zeros = {0, 1, 2, 3};
  if (o.zero != "auto") zeros = {o.zero[0] - '0'};
  if (o.zero == "auto" && fractional) zeros = {0};
  const bool layers = !profile.layer.empty() && profile.forward_fraction < 1;
  if (o.recompute == "layer" && profile.forward_fraction >= 1) {
    throw Error(ErrorKind::kUsage, "--recompute layer: there is nothing to recompute, the model has no backward pass",
                "give --recompute none");
  }
  std::vector<bool> recompute = {false};
  if (o.recompute == "layer") recompute = {true};
  if (o.recompute == "auto" && layers && !fractional) recompute = {false, true};
  std::vector<pipeline::StageVariant> variants;
  for (const bool again : recompute) {
    for (const int zero : zeros) variants.push_back({zero, again});
  }
  return variants;
}

void add_examples(OptionTable& table) {
  table.example("automap-infer fixtures/hlo/bert48.hlo.gz --cluster config-c --batch 256",
                "plan the training of BERT-48 on 4 servers of 8 V100");
  table.example("automap-infer fixtures/hlo/vgg19.hlo.gz --cluster config-a --stages 2 --json",
                "exactly two stages, the plan as JSON on standard output");
  table.example("automap-infer fixtures/hlo/gpt2.hlo.gz --cluster a100-4x8 --batch 512 --sweep",
                "every uniform layout of the cluster, the best first");
}

void declare_input(OptionTable& table, InferOptions& o) {
  table.group("Input");
  table
      .positional(
          &o.input.path, "INPUT",
          "the model: HLO (text, proto, JSON; gzipped or not), a config.json, a published model's name (llama3-8b), "
          "or a profile (HDF5, CSV, graph.txt); - reads standard input")
      .reads_file()
      .suggestions(architecture::model_names())
      .required();
  profile::declare_description(table, &o.input.step);
  table
      .add_flag(&o.input.as_is, "as-is",
                "plan an HLO input that XLA or shard_map has partitioned already as what it is, one device's part")
      .advanced();
  table.add(&o.input.variables, "variables", "the trainable variables of an HLO input, one per line or JSON")
      .reads_file()
      .metavar("FILE")
      .shown_default("found automatically")
      .advanced();
  table
      .add(&o.input.batch_inputs, "batch-input",
           "the inputs of an HLO input whose leading dimension is the samples, commas between")
      .no_file()
      .metavar("NAME[,NAME...]")
      .shown_default("found automatically")
      .advanced();
  table
      .add(&o.input.attention, "attention",
           "of an HLO input: attention and cross-entropy as kernels of libraries (fused), as it says (as-written), or "
           "fused for f16 and bf16 on devices from A100 on (auto)")
      .choices(profile::attention_modes())
      .traits(kInProvenance | kAsked | kOfGivenPlan | kAskedAgain)
      .advanced();
  measured::declare_measured(table, &o.input.measured, kAsked);
  table
      .add(&o.device, "device",
           "for the times of an HLO input: a device file, which then stands for the cluster's devices, or the device "
           "that "
           "relative speeds in the cluster file refer to")
      .reads_file()
      .metavar("DEVICE")
      .shown_default("the cluster's first")
      .traits(kInProvenance | kAsked | kAskedAgain)
      .advanced();
}

// Options of frameworks, launchers and other planners that people type here.
void hint_at_options(OptionTable& table) {
  for (const char* of_batch : {"batch-size", "global-batch-size", "gbs", "train-batch-size"}) {
    table.instead_of(of_batch, "--batch is the samples of a step");
  }
  for (const char* of_part : {"micro-batch-size", "mbs"}) {
    table.instead_of(of_part,
                     "--micro-batch is the samples of a micro-batch over all replicas; of one replica: --layout "
                     "dp=8,pp=4,micro-batch-size=2");
  }
  for (const char* of_sequence : {"seq", "seq-len", "seq-length", "sequence-length", "max-target-length"}) {
    table.instead_of(of_sequence, "--sequence is the positions of a sample, of a config.json or a published model");
  }
  table.instead_of("framework", "--for names the framework");
  for (const char* of_cluster :
       {"nodes", "num-nodes", "nnodes", "gpus", "num-gpus", "gpus-per-node", "devices", "world-size"}) {
    table.instead_of(of_cluster, "--cluster says the machines, as in --cluster h100-4x8 for 4 servers of 8");
  }
  for (const char* of_layout : {"tp", "pp", "dp", "tensor-parallel", "pipeline-parallel", "data-parallel",
                                "tensor-model-parallel-size", "pipeline-model-parallel-size"}) {
    table.instead_of(of_layout, "--layout says what one layout takes, as in --layout dp=8,pp=4,tp=2");
  }
  table.instead_of("model", "the model is the argument itself: automap infer MODEL --cluster CLUSTER");
}

void declare_step(OptionTable& table, InferOptions& o) {
  hint_at_options(table);
  table.group("Machines and step");
  table
      .add(&o.cluster, "cluster",
           "a preset (" + join(machine::cluster_preset_names()) + "), a name as " + machine::kClusterGrammar +
               ", or a JSON file")
      .reads_file()
      .suggestions(machine::cluster_preset_names())
      .metavar("CLUSTER")
      .shown_default("none: it must be given")
      .traits(kAsked);
  table
      .add(&o.price, "price",
           "what a device costs for an hour, in any currency: 2.5 of all, or h100=2.5,a100-80gb=1.2; for what a step "
           "costs, and --minimize cost")
      .no_file()
      .metavar("P|DEVICE=P,...")
      .shown_default("as the cluster file says")
      .traits(kAsked);
  table
      .add(&o.batch, "batch",
           "samples per step; auto: 16 times the module's own batch, up to 256, or what pipelines of --for need")
      .no_file()
      .metavar("auto|B")
      .traits(kInProvenance | kAsked);
  table.add(&o.micro_batch, "micro-batch", "samples that travel through the pipeline together, over all replicas")
      .no_file()
      .metavar("auto|N")
      .traits(kInProvenance | kAsked | narrows(2));
  table.add(&o.micro_batches, "micro-batches", "micro-batches per step: batch = micro-batch * micro-batches")
      .no_file()
      .metavar("auto|M")
      .traits(kInProvenance | kAsked | narrows(3));
  table
      .add(&o.replicas, "replicas",
           "whole: a replica computes whole samples; equal: every stage has as many, as a mesh needs it; fractional: g "
           "devices take 1/g of any micro-batch (the papers)")
      .choices({"whole", "equal", "fractional"})
      .traits(kInProvenance | kAsked | narrows(4) | kOfGivenPlan)
      .advanced();
  table
      .add(&o.gradient_sync, "gradient-sync",
           "overlap: in buckets beside the last backward; after: all of it behind (the papers)")
      .choices({"overlap", "after"})
      .traits(kInProvenance | kAsked | kOfGivenPlan | kAskedAgain)
      .advanced();
  table.add(&o.bucket_mib, "bucket-mib", "size of a bucket of gradients, MiB")
      .range(0.001, 1e6)
      .metavar("MIB")
      .advanced()
      .traits(kInProvenance | kOfGivenPlan | kAskedAgain);
  table.add_on_off(&o.optimizer, "optimizer", "count the module's own update of the variables")
      .traits(kInProvenance | kOfGivenPlan | kAskedAgain)
      .advanced();
  table
      .add(&o.zero, "zero",
           "sharding over replicas: 1 optimizer state, 2 gradients too, 3 weights too; auto: where it pays")
      .choices({"auto", "0", "1", "2", "3"})
      .traits(kInProvenance | kAsked | narrows(10));
  table.add(&o.recompute, "recompute", "layer: keep what enters each layer, run its forward again; auto: where it pays")
      .choices({"auto", "none", "layer"})
      .traits(kInProvenance | kAsked | narrows(11));
  table.add_on_off(&o.problem.memory, "memory", "refuse plans that do not fit in the devices' memory")
      .traits(kInProvenance | kAsked | kAskedAgain)
      .advanced();
  table.add(&o.memory_reserve, "memory-reserve", "percent of a device's memory that is left to the framework")
      .range(0, 99)
      .metavar("PERCENT")
      .traits(kInProvenance | kAsked | kOfGivenPlan | kAskedAgain);
  table
      .add(
          &o.state_factor, "state-factor",
          "bytes of training state per byte of weights (4: weight, gradient, two Adam moments); auto: the module's own")
      .no_file()
      .metavar("auto|N")
      .advanced()
      .traits(kInProvenance | kAsked | kOfGivenPlan | kAskedAgain);
}

void declare_plan(OptionTable& table, InferOptions& o) {
  table.group("Plan");
  table.add(&o.stages, "stages", "pipeline stages, or auto: the planner chooses")
      .no_file()
      .metavar("auto|S")
      .traits(kInProvenance | kAsked | narrows(6) | kOfSearchOrSweep);
  table.add(&o.max_stages, "max-stages", "most stages that auto may choose")
      .range(1, pipeline::kMaxPlanStages)
      .metavar("S")
      .traits(kInProvenance | kAsked | narrows(7) | kOfSearchOrSweep | kAskedAgain)
      .advanced();
  table.add_flag(&o.input.whole_loops, "whole-loops", "loops over layers stay one position. For models")
      .advanced()
      .traits(kInProvenance | kOfGivenPlan | kAskedAgain);
  table
      .add(&o.input.max_width, "max-width",
           "most devices of one replica, which hold its tensors in parts (tensor parallelism); 1: none. For models")
      .range(1, machine::kMaxDevices)
      .metavar("T")
      .traits(kInProvenance | kAsked | narrows(8) | kAskedAgain)
      .advanced();
  table
      .add(
          &o.input.sequence_parallel, "sequence-parallel",
          "of replicas of several devices: auto also splits what lies between split products (norms, residuals, "
          "dropout) where that is quicker, by reduce-scatters and all-gathers; off keeps it whole, by all-reduces. For "
          "models")
      .choices({"auto", "off"})
      .traits(kInProvenance | kAsked | narrows(12) | kOfGivenPlan | kAskedAgain)
      .advanced();
  table
      .add_flag(&o.input.keep_shardings, "keep-shardings",
                "replicas of several devices take the model's own shardings (sharding=, Sharding marks, Shardy's) as "
                "given, where these have an axis of so many devices. For models")
      .traits(kInProvenance | kOfGivenPlan)
      .advanced();
  table
      .add(&o.limit, "limit",
           "what a plan may use, commas between: pipeline (several stages), data (several replicas), tensor (replicas "
           "of "
           "several devices), zero, recompute; all")
      .no_file()
      .metavar("KIND[,KIND...]")
      .traits(kAsked | narrows(5) | kOfSearch);
  table
      .add(&o.framework, "for",
           "plan what this framework can run, by docs/frameworks.md; any: everything. With --layout and --sweep, too")
      .choices(planners::framework_names())
      .traits(kInProvenance | kAsked | narrows(1));
  table
      .add(&o.software, "software",
           "what runs the step: its host time for a kernel, whether it fuses elementwise ones, and when it sums "
           "gradients, where no other option says it; any: a compiled step; auto: what --for runs in, else any")
      .choices(software_choices())
      .traits(kAsked | kOfGivenPlan)
      .advanced();
  table
      .add(
          &o.schedule, "schedule",
          "in which order stages work: adaptive chooses how many micro-batches each starts early, within memory; 1f1b, "
          "1f1b-overlap and gpipe fix it; eager, interleaved, zb-h1, zb-v and searched are other orders; auto takes "
          "the "
          "shortest of adaptive and those")
      .choices(schedule_choices())
      .traits(kInProvenance | kAsked | narrows(9));
  table.add_flag(&o.problem.allow_empty_stages, "allow-empty-stages", "allow stages without a trainable variable")
      .advanced()
      .traits(kInProvenance | kOfGivenPlan | kAskedAgain);
  table.add_flag(&o.allow_idle_stages, "allow-idle-stages", "allow stages with hardly any compute")
      .advanced()
      .traits(kInProvenance | kOfGivenPlan | kAskedAgain);
}

// Kinds of plans, and what each needs: what --limit chooses from.
const std::vector<std::string>& plan_kinds() {
  static const std::vector<std::string> kinds = {"pipeline", "data", "tensor", "zero", "recompute"};
  return kinds;
}

void declare_given(OptionTable& table, InferOptions& o) {
  table.group("Instead of planning");
  table.add(&o.plan, "plan", "say what this plan takes: a plan file, or JSON with cuts and device_cuts")
      .reads_file()
      .metavar("FILE")
      .traits(kAsked);
  table
      .add(&o.layout, "layout",
           "say what this layout takes, whole layers spread evenly: dp=8,pp=4,micro-batch-size=2[,zero=1,"
           "recompute=layer,schedule=1f1b]; micro-batch-size counts the samples of one replica (left out: the largest "
           "that fits in memory; of several stages the one with the shortest step), layers=7+5+6+6 the layers of each "
           "stage, chunks=2 interleaved 1F1B. Or a framework's words: \"$(cat megatron.args)\"")
      .no_file()
      .metavar("LAYOUT")
      .traits(kAsked);
  table.add_flag(&o.sweep, "sweep", "list every uniform layout, the best first");
  table.group("Planning by a measurement");
  table
      .add_seconds(&o.measured_step_s, "measured-step",
                   "what a step of the --layout took on your machines: says by what factor the estimate is off, and "
                   "plans with times corrected by it")
      .range(1e-6, 1e6)
      .traits(kAsked)
      .advanced();
  table.group("How many devices to rent");
  table
      .add(
          &o.minimize, "minimize",
          "plan on parts of the cluster (whole servers, and 1, 2, 4, ... devices of one) and take the fastest, the one "
          "of fewest devices or the cheapest; the table has all. none: plan on all of it")
      .choices({"none", "time", "devices", "cost"})
      .traits(kAsked | kOfSearch);
  table
      .add(&o.within, "within",
           "with --minimize devices or cost: of those whose step is at most so much longer than the fastest, as in 10%")
      .no_file()
      .metavar("PERCENT%")
      .traits(kAsked | kOfSearch);
  table
      .add(&o.reach, "reach",
           "of those that train so many tokens a second, or samples, as in 250k or 64samples; without --minimize: the "
           "fewest devices")
      .no_file()
      .metavar("N[tokens|samples]")
      .traits(kAsked | kOfSearch);
  table.group("Several questions in a row");
  table
      .add(&o.vary, "vary",
           "plan again with each of these values, all else as it is, and compare the plans: 8..64 is 8,16,32,64. NAME "
           "is an option (" +
               join(varied_options()) + ") or a figure of the cluster (" + join(varied_figures()) + ")")
      .no_file()
      .metavar("NAME=V,V,...");
  table.add(&o.compare_clusters, "compare-clusters", "plan on each of these clusters, presets or files, commas between")
      .no_file()
      .metavar("CLUSTER,CLUSTER,...");
  table.add(&o.csv, "csv", "of --vary and --compare-clusters: also write the rows as CSV")
      .writes_file()
      .metavar("FILE");
  table.add(&o.chart, "chart", "of --vary and --compare-clusters: also draw them (SVG)")
      .writes_file()
      .metavar("FILE")
      .advanced();
}

void declare_search(OptionTable& table, InferOptions& o) {
  table.group("Search");
  table
      .add(&o.planner, "planner",
           "auto runs them all and takes the best; policy is the trained network's answer, in milliseconds; online is "
           "Rainbow learning on this model for the time limit")
      .choices(planner_choices())
      .traits(kInProvenance | kAsked | kOfSearch);
  table.add(&o.policy, "policy", "a trained policy to plan with")
      .reads_file()
      .metavar("FILE")
      .shown_default("the one compiled in")
      .traits(kInProvenance | kOfSearch)
      .advanced();
  table.add(&o.objective, "objective", "what the best plan is judged by: the closed form V, or the event simulation")
      .choices({"auto", "value", "simulated"})
      .shown_default("simulated for the planners auto and online, else value")
      .traits(kInProvenance | kAsked | kOfSearch)
      .advanced();
  table.add(&o.effort, "effort", "how much to search; counted, so that every machine finds the same plan")
      .choices(effort_names())
      .traits(kInProvenance | kAsked | kOfSearch);
  table.add_seconds(&o.time_limit_s, "time-limit", "also stop planning after this time with the best so far")
      .range(0.001, 86400)
      .traits(kInProvenance | kAsked | kOfSearchOrSweep);
  table
      .add(&o.threads, "threads",
           "threads to plan on; 0: as OMP_NUM_THREADS says, else one per core up to 16; the answer does not depend on "
           "it")
      .range(0, kMostLoopThreads)
      .advanced();
  table.add_flag(&o.all_planners, "all-planners", "run every planner and list what each comes to")
      .traits(kOfSearch)
      .advanced();
  table
      .add(
          &o.explore, "explore",
          "also the best of every other kind of plan: data parallel, ZeRO, operators split, the paper's pipeline, even "
          "grids; one that is shorter becomes the plan. auto: for the planner auto")
      .choices({"auto", "on", "off"})
      .traits(kOfSearch)
      .advanced();
  table
      .add(&o.chunks, "chunks",
           "how many parts of the model interleaved 1F1B has on every group of devices; 1: no such plans; auto: 2 to 4")
      .no_file()
      .metavar("auto|V")
      .traits(kOfSearch)
      .advanced();
  table
      .add(&o.zero_bubble, "zero-bubble",
           "plans whose backward makes the gradients of weights in a pass of its own: ZB-H1, and searched orders")
      .choices({"auto", "off"})
      .traits(kOfSearch)
      .advanced();
  table
      .add(&o.mixed_widths, "mixed-widths",
           "with --explore: stages whose replicas are of different numbers of devices; they become the plan where that "
           "is "
           "shorter")
      .choices({"auto", "off"})
      .traits(kOfSearch)
      .advanced();
  table.add_flag(&o.planner_table, "planner-table", "also run each planner alone: step, gap and milliseconds of each")
      .traits(kOfSearch)
      .advanced();
  table
      .add_flag(&o.sensitivity, "sensitivity",
                "also plan with every estimate off by its expected error, and say whether the plan stays the best; "
                "takes about ten times as long")
      .traits(kOfSearch)
      .advanced();
  table.add(&o.grid, "grid", "places to cut that policy, rollouts and exact see; all: after every instruction")
      .no_file()
      .metavar("128|all")
      .traits(kInProvenance | kOfSearch)
      .advanced();
  table.add(&o.beam, "beam", "partial plans that policy and rollouts keep; 1 is greedy, 0 each one's own")
      .range(0, 4096)
      .shown_default("1; auto: 1, then 16")
      .traits(kInProvenance | kOfSearch)
      .advanced();
  table.add_flag(&o.refine, "refine", "move cuts off the grid by the exact program in a corridor (the default)")
      .advanced()
      .traits(kOfSearch);
  table.add_flag(&o.no_refine, "no-refine", "keep cuts on the grid").advanced().traits(kInProvenance | kOfSearch);
  table.add(&o.value, "value", "paper: the simpler closed form, without what drains behind the bottleneck")
      .choices({"full", "paper"})
      .advanced()
      .traits(kInProvenance | kOfGivenPlan);
}

void declare_online(OptionTable& table, InferOptions& o) {
  table.group("Online search (--planner online, or automap-search pipeline)");
  table.add(&o.from, "from", "the policy that learning starts from: shipped, scratch or a file")
      .reads_file()
      .metavar("shipped|scratch|FILE")
      .traits(kInProvenance | kForOnline)
      .advanced();
  table.add(&o.radius, "radius", "devices of a stage end at most this far from a server's end (the paper: 3)")
      .no_file()
      .metavar("N|none")
      .traits(kInProvenance | kForOnline)
      .advanced();
  table.add(&o.seed, "seed", "of plays and of what is learned from").traits(kInProvenance | kForOnline).advanced();
  table.add(&o.plays, "plays", "stop after so many plays, over all sessions; 0: as many as there is time for")
      .traits(kInProvenance | kForOnline)
      .advanced();
  table
      .add(&o.search_state, "search-state",
           "keep the search in FILE, every 30 seconds and at the end, and go on from it when it is there")
      .writes_file()
      .metavar("FILE")
      .traits(kForOnline)
      .advanced();
}

void declare_output(OptionTable& table, InferOptions& o) {
  table.group("Output");
  table.add_flag(&o.details, "details",
                 "also print stages, memory, what is proven, and all that was compared; else fifteen lines");
  table.add(&o.explain, "explain", "instead, one part of that in plain sentences, commas between: " + explained_words())
      .no_file()
      .metavar("WORD[,WORD...]");
  table.add(&o.output, "output", "also write the plan (automap.plan/3 JSON) to FILE")
      .writes_file()
      .shorthand('o')
      .metavar("FILE");
  table
      .add(&o.timeline, "timeline",
           "also draw what every group of the plan does when, and its memory: .svg, or .html to zoom in a browser")
      .writes_file()
      .metavar("FILE");
  table
      .add(&o.trace, "trace",
           "the same as trace events (JSON), which https://ui.perfetto.dev and chrome://tracing open")
      .writes_file()
      .metavar("FILE")
      .advanced();
  table
      .add(&o.report, "report",
           "also the answer as a page (.html) to look at and to send: devices by role, timeline, memory, bounds")
      .writes_file()
      .metavar("FILE");
  table
      .add(&o.emit_programs, "emit-programs",
           "also the programs of every stage and their order, into this folder, as automap-emit --to hlo writes them: "
           "automap run executes them")
      .writes_folder()
      .metavar("DIR")
      .advanced();
  table.epilog(
      "Exit codes: 0 a plan, 2 wrong usage or cluster file, 3 bad input or output, 4 nothing fits, 75 interrupted "
      "(what "
      "was found by then is printed).");
  table.add_common(&o.json);
}

}  // namespace

void declare_options(OptionTable& table, InferOptions& o) {
  add_examples(table);
  declare_input(table, o);
  declare_step(table, o);
  declare_plan(table, o);
  declare_given(table, o);
  declare_search(table, o);
  declare_online(table, o);
  declare_output(table, o);
}

void check_mode(const OptionTable& table, const InferOptions& o) {
  if (o.stages != "auto" && table.source_of("max-stages") != "default" && make_request(o).stages > o.max_stages) {
    throw Error(ErrorKind::kUsage, "--stages " + o.stages + " is above --max-stages " + std::to_string(o.max_stages),
                "--max-stages is for --stages auto: drop one of them");
  }
  frontier_asked(table, o);
  check_pictures(o);
  check_explained(o.explain);
  if (o.json && !o.explain.empty()) {
    throw Error(ErrorKind::kUsage, "--json prints all of the answer: --explain would change nothing",
                "drop one of them");
  }
  if (!o.explain.empty() && (o.details || writes_standard_output(o))) {
    throw Error(ErrorKind::kUsage,
                o.details ? "--details prints all of the parts: --explain would change nothing"
                          : "--explain and a file named - both want standard output",
                "drop one of them");
  }
  const bool varies = !o.vary.empty() || !o.compare_clusters.empty();
  for (const auto& [name, file] : {std::pair("csv", &o.csv), std::pair("chart", &o.chart)}) {
    if (varies || file->empty()) continue;
    throw Error(ErrorKind::kUsage, std::string("--") + name + " is of --vary and --compare-clusters",
                "add one of them, or drop --" + std::string(name));
  }
  if (varies) check_varied(table, o);
  if (o.cluster.empty() && o.compare_clusters.empty()) {
    throw Error(ErrorKind::kUsage,
                "missing --cluster: a preset (" + join(machine::cluster_preset_names()) + ") or a JSON file",
                "usage: automap-infer INPUT --cluster CLUSTER [options]");
  }
  const int given = (o.plan.empty() ? 0 : 1) + (o.layout.empty() ? 0 : 1) + (o.sweep ? 1 : 0);
  if (given > 1) throw Error(ErrorKind::kUsage, "--plan, --layout and --sweep exclude one another");
  check_measured(o);
  measured::check_measured_options(o.input.measured);
  if (o.searches()) return;
  const std::string mode = !o.plan.empty() ? "--plan" : !o.layout.empty() ? "--layout" : "--sweep";
  if (o.sweep && !o.explain.empty()) {
    throw Error(ErrorKind::kUsage, "--sweep lists layouts: --explain is of one answer",
                "give --layout with the one to explain");
  }
  if (o.sweep && !o.output.empty()) {
    throw Error(ErrorKind::kUsage, "--sweep finds no single plan to write",
                "--json prints the layouts; --layout with -o writes one");
  }
  if (o.sweep && !o.emit_programs.empty()) {
    throw Error(ErrorKind::kUsage, "--sweep finds no single plan to write programs of",
                "give --layout with the one to write");
  }
  if (o.sweep && asks_for_pictures(o)) {
    throw Error(ErrorKind::kUsage, "--sweep finds no single plan to draw", "give --layout with the one to draw");
  }
  // Files of options and the environment may be meant for other calls; who types an option expects it to count.
  const auto typed = [&](const std::string& option) { return table.source_of(option) == "flag"; };
  std::vector<std::string> unused;
  const OptionTraits of_search = kOfSearch | kForOnline | (o.sweep ? 0 : kOfSearchOrSweep);
  for (const std::string& option : table.names_with(of_search)) {
    if (typed(option)) unused.push_back("--" + option);
  }
  if (!unused.empty()) {
    throw Error(ErrorKind::kUsage, mode + " searches for no plan: " + join(unused) + " would change nothing",
                "drop " + join(unused));
  }
  if (!o.sweep && typed("schedule") && o.schedule == "auto") {
    throw Error(ErrorKind::kUsage, mode + " counts one schedule, not --schedule auto",
                "name one of " + pipeline::alternating_names());
  }
  if (typed("replicas") && o.replicas == (o.plan.empty() ? "fractional" : "equal")) {
    throw Error(ErrorKind::kUsage,
                o.plan.empty() ? mode + " has whole replicas, not --replicas fractional"
                               : "--replicas equal is for searching: a given plan has its devices",
                "drop --replicas");
  }
}

void check_measured(const InferOptions& o) {
  if (!o.measured()) return;
  if (!o.plan.empty() || o.sweep) {
    throw Error(ErrorKind::kUsage,
                std::string("--measured-step corrects the times of a search: ") + (o.sweep ? "--sweep" : "--plan") +
                    " has none",
                o.sweep ? "drop one of them, and name what was measured by --layout"
                        : "drop --measured-step: a plan that was made with one says so itself");
  }
  if (o.layout.empty()) {
    throw Error(ErrorKind::kUsage, "--measured-step without --layout: nobody says what was measured",
                "name what took so long, as in --layout dp=4,tp=8,micro-batch-size=2");
  }
  if (o.replicas == "fractional") {
    throw Error(ErrorKind::kUsage, "--layout has whole replicas, not --replicas fractional", "drop --replicas");
  }
}

// Its plans have a backward in two passes; those of kSearched may.
bool is_zero_bubble(Schedule schedule) {
  const std::optional<pipeline::ScheduleShape> shape = pipeline::shape_of(schedule);
  return shape && shape->split_backward;
}

void ask_for_beside(const OptionTable& table, InferOptions* options) {
  const std::optional<Schedule> schedule = pipeline::parse_schedule(options->schedule);
  if (schedule && !is_alternating(*schedule) && (options->searches() || options->sweep)) {
    const auto refuse = [&](const std::string& by, const std::string& hint) {
      throw Error(ErrorKind::kUsage,
                  "--schedule " + options->schedule + " is looked for behind the search, which " + by, hint);
    };
    if (options->explore == "off") refuse("--explore off leaves out", "drop one of them");
    if (options->replicas == "fractional") refuse("--replicas fractional leaves out", "drop one of them");
    if (options->sweep && schedule == Schedule::kSearched) {
      refuse("--sweep does not do", "name another schedule: a layout says no lists");
    }
    if (schedule == Schedule::kInterleaved && options->chunks == "1")
      refuse("--chunks 1 leaves out", "drop one of them");
    if (is_zero_bubble(*schedule) && options->zero_bubble == "off") {
      refuse("--zero-bubble off leaves out", "drop one of them");
    }
    if (options->objective == "value") refuse("--objective value cannot judge: it has no V", "drop one of them");
    options->beside_asked = true;
  }
  const std::pair<const char*, std::string> asked[] = {
      {"chunks", options->chunks}, {"zero-bubble", options->zero_bubble}, {"mixed-widths", options->mixed_widths}};
  for (const auto& [name, value] : asked) {
    if (table.source_of(name) != "flag" || value == "1" || value == "off") continue;
    options->beside_asked = true;
    const bool off = options->explore == "off";
    if (!off && options->replicas != "fractional") continue;
    throw Error(ErrorKind::kUsage,
                std::string("--") + name + " " + value + " is for the plans that " +
                    (off ? "--explore off" : "--replicas fractional") + " leaves out",
                "drop one of them");
  }
}

void check_online(const OptionTable& table, const InferOptions& options) {
  const bool online = options.planner == to_string(planners::PlannerKind::kOnline);
  for (const std::string& option : table.names_with(kForOnline)) {
    if (online || table.source_of(option) != "flag") continue;
    throw Error(ErrorKind::kUsage, "--" + option + " is for --planner online",
                "add --planner online, or drop --" + option);
  }
  if (online && !options.policy.empty()) {
    throw Error(ErrorKind::kUsage, "--planner online starts from --from, not from --policy",
                "give --from " + options.policy);
  }
}

void limit_kinds(const OptionTable& table, InferOptions* options, planners::PlanRequest* request) {
  if (options->limit == "all") return;
  const std::vector<std::string> named = split_at_commas(options->limit);
  for (const std::string& kind : named) {
    if (std::find(plan_kinds().begin(), plan_kinds().end(), kind) == plan_kinds().end()) {
      throw Error(ErrorKind::kUsage,
                  "--limit: found '" + kind + "', expected all or of " + join(plan_kinds()) + ", commas between");
    }
  }
  const auto may = [&](const char* kind) { return std::find(named.begin(), named.end(), kind) != named.end(); };
  if (!may("pipeline") && !may("data") && !may("tensor")) {
    throw Error(ErrorKind::kUsage, "--limit " + options->limit + " leaves one device alone",
                "name pipeline, data or tensor, too");
  }
  const auto refuse = [&](const char* option, const char* kind) {
    throw Error(ErrorKind::kUsage,
                std::string("--") + option + " " + table.value_of(option) + " contradicts --limit " + options->limit,
                std::string("add ") + kind + " to the limit, or drop --" + option);
  };
  if (!may("pipeline")) {
    if (request->stages > 1) refuse("stages", "pipeline");
    request->max_stages = 1;
  }
  if (!may("tensor")) {
    if (table.source_of("max-width") == "flag" && options->input.max_width > 1) refuse("max-width", "tensor");
    options->input.max_width = 1;
  }
  if (!may("pipeline") && !may("data") && options->input.max_width == 1) {
    throw Error(ErrorKind::kUsage, "--limit " + options->limit + " and --max-width 1 leave one device alone",
                "name pipeline or data, too, or drop --max-width");
  }
  if (!may("zero")) {
    if (options->zero != "auto" && options->zero != "0") refuse("zero", "zero");
    options->zero = "0";
  }
  if (!may("recompute")) {
    if (options->recompute == "layer") refuse("recompute", "recompute");
    options->recompute = "none";
  }
  if (!may("data")) {
    if (options->replicas != "whole") refuse("replicas", "data");
    options->lone_replicas = true;
  }
}

const planners::Framework& framework_asked(const OptionTable& table, const InferOptions& options) {
  const planners::Framework& framework = planners::find_framework(options.framework);
  if (!limits_plans(framework)) return framework;
  const auto typed = [&](const char* option) { return table.source_of(option) == "flag"; };
  const auto refuse = [&](const char* option, const std::string& lacks) {
    throw Error(ErrorKind::kUsage,
                std::string("--") + option + " " + table.value_of(option) + " contradicts --for " + framework.name +
                    ", which has no " + lacks,
                "drop one of them; " + std::string(framework.name) + " has " + framework_text(framework));
  };
  const std::optional<Schedule> schedule = pipeline::parse_schedule(options.schedule);
  const std::vector<Schedule>& has = framework.schedules;
  const bool adds_up = options.stages == "1" && schedule == Schedule::k1f1b;
  if (table.source_of("schedule") != "default" && schedule && !adds_up &&
      std::find(has.begin(), has.end(), *schedule) == has.end()) {
    refuse("schedule", "such schedule");
  }
  if (options.replicas == "fractional") refuse("replicas", "parts of samples");
  if (options.planner == "online") {
    throw Error(ErrorKind::kUsage,
                std::string("--planner online learns on one problem; --for ") + framework.name + " asks about several",
                "drop one of them");
  }
  if (typed("chunks") && options.chunks != "auto" && options.chunks != "1" &&
      !has_schedule(framework, Schedule::kInterleaved)) {
    refuse("chunks", "interleaved 1F1B");
  }
  if (typed("zero-bubble") && options.zero_bubble != "off" && !has_schedule(framework, Schedule::kZbH1)) {
    refuse("zero-bubble", "ZB-H1");
  }
  if (typed("mixed-widths") && options.mixed_widths != "off" && framework.mesh) {
    refuse("mixed-widths", "stages of different widths");
  }
  if (options.zero != "auto") {
    const int level = options.zero[0] - '0';
    const bool several = make_request(options).stages > 1;
    const std::vector<int>& levels = several ? framework.zero_stages : framework.zero_alone;
    // No ZeRO is what stages of one replica each have.
    if (level > 0 && std::find(levels.begin(), levels.end(), level) == levels.end()) {
      refuse("zero", several ? "such level with pipeline stages" : "such level");
    }
  }
  return framework;
}

const std::vector<std::string>& options_of_given_plans() {
  static const std::vector<std::string> names = [] {
    InferOptions defaults;
    OptionTable table("infer", "");
    declare_options(table, defaults);
    return table.names_with(kOfGivenPlan);
  }();
  return names;
}

std::vector<std::string> take_settings(const GivenPlan& given, OptionTable& table) {
  std::vector<std::string> departures;
  for (const auto& [option, value] : given.settings) {
    if (table.source_of(option) == "default") {
      try {
        table.set_unless_given(option, value, given.source);
      } catch (const Error& e) {
        throw Error(ErrorKind::kData, e.what(), "");
      }
    } else if (table.value_of(option) != value) {
      departures.push_back("counted with --" + option + " " + table.value_of(option) + "; the plan was made with " +
                           printable(value));
    }
  }
  return departures;
}

planners::StageOverrides make_overrides(const OptionTable& table, const InferOptions& o) {
  planners::StageOverrides overrides;
  if (o.zero != "auto") overrides.zero = o.zero[0] - '0';
  if (o.recompute != "auto") overrides.recompute = o.recompute == "layer";
  if (table.source_of("schedule") != "default") overrides.schedule = pipeline::parse_schedule(o.schedule);
  return overrides;
}

planners::SweepRequest make_sweep(const OptionTable& table, const InferOptions& o) {
  const planners::PlanRequest request = make_request(o);
  planners::SweepRequest sweep;
  if (request.stages > 0) {
    sweep.min_stages = sweep.max_stages = request.stages;
  } else if (table.source_of("max-stages") != "default") {
    sweep.max_stages = request.max_stages;
  }
  const bool all = table.source_of("schedule") != "default" && o.schedule == "auto";
  sweep.schedules = all ? pipeline::alternating_schedules() : request.schedules;
  sweep.ordered = all;
  sweep.limits.seconds = request.time_limit_s;
  return sweep;
}

planners::StepRequest make_step(const InferOptions& o) {
  planners::StepRequest step;
  step.batch = number_or_word(o.batch, "batch", "auto", 1, 1 << 30);
  step.micro_batch = number_or_word(o.micro_batch, "micro-batch", "auto", 1, 1 << 30);
  step.micro_batches = number_or_word(o.micro_batches, "micro-batches", "auto", 1, planners::kMostGivenMicroBatches);
  step.equal_replicas = o.replicas == "equal";
  step.lone_replicas = o.lone_replicas;
  return step;
}

planners::PlanRequest make_request(const InferOptions& o) {
  planners::PlanRequest request;
  request.stages = number_or_word(o.stages, "stages", "auto", 1, pipeline::kMaxPlanStages);
  request.max_stages = o.max_stages;
  if (request.stages > 0) request.max_stages = std::max(request.max_stages, request.stages);
  // Adaptive has every other alternating one among its plans; ordered ones are looked for beside (make_beside).
  const std::optional<Schedule> schedule = pipeline::parse_schedule(o.schedule);
  request.schedules = {schedule && is_alternating(*schedule) ? *schedule : Schedule::kAdaptive};
  request.planner = *planners::parse_planner(o.planner);
  if (request.planner == planners::PlannerKind::kOnline) {
    request.online.from_scratch = o.from == "scratch";
    request.online.server_radius = o.radius == "none" ? -1 : number_or_word(o.radius, "radius", "none", 0, 1 << 20);
    request.online.seed = o.seed;
    request.online.max_plays = o.plays;
    request.online.state_file = o.search_state;
  }
  if (o.objective != "auto")
    request.objective = o.objective == "value" ? planners::Objective::kValue : planners::Objective::kSimulated;
  request.beam = o.beam;
  request.grid = number_or_word(o.grid, "grid", "all", 2, 1 << 20);
  if (o.refine && o.no_refine) throw Error(ErrorKind::kUsage, "--refine and --no-refine exclude each other");
  request.refine = !o.no_refine;
  request.effort = planners::plan_effort(*parse_effort(o.effort));
  request.time_limit_s = o.time_limit_s;
  // Learning has all the time that it is given.
  const bool learns = request.planner == planners::PlannerKind::kOnline;
  if (learns && std::isfinite(o.time_limit_s)) request.effort.units = WorkLimits::kNoEnd;
  request.all_planners = o.all_planners;
  return request;
}

namespace {

planners::BesidePlan make_beside(const InferOptions& o) {
  planners::BesidePlan beside = planners::any_beside();
  const std::optional<Schedule> schedule = pipeline::parse_schedule(o.schedule);
  const int asked = number_or_word(o.chunks, "chunks", "auto", 1, 16);
  if (asked > 1) beside.chunks = {asked};
  beside.split_backward = o.zero_bubble == "auto";
  const auto left_out = [&](Schedule ordered) {
    return (schedule && *schedule != ordered) || (ordered == Schedule::kInterleaved && asked == 1) ||
           (is_zero_bubble(ordered) && !beside.split_backward);
  };
  beside.schedules.erase(std::remove_if(beside.schedules.begin(), beside.schedules.end(), left_out),
                         beside.schedules.end());
  if (schedule && !is_alternating(*schedule)) beside.only = schedule;
  beside.mixed_widths = o.mixed_widths == "auto";
  return beside;
}

pipeline::ProblemOptions make_problem_options(const InferOptions& o, const pipeline::Profile& profile) {
  pipeline::ProblemOptions options = o.problem;
  const bool fractional = o.replicas == "fractional";
  options.replicas = fractional ? pipeline::Replicas::kFractional : pipeline::Replicas::kWhole;
  options.gradient_sync =
      o.gradient_sync == "after" ? pipeline::GradientSync::kAfter : pipeline::GradientSync::kOverlap;
  options.bucket_bytes = o.bucket_mib * 1024 * 1024;
  options.optimizer = o.optimizer;
  options.memory_reserve = o.memory_reserve / 100;
  options.value = o.value == "paper" ? pipeline::ValueForm::kPaper : pipeline::ValueForm::kFull;
  if (o.state_factor != "auto") options.state_factor = number_of(o.state_factor, "state-factor", 0, 100);
  // The papers' idle stages stay possible where the papers' replicas are.
  options.allow_idle_stages = o.allow_idle_stages || fractional;
  options.variants = make_variants(o, fractional, profile);
  return options;
}

}  // namespace

planners::Question make_question(const InferOptions& o, const pipeline::Profile& profile,
                                 const machine::Cluster& cluster) {
  planners::Question question(profile, cluster, make_problem_options(o, profile), make_step(o), make_request(o));
  question.beside = make_beside(o);
  return question;
}

bool explores(const InferOptions& o, const planners::PlanRequest& request) {
  if (o.explore != "auto") return o.explore == "on";
  if (o.beside_asked) return true;
  return request.planner == planners::PlannerKind::kAuto && o.replicas != "fractional" &&
         objective_of(request) == planners::Objective::kSimulated;
}

std::vector<std::string> narrowing_options(const OptionTable& table) {
  std::vector<std::string> names = table.names_with(kNarrows), given;
  const auto place = [&](const std::string& option) { return table.traits_of(option) & kNarrows; };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  for (const std::string& option : names) {
    const std::string value = table.value_of(option);
    const bool open = value == "auto" || value == "all" || value == "whole" || value == "adaptive" || value == "any";
    if (table.source_of(option) != "default" && !open) given.push_back("--" + option + " " + value);
  }
  return given;
}

std::string asked_text(const OptionTable& table) {
  constexpr int kLongestValue = 80;
  std::vector<std::string> asked;
  for (const std::string& option : table.names_with(kAsked)) {
    // Not what a plan file or a layout says of itself.
    const std::string& source = table.source_of(option);
    if (source == "default" || source == "memory" || source == "--layout" || source == "--for" ||
        source == table.value_of("plan"))
      continue;
    asked.push_back("--" + option + " " + shorten(table.value_of(option), kLongestValue));
  }
  return join(asked);
}

}  // namespace automap::infer
