// Answers one question in one way: the call behind `automap-search heuristics`.
//
// This design is ours: of 1906.08168 only the abstract was at hand; nothing here reproduces its numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/systems/heuristics/division.h"
#include "plan/systems/heuristics/simulation.h"

namespace automap::heuristics {

constexpr const char* kAllHeuristics = "all";

struct Request {
  std::string heuristic = kAllHeuristics;  // or one of heuristic_names()
  bool acyclic = false;
};

// The refined result of a heuristic.
struct Candidate {
  std::string name;
  bool fits = false;       // memory; the others are of no use
  Cost cost, rough;        // after and before refinement, both legal
  double imbalance = 0;    // division.h
  double makespan_ms = 0;  // planned (simulation.h)
  int devices_used = 0;
  double planning_ms = 0;
  Devices devices;  // by unit
};

struct Answer {
  std::vector<Candidate> candidates;  // in the order of the table
  std::size_t best = 0;               // the least (J, bytes cut) of those that fit
  // No division has a smaller J: the work over the devices, the longest unit on the fastest device.
  double bound_ms = 0;
};

// "topo-chunk", ..., "one-device".
std::vector<std::string> heuristic_names();
std::string heuristic_help();  // a line about each

// A single heuristic is still compared with "one-device". Throws Error(kUsage) for an unknown name, Error(kInfeasible)
// when the devices cannot hold the graph (and says what is too large), or when no heuristic found a way.
Answer find_division(const WorkGraph& graph, const Machine& machine, const Request& request);

// --- Static, assisted, planned anew ---

struct Scenario {
  double sigma = 0, slow = 1;
};
// Means over the runs, each with the same noise for all, in ms.
struct ScenarioResult {
  Scenario scenario;
  double static_ms = 0, assisted_ms = 0;
  double oracle_ms = 0;        // static, of a plan made by somebody who knows how slow the straggler is
  double feedback_ms = 0;      // static, of a plan made with the ratios that the assistants of the first run saw
  double moved = 0;            // tasks
  std::vector<double> ratios;  // by device, of the first run
};

struct AssistantRequest {
  std::vector<double> sigmas = {0, 0.1, 0.3, 0.5}, slows = {1, 1.5, 2, 4};
  int runs = 5;
  std::uint64_t seed = 0;
  double theta_share = 0.002;  // AssistantRules::theta_ms, of the planned makespan
  AssistantRules rules;        // theta_ms is not looked at
};

// The device that is slow in scenarios: the one that computes most.
DeviceId straggler_of(const WorkGraph& graph, const Machine& machine, const Devices& devices);

// Results for the division of `candidate`, by sigma, then slow. A new plan is made by the candidate's own heuristic and
// by refining its division, on the machine as it is then believed to be; of these and the old plan, the one with the
// shortest planned step counts.
std::vector<ScenarioResult> compare_assistants(const WorkGraph& graph, const Machine& machine,
                                               const Candidate& candidate, bool acyclic,
                                               const AssistantRequest& request);

}  // namespace automap::heuristics
