#include "common/pipeline/exact_program.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "common/base/check.h"

namespace automap::pipeline::internal {
namespace {

// Stage counts whose limits differ by no more than this factor share thresholds.
constexpr double kLikeLimits = 1.01;
// Thresholds of very many devices: more than so many (2 GB) are not made, and their pages are taken little by little,
// since the first touch of that much memory may outlast the time limit.
constexpr std::size_t kMostThresholds = std::size_t{1} << 25;
constexpr std::size_t kThresholdsPerPoll = std::size_t{1} << 16;

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

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// The coefficients of the path terms of a stage with K micro-batches in flight (cost.h).
struct StageTerms {
  double first = 0;     // its T in the term of the first round trip: (M-1) - (K-1) min(phi, 1-phi)
  bool stalls = false;  // M > K
  double in_flight = 0;
  double laps = 0;
};

struct Terms {
  double micro_batches = 0, steady = 0, phi = 0, small = 0;  // small = min(phi, 1 - phi)
  bool full = true;
  Terms(const Problem& problem)
      : micro_batches(problem.micro_batches()),
        steady(problem.micro_batches() - 1),
        phi(problem.forward_fraction()),
        small(std::min(phi, 1 - phi)),
        full(problem.options().value == ValueForm::kFull) {}
  // The stage with `behind` stages after it.
  StageTerms stage(const Problem& problem, Schedule schedule, int behind) const {
    const int k = in_flight(schedule, behind + 1, 1, problem.micro_batches());
    StageTerms terms;
    terms.first = steady - (k - 1) * small;
    terms.in_flight = k;
    terms.stalls = full && problem.micro_batches() > k;
    terms.laps = (problem.micro_batches() - 1) / k;
    return terms;
  }
};

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
  int point = 0, d0 = 0;
};

struct Candidate {
  double x = 0, p = 0, y = 0;
  int next = 0;
};

// What the groups in front of d0 can tell about a group (d0, d1].
struct GroupKind {
  int inside = 0;  // its size when it shares a server with the device in front of it and lies inside that server
  int servers = 0;
  double bytes_per_ms = 0;
  bool operator<(const GroupKind& o) const {
    return std::tie(inside, servers, bytes_per_ms) < std::tie(o.inside, o.servers, o.bytes_per_ms);
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

// How much of the room a label takes up, for a beam: 1 is all of it. Without a limit, its length.
double strain(const Candidate& c, const Threshold& most) {
  if (most.x == kInfinity) return c.x + c.y;
  double strain = std::max(c.x / most.x, (c.x + c.y) / most.xy);
  if (most.p < kInfinity) strain = std::max({strain, c.p / most.p, (c.p + c.y) / most.py});
  return strain;
}

class Program {
 public:
  Program(const ProgramInput& input, Work& work)
      : in_(input),
        problem_(*input.problem),
        points_(*input.points),
        coarse_(input.coarse == nullptr ? *input.points : *input.coarse),
        budget_(work),
        terms_(*input.problem),
        devices_(input.problem->num_devices()),
        last_(static_cast<int>(input.points->size()) - 1) {}

  ProgramOutput run();
  // For what was done since the last look.
  void pay() { budget_.spend(std::exchange(units_, 0)); }

 private:
  struct StageCost {  // what a stage of one device group costs; work and weight are prefix sums at its known end
    double work = 0, work_first = 0, per_work = 0, weight = 0, ring_latency = 0, ring_per_byte = 0;
    double either = 0;     // least ms per unit of work of this stage and the one in front of it
    std::size_t same = 0;  // the point where the stage ends
  };
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
  StageCost stage_cost(const DeviceGroup& group) const {
    StageCost cost;
    cost.per_work = 1 / (group.size * group.speed);
    cost.ring_latency = group.sync.latency_ms;
    cost.ring_per_byte = group.sync.ms_per_byte;
    return cost;
  }
  double limit(int stages) const { return in_.limit_ms[at(stages - in_.min_stages)]; }
  bool corridor() const { return !in_.boundary_device_cuts.empty(); }
  const std::vector<int>& device_cuts(int boundary) const {
    return corridor() ? in_.boundary_device_cuts[at(boundary - 1)] : in_.device_cuts;
  }
  GroupKind kind(int d0, int d1) const;
  // Where a point's thresholds lie among those of its boundary.
  std::size_t coarse_of(int point) const { return at(in_.coarse == nullptr ? point : in_.coarse_of[at(point)]) - 1; }
  // Of suffixes of `length` stages that start at a fan's device cut with a first group of this kind, point by point.
  Threshold* thresholds(int length, const Fan& fan, int kind) {
    return &thresholds_[threshold_base_[at(length)] + (fan.first_row + at(kind)) * places(length)];
  }
  std::size_t places(int length) const {
    return corridor() ? in_.boundary_points[at(in_.max_stages - length - 1)].size() : coarse_.size() - 2;
  }
  const std::vector<Fan>& fans(int boundary) const { return fans_[corridor() ? at(boundary - 1) : 0]; }
  void make_fans();
  // No suffix of `length` stages after `point` on the devices after d0 has a smaller x.
  double least_x(int length, int d0, double work) const;
  void make_thresholds();
  void thresholds_for(int first_stages, int stages);
  Best best_front(const Row& from, std::size_t first, std::size_t last, const StageTerms& stage,
                  const StageCost& cost) const;
  void extend(const Layer& from, Layer& to, int length, int boundary);
  template <bool kFull, bool kStalls, bool kRelaxed>
  void evaluate(std::size_t begin, std::size_t size, const StageTerms& stage, const StageCost& cost,
                const Threshold& most);
  void finish(const Layer& from, int stages, std::vector<Completion>& out);
  void keep_front(std::vector<Candidate>& candidates);
  void keep_best(std::vector<Candidate>& candidates, const Threshold& most);
  std::size_t merge_shifted(std::size_t count);

  const ProgramInput& in_;
  const Problem& problem_;
  const Points& points_;
  const Points& coarse_;
  Work& budget_;
  Terms terms_;
  int devices_;
  int last_;
  // One way over `link` at the fattest cut of a point.
  double slowest_transfer(const Link& link, std::size_t point) const {
    const double bytes = points_.activation_high[point];
    return bytes > 0 ? link.latency_ms + bytes / link.bytes_per_ms : 0;
  }

  bool relaxed_ = false;
  bool too_large_ = false;            // more thresholds than are made
  std::vector<double> speed_behind_;  // [d0]: of all devices after d0
  double slowest_ = kInfinity;
  std::vector<Threshold> thresholds_;
  std::vector<std::size_t> threshold_base_;  // [length]
  std::vector<std::vector<Fan>> fans_;       // [boundary - 1] of a corridor, else one for all boundaries
  std::vector<Step> steps_;
  std::int64_t tried_ = 0, transitions_ = 0;
  bool too_many() const { return in_.most_labels > 0 && static_cast<std::int64_t>(steps_.size()) > in_.most_labels; }
  bool over() {
    pay();
    return budget_.over();
  }
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
  // Labels of one list with the transfer in front of them added.
  std::vector<double> shifted_x_, shifted_p_, shifted_y_, work_, work_high_, weight_, either_;
  std::vector<int> point_, id_;
  static constexpr std::size_t kBlock = 64;
  double block_x_[kBlock], block_p_[kBlock], block_y_[kBlock], block_room_[kBlock];
};

// A stage in front of shifted labels begin..begin+size-1; room >= 0 where a plan within the limit may come of it.
// Written for the vectorizer: no branches, no calls.
template <bool kFull, bool kStalls, bool kRelaxed>
void Program::evaluate(std::size_t begin, std::size_t size, const StageTerms& stage, const StageCost& cost,
                       const Threshold& most) {
  const double* const __restrict sx = shifted_x_.data() + begin;
  const double* const __restrict sp = shifted_p_.data() + begin;
  const double* const __restrict sy = shifted_y_.data() + begin;
  const double* const __restrict sw = work_.data() + begin;
  const double* const __restrict sb = weight_.data() + begin;
  const double* const __restrict sl = work_high_.data() + begin;
  double* const __restrict bx = block_x_;
  double* const __restrict bp = block_p_;
  double* const __restrict by = block_y_;
  double* const __restrict room = block_room_;
  const double steady = terms_.steady, back = 1 - terms_.phi, first = stage.first, laps = stage.laps;
  const double laps_around = stage.in_flight - 1;
  const double start = cost.work, per_work = cost.per_work, weight = cost.weight;
  const double ring_latency = cost.ring_latency, ring_per_byte = cost.ring_per_byte;
  const double most_x = most.x, most_p = most.p, most_xy = most.xy, most_py = most.py, most_xp = most.xp;
  const auto larger = [](double a, double b) { return a < b ? b : a; };
  for (std::size_t q = 0; q < size; ++q) {
    const double t = larger(sw[q] - start, 0.0) * per_work;
    double x = larger(sx[q], steady * t);
    double p = 0;
    if (kFull) {
      p = sp[q];
      x = larger(x, p + first * t);
      if (kStalls) {
        const double stall = p - laps_around * t;
        x = larger(x, p + steady * t + larger(stall, laps * stall));
      }
      p += t;
    }
    x += t;
    const double bytes = sb[q] - weight;
    const double ring = bytes > 0 ? ring_latency + bytes * ring_per_byte : 0.0;
    // What drains in front of the suffix hides its all-reduce: here the most favourable stage is the longest one.
    const double drain = kRelaxed ? (sl[q] - cost.work_first) * per_work : t;
    const double y = larger(sy[q] - back * drain, ring);
    double left = larger(x - most_x, x + y - most_xy);
    if (kFull) {
      left = larger(left, p - most_p);
      left = larger(left, p + y - most_py);
      left = larger(left, x + p - most_xp);
    }
    bx[q] = x;
    bp[q] = p;
    by[q] = y;
    room[q] = -left;
  }
}

// Adds a candidate unless the best one of the bucket, kept in front, makes it superfluous.
inline void offer(std::vector<Candidate>& bucket, const Candidate& c) {
  if (bucket.empty()) {
    bucket.push_back(c);
    return;
  }
  Candidate& best = bucket.front();
  if (best.x <= c.x && best.p <= c.p && best.y <= c.y) return;
  if (c.x <= best.x && c.p <= best.p && c.y <= best.y) {
    best = c;
    return;
  }
  const bool better = c.x + c.p + c.y < best.x + best.p + best.y;
  bucket.push_back(c);
  if (better) std::swap(bucket.front(), bucket.back());
}

GroupKind Program::kind(int d0, int d1) const {
  const DeviceGroup& group = problem_.group(d0, d1);
  GroupKind kind;
  kind.servers = group.servers;
  if (group.servers > 1) {
    kind.bytes_per_ms = group.ring_bytes_per_ms;
  } else if (d0 > 0 && problem_.server_of_device(d0 - 1) == group.first_server) {
    kind.inside = group.size;
  }
  return kind;
}

void Program::make_fans() {
  const int boundaries = corridor() ? in_.max_stages - 1 : 1;
  fans_.resize(at(boundaries));
  for (int b = 1; b <= boundaries; ++b) {
    std::size_t row = 0;
    for (int d : device_cuts(b)) {
      if (over()) return;
      units_ += kPerFanEnd * devices_;
      Fan fan;
      fan.d = d;
      fan.kind_of_end.assign(at(devices_) + 1, -1);
      fan.first_row = row;
      const auto take = [&](int end) {
        if (end <= d) return;
        const GroupKind this_kind = kind(d, end);
        std::size_t k = 0;
        while (k < fan.kinds.size() && (fan.kinds[k] < this_kind || this_kind < fan.kinds[k])) ++k;
        if (k == fan.kinds.size()) {
          fan.kinds.push_back(this_kind);
          fan.end_of_kind.push_back(end);
        }
        fan.kind_of_end[at(end)] = static_cast<int>(k);
      };
      if (!corridor()) {
        for (int end : in_.device_cuts) take(end);
      } else if (b + 1 < in_.max_stages) {
        for (int end : device_cuts(b + 1)) take(end);
      }
      if (!corridor() || b + 1 == in_.max_stages) take(devices_);
      row += fan.kinds.size();
      fans_[at(b - 1)].push_back(std::move(fan));
    }
  }
}

// With tau the longest stage: every term of a stage of length tau counts it 1 + c times, and the other stages take
// what tau leaves over on the devices that the longest one does not need, at worst on the slowest device each.
double Program::least_x(int length, int d0, double work) const {
  const double speed = speed_behind_[at(d0)];
  const double balanced = work / speed;
  const double least = terms_.micro_batches * balanced;
  if (!terms_.full || length == 1) return least;
  const double c = terms_.stage(problem_, in_.schedule, length - 1).first;
  const double spread = balanced * (c + length);
  const double concentrated = work / std::max(speed - (length - 1) * slowest_, slowest_) * (c + 1);
  return std::max(least, std::min(spread, concentrated));
}

// Prefixes of k = 1..S-1 stages from the front: the most that the suffix behind each may be. One row per device cut
// that ends the prefix and kind of group that follows, so that every transfer is known. Made for the most stages and
// the highest limit of a range of stage counts, it holds for all of them: fewer stages keep fewer micro-batches in
// flight, which only makes their terms longer.
void Program::thresholds_for(int first_stages, int stages) {
  const int end = static_cast<int>(coarse_.size()) - 1;
  const std::size_t width = coarse_.size();
  double most = 0;
  for (int s = first_stages; s <= stages; ++s) most = std::max(most, limit(s));
  if (!(most > 0)) return;
  const double whole_work = problem_.work_ms(0, problem_.num_instructions());
  const double state_factor = problem_.options().state_factor_or_default();
  const bool memory = problem_.options().memory;
  std::vector<int> all_points;
  if (!corridor()) {
    for (int i = 1; i < end; ++i) all_points.push_back(i);
  }
  std::vector<Row> before, now;
  Row origin;
  origin.clear(1);
  origin.x[0] = origin.xy[0] = origin.p[0] = origin.py[0] = most;
  origin.xp[0] = 2 * most;
  origin.bottleneck[0] = origin.hidden[0] = 0;
  origin.past = 1;
  for (int k = 1; k < stages; ++k) {
    const StageTerms stage = terms_.stage(problem_, in_.schedule, stages - k);
    const double least_first = terms_.stage(problem_, in_.schedule, stages - 1).first;
    const double least_in_flight = terms_.stage(problem_, in_.schedule, std::max(first_stages - k, 1)).in_flight;
    const std::vector<int>& points = corridor() ? in_.boundary_points[at(k - 1)] : all_points;
    const std::vector<Fan>& ends = fans(k);
    now.resize(ends.empty() ? 0 : ends.back().first_row + ends.back().kinds.size());
    for (const Fan& fan : ends) {
      if (over()) return;
      const int d1 = fan.d;
      for (std::size_t c = 0; c < fan.kinds.size(); ++c) now[fan.first_row + c].clear(width);
      units_ += kPerRowPoint * static_cast<std::int64_t>(fan.kinds.size() * width);
      const std::size_t starts = k == 1 ? 1 : fans(k - 1).size();
      for (std::size_t start = 0; start < starts; ++start) {
        int d0 = 0;
        const Row* row_before = &origin;
        if (k > 1) {
          const Fan& from_fan = fans(k - 1)[start];
          d0 = from_fan.d;
          if (d0 >= d1 || from_fan.kind_of_end[at(d1)] < 0) continue;
          row_before = &before[from_fan.first_row + at(from_fan.kind_of_end[at(d1)])];
        }
        const Row& from = *row_before;
        if (from.first == from.past) continue;
        if (over()) return;
        units_ += kPerStart * static_cast<std::int64_t>(points.size());
        const DeviceGroup& group = problem_.group(d0, d1);
        StageCost cost = stage_cost(group);
        const double per_work = cost.per_work;
        // The stage in front has at most the devices before d0 that k - 2 others leave.
        if (k > 1) {
          cost.either =
              std::min(per_work, 1 / std::max(speed_behind_[0] - speed_behind_[at(d0)] - (k - 2) * slowest_, slowest_));
        }
        const double longest_work = most / (terms_.micro_batches * per_work) * (1 + 1e-12);
        std::size_t first = from.first, past = from.first;  // the points in front that may start the stage
        std::size_t valued = from.first;                    // those that leave it a variable
        for (int i : points) {
          const double work = coarse_.work_low[at(i)];
          while (past < from.past && (past < at(i) || (past == at(i) && coarse_.several(at(i))))) ++past;
          std::size_t last = past;
          if (in_.needs_variable) {
            while (valued < past && coarse_.variables_low[valued] < coarse_.variables_high[at(i)]) ++valued;
            last = valued;
          }
          while (first < last &&
                 (work - coarse_.work_high[first] > longest_work ||
                  (memory && state_factor * std::max(0.0, coarse_.weight_low[at(i)] - coarse_.weight_high[first]) +
                                     std::max(0.0, coarse_.stash_low[at(i)] - coarse_.stash_high[first]) *
                                         least_in_flight / group.size >
                                 group.capacity_bytes))) {
            ++first;
          }
          if (first >= last) continue;
          cost.work = work;
          cost.weight = coarse_.weight_low[at(i)];
          cost.same = at(i);
          transitions_ += static_cast<std::int64_t>(last - first);
          units_ += kPerTransition * static_cast<std::int64_t>(last - first);
          const Best best = best_front(from, first, last, stage, cost);
          if (!(best.x > 0)) continue;
          const double bytes = coarse_.activation[at(i)];
          units_ += kPerOffer * static_cast<std::int64_t>(fan.kinds.size());
          for (std::size_t c = 0; c < fan.kinds.size(); ++c) {
            const Link link = problem_.link(d0, d1, fan.end_of_kind[c]);
            const double t = bytes > 0 ? link.latency_ms + bytes / link.bytes_per_ms : 0;
            if ((terms_.micro_batches + 1) * t > best.x) continue;
            Row& row = now[fan.first_row + c];
            const std::size_t at_i = at(i);
            row.x[at_i] = std::max(row.x[at_i], best.x - 2 * t);
            row.xy[at_i] = std::max(row.xy[at_i], best.xy - t);
            row.p[at_i] = std::max(row.p[at_i], best.p - 2 * t);
            row.py[at_i] = std::max(row.py[at_i], best.py - t);
            row.xp[at_i] = std::max(row.xp[at_i], best.xp - 4 * t);
            row.bottleneck[at_i] = std::min(row.bottleneck[at_i], best.bottleneck);
            row.hidden[at_i] = std::min(row.hidden[at_i], best.hidden + t);
          }
        }
      }
      for (std::size_t c = 0; c < fan.kinds.size(); ++c) {
        Row& row = now[fan.first_row + c];
        for (std::size_t place = 0; place < points.size(); ++place) {
          const std::size_t i = at(points[place]);
          if (row.x[i] == -kInfinity) continue;
          const double rest = whole_work - coarse_.work_high[i];
          if (terms_.full) {
            // The prefix as a whole has its work to do, whatever the runs leave open between its stages.
            const double balanced = coarse_.work_low[i] / (speed_behind_[0] - speed_behind_[at(d1)]) * (1 - 1e-12);
            row.bottleneck[i] = std::max(row.bottleneck[i], least_first * balanced);
            row.p[i] = std::min(row.p[i], row.x[i] - row.bottleneck[i]);
            row.py[i] = std::min(row.py[i], row.xy[i] - row.bottleneck[i]);
            row.xp[i] = std::min(row.xp[i], 2 * row.x[i] - row.bottleneck[i]);
          }
          bool alive = false;
          units_ += kPerMerge * (stages - k - std::max(1, first_stages - k) + 1);
          for (int length = std::max(1, first_stages - k); length <= stages - k; ++length) {
            const double least = least_x(length, d1, rest) * (1 - 1e-12);
            if (row.x[i] < least || row.xy[i] < least) continue;
            alive = true;
            Threshold& merged = thresholds(length, fan, static_cast<int>(c))[place];
            merged.x = std::max(merged.x, row.x[i]);
            merged.xy = std::max(merged.xy, row.xy[i]);
            merged.p = terms_.full ? std::max(merged.p, row.p[i]) : kInfinity;
            merged.py = terms_.full ? std::max(merged.py, row.py[i]) : kInfinity;
            merged.xp = terms_.full ? std::max(merged.xp, row.xp[i]) : kInfinity;
            merged.bottleneck = terms_.full ? std::min(merged.bottleneck, row.bottleneck[i]) : 0;
            merged.hidden = std::min(merged.hidden, row.hidden[i] * (1 - 1e-12));
          }
          if (!alive) {
            row.x[i] = -kInfinity;
            continue;
          }
          if (row.first == row.past) row.first = i;
          row.past = i + 1;
        }
      }
    }
    std::swap(before, now);
  }
}

// Over the starts first..last-1 of a stage that ends with cost.work done: the most that may follow. The all-reduce of
// the stage is hidden by what drains in front of it only, so U - (pass in front) - (its rest) is xy - its all-reduce.
Program::Best Program::best_front(const Row& from, std::size_t first, std::size_t last, const StageTerms& stage,
                                  const StageCost& cost) const {
  const double micro_batches = terms_.micro_batches, phi = terms_.phi, back = 1 - terms_.phi, term = stage.first;
  // Without stalls these make the term one that never binds: room - T.
  const double stall_weight = stage.stalls ? 1 / (1 + stage.laps) : 1;
  const double stall_work = stage.stalls ? (terms_.steady - stage.laps * stage.in_flight) * stall_weight : 0;
  const double* const __restrict x = from.x.data();
  const double* const __restrict xy = from.xy.data();
  const double* const __restrict p = from.p.data();
  const double* const __restrict py = from.py.data();
  const double* const __restrict xp = from.xp.data();
  const double* const __restrict bottleneck = from.bottleneck.data();
  const double* const __restrict hidden = from.hidden.data();
  const double* const __restrict work_high = coarse_.work_high.data();
  const double* const __restrict work_low = coarse_.work_low.data();
  const double* const __restrict weight_high = coarse_.weight_high.data();
  const auto larger = [](double a, double b) { return a < b ? b : a; };
  const auto smaller = [](double a, double b) { return b < a ? b : a; };
  Best best;
  for (std::size_t j = first; j < last; ++j) {
    const double t = larger(0.0, cost.work - work_high[j]) * cost.per_work;
    if (!(micro_batches * t <= x[j])) continue;
    const double bytes = cost.weight - weight_high[j];
    const double ring = bytes > 0 ? cost.ring_latency + bytes * cost.ring_per_byte : 0;
    const double room = smaller(x[j], xy[j] - ring);
    const double before = j == cost.same ? 0 : (work_high[j] - work_low[j]) * cost.either;
    const double pass = t + before;
    const double next = room - pass;
    const double forward = phi * pass;
    const double stall = (x[j] - before) * stall_weight - stall_work * t - t;  // `before` is no part of the round trip
    const double long_stage = smaller(next - term * t, stall);
    const double after = smaller(smaller(p[j], py[j] - ring) - pass, long_stage);
    best.x = larger(best.x, next);
    best.xy = larger(best.xy, xy[j] - forward);
    best.p = larger(best.p, after);
    best.py = larger(best.py, smaller(py[j], xy[j] - term * t) - forward);
    best.xp = larger(best.xp, smaller(xp[j] - 2 * pass, next + long_stage));
    best.bottleneck = smaller(best.bottleneck, larger(bottleneck[j], term * t));
    best.hidden = smaller(best.hidden, larger(hidden[j], ring) + back * t);
  }
  return best;
}

void Program::make_thresholds() {
  make_fans();
  if (over()) return;
  std::size_t total = 0;
  threshold_base_.assign(at(in_.max_stages), 0);
  for (int length = 1; length < in_.max_stages; ++length) {
    threshold_base_[at(length)] = total;
    const std::vector<Fan>& all = fans(in_.max_stages - length);
    if (!all.empty()) total += (all.back().first_row + all.back().kinds.size()) * places(length);
  }
  too_large_ = total > kMostThresholds;
  if (too_large_) return;
  thresholds_.clear();
  thresholds_.reserve(total);
  while (thresholds_.size() < total) {
    if (over()) return;
    const std::size_t before = thresholds_.size();
    thresholds_.resize(std::min(total, before + kThresholdsPerPoll));
    units_ += kPerThreshold * static_cast<std::int64_t>(thresholds_.size() - before);
  }
  for (int first = std::max(2, in_.min_stages); first <= in_.max_stages;) {
    int last = first;
    double low = limit(first), high = low;
    while (last < in_.max_stages && last + 1 < 2 * first) {
      const double next = limit(last + 1);
      if (std::max(high, next) > kLikeLimits * std::min(low, next)) break;
      low = std::min(low, next);
      high = std::max(high, next);
      ++last;
    }
    thresholds_for(first, last);
    first = last + 1;
  }
}

// Leaves only the labels that no other makes superfluous, sorted by x.
void Program::keep_front(std::vector<Candidate>& candidates) {
  units_ += kPerCandidate * static_cast<std::int64_t>(candidates.size());
  if (candidates.size() < 2) return;
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.x, a.p, a.y, a.next) < std::tie(b.x, b.p, b.y, b.next);
  });
  // Sweep by x; the stairs hold the (p, y) seen so far that no other beats, p ascending and y descending.
  stairs_.clear();
  kept_.clear();
  for (const Candidate& c : candidates) {
    // A front of very many stairs takes time, and what is stopped is thrown away.
    if ((kept_.size() + 1) % kKeptPerPoll == 0 && over()) break;
    const auto after =
        std::upper_bound(stairs_.begin(), stairs_.end(), c.p,
                         [](double p, const std::pair<double, double>& stair) { return p < stair.first; });
    if (after != stairs_.begin() && std::prev(after)->second <= c.y) continue;
    kept_.push_back(c);
    auto from = after;
    if (from != stairs_.begin() && std::prev(from)->first == c.p) --from;
    auto to = from;
    while (to != stairs_.end() && to->second >= c.y) ++to;
    if (from == to) {
      stairs_.insert(from, {c.p, c.y});
    } else {
      *from = {c.p, c.y};
      stairs_.erase(from + 1, to);
    }
  }
  std::swap(candidates, kept_);
}

