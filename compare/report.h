// Prints a comparison of systems: a table for people, JSON (docs/formats/printed.md), and a page with one picture.
#pragma once

#include <string>
#include <vector>

#include "plan/systems/systems.h"

namespace automap::compare {

using systems::Answer;
using systems::System;

struct Compared {
  std::string model, cluster;
  double batch = 0;       // samples of a step
  bool workload = false;  // for placement: `cluster` says its devices
  std::vector<const System*> systems;
  std::vector<Answer> answers;  // of each
  double load_average = 0;      // of the machine, when it began; search times depend on it
};

// `width`: the columns there are (report_columns); 0: as wide as it gets.
std::string report_text(const Compared& compared, int width = 0);
std::string report_json(const Compared& compared);
// A page that needs nothing else: bars of the simulated step, and the search time on a logarithmic axis.
std::string report_html(const Compared& compared);

}  // namespace automap::compare
