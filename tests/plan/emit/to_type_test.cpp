// Compares the output for every framework, on a few plans, with files that people have read:
// tests/data/emit/FRAMEWORK.txt. AUTOMAP_WRITE_GOLDEN=1 writes them again.
#include "plan/emit/to_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/rng.h"
#include "common/hlo/hlo_text.h"
#include "plan/emit/quote.h"
#include "plan/emit/read_words.h"
#include "plan/planners/layers.h"

namespace automap::emit {
namespace {

using pipeline::Schedule;
using ::testing::AllOf;
using ::testing::HasSubstr;

// `counts` layers of one stack in each stage, with `front` in front of them and `behind` behind.
FrameworkPlan stacked(const std::vector<int>& counts, const std::string& stack, const std::vector<std::string>& front,
                      const std::vector<std::string>& behind) {
  FrameworkPlan plan;
  plan.model = "a model";
  plan.stages = static_cast<int>(counts.size());
  plan.recompute.assign(counts.size(), false);
  plan.overlap = true;
  if (counts.size() == 1) return plan;
  plan.stacks = {stack};
  int number = 0;
  for (const int count : counts) {
    FrameworkStage& stage = plan.parts.emplace_back();
    if (plan.parts.size() == 1) stage.layers = front;
    for (int i = 0; i < count; ++i) stage.layers.push_back(stack + "/" + std::to_string(number++));
    if (plan.parts.size() == counts.size()) stage.layers.insert(stage.layers.end(), behind.begin(), behind.end());
    stage.modules = stage.layers;
  }
  return plan;
}

FrameworkPlan gpt(const std::vector<int>& counts) {
  FrameworkPlan plan = stacked(counts, "h", {"wte", "wpe"}, {"ln_f", "lm_head"});
  // A layer that computes and holds nothing is no module.
  if (!plan.parts.empty()) plan.parts.back().layers.push_back("loss");
  return plan;
}

FrameworkPlan llama(const std::vector<int>& counts) {
  return stacked(counts, "layers", {"tok_embeddings"}, {"norm", "output"});
}

// The cluster's servers, of which plans() says what they have alone.
std::vector<UsedServer> having(const std::vector<int>& devices) {
  std::vector<UsedServer> servers;
  for (const int has : devices) servers.push_back({static_cast<int>(servers.size()) + 1, has, {}});
  return servers;
}

struct NamedPlan {
  const char* name;
  FrameworkPlan plan;
};

std::vector<NamedPlan> plans() {
  std::vector<NamedPlan> all;
  const auto add = [&](const char* name, FrameworkPlan plan) -> FrameworkPlan& {
    all.push_back({name, std::move(plan)});
    return all.back().plan;
  };
  FrameworkPlan* plan = &add("data parallel on one server", gpt({1}));
  plan->replicas = 8, plan->samples = 4, plan->micro_batches = 2, plan->servers = having({8});

  plan = &add("ZeRO 3 with recomputation on 4 servers", llama({1}));
  plan->replicas = 32, plan->samples = 2, plan->zero = 3, plan->recompute = {true},
  plan->servers = having({8, 8, 8, 8});

  plan = &add("ZeRO 2 and replicas of 4 devices, split along the sequence", llama({1}));
  plan->replicas = 4, plan->width = 4, plan->samples = 8, plan->zero = 2, plan->sequence_parallel = true;
  plan->servers = having({8, 8}), plan->split = {{"params['layers'][0]['attention']['wq']", 1}};

  plan = &add("uneven 1F1B of 32 layers on 2 servers, replicas of 4 devices", llama({17, 15}));
  plan->replicas = 2, plan->width = 4, plan->samples = 1, plan->micro_batches = 32, plan->servers = having({8, 8});
  plan->sequence_parallel = true, plan->recompute = {true, true};

  plan = &add("1F1B with ZeRO 1 in even stages", gpt({3, 3, 3, 3}));
  plan->replicas = 2, plan->samples = 4, plan->micro_batches = 8, plan->zero = 1, plan->servers = having({8});
  plan->shares_variables = true;

  plan = &add("1F1B in uneven stages of one device, the last without layers", gpt({4, 4, 4, 0}));
  plan->samples = 2, plan->micro_batches = 8, plan->servers = having({4});

  plan = &add("GPipe in even stages with ZeRO 3 on 2 servers", llama({8, 8, 8, 8}));
  plan->replicas = 4, plan->samples = 2, plan->micro_batches = 8, plan->zero = 3, plan->servers = having({8, 8});
  plan->schedule = Schedule::kGpipe;

  plan = &add("GPipe in even stages of one device, of which half a server is one", gpt({6, 6}));
  plan->samples = 3, plan->micro_batches = 6, plan->servers = having({2}), plan->schedule = Schedule::kGpipe;
  plan->recompute = {true, true};

  plan = &add("1F1B with ZeRO 2 and recomputation in some stages", llama({5, 4, 3}));
  plan->replicas = 2, plan->samples = 1, plan->micro_batches = 6, plan->zero = 2, plan->servers = having({6});
  plan->recompute = {true, false, false};

  // Parts in turn on both stages: as many layers each, and not.
  plan = &add("interleaved 1F1B of even parts", gpt({3, 3, 3, 3}));
  plan->stages = 2, plan->chunks = 2, plan->recompute = {true, true}, plan->replicas = 2, plan->samples = 2;
  plan->micro_batches = 8, plan->servers = having({4}), plan->zero = 1;

  plan = &add("interleaved 1F1B of uneven parts", llama({9, 8, 8, 7}));
  plan->stages = 2, plan->chunks = 2, plan->recompute = {false, false}, plan->width = 2, plan->samples = 1;
  plan->micro_batches = 6, plan->servers = having({4});

  plan = &add("zero bubble (ZB-H1) with ZeRO 3 on 2 servers", llama({5, 4, 4, 3}));
  plan->replicas = 4, plan->samples = 1, plan->micro_batches = 6, plan->zero = 3, plan->servers = having({8, 8});
  plan->schedule = Schedule::kZbH1;

  plan = &add("stages of 3 devices on servers of 8 and 4", gpt({6, 4, 2, 0}));
  plan->replicas = 3, plan->samples = 1, plan->micro_batches = 8, plan->servers = having({8, 4});

  plan = &add("1F1B on the last devices of the second server and the first of the first", gpt({6, 6}));
  plan->replicas = 2, plan->samples = 1, plan->micro_batches = 8, plan->servers = having({4, 4});
  plan->chosen_devices = {6, 7, 0, 1};
  plan->zero = 1;

  plan = &add("data parallel on six of a server's devices", gpt({1}));
  plan->replicas = 6, plan->samples = 2, plan->servers = having({8});

  plan = &add("GPipe on the second halves of two servers", llama({4, 4}));
  plan->replicas = 4, plan->samples = 1, plan->micro_batches = 4, plan->servers = having({8, 8, 8});
  plan->chosen_devices = {12, 13, 14, 15, 20, 21, 22, 23}, plan->zero = 3, plan->schedule = Schedule::kGpipe;

  plan = &add("1F1B on the second half of a server, backwards", gpt({6, 6}));
  plan->replicas = 2, plan->samples = 1, plan->micro_batches = 4, plan->servers = having({8});
  plan->chosen_devices = {7, 6, 5, 4}, plan->zero = 1;

  plan = &add("7B: uneven 1F1B of 32 layers on 4 servers", llama({9, 8, 8, 7}));
  plan->replicas = 8, plan->samples = 1, plan->micro_batches = 32, plan->servers = having({8, 8, 8, 8});
  plan->zero = 1;

  plan = &add("13B: even 1F1B of 40 layers, replicas of 2 devices", llama({20, 20}));
  plan->replicas = 4, plan->width = 2, plan->samples = 2, plan->micro_batches = 32, plan->zero = 1;
  plan->sequence_parallel = true, plan->servers = having({8, 8});

  plan = &add("13B: ZeRO 3 with gradients of 8 micro-batches added up", llama({1}));
  plan->replicas = 32, plan->samples = 1, plan->micro_batches = 8, plan->zero = 3, plan->servers = having({8, 8, 8, 8});

  plan =
      &add("70B: uneven 1F1B of 80 layers in 8 stages, replicas of 4 devices", llama({11, 10, 10, 10, 10, 10, 10, 9}));
  plan->width = 4, plan->samples = 1, plan->micro_batches = 64, plan->sequence_parallel = true;
  plan->recompute.assign(8, true), plan->servers = having({8, 8, 8, 8});

  plan = &add("70B: ZeRO 3, replicas of 8 devices, gradients summed behind the backward", llama({1}));
  plan->replicas = 4, plan->width = 8, plan->samples = 2, plan->micro_batches = 16, plan->zero = 3;
  plan->sequence_parallel = true, plan->recompute = {true}, plan->servers = having({8, 8, 8, 8}), plan->overlap = false;
  plan->split = {{"params['layers']['wq']", 2}, {"params['norm']['scale']", -1}};

  plan = &add("GPipe in even stages, replicas of 2 devices, of a stack whose variables are stacked", llama({2, 2}));
  plan->width = 2, plan->samples = 1, plan->micro_batches = 4, plan->servers = having({4});
  plan->schedule = Schedule::kGpipe;
  plan->split = {{"params['layers']['n1']", -1}, {"params['layers']['n2']", -1}, {"params['layers']['wq']", 2}};

  plan = &add("GPipe in even stages, replicas of 2 devices, of layers that stand apart", llama({2, 2}));
  plan->width = 2, plan->samples = 1, plan->micro_batches = 4, plan->servers = having({4});
  plan->schedule = Schedule::kGpipe;
  for (const char* layer : {"0", "1", "2", "3"}) {
    plan->split.emplace_back("params['layers'][" + std::string(layer) + "]['wq']", 1);
  }

  plan = &add("names that mean something to shells, TOML, JSON and Python",
              stacked({2, 2}, "blocks", {"it's; rm -rf $HOME", "a\"b\\c\n"}, {"head"}));
  plan->samples = 1, plan->micro_batches = 4, plan->servers = having({2});

  plan = &add("replicas of 16 devices, two whole servers each, split along the sequence", llama({1}));
  plan->replicas = 2, plan->width = 16, plan->samples = 4, plan->servers = having({8, 8, 8, 8});
  plan->sequence_parallel = true;

  plan = &add("GPipe in even stages of one replica, which is two whole servers", llama({2, 2}));
  plan->width = 16, plan->samples = 16, plan->micro_batches = 4, plan->servers = having({8, 8, 8, 8});
  plan->schedule = Schedule::kGpipe;
  return all;
}

// Layers of a stack with any number of others in front of them and behind, spread over stages that each hold a layer
// but perhaps for the last.
std::vector<NamedPlan> random_plans() {
  std::vector<NamedPlan> all;
  for (std::uint64_t item = 0; item < 100; ++item) {
    Rng random(1, 1, item);
    const auto up_to = [&](int most) { return 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(most))); };
    const auto others = [&](const char* name) {
      std::vector<std::string> names;
      for (int i = up_to(3); i > 0; --i) names.push_back(name + std::string(static_cast<std::size_t>(i), 'x'));
      return names;
    };
    std::vector<int> counts;
    const bool even = up_to(2) == 1;
    for (int s = up_to(4), of_all = up_to(6); s > 0; --s) counts.push_back(even ? of_all : up_to(6));
    if (counts.size() > 1 && up_to(4) == 1) counts.back() = 0;
    all.push_back({"random", stacked(counts, up_to(2) == 1 ? "h" : "model/layers", others("front"), others("behind"))});
    FrameworkPlan& plan = all.back().plan;
    plan.replicas = up_to(4), plan.width = up_to(2), plan.samples = up_to(3);
    plan.micro_batches = plan.stages * up_to(3), plan.zero = plan.replicas > 1 ? up_to(4) - 1 : 0;
    plan.sequence_parallel = plan.width > 1 && up_to(2) == 1;
    plan.schedule = up_to(3) == 1 ? Schedule::kGpipe : Schedule::k1f1b;
    plan.servers = having({plan.devices()});
    plan.recompute.assign(counts.size(), up_to(2) == 1);
  }
  return all;
}

