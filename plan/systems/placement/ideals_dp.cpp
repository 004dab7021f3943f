#include "plan/systems/placement/ideals_dp.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::placement {
namespace {

// Sums of the same numbers in another order differ by less.
constexpr double kRounding = 1e-12;
// Units of work per pair of ideals and per state that it is relaxed for (common/base/work.h).
constexpr std::int64_t kPairUnits = 40, kStateUnits = 1;

// More devices than units stay empty.
int useful(int devices, const Units& units) {
  return std::min(devices, units.size());
}

class Programme {
 public:
  Programme(const Workload& workload, const Units& units, const Ideals& ideals, double upper_bound_ms, Work* work,
            DpCounts* counts)
      : units_(units),
        ideals_(ideals),
        accelerators_(useful(workload.accelerators, units)),
        cpus_(useful(workload.cpus, units)),
        first_cpu_(workload.accelerators),
        memory_bytes_(workload.memory_bytes),
        most_ms_(upper_bound_ms * (1 + kRounding)),
        work_(work),
        counts_(counts),
        states_(at((accelerators_ + 1) * (cpus_ + 1))),
        load_(units),
        seen_(at(ideals.size()), -1) {}

  std::optional<Split> run() {
    find_useful();
    best_.assign(at(ideals_.size()) * states_, kInfinity);
    std::fill_n(best_.begin(), states_, 0.0);
    for (int i = 1; i < ideals_.size(); ++i) {
      if (!useful_[at(i)]) continue;
      relax_from(i);
      if (work_->over()) return std::nullopt;
    }
    // Pairs that trace() looks at again do not count.
    counts_->pairs += pairs_ + 1;
    const double value = best(ideals_.size() - 1)[states_ - 1];
    if (value == kInfinity) return std::nullopt;
    return trace(value);
  }

 private:
  double* best(int ideal) { return &best_[at(ideal) * states_]; }
  std::size_t state(int a, int b) const { return at(a * (cpus_ + 1) + b); }

  // Ideals that a device may begin or end with: for some a and b, their work fits a accelerators and b cores within
  // the bound, and the rest the other devices. Work is counted as time on accelerators; a core does at most
  // `per_cpu_` of it in a unit of time.
  void find_useful() {
    useful_.assign(at(ideals_.size()), 1);
    if (most_ms_ == kInfinity) return;
    double per_cpu = 0, total = 0;
    for (const Unit& unit : units_.units) {
      if (!unit.on_accelerators || unit.accelerator_ms == 0) continue;
      total += unit.accelerator_ms;
      per_cpu = std::max(per_cpu, unit.cpu_ms > 0 ? unit.accelerator_ms / unit.cpu_ms : kInfinity);
    }
    const auto capacity = [&](int a, int b) { return most_ms_ * (a + (b > 0 ? per_cpu * b : 0)) + kRounding * total; };
    std::vector<double> done(at(ideals_.size()), 0);
    for (int i = 1; i < ideals_.size(); ++i) {
      const Ideals::Step& step = ideals_.down(ideals_.down_begin(i));
      const Unit& unit = units_.units[at(step.unit)];
      done[at(i)] = done[at(step.ideal)] + (unit.on_accelerators ? unit.accelerator_ms : 0);
      bool found = false;
      for (int a = 0; a <= accelerators_ && !found; ++a) {
        for (int b = 0; b <= cpus_ && !found; ++b) {
          found = done[at(i)] <= capacity(a, b) && total - done[at(i)] <= capacity(accelerators_ - a, cpus_ - b);
        }
      }
      useful_[at(i)] = found;
    }
    useful_.back() = 1;
  }

  bool fits_accelerator() const {
    const SetLoad::Sums& sums = load_.sums();
    return sums.not_on_accelerators == 0 && sums.bytes <= memory_bytes_ && sums.accelerator_ms <= most_ms_;
  }
  bool fits_cpu() const { return cpus_ > 0 && load_.sums().cpu_ms <= most_ms_; }

  // Every ideal J of `top` that top \ J may be one device behind, until visit(J) says true; then `units` are top \ J.
  template <typename Visit>
  void walk(int top, const Visit& visit, std::vector<int>* units = nullptr) {
    ++epoch_;
    stack_.clear();
    stack_.push_back({top, ideals_.down_begin(top), -1, {}});
    bool found = false;
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (found || frame.next == ideals_.down_begin(frame.ideal + 1)) {
        if (frame.unit >= 0) {
          load_.take_back(frame.unit, frame.before);
          if (found && units != nullptr) units->push_back(frame.unit);
        }
        stack_.pop_back();
        continue;
      }
      const Ideals::Step step = ideals_.down(frame.next++);
      if (seen_[at(step.ideal)] == epoch_) continue;
      seen_[at(step.ideal)] = epoch_;
      const SetLoad::Sums before = load_.sums();
      load_.add(step.unit);
      ++pairs_;
      work_->spend(kPairUnits);
      // Neither gets better with more units.
      if (!fits_accelerator() && !fits_cpu()) {
        load_.take_back(step.unit, before);
        continue;
      }
      if (useful_[at(step.ideal)]) found = visit(step.ideal);
      stack_.push_back({step.ideal, ideals_.down_begin(step.ideal), step.unit, before});
    }
  }

