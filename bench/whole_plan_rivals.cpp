// The whole plan beside those of published planners on the same costs: for every model and cluster the simulated step
// of our plan, of each rival and what it took to find them; then means, the largest gains, and where a rival is
// shorter. The rivals are stand-ins (plan/systems/rivals) on our costs, not the published programs.
// bench-whole_plan_rivals MODEL... [-- CLUSTER...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "infer/input.h"
#include "infer/options.h"
#include "plan/planners/step_choice.h"
#include "plan/planners/sweep.h"
#include "plan/systems/rivals/aceso.h"
#include "plan/systems/rivals/alpa.h"
#include "plan/systems/rivals/galvatron.h"

namespace automap::bench {
namespace {

struct Timed {
  double step_ms = 0, search_s = 0;  // step 0: no plan
};

Timed timed(const std::function<double()>& search) {
  const auto start = std::chrono::steady_clock::now();
  Timed out;
  try {
    out.step_ms = search();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) throw;  // no layout divides the batch
  }
  out.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

struct Rival {
  const char* name;
  double sum = 0, largest = 0;  // of its step / ours
  int compared = 0, shorter = 0, none = 0;
};

int measure(const std::vector<std::string>& models, const std::vector<std::string>& clusters) {
  Rival rivals[] = {{"Alpa"}, {"Galvatron"}, {"Aceso"}, {"Megatron"}, {"ours without the policy"}};
  std::printf("| model | cluster | ours ms (s)");
  for (const Rival& rival : rivals) std::printf(" | %s", rival.name);
  std::printf(" |\n|---|---|---");
  for (std::size_t r = 0; r < std::size(rivals); ++r) std::printf("|---");
  std::printf("|\n");
  for (const std::string& model : models) {
    for (const std::string& name : clusters) {
      infer::InferOptions options;
      options.input.path = model;
      const machine::Cluster cluster = machine::load_cluster(name);
      const infer::PlanInput input = infer::read_input(options.input, cluster);
      const pipeline::Profile& profile = input.profile;
      if (profile.forward_fraction >= 1) continue;  // no training step
      planners::Question question = infer::make_question(options, profile, cluster);
      planners::PlanRequest& request = question.request;
      request.lower_bound = false;
      const auto planned = [&](bool with_policy) {
        request.use_policy = with_policy;
        return timed([&] {
          const planners::StepPlan plan = planners::plan_step(question);
          return plan.result.plan ? plan.result.simulated_step_ms : 0;
        });
      };
      const auto published = [&](const rivals::Planner& planner) {
        const rivals::RivalPlan plan = rivals::best_over_splits(question, {planner});
        return plan.problem ? plan.simulated_step_ms : 0;
      };
      const Timed ours = planned(true);
      const Timed theirs[] = {
          timed([&] { return published(rivals::alpa(profile, request.max_stages)); }),
          timed([&] { return published(rivals::galvatron(profile, request.max_stages)); }),
          timed([&] { return published(rivals::aceso(profile, request.max_stages)); }), timed([&] {
            const planners::Sweep sweep = planners::sweep_layouts(question, {});
            return sweep.layouts.front().missing_bytes > 0 ? 0 : sweep.layouts.front().simulated_step_ms;
          }),
          planned(false)};
      std::printf("| %s | %s | %.2f (%.1f) |", model.substr(model.rfind('/') + 1).c_str(), name.c_str(), ours.step_ms,
                  ours.search_s);
      for (std::size_t r = 0; r < std::size(rivals); ++r) {
        const Timed& one = theirs[r];
        if (one.step_ms <= 0) {
          std::printf(" none |");
          ++rivals[r].none;
          continue;
        }
        const double ratio = ours.step_ms > 0 ? one.step_ms / ours.step_ms : 0;
        std::printf(" %.2f x%.3f (%.1f)%s |", one.step_ms, ratio, one.search_s, ratio < 1 - 1e-9 ? " SHORTER" : "");
        rivals[r].sum += ratio;
        rivals[r].largest = std::max(rivals[r].largest, ratio);
        rivals[r].shorter += ratio < 1 - 1e-9;
        ++rivals[r].compared;
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  std::printf("\n| rival | compared | no plan | mean | largest | shorter than ours |\n|---|---|---|---|---|---|\n");
  for (const Rival& rival : rivals) {
    std::printf("| %s | %d | %d | x%.3f | x%.3f | %d |\n", rival.name, rival.compared, rival.none,
                rival.compared > 0 ? rival.sum / rival.compared : 0, rival.largest, rival.shorter);
  }
  return 0;
}

}  // namespace
}  // namespace automap::bench

int main(int argc, char** argv) {
  std::vector<std::string> models, clusters;
  bool after = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") {
      after = true;
    } else {
      (after ? clusters : models).push_back(argument);
    }
  }
  if (clusters.empty()) clusters = {"config-a", "config-b", "config-c", "h100-2x8", "a100-4x8"};
  try {
    return automap::bench::measure(models, clusters);
  } catch (const automap::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return automap::exit_code(error.kind());
  }
}
