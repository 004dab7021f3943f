// Fits the lines of a CollectiveTime to measured times (sizes and milliseconds) of one operation on one group.
#pragma once

#include <vector>

#include "common/base/span.h"
#include "common/machine/collectives.h"

namespace automap::machine {

struct MeasuredTime {
  double bytes = 0, ms = 0;
};

// Below this, latency and the machine's moods are all there is: left out when at least three larger sizes are there.
constexpr double kSmallestFitted = 65536;

// The CollectiveTime of up to `lines` (1..CollectiveTime::kLines) lines with the least sum of squared relative errors
// at the points: of every way to split them, in order of size, into that many runs or fewer, each run's line by least
// squares of its relative errors. No line is more than twice as fast without end as the largest message was, so that
// larger ones are no guess. `points`: at least 2, bytes ascending, all above 0. Time grows with the square of the
// points; of more than 128 only some places are tried as ends of a run.
CollectiveTime fit_lines(Span<const MeasuredTime> points, int lines = CollectiveTime::kLines);

// Largest |fitted / measured - 1| of the points that are fitted.
double largest_error(Span<const MeasuredTime> points, const CollectiveTime& fitted);

}  // namespace automap::machine
