#include "plan/systems/soap/search.h"

#include <gtest/gtest.h>

#include <limits>

#include "plan/systems/soap/full_simulation.h"
#include "tests/plan/systems/soap/random_space.h"
#include "tests/sanitized.h"

namespace automap::soap {
namespace {

// The shortest step of all strategies, one after the other.
double exhaustive_ms(const Space& space, const Proposals& proposals, const MachineLinks& machine) {
  std::vector<std::int64_t> numbers(space.operators.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  for (;;) {
    Strategy strategy;
    for (OperatorId op = 0; op < space.size(); ++op)
      strategy.push_back(proposals.config(op, numbers[static_cast<std::size_t>(op)]));
    best = std::min(best, simulated_step_ms(space, strategy, machine));
    std::size_t i = 0;
    while (i < numbers.size() && ++numbers[i] == proposals.count(static_cast<OperatorId>(i))) numbers[i++] = 0;
    if (i == numbers.size()) return best;
  }
}

std::vector<Start> all_starts(const Space& space, const Proposals& proposals, std::uint64_t seed) {
  Rng rng(seed, 7, 0);
  return {{"data parallel", data_parallel(space, proposals.devices())},
          {"expert", expert(space, proposals.devices())},
          {"random", random_start(space, proposals, &rng)}};
}

TEST(Search, FindsTheBestOfSmallGraphs) {
  const MachineLinks machine(test_cluster(1));
  for (std::uint64_t item = 0; item < 20 / kShare; ++item) {
    Rng rng(3, 1, item);
    const Space space = random_space(&rng, 1 + static_cast<int>(rng.below(6)));
    const Proposals proposals(space, machine.num_devices(), Placement::kRange);
    std::int64_t strategies = 1;
    for (OperatorId op = 0; op < space.size(); ++op) strategies *= proposals.count(op);
    ASSERT_LE(strategies, 20000);
    Work work(WorkLimits::of_units(200'000'000));
    const SearchResult found = search(space, machine, proposals, all_starts(space, proposals, item), {}, work);
    EXPECT_DOUBLE_EQ(found.step_ms, exhaustive_ms(space, proposals, machine)) << "graph " << item;
    EXPECT_EQ(found.step_ms, simulated_step_ms(space, found.strategy, machine));
  }
}

TEST(Search, IsNeverWorseThanItsStarts) {
  const MachineLinks machine(test_cluster(3));
  for (std::uint64_t item = 0; item < 20 / kShare; ++item) {
    Rng rng(4, 1, item);
    const Space space = random_space(&rng, 12);
    const Placement placement = item % 2 == 0 ? Placement::kRange : Placement::kAny;
    const Proposals proposals(space, machine.num_devices(), placement);
    const std::vector<Start> starts = all_starts(space, proposals, item);
    // From none of a budget to some.
    Work work(WorkLimits::of_units(item % 4 == 0 ? 1 : 10'000'000));
    const SearchResult found = search(space, machine, proposals, starts, {}, work);
    check_strategy(space, found.strategy, machine.num_devices(), "found");
    EXPECT_EQ(found.step_ms, simulated_step_ms(space, found.strategy, machine));
    EXPECT_LE(found.step_ms, found.data_parallel_ms);
    EXPECT_LE(found.step_ms, found.expert_ms);
    for (const Start& start : starts) EXPECT_LE(found.step_ms, simulated_step_ms(space, start.strategy, machine));
    for (const ChainResult& chain : found.chains) EXPECT_LE(chain.best_ms, chain.start_ms);
  }
}

TEST(Search, FindsTheSameAgain) {
  const MachineLinks machine(test_cluster(3));
  Rng rng(5, 1, 0);
  const Space space = random_space(&rng, 10);
  const Proposals proposals(space, machine.num_devices(), Placement::kRange);
  const auto run = [&](std::uint64_t seed) {
    SearchOptions options;
    options.seed = seed;
    Work work(WorkLimits::of_units(25'000'000));
    return search(space, machine, proposals, all_starts(space, proposals, 1), options, work);
  };
  const SearchResult a = run(1), b = run(1), other = run(2);
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.proposals, b.proposals);
  EXPECT_NE(a.proposals, other.proposals);
}

// The paper's rule: a chain ends when it has found nothing better for half of its budget.
TEST(Search, EndsChainsThatFindNothing) {
  const MachineLinks machine(test_cluster(1));
  Space space;
  space.operators.push_back({"op", "dot", "", {{DimKind::kSample, 2}}, 8, 0, 0, 0, false, {}});
  space.link();
  const Proposals proposals(space, 2, Placement::kRange);
  Work work(WorkLimits::of_units(50'000'000));
  const SearchResult found = search(space, machine, proposals, {{"data parallel", data_parallel(space, 2)}}, {}, work);
  ASSERT_GE(found.chains.size(), 1u);
  EXPECT_TRUE(found.chains[0].settled);
  EXPECT_EQ(found.chains[0].best_at, 0);
  EXPECT_TRUE(found.local_optimum);
  EXPECT_LT(work.spent(), 45'000'000);
  EXPECT_EQ(found.step_ms, 4);
}

}  // namespace
}  // namespace automap::soap
