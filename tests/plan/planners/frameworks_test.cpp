#include "plan/planners/frameworks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/numbers.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/answer.h"
#include "plan/planners/score.h"
#include "plan/planners/step_choice.h"
#include "plan/planners/sweep.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/plan/planners/random_width.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

using pipeline::PlacedPlan;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::RandomProblem;
using pipeline::Schedule;

// Layers of two positions each, but for the last, which takes what is left.
constexpr int kLayerPositions = 2;

RandomProblem layered(std::uint64_t seed, int most_devices) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = 8;
  options.max_instructions = 9;
  options.min_servers = 1;
  options.max_servers = 2;
  options.min_devices = 1;
  options.max_devices = most_devices;
  options.whole = 1;
  options.with_memory_limit = 0.3;
  RandomProblem made = random_problem(seed, options);
  made.profile.layer.clear();
  const int layers = made.profile.size() / kLayerPositions;
  for (int i = 0; i < made.profile.size(); ++i) {
    made.profile.layer.push_back("h/" + std::to_string(std::min(i / kLayerPositions, layers - 1)));
  }
  // No head can be divided among two devices where they are three.
  made.profile.attention_heads = static_cast<std::int64_t>(seed % 3) + 1;
  // In every combination the first layer is one of the stack or not, and the last ones.
  const bool front = seed % 4 >= 2, behind = seed % 2 == 1;
  for (int i = 0; i < kLayerPositions && front; ++i) made.profile.layer[static_cast<std::size_t>(i)] = "embedding";
  for (int i = (front ? 3 : 2) * kLayerPositions; i < made.profile.size() && behind; ++i) {
    made.profile.layer[static_cast<std::size_t>(i)] = i < 3 * kLayerPositions ? "norm" : "head";
  }
  made.options.allow_empty_stages = true;
  made.options.allow_idle_stages = true;
  made.options.variants.clear();
  for (const bool recompute : {false, true}) {
    for (int zero = 0; zero < 4; ++zero) made.options.variants.push_back({zero, recompute});
  }
  return made;
}

int server_of(const machine::Cluster& cluster, int device) {
  int server = 0;
  for (const machine::ServerGroup& group : cluster.servers) {
    for (int s = 0; s < group.count; ++s, ++server, device -= group.devices) {
      if (device < group.devices) return server;
    }
  }
  return server;
}

