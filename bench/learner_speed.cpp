// Measures an update of the learner per recipe, and the memory of its replay: processor time with one thread, random
// episodes of the default sizes. docs/learner.md has the table.
//   bench-learner_speed [UPDATES]
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "common/base/rng.h"
#include "common/base/text_table.h"
#include "models/learner/learner.h"

namespace automap::models {
namespace {

constexpr int kChildren = 48;

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

Episode random_episode(const LearnerOptions& options, std::uint64_t number) {
  Rng rng(1, 1, number);
  const bool flat = options.family == Family::kFlat, labelled = options.label_weight > 0 && number % 4 == 0;
  Episode episode;
  for (int i = 0; i < (flat ? 6 : 4); ++i) {
    Decision decision;
    decision.actions = flat ? options.actions : kChildren;
    const auto actions = static_cast<std::size_t>(decision.actions);
    decision.inputs.resize(static_cast<std::size_t>(options.inputs) * (flat ? 1 : actions));
    for (float& input : decision.inputs) input = static_cast<float>(rng.uniform(-1, 1));
    if (flat) {
      decision.legal.assign(actions, 1);
    } else {
      decision.log_bound.assign(actions, 0.1f);
    }
    for (std::size_t a = 0; labelled && a < actions; ++a) {
      decision.exact_y.push_back(static_cast<float>(rng.uniform(0.1, 1)));
    }
    decision.chosen = static_cast<int>(rng.below(actions));
    episode.decisions.push_back(std::move(decision));
  }
  episode.y = static_cast<float>(rng.uniform(0.1, 1));
  return episode;
}

void measure(const std::string& name, const LearnerOptions& options, int episodes, int updates, TextTable& table) {
  Learner learner(options);
  for (int i = 0; i < episodes; ++i) learner.add(random_episode(options, static_cast<std::uint64_t>(i)));
  for (int i = 0; i < 10; ++i) learner.update();
  const double start = cpu_ms();
  for (int i = 0; i < updates; ++i) learner.update();
  const double ms = (cpu_ms() - start) / updates;
  const double state_kb = static_cast<double>(learner.save_state().size()) / 1e3;
  char cells[2][32];
  std::snprintf(cells[0], sizeof cells[0], "%.2f", ms);
  std::snprintf(cells[1], sizeof cells[1], "%.0f", state_kb);
  table.add_row({name, cells[0], std::to_string(episodes), cells[1]});
}

}  // namespace
}  // namespace automap::models

int main(int argc, char** argv) {
  using namespace automap::models;
  const int updates = argc > 1 ? std::atoi(argv[1]) : 200;
  if (updates < 1) {
    std::fprintf(stderr, "usage: bench-learner_speed [UPDATES]\n");
    return 2;
  }
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  std::printf("%s; processor time, load of the machine %.1f on %d processors\n\n", check_torch_speed().c_str(), load,
              get_nprocs());
  automap::TextTable table(
      {{"recipe", automap::TextTable::Align::kLeft}, {"ms per update"}, {"episodes"}, {"kB of state"}});
  const LearnerOptions plain;
  LearnerOptions options = plain;
  measure("256 returns + 16 labelled decisions of 48", options, 1000, updates, table);
  options.prioritized = true;
  measure("  with priorities", options, 1000, updates, table);
  options = plain;
  options.distribution = Distribution::kC51;
  measure("  with C51, 101 atoms", options, 1000, updates, table);
  options.distribution = Distribution::kHlGauss;
  measure("  with HL-Gauss, 101 atoms", options, 1000, updates, table);
  options = plain;
  options.returns = Returns::kNStep;
  options.target_every = 100;
  options.double_q = true;
  measure("  one-step double Q", options, 300, updates, table);
  options.n_step = 3;
  options.target_every = 500;
  options.prioritized = true;
  options.batch = 64;
  options.label_weight = 0;
  measure("rainbow: 64 returns, 3-step double Q, priorities", options, 300, updates, table);
  options = plain;
  options.family = Family::kFlat;
  options.inputs = 1700;
  options.hidden = {512, 512};
  options.residual = false;
  options.dueling = options.double_q = options.prioritized = true;
  options.returns = Returns::kNStep;
  options.target_every = 100;
  options.gamma = 0.6;
  options.batch = 64;
  options.replay_episodes = 2000;
  options.label_weight = 0;
  measure("flat, the paper's", options, 300, std::max(1, updates / 4), table);
  std::printf("%s", table.render().c_str());
}