// Labels that stages of one device group may be put in front of, whatever comes behind them: the transfer to them
// is known and added, so that most of several lists are superfluous. Ascending by point again.
std::size_t Program::merge_shifted(std::size_t count) {
  place_.assign(points_.size() + 1, 0);
  for (std::size_t q = 0; q < count; ++q) ++place_[at(point_[q]) + 1];
  for (std::size_t i = 1; i < place_.size(); ++i) place_[i] += place_[i - 1];
  merged_.resize(count);
  for (std::size_t q = 0; q < count; ++q) {
    merged_[place_[at(point_[q])]++] = {shifted_x_[q], shifted_p_[q], shifted_y_[q], id_[q]};
  }
  std::size_t kept = 0, begin = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const std::size_t end = place_[i];
    if (begin == end) continue;
    bucket_.assign(merged_.begin() + static_cast<std::ptrdiff_t>(begin),
                   merged_.begin() + static_cast<std::ptrdiff_t>(end));
    keep_front(bucket_);
    for (const Candidate& c : bucket_) {
      shifted_x_[kept] = c.x;
      shifted_p_[kept] = c.p;
      shifted_y_[kept] = c.y;
      id_[kept] = c.next;
      point_[kept] = static_cast<int>(i);
      either_[kept] = 0;
      work_[kept] = points_.work_low[i];
      work_high_[kept] = points_.work_high[i];
      weight_[kept] = points_.weight_low[i];
      ++kept;
    }
    begin = end;
  }
  return kept;
}

