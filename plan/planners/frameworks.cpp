#include "plan/planners/frameworks.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/numbers.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "plan/planners/candidate.h"
#include "plan/planners/layers.h"
#include "plan/planners/question.h"

namespace automap::planners {
namespace {

using pipeline::PlacedPlan;
using pipeline::PlacedStage;
using pipeline::Profile;
using pipeline::Schedule;

// Where the documents of a framework leave something open, the row says no. All of them run on fewer devices than the
// cluster has (torchrun --nproc-per-node, deepspeed --include, a mesh of some of jax.devices()) and have replicas of
// several devices.
//
// Whole heads: layers of these frameworks hand each device its heads of attention, of keys and values as of queries,
// and refuse what does not divide them, or do not document it (Megatron's num_query_groups, MaxText's logical axes
// kv_heads, torch's DTensor and torchtitan's views of local heads). XLA splits whatever it is told to.
std::vector<Framework> make_rows() {
  return {
      {"any",
       "everything that AutoMap plans",
       pipeline::all_schedules(),
       // mesh
       false,
       // ZeRO alone, of wide replicas, of several stages
       {0, 1, 2, 3},
       {0, 1, 2, 3},
       {0, 1, 2, 3},
       false,  // whole heads
       true,   // wide stages
       false,  // whole gradients
       false,  // even servers
       false,  // whole rounds
       true,   // recomputation by stage
       FrameworkCuts::kInstructions,
       nullptr,  // own first module
       "-"},

      // - schedule: a pipeline is a scan over micro-batches with ppermute between stages; jax.grad of it runs all
      //   forwards, then all backwards.
      // - mesh: jax.sharding.Mesh is a box; shard_map runs one program on all of it, so stages are alike.
      // - layers: the weights of a stage are a slice of stacked layers along the mesh's axis of stages.
      // - ZeRO: PartitionSpecs of the optimizer's state (1) or of the variables (3) along the axis of replicas. A
      //   gradient is scattered after every micro-batch only by a change of the loop (2): no.
      // - recomputation: jax.checkpoint of the one function of a layer.
      {"jax",
       "JAX 0.4 and later: jit, shard_map",
       {Schedule::kGpipe},
       true,
       {0, 1, 3},
       {0, 1, 3},
       {0, 1, 3},
       false,  // whole heads
       true,   // wide stages
       false,  // whole gradients
       false,  // even servers
       false,  // whole rounds
       false,  // recomputation by stage
       FrameworkCuts::kEqualLayers,
       nullptr,  // own first module
       "jax.sharding.Mesh, shard_map, lax.ppermute, lax.scan, PartitionSpec, jax.checkpoint"},

      // - schedule: pipeline.py scans over micro-batches under jax.grad (num_pipeline_microbatches). Its repeats
      //   (num_pipeline_repeats) are circular, with all forwards first: not interleaved 1F1B.
      // - whole rounds: pipeline.py hands each stage num_pipeline_microbatches // stages of a batch to begin with.
      // - mesh: ici_/dcn_ *_parallelism multiply to all devices, those of a server to as many in each.
      // - layers: num_layers_per_pipeline_stage, one number; layers * stages * repeats have to be all of them.
      // - ZeRO: ici_data_parallelism (0) or ici_fsdp_parallelism (3), which base.yml lets stand beside pipelines.
      //   shard_optimizer_over_data (1) is newer than the row.
      // - recomputation: remat_policy, of every layer alike.
      {"maxtext",
       "MaxText 0.2",
       {Schedule::kGpipe},
       true,
       {0, 3},
       {0, 3},
       {0, 3},
       true,   // whole heads
       true,   // wide stages
       false,  // whole gradients
       true,   // even servers
       true,   // whole rounds
       false,  // recomputation by stage
       FrameworkCuts::kEqualLayers,
       nullptr,  // own first module
       "ici_pipeline_parallelism, num_layers_per_pipeline_stage, num_pipeline_microbatches, ici_data_parallelism, "
       "ici_fsdp_parallelism, ici_tensor_parallelism, remat_policy"},

      // - schedules: torch.distributed.pipelining has ScheduleGPipe, Schedule1F1B and ScheduleInterleaved1F1B, and
      //   _PipelineScheduleRuntime runs any lists of forwards, backwards and weight gradients that its own format of
      //   CSV can say, with the parts of a rank where the lists have them. What has no list in the plan's file
      //   (adaptive, eager) is left out.
      // - mesh: init_device_mesh is a box.
      // - layers: SplitPoint stands at a module; PipelineStage takes any module.
      // - ZeRO: DistributedDataParallel (0), ZeroRedundancyOptimizer over it (1), fully_shard with
      //   reshard_after_forward=False (2) or True (3). 1 beside pipelines or with DTensors of parallelize_module is
      //   nowhere documented: no. In a pipeline fully_shard keeps gradients whole until the last micro-batch
      //   (stage.py, backward_maybe_with_nosync); our ZeRO 2 and 3 count the time to scatter them after each.
      // - recomputation: checkpoint_wrapper of the modules of one's own stage.
      {"torch",
       "PyTorch 2.6 and later: torch.distributed",
       {Schedule::k1f1b, Schedule::kGpipe, Schedule::kInterleaved, Schedule::kZbH1, Schedule::kSearched,
        Schedule::kZbV},
       true,
       {0, 1, 2, 3},
       {0, 2, 3},
       {0, 2, 3},
       true,   // whole heads
       true,   // wide stages
       true,   // whole gradients
       false,  // even servers
       false,  // whole rounds
       true,   // recomputation by stage
       FrameworkCuts::kLayers,
       nullptr,  // own first module
       "Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, _PipelineScheduleRuntime, SplitPoint, init_device_mesh, "
       "parallelize_module, DistributedDataParallel, ZeroRedundancyOptimizer, fully_shard, checkpoint_wrapper"},

      // - schedules: pipeline_parallel_schedule, of torch's; pipeline_parallel_schedule_csv names a file of lists for
      //   torch's _PipelineScheduleRuntime, while the schedule's name says where parts lie: in turn, or as a V.
      // - mesh: parallel_dims multiply to the world.
      // - layers: module_fqns_per_model_part (before: pipeline_parallel_split_points).
      // - ZeRO: data_parallel_replicate_degree alone (0) is DDP, refused beside any other dimension ("DDP has not
      //   supported > 1D parallelism"); data_parallel_shard_degree with fsdp_reshard_after_forward never (2) or always
      //   (3), beside all others.
      // - recomputation: activation_checkpoint.mode, of the whole model.
      {"torchtitan",
       "torchtitan of 2025",
       {Schedule::k1f1b, Schedule::kGpipe, Schedule::kInterleaved, Schedule::kZbH1, Schedule::kSearched,
        Schedule::kZbV},
       true,
       {0, 2, 3},
       {2, 3},
       {2, 3},
       true,   // whole heads
       true,   // wide stages
       true,   // whole gradients
       false,  // even servers
       false,  // whole rounds
       false,  // recomputation by stage
       FrameworkCuts::kLayers,
       "tok_embeddings",  // own first module
       "pipeline_parallel_degree, pipeline_parallel_schedule, pipeline_parallel_schedule_csv, "
       "module_fqns_per_model_part, tensor_parallel_degree, data_parallel_replicate_degree, "
       "data_parallel_shard_degree, fsdp_reshard_after_forward, "
       "activation_checkpoint.mode"},

      // - schedules: forward_backward_pipelining_without_interleaving (1F1B) and _with_interleaving
      //   (--num-layers-per-virtual-pipeline-stage). No GPipe, no zero bubbles but in forks.
      // - mesh: initialize_model_parallel makes groups of equal sizes.
      // - layers: --pipeline-model-parallel-layout, of the embedding, layers of one kind ("Encoder layer is not
      //   supported for flexible pipeline layout") and the loss; before it --decoder-first-pipeline-num-layers and
      //   --decoder-last-pipeline-num-layers.
      // - ZeRO: --use-distributed-optimizer (1); --use-megatron-fsdp with --data-parallel-sharding-strategy
      //   optim_grads (2) or optim_grads_params (3), whose place beside pipelines is not documented: no.
      // - recomputation: --recompute-granularity full --recompute-method uniform --recompute-num-layers 1, of all
      //   stages.
      {"megatron",
       "Megatron-LM, core 0.13 and later",
       {Schedule::k1f1b, Schedule::kInterleaved},
       true,
       {0, 1, 2, 3},
       {0, 1, 2, 3},
       {0, 1},
       true,   // whole heads
       true,   // wide stages
       false,  // whole gradients
       false,  // even servers
       false,  // whole rounds
       false,  // recomputation by stage
       FrameworkCuts::kStackLayers,
       nullptr,  // own first module
       "pipeline_model_parallel_size, pipeline_model_parallel_layout, num_layers_per_virtual_pipeline_stage, "
       "tensor_model_parallel_size, use_distributed_optimizer, use_megatron_fsdp, data_parallel_sharding_strategy, "
       "recompute_granularity, recompute_method"},

      // - schedules: deepspeed.runtime.pipe.schedule.TrainSchedule is 1F1B, of one chunk.
      // - mesh: PipeModelDataParallelTopology is a box. Who splits layers inside a stage is Megatron, not DeepSpeed:
      //   AutoTP (tensor_parallel) takes a whole model, no PipelineModule.
      // - layers: PipelineModule takes a list of LayerSpec; with one entry (a Sequential of layers) for each stage and
      //   partition_method "uniform" they stand where one wants them. (What is emitted is a subclass instead, so that
      //   layers are recomputed one by one and tied ones are seen.)
      // - ZeRO: zero_optimization.stage. PipelineEngine refuses 2 and 3 ("ZeRO-2 and ZeRO-3 are incompatible with
      //   pipeline parallelism"); AutoTP's training documents 0 to 2.
      // - recomputation: activation_checkpoint_interval of the PipelineModule.
      {"deepspeed",
       "DeepSpeed 0.16 and later",
       {Schedule::k1f1b},
       true,
       {0, 1, 2, 3},
       {0, 1, 2},
       {0, 1},
       true,   // whole heads
       false,  // wide stages
       false,  // whole gradients
       false,  // even servers
       false,  // whole rounds
       false,  // recomputation by stage
       FrameworkCuts::kLayers,
       nullptr,  // own first module
       "PipelineModule, LayerSpec, partition_method, TrainSchedule, PipeModelDataParallelTopology, "
       "zero_optimization.stage, tensor_parallel.autotp_size, activation_checkpoint_interval"},
  };
}

bool splits_heads(std::int64_t heads, int width) {
  return heads > 0 && heads % width != 0;
}

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

bool has_schedule(const Framework& framework, Schedule schedule) {
  return std::find(framework.schedules.begin(), framework.schedules.end(), schedule) != framework.schedules.end();
}

std::string width_inexpressible(const Framework& framework, int stages, int width, std::int64_t heads) {
  if (stages > 1 && width > 1 && !framework.wide_stages) return "replicas of several devices in a pipeline";
  if (!framework.whole_heads || !splits_heads(heads, width)) return "";
  return "replicas of " + std::to_string(width) + " devices, which do not divide the " + std::to_string(heads) +
         (heads == 1 ? " head" : " heads") + " of its attention's keys";
}

std::string micro_batches_inexpressible(const Framework& framework, int stages, int micro_batches) {
  if (!framework.whole_rounds || stages <= 1 || micro_batches % stages == 0) return "";
  return std::to_string(micro_batches) + " micro-batches in " + std::to_string(stages) +
         " stages, of which it wants a multiple";
}

std::string servers_inexpressible(const std::vector<int>& used, int of_stage, int width) {
  if (used.size() <= 1) return "";
  const int each = used.front();
  if (std::any_of(used.begin(), used.end(), [&](int own) { return own != each; })) {
    return "servers of different numbers of devices";
  }
  const auto on_servers = [&](int devices) {
    return std::to_string(devices) + " devices on servers of " + std::to_string(each);
  };
  const auto fill = [&](int devices) { return devices % each == 0 || each % devices == 0; };
  if (!fill(width)) return "replicas of " + on_servers(width);
  return of_stage == 0 || fill(of_stage) ? "" : "stages of " + on_servers(of_stage);
}

bool has_own_names(const Framework& framework, const std::vector<std::string>& layers) {
  return framework.own_first_module != nullptr &&
         std::any_of(layers.begin(), layers.end(),
                     [&](const std::string& layer) { return module_path(layer) == framework.own_first_module; });
}

std::string equal_layers_inexpressible(const std::vector<int>& counts) {
  const bool equal = std::all_of(counts.begin(), counts.end(), [&](int count) { return count == counts.front(); });
  return equal ? "" : "stages of different numbers of layers";
}

namespace {

// Where this model's stages may end. torchtitan calls the modules of one stack as its own models do (tok_embeddings,
// layers.0 .., norm, output), whatever the model calls them, so that nothing but the stack's layers can be told apart.
FrameworkCuts cuts_in(const Framework& framework, const Profile& profile) {
  if (framework.cuts != FrameworkCuts::kLayers || framework.own_first_module == nullptr ||
      stack_starts(profile).empty()) {
    return framework.cuts;
  }
  return has_own_names(framework, profile.layer) ? FrameworkCuts::kLayers : FrameworkCuts::kStackLayers;
}

// The reason why not every part has a module, which its words name: a layer that holds variables, or is of a stack
// that does. Empty: each has one, or no layer is known to hold any.
std::string modules_inexpressible(const pipeline::LayerSplit& layers) {
  const std::vector<std::vector<std::string>>& modules = layers.stage_modules;
  const auto is_empty = [](const std::vector<std::string>& of_part) { return of_part.empty(); };
  const auto lacking = std::find_if(modules.begin(), modules.end(), is_empty);
  if (lacking == modules.end() || std::all_of(modules.begin(), modules.end(), is_empty)) return "";
  const std::vector<std::string>& own = layers.stage_layers[static_cast<std::size_t>(lacking - modules.begin())];
  return "a stage without a module (it begins with " + (own.empty() ? "?" : printable(own.front())) + ")";
}

// True if each part holds a variable of its own positions.
bool all_hold_variables(const std::vector<int>& cuts, const Profile& profile) {
  int from = 0;
  const auto holds = [&](int until) {
    const auto begin = profile.w_bytes.begin();
    const bool any = std::any_of(begin + from, begin + until, [](double bytes) { return bytes > 0; });
    from = until;
    return any;
  };
  return std::all_of(cuts.begin(), cuts.end(), holds) && holds(profile.size());
}

// The reason why the framework cannot run these cuts of several parts; empty: it can.
std::string cuts_inexpressible(const Framework& framework, const std::vector<int>& cuts, const Profile& profile) {
  if (framework.cuts == FrameworkCuts::kInstructions || cuts.empty()) return "";
  const std::vector<int> between = layer_cuts(profile);
  if (between.empty()) return "";
  for (const int cut : cuts) {
    if (!std::binary_search(between.begin(), between.end(), cut)) return "cuts inside a layer";
  }
  const FrameworkCuts where = cuts_in(framework, profile);
  if (where == FrameworkCuts::kLayers) {
    return all_hold_variables(cuts, profile) ? "" : modules_inexpressible(*layers_at_cuts(profile, cuts));
  }
  if (where == FrameworkCuts::kStackLayers) {
    const std::vector<int> of_stack = stack_cuts(profile);
    if (of_stack.empty()) return "pipelines of a model that is not one stack of layers";
    const bool all = std::includes(of_stack.begin(), of_stack.end(), cuts.begin(), cuts.end());
    return all ? "" : "cuts beside the layers of the model's stack";
  }
  const std::vector<int> starts = stack_starts(profile);
  if (starts.empty()) return "pipelines of a model that is not one stack of layers";
  std::vector<int> counts;
  auto from = starts.begin();
  for (const int cut : cuts) {
    const auto until = std::lower_bound(from, starts.end(), cut);
    counts.push_back(static_cast<int>(until - from));
    from = until;
  }
  counts.push_back(static_cast<int>(starts.end() - from));
  return equal_layers_inexpressible(counts);
}

std::string zero_inexpressible(const Framework& framework, int stages, int width, int zero) {
  if (contains(zero_levels(framework, stages, width), zero)) return "";
  const std::string level = zero == 0 ? "replicas without ZeRO" : "ZeRO " + std::to_string(zero);
  return level + (stages > 1 ? " with pipeline stages" : width > 1 ? " with replicas of several devices" : "");
}

// The properties of a stage that are checked, except its cuts.
struct StageShape {
  int replicas = 1, width = 1;
  pipeline::StageVariant variant;
  int in_flight = 0;
};

std::string mesh_inexpressible(const std::vector<StageShape>& stages) {
  const StageShape& first = stages.front();
  for (const StageShape& stage : stages) {
    if (stage.width != first.width) return "stages of different widths";
    if (stage.replicas != first.replicas) return "stages of different numbers of devices";
    // One replica has nothing to shard.
    if (stage.replicas > 1 && stage.variant.zero != first.variant.zero) {
      return "ZeRO levels that differ from stage to stage";
    }
  }
  return "";
}

std::string shape_inexpressible(const Framework& framework, Schedule schedule, const std::vector<StageShape>& stages,
                                std::int64_t heads) {
  std::string why = framework.mesh ? mesh_inexpressible(stages) : "";
  // Under whatever name: one stage that has one micro-batch in flight adds up gradients.
  const bool known = has_schedule(framework, schedule) || (stages.size() == 1 && stages.front().in_flight == 1);
  if (why.empty() && !known) why = std::string("the schedule ") + to_string(schedule);
  for (const StageShape& stage : stages) {
    if (why.empty()) why = width_inexpressible(framework, static_cast<int>(stages.size()), stage.width, heads);
    if (why.empty() && stage.replicas > 1) {
      why = zero_inexpressible(framework, static_cast<int>(stages.size()), stage.width, stage.variant.zero);
    }
    const bool other = stage.variant.recompute != stages.front().variant.recompute;
    if (why.empty() && other && !framework.recompute_by_stage) why = "recomputation in some of the stages";
  }
  return why;
}

// The number of a plan's devices in each server that it uses.
std::vector<int> used_of_servers(const PlacedPlan& placed) {
  std::vector<int> used;
  int last = -1;
  for (const PlacedStage& stage : placed.stages) {
    for (int d = stage.d0; d < stage.d1; ++d) {
      const int server = stage.problem->server_of_device(d), taken = stage.problem->servers_taken_for(server);
      if (server != last) used.insert(used.end(), static_cast<std::size_t>(taken), 0);
      last = server;
      for (auto own = used.end() - taken; own != used.end(); ++own) *own += stage.width() / taken;
    }
  }
  return used;
}

std::string levels_text(const std::vector<int>& levels) {
  std::vector<std::string> texts;
  for (const int level : levels) texts.push_back(std::to_string(level));
  return join(texts);
}

}  // namespace

const char* to_string(FrameworkCuts cuts) {
  constexpr const char* kNames[] = {"anywhere", "whole layers", "layers of one stack", "equal layers"};
  return kNames[static_cast<int>(cuts)];
}

const std::vector<Framework>& all_frameworks() {
  static const std::vector<Framework> rows = make_rows();
  return rows;
}

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const Framework& framework : all_frameworks()) names.push_back(framework.name);
  return names;
}

