#include "common/machine/link_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "common/base/check.h"

namespace automap::machine {
namespace {

// A further line must bring the error down to this share.
constexpr double kWorthALine = 0.95;

// Sums over a run of points for least squares of (latency + bytes * pace) / ms - 1.
struct RunSums {
  double ones = 0, bytes = 0, squares = 0;  // of 1, bytes, bytes^2, each over ms^2
  double per_ms = 0, bytes_per_ms = 0;
  void add(const MeasuredTime& point, double sign) {
    const double weight = 1 / point.ms;
    ones += sign * weight * weight;
    bytes += sign * point.bytes * weight * weight;
    squares += sign * point.bytes * point.bytes * weight * weight;
    per_ms += sign * weight;
    bytes_per_ms += sign * point.bytes * weight;
  }
};

// Neither latency nor pace is below 0; the pace not below `least`.
CollectiveLine line_of(const RunSums& sums, double least) {
  const double determinant = sums.ones * sums.squares - sums.bytes * sums.bytes;
  CollectiveLine line{-1, -1};
  if (determinant > 1e-12 * sums.ones * sums.squares) {
    line.latency_ms = (sums.per_ms * sums.squares - sums.bytes_per_ms * sums.bytes) / determinant;
    line.ms_per_byte = (sums.bytes_per_ms * sums.ones - sums.per_ms * sums.bytes) / determinant;
  }
  if (line.latency_ms < 0) line = {0, sums.bytes_per_ms / sums.squares};
  if (line.ms_per_byte < least) {
    line.ms_per_byte = least;
    line.latency_ms = std::max(0.0, (sums.per_ms - least * sums.bytes) / sums.ones);
  }
  return line;
}

double squared_errors(Span<const MeasuredTime> points, const CollectiveTime& time) {
  double sum = 0;
  for (const MeasuredTime& point : points) {
    const double error = time.ms(point.bytes) / point.ms - 1;
    sum += error * error;
  }
  return sum;
}

class Fit {
 public:
  explicit Fit(Span<const MeasuredTime> points) : points_(points) {
    least_ = points.back().ms / points.back().bytes / 2;
    // Prefix sums; runs are differences.
    sums_.resize(points.size() + 1);
    for (std::size_t i = 0; i < points.size(); ++i) {
      sums_[i + 1] = sums_[i];
      sums_[i + 1].add(points[i], 1);
    }
    const std::size_t step = (points.size() + 127) / 128;
    for (std::size_t i = 2; i + 2 <= points.size(); i += step) ends_.push_back(i);
  }

  CollectiveTime best(int lines) {
    offer({run(0, points_.size())});
    for (std::size_t a = 0; lines >= 2 && a < ends_.size(); ++a) {
      offer({run(0, ends_[a]), run(ends_[a], points_.size())});
    }
    for (std::size_t a = 0; lines >= 3 && a < ends_.size(); ++a) {
      const CollectiveLine first = run(0, ends_[a]);
      for (std::size_t b = a + 1; b < ends_.size(); ++b) {
        if (ends_[b] < ends_[a] + 2) continue;
        offer({first, run(ends_[a], ends_[b]), run(ends_[b], points_.size())});
      }
    }
    return best_;
  }

 private:
  CollectiveLine run(std::size_t begin, std::size_t end) const {
    RunSums sums = sums_[end];
    const RunSums& before = sums_[begin];
    sums.ones -= before.ones;
    sums.bytes -= before.bytes;
    sums.squares -= before.squares;
    sums.per_ms -= before.per_ms;
    sums.bytes_per_ms -= before.bytes_per_ms;
    return line_of(sums, least_);
  }

  void offer(std::vector<CollectiveLine> lines) {
    CollectiveTime::Lines all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = lines[std::min(i, lines.size() - 1)];
    const CollectiveTime time(all);
    const double error = squared_errors(points_, time);
    // A further line has to be worth it.
    if (error < least_error_ * (lines.size() > best_lines_ ? kWorthALine : 1)) {
      least_error_ = error;
      best_ = time;
      best_lines_ = lines.size();
    }
  }

  Span<const MeasuredTime> points_;
  double least_ = 0;  // ms per byte
  std::vector<RunSums> sums_;
  std::vector<std::size_t> ends_;  // of runs, tried
  CollectiveTime best_;
  std::size_t best_lines_ = 1;
  double least_error_ = std::numeric_limits<double>::infinity();
};

// The points that are fitted: without the smallest messages.
Span<const MeasuredTime> fitted_of(Span<const MeasuredTime> points) {
  std::size_t first = 0;
  while (first + 3 < points.size() && points[first].bytes < kSmallestFitted) ++first;
  return Span<const MeasuredTime>(points.data() + first, points.size() - first);
}

}  // namespace

CollectiveTime fit_lines(Span<const MeasuredTime> points, int lines) {
  AM_CHECK(points.size() >= 2 && lines >= 1);
  return Fit(fitted_of(points)).best(lines);
}

double largest_error(Span<const MeasuredTime> points, const CollectiveTime& fitted) {
  double largest = 0;
  for (const MeasuredTime& point : fitted_of(points)) {
    largest = std::max(largest, std::abs(fitted.ms(point.bytes) / point.ms - 1));
  }
  return largest;
}

}  // namespace automap::machine
