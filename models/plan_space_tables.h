// The tables that a PlanSpace prepares once, by point and by device cut. Only plan_space*.cpp, rollouts.cpp,
// improvement.cpp and features.cpp see them.
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

// Sums formed in another order differ by less.
constexpr double kRounding = 1e-9;
// A stage whose variants are weighed, or a pivot that is placed to know its bound; units of work.
constexpr std::int64_t kPerWeighed = 60;

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

// The costs of a stage, as one of the problem's variants.
struct StageCost {
  double stage_ms = 0, backward_ms = 0;  // forward and backward of one micro-batch; of which backward
  double sync_ms = 0;                    // of its gradients, as far as exposed, and its optimizer
  int in_flight = 1, laps = 0;           // K_s; floor((M-1)/K_s), 0 when M <= K_s
  int variant = 0;
};

// The stall line of a stage (cost.h's last path term).
inline double stall_line(double total_ms, double from_ms, double steady_ms, double laps) {
  const double delta = total_ms - from_ms;
  return total_ms + steady_ms + std::max(delta, laps * delta);
}

// Prices of what several files ask for, units of work.
constexpr std::int64_t kPerRow = 100;    // the pivots behind a device cut scanned together
constexpr std::int64_t kPerScanned = 1;  // a pivot among them
constexpr std::int64_t kPerChild = 150;  // one placed exactly

struct PlanSpace::Tables {
  explicit Tables(const pipeline::Problem& of) : problem(of) {}

  // The cheapest ways out of a group; ms per byte infinity where there is none.
  struct WayOut {
    double near_latency_ms = 0, near_ms_per_byte = std::numeric_limits<double>::infinity();
    double far_latency_ms = 0, far_ms_per_byte = std::numeric_limits<double>::infinity();
    // A lower bound on a transfer of so many bytes out of the group.
    double least_ms(double bytes) const {
      if (bytes <= 0) return 0;
      return std::min(near_latency_ms + bytes * near_ms_per_byte, far_latency_ms + bytes * far_ms_per_byte);
    }
  };
  // A stage of a rollout: its last device cut, its speed, and the link into it (all but the first).
  struct Hop {
    int device_cut = 0;
    const pipeline::DeviceGroup* group = nullptr;
    double per_work = 0;  // ms per reference ms, about
    double ring_ms_per_byte = 0;
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
  // Groups of the same columns.
  struct Kind {
    bool made = false;
    double per_work = 0;                   // ms per reference ms of the whole model, the fastest variant
    std::vector<std::uint8_t> by_compute;  // variants, the fastest first
  };

  // --- Making them, in this order (plan_space_tables.cpp) ---
  void prepare_points(const std::vector<int>& cuts);
  void prepare_order();
  void prepare_rest();
  void prepare_behind();
  void prepare_buckets();
  void prepare_devices();
  void prepare_schedule(pipeline::Schedule schedule);
  void prepare_reach(const std::vector<int>& device_cuts, std::vector<char> allowed);
  void prepare_links(const std::vector<int>& device_cuts);
  // Fills `earliest`; leaves it empty when memory cannot bite anywhere.
  void prepare_memory(const std::vector<int>& device_cuts);

  // --- Bounds ---
  WayOut way_out(int d0, int d1) const;
  // A lower bound on the ms per byte of the links between two of `stages_left` stages behind this device cut; infinity:
  // there is none.
  double least_ms_per_byte_behind(int device_cut, int stages_left) const;
  // The bound of a prefix that ends at this point and device cut, from what its path has come to.
  struct Reached {
    double filled_ms = 0, path_ms = 0, steady_ms = 0, out_ms = 0;  // out: the cheapest transfer out of it
  };
  double length_bound(const Reached& reached, int stages_placed, int point, int device_cut, double* total_ms) const;
  StageScan scan_of(const Prefix& from, const pipeline::DeviceGroup& group, double transfer_ms) const;