const Framework& any_framework() {
  return all_frameworks().front();
}

const Framework& find_framework(const std::string& name) {
  for (const Framework& framework : all_frameworks()) {
    if (name == framework.name) return framework;
  }
  const std::string near = closest_name(name, framework_names());
  throw Error(ErrorKind::kUsage,
              "--for: found '" + name + "', expected one of " + join(framework_names(), ", ") +
                  (near.empty() ? "" : "; did you mean " + near + "?"),
              "docs/frameworks.md says what each can run");
}

bool limits_plans(const Framework& framework) {
  return &framework != &any_framework();
}

const std::vector<int>& zero_levels(const Framework& framework, int stages, int width) {
  return stages > 1 ? framework.zero_stages : width > 1 ? framework.zero_wide : framework.zero_alone;
}

Schedule usual_schedule(const Framework& framework, int stages) {
  if (has_schedule(framework, Schedule::kAdaptive)) return Schedule::kAdaptive;
  return stages == 1 ? Schedule::k1f1b : framework.schedules.front();
}

std::string inexpressible(const Framework& framework, const PlacedPlan& placed, const Profile& profile) {
  const std::vector<int> in_flight = in_flight_of(placed);
  std::vector<StageShape> stages;
  for (const PlacedStage& stage : placed.stages) {
    stages.push_back(
        {stage.d1 - stage.d0, stage.width(), stage.problem->variant(stage.variant), in_flight[stages.size()]});
  }
  std::string why = shape_inexpressible(framework, placed.plan.schedule, stages, profile.attention_heads);
  if (why.empty()) {
    why = micro_batches_inexpressible(framework, placed.num_stages(), placed.problem().micro_batches());
  }
  if (why.empty() && framework.even_servers) {
    const StageShape& first = stages.front();
    why = servers_inexpressible(used_of_servers(placed), first.replicas * first.width, first.width);
  }
  return why.empty() ? cuts_inexpressible(framework, placed.plan.cuts, profile) : why;
}

