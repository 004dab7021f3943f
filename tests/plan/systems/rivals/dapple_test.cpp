// DAPPLE's length by hand, beside its definition, and beside what its planner's own figures come to; its search beside
// every plan of two stages.
#include "plan/systems/rivals/dapple.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/pipeline/cost.h"
#include "common/pipeline/random_problem.h"
#include "tests/plan/systems/rivals/small_chains.h"

namespace automap::rivals {
namespace {

using pipeline::Problem;

TEST(Dapple, LengthByHand) {
  const std::vector<DappleStage> stages = {{1, 2, 0}, {1, 1, 0}, {2, 4, 5}};
  EXPECT_EQ(dapple_pivot(stages, 3), 2);
  EXPECT_DOUBLE_EQ(dapple_length_ms(stages, 3), 25);
  // Where the first stage is the longest it is the pivot, and the last stage's exchange ends beneath its backward.
  const std::vector<DappleStage> front = {{5, 10, 1}, {1, 1, 0}, {1, 2, 4}};
  EXPECT_EQ(dapple_pivot(front, 4), 0);
  EXPECT_DOUBLE_EQ(dapple_length_ms(front, 4), 5 + 3 * 15 + 11);
  EXPECT_DOUBLE_EQ(dapple_length_ms({{1, 2, 9}}, 1), 1 + 2 + 9);
}

TEST(Dapple, LengthBesideItsDefinition) {
  pipeline::CounterRandom random(17, 0);
  for (int i = 0; i < 2000; ++i) {
    std::vector<DappleStage> stages;
    const int count = random.integer(1, 9), micro_batches = random.integer(1, 12);
    for (int s = 0; s < count; ++s) {
      stages.push_back({random.log_uniform(0.1, 10), random.log_uniform(0.1, 20), random.log_uniform(0.1, 50)});
    }
    const auto both = [&](int s) {
      const DappleStage& stage = stages[static_cast<std::size_t>(s)];
      return stage.forward_ms + stage.backward_ms;
    };
    int pivot = count - 1;
    for (int s = count - 2; s >= 0; --s) {
      double between = 0;
      for (int k = s + 1; k < pivot; ++k) between += both(k);
      if ((micro_batches - 1) * both(s) > (micro_batches - 1) * both(pivot) + between) pivot = s;
    }
    double warmup = 0, ending = -kInfinity;
    for (int s = 0; s <= pivot; ++s) warmup += stages[static_cast<std::size_t>(s)].forward_ms;
    for (int s = 0; s < count; ++s) {
      double ms = stages[static_cast<std::size_t>(s)].sync_ms;
      for (int k = s; k <= pivot; ++k) ms += stages[static_cast<std::size_t>(k)].backward_ms;
      for (int k = pivot + 1; k < s; ++k) ms -= stages[static_cast<std::size_t>(k)].backward_ms;
      ending = std::max(ending, ms);
    }
    ASSERT_EQ(dapple_pivot(stages, micro_batches), pivot);
    const double expected = warmup + (micro_batches - 1) * both(pivot) + ending;
    ASSERT_NEAR(dapple_length_ms(stages, micro_batches), expected, 1e-9 * expected);
  }
}

TEST(Dapple, OfTwoStagesEveryPlanIsLookedAt) {
  int found = 0, pipelines = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Problem problem = small(seed).problem();
    const auto length = [&](const std::vector<int>& cuts, const std::vector<int>& device_cuts) {
      pipeline::Plan plan;
      plan.schedule = pipeline::Schedule::k1f1b;
      plan.cuts = cuts;
      plan.device_cuts = device_cuts;
      bool fits = true;
      const int stages = plan.num_stages();
      pipeline::for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
        const pipeline::DeviceGroup& group = problem.group(d0, d1);
        int chosen = -1;
        for (int v = 0; group.valid && v < problem.num_variants(); ++v) {
          if (!problem.stage_fits(p0, p1, group, std::min(problem.micro_batches(), stages - s + 1),
                                  problem.stages_need_variables(stages), v)) {
            continue;
          }
          if (chosen < 0 || problem.compute_ms(p0, p1, group, v) < problem.compute_ms(p0, p1, group, chosen))
            chosen = v;
        }
        plan.variants.push_back(static_cast<std::uint8_t>(std::max(0, chosen)));
        return fits = chosen >= 0;
      });
      if (!fits || !pipeline::feasible(problem, plan)) return kInfinity;
      return dapple_length_ms(problem, plan);
    };
    double expected = length({}, {});
    for (int p = 1; p < problem.num_instructions(); ++p) {
      for (int d = 1; d < problem.num_devices(); ++d) expected = std::min(expected, length({p}, {d}));
    }
    const std::optional<ChainPlan> plan = dapple_chain(problem, every_position(problem), 2);
    ASSERT_EQ(plan.has_value(), expected < kInfinity);
    if (!plan) continue;
    ++found;
    pipelines += plan->plan.num_stages() > 1;
    ASSERT_NEAR(plan->objective_ms, expected, 1e-9 * expected);
    ASSERT_NEAR(plan->objective_ms, dapple_length_ms(problem, plan->plan), 1e-9 * expected);
    const std::optional<ChainPlan> more = dapple_chain(problem, every_position(problem), 4);
    ASSERT_TRUE(more);
    ASSERT_LE(more->objective_ms, plan->objective_ms * (1 + 1e-12));
    ASSERT_TRUE(pipeline::feasible(problem, more->plan));
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(pipelines, 50);
}

