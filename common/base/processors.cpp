#include "common/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <thread>

namespace automap {
namespace {

// The first line; empty: there is none.
std::string line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int quota() {
  if (const int v2 = processors_of_quota(line_of("/sys/fs/cgroup/cpu.max")); v2 > 0) return v2;
  return processors_of_quota(line_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " +
                             line_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

int allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int processors_of_quota(std::string_view quota_and_period) {
  long long time = 0, period = 0;
  const char* const end = quota_and_period.data() + quota_and_period.size();
  const auto [behind, error] = std::from_chars(quota_and_period.data(), end, time);
  if (error != std::errc() || behind == end || *behind != ' ') return 0;
  const auto [last, wrong] = std::from_chars(behind + 1, end, period);
  if (wrong != std::errc() || last != end || time <= 0 || period <= 0) return 0;
  constexpr long long kMost = 1 << 20;
  return static_cast<int>(std::min(kMost, time / period + (time % period != 0 ? 1 : 0)));
}

int usable_processors() {
  const int allowed = std::max(1, allowed_processors()), in_time = quota();
  return in_time > 0 ? std::min(allowed, in_time) : allowed;
}

}  // namespace automap