void Program::keep_best(std::vector<Candidate>& candidates, const Threshold& most) {
  keep_front(candidates);
  if (in_.beam > 0 && candidates.size() > at(in_.beam)) {
    std::nth_element(candidates.begin(), candidates.begin() + in_.beam, candidates.end(),
                     [&](const Candidate& a, const Candidate& b) {
                       return std::make_tuple(strain(a, most), a.p, a.next) <
                              std::make_tuple(strain(b, most), b.p, b.next);
                     });
    candidates.resize(at(in_.beam));
  }
}

void Program::extend(const Layer& from, Layer& to, int length, int boundary) {
  const StageTerms stage = terms_.stage(problem_, in_.schedule, length - 1);
  const double around = terms_.micro_batches + 1;
  const double state_factor = problem_.options().state_factor_or_default();
  const bool memory = problem_.options().memory;
  double longest = 0;
  for (int stages = std::max(in_.min_stages, length + 1); stages <= in_.max_stages; ++stages) {
    longest = std::max(longest, limit(stages) / terms_.micro_batches);
  }
  const double whole_work = problem_.work_ms(0, problem_.num_instructions());
  std::vector<int> alive;
  std::vector<const Threshold*> most_at;
  std::vector<std::pair<int, int>> groups;  // kind of (d0, d1], list
  buckets_.resize(points_.size());
  for (const Fan& fan : fans(boundary)) {
    const int d0 = fan.d;
    groups.clear();
    for (std::size_t l = 0; l < from.lists.size(); ++l) {
      const int end = from.lists[l].d0;
      if (end > d0 && fan.kind_of_end[at(end)] >= 0) groups.emplace_back(fan.kind_of_end[at(end)], static_cast<int>(l));
    }
    std::sort(groups.begin(), groups.end());
    for (std::size_t g = 0; g < groups.size();) {
      const int this_kind = groups[g].first;
      const Threshold* const row = thresholds(length, fan, this_kind);
      alive.clear();
      most_at.clear();
      if (corridor()) {
        const std::vector<int>& points = in_.boundary_points[at(boundary - 1)];
        for (std::size_t place = 0; place < points.size(); ++place) {
          if (!row[place].alive()) continue;
          alive.push_back(points[place]);
          most_at.push_back(&row[place]);
        }
      } else {
        for (int i = 1; i < last_; ++i) {
          if (!row[coarse_of(i)].alive()) continue;
          alive.push_back(i);
          most_at.push_back(&row[coarse_of(i)]);
        }
      }
      int d1 = 0;
      double made_per_work = kInfinity;
      std::size_t kept = 0, lists = 0;  // labels gathered from so many lists behind one group
      for (; g < groups.size() && groups[g].first == this_kind; ++g) {
        if (alive.empty()) continue;
        if (over() || too_many()) return;
        units_ += kPerAlive * static_cast<std::int64_t>(alive.size());
        const LabelList& list = from.lists[at(groups[g].second)];
        d1 = list.d0;
        const DeviceGroup& group = problem_.group(d0, d1);
        Link link;
        if (d1 < devices_) link = problem_.link(d0, d1, list.d1);
        const double per_byte = d1 < devices_ ? 1 / link.bytes_per_ms : 0;
        const std::size_t size_before = kept + list.end - list.begin;
        for (std::vector<double>* values :
             {&shifted_x_, &shifted_p_, &shifted_y_, &work_, &work_high_, &weight_, &either_}) {
          if (values->size() < size_before) values->resize(size_before);
        }
        if (point_.size() < size_before) point_.resize(size_before);
        if (id_.size() < size_before) id_.resize(size_before);
        units_ += kPerShifted * static_cast<std::int64_t>(list.end - list.begin);
        const int* const all_points = from.point.data() + list.begin;
        StageCost cost = stage_cost(group);
        const double per_work = cost.per_work;
        const double either = relaxed_ && d1 < devices_ ? std::min(per_work, list.per_work) : 0;
        made_per_work = std::min(made_per_work, per_work);
        // The most that x, p and x + y may be once the stage's work up to the label's point is added, for any start of
        // the stage: labels above need not be tried start by start.
        std::size_t reached = 0;
        double most_x = -kInfinity, most_p = -kInfinity, most_xy = -kInfinity;
        for (std::size_t q = 0; q < list.end - list.begin; ++q) {
          const std::size_t j = at(all_points[q]);
          for (; reached < alive.size() && alive[reached] <= all_points[q]; ++reached) {
            const double work = points_.work_high[at(alive[reached])] * per_work;
            const Threshold& most = *most_at[reached];
            most_x = std::max(most_x, most.x + work);
            most_p = std::max(most_p, most.p + work);
            most_xy = std::max(most_xy, most.xy + terms_.phi * work);
          }
          const double bytes = points_.activation[j];
          const double t = d1 < devices_ && bytes > 0 ? link.latency_ms + bytes * per_byte : 0;
          // Wherever in the run the cut is, its work is done by one of the two stages.
          const double pass = 2 * t + (points_.work_high[j] - points_.work_low[j]) * either;
          const double x = std::max(from.x[list.begin + q] + pass, around * t);
          const double p = from.p[list.begin + q] + pass;
          const double y = from.y[list.begin + q] - (relaxed_ && d1 < devices_ ? slowest_transfer(link, j) : t);
          const double work = points_.work_low[j] * per_work * (1 - 1e-12);
          if (x + work > most_x || p + work > most_p || (!relaxed_ && x + y + terms_.phi * work > most_xy)) continue;
          either_[kept] = pass - 2 * t;
          shifted_x_[kept] = x;
          shifted_p_[kept] = p;
          shifted_y_[kept] = y;
          work_[kept] = points_.work_low[j];
          work_high_[kept] = points_.work_high[j];
          weight_[kept] = points_.weight_low[j];
          point_[kept] = all_points[q];
          id_[kept] = from.id[list.begin + q];
          ++kept;
        }
        ++lists;
        if (!relaxed_ && g + 1 < groups.size() && groups[g + 1].first == this_kind &&
            from.lists[at(groups[g + 1].second)].d0 == d1) {
          continue;
        }
        const std::size_t count = lists > 1 ? merge_shifted(kept) : kept;
        kept = lists = 0;
        const int* const point = point_.data();
        std::size_t first = 0, past = 0;
        for (std::size_t a = 0; a < alive.size() && count > 0; ++a) {
          const int i = alive[a];
          const double work = points_.work_high[at(i)], weight = points_.weight_high[at(i)],
                       stash = points_.stash_high[at(i)];
          const bool same = points_.several(at(i));
          while (first < count &&
                 (point[first] < i || (point[first] == i && !same) ||
                  (in_.needs_variable && points_.variables_high[at(point[first])] <= points_.variables_low[at(i)]))) {
            ++first;
          }
          past = std::max(past, first);
          while (past < count) {
            const std::size_t j = at(point[past]);
            if ((work_[past] - work) * per_work > longest) break;
            if (memory && state_factor * std::max(0.0, weight_[past] - weight) +
                                  std::max(0.0, points_.stash_low[j] - stash) * stage.in_flight / group.size >
                              group.capacity_bytes) {
              break;
            }
            ++past;
          }
          if (first == past) continue;
          const Threshold& most = *most_at[a];
          const double balanced = (whole_work - work) / speed_behind_[at(d0)] * (1 - 1e-12);
          cost.work = work;
          cost.work_first = points_.work_low[at(i)];
          cost.weight = weight;
          // No stage may take more than the room: the tail is of no use.
          std::size_t end = past;
          const double most_work = work + most.x / (terms_.micro_batches * per_work) * (1 + 1e-12);
          while (end > first && work_[end - 1] > most_work) --end;
          // Two cuts in one run: its work counts once, later, for any of the three stages that meet there.
          std::size_t shared = first;
          while (shared < end && point[shared] == i) {
            shifted_x_[shared] -= either_[shared];
            shifted_p_[shared] -= either_[shared];
            ++shared;
          }
          if (shared > first) made_per_work = std::min(made_per_work, list.per_work);
          tried_ += static_cast<std::int64_t>(end - first);
          units_ += kPerTried * static_cast<std::int64_t>(end - first);
          if (tried_ >= next_poll_) {
            next_poll_ = tried_ + kTriedPerPoll;
            if (over()) return;
          }
          for (std::size_t begin = first; begin < end; begin += kBlock) {
            const std::size_t size = std::min(kBlock, end - begin);
            if (relaxed_) {
              if (!terms_.full) {
                evaluate<false, false, true>(begin, size, stage, cost, most);
              } else if (stage.stalls) {
                evaluate<true, true, true>(begin, size, stage, cost, most);
              } else {
                evaluate<true, false, true>(begin, size, stage, cost, most);
              }
            } else if (!terms_.full) {
              evaluate<false, false, false>(begin, size, stage, cost, most);
            } else if (stage.stalls) {
              evaluate<true, true, false>(begin, size, stage, cost, most);
            } else {
              evaluate<true, false, false>(begin, size, stage, cost, most);
            }
            for (std::size_t q = 0; q < size; ++q) {
              if (!(block_room_[q] >= 0)) continue;
              double x = block_x_[q];
              const double p = block_p_[q], y = block_y_[q];
              if (relaxed_) {
                // The suffix as a whole has its work to do, whatever the runs leave open between its stages.
                x = std::max(x, terms_.micro_batches * balanced);
                if (terms_.full) x = std::max(x, p + stage.first * balanced);
                if (x > most.x || x + y > most.xy || x + p > most.xp) continue;
              }
              offer(buckets_[at(i)], {std::max(x, p + most.bottleneck), p, std::max(y, most.hidden), id_[begin + q]});
            }
          }
          for (std::size_t q = first; q < shared; ++q) {
            shifted_x_[q] += either_[q];
            shifted_p_[q] += either_[q];
          }
        }
      }
      LabelList made;
      made.d0 = d0;
      made.d1 = d1;
      made.per_work = made_per_work;
      made.begin = to.point.size();
      for (std::size_t a = 0; a < alive.size(); ++a) {
        const int i = alive[a];
        std::vector<Candidate>& bucket = buckets_[at(i)];
        if (bucket.empty()) continue;
        reached_[at(i)] = 1;
        keep_best(bucket, *most_at[a]);
        for (const Candidate& c : bucket) {
          to.point.push_back(i);
          to.x.push_back(c.x);
          to.p.push_back(c.p);
          to.y.push_back(c.y);
          to.id.push_back(static_cast<int>(steps_.size()));
          steps_.push_back({c.next, i, d0});
        }
        bucket.clear();
        if (too_many()) return;
      }
      made.end = to.point.size();
      if (made.end > made.begin) to.lists.push_back(made);
    }
  }
}

