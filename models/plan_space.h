// The pipeline environment: the partial plans ("prefixes") of one problem, decided boundary by boundary from the first
// stage on, each step a device cut and a pivot together (paper 4.4; the paper decides the device cut, then the pivot:
// flat_env.h is that view of the same thing).
//
// A prefix of s stages is an after-state: stages 1..s stand, the transfer out of stage s depends on what comes next.
// Each has an admissible bound (no completion is shorter in V), is expanded into its most promising children, and can
// be completed by simple rules (rollouts). Everything is prepared once per problem; expanding is vectorized over
// pivots.
//
// All times ms. Points are 0..m: 0 is the start of the model, m its end, the others the pivots in ascending order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::models {

constexpr int kMaxStages = 16;
constexpr int kMostPivots = 1024;
constexpr int kRolloutRules = 9;
// Children kept per decision when one prefix is expanded: a perfect value function loses 0.1 % with 48 and 1 % with 8.
constexpr int kMostChildren = 48;

struct StageCost;

struct PlanSpaceOptions {
  int stages = 2;  // 2..kMaxStages
  pipeline::Schedule schedule = pipeline::Schedule::k1f1b;
  // Instruction cuts, ascending, within 1..n-1, at most kMostPivots; empty: the 128-point grid.
  std::vector<int> pivots;
  int max_device_cuts = 64;  // of more a choice is made (usable_device_cuts.h)
  int server_radius = -1;    // device cuts at most this far from a server boundary (paper 4.4); -1: anywhere
};

// V's terms of the stages placed so far, extended stage by stage.
struct PathTerms {
  double filled_ms = 0;    // round trips of everything placed, without the transfer out of it
  double drained_ms = 0;   // the same, backward only
  double path_ms = 0;      // longest path term that ends inside
  double steady_ms = 0;    // max over placed stages of (M-1) T - (K-1) min(F, B)
  double residue_ms = 0;   // sync and optimizer that the backward of what stands in front of it does not hide
  double computed_ms = 0;  // sum of the stages' compute
  double least_ms = std::numeric_limits<double>::infinity();  // of a stage's compute
};

struct Prefix : PathTerms {
  int stages = 0;           // s, placed
  int point = 0;            // where the last placed stage ends
  int d0 = 0, d1 = 0;       // its devices (d0, d1]
  int variant = 0;          // what it is
  int in_flight = 1;        // K of it
  double stage_ms = 0;      // T of the last stage
  double transfer_ms = 0;   // one way, into the last stage
  double allreduce_ms = 0;  // of the last stage: its sync as far as exposed, and its optimizer
  double bound_ms = 0;      // admissible: V of no feasible completion is below it
  double parent_bound_ms = 0;
  // Per placed stage, see cost.h's last path term; laps as in StageCost.
  std::array<double, kMaxStages> stall_from_ms{}, stall_steady_ms{};
  std::array<std::int32_t, kMaxStages> laps{};
  std::array<std::int16_t, kMaxStages> points{}, device_cuts{};  // decisions: boundary i at [i]
};

// Plans completed by rule from a prefix: V of each (infinity: infeasible), and the best of them.
struct Rollouts {
  std::array<double, kRolloutRules> value_ms;
  double best_ms = std::numeric_limits<double>::infinity();
  std::array<std::int16_t, kMaxStages> points{}, device_cuts{};  // boundaries of the best, as in Prefix
  bool improved = false;                                         // PlanSpace::improve() has seen it

  Rollouts() { value_ms.fill(std::numeric_limits<double>::infinity()); }
};

// Not thread-safe (rollouts fill a table as they go): one space per thread. The problem must outlive it.
class PlanSpace {
 public:
  // Throws Error(kUsage) when stages is outside 2..kMaxStages or above the devices or instructions there are.
  PlanSpace(const pipeline::Problem& problem, const PlanSpaceOptions& options);

  const pipeline::Problem& problem() const { return problem_; }
  int stages() const { return stages_; }
  pipeline::Schedule schedule() const { return schedule_; }
  int num_points() const { return static_cast<int>(cuts_.size()); }  // m + 1
  int cut_of_point(int point) const { return cuts_[static_cast<std::size_t>(point)]; }
  const std::vector<int>& device_cuts() const { return device_cuts_; }
  // The approximate work of making the space and of all calls since, in units of work (common/base/work.h).
  std::int64_t units() const { return units_; }
  // False when S stages cannot be placed on the pivots and device cuts, whatever their times.
  bool possible() const { return possible_; }

