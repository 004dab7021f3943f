// Published models by name, for who has no config.json at hand.
#pragma once

#include <string>
#include <vector>

namespace automap::architecture {

std::vector<std::string> model_names();
// What stands in the config.json of the model of this name, as far as it is read here; empty: no such model.
std::string config_of(const std::string& name);

}  // namespace automap::architecture
