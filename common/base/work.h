// Limits of a search. Work is counted in units and never timed, so that a search ends at the same place on every
// machine and under any load. A clock or a signal may stop it as well; its result then depends on the moment, and
// stopped() says so.
//
// A unit is about a nanosecond of one core of the machine that the searchers' prices were measured on (docs/planner.md,
// "Effort"). What matters is that a search pays the same for the same steps.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automap {

// The effort of a program, for people; each program says how many units it means.
enum class Effort { kQuick, kNormal, kThorough };
const char* to_string(Effort effort);                       // "quick", "normal", "thorough"
std::optional<Effort> parse_effort(std::string_view name);  // the inverse; nullopt for any other text
std::vector<std::string> effort_names();

struct WorkLimits {
  static constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

  std::int64_t units = kNoEnd;
  // Stop early, and differently from run to run:
  double seconds = std::numeric_limits<double>::infinity();  // from when the Work is made; above a year: no limit
  std::function<bool()> cancelled;                           // may be empty; asked at every look, true stops
  // Seconds from any origin; empty: the steady clock. Only read where `seconds` is finite.
  std::function<double()> clock;

  static WorkLimits of_units(std::int64_t units);
  static WorkLimits of_seconds(double seconds);
  static WorkLimits until(std::function<bool()> cancelled);
};

// The rest of a limit. Searchers spend() in their inner loops and ask over() there; both are cheap. How far spending
// goes beyond the limit before the next look is up to the searcher, and the same on every run.
class Work {
 public:
  Work() = default;  // without end
  explicit Work(WorkLimits limits);
  // A part of `whole`: at most `units` of it. Units spent here are spent there, and the end of the whole ends the part.
  // `whole` must outlive the part.
  Work(Work& whole, std::int64_t units);
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void spend(std::int64_t units) {
    spent_ += units;
    if (whole_ != nullptr) whole_->spend(units);
  }
  // True once the units are spent, the time has passed or somebody cancelled, and from then on.
  bool over();
  // True if a clock or `cancelled` ended it, or the work that it is a part of: another run may come further.
  bool stopped() const { return stopped_; }
  std::int64_t spent() const { return spent_; }
  // Units until over(), at least 0; kNoEnd without a limit.
  std::int64_t left() const;

 private:
  WorkLimits limits_;
  Work* whole_ = nullptr;
  double end_s_ = 0;  // on the clock, where limits_.seconds is finite
  std::int64_t spent_ = 0;
  bool over_ = false, stopped_ = false;
};

// The time of limits, for works that run beside one another until it is over.
class Deadline {
 public:
  explicit Deadline(WorkLimits limits);
  bool passed() const;
  // Limits of a work that may take so many units of the remaining time.
  WorkLimits limits(std::int64_t units) const;

 private:
  double seconds_left() const;

  WorkLimits limits_;
  double end_s_ = 0;  // on the clock, where limits_.seconds is finite
};

}  // namespace automap
