// Published models by name, for users who have no config.json at hand.
#pragma once

#include <string>
#include <vector>

namespace automap::architecture {

std::vector<std::string> model_names();
// The config.json of the model of this name, with the keys that are read here; empty: no such model.
std::string config_of(const std::string& name);

}  // namespace automap::architecture
