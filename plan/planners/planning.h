// One call of make_plan: the inputs of the planners, the plans that they found, and the choice among them.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/exact.h"
#include "models/plan_space.h"
#include "plan/planners/lightest.h"
#include "plan/planners/planner_rows.h"

namespace automap::planners {

// The steps by which a planner came to its plan.
struct Way {
  bool beam = false;  // of those that walk, which are greedy otherwise
  bool refined = false, polished = false;
};

// A planner's turn.
struct Turn {
  const PlannerRow& row;
  int beam = 1;        // of those that walk
  bool alone = false;  // it is the one that was asked for
  Work work;
};

class Planning {
 public:
  // Throws as make_plan does.
  Planning(const pipeline::Problem& problem, const PlanRequest& request);
  PlanResult run();

  // The inputs of the planners.
  const pipeline::Problem& problem() const { return problem_; }
  const PlanRequest& request() const { return request_; }
  Objective objective() const { return objective_; }
  int first_stages() const { return first_stages_; }
  int last_stages() const { return last_stages_; }
  const std::vector<int>& pivots() const { return pivots_; }  // empty: every instruction
  // The pivots for planners that walk through a plan space.
  std::vector<int> walk_pivots() const;
  // The largest distance of a stage's end from a server's end, in the problem's devices, which are replicas; -1: no
  // limit. It holds for all planners that walk, and for all plans of `online`.
  int server_radius() const;
  bool coarse() const;  // whether the grid leaves something to refine
  const models::Policy* policy() const { return policy_.get(); }
  std::shared_ptr<const models::Policy> shared_policy() const { return policy_; }
  double seconds_left() const;  // of the time limit; infinite without one

  // Returns true if a turn is over although there is more to do. While there is no plan at all, no turn is over.
  bool over(Turn& turn) { return !best_of_.empty() && cut(turn.work); }
  // A planner came to the end of its share of the work.
  void note_cut() { cut_ = true; }
  // Keeps the record of how `online` searched for the result.
  void keep(pipeline::PlanLearning learning) { online_ = std::move(learning); }
  // True if, by the simplest bound on V, no plan of so many stages can be the planner's best.
  bool out_of_question(const PlannerRow& planner, int stages, pipeline::Schedule schedule) const;
  // V of a plan that no longer can be the best: under the objective `simulated` V is below the simulation, but for the
  // all-reduce (docs/cost-model.md), so what is above the best simulation by more than that is out. Infinity when
  // plans are judged by V or nothing is known.
  double hopeless_ms() const;
  // The length of the planner's best plan under the objective; nullopt: it has none yet.
  std::optional<double> best_length(const PlannerRow& planner) const;

  // Takes a plan into the comparison; its length under the objective, nullopt when there is none or it is not feasible.
  std::optional<double> add(const std::optional<pipeline::Plan>& plan, const Turn& turn, Way way = {});
  // Walks from stage to stage through the plan space, by a network or without one (null). nullopt: no plan of so many
  // stages.
  std::optional<pipeline::Plan> walk(const models::Policy* policy, int stages, pipeline::Schedule schedule, Turn& turn,
                                     std::vector<pipeline::Plan>& runners_up);
  // Refines plans from the grid to instructions: the exact program in a corridor around every promising plan, the best
  // first, until `most_in_vain` in a row brought nothing better.
  void refine(const std::vector<pipeline::Plan>& plans, Turn& turn, Way way = {},
              int most_in_vain = std::numeric_limits<int>::max());
  // The results of balancing, shared by all planners.
  pipeline::BalancedCuts* balanced_cuts() { return &balanced_cuts_; }

 private:
  using Clock = std::chrono::steady_clock;  // of what is measured; nothing is decided by it

  struct Candidate {
    pipeline::Plan plan;
    double value_ms = 0;
    double simulated_ms = 0;
    PlannerKind planner = PlannerKind::kAuto;
    Way way;
    int order = 0;     // of the schedule in the request
    int sequence = 0;  // of the candidates
    double found_ms = 0;
    std::string name() const;
  };

  void check() const;
  void run_all();
  void propose(const PlannerRow& planner, int beam);
  pipeline::Plan plain(pipeline::Plan plan) const;
  bool near_servers(const pipeline::Plan& plan) const;
  bool settled() const;
  bool prove();
  bool is_proof(const pipeline::LowerBound& bound) const;
  void polish_candidates();
  void bound(PlanResult& result);
  pipeline::LowerBound simple_bound() const;
  void balance_memory();
  const LightestPlan& lightest();

  WorkLimits limits(std::int64_t units, double seconds);
  bool cut(Work& part);
  std::int64_t turn_of(const PlannerRow& planner, int beam) const;
  std::int64_t units_until(double part) const;
  StageChoice stage_choice() const { return {first_stages_, last_stages_, request_.schedules}; }

  bool add(const std::optional<pipeline::Plan>& plan, PlannerKind planner, Way way);
  bool better(const Candidate& a, const Candidate& b) const;
  double length(const Candidate& candidate) const;
  std::optional<Candidate> best_candidate() const;
  Candidate best_with_warmup(const Candidate& winner);
  static double ms_since(Clock::time_point start);

  const pipeline::Problem& problem_;
  const PlanRequest& request_;
  Clock::time_point start_;
  Work work_;
  Work patient_;  // of the search for the first plan, which ends when it is done
  bool cut_ = false;
  Objective objective_ = Objective::kSimulated;
  int first_stages_ = 1, last_stages_ = 1;
  std::map<pipeline::Schedule, std::vector<double>> simple_bounds_ms_;  // [stages - 1], every planner asks again
  std::vector<int> pivots_;
  std::vector<Candidate> candidates_;
  std::map<PlannerKind, Candidate> best_of_;
  std::map<PlannerKind, double> spent_ms_;
  std::optional<Candidate> polished_;
  std::vector<Candidate> polished_all_;
  std::shared_ptr<const models::Policy> policy_;  // null: none
  std::map<std::pair<int, pipeline::Schedule>, std::unique_ptr<models::PlanSpace>> spaces_;
  pipeline::BalancedCuts balanced_cuts_;
  std::optional<pipeline::PlanLearning> online_;
  std::optional<LightestPlan> lightest_;  // once it was asked for
  std::optional<pipeline::LowerBound> proof_;
  double proof_ms_ = 0;  // when the lower bound was known
  double smallest_value_ms_ = std::numeric_limits<double>::infinity();
};

}  // namespace automap::planners
