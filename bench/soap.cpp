// The delta simulation of the SOAP search beside the full one: a chain of random proposals, simulated by both.
//   bench-soap [MODEL...] [--devices 4,16,64] [--proposals N] [--every K] [--placement range|any]
//              [--most-looks SHARE]
//   bench-soap [MODEL...] --search 10e9 [--cluster C]...
// Every K-th proposal is simulated in full, too, and the step's length compared to the bit; every 20th of these the
// times of every task. Servers of 8 V100 (config-a's). "full": the task graph built and simulated from nothing, as the
// paper's. Times are CPU time of one thread, a proposal with its acceptance or rejection; a chain begins at data
// parallel and takes proposals as the search does. Exits with 1 where anything differs.
// --search: what the search finds with so many units (10e9: automap-search soap --effort normal), and in what time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/options.h"
#include "common/base/text_table.h"
#include "common/graph/training_step.h"
#include "plan/systems/soap/delta_simulation.h"
#include "plan/systems/soap/operators.h"
#include "plan/systems/soap/proposals.h"
#include "plan/systems/soap/search.h"
#include "profile/profile_hlo.h"

namespace {

using namespace automap;
using namespace automap::soap;

constexpr std::int64_t kTasksEvery = 20;

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Measured {
  double delta_ms = 0, full_ms = 0;  // sums
  std::int64_t proposals = 0, compared = 0, different = 0, accepted = 0;
  double taken = 0;  // tasks taken, per task of the graph
};

Measured measure(const Space& space, const MachineLinks& machine, Placement placement, std::int64_t count, int every,
                 double most_looks) {
  const Proposals proposals(space, machine.num_devices(), placement);
  DeltaSimulation delta(space, machine, data_parallel(space, machine.num_devices()));
  delta.set_most_looks(most_looks);
  const double beta = kDefaultBeta / delta.step_ms();
  double current = delta.step_ms();
  Rng rng(1, 1, 0);
  Measured out;
  while (out.proposals < count) {
    const auto op = static_cast<OperatorId>(rng.below(static_cast<std::uint64_t>(space.size())));
    if (proposals.fixed(op)) continue;
    Config config = proposals.draw(op, &rng);
    const std::int64_t taken = delta.tasks_taken();
    double begin = cpu_ms();
    const double ms = delta.propose(op, std::move(config));
    out.delta_ms += cpu_ms() - begin;
    out.taken += static_cast<double>(delta.tasks_taken() - taken) / delta.num_tasks();
    if (++out.proposals % every == 0) {
      begin = cpu_ms();
      const double full = simulated_step_ms(space, delta.strategy(), machine);
      out.full_ms += cpu_ms() - begin;
      bool same = full == ms;
      if (out.compared++ % kTasksEvery == 0) {
        const Simulated tasks = simulate(space, delta.strategy(), machine);
        same = same && tasks.step_ms == ms && delta.times() == tasks.tasks;
      }
      if (!same) ++out.different;
    }
    const bool taken_over = ms <= current || rng.uniform() < std::exp(beta * (current - ms));
    begin = cpu_ms();
    if (taken_over) {
      delta.accept();
      current = ms;
      ++out.accepted;
    } else {
      delta.reject();
    }
    out.delta_ms += cpu_ms() - begin;
  }
  return out;
}

int search_table(const std::vector<std::string>& models, const std::vector<std::string>& clusters, double units) {
  TextTable rows({{"model", TextTable::Align::kLeft},
                  {"cluster", TextTable::Align::kLeft},
                  {"devices"},
                  {"data parallel ms"},
                  {"expert ms"},
                  {"found ms"},
                  {"of data parallel"},
                  {"of expert"},
                  {"proposals"},
                  {"CPU s"},
                  {"found by", TextTable::Align::kLeft}});
  for (const std::string& path : models) {
    const hlo::HloModule module = profile::load_model(path, "give HLO").module;
    const graph::TrainingStep step = graph::analyze_training_step(module.graph);
    for (const std::string& name : clusters) {
      const machine::Cluster cluster = machine::load_cluster(name);
      const ModelSpace model = operators_of(module.graph, step, profile::reference_device("", cluster));
      const MachineLinks machine(cluster);
      const Proposals proposals(model.space, machine.num_devices(), Placement::kRange);
      Rng rng(0, 1, 0);
      const std::vector<Start> starts = {{"data parallel", data_parallel(model.space, machine.num_devices())},
                                         {"expert", expert(model.space, machine.num_devices())},
                                         {"random", random_start(model.space, proposals, &rng)}};
      Work work(WorkLimits::of_units(static_cast<std::int64_t>(units)));
      const double begin = cpu_ms();
      const SearchResult found = soap::search(model.space, machine, proposals, starts, {}, work);
      rows.add_row({profile::model_name(path, path), name, std::to_string(machine.num_devices()),
                    format_number(found.data_parallel_ms), format_number(found.expert_ms), format_number(found.step_ms),
                    format_number(found.data_parallel_ms / found.step_ms),
                    format_number(found.expert_ms / found.step_ms), std::to_string(found.proposals),
                    format_number((cpu_ms() - begin) * 1e-3), found.found_by});
      std::cerr << rows.render() << std::flush;
    }
  }
  std::cout << rows.render();
  return 0;
}

int run(int argc, char** argv) {
  std::vector<std::string> models, devices, clusters;
  double search_units = 0;
  int proposals = 100000, every = 1;
  double most_looks = DeltaSimulation::kMostLooks;
  std::string placement = to_string(Placement::kRange);
  OptionTable table("bench-soap", "the delta simulation beside the full one");
  table.positional(&models, "MODEL", "modules").reads_file();
  table.add(&devices, "devices", "numbers of devices").no_file().metavar("N").shown_default("4, 16 and 64");
  table.add(&proposals, "proposals", "of each model and number of devices").range(1, 1e9);
  table.add(&every, "every", "simulate every K-th in full, too").range(1, 1e9).metavar("K");
  table.add(&placement, "placement", "range or any").choices({"range", "any"});
  table.add(&most_looks, "most-looks", "share of the tasks after which the rest runs event by event").range(0, 1e9);
  table.add(&search_units, "search", "search with so many units instead").range(0, 1e15);
  table.add(&clusters, "cluster", "of --search").reads_file().shown_default("config-a and config-b");
  if (!table.parse(argc, argv)) return 0;
  if (clusters.empty()) clusters = {"config-a", "config-b"};
  if (models.empty()) {
    for (const char* name : {"vgg19", "resnet50", "t5_6_6", "bert48"})
      models.push_back("fixtures/hlo/" + std::string(name) + ".hlo.gz");
  }
  if (search_units > 0) return search_table(models, clusters, search_units);
  if (devices.empty()) devices = {"4", "16", "64"};
  TextTable rows({{"model", TextTable::Align::kLeft},
                  {"operators"},
                  {"devices"},
                  {"tasks"},
                  {"proposals"},
                  {"accepted"},
                  {"compared"},
                  {"different"},
                  {"full ms"},
                  {"delta ms"},
                  {"speed-up"},
                  {"taken per task"}});
  std::int64_t different = 0;
  for (const std::string& path : models) {
    const hlo::HloModule module = profile::load_model(path, "give HLO").module;
    const graph::TrainingStep step = graph::analyze_training_step(module.graph);
    for (const std::string& number : devices) {
      machine::Cluster cluster = machine::load_cluster("config-a");
      const int wanted = std::stoi(number);
      cluster.servers.resize(1);
      cluster.servers[0].count = (wanted + cluster.servers[0].devices - 1) / cluster.servers[0].devices;
      const ModelSpace model = operators_of(module.graph, step, profile::reference_device("", cluster));
      const MachineLinks machine(cluster, wanted);
      const Measured m = measure(model.space, machine, *parse_placement(placement), proposals, every, most_looks);
      different += m.different;
      const double full = m.full_ms / static_cast<double>(std::max<std::int64_t>(1, m.compared)),
                   delta = m.delta_ms / static_cast<double>(m.proposals);
      const DeltaSimulation start(model.space, machine, data_parallel(model.space, wanted));
      rows.add_row({profile::model_name(path, path), std::to_string(model.space.size()), number,
                    std::to_string(start.num_tasks()), std::to_string(m.proposals), std::to_string(m.accepted),
                    std::to_string(m.compared), std::to_string(m.different), format_number(full), format_number(delta),
                    format_number(full / delta), format_number(m.taken / static_cast<double>(m.proposals))});
      std::cerr << rows.render() << std::flush;
    }
  }
  std::cout << rows.render();
  return different == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, run);
}
