#include "profile/host_time.h"

#include <cstddef>
#include <numeric>

namespace automap::profile {

void wait_for_host(std::vector<double>* device_ms, const std::vector<double>& host_ms) {
  const double device = std::accumulate(device_ms->begin(), device_ms->end(), 0.0);
  const double host = std::accumulate(host_ms.begin(), host_ms.end(), 0.0);
  if (host <= device) return;
  const double waits = (host - device) / host;
  for (std::size_t i = 0; i < device_ms->size(); ++i) (*device_ms)[i] += host_ms[i] * waits;
}

}  // namespace automap::profile
