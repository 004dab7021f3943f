// The input of automap-search placement: a workload as it is, or one made of a model or a profile.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/options.h"
#include "plan/systems/placement/model_workload.h"

namespace automap::search {

struct PlacementInput {
  placement::Workload workload;
  std::optional<placement::ModelWorkload> made;  // of a model or profile; its workload is the same
  std::string name;                              // for people
  std::map<std::string, std::string> provenance;
  std::vector<std::string> warnings;
};

struct PlacementInputOptions {
  std::string path, variables, cluster = "config-a", device, granularity = "auto";
  double transfer_scale = 1, transfer_gbytes_per_s = 0;

  void declare_input(OptionTable* table);    // the group "Input"
  void declare_machine(OptionTable* table);  // within "Machine"
  // Throws Error(kUsage) where an option of models is given for a workload, or one of modules for a profile, and the
  // errors of reading; the machine is not checked yet.
  PlacementInput read(const OptionTable& table) const;
};

}  // namespace automap::search