  Prefix root() const;
  // The children of `parents` (all of the same number of stages s < S-1) with the smallest bounds: at most `most` in
  // all, at least one of every device cut when that many fit. Ascending by bound; `parent_of` tells which parent each
  // belongs to. Only children that are feasible themselves and leave enough pivots, devices, variables and memory.
  void expand(const std::vector<Prefix>& parents, int most, std::vector<Prefix>& children,
              std::vector<int>& parent_of) const;
  // Selects the children with which a search continues, ascending by bound, with all their rollouts. It starts from
  // four times as many children as wanted, takes one in six of `most` by bound and the others by two quick rollouts,
  // and improves the best rollouts of a third of them. The bound alone ties children that have made no bad choice yet,
  // and its best 48 lose 0.5 % even to perfect choices (D <= 16); these lose 0.05 %.
  void promising(const std::vector<Prefix>& parents, int most, std::vector<Prefix>& children,
                 std::vector<int>& parent_of, std::vector<Rollouts>& rollouts) const;
  // Makes one child, as expand() would; returns false when it is infeasible. Device cut and point must be in range.
  bool append(const Prefix& parent, int point, int device_cut, Prefix& child) const;

  // The best plan of a prefix with S-2 stages placed: its last boundary chosen exactly under V, unless no plan is below
  // `incumbent_ms`; infinity then. Also works with S-1 placed (only the rest is appended).
  double finish(const Prefix& prefix, double incumbent_ms, pipeline::Plan* best) const;
  // Returns the `k` best distinct plans in ascending V (for objectives other than V).
  std::vector<std::pair<double, pipeline::Plan>> finish_best(const Prefix& prefix, int k) const;

  // Completions by rule. Devices: equal shares; those moved to server boundaries; one or two large stages, or half of
  // them, and the others one device each behind; single devices, then one large stage; a server each and one stage, the
  // next or the last, that takes the rest. Loads by speed, each stage a little (1 - 1/(M+1)) less than the one before,
  // or more, single devices little, or by speed and all-reduce together; cuts at the narrowest activation within 3
  // pivots; never more than memory allows. (The best plans of many stages have nearly empty ones, and where all-reduces
  // are dear they park devices on a stage with hardly a weight.)
  Rollouts rollouts(const Prefix& prefix) const;
  // Moves the boundaries of the best rollout behind the prefix one after the other while V falls, at most four times
  // around: its cut by 1, 2, 4 or 8 points, its device cut by 1 or to the ends of the server, with the cut where it
  // balances; then runs of boundaries together by a device, neighbours by 1 or 3 points.
  void improve(const Prefix& prefix, Rollouts& rollouts) const;
  // A plan of this space (its cuts among the pivots) as a rollout from the root.
  Rollouts rollouts_of(const pipeline::Plan& plan, double value_ms) const;
  // The best rollout; best_ms must be finite.
  pipeline::Plan plan_of(const Rollouts& rollouts) const;

  // The decided part as a plan needs all boundaries: S-1 placed.
  pipeline::Plan plan_of(const Prefix& prefix) const;

 private:
  friend void after_state_features(const PlanSpace& space, const Prefix& prefix, const Rollouts& rollouts,
                                   double incumbent_ms, float* out);
  struct Tables;
  class Improvement;
  // Called with a plan's V and its S-1 boundaries; returns what V the next one has to be below.
  using KeepPlan = std::function<double(double value_ms, const Prefix& placed)>;

  struct ScannedRow;
  struct Scanned;
  class Smallest;
  struct LastBoundary;

  void place(const Prefix& from, int point, int device_cut, const StageCost& cost, Prefix& next) const;
  void set_variants(pipeline::Plan& plan) const;
  void scan_row(const Prefix& from, int device_cut, int low, int high, float* bounds) const;
  void weigh_row(const Prefix& from, int device_cut, int low, int high, float* bounds) const;
  void take_children(const std::vector<Prefix>& parents, std::size_t wanted, const std::vector<ScannedRow>& rows,
                     const std::vector<Scanned>& of_device, std::vector<Scanned>& scanned,
                     std::vector<Prefix>& children, std::vector<int>& parent_of) const;
  void scan_last(const Prefix& prefix, int d, int low, int high, double incumbent_ms, float* bounds) const;
  void judge_last(const Prefix& prefix, double incumbent_ms, std::vector<LastBoundary>& all,
                  std::vector<LastBoundary>& of_device, const KeepPlan& keep) const;
  double close(const Prefix& prefix) const;
  void roll(const Prefix& prefix, unsigned rules, Rollouts& rollouts) const;
  void last_boundaries(const Prefix& prefix, double incumbent_ms, const KeepPlan& keep) const;

  const pipeline::Problem& problem_;
  int stages_;
  pipeline::Schedule schedule_;
  bool possible_ = false;
  mutable std::int64_t units_ = 0;
  std::vector<int> cuts_;         // instruction cut of point 0..m
  std::vector<int> device_cuts_;  // usable device cuts, ascending, within 1..D-1
  std::shared_ptr<const Tables> tables_;
};

}  // namespace automap::models
