#include "common/base/work.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "common/base/clock.h"

namespace automap {
namespace {

// Longer is no limit, and the clock would overflow.
constexpr double kYear = 3e7;
constexpr Effort kEfforts[] = {Effort::kQuick, Effort::kNormal, Effort::kThorough};

// On their clock, which they have from here on where their time is finite.
double end_of(WorkLimits* limits) {
  if (!(limits->seconds < kYear)) {
    limits->seconds = std::numeric_limits<double>::infinity();
    return 0;
  }
  if (!limits->clock) limits->clock = steady_seconds;
  return limits->clock() + limits->seconds;
}

}  // namespace

const char* to_string(Effort effort) {
  switch (effort) {
    case Effort::kQuick: return "quick";
    case Effort::kNormal: return "normal";
    case Effort::kThorough: return "thorough";
  }
  return "";
}

std::optional<Effort> parse_effort(std::string_view name) {
  for (const Effort effort : kEfforts) {
    if (name == to_string(effort)) return effort;
  }
  return std::nullopt;
}

std::vector<std::string> effort_names() {
  std::vector<std::string> names;
  for (const Effort effort : kEfforts) names.emplace_back(to_string(effort));
  return names;
}

WorkLimits WorkLimits::of_units(std::int64_t units) {
  WorkLimits limits;
  limits.units = units;
  return limits;
}

WorkLimits WorkLimits::of_seconds(double seconds) {
  WorkLimits limits;
  limits.seconds = seconds;
  return limits;
}

WorkLimits WorkLimits::until(std::function<bool()> cancelled) {
  WorkLimits limits;
  limits.cancelled = std::move(cancelled);
  return limits;
}

Work::Work(WorkLimits limits) : limits_(std::move(limits)), end_s_(end_of(&limits_)) {}

Work::Work(Work& whole, std::int64_t units) : whole_(&whole) {
  limits_.units = std::max<std::int64_t>(0, units);
}

bool Work::over() {
  if (over_) return true;
  // Units that are spent end the work whatever the clock says: stopped() is true only where a clock or a signal made a
  // difference.
  if (spent_ >= limits_.units) return over_ = true;
  if (whole_ != nullptr) {
    over_ = whole_->over();
    stopped_ = whole_->stopped();
    return over_;
  }
  stopped_ =
      (limits_.cancelled && limits_.cancelled()) || (std::isfinite(limits_.seconds) && limits_.clock() >= end_s_);
  return over_ = stopped_;
}

std::int64_t Work::left() const {
  const std::int64_t own =
      limits_.units == WorkLimits::kNoEnd ? WorkLimits::kNoEnd : std::max<std::int64_t>(0, limits_.units - spent_);
  return whole_ == nullptr ? own : std::min(own, whole_->left());
}

Deadline::Deadline(WorkLimits limits) : limits_(std::move(limits)), end_s_(end_of(&limits_)) {}

double Deadline::seconds_left() const {
  return std::isfinite(limits_.seconds) ? end_s_ - limits_.clock() : limits_.seconds;
}

bool Deadline::passed() const {
  return !(seconds_left() > 0) || (limits_.cancelled && limits_.cancelled());
}

WorkLimits Deadline::limits(std::int64_t units) const {
  WorkLimits left = limits_;
  left.units = units;
  left.seconds = seconds_left();
  return left;
}

}  // namespace automap
