#include "plan/systems/placement/planning.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/text_table.h"
#include "plan/systems/placement/baselines.h"
#include "plan/systems/placement/linearized.h"
#include "plan/systems/placement/milp_latency.h"

namespace automap::placement {
namespace {

// The programme over ideals keeps no more than this.
constexpr double kMostDpBytes = 1 << 30;

// Above the known value, so that the solver's tolerances do not exclude it.
constexpr double kSlack = 1e-6;

constexpr const char* kAll = "all placements";
constexpr const char* kContiguous = "contiguous placements";

bool in_one_go(const Workload& workload, const Request& request, const Placement& placement) {
  return request.objective == Objective::kThroughput ? contiguous(workload, placement)
                                                     : latency_ms(workload, {placement.device, {}}).has_value();
}

struct Proposal {
  Placement placement;
  double bound_ms = 0;
  bool proven = false;
};

class Planning {
 public:
  Planning(const Workload& workload, const Request& request, Work* work)
      : workload_(workload), request_(request), work_(work), latency_(request.objective == Objective::kLatency) {
    if (latency_ && workload.training()) {
      throw Error(ErrorKind::kUsage, "latency is about one sample forward; the workload has backward nodes",
                  "ask for --objective throughput");
    }
    answer_.bound_ms = simple_bound_ms(workload, request.objective);
    answer_.bound_of = kAll;
  }

  Answer run() {
    bool known = false;
    for (const Row& row : rows()) {
      if (request_.algorithm != row.name) continue;
      known = true;
      if (latency_ && !row.latency) {
        throw Error(ErrorKind::kUsage, std::string("--algorithm ") + row.name + " does not know latency",
                    "dp, dpl, milp, milp-noncontiguous and greedy do");
      }
      (this->*row.run)();
    }
    if (!known) throw Error(ErrorKind::kUsage, "there is no algorithm " + request_.algorithm, join(algorithm_names()));
    if (!found_) nothing_found();
    answer_.bound_ms = std::min(answer_.bound_ms, answer_.value_ms);
    answer_.contiguous = in_one_go(workload_, request_, answer_.placement);
    answer_.cut_by_time = answer_.cut_by_time || work_->stopped();
    return std::move(answer_);
  }

  struct Row {
    const char* name;
    const char* says;
    bool latency;
    void (Planning::*run)();
  };
  static const std::vector<Row>& rows() {
    static const std::vector<Row> table = {
        {"auto", "dp, or what is left of it; for latency greedy, dp and milp", true, &Planning::run_auto},
        {"dp", "the exact dynamic programme over ideals, bounded by dpl", true, &Planning::run_dp},
        {"dpl", "the same along several orders of the graph", true, &Planning::run_dpl},
        {"milp", "contiguous placements as an integer programme (CBC)", true, &Planning::run_milp},
        {"milp-noncontiguous", "any placement as an integer programme (CBC)", true, &Planning::run_milp_any},
        {"greedy", "fill one accelerator after the other", true, &Planning::run_greedy},
        {"local-search", "random placements and the best single moves", false, &Planning::run_local_search},
        {"pipedream", "merge what branches to a chain, then cut it", false, &Planning::run_pipedream},
        {"scotch", "even parts that transfer little between them (Scotch), whatever the memory", false,
         &Planning::run_scotch},
        {"one-accelerator", "everything on one, whatever its memory", false, &Planning::run_one},
    };
    return table;
  }

 private:
  const Units& chain_units() {
    if (!contiguous_units_) contiguous_units_ = contiguous_units(workload_);
    answer_.units = contiguous_units_->size();
    return *contiguous_units_;
  }
  const Units& any_units() {
    if (!colour_units_) colour_units_ = colour_units(workload_);
    return *colour_units_;
  }

  double value_of(Placement* placement) const {
    if (!latency_) return max_load_ms(workload_, *placement);
    if (placement->piece.empty()) *placement = in_pieces(workload_, std::move(*placement));
    return latency_ms(workload_, *placement).value();
  }

