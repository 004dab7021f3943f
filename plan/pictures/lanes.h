// The rows of a timeline. Runs of a row that are too small to be told apart are merged.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/timeline.h"

namespace automap::pictures {

enum class LaneKind { kCompute, kToNext, kToPrevious, kGradients };

struct Lane {
  LaneKind kind = LaneKind::kCompute;
  int group = 0;  // from 0
  const std::vector<pipeline::TimelineEvent>* events = nullptr;
  std::string name;  // "group 2 computes", "link 2 to 3"
};

// Those that hold something, by group: compute, both links, gradients. The timeline must outlive them.
std::vector<Lane> lanes_of(const pipeline::Timeline& timeline);

// One or more events that follow one another.
struct Run {
  pipeline::TimelineKind kind = pipeline::TimelineKind::kForward;  // the first's
  bool mixed = false;                                              // others are of other kinds
  int number = 0;                                                  // the first's
  int events = 1;
  double start_ms = 0, end_ms = 0;
};

// Events shorter than `least_ms` become one with those behind them until the run is so long; a pause as long ends it.
// With least_ms = 0 every event is a run.
std::vector<Run> runs_of(const std::vector<pipeline::TimelineEvent>& events, double least_ms);

// The smallest least_ms, from `least_ms` on doubled, at which all lanes together have at most `most` runs.
double merged_from(const std::vector<Lane>& lanes, double step_ms, double least_ms, std::size_t most);

// The highest of the levels in every interval of least_ms; 0: as they are.
std::vector<pipeline::MemoryLevel> levels_of(const std::vector<pipeline::MemoryLevel>& levels, double least_ms);

}  // namespace automap::pictures