std::string inexpressible(const Framework& framework, const pipeline::PlanDocument& document,
                          const pipeline::LayerSplit* layers) {
  std::vector<StageShape> stages;
  for (const pipeline::PlanStage& stage : document.stages) {
    stages.push_back({stage.replicas, stage.width, stage.variant, stage.in_flight});
  }
  std::string why = shape_inexpressible(framework, document.plan.schedule, stages, document.attention_heads);
  if (why.empty()) why = micro_batches_inexpressible(framework, document.plan.num_stages(), document.micro_batches);
  if (!why.empty() || stages.size() == 1 || framework.cuts == FrameworkCuts::kInstructions) return why;
  if (layers == nullptr) {
    const bool named = std::any_of(document.stages.begin(), document.stages.end(),
                                   [](const pipeline::PlanStage& stage) { return !stage.first_layer.empty(); });
    return named ? "cuts inside a layer" : "pipelines of a model that names no layers";
  }
  if (framework.cuts == FrameworkCuts::kLayers) {
    const auto own = [&](const std::vector<std::string>& of_part) { return has_own_names(framework, of_part); };
    const bool other_names = framework.own_first_module != nullptr && layers->layers_per_stage.size() == 1 &&
                             std::none_of(layers->stage_layers.begin(), layers->stage_layers.end(), own);
    return other_names ? "" : modules_inexpressible(*layers);
  }
  if (layers->layers_per_stage.size() != 1) return "pipelines of a model that is not one stack of layers";
  // The emitter decides which of the layers begin the stages (plan/emit/framework_plan.h).
  if (framework.cuts == FrameworkCuts::kStackLayers) return "";
  return equal_layers_inexpressible(layers->layers_per_stage.begin()->second);
}

