// Finds the nearest known name for "did you mean ...?".
#pragma once

#include <string>
#include <vector>

namespace automap {

// The known name that `name` is an abbreviation or a slip of, or "" when none is near enough. Slips are counted as
// inserted, removed, replaced and swapped letters: at most a third of the name, at least one.
// closest_name("exakt", {"exact", "auto"}) = "exact"; closest_name("micro", {"micro-batches"}) = "micro-batches".
std::string closest_name(const std::string& name, const std::vector<std::string>& known);

}  // namespace automap
