#include "profile/measured/measured_options.h"

#include "common/base/error.h"
#include "profile/measured/attribution.h"
#include "profile/measured/forms.h"
#include "profile/profile_hlo.h"

namespace automap::measured {

void declare_measured(OptionTable& table, MeasuredOptions* options, OptionTraits traits) {
  table
      .add(&options->path, "measured",
           std::string("scale the times of a model by measured ones: ") + kMeasuredForms +
               "; told from the bytes, gzipped or not")
      .reads_folder()
      .metavar("FILE")
      .traits(traits);
  table
      .add(&options->hlo, "measured-hlo",
           "the module after optimization, where a trace names its instructions and has no op_names (CPU)")
      .reads_file()
      .metavar("FILE")
      .advanced()
      .traits(traits);
  table
      .add(&options->samples, "measured-samples",
           "samples of the micro-batch that one device measured, where the file does not say it; 0: the model's")
      .range(0, 1 << 20)
      .metavar("B")
      .advanced()
      .traits(traits);
}

void check_measured_options(const MeasuredOptions& options) {
  if (options.any() || (options.samples == 0 && options.hlo.empty())) return;
  throw Error(ErrorKind::kUsage,
              std::string(options.hlo.empty() ? "--measured-samples" : "--measured-hlo") + " without --measured",
              "name the measured times: --measured FILE");
}

MeasuredTimes read_measured(const MeasuredOptions& options) {
  MeasuredTimes times = read_measured(options.path);
  if (!options.hlo.empty()) {
    const profile::ReadModule ran = profile::load_model(options.hlo, "--measured-hlo takes HLO after optimization");
    add_op_names(ran.module.graph, &times);
  }
  return times;
}

}  // namespace automap::measured
