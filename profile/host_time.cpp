#include "profile/host_time.h"

#include <algorithm>
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

void wait_at_every_kernel(InstructionTimes* times) {
  const std::vector<double>& host = times->host_ms.by_kernels;
  for (std::size_t i = 0; i < host.size(); ++i) times->ms[i] = std::max(times->ms[i], host[i]);
}

}  // namespace automap::profile
