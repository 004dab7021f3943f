// Published models by name, for users who have no config.json at hand.
#pragma once

#include <string>
#include <vector>

namespace automap::architecture {

std::vector<std::string> model_names();
// The names that are near to what somebody typed, as in "meta-llama/Meta-Llama-3-8B" or "gpt3": without a repository in
// front, in whatever case, with or without dots and dashes; at most five.
std::vector<std::string> near_models(const std::string& typed);
// The config.json of the model of this name, with the keys that are read here; empty: no such model.
std::string config_of(const std::string& name);

}  // namespace automap::architecture