std::string inexpressible(const Framework& framework, const Candidate& one, const Profile& profile) {
  return inexpressible(framework, one.placed, profile);
}

std::int64_t rounds_of_pipelines(const Question& question) {
  if (!question.framework->whole_rounds) return 1;
  const PlanRequest& request = question.request;
  const int devices = question.cluster.num_devices();
  std::int64_t rounds = 1;
  for (int stages = 2; stages <= std::min(request.max_stages, static_cast<int>(question.profile().size())); ++stages) {
    if (request.stages > 0 ? stages != request.stages : devices % stages != 0) continue;
    std::int64_t odd = stages;
    while (odd % 2 == 0) odd /= 2;
    rounds = std::lcm(rounds, odd);
  }
  return rounds;
}

std::int64_t usual_batch_of(const Question& question) {
  const std::int64_t own = pipeline::own_samples(question.profile()), usual = usual_batch(own);
  const std::int64_t rounds = rounds_of_pipelines(question);
  std::int64_t batch = std::lcm(usual, rounds);
  while (batch % 2 == 0 && batch / 2 >= usual && batch / 2 % own == 0) batch /= 2;
  return batch < 2 * usual ? batch : usual;
}

std::vector<int> part_ends(const Question& question) {
  const pipeline::Profile& profile = question.profile();
  const auto holds = [&](int p0, int p1) {
    const auto begin = profile.w_bytes.begin();
    return std::any_of(begin + p0, begin + p1, [](double bytes) { return bytes > 0; });
  };
  const std::vector<int> all = framework_cuts(*question.framework, profile);
  std::vector<int> ends;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int next = i + 1 < all.size() ? all[i + 1] : profile.size();
    if (holds(0, all[i]) && holds(all[i], next)) ends.push_back(all[i]);
  }
  return ends;
}

