#include "models/usable_device_cuts.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::models {

using pipeline::Problem;

namespace {

std::vector<int> server_boundaries(const Problem& problem) {
  std::vector<int> boundaries;
  for (int d = 1; d < problem.num_devices(); ++d) {
    if (problem.server_of_device(d - 1) != problem.server_of_device(d)) boundaries.push_back(d);
  }
  return boundaries;
}

// Plans as ways over device cuts: which cuts stage s of S may end at, and one way through each.
class Ways {
 public:
  Ways(const Problem& problem, int stages, const std::vector<char>& allowed)
      : problem_(problem), stages_(stages), devices_(problem.num_devices()), ends_(at(stages) + 1) {
    for (std::vector<char>& of_stage : ends_) of_stage.assign(at(devices_) + 1, 0);
    ends_[0][0] = 1;
    for (int s = 1; s <= stages; ++s) {
      const auto end = [&](int to) {
        if (allowed[at(to)]) ends_[at(s)][at(to)] = 1;
        return true;
      };
      for (int d = 0; d < devices_; ++d) {
        if (ends_[at(s) - 1][at(d)]) each_group_from(d, end);
      }
    }
    // An end from which no plan goes on is dropped.
    for (int d = 0; d < devices_; ++d) ends_[at(stages)][at(d)] = 0;
    for (int s = stages; s-- > 0;) {
      for (int d = 0; d <= devices_; ++d) {
        if (ends_[at(s)][at(d)] && d == devices_) ends_[at(s)][at(d)] = 0;
        if (!ends_[at(s)][at(d)]) continue;
        bool goes_on = false;
        each_group_from(d, [&](int to) { return !(goes_on = ends_[at(s) + 1][at(to)] != 0); });
        if (!goes_on) ends_[at(s)][at(d)] = 0;
      }
    }
  }

  bool usable(int d) const { return stage_at(d) > 0; }

  // The cuts of one plan that has a cut at d, usable: where there is a choice those already chosen, then those that
  // share the devices evenly.
  std::vector<int> through(int d, const std::vector<char>& chosen) const {
    std::vector<int> cuts = {d};
    const int stage = stage_at(d);
    for (int s = stage, to = d; s > 1; --s) {
      const int even = static_cast<int>(std::int64_t{to} * (s - 1) / s);
      to = best(s - 1, even, chosen, [&](int from) { return from < to && problem_.group(from, to).valid; });
      cuts.push_back(to);
    }
    for (int s = stage, from = d; s + 1 < stages_; ++s) {
      const int even = from + (devices_ - from) / (stages_ - s);
      from = best(s + 1, even, chosen, [&](int to) { return from < to && problem_.group(from, to).valid; });
      cuts.push_back(from);
    }
    return cuts;
  }

 private:
  // The ends of groups from d on, until `visit` says no.
  template <typename Visit>
  void each_group_from(int d, const Visit& visit) const {
    for (const int size : problem_.group_sizes()) {
      if (d + size > devices_) return;
      if (problem_.group(d, d + size).valid && !visit(d + size)) return;
    }
  }

  // The stage with the nearest even share, among those that may end at d; 0: none may.
  int stage_at(int d) const {
    int nearest = 0;
    double least = 0;
    for (int s = 1; s < stages_; ++s) {
      if (!ends_[at(s)][at(d)]) continue;
      const double off = std::abs(static_cast<double>(d) * stages_ / devices_ - s);
      if (nearest == 0 || off < least) {
        nearest = s;
        least = off;
      }
    }
    return nearest;
  }

  template <typename Joins>
  int best(int s, int even, const std::vector<char>& chosen, const Joins& joins) const {
    int found = -1;
    const auto before = [&](int a, int b) {
      if (chosen[at(a)] != chosen[at(b)]) return chosen[at(a)] > chosen[at(b)];
      return std::abs(a - even) < std::abs(b - even);
    };
    for (int d = 1; d < devices_; ++d) {
      if (ends_[at(s)][at(d)] && joins(d) && (found < 0 || before(d, found))) found = d;
    }
    AM_CHECK(found > 0);
    return found;
  }

  const Problem& problem_;
  int stages_, devices_;
  std::vector<std::vector<char>> ends_;  // by stages placed and device cut
};

}  // namespace

std::vector<char> cuts_near_servers(const Problem& problem, int radius) {
  const int devices = problem.num_devices();
  std::vector<char> near(at(devices) + 1, radius < 0);
  near.front() = near.back() = 1;
  if (radius < 0) return near;
  for (const int boundary : server_boundaries(problem)) {
    for (int d = std::max(1, boundary - radius); d <= std::min(devices - 1, boundary + radius); ++d) near[at(d)] = 1;
  }
  return near;
}

std::vector<int> usable_device_cuts(const Problem& problem, int stages, int most, int radius) {
  const int devices = problem.num_devices();
  const std::vector<int> boundaries = server_boundaries(problem);
  const std::vector<char> allowed = cuts_near_servers(problem, radius);
  // If a stage can have any number of devices, every cut is usable.
  std::optional<Ways> ways;
  if (devices - 1 > most && static_cast<int>(problem.group_sizes().size()) < devices) {
    ways.emplace(problem, stages, allowed);
  }
  std::vector<int> usable;
  for (int d = 1; d < devices; ++d) {
    if (allowed[at(d)] && (!ways || ways->usable(d))) usable.push_back(d);
  }
  if (static_cast<int>(usable.size()) <= most) return usable;

  std::vector<char> chosen(at(devices) + 1, 0);
  int left = std::max(most, stages - 1);
  const auto choose = [&](int d) {
    if (chosen[at(d)]) return;
    std::vector<int> added = {d};
    if (ways) added = ways->through(d, chosen);
    added.erase(std::remove_if(added.begin(), added.end(), [&](int cut) { return chosen[at(cut)] != 0; }), added.end());
    if (static_cast<int>(added.size()) > left) return;
    left -= static_cast<int>(added.size());
    for (const int cut : added) chosen[at(cut)] = 1;
  };
  const int servers = static_cast<int>(boundaries.size()), shown = std::min(servers, most);
  for (int i = 0; i < shown; ++i) {
    const int boundary = boundaries[at(static_cast<int>(std::int64_t{i} * servers / shown))];
    if (std::binary_search(usable.begin(), usable.end(), boundary)) choose(boundary);
  }
  // Finer and finer: what a coarser grid has chosen stays.
  for (int parts = left; left > 0 && parts < 2 * devices; parts *= 2) {
    for (int k = 1; k <= parts; ++k) {
      const int d = static_cast<int>(std::int64_t{k} * devices / (parts + 1));
      const auto above = std::lower_bound(usable.begin(), usable.end(), d);
      const bool below = above == usable.end() || (above != usable.begin() && d - above[-1] <= *above - d);
      choose(below ? above[-1] : *above);
    }
  }
  std::vector<int> cuts;
  for (const int d : usable) {
    if (chosen[at(d)]) cuts.push_back(d);
  }
  return cuts;
}

}  // namespace automap::models
