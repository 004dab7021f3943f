#include "plan/systems/soap/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/numbers.h"
#include "plan/systems/soap/delta_simulation.h"
#include "plan/systems/soap/memory.h"

namespace automap::soap {

namespace {

// The price of a proposal in units (common/base/work.h), measured on bench-soap.
constexpr std::int64_t kUnitsPerProposal = 1000, kUnitsPerTaskTaken = 125, kUnitsPerTaskMade = 75;
constexpr std::int64_t kPolishShare = 5;  // of the budget, one in so many
constexpr std::int64_t kRestartShare = 24;
constexpr double kWarmer[] = {1, 4, 16, 64};  // what beta is divided by
constexpr std::uint32_t kChainStream = 0x50a9, kRestartStream = 0x50ab;

double penalty_ms(double missing_bytes) {
  return missing_bytes * 1e-6 * kPenaltyMsPerMb;
}

// The share of its budget that a chain has spent, in [0, 1].
class Budget {
 public:
  Budget(const Work& work, double seconds) : work_(work), units_(work.left()), seconds_(seconds) {}
  double spent() const {
    double share = units_ == WorkLimits::kNoEnd ? 0 : static_cast<double>(work_.spent()) / static_cast<double>(units_);
    if (seconds_ > 0) {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
      share = std::max(share, passed.count() / seconds_);
    }
    return share;
  }

 private:
  const Work& work_;
  const std::int64_t units_;
  const double seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A simulation whose work is paid for; its costs are lengths of the step with the penalty where memory is looked at.
class PaidSimulation {
 public:
  PaidSimulation(const Space& space, const MachineLinks& machine, const Strategy& start, bool fit, Work& work)
      : simulation_(space, machine, start), work_(work) {
    if (fit) memory_.emplace(space, machine, start);
    pay();
  }
  const Strategy& strategy() const { return simulation_.strategy(); }
  double cost() const { return simulation_.step_ms() + (memory_ ? penalty_ms(memory_->missing_bytes()) : 0); }
  double propose(OperatorId op, Config config) {
    changed_ = op;
    if (memory_) {
      before_ = strategy()[at(op)];
      memory_->change(op, config);
    }
    simulation_.propose(op, std::move(config));
    pay();
    return cost();
  }
  void accept() { simulation_.accept(); }
  void reject() {
    simulation_.reject();
    if (memory_) memory_->change(changed_, before_);
  }

 private:
  void pay() {
    // Memory goes through the new parts a second time.
    const std::int64_t per_task_made = kUnitsPerTaskMade * (memory_ ? 2 : 1);
    work_.spend(kUnitsPerProposal + kUnitsPerTaskTaken * (simulation_.tasks_taken() - taken_) +
                per_task_made * (simulation_.tasks_made() - made_));
    taken_ = simulation_.tasks_taken();
    made_ = simulation_.tasks_made();
  }
  DeltaSimulation simulation_;
  std::optional<MemoryTally> memory_;
  OperatorId changed_ = kNone;
  Config before_;
  Work& work_;
  std::int64_t taken_ = 0, made_ = 0;
};

class Searcher {
 public:
  Searcher(const Space& space, const MachineLinks& machine, const Proposals& proposals, const SearchOptions& options,
           Work& work)
      : space_(space), machine_(machine), proposals_(proposals), options_(options), work_(work) {
    for (OperatorId op = 0; op < space.size(); ++op) {
      if (!proposals.fixed(op)) free_.push_back(op);
    }
  }

  SearchResult run(const std::vector<Start>& starts) {
    out_.data_parallel_ms = consider("data parallel", data_parallel(space_, machine_.num_devices()));
    out_.expert_ms = consider("expert", expert(space_, machine_.num_devices()));
    for (const Start& start : starts) consider(start.name, start.strategy);
    const std::int64_t all = work_.left();
    const std::int64_t kept = options_.polish && all != WorkLimits::kNoEnd ? all / kPolishShare : 0;
    const double kept_seconds = options_.polish ? options_.seconds / kPolishShare : 0;
    for (std::size_t i = 0; i < starts.size() && !free_.empty() && !work_.over(); ++i) {
      const auto left = static_cast<std::int64_t>(starts.size() - i);
      Work part(work_, all == WorkLimits::kNoEnd ? all : std::max<std::int64_t>(1, (work_.left() - kept) / left));
      chain(starts[i], options_.beta, (options_.seconds - kept_seconds) / static_cast<double>(starts.size()), part);
    }
    for (int i = 0; i < options_.restarts && !free_.empty() && !work_.over() && work_.left() > kept; ++i) {
      Rng rng(options_.seed, kRestartStream, static_cast<std::uint64_t>(i));
      const Start start{"random again", random_start(space_, proposals_, &rng)};
      const std::int64_t most = all == WorkLimits::kNoEnd ? all : std::min(all / kRestartShare, work_.left() - kept);
      Work part(work_, std::max<std::int64_t>(1, most));
      chain(start, options_.beta / kWarmer[i % std::size(kWarmer)], options_.seconds / kRestartShare, part);
    }
    if (options_.polish && proposals_.placement() != Placement::kAny) polish();
    out_.step_ms = simulated_step_ms(space_, out_.strategy, machine_);
    return std::move(out_);
  }

