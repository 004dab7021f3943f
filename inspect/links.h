// Describes the links in a cluster file for automap-inspect.
#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/machine/cluster.h"

namespace automap::inspect {

// A table of every group's links (empty: all take ring formulas), and `links` in each of `document`'s `groups`. `text`:
// of the cluster file, whose tables and logs are read again for the errors of their fits; empty for a preset.
std::string describe_links(const machine::Cluster& cluster, const std::string& source, std::string_view text,
                           Json* document);

}  // namespace automap::inspect
