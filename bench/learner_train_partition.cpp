// Trains one policy for partitionings on many problems, and says what it is worth on others.
//   bench-learner_train_partition OUT.policy [EPISODES [MODULE...]]     (default: 100000, random problems alone)
// Trained on 120 random problems of 8 to 100 groups, by count and by time, a third of them stacks of layers, and on the
// modules given. Judged on random problems that it has not seen and on fixtures/hlo: the value of its first episode
// over the proven optimum (the environment's own first episode, which splits whatever is worth something, stands beside
// it), and the episodes that a search takes to its best from scratch and from this policy.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>

#include "bench/partition_problems.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "plan/partition/learned/rainbow.h"
#include "tests/models/random_partition_problem.h"

namespace {

using automap::bench::NamedProblem;
using automap::models::PartitionObjective;
using automap::models::PartitionProblem;
using automap::partition::PartitionAnswer;
using automap::partition::RainbowOptions;
using automap::partition::SearchLimits;

constexpr int kTrained = 120, kHeldOut = 20;

PartitionProblem random_problem(std::uint64_t n) {
  automap::Rng rng(n, 90, 0);
  automap::models::RandomProblemOptions options;
  options.groups = static_cast<int>(8 + rng.below(93));
  options.variables = options.groups * static_cast<int>(2 + rng.below(3));
  options.exclusions = rng.uniform(0, 0.2);
  if (n % 2) options.objective = PartitionObjective::kTime;
  return random_partition_problem(options, n);
}

// Stacks of layers: of every variable one dimension is in the stack's own group, which excludes the groups of a layer's
// blocks that hold the other; what is better of the two differs.
PartitionProblem stacks(std::uint64_t n) {
  automap::Rng rng(n, 91, 0);
  PartitionProblem problem;
  if (n % 2) problem.objective = PartitionObjective::kTime;
  for (std::uint64_t stack = 1 + rng.below(3); stack-- > 0;) {
    const auto own = static_cast<std::int32_t>(problem.groups.size());
    problem.groups.emplace_back();
    const auto add_variable = [&](std::int32_t group) {
      const auto v = static_cast<std::int32_t>(problem.variables.size());
      problem.variables.push_back({"v" + std::to_string(v), {512, 512}, 1048576});
      problem.groups[static_cast<std::size_t>(own)].members.emplace_back(v, 0);
      if (group >= 0) problem.groups[static_cast<std::size_t>(group)].members.emplace_back(v, 1);
    };
    double saved = 0, collective = 0;
    const std::uint64_t blocks = 1 + rng.below(3), first_size = 1 + rng.below(4);
    for (std::uint64_t layer = 2 + rng.below(20); layer-- > 0;) {
      for (std::uint64_t block = 0; block < blocks; ++block) {
        const auto g = static_cast<std::int32_t>(problem.groups.size());
        problem.groups.emplace_back();
        for (std::uint64_t i = 0; i < first_size + block; ++i) add_variable(g);
        automap::models::PartitionGroup& group = problem.groups.back();
        group.saved_ms = rng.uniform(3, 5);
        group.collective_ms = rng.uniform(0, 2);
        group.saved_bytes = 1e6;
        group.excludes = {own};
        problem.groups[static_cast<std::size_t>(own)].excludes.push_back(g);
        saved += group.saved_ms;
        collective += group.collective_ms;
      }
      for (std::uint64_t i = rng.below(3); i-- > 0;) add_variable(-1);
    }
    problem.groups[static_cast<std::size_t>(own)].saved_ms = rng.uniform(0.6, 1.4) * saved;
    problem.groups[static_cast<std::size_t>(own)].collective_ms = rng.uniform(0.5, 2) * collective;
    problem.groups[static_cast<std::size_t>(own)].saved_bytes = 2e7;
    problem.compute_ms += 1.5 * saved;
    problem.memory_bytes += 1e9;
  }
  for (std::size_t v = 0; v < problem.variables.size(); ++v) {
    bool found = false;
    for (const automap::models::PartitionGroup& group : problem.groups) {
      for (const auto& member : group.members) {
        found = found || member == std::pair<std::int32_t, std::int32_t>(static_cast<std::int32_t>(v), 1);
      }
    }
    if (!found) problem.impossible.emplace_back(static_cast<std::int32_t>(v), 1);
  }
  check_partition_problem(problem);
  return problem;
}

double best_episode(const PartitionAnswer& answer) {
  const std::map<std::string, double> s(answer.statistics.begin(), answer.statistics.end());
  return s.at("best_episode");
}

struct Row {
  std::string name;
  double greedy = 0, first = 0, scratch = 0, policy = 0;  // over the optimum
  double scratch_episode = 0, policy_episode = 0;
  int problems = 0;
};

void judge(const PartitionProblem& problem, const std::string& policy, Row* row) {
  SearchLimits limits;
  limits.units = automap::WorkLimits::kNoEnd;
  limits.budget_s = 20;
  const PartitionAnswer exact = automap::partition::search_enumerate(problem, limits);
  if (!exact.proven || !(exact.score.value > 0)) return;
  RainbowOptions one, two;
  one.episodes = 1;
  two.episodes = 2;
  const double best = exact.score.value;
  row->greedy += automap::partition::rainbow_search(problem, limits, "", one).score.value / best;
  row->first += automap::partition::rainbow_search(problem, limits, policy, two).score.value / best;
  const PartitionAnswer scratch = automap::partition::rainbow_search(problem, limits, "");
  const PartitionAnswer from = automap::partition::rainbow_search(problem, limits, policy);
  row->scratch += scratch.score.value / best;
  row->policy += from.score.value / best;
  row->scratch_episode += best_episode(scratch);
  row->policy_episode += best_episode(from);
  ++row->problems;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: bench-learner_train_partition OUT.policy [EPISODES [MODULE...]]\n");
    return 2;
  }
  try {
    SearchLimits limits;
    limits.units = automap::WorkLimits::kNoEnd;
    std::vector<PartitionProblem> problems;
    for (std::uint64_t n = 0; n < kTrained; ++n) problems.push_back(n % 3 == 2 ? stacks(n) : random_problem(n));
    for (int i = 3; i < argc; ++i) {
      for (NamedProblem& problem : automap::bench::partition_problems(argv[i])) {
        problems.push_back(std::move(problem.problem));
      }
    }
    RainbowOptions options;
    options.episodes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100000;
    if (options.episodes == 0) {
      std::fprintf(stderr, "error: EPISODES is '%s'; expected 1 or more\n", argv[2]);
      return 2;
    }
    options.exploring_episodes = 40 * problems.size();
    options.learner.learning_rate_updates = options.learner.beta_updates = 50000;
    options.learner.ema = 0.999;
    const automap::models::Policy policy = train_partition_policy(problems, limits, options);
    automap::write_file_atomic(argv[1], policy.serialize());
    std::printf("%s\n\n", policy.provenance().c_str());

    std::vector<Row> rows;
    Row random;
    random.name = "random, not seen";
    for (std::uint64_t n = 1000; n < 1000 + kHeldOut; ++n) judge(random_problem(n), argv[1], &random);
    rows.push_back(random);
    Row layered;
    layered.name = "stacks, not seen";
    for (std::uint64_t n = 1000; n < 1000 + kHeldOut; ++n) judge(stacks(n), argv[1], &layered);
    rows.push_back(layered);
    for (const std::string& path : automap::bench::default_modules()) {
      for (const auto& [name, problem] : automap::bench::partition_problems(path)) {
        rows.emplace_back();
        rows.back().name = name;
        judge(problem, argv[1], &rows.back());
      }
    }
    automap::TextTable table({{"problem", automap::TextTable::Align::kLeft},
                              {"problems"},
                              {"rule"},
                              {"policy"},
                              {"search"},
                              {"with policy"},
                              {"best episode"},
                              {"with policy"}});
    for (const Row& row : rows) {
      const auto mean = [&row](double sum) { return automap::format_number(sum / std::max(1, row.problems), 4); };
      table.add_row({row.name, std::to_string(row.problems), mean(row.greedy), mean(row.first), mean(row.scratch),
                     mean(row.policy), mean(row.scratch_episode), mean(row.policy_episode)});
    }
    std::cout << table.render();
  } catch (const automap::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return automap::exit_code(error.kind());
  }
  return 0;
}