  // Runs one planner and keeps its proposal when it is the best so far.
  template <typename Make>
  void attempt(const std::string& planner, const Make& make) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<Proposal> proposal = make();
    Tried tried{planner, std::nullopt, 0};
    if (proposal) {
      const double value = value_of(&proposal->placement);
      tried.value_ms = value;
      if (!found_ || value < answer_.value_ms) {
        found_ = true;
        answer_.placement = std::move(proposal->placement);
        answer_.value_ms = value;
        answer_.planner = planner;
      }
    }
    tried.planning_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    answer_.tried.push_back(std::move(tried));
  }

  std::optional<Proposal> proposal_of(const Units& units, const std::optional<Split>& split) const {
    if (!split) return std::nullopt;
    return Proposal{placement_of(workload_, units, split->device_of_unit)};
  }

  void run_dpl() {
    attempt("dpl", [&] {
      DpCounts counts;
      linearized_ = best_linearized(workload_, chain_units(), request_.orders, work_, &counts);
      return proposal_of(chain_units(), linearized_);
    });
  }

  // Exact where there are few enough ideals; of throughput.
  void dp(bool has_to) {
    run_dpl();
    const Units& units = chain_units();
    const double room = kMostDpBytes / std::max(1.0, dp_bytes(workload_, units, 1));
    const int most = static_cast<int>(std::min<double>(request_.max_ideals, room));
    const std::optional<Ideals> ideals = Ideals::all(units, most);
    if (!ideals) {
      const std::string many = "the graph has more than " + std::to_string(most) + " ideals";
      if (has_to) {
        throw Error(ErrorKind::kInfeasible, many + ", too many for the exact programme",
                    "take --algorithm dpl, or raise --max-ideals");
      }
      answer_.warnings.push_back(many + ": the placement is the best along " + std::to_string(request_.orders) +
                                 " orders, and not proven");
      return;
    }
    answer_.ideals = ideals->size();
    bool complete = false;
    attempt("dp", [&]() -> std::optional<Proposal> {
      DpCounts counts;
      const double bound = linearized_ ? linearized_->max_load_ms : Milp::kInfinite;
      const std::optional<Split> split = best_split(workload_, units, *ideals, bound, work_, &counts);
      answer_.pairs = counts.pairs;
      complete = !work_->over();
      return proposal_of(units, split);
    });
    if (!complete) {
      answer_.warnings.push_back("the exact programme was stopped; the placement is the best along orders");
      return;
    }
    no_contiguous_ = !found_;
    if (latency_ || !found_) return;
    answer_.proven = true;
    answer_.bound_ms = answer_.value_ms;
    answer_.bound_of = kContiguous;
  }

  void run_dp() { dp(true); }

  void run_greedy() {
    attempt("greedy", [&]() -> std::optional<Proposal> {
      const auto devices = greedy(workload_, chain_units());
      if (!devices) return std::nullopt;
      return Proposal{placement_of(workload_, chain_units(), *devices)};
    });
  }

  void run_local_search() {
    attempt("local-search", [&] {
      return proposal_of(any_units(), local_search(workload_, any_units(), request_.restarts, request_.seed, work_));
    });
  }

  void run_pipedream() {
    attempt("pipedream", [&] {
      DpCounts counts;
      return proposal_of(chain_units(), pipedream(workload_, chain_units(), work_, &counts));
    });
  }

  void run_scotch() {
    const auto start = std::chrono::steady_clock::now();
    const auto late = [&] {
      const double passed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      answer_.cut_by_time = passed_s > request_.milp.seconds;
      return answer_.cut_by_time || work_->over();
    };
    attempt("scotch", [&]() -> std::optional<Proposal> {
      const auto devices = scotch(workload_, any_units(), late);
      if (!devices) return std::nullopt;
      Proposal out{placement_of(workload_, any_units(), *devices)};
      does_not_fit_ = why_not(workload_, out.placement);
      return does_not_fit_.empty() ? std::optional<Proposal>(out) : std::nullopt;
    });
  }