 private:
  // -> its length, as it is.
  double consider(const std::string& name, const Strategy& strategy) {
    work_.spend(kUnitsPerProposal);
    const double ms = simulated_step_ms(space_, strategy, machine_);
    const Strategy near = proposals_.nearest(strategy);
    const double near_ms = near == strategy ? ms : simulated_step_ms(space_, near, machine_);
    const double cost = near_ms + (options_.fit ? penalty_ms(MemoryTally(space_, machine_, near).missing_bytes()) : 0);
    if (out_.strategy.empty() || cost < least_) keep(name, near, cost);
    return ms;
  }
  void keep(const std::string& name, const Strategy& strategy, double cost) {
    out_.strategy = strategy;
    least_ = cost;
    out_.found_by = name;
  }

  void chain(const Start& start, double relative_beta, double seconds, Work& work) {
    PaidSimulation simulation(space_, machine_, proposals_.nearest(start.strategy), options_.fit, work);
    ChainResult chain;
    chain.start = start.name;
    chain.start_ms = chain.best_ms = simulation.cost();
    const double beta = relative_beta / std::max(out_.data_parallel_ms, 1e-12);
    Rng rng(options_.seed, kChainStream, out_.chains.size());
    const Budget budget(work, seconds);
    double best_spent = budget.spent(), current = chain.start_ms;
    while (!work.over() && budget.spent() < 1) {
      if (budget.spent() - best_spent >= 0.5) {
        chain.settled = true;
        break;
      }
      ++chain.proposals;
      const OperatorId op = free_[static_cast<std::size_t>(rng.below(free_.size()))];
      Config config = proposals_.draw(op, &rng);
      const double chance = rng.uniform();  // always drawn: the next ones do not depend on what came of this one
      if (config == simulation.strategy()[at(op)]) {
        work.spend(kUnitsPerProposal);
        continue;
      }
      const double ms = simulation.propose(op, std::move(config));
      if (ms > current && chance >= std::exp(beta * (current - ms))) {
        simulation.reject();
        continue;
      }
      simulation.accept();
      ++chain.accepted;
      current = ms;
      if (ms >= chain.best_ms) continue;
      chain.best_ms = ms;
      chain.best_at = chain.proposals;
      best_spent = budget.spent();
      if (ms < least_) keep(start.name, simulation.strategy(), ms);
    }
    out_.proposals += chain.proposals;
    out_.chains.push_back(std::move(chain));
  }

  // One operator at a time, the best of its configurations.
  void polish() {
    PaidSimulation simulation(space_, machine_, out_.strategy, options_.fit, work_);
    const double before = least_;
    double best_ms = before;
    std::size_t unchanged = 0;
    for (std::size_t i = 0; unchanged < free_.size() && !work_.over(); i = (i + 1) % free_.size()) {
      const OperatorId op = free_[i];
      Config best;
      for (std::int64_t number = 0; number < proposals_.count(op) && !work_.over(); ++number) {
        Config config = proposals_.config(op, number);
        if (config == simulation.strategy()[at(op)]) continue;
        ++out_.proposals;
        const double ms = simulation.propose(op, config);
        simulation.reject();
        if (ms >= best_ms) continue;
        best_ms = ms;
        best = std::move(config);
      }
      if (best.degrees.empty() && best.devices.empty()) {
        ++unchanged;
        continue;
      }
      simulation.propose(op, std::move(best));
      simulation.accept();
      unchanged = 0;
    }
    out_.local_optimum = unchanged >= free_.size() && !work_.over();
    if (best_ms < before) keep(out_.found_by + " + polish", simulation.strategy(), best_ms);
  }

  const Space& space_;
  const MachineLinks& machine_;
  const Proposals& proposals_;
  const SearchOptions options_;
  Work& work_;
  std::vector<OperatorId> free_;  // operators that have several configurations
  SearchResult out_;
  double least_ = 0;  // the cost of out_.strategy
};

}  // namespace

SearchResult search(const Space& space, const MachineLinks& machine, const Proposals& proposals,
                    const std::vector<Start>& starts, const SearchOptions& options, Work& work) {
  return Searcher(space, machine, proposals, options, work).run(starts);
}

}  // namespace automap::soap