// The rules again, from plain fields, as docs/frameworks.md has them. "": the plan is within them.
std::string breaks(const std::string& name, const PlacedPlan& placed, const pipeline::Profile& profile,
                   const machine::Cluster& cluster) {
  if (name == "any") return "";
  const auto stages = placed.stages.size();
  std::set<int> replicas, widths, zeros, recomputes;
  for (const pipeline::PlacedStage& stage : placed.stages) {
    replicas.insert(stage.d1 - stage.d0);
    widths.insert(stage.width());
    zeros.insert(stage.problem->options().variants[static_cast<std::size_t>(stage.variant)].zero);
    recomputes.insert(stage.problem->options().variants[static_cast<std::size_t>(stage.variant)].recompute ? 1 : 0);
  }
  if (replicas.size() > 1) return "replicas";
  if (widths.size() > 1) return "widths";
  if (recomputes.size() > 1 && name != "torch") return "recompute";
  if (*replicas.begin() > 1) {
    if (zeros.size() > 1) return "zeros";
    const int zero = *zeros.begin();
    const bool pipelined = stages > 1, wide = *widths.begin() > 1;
    if (name == "jax" && zero == 2) return "zero";
    if (name == "maxtext" && zero != 0 && zero != 3) return "zero";
    if (name == "torch" && zero == 1 && (pipelined || wide)) return "zero";
    if (name == "torchtitan" && (zero == 1 || (zero == 0 && (pipelined || wide)))) return "zero";
    if (name == "megatron" && pipelined && zero > 1) return "zero";
    if (name == "deepspeed" && ((pipelined && zero > 1) || (wide && zero > 2))) return "zero";
  }
  if (profile.attention_heads > 0 && profile.attention_heads % *widths.begin() != 0 && name != "jax") return "heads";
  const Schedule schedule = placed.plan.schedule;
  if (stages > 1) {
    if (name == "deepspeed" && *widths.begin() > 1) return "wide stages";
    if (schedule == Schedule::kAdaptive || schedule == Schedule::k1f1bOverlap) return "schedule";
    if (schedule == Schedule::kGpipe && (name == "megatron" || name == "deepspeed")) return "schedule";
    if (schedule == Schedule::k1f1b && (name == "jax" || name == "maxtext")) return "schedule";
    if (schedule == Schedule::kInterleaved && name != "torch" && name != "torchtitan" && name != "megatron") {
      return "schedule";
    }
    if (schedule == Schedule::kEager) return "schedule";
    const bool lists = schedule == Schedule::kZbH1 || schedule == Schedule::kSearched || schedule == Schedule::kZbV;
    if (lists && name != "torch" && name != "torchtitan") return "schedule";
  }
  if (name == "maxtext") {
    std::map<int, int> used;
    for (const int device : placed.device_numbers()) ++used[server_of(cluster, device)];
    const int each = used.begin()->second, width = *widths.begin(), of_stage = *replicas.begin() * width;
    for (const auto& [server, devices] : used) {
      if (devices != each) return "uneven servers";
    }
    const auto fill = [&](int devices) { return devices % each == 0 || each % devices == 0; };
    if (used.size() > 1 && (!fill(width) || !fill(of_stage))) return "no box of servers";
  }
  std::set<std::size_t> sizes;
  std::vector<pipeline::PlacedPart> parts;
  for (const pipeline::PlacedStage& stage : placed.stages) {
    parts.insert(parts.end(), stage.parts.begin(), stage.parts.end());
  }
  for (const pipeline::PlacedPart& stage : parts) {
    std::set<std::string> layers(profile.layer.begin() + stage.p0, profile.layer.begin() + stage.p1);
    sizes.insert(static_cast<std::size_t>(std::count_if(
        layers.begin(), layers.end(), [](const std::string& layer) { return layer.compare(0, 2, "h/") == 0; })));
    if (stage.p1 < profile.size() &&
        profile.layer[static_cast<std::size_t>(stage.p1)] == profile.layer[static_cast<std::size_t>(stage.p1) - 1]) {
      return "inside a layer";
    }
  }
  if (sizes.size() > 1 && (name == "jax" || name == "maxtext")) return "layers";
  // A module is a layer with variables, or one of the stack where any of it has some.
  const auto holder = [&](int i) {
    const std::string& layer = profile.layer[static_cast<std::size_t>(i)];
    return layer.compare(0, 2, "h/") == 0 ? "h" : layer;
  };
  std::set<std::string> holders;
  for (int i = 0; i < profile.size(); ++i) {
    if (profile.w_bytes[static_cast<std::size_t>(i)] > 0) holders.insert(holder(i));
  }
  for (const pipeline::PlacedPart& stage : parts) {
    if ((name != "torch" && name != "deepspeed") || holders.empty()) continue;
    bool module = false;
    for (int i = stage.p0; i < stage.p1; ++i) module = module || holders.count(holder(i)) > 0;
    if (!module) return "no module";
  }
  for (const pipeline::PlacedPart& stage : parts) {
    if ((name != "megatron" && name != "torchtitan") || stage.p0 == 0) continue;
    const auto of_stack = [&](int i) { return profile.layer[static_cast<std::size_t>(i)].compare(0, 2, "h/") == 0; };
    if (!of_stack(stage.p0) && !of_stack(stage.p0 - 1)) return "beside the stack";
  }
  return "";
}

Question question_of(const RandomProblem& made, const Framework& framework, std::int64_t batch) {
  Question question(made.profile, made.cluster, made.options);
  question.step.batch = batch;
  question.request.max_stages = 4;
  question.request.schedules = {Schedule::kAdaptive};
  question.request.effort = plan_effort(Effort::kQuick);
  question.request.policy = random_policy();
  question.framework = &framework;
  return question;
}

TEST(Frameworks, RowsAreSound) {
  std::set<std::string> names;
  for (const Framework& row : all_frameworks()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.schedules.empty()) << row.name;
    EXPECT_NE(std::string(row.by), "") << row.name;
    EXPECT_TRUE(std::count(row.zero_alone.begin(), row.zero_alone.end(), 0)) << row.name;
    EXPECT_TRUE(
        std::includes(row.zero_alone.begin(), row.zero_alone.end(), row.zero_wide.begin(), row.zero_wide.end()));
    EXPECT_TRUE(
        std::includes(row.zero_wide.begin(), row.zero_wide.end(), row.zero_stages.begin(), row.zero_stages.end()));
    EXPECT_EQ(&find_framework(row.name), &row);
    EXPECT_EQ(limits_plans(row), std::string(row.name) != "any");
  }
  try {
    find_framework("megtron");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("did you mean megatron?"), std::string::npos) << error.what();
  }
}

std::string row_levels(const std::vector<int>& levels) {
  std::vector<std::string> texts;
  for (const int level : levels) texts.push_back(std::to_string(level));
  return join(texts);
}

