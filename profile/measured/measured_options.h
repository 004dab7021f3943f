// The options of programs that scale a model's times by measured ones.
#pragma once

#include <string>

#include "common/base/options.h"
#include "profile/measured/measured_times.h"

namespace automap::measured {

struct MeasuredOptions {
  std::string path;    // --measured FILE; empty: times are estimated
  std::string hlo;     // --measured-hlo FILE; empty: none
  double samples = 0;  // --measured-samples B; 0: as the file says, else the model's own

  bool any() const { return !path.empty(); }
};

// `traits`: of each of them in that table.
void declare_measured(OptionTable& table, MeasuredOptions* options, OptionTraits traits = 0);
// Throws Error(kUsage) for what is said of measured times without any.
void check_measured_options(const MeasuredOptions& options);
// What --measured names, with the op_names of --measured-hlo. Throws as read_measured(path) does, and as
// profile::load_model.
MeasuredTimes read_measured(const MeasuredOptions& options);

}  // namespace automap::measured