// Every plan of so many stages, one cut and one device cut after the other; what its longest stage or transfer takes.
class AllBlocks {
 public:
  AllBlocks(const Problem& problem, int stages) : problem_(problem), stages_(stages) { next(0, 0, 0, 0); }
  double least_ms() const { return least_; }
  int plans() const { return plans_; }

 private:
  // `longest_ms` of the stages in front of instruction p0 and device d0.
  void next(int stage, int p0, int d0, double longest_ms) {
    const int n = problem_.num_instructions(), devices = problem_.num_devices();
    if (stage == stages_) {
      if (p0 < n || d0 < devices) return;
      ++plans_;
      least_ = std::min(least_, longest_ms);
      return;
    }
    const bool last = stage + 1 == stages_;
    for (int p1 = p0 + 1; p1 <= n; ++p1) {
      for (int d1 = d0 + 1; d1 <= devices; ++d1) {
        if (last != (p1 == n) || last != (d1 == devices)) continue;
        const pipeline::DeviceGroup& group = problem_.group(d0, d1);
        double ms = kInfinity;
        for (int v = 0; group.valid && v < problem_.num_variants(); ++v) {
          if (problem_.stage_fits(p0, p1, group, std::min(problem_.micro_batches(), stages_ - stage),
                                  problem_.stages_need_variables(stages_), v)) {
            ms = std::min(ms, problem_.compute_ms(p0, p1, group, v));
          }
        }
        if (ms == kInfinity) continue;
        if (!last) ms = std::max(ms, 2 * problem_.transfer_ms(p1, d0, d1, std::min(devices, d1 + d1 - d0)));
        next(stage + 1, p1, d1, std::max(longest_ms, ms));
      }
    }
  }

  const Problem& problem_;
  const int stages_;
  double least_ = kInfinity;
  int plans_ = 0;
};

TEST(Dapple, ShortestBlocksBesideAllPlans) {
  int found = 0, of_three_and_more = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Problem problem = small(seed).problem();
    const std::vector<DappleBlocks> blocks = dapple_blocks(problem, every_position(problem), 5);
    for (int stages = 1; stages <= static_cast<int>(blocks.size()); ++stages) {
      const AllBlocks all(problem, stages);
      const DappleBlocks& of = blocks[static_cast<std::size_t>(stages - 1)];
      ASSERT_EQ(of.longest_ms < kInfinity, all.least_ms() < kInfinity) << stages;
      if (of.longest_ms == kInfinity) continue;
      ++found;
      of_three_and_more += stages >= 3;
      ASSERT_NEAR(of.longest_ms, all.least_ms(), 1e-9 * all.least_ms()) << stages;
      ASSERT_EQ(of.cuts.size() + 1, static_cast<std::size_t>(stages));
      ASSERT_TRUE(std::is_sorted(of.cuts.begin(), of.cuts.end()));
      ASSERT_EQ(of.device_cuts.size(), of.cuts.size());
    }
  }
  EXPECT_GT(found, 300);
  EXPECT_GT(of_three_and_more, 100);
}