pipeline::ProblemOptions framework_options(const Framework& framework, int stages, pipeline::ProblemOptions options) {
  options.whole_gradients = framework.whole_gradients && stages != 1;
  // Its words name modules.
  if (framework.cuts == FrameworkCuts::kLayers) options.allow_empty_stages = false;
  return options;
}

void drop_widths(int stages, Question& question) {
  const auto lacks = [&](const pipeline::WidthColumns& columns) {
    const std::int64_t heads = question.profile().attention_heads;
    return !width_inexpressible(*question.framework, stages, columns.width, heads).empty();
  };
  const auto& known = question.profile().widths;
  if (std::none_of(known.begin(), known.end(), lacks)) return;
  Profile profile = question.profile();
  auto& widths = profile.widths;
  widths.erase(std::remove_if(widths.begin(), widths.end(), lacks), widths.end());
  question.set_profile(std::move(profile));
}

void apply_framework(Question& question) {
  const Framework& framework = *question.framework;
  if (!limits_plans(framework)) return;
  PlanRequest& request = question.request;
  drop_widths(request.stages, question);
  std::vector<Schedule> schedules;
  for (const Schedule schedule : request.schedules) {
    const bool of_one_stage = schedule == Schedule::k1f1b && request.stages <= 1;
    if (of_one_stage || has_schedule(framework, schedule)) schedules.push_back(schedule);
  }
  if (schedules.empty()) {
    std::copy_if(framework.schedules.begin(), framework.schedules.end(), std::back_inserter(schedules),
                 pipeline::is_alternating);
    // Gradients added up; first, so that it is what one stage has where several schedules make no difference.
    if (!has_schedule(framework, Schedule::k1f1b)) schedules.insert(schedules.begin(), Schedule::k1f1b);
  }
  request.schedules = std::move(schedules);
  if (framework.mesh) {
    // Stages of one replica each are as equal as can be.
    question.step.equal_replicas = !question.step.lone_replicas;
    question.beside.mixed_widths = false;
  }
  question.step.even_servers = framework.even_servers;
  std::vector<Schedule>& ordered = question.beside.schedules;
  ordered.erase(std::remove_if(ordered.begin(), ordered.end(),
                               [&](Schedule schedule) { return !has_schedule(framework, schedule); }),
                ordered.end());
  // With one replica for each stage there is nothing to shard, so that the first always stands for no ZeRO.
  std::vector<pipeline::StageVariant> variants;
  for (const pipeline::StageVariant& variant : question.options.variants) {
    const std::vector<int>& levels = request.stages > 1 ? framework.zero_stages : framework.zero_alone;
    if (variant.zero == 0 || contains(levels, variant.zero)) variants.push_back(variant);
  }
  if (variants.empty()) {
    throw Error(ErrorKind::kUsage,
                std::string(framework.name) + " has no " +
                    zero_inexpressible(framework, request.stages, 1, question.options.variants.front().zero),
                "drop --for, or ask for other ZeRO levels");
  }
  question.options.variants = std::move(variants);
  question.options = framework_options(framework, request.stages, std::move(question.options));
}

