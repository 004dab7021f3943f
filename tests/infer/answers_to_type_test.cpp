// What is planned for a framework can be typed for it: its row (plan/planners/frameworks.h) and its emitter
// (plan/emit/to_type.h) are one rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/pipeline/random_problem.h"
#include "infer/document.h"
#include "plan/planners/answer.h"
#include "plan/planners/frameworks.h"
#include "plan/planners/kinds.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/plan/planners/random_width.h"

namespace automap::infer {
namespace {

using pipeline::CounterRandom;
using pipeline::RandomProblem;
using pipeline::Schedule;
using planners::Framework;
using planners::Question;

// A stack of 3 to 6 layers of two positions each, with up to two layers in front and behind, on one to four servers of
// one to six devices each, of which some are alike.
RandomProblem layered(std::uint64_t seed) {
  CounterRandom random(seed, 31);
  const int layers = random.integer(3, 6), front = random.integer(0, 2), behind = random.integer(0, 2);
  pipeline::RandomProblemOptions options;
  options.min_instructions = options.max_instructions = 2 * (layers + front + behind);
  options.min_servers = options.max_servers = 1;
  options.min_devices = options.max_devices = 1;
  options.whole = 1;
  options.without_idle = 1;
  options.with_memory_limit = 0.3;
  RandomProblem made = random_problem(seed, options);
  made.profile.layer.clear();
  for (int i = 0; i < made.profile.size(); ++i) {
    const int layer = i / 2 - front;
    const char* const beside[] = {"wpe", "wte", "norm", "head"};
    made.profile.layer.push_back(layer < 0        ? beside[-layer - 1]
                                 : layer < layers ? "h/" + std::to_string(layer)
                                                  : beside[2 + layer - layers]);
  }
  made.profile.attention_heads = random.uniform() < 0.5 ? 0 : random.integer(1, 6);
  const machine::ServerGroup server = made.cluster.servers.front();
  made.cluster.servers.clear();
  const int groups = random.integer(1, 3);
  for (int g = 0; g < groups; ++g) {
    machine::ServerGroup group = server;
    group.count = random.integer(1, 2);
    group.devices = random.integer(1, 6);
    group.inter_gbytes_per_s *= random.uniform() < 0.5 ? 1 : 0.1;
    made.cluster.servers.push_back(group);
  }
  made.options.allow_empty_stages = false;
  made.options.variants.clear();
  for (const bool recompute : {false, true}) {
    for (int zero = 0; zero < 4; ++zero) made.options.variants.push_back({zero, recompute});
  }
  for (const int width : {2, 3, 4}) {
    if (random.uniform() < 0.5) continue;
    made.profile.widths.push_back(planners::random_width(made.profile, width, seed));
    made.profile.widths.back().partition = R"({"partition": {"h": 0}})";
  }
  return made;
}

// Takes seconds, because every framework is asked of every problem.
TEST(AnswersToType, WhatIsPlannedForAFrameworkCanBeTypedForIt) {
  std::vector<planners::KindRow> kinds = planners::uniform_kinds();
  kinds.insert(kinds.end(), planners::beside_kinds().begin(), planners::beside_kinds().end());
  const char* const more = std::getenv("AUTOMAP_MORE_PROBLEMS");
  const std::uint64_t kProblems = more != nullptr ? std::strtoull(more, nullptr, 10) : 10;
  std::uint64_t typed = 0;
  int pipelines = 0, servers = 0;
  for (std::uint64_t seed = 0; seed < kProblems; ++seed) {
    const RandomProblem made = layered(seed);
    CounterRandom random(seed, 32);
    const std::int64_t batch = random.integer(1, 40);
    const int stages = random.uniform() < 0.3 ? random.integer(1, 4) : 0;
    for (const Framework& framework : planners::all_frameworks()) {
      if (!emit::emits(framework)) continue;
      Question question(made.profile, made.cluster, made.options);
      question.step.batch = batch;
      question.request.max_stages = 6;
      question.request.stages = stages;
      question.request.schedules = {Schedule::kAdaptive};
      question.request.effort = planners::plan_effort(Effort::kQuick);
      question.request.effort.units = 100'000;
      question.request.lower_bound = false;
      question.request.policy = planners::random_policy();
      question.framework = &framework;
      question.beside = planners::any_beside();
      const std::string what = std::string(framework.name) + " of " + std::to_string(seed);
      planners::Answer found;
      try {
        found = answer(question, kinds);
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::kUsage) << what << ": " << error.what();
        continue;
      }
      if (!found.one_width.found()) {
        EXPECT_FALSE(found.notes.infeasible.empty()) << what;
        continue;
      }
      PlanInput input;
      input.profile = made.profile;
      const auto document = document_of(question, found, input, {}, {});
      const auto told = to_type(document, question, found.plan().placed, framework, true);
      EXPECT_EQ(told.cannot, "") << what << ": " << found.plan().layout << " b " << batch;
      ++typed;
      pipelines += document.stages.size() > 1 ? 1 : 0;
      servers += document.num_devices > made.cluster.servers.front().devices ? 1 : 0;
    }
  }
  std::printf("typed %d, pipelines %d, servers %d\n", static_cast<int>(typed), pipelines, servers);
  EXPECT_GT(typed, kProblems);
  EXPECT_GT(pipelines, 0);
  EXPECT_GT(servers, 0);
}

}  // namespace
}  // namespace automap::infer