// The whole model: the first stage in front of every suffix of S - 1 stages.
void Program::finish(const Layer& from, int stages, std::vector<Completion>& out) {
  const StageTerms stage = terms_.stage(problem_, in_.schedule, stages - 1);
  std::vector<std::pair<double, int>> best;  // value, label
  units_ += kPerFinished * static_cast<std::int64_t>(from.point.size());
  for (const LabelList& list : from.lists) {
    const DeviceGroup& group = problem_.group(0, list.d0);
    Link link;
    if (list.d0 < devices_) link = problem_.link(0, list.d0, list.d1);
    const double either = relaxed_ && list.d0 < devices_ ? std::min(1 / (group.size * group.speed), list.per_work) : 0;
    const double balanced = problem_.work_ms(0, problem_.num_instructions()) / speed_behind_[0] * (1 - 1e-12);
    for (std::size_t q = list.begin; q < list.end; ++q) {
      const std::size_t j = at(from.point[q]);
      if (in_.needs_variable && points_.variables_high[j] == 0) continue;
      if (problem_.options().memory && problem_.options().state_factor_or_default() * points_.weight_low[j] +
                                               points_.stash_low[j] * stage.in_flight / group.size >
                                           group.capacity_bytes) {
        continue;
      }
      const double bytes = list.d0 < devices_ ? points_.activation[j] : 0;
      const double transfer = bytes > 0 ? link.latency_ms + bytes / link.bytes_per_ms : 0;
      const double t = points_.work_low[j] / (group.size * group.speed);
      const double pass = 2 * transfer + (points_.work_high[j] - points_.work_low[j]) * either;
      double x = std::max({from.x[q] + pass, (terms_.micro_batches + 1) * transfer, terms_.steady * t});
      if (terms_.full) {
        const double p = from.p[q] + pass;
        x = std::max(x, p + stage.first * t);
        if (stage.stalls) {
          const double stall = p + t - stage.in_flight * t;
          x = std::max(x, p + terms_.steady * t + std::max(stall, stage.laps * stall));
        }
      }
      x += t;
      if (relaxed_) {
        x = std::max(x, terms_.micro_batches * balanced);
        if (terms_.full) x = std::max(x, from.p[q] + pass + t + stage.first * balanced);
      }
      const double drain =
          relaxed_ ? slowest_transfer(link, j) + (1 - terms_.phi) * points_.work_high[j] / (group.size * group.speed)
                   : transfer + (1 - terms_.phi) * t;
      const double y = std::max(problem_.allreduce_ms(points_.weight_low[j], group), from.y[q] - drain);
      const double value = x + std::max(0.0, y);
      if (value <= limit(stages)) best.emplace_back(value, from.id[q]);
    }
  }
  if (in_.mark) {
    followed_.resize(steps_.size(), 0);
    for (const auto& completed : best) {
      for (int step = completed.second; step > 0 && !followed_[at(step)]; step = steps_[at(step)].next) {
        followed_[at(step)] = 1;
        used_[at(steps_[at(step)].point)] = 1;
      }
    }
  }
  const std::size_t keep = std::min(best.size(), at(in_.keep));
  std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(keep), best.end());
  best.resize(keep);
  for (const auto& [value, label] : best) {
    Completion completion;
    completion.value_ms = value;
    for (int step = label; step >= 0; step = steps_[at(step)].next) {
      if (steps_[at(step)].d0 == devices_) break;
      completion.points.push_back(steps_[at(step)].point);
      completion.device_cuts.push_back(steps_[at(step)].d0);
    }
    out.push_back(std::move(completion));
  }
}

