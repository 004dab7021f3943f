// The prices of a cluster's devices: of its file (price_per_device_hour), or of --price.
#pragma once

#include <string>

#include "common/machine/cluster.h"

namespace automap::infer {

// "2.5" for all devices, or "h100=2.5,a100-80gb=1.2" by type: replaces what the file says of these. Throws
// Error(kUsage) for another form, a type that the cluster does not have, or one that comes twice.
void set_prices(const std::string& text, machine::Cluster* cluster);

// Of all its devices; 0: of some of them nobody says it.
double price_per_hour(const machine::Cluster& cluster);

// Throws Error(kUsage) naming the servers without a price, where `needed` or others have one.
void check_prices(const machine::Cluster& cluster, bool needed);

}  // namespace automap::infer