TEST(Frameworks, DocsListThem) {
  const std::string docs = read_file(std::string(AUTOMAP_SOURCE_DIR) + "/docs/frameworks.md");
  for (const Framework& row : all_frameworks()) {
    std::vector<std::string> schedules;
    for (const Schedule schedule : row.schedules) schedules.push_back(to_string(schedule));
    const std::string line = "| `" + std::string(row.name) + "` | " + row.what + " | " + join(schedules) + " | " +
                             (row.mesh ? "as many" : "any") + " | " + to_string(row.cuts) + " | " +
                             row_levels(row.zero_alone) + " | " + row_levels(row.zero_wide) + " | " +
                             row_levels(row.zero_stages) + " | " + (row.whole_heads ? "whole" : "any") + " | " +
                             (row.wide_stages ? "yes" : "no") + " | " +
                             (row.recompute_by_stage ? "by stage" : "all or none") + " |\n";
    EXPECT_NE(docs.find(line), std::string::npos) << "docs/frameworks.md lacks the row\n" << line;
    if (!limits_plans(row)) continue;
    EXPECT_NE(docs.find("- `" + std::string(row.name) + "`: " + row.by + "\n"), std::string::npos)
        << "docs/frameworks.md lacks\n- `" << row.name << "`: " << row.by;
  }
}

// Every plan of the problem, with every variant of the stages the same or not.
void for_each_plan_of_stages(const Problem& problem, const std::function<void(const Plan&)>& visit) {
  const int n = problem.num_instructions(), devices = problem.num_devices(), variants = problem.num_variants();
  for (const Schedule schedule : pipeline::alternating_schedules()) {
    for (int stages = 1; stages <= std::min(3, devices); ++stages) {
      Plan plan;
      plan.schedule = schedule;
      const std::function<void(int)> grow = [&](int stage) {
        for (int v = 0; v < variants; ++v) {
          plan.variants.push_back(static_cast<std::uint8_t>(v));
          if (stage == stages) {
            visit(plan);
          } else {
            for (int cut = plan.cuts.empty() ? 1 : plan.cuts.back() + 1; cut < n; ++cut) {
              plan.cuts.push_back(cut);
              for (int d = plan.device_cuts.empty() ? 1 : plan.device_cuts.back() + 1; d < devices; ++d) {
                plan.device_cuts.push_back(d);
                grow(stage + 1);
                plan.device_cuts.pop_back();
              }
              plan.cuts.pop_back();
            }
          }
          plan.variants.pop_back();
        }
      };
      grow(1);
    }
  }
}

// On tiny problems the filter lets through exactly what the rules do, and the search finds the best of that.
TEST(Frameworks, BruteForce) {
  int compared = 0, longer = 0;
  for (std::uint64_t seed = 0; seed < 16 / kShare; ++seed) {
    RandomProblem made = layered(seed, 2);
    // Few variants, so that all plans are few.
    made.options.variants = {{0, false}, {1, false}, {2, seed % 2 == 0}};
    const std::int64_t samples = 4;
    made.options.micro_batch_samples = static_cast<double>(samples);
    made.options.micro_batches = 2;
    std::unique_ptr<Problem> problem;
    try {
      problem = std::make_unique<Problem>(made.profile, made.cluster, made.options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUsage) throw;  // more samples than times are known for
      continue;
    }
    // In pipelines of torch and torchtitan a stage has all of its gradients in memory, whatever shards them.
    made.options.whole_gradients = true;
    const Problem whole(made.profile, made.cluster, made.options);
    made.options.whole_gradients = false;
    std::vector<double> best(all_frameworks().size(), kInfinity);
    for_each_plan_of_stages(*problem, [&](const Plan& plan) {
      for (const pipeline::PlacedStage& stage : place(*problem, plan).stages) {
        if (!stage.group().valid) return;
      }
      const PlacedPlan placed = place(*problem, plan);
      // One stage under a schedule of another name: what is in flight decides.
      if (plan.num_stages() == 1 && plan.schedule != Schedule::k1f1b) return;
      const bool fits = feasible(*problem, plan), fits_whole = feasible(whole, plan);
      double length = 0;
      for (std::size_t f = 0; f < all_frameworks().size(); ++f) {
        const Framework& framework = all_frameworks()[f];
        const std::string rule = breaks(framework.name, placed, made.profile, made.cluster);
        const std::string why = inexpressible(framework, placed, made.profile);
        ASSERT_EQ(rule.empty(), why.empty()) << framework.name << ": " << rule << " / " << why;
        const bool keeps = plan.num_stages() > 1 && framework.name == std::string("torch");
        const bool titan = plan.num_stages() > 1 && framework.name == std::string("torchtitan");
        if (!(keeps || titan ? fits_whole : fits) || !rule.empty()) continue;
        if (length == 0) length = simulate_step_ms(*problem, plan);
        best[f] = std::min(best[f], length);
      }
    });
    for (std::size_t f = 1; f < all_frameworks().size(); ++f) {
      Question question = question_of(made, all_frameworks()[f], samples * 2);
      question.step.micro_batch = samples;
      question.request.max_stages = 3;
      const StepPlan found = plan_step(question);
      if (best[f] == kInfinity) continue;  // fewer devices may have one
      ++compared;
      ASSERT_TRUE(found.result.plan) << all_frameworks()[f].name << " of " << seed << ": " << found.result.infeasible;
      if (found.result.simulated_step_ms > best[f] * (1 + 1e-9)) ++longer;
      EXPECT_LE(found.result.simulated_step_ms, best[f] * 1.1) << all_frameworks()[f].name << " of " << seed;
      EXPECT_LE(found.result.lower_bound_ms, found.result.step_ms * (1 + 1e-9));
      EXPECT_LE(found.bounds.simulated_ms, best[f] * (1 + 1e-9));
    }
  }
  EXPECT_GT(compared, 0);
  EXPECT_LE(longer, compared / 10 + 1) << "of " << compared;
}