// The plan as its file says it, and what stands at its cuts.
struct Written {
  pipeline::PlanDocument document;
  pipeline::LayerSplit layers;
  machine::Cluster cluster;
};

Written written(const FrameworkPlan& plan) {
  Written out;
  pipeline::PlanDocument& document = out.document;
  document.model = plan.model;
  document.replicas = "whole";
  document.gradient_sync = plan.overlap ? "overlap" : "after";
  document.plan.schedule = plan.schedule;
  document.micro_batches = plan.micro_batches;
  document.micro_batch_samples = static_cast<double>(plan.samples * plan.replicas);
  document.num_devices = plan.devices();
  keep_sizes(plan.sizes, &document);
  for (int s = 0; s < plan.stages; ++s) {
    pipeline::PlanStage stage;
    stage.replicas = plan.replicas;
    stage.width = plan.width;
    stage.devices = plan.replicas * plan.width;
    stage.variant = {plan.zero, plan.recompute[static_cast<std::size_t>(s)]};
    stage.in_flight = plan.stages - s;
    for (int d = 0; d < stage.devices && !plan.chosen_devices.empty(); ++d) {
      stage.device_numbers.push_back(plan.chosen_devices[static_cast<std::size_t>(s * stage.devices + d)] + 1);
    }
    stage.shared_gradients_ms = plan.shares_variables && (s == 0 || s + 1 == plan.stages) ? 1 : 0;
    document.stages.push_back(stage);
    if (s > 0) {
      document.plan.cuts.push_back(s);
      document.plan.device_cuts.push_back(s * stage.devices);
    }
  }
  if (!plan.split.empty()) {
    Json dims = Json::object();
    for (const auto& [name, dim] : plan.split) dims[name] = dim;
    document.partitions.push_back(Json{{"partition", dims}, {"shards", plan.width}}.dump());
  }
  for (const FrameworkStage& stage : plan.parts) {
    out.layers.stage_layers.push_back(stage.layers);
    out.layers.stage_modules.push_back(stage.modules);
    for (const std::string& stack : plan.stacks) {
      const auto of_stack = std::count_if(stage.layers.begin(), stage.layers.end(), [&](const std::string& layer) {
        return layer.compare(0, stack.size() + 1, stack + "/") == 0;
      });
      out.layers.layers_per_stage[stack].push_back(static_cast<int>(of_stack));
    }
  }
  for (const UsedServer& has : plan.servers) {
    machine::ServerGroup server;
    server.devices = has.has;
    out.cluster.servers.push_back(server);
  }
  return out;
}