std::vector<int> framework_cuts(const Framework& framework, const Profile& profile) {
  if (framework.cuts == FrameworkCuts::kInstructions) return {};
  return cuts_in(framework, profile) == FrameworkCuts::kStackLayers ? stack_cuts(profile) : layer_cuts(profile);
}

Question of_any_framework(const Question& question) {
  Question any = question;
  if (!limits_plans(*question.framework)) return any;
  apply_framework(any);
  any.framework = &any_framework();
  any.options.whole_gradients = false;
  return any;
}

std::string framework_text(const Framework& framework) {
  std::vector<std::string> names;
  for (const Schedule schedule : framework.schedules) names.push_back(to_string(schedule));
  std::string text = (names.size() == 1 ? "schedule " : "schedules ") + join(names) + ", ";
  if (framework.mesh) text += "all stages with as many replicas, of one width and one ZeRO level (";
  text += (framework.mesh ? "" : "ZeRO ") + levels_text(framework.zero_stages) +
          (framework.zero_alone == framework.zero_stages ? "" : "; of one stage " + levels_text(framework.zero_alone)) +
          (framework.mesh ? "), " : ", ");
  if (framework.whole_heads) text += "whole heads on every device, ";
  if (!framework.wide_stages) text += "replicas of one device in pipelines, ";
  if (framework.whole_rounds) text += "micro-batches that are a multiple of the stages, ";
  text += framework.recompute_by_stage ? "recomputation by stage" : "recomputation of all stages or none";
  return text + ", cut " +
         (framework.cuts == FrameworkCuts::kInstructions  ? "anywhere"
          : framework.cuts == FrameworkCuts::kLayers      ? "at whole layers"
          : framework.cuts == FrameworkCuts::kStackLayers ? "at whole layers of one stack"
                                                          : "into equal numbers of layers");
}

std::string no_layers_text(const Framework& framework, const Profile& profile) {
  if (framework.cuts == FrameworkCuts::kInstructions || !layer_cuts(profile).empty()) return "";
  return std::string("the model names no layers: it is cut at instructions, and whether ") + framework.name +
         " can run a plan of several stages is not known";
}

}  // namespace automap::planners
