#include "plan/partition/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "common/sharding/model.h"
#include "plan/partition/apply_plan.h"
#include "profile/profile_hlo.h"

namespace automap::partition {
namespace {

using models::PartitionObjective;
using sharding::TensorStateKind;

struct PlannerCase {
  hlo::HloModule module;
  std::unique_ptr<sharding::ShardingModel> model;
  machine::Cluster cluster = machine::load_cluster("config-a");

  PlannerCase(hlo::HloModule read, int shards, const std::vector<graph::VariableRequest>* variables = nullptr)
      : module(std::move(read)) {
    sharding::ModelOptions options;
    options.shards = shards;
    options.variables = variables;
    model = std::make_unique<sharding::ShardingModel>(sharding::ShardingModel::build(module.graph, options));
  }
  static PlannerCase fixture(const std::string& name, int shards = 8) {
    return PlannerCase(hlo::load_hlo(AUTOMAP_SOURCE_DIR "/fixtures/hlo/" + name), shards);
  }
  Planned plan(bool data, PartitionObjective objective = PartitionObjective::kTime) {
    PlanningRequest request;
    request.data = data;
    request.objective = objective;
    return make_plan(model.get(), profile::reference_device("", cluster), cluster, request);
  }
};

const PartitionAlternative* alternative(const PartitionPlan& plan, const std::string& planner) {
  const auto at = std::find_if(plan.alternatives.begin(), plan.alternatives.end(),
                               [&](const PartitionAlternative& a) { return a.planner == planner; });
  return at == plan.alternatives.end() ? nullptr : &*at;
}

TEST(Planner, WhenNothingIsSplitItSaysWhy) {
  const auto why = [](const char* name, int shards, bool data, PartitionObjective objective) {
    PlannerCase c = PlannerCase::fixture(name, shards);
    const Planned planned = c.plan(data, objective);
    EXPECT_EQ(planned.plan.partitioned == 0 && shards > 1, !planned.nothing_split.empty());
    const bool warned = std::any_of(planned.plan.warnings.begin(), planned.plan.warnings.end(),
                                    [&](const auto& w) { return w == "nothing is split: " + planned.nothing_split; });
    EXPECT_EQ(warned, !planned.nothing_split.empty());
    return planned.nothing_split;
  };
  EXPECT_EQ(why("t5_6_6.hlo.gz", 7, false, PartitionObjective::kTime),
            "7 devices divide no dimension of any of the 188 variables; 2, 4 or 8 divide one of each");
  EXPECT_EQ(why("t5_6_6.hlo.gz", 7, true, PartitionObjective::kCount),
            "7 devices divide no dimension of any of the 3 data inputs; 2, 4 or 8 divide one of each");
  EXPECT_EQ(why("tiny_mlp.hlo", 13, false, PartitionObjective::kCount).find("13 devices divide no dimension"), 0u);
  // 7 * 7 * 512 = 25088 is what 7 devices divide.
  EXPECT_EQ(why("vgg19.hlo.gz", 7, false, PartitionObjective::kCount),
            "no dimension that 7 devices divide can be split; automap-search explain says why");
  EXPECT_EQ(why("t5_6_6.hlo.gz", 8, false, PartitionObjective::kTime), "");
  EXPECT_EQ(why("t5_6_6.hlo.gz", 1, false, PartitionObjective::kTime), "");
}

TEST(Planner, FewerDevicesAreNamedWhereTheyAreFaster) {
  const auto named = [](const char* cluster, int shards) {
    PlannerCase c = PlannerCase::fixture("t5_6_6.hlo.gz", shards);
    c.cluster = machine::load_cluster(cluster);
    const Planned planned = c.plan(false);
    EXPECT_EQ(c.model->linkage().shards(), shards);  // as it was
    for (const std::string& warning : planned.plan.warnings) {
      const std::size_t at = warning.find(" of the devices are estimated ");
      if (at != std::string::npos) return std::stoi(warning);
    }
    return 0;
  };
  // Inside a server they are worth their number; between servers of Ethernet they are not.
  EXPECT_EQ(named("config-a", 8), 0);
  EXPECT_EQ(named("config-a", 16), 8);
}

// Two matrices whose products come in heads, 64 of the one and 2 of the other, trained.
TEST(Planner, PartsThatTheDevicesDoNotDivideAreTheReason) {
  std::string text = "HloModule m\nENTRY e {\n  x = f32[4096,1024] parameter(2)\n";
  for (const auto& [w, width, heads] : {std::make_tuple("q", "8192", "64"), std::make_tuple("k", "256", "2")}) {
    const auto add = [&, name = std::string(w)](const std::string& line) { text += "  " + name + line + "\n"; };
    const std::string own(w), product = "f32[4096," + std::string(width) + "]",
                              matrix = "f32[1024," + std::string(width) + "]";
    const std::string parts = "f32[4096," + std::string(heads) + ",128]";
    add(" = " + matrix + " parameter(" + (own == "q" ? "0" : "1") + ")");
    add("y = " + product + " dot(x, " + own + "), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
    add("h = " + parts + " reshape(" + own + "y)");
    add("t = " + parts + " tanh(" + own + "h)");
    add("b = " + product + " reshape(" + own + "t)");
    add("g = " + matrix + " dot(x, " + own + "b), lhs_contracting_dims={0}, rhs_contracting_dims={0}");
    add("n = " + matrix + " subtract(" + own + ", " + own + "g)");
  }
  text += "  ROOT r = (f32[1024,8192], f32[1024,256]) tuple(qn, kn)\n}\n";
  const std::vector<graph::VariableRequest> trained = {{"q", "", ""}, {"k", "", ""}};
  PlannerCase c(hlo::read_hlo(text, "heads.hlo"), 8, &trained);
  const Planned planned = c.plan(false);
  EXPECT_EQ(planned.plan.partitioned, 1);
  ASSERT_EQ(planned.whole.size(), 1u);
  EXPECT_EQ(planned.whole[0].reason,
            "dimension 1: 8 devices do not divide 2, the parts that 256 become (128 each); 2 would");
}

TEST(Planner, EveryTensorIsDecidedAndCountedOnce) {
  for (const char* name : {"tiny_mlp.hlo", "t5_6_6.hlo.gz", "vgg19.hlo.gz", "transformer_scan.hlo.gz"}) {
    for (const bool data : {false, true}) {
      SCOPED_TRACE(std::string(name) + (data ? " data" : " operators"));
      PlannerCase c = PlannerCase::fixture(name, 2);
      const Planned planned = c.plan(data, PartitionObjective::kCount);
      EXPECT_TRUE(planned.decided.complete());
      const auto& inputs = data ? c.model->data() : c.model->variables();
      std::size_t split = 0, whole = 0;
      for (const SplitGroups& groups : planned.split) split += groups.members.size();
      for (const WholeTensors& tensors : planned.whole) {
        EXPECT_FALSE(tensors.reason.empty());
        whole += tensors.inputs.size();
      }
      EXPECT_EQ(split, static_cast<std::size_t>(planned.plan.partitioned));
      EXPECT_EQ(split + whole, inputs.size());
      EXPECT_EQ(planned.plan.decided.size(), inputs.size());
      // The answer is what the searcher promised, and estimates add up.
      ASSERT_FALSE(planned.answers.empty());
      EXPECT_GE(planned.plan.partitioned, planned.answers.front().score.variables);
      EXPECT_NEAR(planned.plan.step_ms, planned.plan.compute_ms + planned.plan.collective_ms, 1e-9);
    }
  }
}

TEST(Planner, ComparesWithWhatElseCouldBeDone) {
  PlannerCase c = PlannerCase::fixture("t5_6_6.hlo.gz");
  const Planned time = c.plan(false);
  for (const char* other : {"replicate", "data parallel", "objective count"}) {
    ASSERT_NE(alternative(time.plan, other), nullptr) << other;
  }
  EXPECT_DOUBLE_EQ(alternative(time.plan, "replicate")->step_ms, time.plan.replicated_step_ms);
  const Planned count = c.plan(false, PartitionObjective::kCount);
  EXPECT_DOUBLE_EQ(alternative(time.plan, "objective count")->step_ms, count.plan.step_ms);
  EXPECT_DOUBLE_EQ(alternative(count.plan, "objective time")->step_ms, time.plan.step_ms);
  EXPECT_GT(count.plan.partitioned, time.plan.partitioned);
  const Planned data = c.plan(true, PartitionObjective::kCount);
  EXPECT_DOUBLE_EQ(alternative(time.plan, "data parallel")->step_ms, data.plan.step_ms);
  EXPECT_DOUBLE_EQ(alternative(data.plan, "operators")->step_ms, time.plan.step_ms);
}

TEST(Planner, ComparingLeavesTheModelAsItWas) {
  // Its batch needs a gather, which a plan of its variables must not contain.
  PlannerCase c = PlannerCase::fixture("lit_small.hlo.gz");
  const Planned operators = c.plan(false, PartitionObjective::kCount);
  EXPECT_TRUE(c.model->gathers().empty());
  EXPECT_TRUE(operators.plan.gathers.empty());
  EXPECT_EQ(operators.plan.all_gathers, 0);
  const Planned data = c.plan(true, PartitionObjective::kCount);
  EXPECT_FALSE(c.model->gathers().empty());
  EXPECT_GT(data.plan.all_gathers, 0);
  EXPECT_EQ(data.plan.partitioned, 2);
  EXPECT_FALSE(data.plan.warnings.empty());
}

TEST(Planner, DataParallelismMeansTheBatch) {
  for (const char* name : {"t5_6_6.hlo.gz", "vgg19.hlo.gz", "resnet50.hlo.gz", "vit_forward.hlo.gz"}) {
    SCOPED_TRACE(name);
    PlannerCase c = PlannerCase::fixture(name);
    const Planned planned = c.plan(true, PartitionObjective::kCount);
    EXPECT_GT(planned.plan.partitioned, 0);
    for (const std::int32_t index : c.model->data()) {
      const sharding::ModelInput& input = c.model->inputs()[static_cast<std::size_t>(index)];
      const sharding::TensorState state = planned.decided.state(input.node);
      ASSERT_EQ(state.kind, TensorStateKind::kSplit) << input.name;
      EXPECT_EQ(state.dim, 0) << input.name;
    }
  }
}

TEST(Planner, ABatchThatDoesNotDivideStaysWholeAndSaysWhatWould) {
  PlannerCase c = PlannerCase::fixture("tiny_mlp.hlo", 7);
  const Planned planned = c.plan(true, PartitionObjective::kCount);
  EXPECT_EQ(planned.plan.partitioned, 0);
  ASSERT_FALSE(planned.plan.warnings.empty());
  EXPECT_NE(planned.plan.warnings.front().find("7 devices do not divide 16; 2, 4, 8 or 16 would"), std::string::npos)
      << planned.plan.warnings.front();
}

TEST(Planner, OneDevice) {
  PlannerCase c = PlannerCase::fixture("tiny_mlp.hlo", 1);
  for (const bool data : {false, true}) {
    const Planned planned = c.plan(data);
    EXPECT_EQ(planned.plan.partitioned, 0);
    EXPECT_TRUE(planned.plan.collectives.empty());
    EXPECT_DOUBLE_EQ(planned.plan.step_ms, planned.plan.replicated_step_ms);
    EXPECT_FALSE(planned.plan.warnings.empty());
  }
}

TEST(Planner, NothingToDecide) {
  const std::string text =
      "HloModule m\nENTRY e {\n  c = f32[8] constant({1,2,3,4,5,6,7,8})\n  ROOT r = f32[8] negate(c)\n}\n";
  PlannerCase c(hlo::read_hlo(text, "m.hlo"), 8);
  for (const bool data : {false, true}) {
    try {
      c.plan(data);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      EXPECT_NE(std::string(e.what()).find("module 'm' has no "), std::string::npos);
    }
  }
}

TEST(Planner, MemoryLimits) {
  PlannerCase c = PlannerCase::fixture("vgg19.hlo.gz");
  PlanningRequest request;
  request.memory_limit_bytes = 1000;
  const machine::DeviceModel device = profile::reference_device("", c.cluster);
  try {
    make_plan(c.model.get(), device, c.cluster, request);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInfeasible);
    EXPECT_NE(e.hint().find("--memory off"), std::string::npos);
  }
  // A limit between the fastest plan and the leanest.
  const Planned free = c.plan(false);
  request.memory_limit_bytes = 0.99 * free.plan.memory_bytes;
  try {
    const Planned tight = make_plan(c.model.get(), device, c.cluster, request);
    EXPECT_LE(tight.plan.memory_bytes, request.memory_limit_bytes);
    EXPECT_GE(tight.plan.step_ms, free.plan.step_ms);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInfeasible);  // the fastest is the leanest
  }
}

// Less memory never gets a quicker plan than more, and what fitted under a larger limit is found again under every
// limit that it fits.
TEST(Planner, MemoryLimitsAreNotOvershot) {
  constexpr double kMib = 1 << 20;
  struct Known {
    const char* fixture;
    std::vector<double> limits_mib;
  };
  for (const Known& known : {Known{"resnet50.hlo.gz", {497.1, 469.5, 441.9}}, {"gpt2.hlo.gz", {5250}}}) {
    double last_ms = 0, last_bytes = 0;
    for (const double limit : known.limits_mib) {
      SCOPED_TRACE(std::string(known.fixture) + " " + std::to_string(limit));
      PlannerCase c = PlannerCase::fixture(known.fixture);
      PlanningRequest request;
      request.reshard = true;
      request.memory_limit_bytes = limit * kMib;
      const PartitionPlan plan =
          make_plan(c.model.get(), profile::reference_device("", c.cluster), c.cluster, request).plan;
      EXPECT_LE(plan.memory_bytes, limit * kMib);
      EXPECT_GE(plan.step_ms, last_ms);
      // Another limit's plan that fits here, too.
      if (last_bytes > 0 && last_bytes <= limit * kMib) {
        EXPECT_LE(plan.step_ms, last_ms * (1 + 1e-9));
      }
      last_ms = plan.step_ms;
      last_bytes = plan.memory_bytes;
      if (std::string(known.fixture) == "gpt2.hlo.gz") {
        EXPECT_LT(plan.step_ms, 77);
      }
      if (std::string(known.fixture) == "resnet50.hlo.gz" && limit == 469.5) {
        EXPECT_LT(plan.step_ms, 25.5);
      }
    }
  }
  // The least of all that was found is named.
  PlannerCase c = PlannerCase::fixture("resnet50.hlo.gz");
  PlanningRequest request;
  request.reshard = true;
  request.memory_limit_bytes = 400 * kMib;
  try {
    make_plan(c.model.get(), profile::reference_device("", c.cluster), c.cluster, request);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the least is 441 MiB"), std::string::npos) << e.what();
  }
}

// Nothing is proven where what no weight decides had to be kept whole, and no effort would prove it.
TEST(Planner, TheEffortIsBlamedOnlyWhereItEnded) {
  PlannerCase c = PlannerCase::fixture("lit_small.hlo.gz");
  PlanningRequest request;
  request.reshard = true;
  const Planned planned = make_plan(c.model.get(), profile::reference_device("", c.cluster), c.cluster, request);
  EXPECT_FALSE(planned.plan.proven);
  EXPECT_FALSE(planned.answers.front().cut_by_effort);
  for (const std::string& warning : planned.plan.warnings) EXPECT_EQ(warning.find("effort"), std::string::npos);
}

// Sums that are combined are counted so while plans are compared, and by whoever applies the plan.
TEST(Planner, CombinedSums) {
  PlannerCase apart = PlannerCase::fixture("t5_6_6.hlo.gz"), combined = PlannerCase::fixture("t5_6_6.hlo.gz");
  combined.model->combine_sums(true);
  const PartitionPlan without = apart.plan(false).plan, with = combined.plan(false).plan;
  EXPECT_FALSE(without.sums_combined);
  EXPECT_TRUE(with.sums_combined);
  EXPECT_EQ(without.partial_sums, 102);
  EXPECT_EQ(with.partial_sums, 102);
  EXPECT_EQ(with.all_reduces, 67);
  EXPECT_LT(with.collective_ms, without.collective_ms);
  EXPECT_LT(with.step_ms, without.step_ms);
  EXPECT_TRUE(with.proven);
  // The objective counts every group by itself; the cross-attentions meet besides.
  EXPECT_GT(with.replicated_step_ms - with.value, with.step_ms);
  EXPECT_LT(with.replicated_step_ms - with.value, without.step_ms);
  EXPECT_GE(with.bound, with.value);

  const PartitionPlan read = parse_partition_plan(to_json_text(with), "plan");
  EXPECT_TRUE(read.sums_combined);
  PlannerCase other = PlannerCase::fixture("t5_6_6.hlo.gz");
  const sharding::Propagation decided = apply_plan(other.model.get(), read);
  PartitionPlan again = read;
  describe_decision(*other.model, decided, &again);
  EXPECT_EQ(again.all_reduces, with.all_reduces);
  const Price found = price({other.model.get(), &decided}, profile::reference_device("", other.cluster), other.cluster);
  EXPECT_NEAR(found.estimate.step_ms, with.step_ms, 1e-9 * with.step_ms);
}

// Cuts are found with sums apart, so that nothing is proven of a plan that has some. Parts are kept of the sums.
TEST(Planner, CombinedSumsAndCuts) {
  PlanningRequest request;
  request.reshard = true;
  PlannerCase apart = PlannerCase::fixture("t5_6_6.hlo.gz");
  const PartitionPlan before =
      make_plan(apart.model.get(), profile::reference_device("", apart.cluster), apart.cluster, request).plan;
  PlannerCase c = PlannerCase::fixture("t5_6_6.hlo.gz");
  c.model->combine_sums(true);
  const PartitionPlan plan =
      make_plan(c.model.get(), profile::reference_device("", c.cluster), c.cluster, request).plan;
  ASSERT_FALSE(plan.gathers.empty());
  EXPECT_FALSE(plan.proven);
  EXPECT_GE(plan.bound, plan.value);
  EXPECT_LT(plan.step_ms, before.step_ms);
  const auto in_parts = [](const PartitionPlan& p) {
    return std::count_if(p.collectives.begin(), p.collectives.end(),
                         [](const PlanCollective& each) { return each.kept_in_parts; });
  };
  // q, k and v of twelve self-attentions are one each, k and v of the first cross-attention.
  EXPECT_EQ(in_parts(before) - in_parts(plan), 2 * 12 + 1);
}

}  // namespace
}  // namespace automap::partition