// By the frameworks' table first, as automap-emit does it.
Emitted emitted_for(const FrameworkPlan& plan, const planners::Framework& framework, const std::string& layers = "",
                    const FrameworkVersion& version = {}) {
  const Written made = written(plan);
  PlanFacts facts;
  if (plan.stages > 1) facts.layers = &made.layers;
  facts.cluster = &made.cluster;
  facts.sequence_parallel = plan.sequence_parallel;
  FrameworkPlan again;
  Emitted out;
  if (plan.chunks > 1) {
    pipeline::PlanCorner corner;
    corner.layout = "dp=" + std::to_string(plan.replicas) + ",pp=" + std::to_string(plan.stages) +
                    ",chunks=" + std::to_string(plan.chunks) +
                    (plan.zero > 0 ? ",zero=" + std::to_string(plan.zero) : "") +
                    (plan.recompute_any() ? ",recompute=layer" : "");
    corner.stages = plan.stages;
    corner.width = plan.width;
    corner.devices = plan.devices();
    corner.micro_batches = plan.micro_batches;
    corner.micro_batch_samples = static_cast<double>(plan.samples * plan.replicas);
    corner.chunk_cuts.assign(plan.parts.size() - 1, 1);
    out.cannot = framework_plan(framework, made.document, corner, facts, &again);
  } else {
    out.cannot = framework_plan(framework, made.document, facts, &again);
  }
  return out.cannot.what.empty() ? emit_for(again, {layers, version}) : out;
}

std::string told(const NamedPlan& one, const planners::Framework& framework, const std::string& layers) {
  const Emitted out = emitted_for(one.plan, framework, layers);
  std::string text = std::string("=== ") + one.name + (layers.empty() ? "" : ", layers " + layers) + "\n";
  if (!out.cannot.what.empty()) {
    return text + "cannot run " + out.cannot.what + "\n  " + out.cannot.hint + "\n";
  }
  text += "$ " + shell_line(out.launch) + " " + shell_line(out.arguments) + "\n";
  for (const std::string& missing : out.missing) text += "and: " + missing + "\n";
  for (const EmittedFile& file : out.files) {
    text += "--- FILE" + (file.beside.empty() ? "" : " " + file.what()) + "\n" + file.text;
  }
  return text;
}

TEST(ToType, EveryFrameworkIsToldAsPeopleHaveRead) {
  const bool write = std::getenv("AUTOMAP_WRITE_GOLDEN") != nullptr;
  for (const planners::Framework& framework : planners::all_frameworks()) {
    if (!emits(framework)) continue;
    std::string all;
    for (const NamedPlan& one : plans()) all += told(one, framework, "");
    all += told(plans()[4], framework, "model.layers.{i}");
    const std::string path = std::string(AUTOMAP_SOURCE_DIR) + "/tests/data/emit/" + framework.name + ".txt";
    if (write) std::ofstream(path) << all;
    EXPECT_EQ(all, read_file(path)) << framework.name;
  }
}

TEST(ToType, EveryFrameworkButAnyHasAnEmitter) {
  for (const planners::Framework& framework : planners::all_frameworks()) {
    EXPECT_EQ(emits(framework), limits_plans(framework)) << framework.name;
  }
}

// Words that differ by version (the golden files are of the newest).
TEST(ToType, VersionsHaveTheirWords) {
  const auto emitted = [](const char* framework, const char* version, const std::string& name) {
    for (const NamedPlan& one : plans()) {
      const planners::Framework& of = planners::find_framework(framework);
      if (one.name == name) return emitted_for(one.plan, of, "", version_asked(of, version));
    }
    ADD_FAILURE() << name;
    return Emitted();
  };
  const std::string wide = "ZeRO 2 and replicas of 4 devices, split along the sequence";
  const std::string uneven = "uneven 1F1B of 32 layers on 2 servers, replicas of 4 devices";
  EXPECT_THAT(emitted("megatron", "0.13", wide).arguments, ::testing::Contains("--use-custom-fsdp"));
  EXPECT_THAT(emitted("megatron", "0.13", wide).arguments, ::testing::Not(::testing::Contains("fsdp_dtensor")));
  EXPECT_THAT(emitted("megatron", "0.14", wide).arguments, ::testing::Contains("--use-megatron-fsdp"));
  EXPECT_THAT(emitted("megatron", "0.12", uneven).cannot.what, HasSubstr("before core 0.13"));
  EXPECT_TRUE(emitted("megatron", "0.12", uneven).files.empty());
  EXPECT_EQ(emitted("megatron", "0.13", uneven).cannot.what, "");
  EXPECT_THAT(emitted("deepspeed", "0.15", wide).cannot.what, HasSubstr("before 0.16"));
  EXPECT_EQ(emitted("deepspeed", "0.16", wide).cannot.what, "");
  EXPECT_THAT(emitted("maxtext", "0.1", "data parallel on one server").launch, ::testing::Contains("MaxText.train"));
  const Emitted out = emitted("torchtitan", "0.1", "interleaved 1F1B of uneven parts");
  ASSERT_EQ(out.files.size(), 1u) << out.cannot.what;
  EXPECT_THAT(out.files.front().text,
              HasSubstr("pipeline_parallel_split_points = [\"layers.9\", \"layers.17\", \"layers.25\"]"));
  EXPECT_THAT(read_words(out.files.front().text)->layout, HasSubstr(",chunks=2,layers=9+8+8+rest"));
}

