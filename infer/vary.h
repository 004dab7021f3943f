// --vary NAME=V,V,... and --compare-clusters A,B ask one question several times, with one thing changed.
#pragma once

#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/machine/cluster.h"
#include "infer/options.h"

namespace automap::infer {

// The names that --vary accepts: options of the program, and figures of the cluster.
std::vector<std::string> varied_options();
std::vector<std::string> varied_figures();

struct Varied {
  std::string name;                 // "batch", "devices"; "cluster" of --compare-clusters
  std::vector<std::string> values;  // as they were written; of a range, all of its values
  bool option() const;              // each value is one of the option of that name
  bool remakes_model() const;       // the model is another one with each value
  bool cluster() const { return name == "cluster"; }
};

// Throws Error(kUsage) for a text of another form, a name that is none of the above, a value that is no number of the
// right kind, or comes twice, or too many of them, and for options that ask for something else than plans to compare.
Varied check_varied(const OptionTable& table, const InferOptions& options);

// `cluster` with the figure that --vary changes. devices: its first so many, or as many more of its last servers as
// that takes; inter_gbytes_per_s: of every server, and what was measured between servers in proportion. Throws
// Error(kUsage) for more devices than a cluster may have.
machine::Cluster with_figure(machine::Cluster cluster, const std::string& name, double value);

}  // namespace automap::infer