  // --- Rollouts ---
  const Share& share(int d, int left) const;
  void make_way(const DeviceCuts& of_rule, int d, int left, int rule, Way& way) const;
  DeviceCuts park_cuts(int d, int left, bool last) const;
  DeviceCuts share_cuts(int d, int left, int large, bool last, bool whole_servers) const;
  // The device cut nearest to `target` behind `before` that stage s may end at; 0: none.
  int possible_cut(int s, int before, int target) const;
  // V of the completion by one rule, infinity when it is infeasible; `points`, when given, receives the pivots it takes
  // at [boundary].
  double roll(const Prefix& prefix, const Way& way, int* points) const;

  // --- Stages ---
  // Stage s on (from, to] and the group, as the variant it takes: of those in the order of their compute the first that
  // fits with the micro-batches in flight that the schedule asks for (kAdaptive: min(M, 2(S-s)+1)), else the one that
  // fits with most. False: it fits as none, or idles.
  bool stage(int s, int from, int to, const pipeline::DeviceGroup& group, StageCost& cost) const {
    if (!plain) return weigh_variants(s, from, to, group, cost);
    if (memory && !fits(s, from, to, group)) return false;
    plain_stage(s, from, to, group, cost);
    return true;
  }
  void plain_stage(int s, int from, int to, const pipeline::DeviceGroup& group, StageCost& cost) const {
    const std::size_t i = static_cast<std::size_t>(from), j = static_cast<std::size_t>(to);
    cost.stage_ms = (both[j] - both[i]) * group.scale;
    cost.backward_ms = (backward[j] - backward[i]) * group.scale;
    cost.sync_ms = problem.sync_ms(weight[j] - weight[i], group);
    cost.in_flight = in_flight[static_cast<std::size_t>(s)];
    cost.laps = laps[static_cast<std::size_t>(s)];
  }
  bool weigh_variants(int s, int from, int to, const pipeline::DeviceGroup& group, StageCost& cost) const;
  // V's terms with one more stage, `transfer_ms` into it.
  void extend(PathTerms& terms, double transfer_ms, const StageCost& cost, double* stall_from_ms,
              double* stall_steady_ms) const {
    const double f = cost.stage_ms - cost.backward_ms;
    const double arrived = terms.filled_ms + 2 * transfer_ms;
    terms.filled_ms = arrived + cost.stage_ms;
    terms.path_ms = std::max({terms.path_ms, arrived + steady * transfer_ms, terms.filled_ms + steady * cost.stage_ms});
    terms.residue_ms = std::max(terms.residue_ms, cost.sync_ms - terms.drained_ms - transfer_ms);
    terms.drained_ms += transfer_ms + cost.backward_ms;
    terms.steady_ms =
        std::max(terms.steady_ms, steady * cost.stage_ms - (cost.in_flight - 1) * std::min(f, cost.backward_ms));
    terms.computed_ms += cost.stage_ms;
    terms.least_ms = std::min(terms.least_ms, cost.stage_ms);
    *stall_from_ms = arrived + cost.in_flight * cost.stage_ms;
    *stall_steady_ms = steady * cost.stage_ms;
  }
  // True if a stage is below its share of the mean when all stages compute `computed_ms` in all (problem.h,
  // kIdleShare).
  bool idles(double least_ms, double computed_ms) const { return least_ms < idle_share * computed_ms / stages; }
  const Kind& kind_of(const pipeline::DeviceGroup& group) const;
  // Milliseconds of a group per reference millisecond, about.
  double per_work(const pipeline::DeviceGroup& group) const { return plain ? group.scale : kind_of(group).per_work; }