ProgramOutput Program::run() {
  ProgramOutput output;
  speed_behind_.assign(at(devices_) + 1, 0);
  for (int d = devices_ - 1; d >= 0; --d) {
    const double speed = problem_.group(d, d + 1).speed;
    speed_behind_[at(d)] = speed_behind_[at(d) + 1] + speed;
    slowest_ = std::min(slowest_, speed);
  }
  output.by_stages.resize(at(in_.max_stages - in_.min_stages + 1));
  for (std::size_t i = 0; i < points_.size(); ++i) relaxed_ = relaxed_ || points_.several(i);
  reached_.assign(points_.size(), 0);
  used_.assign(points_.size(), 0);
  make_thresholds();
  if (over() || too_large_) return output;
  Layer layer;
  layer.lists.push_back({devices_, devices_, 0, 1, 0});
  layer.point = {last_};
  layer.x = layer.p = layer.y = {0.0};
  layer.id = {0};
  steps_.assign(1, Step{-1, last_, devices_});
  for (int length = 1; length <= in_.max_stages; ++length) {
    if (length >= in_.min_stages) finish(layer, length, output.by_stages[at(length - in_.min_stages)]);
    if (length == in_.max_stages) break;
    Layer next;
    extend(layer, next, length, in_.max_stages - length);
    if (over()) return output;
    output.gave_up = too_many();
    if (output.gave_up) return output;
    if (in_.keep_layers && length > 1) output.layers.push_back(std::move(layer));
    layer = std::move(next);
  }
  if (in_.keep_layers && in_.max_stages > 1) output.layers.push_back(std::move(layer));
  output.labels = static_cast<std::int64_t>(steps_.size());
  output.reached = std::move(reached_);
  output.used = std::move(used_);
  output.tried = tried_;
  output.transitions = transitions_;
  output.finished = true;
  return output;
}

