// Finds iterations of loops over layers among a profile's positions by their names: "while.46[3/24]" is the third of
// 24.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automap::pipeline {

struct Turn {
  std::string_view loop;             // "while.46"
  std::int64_t number = 0, all = 0;  // from 1
};

std::string turn_name(const std::string& loop, std::int64_t number, std::int64_t all);
// nullopt: no turn. Points into `name`.
std::optional<Turn> turn_of(std::string_view name);

}  // namespace automap::pipeline