// Whatever is asked, all that the answer calls a plan is within the rules. Takes two seconds: each row of the
// frameworks asks for each row of the kinds.
TEST(Frameworks, AnswersAreWithinTheRules) {
  std::vector<KindRow> kinds = uniform_kinds();
  kinds.insert(kinds.end(), beside_kinds().begin(), beside_kinds().end());
  int found = 0, pipelines = 0;
  for (std::uint64_t seed = 100; seed < (kSanitized ? 102 : 108); ++seed) {
    RandomProblem made = layered(seed, 4);
    if (made.cluster.servers.front().devices % 2 == 0 && made.cluster.servers.back().devices % 2 == 0) {
      made.profile.widths.push_back(random_width(made.profile, 2, seed));
    }
    for (const Framework& framework : all_frameworks()) {
      Question question = question_of(made, framework, 16);
      question.beside.schedules = {Schedule::kEager, Schedule::kInterleaved, Schedule::kZbH1, Schedule::kSearched,
                                   Schedule::kZbV};
      question.beside.chunks = {2};
      question.beside.mixed_widths = true;
      if (seed % 3 == 0) question.request.planner = PlannerKind::kPolicy;
      if (seed % 4 == 1 && made.cluster.num_devices() > 1) question.request.stages = 2;
      Answer out;
      try {
        out = answer(question, kinds);
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::kUsage) << error.what();  // devices and samples that have no divisor
        continue;
      }
      if (!out.one_width.found()) {
        EXPECT_FALSE(out.notes.infeasible.empty());
        continue;
      }
      ++found;
      const Candidate& plan = out.plan();
      pipelines += plan.num_stages() > 1 && limits_plans(framework) ? 1 : 0;
      EXPECT_EQ(breaks(framework.name, plan.placed, made.profile, made.cluster), "")
          << framework.name << " of " << seed;
      EXPECT_TRUE(pipeline::infeasible_reason(plan.placed).empty());
      EXPECT_DOUBLE_EQ(plan.simulated_step_ms, simulate_step_ms(plan.placed));
      EXPECT_LE(out.bounds.value_ms, out.one_width.step_ms * (1 + 1e-9)) << framework.name << " of " << seed;
      for (const Candidate& kind : out.kinds) {
        if (!kind.found()) continue;
        EXPECT_EQ(breaks(framework.name, kind.placed, made.profile, made.cluster), "") << kind.kind << " of " << seed;
      }
      EXPECT_FALSE(limits_plans(framework) && out.mixed);
      if (!limits_plans(framework) || framework.cuts == FrameworkCuts::kInstructions) continue;
      const LayerResult layers = split_at_layers(question, out);
      EXPECT_EQ(layers.split.has_value(), plan.num_stages() > 1);
      EXPECT_TRUE(!layers.split || layers.split->cuts == plan.placed.plan.cuts);
    }
  }
  EXPECT_GT(found, 20 / kShare);
  EXPECT_TRUE(kSanitized || pipelines > 0);
}