void append(Points& points, const Problem& problem, int first, int last) {
  points.first_cut.push_back(first);
  points.last_cut.push_back(last);
  points.work_low.push_back(problem.work_ms(0, first));
  points.work_high.push_back(problem.work_ms(0, last));
  points.weight_low.push_back(problem.weight_bytes(0, first));
  points.weight_high.push_back(problem.weight_bytes(0, last));
  points.stash_low.push_back(problem.stash_bytes(0, first));
  points.stash_high.push_back(problem.stash_bytes(0, last));
  points.activation.push_back(problem.activation_bytes(first));
  points.activation_high.push_back(problem.activation_bytes(first));
  points.variables_low.push_back(problem.variables(0, first));
  points.variables_high.push_back(problem.variables(0, last));
}

}  // namespace

Points exact_points(const Problem& problem, const std::vector<int>& cuts) {
  Points points;
  append(points, problem, 0, 0);
  for (int cut : cuts) append(points, problem, cut, cut);
  append(points, problem, problem.num_instructions(), problem.num_instructions());
  return points;
}

Points run_points(const Problem& problem, const std::vector<int>& cuts, const Runs& runs) {
  Points points;
  append(points, problem, 0, 0);
  for (const auto& run : runs) {
    append(points, problem, cuts[at(run.first)], cuts[at(run.second)]);
    for (int i = run.first + 1; i <= run.second; ++i) {
      const double bytes = problem.activation_bytes(cuts[at(i)]);
      points.activation.back() = std::min(points.activation.back(), bytes);
      points.activation_high.back() = std::max(points.activation_high.back(), bytes);
    }
  }
  append(points, problem, problem.num_instructions(), problem.num_instructions());
  return points;
}

ProgramOutput run_program(const ProgramInput& input, Work& work) {
  AM_CHECK(input.limit_ms.size() == at(input.max_stages - input.min_stages + 1));
  Program program(input, work);
  ProgramOutput output = program.run();
  program.pay();
  return output;
}

}  // namespace automap::pipeline::internal
