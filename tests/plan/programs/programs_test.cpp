#include "plan/programs/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_writer.h"
#include "plan/programs/program_set.h"
#include "plan/programs/stage_program.h"
#include "plan/programs/step_cut.h"

namespace automap::programs {
namespace {

using graph::kNone;
using graph::NodeId;
using ::testing::HasSubstr;

struct Fixture {
  explicit Fixture(const std::string& file)
      : module(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + file)),
        step(graph::analyze_training_step(module.graph)),
        order(graph::order_forward(step)) {}
  int size() const { return static_cast<int>(order.order.size()); }

  hlo::HloModule module;
  graph::TrainingStep step;
  graph::FlowOrder order;
};

CutRequest drawn_cuts(const Fixture& of, int parts, int groups, std::mt19937* random) {
  CutRequest request;
  std::set<int> cuts;
  while (static_cast<int>(cuts.size()) < parts - 1) {
    cuts.insert(static_cast<int>((*random)() % static_cast<unsigned>(of.size() - 1)) + 1);
  }
  request.cuts.assign(cuts.begin(), cuts.end());
  for (int p = 0; p < parts; ++p) request.group_of_part.push_back(p % groups);
  request.micro_batches = 4;
  return request;
}

// Forwards in the model's order, backwards against it, then the phases of updates.
int when(const Unit& unit) {
  constexpr int kFar = 1000;
  switch (unit.kind) {
    case Kind::kForward: return unit.part;
    case Kind::kBackward: return 2 * kFar - unit.part;
    default: return 3 * kFar + unit.phase;
  }
}

void check_programs(const Fixture& of, const StepCut& cut, const ProgramSet& set) {
  const graph::FlowGraph& flow = of.step.flow;
  // The obvious twin: all that the results need is made, and but for what is repeated made once.
  std::vector<bool> needed(static_cast<std::size_t>(flow.size()), false);
  for (const NodeId result : flow.results()) needed[static_cast<std::size_t>(result)] = true;
  for (NodeId id = flow.size(); id-- > 0;) {
    if (!needed[static_cast<std::size_t>(id)]) continue;
    for (const NodeId operand : flow.operands(id)) needed[static_cast<std::size_t>(operand)] = true;
  }
  std::vector<int> made(static_cast<std::size_t>(flow.size()), 0);
  for (const Program& program : set.programs) {
    std::set<NodeId> known(program.reads.begin(), program.reads.end());
    for (const NodeId id : program.inside) {
      ++made[static_cast<std::size_t>(id)];
      for (const NodeId operand : flow.operands(id)) EXPECT_TRUE(known.count(operand)) << program.name();
      known.insert(id);
    }
    for (const NodeId id : program.makes) EXPECT_TRUE(known.count(id)) << program.name();
    for (const NodeId id : program.reads) {
      if (cut.input_of(id) != kNone) continue;
      const Unit& from = set.made_by.at(id);
      // Later phases read what earlier ones made, and only across groups.
      EXPECT_LT(when(from), when(program.unit)) << program.name() << " reads " << cut.named(id);
      const bool sent = std::any_of(set.programs.begin(), set.programs.end(), [&](const Program& other) {
        return other.unit == from && std::count(other.makes.begin(), other.makes.end(), id) == 1;
      });
      EXPECT_TRUE(sent) << cut.named(id);
    }
  }
  for (NodeId id = 0; id < flow.size(); ++id) {
    if (cut.input_of(id) != kNone || !needed[static_cast<std::size_t>(id)]) continue;
    const int times = made[static_cast<std::size_t>(id)];
    EXPECT_GE(times, 1) << cut.named(id);
    if (cut.unit(id).kind != Kind::kRepeat) {
      EXPECT_EQ(times, 1) << cut.named(id);
    }
  }
}

TEST(Programs, EveryInstructionIsInOneOfThemOrCheaplyRepeated) {
  std::mt19937 random(32);
  for (const char* file :
       {"tiny_mlp.hlo", "lit_small.stripped.hlo.gz", "grouped_query.hlo.gz", "set_prediction.hlo.gz"}) {
    const Fixture of(file);
    for (const auto& [parts, groups] : std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {3, 3}, {4, 2}}) {
      const StepCut cut(of.step, of.order, drawn_cuts(of, parts, groups, &random));
      const ProgramSet set = cut_programs(cut, std::vector<bool>(static_cast<std::size_t>(groups), false));
      SCOPED_TRACE(std::string(file) + " " + std::to_string(parts));
      check_programs(of, cut, set);
      for (const Program& program : set.programs) {
        const graph::Graph module =
            extract_program(of.step.flow, program.name(), program.inside, program.reads, program.makes);
        const hlo::HloModule again = hlo::read_hlo(hlo::write_hlo_text(module), program.name());
        EXPECT_EQ(again.graph.entry().parameters.size(), program.reads.size());
        EXPECT_EQ(again.graph.shape_of(again.graph.entry().root).elements.size(), program.makes.size());
        for (std::size_t i = 0; i < program.reads.size(); ++i) {
          EXPECT_EQ(again.graph.shape_of(again.graph.entry().parameters[i]).text,
                    of.step.flow.shape(program.reads[i]).text);
        }
      }
    }
  }
}