// A mesh of servers holds as many as there are, and one of a server's devices as many as it has.
TEST(ToType, MaxtextsReplicasCanBeWiderThanAServer) {
  const auto words = [](int replicas, int width, bool sequence, int zero, std::vector<int> servers) {
    FrameworkPlan plan = llama({1});
    plan.replicas = replicas, plan.width = width, plan.samples = 8, plan.zero = zero;
    plan.sequence_parallel = sequence, plan.servers = having(servers);
    const Emitted out = emitted_for(plan, planners::find_framework("maxtext"));
    EXPECT_EQ(out.cannot.what, "");
    std::string text;
    for (const std::string& word : out.arguments) text += word + " ";
    return text;
  };
  EXPECT_THAT(words(2, 16, true, 0, {8, 8, 8, 8}),
              HasSubstr("dcn_data_parallelism=2 ici_data_parallelism=1 dcn_pipeline_parallelism=1 "
                        "ici_pipeline_parallelism=1 dcn_fsdp_parallelism=1 ici_fsdp_parallelism=1 "
                        "dcn_tensor_sequence_parallelism=2 ici_tensor_sequence_parallelism=8 "));
  EXPECT_THAT(words(1, 32, false, 0, {8, 8, 8, 8}),
              AllOf(HasSubstr("dcn_data_parallelism=1 ici_data_parallelism=1 "),
                    HasSubstr("dcn_tensor_parallelism=4 ici_tensor_parallelism=8 ")));
  EXPECT_THAT(words(2, 16, false, 3, {8, 8, 8, 8}),
              AllOf(HasSubstr("dcn_fsdp_parallelism=2 ici_fsdp_parallelism=1 "),
                    HasSubstr("dcn_tensor_parallelism=2 ici_tensor_parallelism=8 ")));
  EXPECT_THAT(words(4, 8, false, 0, {8, 8, 8, 8}),
              AllOf(HasSubstr("dcn_data_parallelism=4 ici_data_parallelism=1 "),
                    HasSubstr("dcn_tensor_parallelism=1 ici_tensor_parallelism=8 ")));
}

// As a V: parts 0 and 3 on the first stage's devices.
TEST(ToType, TorchtitanReadsListsOfWork) {
  FrameworkPlan plan = llama({2, 2, 2, 2});
  plan.framework = &planners::find_framework("torchtitan");
  plan.stages = plan.chunks = 2;
  plan.stage_of_part = {0, 1, 1, 0};
  plan.recompute = {false, false};
  plan.servers = having({2});
  plan.schedule = Schedule::kSearched;
  for (const auto& parts : {std::make_pair(0, 3), std::make_pair(1, 2)}) {
    pipeline::GroupOrder& order = plan.order.emplace_back();
    for (const int part : {parts.first, parts.second}) order.push_back({pipeline::WorkKind::kForward, part, 0});
    for (const int part : {parts.second, parts.first}) {
      order.push_back({pipeline::WorkKind::kBackward, part, 0});
      order.push_back({pipeline::WorkKind::kWeights, part, 0});
    }
  }
  EmitOptions options;
  options.file = "runs/7b.v2.toml";
  const Emitted out = emit_for(plan, options);
  ASSERT_EQ(out.files.size(), 2u);
  EXPECT_THAT(out.files[0].text, HasSubstr("pipeline_parallel_schedule = \"ZBVZeroBubble\"\n"
                                           "pipeline_parallel_schedule_csv = \"runs/_7b_v2_schedule.csv\"\n"));
  EXPECT_EQ(path_beside(options.file, out.files[1].beside), "runs/_7b_v2_schedule.csv");
  EXPECT_EQ(out.files[1].text, "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2I0,2W0,1I0,1W0\n");
  EXPECT_THAT(out.missing, ::testing::Contains(HasSubstr("PyTorch 2.8")));
  // In turn, with backwards in one pass.
  plan.stage_of_part = {0, 1, 0, 1};
  plan.order = {{{pipeline::WorkKind::kForward, 0, 0}, {pipeline::WorkKind::kForward, 2, 0}},
                {{pipeline::WorkKind::kForward, 1, 0}, {pipeline::WorkKind::kBackward, 1, 0}}};
  const Emitted in_turn = emit_for(plan, options);
  ASSERT_EQ(in_turn.files.size(), 2u) << in_turn.cannot.what;
  EXPECT_THAT(in_turn.files[0].text, HasSubstr("pipeline_parallel_schedule = \"Interleaved1F1B\"\n"));
  EXPECT_EQ(in_turn.files[1].text, "0F0,2F0\n1F0,1B0\n");
}

TEST(ToType, UnknownVersionsAreRefused) {
  const planners::Framework& megatron = planners::find_framework("megatron");
  for (const char* version : {"0.12", "0.16.1", "core_v0.13.0", "v0.14", "0.15.0rc1", "0.15+local"}) {
    EXPECT_NO_THROW(version_asked(megatron, version)) << version;
  }
  for (const char* version : {"", "16", "x", "0.x", "0.16x1", "1e5.3", "0.17", "0.11.9", "99999999999.1", "-0.16"}) {
    EXPECT_THROW(version_asked(megatron, version), Error) << version;
  }
  for (const planners::Framework& framework : planners::all_frameworks()) {
    if (!emits(framework)) continue;
    const std::string page = read_file(std::string(AUTOMAP_SOURCE_DIR) + "/docs/emit/" + framework.name + ".md");
    EXPECT_THAT(page, HasSubstr("Versions: " + known_versions(framework))) << framework.name;
  }
}

