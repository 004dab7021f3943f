#include "common/pipeline/turn.h"

#include <charconv>

namespace automap::pipeline {

std::string turn_name(const std::string& loop, std::int64_t number, std::int64_t all) {
  return loop + "[" + std::to_string(number) + "/" + std::to_string(all) + "]";
}

std::optional<Turn> turn_of(std::string_view name) {
  // No HLO name has a bracket.
  const std::size_t open = name.rfind('['), slash = name.rfind('/');
  if (open == std::string_view::npos || slash == std::string_view::npos || slash < open || name.back() != ']') {
    return std::nullopt;
  }
  Turn turn;
  turn.loop = name.substr(0, open);
  const auto read = [&](std::size_t from, std::size_t to, std::int64_t* value) {
    const auto [end, error] = std::from_chars(name.data() + from, name.data() + to, *value);
    return error == std::errc() && end == name.data() + to && to > from;
  };
  if (!read(open + 1, slash, &turn.number) || !read(slash + 1, name.size() - 1, &turn.all)) return std::nullopt;
  if (turn.number < 1 || turn.number > turn.all) return std::nullopt;
  return turn;
}

}  // namespace automap::pipeline
