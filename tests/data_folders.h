// Where the repository's fixtures and the hand-made files of the tests lie.
#pragma once

#include <string>

namespace automap {

inline const std::string kFixtures = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/";
inline const std::string kHloFixtures = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/";
inline const std::string kHloData = std::string(AUTOMAP_SOURCE_DIR) + "/tests/data/hlo/";

}  // namespace automap