// Written words mean the same when they are read.
TEST(ToType, WhatIsWrittenIsReadBack) {
  int read = 0;
  std::vector<NamedPlan> all = plans();
  const std::vector<NamedPlan> more = random_plans();
  all.insert(all.end(), more.begin(), more.end());
  for (const char* name : {"megatron", "torchtitan", "maxtext", "deepspeed", "torch", "jax"}) {
    for (const NamedPlan& one : all) {
      const FrameworkPlan& plan = one.plan;
      // Stages that recompute beside stages that do not are no layout.
      if (plan.recompute != std::vector<bool>(plan.recompute.size(), plan.recompute_any())) continue;
      const Emitted out = emitted_for(plan, planners::find_framework(name));
      if (!out.cannot.what.empty()) continue;
      SCOPED_TRACE(std::string(name) + ": " + one.name);
      if (plan.schedule == Schedule::kZbH1) {  // no layout says who does what when
        EXPECT_THROW(read_words(out.files.front().text), Error);
        continue;
      }
      ++read;
      // DeepSpeed's stages stand in the file of stages.
      const auto words = read_words(out.files.front().text + (out.files.size() > 1 ? out.files.back().text : ""));
      ASSERT_TRUE(words);
      EXPECT_EQ(words->framework, name);
      EXPECT_THAT(words->ignored, ::testing::IsEmpty());
      EXPECT_EQ(words->batch, plan.batch());
      std::string counts;
      for (const FrameworkStage& part : plan.parts) {
        const auto of_stack = std::count_if(part.layers.begin(), part.layers.end(), [&](const std::string& layer) {
          return layer.compare(0, plan.stacks.front().size() + 1, plan.stacks.front() + "/") == 0;
        });
        counts += (counts.empty() ? "" : "+") + std::to_string(of_stack);
      }
      const std::size_t at = words->layout.find(",layers=");
      const std::string said = at == std::string::npos ? counts : words->layout.substr(at + 8);
      EXPECT_EQ(said.substr(0, said.find(',')), counts);
      if (plan.chunks > 1) {
        EXPECT_THAT(words->layout, ::testing::AnyOf(HasSubstr(",chunks=" + std::to_string(plan.chunks)),
                                                    HasSubstr(",layers-per-chunk=3")));
      }
      EXPECT_THAT(words->layout, HasSubstr(",pp=" + std::to_string(plan.stages) + ",tp=" + std::to_string(plan.width)));
      EXPECT_THAT(words->layout, HasSubstr(",micro-batch-size=" + std::to_string(plan.samples) + ","));
      if (name != std::string("megatron")) {
        EXPECT_THAT(words->layout, HasSubstr("dp=" + std::to_string(plan.replicas)));
      }
      EXPECT_THAT(words->layout, HasSubstr(plan.recompute_any() ? "recompute=layer" : "recompute=none"));
      EXPECT_EQ(words->sequence_parallel.value_or(plan.sequence_parallel), plan.sequence_parallel);
      // The same words on a command line.
      std::vector<std::string> line = out.launch;
      line.insert(line.end(), out.arguments.begin(), out.arguments.end());
      const bool on_a_line = name == std::string("megatron") || name == std::string("maxtext") ||
                             (name == std::string("torchtitan") && plan.stages == 1);
      if (!on_a_line) continue;
      const auto typed = read_words(shell_line(line));
      ASSERT_TRUE(typed);
      const bool servers_alike = plan.servers.front().has == plan.servers.back().has;
      std::string wanted = words->layout;
      if (name == std::string("megatron") && servers_alike) {
        wanted.replace(wanted.find("dp=auto"), 7, "dp=" + std::to_string(plan.replicas));
      }
      EXPECT_EQ(typed->layout, wanted);
      EXPECT_EQ(typed->batch, words->batch);
    }
  }
  EXPECT_GE(read, 120);
}

std::string refused(const std::string& words) {
  try {
    read_words(words);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage) << words;
    return e.what();
  }
  ADD_FAILURE() << "was read: " << words;
  return "";
}

TEST(ReadWords, MegatronsLayoutsHaveItsGrammar) {
  const auto layers = [](const std::string& layout, int stages) {
    const auto words = read_words("--pipeline-model-parallel-size " + std::to_string(stages) +
                                  " --pipeline-model-parallel-layout '" + layout + "'");
    return words->layout.substr(words->layout.find("layers="));
  };
  EXPECT_EQ(layers("Ett|tttL", 2), "layers=2+3");
  EXPECT_EQ(layers("E,t*3|(tt|)*2,t*2,L", 4), "layers=3+2+2+2");
  EXPECT_EQ(layers("E|(t|)*3L", 5), "layers=0+1+1+1+0");
  for (const auto& [layout, says] : std::vector<std::pair<std::string, std::string>>{{"tt|ttL", "E first"},
                                                                                     {"Ett|tt", "L last"},
                                                                                     {"Ett|tm|L", "further tokens"},
                                                                                     {"Etx|tL", "found 'x'"},
                                                                                     {"E(tt|L", "bracket"},
                                                                                     {"Et*|L", "number behind *"},
                                                                                     {"Et*5000|L", "number behind *"},
                                                                                     {"Ett|tL|tL", "found 'L'"}}) {
    EXPECT_THAT(refused("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout " + layout),
                HasSubstr(says));
  }
  EXPECT_THAT(refused("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t|tL'"),
              HasSubstr("3 parts for 2 stages"));
  EXPECT_EQ(layers("Et|t|tt|L", 2), "layers=1+1+2+0");
  const auto chunks = [](const std::string& words) {
    const std::string layout = read_words("--pipeline-model-parallel-size 4 " + words)->layout;
    return layout.substr(layout.find("schedule="));
  };
  EXPECT_EQ(chunks("--pipeline-model-parallel-layout 'Et|t|t|t|t|t|t|tL'"),
            "schedule=1f1b,chunks=2,layers=1+1+1+1+1+1+1+1");
  EXPECT_EQ(chunks("--num-layers-per-virtual-pipeline-stage 3"), "schedule=1f1b,layers-per-chunk=3");
  EXPECT_EQ(chunks("--num-virtual-stages-per-pipeline-rank 2"), "schedule=1f1b,chunks=2");
}