  // --- What is possible ---
  // True if the remaining stages can share the devices behind a cut, when so many are placed.
  bool leaves_a_way(int stages_placed, int device_cut) const {
    return reach[static_cast<std::size_t>(stages_placed) * rate_behind.size() + static_cast<std::size_t>(device_cut)] !=
           0;
  }
  // A lower bound on the point at which stage `stages_placed` ends at this device cut in plans that fit in memory.
  int earliest_end(int stages_placed, int device_cut) const {
    if (earliest.empty()) return 0;
    return earliest[static_cast<std::size_t>(stages_placed) * rate_behind.size() +
                    static_cast<std::size_t>(device_cut)];
  }
  // True if the stage fits in memory as any variant.
  bool fits(int s, int from, int to, const pipeline::DeviceGroup& group) const {
    if (!plain) return fits_as_any(s, from, to, group);
    const std::size_t i = static_cast<std::size_t>(from), j = static_cast<std::size_t>(to);
    return state[j] - state[i] + (stash[j] - stash[i]) * in_flight[static_cast<std::size_t>(s)] * group.stash_scale <=
           group.capacity_bytes;
  }
  bool fits_as_any(int s, int from, int to, const pipeline::DeviceGroup& group) const;
  // False only where neither it nor a longer stage fits.
  bool may_fit(int s, int from, int to, const pipeline::DeviceGroup& group) const;
  // The last of first..last where stage s from `from` on fits; first - 1: none.
  int last_fitting(int s, int from, int first, int last, const pipeline::DeviceGroup& group) const {
    if (!memory || first > last || fits(s, from, last, group)) return last;
    int low = first - 1, high = last;  // what fits ends before what does not
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (fits(s, from, middle, group) ? low : high) = middle;
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

  const pipeline::Problem& problem;
  // The papers' problem: times, memory and all-reduce of any group are those of one device times factors of the group,
  // and one variant. Its points can be scanned together.
  bool plain = true;
  bool adaptive = false;
  bool some_groups_only = false;   // whole samples: not every number of devices can be a stage's
  std::vector<char> allowed_cuts;  // by device: 0 where no stage may end (the radius around server boundaries)
  bool some_cuts_only = false;
  int end = 0;  // the last point
  int stages = 2;
  int micro_batches = 1;
  double steady = 0;  // M - 1
  // The shares of forward and backward in a stage's compute; approximate where they differ from stage to stage.
  double forward_share = 0, backward_share = 0;
  double hidden_share = 0;                 // min(F, B) is no larger a part of any stage
  double idle_share = 0;                   // 0: stages may idle
  std::array<double, kMaxStages> taper{};  // powers of what a stage takes against the one before
  bool full = true, memory = true, needs_variable = false;
  std::vector<int> cuts_of_points, cuts_of_devices;
  // By point; prefix sums but for activation. weight: gradient bytes. work: for bounds, see Problem::work_ms().
  std::vector<double> work, both, backward, weight, state, stash, activation;
  std::vector<float> work_f, weight_f, activation_f;      // the same, for scanning
  std::vector<int> variables;                             // by point, prefix counts
  std::vector<int> stages_behind;                         // by point: stages the pivots behind it allow
  std::vector<int> next_variable;                         // by point: the first point behind it with a variable between
  std::vector<int> last_point;                            // by stages behind: the last point that leaves as many
  std::vector<int> narrow;                                // by point: the narrowest cut within 3 points
  std::vector<double> least_activation, mean_activation;  // of the cuts behind a point
  std::vector<double> largest_weight, largest_state, largest_work;  // of the steps between points behind a point
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
  std::vector<int> earliest;  // by stages placed and device cut, see earliest_end()
  std::vector<char> reach;    // likewise, see leaves_a_way()
  pipeline::Schedule schedule = pipeline::Schedule::k1f1b;
  std::array<int, kMaxStages + 1> in_flight{};  // by stage: K_s; kAdaptive: what it should have
  std::array<int, kMaxStages + 1> laps{};       // by stage, floor((M-1)/K_s), 0 when M <= K_s
  // By stages placed: steady steps of the longest stage behind that are left when all behind it is paid, too.
  std::array<double, kMaxStages> steady_behind{};
  mutable std::vector<Share> shares;  // by device cut and stages, made when asked for
  mutable std::vector<Kind> kinds;    // by DeviceGroup::columns, likewise
};

}  // namespace automap::models
