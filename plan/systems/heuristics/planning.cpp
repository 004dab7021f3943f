#include "plan/systems/heuristics/planning.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "common/base/text_table.h"
#include "plan/systems/heuristics/heuristics.h"
#include "plan/systems/heuristics/refinement.h"

namespace automap::heuristics {

namespace {

constexpr const char* kBaseline = "one-device";

void refuse_what_cannot_fit(const Question& question) {
  double all = 0, most = 0;
  for (DeviceId d = 0; d < question.machine.num_devices(); ++d) {
    all += question.machine.capacity_bytes(d);
    most = std::max(most, question.machine.capacity_bytes(d));
  }
  const char* hint = "give a cluster with more or larger devices, or a step of fewer samples";
  const double needed = question.work.memory_bytes();
  if (needed > all) {
    throw Error(ErrorKind::kInfeasible,
                "the step keeps " + format_bytes(needed) + " (weights, optimizer state, what backward reads); all " +
                    std::to_string(question.machine.num_devices()) + " devices together have " + format_bytes(all),
                hint);
  }
  for (UnitId u = 0; u < question.graph.size(); ++u) {
    if (question.graph.memory_bytes[at(u)] <= most) continue;
    throw Error(ErrorKind::kInfeasible,
                "what must be on one device with " +
                    printable(question.work.tasks[at(question.work.tasks_of_unit[at(u)].front())].name) + " keeps " +
                    format_bytes(question.graph.memory_bytes[at(u)]) + "; the largest device has " + format_bytes(most),
                hint);
  }
}

// Makes the division legal and refines it; keeps the cost before refinement, too.
Candidate finish(const Question& question, const std::string& name, Devices devices) {
  Candidate out;
  out.name = name;
  if (question.acyclic) make_acyclic(question.graph, question.machine.num_devices(), &devices);
  Division division(question.graph, question.machine, question.acyclic);
  division.move_all(devices);
  make_fit(&division);
  out.rough = division.cost();
  refine(&division);
  out.fits = make_fit(&division);
  out.devices = division.devices();
  out.cost = cost_of(question.graph, question.machine, out.devices);
  const std::vector<DeviceLoad> loads = device_loads(question.graph, question.machine, out.devices);
  out.imbalance = imbalance(question.machine, loads);
  for (const DeviceLoad& load : loads) out.devices_used += load.compute_ms > 0;
  out.makespan_ms = plan_schedule(question.work, question.machine, out.devices).planned.makespan_ms;
  return out;
}

// The same, of the baseline, which is not refined: it would be no baseline.
Candidate baseline(const Question& question) {
  Candidate out;
  out.name = kBaseline;
  out.devices = one_device(question);
  Division division(question.graph, question.machine, false);
  division.move_all(out.devices);
  out.fits = division.fits_everywhere();
  out.cost = out.rough = cost_of(question.graph, question.machine, out.devices);
  out.imbalance = imbalance(question.machine, device_loads(question.graph, question.machine, out.devices));
  out.devices_used = 1;
  out.makespan_ms = plan_schedule(question.work, question.machine, out.devices).planned.makespan_ms;
  return out;
}

const Heuristic& named(const std::string& name) {
  for (const Heuristic& row : heuristic_table()) {
    if (name == row.name) return row;
  }
  const std::string near = closest_name(name, heuristic_names());
  throw Error(ErrorKind::kUsage, "there is no heuristic " + printable(name),
              near.empty() ? std::string(kAllHeuristics) + ", or one of " + join(heuristic_names())
                           : "did you mean " + near + "?");
}

}  // namespace

std::vector<std::string> heuristic_names() {
  std::vector<std::string> out;
  for (const Heuristic& row : heuristic_table()) out.push_back(row.name);
  return out;
}

std::string heuristic_help() {
  std::string out;
  for (const Heuristic& row : heuristic_table())
    out += (out.empty() ? "" : "; ") + std::string(row.name) + ": " + row.says;
  return out;
}

Answer find_division(const WorkGraph& graph, const Machine& machine, const Request& request) {
  if (request.heuristic != kAllHeuristics) named(request.heuristic);
  const Hypergraph units = hypergraph_of(graph);
  const Question question{graph, units, machine, request.acyclic};
  refuse_what_cannot_fit(question);
  Answer out;
  std::optional<std::size_t> best;
  for (const Heuristic& row : heuristic_table()) {
    const bool last = row.name == std::string(kBaseline);
    if (!last && request.heuristic != kAllHeuristics && request.heuristic != row.name) continue;
    const auto begun = std::chrono::steady_clock::now();
    out.candidates.push_back(last ? baseline(question) : finish(question, row.name, row.divide(question)));
    Candidate& own = out.candidates.back();
    own.planning_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
    if (own.fits && (!best || own.cost.less_than(out.candidates[*best].cost))) best = out.candidates.size() - 1;
  }
  if (!best) {
    throw Error(ErrorKind::kInfeasible,
                "the devices could hold the step together, but no heuristic found a division that fits each",
                request.heuristic == kAllHeuristics ? "give a cluster with more or larger devices"
                                                    : "try --heuristic all, or more or larger devices");
  }
  out.best = *best;
  double fastest = 0, longest = 0;
  for (DeviceId d = 0; d < machine.num_devices(); ++d) fastest = std::max(fastest, machine.speed(d));
  for (const double ms : units.ms) longest = std::max(longest, ms / fastest);
  out.bound_ms =
      std::min(out.candidates[out.best].cost.load_ms, std::max(longest, units.total_ms() / machine.total_speed()));
  return out;
}

DeviceId straggler_of(const WorkGraph& graph, const Machine& machine, const Devices& devices) {
  std::vector<double> work(at(machine.num_devices()), 0);
  for (const Task& task : graph.tasks)
    work[at(devices[at(task.unit)])] += machine.task_ms(task.ms, devices[at(task.unit)]);
  return static_cast<DeviceId>(std::max_element(work.begin(), work.end()) - work.begin());
}

namespace {

class Comparison {
 public:
  Comparison(const WorkGraph& graph, const Machine& machine, const Candidate& candidate, bool acyclic,
             const AssistantRequest& request)
      : graph_(graph),
        units_(hypergraph_of(graph)),
        machine_(machine),
        candidate_(candidate),
        acyclic_(acyclic),
        request_(request),
        rules_(request.rules),
        schedule_(plan_schedule(graph, machine, candidate.devices)),
        straggler_(straggler_of(graph, machine, candidate.devices)) {
    rules_.theta_ms = request.theta_share * schedule_.planned.makespan_ms;
  }