// Words in people's files: comments, quotes of either kind, degrees that are left to the framework.
TEST(ReadWords, FilesOfPeopleAreRead) {
  const std::string head = "# torchtitan\n[training]\nglobal_batch_size = 64  # samples\n\n[parallelism]\n";
  const std::string stages =
      "module_fqns_per_model_part = [ ['tok', 'layers.0'], # it's \"[\n  [\"it's [\\\"0\\\"]\", \"layers.1\",\n "
      "\"layers.2\"] ]\n";
  EXPECT_EQ(read_words(head + "pipeline_parallel_degree = 2\npipeline_parallel_schedule = '1F1B'\n" + stages +
                       "tensor_parallel_degree = 2\n[activation_checkpoint]\nmode = \"none\"\n")
                ->layout,
            "dp=auto,pp=2,tp=2,micro-batch-size=1,zero=2,recompute=none,schedule=1f1b,layers=1+2");
  EXPECT_THAT(refused(head + "data_parallel_replicate_degree = 2\n[activation_checkpoint]\nmode = \"none\"\n"),
              HasSubstr("data_parallel_shard_degree is -1"));
  EXPECT_THAT(refused("ici_tensor_parallelism=2 per_device_batch_size=2"), HasSubstr("ici_fsdp_parallelism is -1"));
  // As torchtitan ships them: every device has a local batch, some of each layer is recomputed.
  const auto stock = read_words(
      "[training]\nlocal_batch_size = 2\n[parallelism]\ndata_parallel_shard_degree = -1\n"
      "[activation_checkpoint]\nmode = \"selective\"\n");
  EXPECT_EQ(stock->layout, "dp=auto,pp=1,tp=1,micro-batch-size=2,zero=3,recompute=none,schedule=1f1b");
  EXPECT_EQ(stock->batch, 0);
  EXPECT_EQ(stock->micro_batches, 1);
  EXPECT_THAT(stock->notes, ::testing::ElementsAre(HasSubstr("mode selective is counted as if nothing")));
  EXPECT_THAT(read_words("--micro-batch-size 1 --recompute-granularity selective")->notes,
              ::testing::ElementsAre(HasSubstr("recompute-granularity selective")));
  // As the Trainer of Hugging Face wants them.
  const auto filled = read_words(
      "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 4, "
      "\"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": {\"stage\": 3}}");
  EXPECT_EQ(filled->layout, "dp=auto,pp=1,tp=1,micro-batch-size=4,zero=3,recompute=none,schedule=1f1b");
  EXPECT_EQ(filled->micro_batches, 1);
  EXPECT_THAT(filled->notes, ::testing::ElementsAre(HasSubstr("counted as 1")));
  EXPECT_EQ(read_words("dcn_fsdp_parallelism=2 ici_fsdp_parallelism=4 per_device_batch_size=2")->layout,
            "dp=8,pp=1,tp=1,micro-batch-size=2,zero=3,recompute=layer,schedule=1f1b");
}

TEST(ReadWords, WhatIsNotPlannedIsRefused) {
  EXPECT_THAT(refused("--context-parallel-size 2 --micro-batch-size 1"), HasSubstr("context-parallel-size"));
  EXPECT_THAT(refused("--num-layers-per-virtual-pipeline-stage x --pipeline-model-parallel-size 4"),
              HasSubstr("virtual"));
  EXPECT_THAT(refused("--recompute-granularity full --recompute-method block"), HasSubstr("uniform"));
  EXPECT_THAT(refused("{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": \"auto\"}"),
              HasSubstr("which the file does not say"));
  EXPECT_THAT(refused("{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": "
                      "{\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}}"),
              HasSubstr("offload_param: state in the host's memory"));
  EXPECT_THAT(refused("--micro-batch-size two"), HasSubstr("'two'"));
  EXPECT_THAT(refused("torchrun --nproc-per-node 6 x.py --tensor-model-parallel-size 4"), HasSubstr("6 processes"));
  EXPECT_THAT(refused("--micro-batch-size '2"), HasSubstr("quote"));
  EXPECT_THAT(refused("ici_context_parallelism=2 ici_fsdp_parallelism=1"), HasSubstr("context"));
  EXPECT_THAT(refused("ici_data_parallelism=2 ici_fsdp_parallelism=2"), HasSubstr("data and fsdp"));
  EXPECT_THAT(refused("ici_fsdp_parallelism=-1"), HasSubstr("-1"));
  EXPECT_THAT(refused("ici_fsdp_parallelism=8 remat_policy=custom"), HasSubstr("custom"));
  EXPECT_THAT(refused("{\"train_batch_size\": 7, \"train_micro_batch_size_per_gpu\": 2}"),
              HasSubstr("train_batch_size"));
  EXPECT_THAT(refused("{\"train_batch_size\": "), HasSubstr("no JSON"));
  EXPECT_THAT(refused("[parallelism]\ndata_parallel_shard_degree = 1\npipeline_parallel_degree = "
                      "2\n[activation_checkpoint]\nmode = \"none\"\n"),
              HasSubstr("module_fqns_per_model_part is missing"));
  EXPECT_THAT(refused("\"\"\"A plan.\"\"\"\nimport torch\n"), HasSubstr("Python"));
  const std::string torch = "# x\nimport torch\nSTAGES = 2\nSPLIT_BEFORE = []\n";
  EXPECT_THAT(refused(torch + "RECOMPUTE = [True, False]\n"), HasSubstr("of all stages alike"));
  EXPECT_THAT(refused(torch + "SCHEDULE = ScheduleZBVZeroBubble\n"), HasSubstr("ScheduleInterleaved1F1B"));
  EXPECT_THAT(refused(torch + "ORDER = [\n    \"0F0 0B0\",\n    \"1F0 1B0\",\n]\n"), HasSubstr("lists of work"));
  EXPECT_THAT(refused(torch + "MODULES = [\n    [\"h.0\"],\n]\n"), HasSubstr("1 parts for 2 stages"));
  EXPECT_THAT(refused(torch + "SAMPLES = two\n"), HasSubstr("'two'"));
  EXPECT_THAT(refused("# x\nimport jax\nMESH = {\"stage\": 1}\n"), HasSubstr("data"));
  EXPECT_THAT(refused("# x\nimport jax\nMESH = {stage: 1}\n"), HasSubstr("MESH"));
  EXPECT_THAT(refused("# x\nimport jax\nMESH = {\"stage\": 1, \"data\": 2, \"model\": 1}\nRECOMPUTE = yes\n"),
              HasSubstr("'yes'"));
  EXPECT_FALSE(read_words("dp=8,pp=4,micro-batch-size=2"));
  EXPECT_FALSE(read_words(""));
  EXPECT_THAT(read_words("--micro-batch-size 2 --swiglu")->ignored, ::testing::ElementsAre("--swiglu"));
}

// What words say of the model is kept, to be compared with the model's own.
TEST(ReadWords, SizesOfTheModelAreKept) {
  const ReadWords megatron =
      *read_words("--micro-batch-size 2 --global-batch-size 64 --num-layers 40 --seq-length $SEQ --bf16");
  ASSERT_EQ(megatron.sizes.size(), 1u);
  EXPECT_EQ(megatron.sizes[0].word + " " + megatron.sizes[0].value, "--num-layers 40");
  EXPECT_EQ(megatron.sizes[0].size, &architecture::ModelSizes::layers);
  EXPECT_THAT(megatron.ignored, ::testing::ElementsAre("--seq-length"));
  EXPECT_EQ(megatron.dtype, "bf16");
  EXPECT_EQ(megatron.batch_word, "--global-batch-size 64");
  const ReadWords maxtext = *read_words("ici_fsdp_parallelism=8 per_device_batch_size=2 max_target_length=4096");
  ASSERT_EQ(maxtext.sizes.size(), 1u);
  EXPECT_EQ(maxtext.sizes[0].size, &architecture::ModelSizes::sequence);
  EXPECT_EQ(maxtext.batch_word, "per_device_batch_size=2");
  const ReadWords named = *read_words("ici_fsdp_parallelism=8 model_name=llama2-7b dtype=float32");
  EXPECT_EQ(named.maxtext_name, "llama2-7b");
  EXPECT_EQ(named.dtype, "f32");
  EXPECT_TRUE(named.ignored.empty());
  EXPECT_THAT(read_words("--micro-batch-size 2 --recompute-activations")->notes,
              ::testing::ElementsAre(HasSubstr("selective")));
}

// What is typed trains the model that was planned.
TEST(ToType, LinesSayTheModelThatWasDescribed) {
  const auto line = [](const FrameworkPlan& plan, const char* framework) {
    return shell_line(emitted_for(plan, planners::find_framework(framework)).arguments) + " ";
  };
  const auto missing = [](const FrameworkPlan& plan, const char* framework) {
    std::string text;
    for (const std::string& one : emitted_for(plan, planners::find_framework(framework)).missing) text += one + "\n";
    return text;
  };
  FrameworkPlan plan = llama({16, 16});
  plan.samples = 1, plan.micro_batches = 8, plan.servers = having({2}), plan.schedule = Schedule::kGpipe;
  plan.sizes = {"llama3-8b", "bf16", 8192, 32, 4096, 32, 8, 128, 14336, 128256, 0};
  EXPECT_THAT(line(plan, "maxtext"), HasSubstr(" model_name=llama3-8b max_target_length=8192 dtype=bfloat16 "));
  EXPECT_THAT(missing(plan, "maxtext"), AllOf(::testing::Not(HasSubstr("layers")), HasSubstr("(run_name, hardware")));
  plan.sizes.published = "llama3-405b";
  EXPECT_THAT(line(plan, "maxtext"), HasSubstr(" model_name=llama3.1-405b "));
  plan.sizes.published = "deepseek-v3";  // its dense layers are outside of MaxText's pipelines
  const Inexpressible cannot = emitted_for(plan, planners::find_framework("maxtext")).cannot;
  EXPECT_THAT(cannot.what, HasSubstr("deepseek-v3"));
  EXPECT_THAT(cannot.hint, HasSubstr("pipeline_parallel_layers=S*K"));
  EXPECT_EQ(pipeline_fault(planners::find_framework("maxtext"), plan.sizes).what, cannot.what);
  EXPECT_EQ(pipeline_fault(planners::find_framework("megatron"), plan.sizes).what, "");
  plan.sizes.published = "";
  EXPECT_THAT(line(plan, "maxtext"), ::testing::Not(HasSubstr("model_name")));
  EXPECT_THAT(missing(plan, "maxtext"),
              HasSubstr("base_num_decoder_layers=32 base_emb_dim=4096 base_mlp_dim=14336 base_num_query_heads=32 "
                        "base_num_kv_heads=8 head_dim=128 vocab_size=128256"));
  plan.schedule = Schedule::k1f1b;
  EXPECT_THAT(line(plan, "megatron"),
              HasSubstr(" --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
                        "--group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 "
                        "--bf16 "));
  EXPECT_THAT(missing(plan, "megatron"), ::testing::Not(HasSubstr("--num-layers")));
  plan.sizes = {};
  plan.sizes.sequence = 512;
  EXPECT_THAT(line(plan, "megatron"), HasSubstr(" --seq-length 512 --max-position-embeddings 512 "));
  EXPECT_THAT(missing(plan, "megatron"), HasSubstr("--num-layers 32"));
}

// A line that starts is right on every server: torchrun would start a process for each device that it sees.
TEST(ToType, ServersWithDevicesLeftFillInTheirProcesses) {
  FrameworkPlan plan = llama({1});
  plan.replicas = 6, plan.samples = 2, plan.servers = having({4, 3});
  const planners::Framework& megatron = planners::find_framework("megatron");
  const Emitted out = emitted_for(plan, megatron);
  EXPECT_THAT(shell_line(out.launch), HasSubstr("--nnodes 2 --nproc-per-node N "));
  EXPECT_EQ(out.missing.front(), "N is the processes of each server, in order: 4, 2");
  pipeline::PlanToType told;
  told.framework = megatron.name;
  told.arguments = out.launch;
  told.missing = out.missing;
  EXPECT_THAT(to_type_text(told, "", 1, false), HasSubstr("and: N is the processes"));
  plan.replicas = 7;
  EXPECT_THAT(shell_line(emitted_for(plan, megatron).launch), HasSubstr("--nproc-per-node gpu "));
}

TEST(ToType, MaxtextRunsWholeRoundsOfMicroBatches) {
  FrameworkPlan plan = llama({2, 2});
  plan.samples = 1, plan.micro_batches = 5, plan.servers = having({2}), plan.schedule = Schedule::kGpipe;
  EXPECT_THAT(emitted_for(plan, planners::find_framework("maxtext")).cannot.what, HasSubstr("5 micro-batches in 2"));
  EXPECT_EQ(emitted_for(plan, planners::find_framework("jax")).cannot.what, "");
}

// Beside the main file, whatever that is called.
TEST(ToType, FilesOfPythonCanBeImported) {
  EXPECT_EQ(path_beside("ds.json", "stages.py"), "ds_stages.py");
  EXPECT_EQ(path_beside("out/my-run.v2.json", "stages.py"), "out/my_run_v2_stages.py");
  EXPECT_EQ(path_beside("/tmp/7b", "stages.py"), "/tmp/_7b_stages.py");
  EXPECT_EQ(path_beside("./.ds", "schedule.csv"), "./_ds_schedule.csv");
}

TEST(ToType, WhatJaxCallsTheTreeOfVariablesIsNoModule) {
  EXPECT_EQ(planners::module_path("params/layers/5"), "layers.5");
  EXPECT_EQ(planners::module_path("h/5"), "h.5");
  EXPECT_EQ(planners::module_path("params/block 3"), "");
}

TEST(Quote, WordsComeThroughAShellAndToml) {
  EXPECT_EQ(shell_line({"a-b=c", "", "it's", "$x", "E|L"}), "a-b=c '' 'it'\\''s' '$x' 'E|L'");
  EXPECT_EQ(toml_literal("a\"b\\c\n\x7f"), "\"a\\\"b\\\\c\\n\\u007f\"");
}

// A document of so many stages of one replica of one device; `layers` lie at its cuts.
TEST(FrameworkPlan, WhatTheTableLacksIsSaidFirst) {
  pipeline::PlanDocument document;
  document.plan.schedule = Schedule::kAdaptive;
  document.plan.cuts = {1};
  document.plan.device_cuts = {1};
  document.num_devices = 2;
  document.micro_batches = 4;
  document.micro_batch_samples = 2;
  document.replicas = "whole";
  for (int s = 0; s < 2; ++s) {
    pipeline::PlanStage stage;
    stage.replicas = 1;
    stage.in_flight = 2 - s;
    document.stages.push_back(stage);
  }
  FrameworkPlan plan;
  const planners::Framework& megatron = planners::find_framework("megatron");
  EXPECT_EQ(framework_plan(megatron, document, {}, &plan).what, "the schedule adaptive");
  document.plan.schedule = Schedule::k1f1b;
  EXPECT_EQ(framework_plan(megatron, document, {}, &plan).what, "pipelines of a model that names no layers");
  document.stages[1].first_layer = "h/1/mlp";
  EXPECT_EQ(framework_plan(megatron, document, {}, &plan).what, "cuts inside a layer");
  pipeline::LayerSplit split;
  split.layers_per_stage = {{"h", {1, 1}}};
  PlanFacts facts;
  facts.layers = &split;
  EXPECT_THAT(framework_plan(megatron, document, facts, &plan).what, HasSubstr("does not say which layers"));
  split.stage_layers = {{"e", "h/0"}, {"h/1", "n"}};
  split.stage_modules = split.stage_layers;
  EXPECT_EQ(framework_plan(megatron, document, facts, &plan).what, "");
  EXPECT_EQ(plan.batch(), 8);
  EXPECT_EQ(stack_counts(plan).counts, (std::vector<int>{1, 1}));
  document.micro_batch_samples = 0;
  EXPECT_THAT(framework_plan(megatron, document, facts, &plan).what, HasSubstr("does not say the samples"));
  document.micro_batch_samples = 2;
  document.replicas = "fractional";
  EXPECT_THAT(framework_plan(megatron, document, facts, &plan).what, HasSubstr("parts of samples"));
  document.replicas = "whole";
  document.stages[1].width = 2;
  EXPECT_EQ(framework_plan(megatron, document, facts, &plan).what, "stages of different widths");
}

// Servers of 4, 2 and 4 devices.
TEST(FrameworkPlan, ProcessesStandWhereThePlansDevicesDo) {
  FrameworkPlan two = gpt({6, 6});
  two.servers = having({4, 2, 4});
  const auto placed = [&](const std::vector<int>& first, const std::vector<int>& second) {
    Written made = written(two);
    made.document.num_devices = 4;
    const std::vector<int>* devices[] = {&first, &second};
    for (std::size_t s = 0; s < 2; ++s) {
      made.document.stages[s].replicas = made.document.stages[s].devices = 2;
      made.document.stages[s].device_numbers = *devices[s];
    }
    made.document.micro_batch_samples = 2;
    PlanFacts facts;
    facts.layers = &made.layers;
    facts.cluster = two.servers.empty() ? nullptr : &made.cluster;
    FrameworkPlan plan;
    const Inexpressible cannot = framework_plan(planners::find_framework("megatron"), made.document, facts, &plan);
    if (!cannot.what.empty()) return "cannot run " + cannot.what;
    std::string text;
    for (const int used : used_of_servers(plan)) text += std::to_string(used) + " ";
    for (const std::string& said : server_texts(plan)) text += said + "; ";
    for (const std::string& said : device_texts(plan)) text += said + "; ";
    for (const int device : plan.chosen_devices) text += std::to_string(device) + " ";
    return text;
  };
  EXPECT_EQ(placed({1, 2}, {3, 4}), "4 ");
  EXPECT_EQ(placed({1, 2}, {5, 6}), "2 2 0 1 4 5 ");
  EXPECT_EQ(placed({3, 4}, {5, 6}), "2 2 CUDA_VISIBLE_DEVICES=2,3 on server 1 of the cluster; 2 3 4 5 ");
  EXPECT_EQ(placed({7, 8}, {1, 2}), "2 2 its servers are 3, 1 of the cluster, in this order; 6 7 0 1 ");
  EXPECT_EQ(placed({2, 1}, {5, 6}), "2 2 CUDA_VISIBLE_DEVICES=1,0 on server 1 of the cluster; 1 0 4 5 ");
  EXPECT_EQ(placed({1, 2}, {7, 8}), "2 2 its servers are 1, 3 of the cluster, in this order; 0 1 6 7 ");
  two.servers.clear();
  EXPECT_EQ(placed({7, 8}, {1, 2}), "its devices are 7-8, 1-2 of the cluster, in this order; 6 7 0 1 ");
  two.servers = having({4, 2, 4});
  EXPECT_EQ(placed({1, 5}, {2, 6}), "cannot run devices whose order comes back to server 1");
}

// Even groups of replicas leave over what a server has too little of for another.
TEST(FrameworkPlan, EvenGroupsLeaveOutWhatTheirWidthDoes) {
  FrameworkPlan two = gpt({6, 6});
  two.servers = having({4, 2, 4});
  const Written made = written(two);
  pipeline::PlanCorner corner;
  corner.layout = "dp=1,pp=2,tp=3";
  corner.stages = 2;
  corner.width = 3;
  corner.devices = 6;
  corner.micro_batches = 2;
  corner.micro_batch_samples = 1;
  corner.chunk_cuts = {1};
  PlanFacts facts;
  facts.layers = &made.layers;
  facts.cluster = &made.cluster;
  FrameworkPlan plan;
  EXPECT_EQ(framework_plan(planners::find_framework("megatron"), made.document, corner, facts, &plan).what, "");
  EXPECT_EQ(used_of_servers(plan), (std::vector<int>{3, 3}));
  EXPECT_THAT(server_texts(plan), ::testing::ElementsAre("its servers are 1, 3 of the cluster, in this order"));
  EXPECT_EQ(plan.chosen_devices, (std::vector<int>{0, 1, 2, 6, 7, 8}));
}

// By the marks that they leave: names of modules, of operations and of their types.
TEST(ModuleOrigin, JaxAndPyTorchAreKnown) {
  const auto made_with = [](const std::string& name, const std::string& metadata, bool decoder = true) {
    const graph::Graph graph =
        hlo::read_hlo_text("HloModule " + name + "\n\nENTRY main {\n  p = f32[2]{0} parameter(0)" + metadata +
                               "\n  ROOT n = f32[2]{0} negate(p)" + metadata + "\n}\n",
                           "test");
    const planners::Framework* framework = framework_of(graph, decoder);
    return std::string(framework == nullptr ? "" : framework->name);
  };
  EXPECT_EQ(made_with("jit_train_step", ""), "maxtext");
  EXPECT_EQ(made_with("main", ", metadata={op_name=\"jit(step)/jit(main)/neg\"}"), "maxtext");
  EXPECT_EQ(made_with("IrToHlo.12", ""), "torchtitan");
  EXPECT_EQ(made_with("main", ", metadata={op_type=\"aten__neg\" op_name=\"aten__neg\"}"), "torchtitan");
  // A program that trains decoders trains no other models.
  EXPECT_EQ(made_with("jit_train_step", "", false), "jax");
  EXPECT_EQ(made_with("IrToHlo.12", "", false), "torch");
  EXPECT_EQ(made_with("a_inference_step", ", metadata={op_type=\"Neg\" op_name=\"model/Neg\"}"), "");
}

TEST(FrameworkPlan, CutsThatNoStackHasAreNamed) {
  FrameworkPlan plan = gpt({6, 6});
  EXPECT_EQ(stack_counts(plan).why, "");
  std::swap(plan.parts[0].layers, plan.parts[1].layers);
  plan.parts[1].layers = {"lm_head"};
  plan.parts[0].layers.push_back("ln_f");
  EXPECT_THAT(stack_counts(plan).why, HasSubstr("behind its last layer, at lm_head"));
  plan.stacks = {"encoder", "decoder"};
  EXPECT_THAT(stack_counts(plan).why, HasSubstr("several stacks"));
}

}  // namespace
}  // namespace automap::emit
