// The label program's state, shared by its parts: exact_thresholds.cpp (prefixes), exact_labels.cpp (suffixes) and
// exact_program.cpp (completions, the run). docs/exact-solver.md.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/numbers.h"
#include "common/pipeline/exact_tables.h"
#include "common/pipeline/value_terms.h"

namespace automap::pipeline::internal {

// Prices of the program's steps, units of work.
constexpr std::int64_t kPerProgram = 14000;
constexpr std::int64_t kPerFanEnd = 12;     // a group that may start at a device cut
constexpr std::int64_t kPerThreshold = 8;   // made and touched for the first time
constexpr std::int64_t kPerRowPoint = 4;    // a row of thresholds cleared
constexpr std::int64_t kPerStart = 12;      // a point met by one group in front
constexpr std::int64_t kPerTransition = 4;  // a stage in front of a prefix
constexpr std::int64_t kPerOffer = 15;      // what came of it, for one kind of group behind
constexpr std::int64_t kPerMerge = 8;       // a point of a row, for one length
constexpr std::int64_t kPerAlive = 4;       // a point where stages may start, met by one list
constexpr std::int64_t kPerShifted = 8;     // a label with the transfer in front of it
constexpr std::int64_t kPerTried = 7;       // a stage in front of a label
constexpr std::int64_t kPerCandidate = 65;  // a label sorted among those of its state
constexpr std::int64_t kPerFinished = 20;   // a label completed
constexpr std::int64_t kPerInFlight = 20;   // K found from memory

// The most a suffix may be at one state for a plan within the limit to be possible, over all ways to fill the front.
struct Threshold {
  double x = -kInfinity, xy = -kInfinity, p = -kInfinity, py = -kInfinity, xp = -kInfinity;
  // Whatever stands in front makes at least P + `bottleneck` out of P, and a y up to `hidden` is lost behind what it
  // drains and all-reduces itself.
  double bottleneck = kInfinity, hidden = kInfinity;
  bool alive() const { return x > -kInfinity; }
};

struct Step {  // how a label was made, to read the plan back
  int next = -1;
  int point = 0, d0 = 0, variant = 0;
};

struct Candidate {
  double x = 0, p = 0, y = 0;
  int next = 0, variant = 0;
};

// The properties of a group (d0, d1] that the groups in front of d0 depend on.
struct GroupKind {
  int inside = 0;  // its size when it shares a server with the device in front of it and lies inside that server
  int servers = 0;
  double bytes_per_ms = 0;
  int devices = 0;  // Problem::devices_that_count
  bool operator<(const GroupKind& o) const {
    return std::tie(inside, servers, bytes_per_ms, devices) < std::tie(o.inside, o.servers, o.bytes_per_ms, o.devices);
  }
};

// The groups that may start at one device cut, by kind.
struct Fan {
  int d = 0;
  std::vector<GroupKind> kinds;
  std::vector<int> end_of_kind;  // one group of the kind ends here
  std::vector<int> kind_of_end;  // [d1]; -1: none
  std::size_t first_row = 0;     // place of the first kind among the rows of all fans of the boundary
};

class Program {
 public:
  Program(const ProgramInput& input, Work& work);

  ProgramOutput run();
  // Pays for the work since the last call.
  void pay() { budget_.spend(std::exchange(units_, 0) + tables_.take_units() + coarse_tables_.take_units()); }

 private:
  // --- Shared ---
  // The cost of a stage of one group as one variant: columns at its known end, and rates.
  struct StageCost {
    double both = 0, backward = 0, optimizer = 0, gradient = 0;
    double last_bucket = 0;     // at its known start
    double other_backward = 0;  // backward where it makes the drain longest (relaxed)
    double scale = 0;
    terms::Sync sync;
    double either = 0;     // least ms per unit of work of this stage and the one in front of it
    std::size_t same = 0;  // the point where the stage ends
    // [point] at its starts, less what it shares with others when it ends where it does.
    const double *gradient_from = nullptr, *optimizer_from = nullptr;
  };
  StageCost stage_cost(const DeviceGroup& group, int variant) const;
  double limit(int stages) const { return in_.limit_ms[at(stages - in_.min_stages)]; }
  bool corridor() const { return !in_.boundary_device_cuts.empty(); }
  const std::vector<int>& device_cuts(int boundary) const {
    return corridor() ? in_.boundary_device_cuts[at(boundary - 1)] : in_.device_cuts;
  }
  // Micro-batches in flight on a stage with `behind` stages after it as the schedule says; memory may allow fewer to an
  // adaptive one.
  terms::InFlight in_flight_before(int behind) const {
    return {micro_batches_, in_flight(in_.schedule, behind + 1, 1, micro_batches_)};
  }
  bool adaptive() const { return in_.schedule == Schedule::kAdaptive; }
  // In the term of the first round trip, a T of any stage counts at least so often beside p.
  double least_weight(const terms::InFlight& k) const { return k.steady - k.ahead * tables_.small_share(); }
  bool too_many() const { return in_.most_labels > 0 && static_cast<std::int64_t>(steps_.size()) > in_.most_labels; }
  bool over() {
    pay();
    return budget_.over();
  }

