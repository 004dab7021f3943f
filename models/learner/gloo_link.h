// Ranks (models/rank_link.h) connected by torch.distributed's store and process group: c10d with Gloo over TCP.
// LibTorch stays behind this header.
#pragma once

#include <memory>

#include "models/rank_link.h"

namespace automap::models {

// Waits until all ranks have come. Throws Error(kConfig) saying which rank does not come within `timeout_s`, that a
// port is in use or an address unknown, that two processes have the same rank or that ranks disagree about their
// number, or that this LibTorch has no Gloo. The interface is the one that leads to `address`, or GLOO_SOCKET_IFNAME
// where that is set.
std::unique_ptr<RankLink> join_ranks(const RankPlace& place, double timeout_s);

}  // namespace automap::models