// A profile that DAPPLE published (the format of PipeDream's graphs), layers in their order, inputs left out.
struct Layer {
  double ms = 0, activation = 0, weight = 0;  // ms forward and backward; bytes
};
std::vector<Layer> read_layers(const std::filesystem::path& path) {
  std::vector<Layer> layers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto value = [&](const std::string& key) {
      const std::size_t at = line.find(key + "=");
      return std::strtod(line.c_str() + at + key.size() + 1, nullptr);
    };
    if (line.find("forward_compute_time=") == std::string::npos || line.find(" -- Input") != std::string::npos)
      continue;
    layers.push_back({value("forward_compute_time") + value("backward_compute_time"), value("activation_size"),
                      value("parameter_size")});
  }
  return layers;
}

// The least L of every plan of two stages on two servers of eight, with the published planner's links: GB/s 25 inside,
// 1 between two devices and 3 for an all-reduce across. Backward is taken for twice the forward. s.
double least_of_two(const std::vector<Layer>& layers, int micro_batches, int* best_layer, int* best_device) {
  constexpr int kDevices = 16;
  const auto server = [](int d) { return d / 8; };
  const auto all_reduce_s = [&](int d0, int d1, double bytes) {
    const int count = d1 - d0;
    if (count == 1) return 0.0;
    const double share = 2.0 * (count - 1) / count * bytes;
    return share / (server(d0) != server(d1 - 1) ? 3e9 : 25e9 * (count / 2));
  };
  double least = kInfinity;
  for (int cut = 1; cut < static_cast<int>(layers.size()); ++cut) {
    for (int d = 1; d < kDevices; ++d) {
      const auto stage = [&](int first, int last, int d0, int d1) {
        double ms = 0, weight = 0;
        for (int k = first; k < last; ++k) {
          ms += layers[static_cast<std::size_t>(k)].ms;
          weight += layers[static_cast<std::size_t>(k)].weight;
        }
        const double s = ms / 1e3 / (d1 - d0);
        return DappleStage{s / 3, 2 * s / 3, all_reduce_s(d0, d1, weight)};
      };
      const double bytes = layers[static_cast<std::size_t>(cut - 1)].activation;
      int outside = 0;  // senders that are not on the receivers' server
      for (int from = 0; from < d; ++from) outside += server(from) != server(d);
      double sent = bytes / 25e9;
      if (server(d) == server(kDevices - 1)) {
        if (outside > 0) sent = bytes / d * outside / 1e9;
      } else {
        sent = bytes / 3e9;
      }
      const double s = dapple_length_ms(
          {stage(0, cut, 0, d), {sent, sent, 0}, stage(cut, static_cast<int>(layers.size()), d, kDevices)},
          micro_batches);
      if (s >= least) continue;
      least = s;
      *best_layer = cut;
      *best_device = d;
    }
  }
  return least;
}

// Figures of an exhaustive search over the paper's L with the published planner's constants.
TEST(Dapple, LengthsOfPublishedProfiles) {
  const char* corpus = std::getenv("AUTOMAP_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set";
  const std::filesystem::path folder = std::filesystem::path(corpus) / "profiles" / "dapple";
  int layer = 0, device = 0;
  EXPECT_NEAR(least_of_two(read_layers(folder / "vgg-19-pbs-32.txt"), 2048 / 32, &layer, &device), 0.65425, 5e-6);
  EXPECT_EQ(layer, 21);
  EXPECT_EQ(device, 15);
  EXPECT_NEAR(least_of_two(read_layers(folder / "bert-48-pbs-2.txt"), 64 / 2, &layer, &device), 0.74058, 5e-6);
  EXPECT_EQ(device, 8);
}

}  // namespace
}  // namespace automap::rivals
