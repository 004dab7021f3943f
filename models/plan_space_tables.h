// What a PlanSpace prepares once: everything by point and by device cut. Seen by plan_space.cpp and features.cpp only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/pipeline/problem.h"
#include "models/boundary_scan.h"
#include "models/plan_space.h"

namespace automap::models {

// Bits of Rollouts::value_ms: those that tell most for least, equal shares and one large stage; and all.
constexpr unsigned kQuickRules = 1u << 1 | 1u << 4;
constexpr unsigned kEveryRule = (1u << kRolloutRules) - 1;

// Powers 0, 1, ... of a factor.
std::array<double, kMaxStages> powers(double factor);

// The device cuts of a rollout's stages: a vector that asks for no memory, since thousands are made.
class DeviceCuts {
 public:
  void push_back(int cut) { cuts_[size_++] = cut; }
  int& back() { return cuts_[size_ - 1]; }
  std::size_t size() const { return size_; }
  int operator[](std::size_t i) const { return cuts_[i]; }
  int* begin() { return cuts_.data(); }
  int* end() { return cuts_.data() + size_; }
  bool operator==(const DeviceCuts& other) const {
    return std::equal(cuts_.begin(), cuts_.begin() + static_cast<std::ptrdiff_t>(size_), other.cuts_.begin(),
                      other.cuts_.begin() + static_cast<std::ptrdiff_t>(other.size_));
  }

 private:
  std::array<int, kMaxStages> cuts_{};
  std::size_t size_ = 0;
};

struct PlanSpace::Tables {
  // The cheapest ways out of a group; ms per byte infinity where there is none.
  struct WayOut {
    double near_latency_ms = 0, near_ms_per_byte = std::numeric_limits<double>::infinity();
    double far_latency_ms = 0, far_ms_per_byte = std::numeric_limits<double>::infinity();
    // No transfer of so many bytes out of the group takes less.
    double least_ms(double bytes) const {
      if (bytes <= 0) return 0;
      return std::min(near_latency_ms + bytes * near_ms_per_byte, far_latency_ms + bytes * far_ms_per_byte);
    }
  };
  // One stage of a rollout: where its devices end, how fast it is, and the link into it (all but the first).
  struct Hop {
    int device_cut = 0;
    const pipeline::DeviceGroup* group = nullptr;
    double per_work = 0;  // ms per reference ms
    double ring_ms = 0, ring_ms_per_byte = 0;
    double latency_ms = 0, ms_per_byte = 0;
    double share = 0;  // of the work from here on
  };
  struct Way {
    bool valid = false;
    std::vector<Hop> hops;
  };
  // The rest of the devices behind a cut shared by so many stages, by rule.
  struct Share {
    bool made = false;
    std::array<int, kRolloutRules> same_as{};  // the first rule that comes to the same, or the rule itself
    std::array<Way, kRolloutRules> ways;
  };

  WayOut way_out(const pipeline::Problem& problem, int d0, int d1) const;
  // No transfer between two of `stages_left` stages behind this device cut has a better link; infinity: there is none.
  double least_ms_per_byte_behind(const pipeline::Problem& problem, int device_cut, int stages_left) const;
  // The bound of a prefix that ends at this point and device cut, from what its path has come to.
  struct Reached {
    double filled_ms = 0, path_ms = 0, steady_ms = 0, out_ms = 0;  // out: the cheapest transfer out of it
  };
  double length_bound(const Reached& reached, int stages_placed, int point, int device_cut, double* total_ms) const;
  StageScan scan_of(const Prefix& from, const pipeline::DeviceGroup& group, double transfer_ms) const;
  const Share& share(const pipeline::Problem& problem, int d, int left) const;
  DeviceCuts park_cuts(int d, int left, bool last) const;
  DeviceCuts share_cuts(int d, int left, int large, bool last, bool whole_servers) const;
  // V of the completion by one rule, infinity when it is infeasible; `points`, when given, receives the pivots it takes
  // at [boundary].
  double roll(const pipeline::Problem& problem, const Prefix& prefix, const Way& way, int* points) const;