TEST(Programs, ClippingByTheGlobalNormHasPhases) {
  const Fixture of("lit_small.stripped.hlo.gz");
  int with_phases = 0;
  for (int eighth = 1; eighth < 8; ++eighth) {
    CutRequest request;
    request.cuts = {of.size() * eighth / 8};
    request.group_of_part = {0, 1};
    request.micro_batches = 4;
    const StepCut cut(of.step, of.order, request);
    with_phases += cut.num_phases() > 1 ? 1 : 0;
    // Only numbers go between the phases.
    const ProgramSet set = cut_programs(cut, {false, false});
    for (const Program& program : set.programs) {
      for (const NodeId id : program.reads) {
        const auto from = set.made_by.find(id);
        if (from == set.made_by.end() || from->second.kind != Kind::kUpdate || from->second.part == program.group)
          continue;
        EXPECT_LE(of.step.flow.shape(id).num_elements, 1) << cut.named(id);
      }
    }
  }
  // Cuts within the frozen tower leave all that is trained to one group.
  EXPECT_GE(with_phases, 1);
  EXPECT_LT(with_phases, 7);
}

TEST(Programs, RecomputationMakesTheForwardAgain) {
  const Fixture of("tiny_mlp.hlo");
  CutRequest request;
  request.cuts = {of.size() / 2};
  request.group_of_part = {0, 1};
  request.micro_batches = 2;
  const StepCut cut(of.step, of.order, request);
  const auto kept = [&](bool recompute) {
    std::size_t count = 0;
    for (const Program& program : cut_programs(cut, {recompute, recompute}).programs) {
      if (program.unit.kind == Kind::kForward) count += program.makes.size();
    }
    return count;
  };
  EXPECT_LT(kept(true), kept(false));
}

pipeline::PlanDocument plan_of(const Fixture& of, int micro_batches) {
  pipeline::PlanDocument plan;
  plan.model = "m";
  plan.num_instructions = of.size();
  plan.micro_batches = micro_batches;
  plan.micro_batch_samples = static_cast<double>(of.step.batch);
  plan.plan.cuts = {of.size() / 2};
  plan.plan.device_cuts = {1};
  plan.stages.resize(2);
  plan.stages[0].in_flight = 2;
  plan.stages[1].in_flight = 1;
  return plan;
}

// A sum that the step's author wrote for eight devices (shard_map, pmap) is nothing that a program can do.
TEST(Programs, CollectivesOfTheStepsOwnAreRefused) {
  const auto extract = [](const std::string& groups) {
    const graph::Graph g = hlo::read_hlo_text(
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
        "ENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] all-reduce(x)" +
            groups + ", to_apply=add\n}",
        "test");
    const graph::FlowGraph flow = graph::FlowGraph::build(g);
    return extract_program(flow, "p", {flow.results()[0]}, {flow.inputs()[0].node}, {flow.results()[0]})
        .num_instructions();
  };
  EXPECT_GT(extract(", replica_groups={}"), 0);
  EXPECT_GT(extract(", replica_groups={{0},{1}}"), 0);
  try {
    extract(", replica_groups={{0,1},{2,3}}");
    FAIL() << "it was cut out";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("instruction 'r' is a collective of the step's own"));
    EXPECT_THAT(e.hint(), HasSubstr("without shard_map or pmap"));
  }
}

TEST(Programs, ThePlanMustBeOneOfTheModule) {
  const Fixture of("tiny_mlp.hlo");
  const auto error_of = [&](const pipeline::PlanDocument& plan) -> std::string {
    try {
      program_files(plan, "plan.json", of.module, "m.hlo");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(plan_of(of, 3)), "");
  pipeline::PlanDocument other = plan_of(of, 3);
  other.num_instructions += 1;
  EXPECT_THAT(error_of(other), HasSubstr("forward instructions, m.hlo has"));
  other = plan_of(of, 3);
  other.micro_batch_samples *= 2;
  EXPECT_THAT(error_of(other), HasSubstr("its micro-batches have 32 samples, the shapes of m.hlo 16"));
  other = plan_of(of, 3);
  other.provenance["model_sha256"] = "0";
  EXPECT_THAT(error_of(other), HasSubstr("made for another file"));
  other = plan_of(of, 3);
  other.stages[0].first_instruction = 1;
  other.stages[0].first_name = "nobody";
  EXPECT_THAT(error_of(other), HasSubstr("begins with 'nobody'"));
  const Fixture forward("vit_forward.stripped.hlo.gz");
  EXPECT_THROW(program_files(plan_of(forward, 1), "plan.json", forward.module, "m.hlo"), Error);
}

}  // namespace
}  // namespace automap::programs