  std::vector<ScenarioResult> run() {
    std::vector<std::vector<double>> slow_of;
    std::vector<Schedule> oracle;
    for (const double slow : request_.slows) {
      slow_of.emplace_back(at(machine_.num_devices()), 1.0);
      slow_of.back()[at(straggler_)] = slow;
      oracle.push_back(plan_anew(slow_of.back()));
    }
    std::vector<ScenarioResult> out;
    for (const double sigma : request_.sigmas) {
      for (std::size_t i = 0; i < request_.slows.size(); ++i)
        out.push_back(of_scenario({sigma, request_.slows[i]}, oracle[i]));
    }
    return out;
  }

 private:
  // The shortest of the plans for devices that are so much slower.
  Schedule plan_anew(const std::vector<double>& slow) const {
    const Machine machine = machine_.slowed(slow);
    const Question question{graph_, units_, machine, acyclic_};
    Schedule best = plan_schedule(graph_, machine, candidate_.devices);
    const bool same = std::all_of(slow.begin(), slow.end(), [&](double s) { return s == slow.front(); });
    if (same) return best;
    std::vector<Candidate> others{finish(question, candidate_.name, candidate_.devices)};
    if (candidate_.name != kBaseline)
      others.push_back(finish(question, candidate_.name, named(candidate_.name).divide(question)));
    for (const Candidate& other : others) {
      if (!other.fits || other.makespan_ms >= best.planned.makespan_ms) continue;
      best = plan_schedule(graph_, machine, other.devices);
    }
    return best;
  }

  ScenarioResult of_scenario(const Scenario& scenario, const Schedule& oracle) const {
    ScenarioResult out;
    out.scenario = scenario;
    // Without noise every run is the same.
    const int runs = scenario.sigma == 0 ? 1 : request_.runs;
    std::optional<Schedule> feedback;
    for (int run = 0; run < runs; ++run) {
      const Conditions conditions = draw_conditions(graph_, machine_, scenario.sigma, straggler_, scenario.slow,
                                                    request_.seed, static_cast<std::uint64_t>(run));
      const Execution assisted = run_assisted(graph_, machine_, schedule_, conditions, rules_);
      if (!feedback) {
        out.ratios = assisted.ratios;
        feedback = plan_anew(believable(assisted.ratios));
      }
      out.static_ms += run_static(graph_, machine_, schedule_, conditions).makespan_ms / runs;
      out.assisted_ms += assisted.makespan_ms / runs;
      out.oracle_ms += run_static(graph_, machine_, oracle, conditions).makespan_ms / runs;
      out.feedback_ms += run_static(graph_, machine_, *feedback, conditions).makespan_ms / runs;
      out.moved += static_cast<double>(assisted.pulled + assisted.pushed) / runs;
    }
    return out;
  }

  // A ratio that is 1 but for rounding says nothing.
  static std::vector<double> believable(std::vector<double> ratios) {
    for (double& r : ratios) r = std::abs(r - 1) < 1e-6 ? 1 : r;
    return ratios;
  }

  const WorkGraph& graph_;
  const Hypergraph units_;
  const Machine& machine_;
  const Candidate& candidate_;
  const bool acyclic_;
  const AssistantRequest& request_;
  AssistantRules rules_;
  const Schedule schedule_;
  const DeviceId straggler_;
};

}  // namespace

std::vector<ScenarioResult> compare_assistants(const WorkGraph& graph, const Machine& machine,
                                               const Candidate& candidate, bool acyclic,
                                               const AssistantRequest& request) {
  return Comparison(graph, machine, candidate, acyclic, request).run();
}

}  // namespace automap::heuristics