  // --- Thresholds (exact_thresholds.cpp) ---
  struct Best {
    double x = -kInfinity, xy = -kInfinity, p = -kInfinity, py = -kInfinity, xp = -kInfinity;
    double bottleneck = kInfinity, hidden = kInfinity;
  };
  struct Row {  // thresholds of all points
    std::vector<double> x, xy, p, py, xp, bottleneck, hidden;
    std::size_t first = 0, past = 0;  // all points that are alive lie within
    void clear(std::size_t size) {
      for (std::vector<double>* values : {&x, &xy, &p, &py, &xp}) values->assign(size, -kInfinity);
      for (std::vector<double>* values : {&bottleneck, &hidden}) values->assign(size, kInfinity);
      first = past = 0;
    }
  };
  struct Sweep {  // over prefixes, for a range of stage counts
    int first_stages = 0, stages = 0;
    double most = 0;   // the highest limit
    int boundary = 0;  // at the end of the prefixes
    std::vector<Row> rows;
    std::vector<Link> links;             // to each kind of a fan
    std::vector<double> least_per_work;  // least_x_per_work of a fan, by length
  };
  GroupKind kind(int d0, int d1) const;
  // The place of a point's thresholds among those of its boundary.
  std::size_t coarse_of(int point) const { return at(in_.coarse == nullptr ? point : in_.coarse_of[at(point)]) - 1; }
  // The thresholds of suffixes of `length` stages that start at a fan's device cut with a first group of this kind, one
  // per point.
  Threshold* thresholds(int length, const Fan& fan, int kind) {
    return &thresholds_[threshold_base_[at(length)] + (fan.first_row + at(kind)) * places(length)];
  }
  std::size_t places(int length) const {
    return corridor() ? in_.boundary_points[at(in_.max_stages - length - 1)].size() : coarse_.size() - 2;
  }
  const std::vector<Fan>& fans(int boundary) const { return fans_[corridor() ? at(boundary - 1) : 0]; }
  const std::vector<int>& points_of(int boundary) const {
    return corridor() ? in_.boundary_points[at(boundary - 1)] : coarse_points_;
  }
  void make_fans();
  // No suffix of `length` stages on the devices after d0 has a smaller x for each unit of its work.
  double least_x_per_work(int length, int d0) const;
  void make_thresholds();
  void thresholds_for(int first_stages, int stages);
  template <bool kPlain>
  void put_behind(Sweep& sweep, const Row& from, const Fan& fan, int d0, int variant);
  void subtract_shared(std::size_t i, std::size_t first, std::size_t past, const DeviceGroup& group,
                       const PointColumns& columns, StageCost& cost);
  template <bool kPlain, bool kOneLine>
  void best_front(const Row& from, std::size_t first, std::size_t last, const terms::InFlight& k, const StageCost& cost,
                  const PointColumns& columns, Best& result) const;
  template <bool kPlain>
  void best_front_within_memory(const Row& from, std::size_t first, std::size_t last, int i, const DeviceGroup& group,
                                int variant, const StageCost& cost, Best& best);
  void merge_rows(Sweep& sweep, const Fan& fan);