  void run_one() {
    attempt("one-accelerator", [&]() -> std::optional<Proposal> {
      const auto devices = one_accelerator(workload_, any_units());
      if (!devices) return std::nullopt;
      return Proposal{placement_of(workload_, any_units(), *devices)};
    });
    if (!found_) return;
    const std::string problem = why_not(workload_, answer_.placement);
    if (!problem.empty()) answer_.warnings.push_back(problem);
  }

  void run_auto() {
    if (!latency_) return dp(false);
    run_greedy();
    dp(false);
    if (milp_solver_missing().empty()) {
      run_milp();
    } else {
      answer_.warnings.push_back(milp_solver_missing() + ": no integer programme was solved");
    }
  }

  void run_milp() { milp(true); }
  void run_milp_any() { milp(false); }

  void milp(bool only_contiguous) {
    // The programme starts from a solution that is quick to find; a missing solver is reported before any work.
    const std::string missing = milp_solver_missing();
    if (!missing.empty()) solve(Milp(), {}, {});
    latency_ ? milp_latency_of(only_contiguous) : milp_throughput_of(only_contiguous);
  }

  void milp_throughput_of(bool only_contiguous) {
    if (!linearized_) run_dpl();
    const Units& units = only_contiguous ? chain_units() : any_units();
    std::vector<int> start;
    if (found_ && linearized_) start = devices_of(units, answer_.placement);
    if (!only_contiguous && workload_.accelerators > 0) {
      run_local_search();
      if (found_) start = devices_of(units, answer_.placement);
    }
    take(only_contiguous, units,
         [&] { return placement::milp_throughput(workload_, units, only_contiguous, start, request_.milp); });
  }

  void milp_latency_of(bool only_contiguous) {
    if (!found_) {
      run_greedy();
      run_dpl();
    }
    const Units& units = any_units();
    const int pieces = only_contiguous ? 1 : request_.pieces;
    // Above it nothing is worth looking at: a known latency, or everything one after the other.
    double most = 0;
    const int slots = workload_.accelerators * pieces;
    for (const Node& node : workload_.nodes) most += node.accelerator_ms + node.cpu_ms + (1 + slots) * node.transfer_ms;
    bool start = false;
    if (found_) {
      most = answer_.value_ms * (1 + kSlack);
      const auto& piece = answer_.placement.piece;
      start = piece.empty() || *std::max_element(piece.begin(), piece.end()) < pieces;
    }
    take(only_contiguous, units, [&] {
      return placement::milp_latency(workload_, units, pieces, start ? &answer_.placement : nullptr, most,
                                     request_.milp);
    });
  }

  std::vector<int> devices_of(const Units& units, const Placement& placement) const {
    std::vector<int> out;
    for (const Unit& unit : units.units) out.push_back(placement.device[static_cast<std::size_t>(unit.nodes.front())]);
    return out;
  }

  template <typename Solve>
  void take(bool only_contiguous, const Units& units, const Solve& solve_it) {
    MilpPlacement solved;
    attempt(only_contiguous ? "milp" : "milp-noncontiguous", [&]() -> std::optional<Proposal> {
      solved = solve_it();
      if (!solved.device_of_unit) return std::nullopt;
      Proposal out{placement_of(workload_, units, *solved.device_of_unit)};
      if (!solved.piece_of_unit.empty()) {
        out.placement.piece.resize(workload_.nodes.size());
        for (int u = 0; u < units.size(); ++u) {
          for (const int v : units.units[static_cast<std::size_t>(u)].nodes) {
            out.placement.piece[static_cast<std::size_t>(v)] = solved.piece_of_unit[static_cast<std::size_t>(u)];
          }
        }
        // Pieces that take no time may wait for each other in a circle of no length.
        if (!latency_ms(workload_, out.placement)) out.placement.piece.clear();
      }
      return out;
    });
    if (solved.end == MilpAnswer::End::kInfeasible) {
      no_contiguous_ = no_contiguous_ || only_contiguous;
      none_at_all_ = none_at_all_ || !only_contiguous;
      return;
    }
    answer_.bound_of = only_contiguous ? kContiguous
                       : latency_
                           ? "placements of at most " + std::to_string(request_.pieces) + " pieces on each accelerator"
                           : kAll;
    answer_.bound_ms = std::max(answer_.bound_ms, solved.bound_ms);
    answer_.proven = solved.end == MilpAnswer::End::kSolved;
    if (!answer_.proven) answer_.cut_by_time = true;
  }