  double accelerator_load() const {
    if (!fits_accelerator()) return kInfinity;
    const double ms = load_.sums().accelerator_ms + load_.sums().transfer_ms;
    return ms <= most_ms_ ? ms : kInfinity;
  }
  double cpu_load() const { return fits_cpu() ? load_.sums().cpu_ms : kInfinity; }

  void relax_from(int top) {
    ++pairs_;
    double* to = best(top);
    walk(top, [&](int from_ideal) {
      work_->spend(kStateUnits * static_cast<std::int64_t>(states_));
      const double* from = best(from_ideal);
      const double on_accelerator = accelerator_load(), on_cpu = cpu_load();
      if (on_accelerator < kInfinity) {
        for (std::size_t s = state(1, 0); s < states_; ++s) {
          to[s] = std::min(to[s], std::max(from[s - at(cpus_ + 1)], on_accelerator));
        }
      }
      if (on_cpu < kInfinity) {
        for (int a = 0; a <= accelerators_; ++a) {
          for (int b = 1; b <= cpus_; ++b) {
            to[state(a, b)] = std::min(to[state(a, b)], std::max(from[state(a, b - 1)], on_cpu));
          }
        }
      }
      return false;
    });
    // At most so many devices.
    for (int a = 0; a <= accelerators_; ++a) {
      for (int b = 0; b <= cpus_; ++b) {
        if (a > 0) to[state(a, b)] = std::min(to[state(a, b)], to[state(a - 1, b)]);
        if (b > 0) to[state(a, b)] = std::min(to[state(a, b)], to[state(a, b - 1)]);
      }
    }
  }

  // The devices of a best split, found by walking again from the ideals on the way.
  Split trace(double value) {
    Split out;
    out.max_load_ms = value;
    out.device_of_unit.assign(at(units_.size()), -1);
    int ideal = ideals_.size() - 1, a = accelerators_, b = cpus_, accelerators_used = 0, cpus_used = 0;
    while (ideal != 0) {
      while (a > 0 && best(ideal)[state(a - 1, b)] == best(ideal)[state(a, b)]) --a;
      while (b > 0 && best(ideal)[state(a, b - 1)] == best(ideal)[state(a, b)]) --b;
      const double wanted = best(ideal)[state(a, b)];
      bool cpu = false;
      int next = -1;
      std::vector<int> units;
      walk(
          ideal,
          [&](int from) {
            const double* before = best(from);
            if (a > 0 && std::max(before[state(a - 1, b)], accelerator_load()) == wanted) {
              cpu = false;
            } else if (b > 0 && std::max(before[state(a, b - 1)], cpu_load()) == wanted) {
              cpu = true;
            } else {
              return false;
            }
            next = from;
            return true;
          },
          &units);
      AM_CHECK(next >= 0);
      const int device = cpu ? first_cpu_ + cpus_used++ : accelerators_used++;
      for (const int unit : units) out.device_of_unit[at(unit)] = device;
      (cpu ? b : a) -= 1;
      ideal = next;
    }
    return out;
  }

  struct Frame {
    int ideal, next;  // position in ideals_.down
    int unit;         // that led here, -1 at the top
    SetLoad::Sums before;
  };

  const Units& units_;
  const Ideals& ideals_;
  const int accelerators_, cpus_, first_cpu_;
  const double memory_bytes_, most_ms_;
  Work* work_;
  DpCounts* counts_;
  const std::size_t states_;
  SetLoad load_;
  std::vector<char> useful_;  // of ideals
  std::vector<double> best_;
  std::vector<int> seen_;
  int epoch_ = -1;
  std::vector<Frame> stack_;
  std::int64_t pairs_ = 0;
};

}  // namespace

double dp_bytes(const Workload& workload, const Units& units, int ideals) {
  return 8.0 * ideals * (useful(workload.accelerators, units) + 1) * (useful(workload.cpus, units) + 1);
}

std::optional<Split> best_split(const Workload& workload, const Units& units, const Ideals& ideals,
                                double upper_bound_ms, Work* work, DpCounts* counts) {
  return Programme(workload, units, ideals, upper_bound_ms, work, counts).run();
}

}  // namespace automap::placement