  // --- Labels (exact_labels.cpp) ---
  struct Front {  // where stages in front of labels may start: one device cut and kind of group
    int length = 0, d0 = 0;
    double longest = 0;  // T of no stage is more
    std::vector<int> alive;
    std::vector<const Threshold*> most_at;
    double ms_per_work = kInfinity;
  };
  struct Lanes {  // labels with the transfer in front of them added, ascending by point
    std::vector<double> x, p, y, either;
    std::vector<int> point, id;
    // At the point; gradient and optimizer with what a stage from a known start shares with others.
    std::vector<double> both, backward, optimizer, gradient, other_backward;
    void reserve(std::size_t size);
  };
  using Evaluate = void (Program::*)(std::size_t, std::size_t, const terms::InFlight&, const StageCost&,
                                     const Threshold&);
  void extend(const Layer& from, Layer& to, int length, int boundary);
  void find_alive(Front& front, const Fan& fan, int kind, int boundary);
  void gather(const Layer& from, const LabelList& list, const Front& front, const DeviceGroup& group,
              std::size_t& kept);
  void add_shared(std::size_t i, const DeviceGroup& group, const PointColumns& columns, std::size_t count);
  void put_in_front(Front& front, const DeviceGroup& group, int variant, std::size_t count, double list_rate);
  std::size_t past_fitting(std::size_t past, std::size_t first, std::size_t count, int i, const Front& front,
                           const DeviceGroup& group, int variant, bool binds, const StageCost& cost, int in_flight);
  void try_lanes(std::size_t first, std::size_t end, int i, const Front& front, const StageCost& cost,
                 const Threshold& most, int variant, const terms::InFlight& k);
  template <bool kFull, bool kStalls, bool kRelaxed, bool kPlain>
  void evaluate(std::size_t begin, std::size_t size, const terms::InFlight& stage, const StageCost& cost,
                const Threshold& most);
  Evaluate evaluator(const terms::InFlight& k) const;
  void emit(const Front& front, int d1, Layer& to);
  void offer(std::vector<Candidate>& bucket, const Candidate& c);
  void keep_front(std::vector<Candidate>& candidates);
  void keep_best(std::vector<Candidate>& candidates, const Threshold& most);
  std::size_t merge_lanes(std::size_t count);
  // One way over `link` at the fattest cut of a point.
  double slowest_transfer(const Link& link, std::size_t point) const { return link.ms(points_.activation_high[point]); }

  // --- Completions (exact_program.cpp) ---
  struct Complete {
    double value = 0;
    int label = 0, variant = 0;
    bool operator<(const Complete& o) const {
      return std::tie(value, label, variant) < std::tie(o.value, o.label, o.variant);
    }
  };
  void finish(const Layer& from, int stages, std::vector<Completion>& out);
  void complete(const Layer& from, const LabelList& list, int stages, int variant, std::vector<Complete>& best);

  const ProgramInput& in_;
  const Problem& problem_;
  const Points& points_;
  const Points& coarse_;
  Work& budget_;
  StageTables tables_, coarse_tables_;
  int micro_batches_ = 1;
  bool full_ = true, plain_ = false, relaxed_ = false;
  double whole_work_ = 0;
  int devices_ = 0;
  int last_ = 0;
  bool too_large_ = false;            // more thresholds than are made
  std::vector<double> speed_behind_;  // [d0]: of all devices after d0
  double slowest_ = kInfinity;
  std::vector<int> coarse_points_;
  std::vector<Threshold> thresholds_;
  std::vector<std::size_t> threshold_base_;  // [length]
  std::vector<std::vector<Fan>> fans_;       // [boundary - 1] of a corridor, else one for all boundaries
  std::vector<Step> steps_;
  std::int64_t tried_ = 0, transitions_ = 0;
  // One pair of groups may meet millions of labels: the work left is looked at once in so many.
  static constexpr std::int64_t kTriedPerPoll = 1 << 18;
  static constexpr std::size_t kKeptPerPoll = 1 << 12;
  std::int64_t next_poll_ = kTriedPerPoll;
  std::int64_t units_ = kPerProgram;             // not yet paid
  std::vector<char> reached_, used_, followed_;  // of points, points and steps
  std::vector<std::vector<Candidate>> buckets_;  // [point] while a list is made
  std::vector<std::pair<double, double>> stairs_;
  std::vector<Candidate> kept_, merged_, bucket_;
  std::vector<std::size_t> place_;
  std::vector<double> shared_gradient_, shared_optimizer_;
  Lanes lanes_;
  static constexpr std::size_t kBlock = 64;
  double block_x_[kBlock], block_p_[kBlock], block_y_[kBlock], block_room_[kBlock];
};

}  // namespace automap::pipeline::internal