// The batch that nobody gives depends on the framework, the devices and the stages asked for alone.
TEST(Frameworks, UsualBatchesSplitIntoWholeRounds) {
  RandomProblem made = layered(100, 2);
  made.profile.micro_batch_size = 16;
  machine::ServerGroup server = made.cluster.servers.front();
  server.count = 1;
  const auto batch = [&](const char* framework, int devices, int stages) {
    server.devices = devices;
    made.cluster.servers = {server};
    Question question(made.profile, made.cluster, made.options);
    question.framework = &find_framework(framework);
    question.request.max_stages = 8;
    question.request.stages = stages;
    return usual_batch_of(question);
  };
  for (const char* framework : {"any", "jax", "megatron"}) EXPECT_EQ(batch(framework, 24, 0), 256);
  EXPECT_EQ(batch("maxtext", 16, 0), 256);
  EXPECT_EQ(batch("maxtext", 24, 0), 384);  // 3 and 6 stages
  EXPECT_EQ(batch("maxtext", 16, 3), 384);
  EXPECT_EQ(batch("maxtext", 24, 4), 256);
  EXPECT_EQ(batch("maxtext", 10, 0), 320);
  EXPECT_EQ(batch("maxtext", 7, 0), 448);
  EXPECT_EQ(batch("maxtext", 13, 0), 256);  // no pipeline of so many stages
}

TEST(Frameworks, NarrowingTwiceIsAsOnce) {
  for (const Framework& framework : all_frameworks()) {
    for (const std::vector<Schedule>& asked :
         {std::vector<Schedule>{Schedule::kAdaptive}, pipeline::alternating_schedules()}) {
      Question question = question_of(layered(1, 2), framework, 16);
      question.request.schedules = asked;
      apply_framework(question);
      const std::vector<Schedule> schedules = question.request.schedules;
      const auto variants = question.options.variants;
      apply_framework(question);
      EXPECT_EQ(question.request.schedules, schedules) << framework.name;
      EXPECT_TRUE(question.options.variants == variants) << framework.name;
      EXPECT_EQ(question.step.equal_replicas, framework.mesh) << framework.name;
    }
  }
}

TEST(Frameworks, SweepsLeaveOutWhatTheyCannotRun) {
  const RandomProblem made = layered(3, 2);
  for (const Framework& framework : all_frameworks()) {
    Question question = question_of(made, framework, 16);
    apply_framework(question);
    SweepRequest request;
    request.schedules = question.request.schedules;
    for (const SweptLayout& swept : sweep_layouts(question, request).layouts) {
      Question of_batch = question;
      const ScoredPlan scored = score_layout(swept.layout, of_batch);
      EXPECT_EQ(breaks(framework.name, scored.placed, made.profile, made.cluster), "")
          << framework.name << swept.layout.text();
    }
  }
}

// The best of all grids, and of those of several stages, is among those that were not left out.
TEST(Sweeps, LeaveOutNoBestOne) {
  std::size_t swept = 0, all = 0, kept = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = layered(seed, 4);
    made.options.variants = {{0, false}, {1, false}, {0, true}};
    const Question question = question_of(made, any_framework(), 16);
    SweepRequest request;
    request.schedules = question.request.schedules;
    std::vector<SweptLayout> whole;
    try {
      whole = sweep_layouts(question, request).layouts;
    } catch (const Error&) {
      continue;  // no grid divides batch, devices and layers
    }
    ++swept;
    request.only_best = true;
    const std::vector<SweptLayout> best = sweep_layouts(question, request).layouts;
    all += whole.size();
    kept += best.size();
    for (const int stages : {1, 2}) {
      const auto first = [&](const std::vector<SweptLayout>& layouts) {
        return std::find_if(layouts.begin(), layouts.end(), [&](const auto& one) { return one.layout.pp >= stages; });
      };
      ASSERT_EQ(first(whole) == whole.end(), first(best) == best.end());
      if (first(whole) == whole.end()) continue;
      EXPECT_EQ(first(whole)->layout.text(), first(best)->layout.text());
      EXPECT_EQ(first(whole)->simulated_step_ms, first(best)->simulated_step_ms);
    }
  }
  EXPECT_GT(swept, 20u);
  EXPECT_LT(kept, all);
}

TEST(Frameworks, ModelsWithoutLayersAreCutAtInstructions) {
  RandomProblem made = layered(5, 2);
  EXPECT_EQ(no_layers_text(find_framework("megatron"), made.profile), "");
  made.profile.layer.clear();
  EXPECT_NE(no_layers_text(find_framework("megatron"), made.profile), "");
  EXPECT_EQ(no_layers_text(any_framework(), made.profile), "");
}

}  // namespace
}  // namespace automap::planners
