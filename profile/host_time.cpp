#include "profile/host_time.h"

#include <cstddef>
#include <numeric>
#include <utility>

namespace automap::profile {

namespace {

double total(const std::vector<double>& ms) {
  return std::accumulate(ms.begin(), ms.end(), 0.0);
}

}  // namespace

std::vector<double> host_of_pass(std::vector<double> by_kernels, std::vector<double> by_products) {
  return total(by_products) > total(by_kernels) ? std::move(by_products) : std::move(by_kernels);
}

void wait_for_host(std::vector<double>* device_ms, const std::vector<double>& host_ms) {
  const double device = total(*device_ms), host = total(host_ms);
  if (host <= device) return;
  const double waits = (host - device) / host;
  for (std::size_t i = 0; i < device_ms->size(); ++i) (*device_ms)[i] += host_ms[i] * waits;
}

}  // namespace automap::profile