  [[noreturn]] void nothing_found() const {
    const std::string hint = "give accelerators more --memory, more --accelerators, or --cpus";
    if (no_contiguous_) {
      throw Error(ErrorKind::kInfeasible, "no contiguous placement fits",
                  "--algorithm milp-noncontiguous may find one that is not; or " + hint);
    }
    if (!does_not_fit_.empty()) {
      throw Error(ErrorKind::kInfeasible,
                  request_.algorithm + " does not heed memory, and what it found does not fit: " + does_not_fit_,
                  "--algorithm local-search and dp heed it; or " + hint);
    }
    if (none_at_all_) throw Error(ErrorKind::kInfeasible, "no placement fits", hint);
    if (answer_.cut_by_time) {
      throw Error(ErrorKind::kInfeasible,
                  "no placement was found in time; none is below " + format_ms(answer_.bound_ms),
                  "give more --time, or " + hint);
    }
    if (work_->over()) {
      throw Error(ErrorKind::kStopped, "stopped before a placement was found", "give it more time");
    }
    throw Error(ErrorKind::kInfeasible, request_.algorithm + " found no placement that fits",
                "--algorithm dp and the integer programmes look at all; or " + hint);
  }

  const Workload& workload_;
  const Request& request_;
  Work* work_;
  const bool latency_;
  std::optional<Units> contiguous_units_, colour_units_;
  std::optional<Split> linearized_;
  Answer answer_;
  std::string does_not_fit_;  // why, of what an algorithm that does not look found
  bool found_ = false, no_contiguous_ = false, none_at_all_ = false;
};

}  // namespace

const char* to_string(Objective objective) {
  return objective == Objective::kThroughput ? "throughput" : "latency";
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> out;
  for (const Planning::Row& row : Planning::rows()) out.push_back(row.name);
  return out;
}

std::string algorithm_help() {
  std::string out;
  for (const Planning::Row& row : Planning::rows()) {
    out += (out.empty() ? "" : "; ") + std::string(row.name) + ": " + row.says;
  }
  return out;
}

Answer find_placement(const Workload& workload, const Request& request, Work* work) {
  return Planning(workload, request, work).run();
}

Answer judge_placement(const Workload& workload, const Request& request, const Placement& placement,
                       const std::string& planner) {
  const std::string problem = why_not(workload, placement);
  if (!problem.empty()) throw Error(ErrorKind::kInfeasible, problem, "another placement, or another machine");
  Answer out;
  out.placement = placement;
  if (request.objective == Objective::kLatency) {
    if (out.placement.piece.empty()) out.placement = in_pieces(workload, std::move(out.placement));
    const std::optional<double> latency = latency_ms(workload, out.placement);
    if (!latency) {
      throw Error(ErrorKind::kInfeasible, "pieces of the placement wait for each other in a circle",
                  "leave pieces out, and as many are made as are needed");
    }
    out.value_ms = *latency;
  } else {
    out.value_ms = max_load_ms(workload, out.placement);
  }
  out.bound_ms = std::min(out.value_ms, simple_bound_ms(workload, request.objective));
  out.bound_of = kAll;
  out.contiguous = in_one_go(workload, request, out.placement);
  out.planner = planner;
  return out;
}

}  // namespace automap::placement