  void prepare_behind();
  // Fills `earliest`; leaves it empty when memory cannot bite anywhere.
  void prepare_memory(const pipeline::Problem& problem, const std::vector<int>& device_cuts);
  // No plan whose stage `stages_placed` ends at a smaller point and at this device cut fits in memory.
  int earliest_end(int stages_placed, int device_cut) const {
    if (earliest.empty()) return 0;
    return earliest[static_cast<std::size_t>(stages_placed) * rate_behind.size() +
                    static_cast<std::size_t>(device_cut)];
  }

  bool fits(int from, int to, const pipeline::DeviceGroup& group, int k) const {
    const std::size_t i = static_cast<std::size_t>(from), j = static_cast<std::size_t>(to);
    return state_factor * (weight[j] - weight[i]) + (stash[j] - stash[i]) * k / group.size <= group.capacity_bytes;
  }
  // The last of first..last where a stage from `from` on fits; first - 1: none.
  int last_fitting(int from, int first, int last, const pipeline::DeviceGroup& group, int k) const {
    if (!memory || first > last || fits(from, last, group, k)) return last;
    int low = first - 1, high = last;  // what fits ends before what does not
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (fits(from, middle, group, k) ? low : high) = middle;
    }
    return low;
  }
  // The point whose work is nearest to `target`.
  int nearest(double target) const {
    const double scaled = target * buckets_per_ms;
    const std::size_t last = bucket.size() - 1;
    std::size_t j =
        static_cast<std::size_t>(bucket[scaled <= 0                           ? 0
                                        : scaled >= static_cast<double>(last) ? last
                                                                              : static_cast<std::size_t>(scaled)]);
    while (j + 1 < work.size() && work[j] < target) ++j;
    return static_cast<int>(j > 0 && target - work[j - 1] < work[j] - target ? j - 1 : j);
  }

  int end = 0;  // the last point
  int stages = 2;
  int micro_batches = 1;
  double steady = 0;  // M - 1
  double phi = 0, state_factor = 0;
  std::array<double, kMaxStages> taper{};  // powers of what a stage takes against the one before
  bool full = true, memory = true, needs_variable = false;
  std::vector<double> work, weight, stash, activation;    // by point; prefix sums but for activation
  std::vector<float> work_f, weight_f, activation_f;      // the same, for scanning
  std::vector<int> variables;                             // by point, prefix counts
  std::vector<int> stages_behind;                         // by point: stages the pivots behind it allow
  std::vector<int> next_variable;                         // by point: the first point behind it with a variable between
  std::vector<int> last_point;                            // by stages behind: the last point that leaves as many
  std::vector<int> narrow;                                // by point: the narrowest cut within 3 points
  std::vector<double> least_activation, mean_activation;  // of the cuts behind a point
  std::vector<double> largest_weight, largest_work;       // of the steps between points behind a point
  std::vector<int> largest_weight_at;
  // By cuts still to come and point: the bytes of the cheapest so many cuts behind it, and of the largest among them.
  std::array<std::vector<double>, kMaxStages> behind_sum, behind_largest;
  std::array<std::vector<float>, kMaxStages> behind_sum_f, behind_largest_f;
  std::array<std::vector<double>, kMaxStages> behind_ms_per_byte;  // by stages placed and device cut
  std::vector<int> bucket;                                         // of work: a point at or before its beginning
  double buckets_per_ms = 0;
  std::vector<double> rate_behind, capacity_behind;  // by device cut: sums over the devices behind it
  std::vector<int> server_begin, server_end;         // by device: its server's devices are begin+1..end
  double largest_capacity = 0;
  std::vector<int> earliest;                    // by stages placed and device cut, see earliest_end()
  std::array<int, kMaxStages + 1> in_flight{};  // by stage, K_s
  std::array<int, kMaxStages + 1> laps{};       // by stage, floor((M-1)/K_s), 0 when M <= K_s
  // By stages placed: steady steps of the longest stage behind that are left when all behind it is paid, too.
  std::array<double, kMaxStages> steady_behind{};
  mutable std::vector<Share> shares;  // by device cut and stages, made when asked for
};

}  // namespace automap::models
