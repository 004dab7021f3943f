#include "plan/systems/rivals/aceso.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/numbers.h"
#include "common/pipeline/cost.h"

namespace automap::rivals {
namespace {

using pipeline::Plan;
using pipeline::Problem;

constexpr double kShorter = 1 - 1e-9;  // a step is shorter below this share of another
constexpr int kPartners = 3;           // stages that take part in a primitive, each in turn
// Goals for moving operators: lower the bottleneck by this share of the gap between it and its partner.
constexpr std::array<double, 3> kGoals = {0.4, 0.2, 0};

enum class Resource { kCompute, kCommunication, kMemory };
enum class Primitive { kMoveOperators, kMoreDevices, kFewerDevices };

// Where stages end, [S] each: the number of operators and of devices up to there.
struct Shape {
  std::vector<int> operators, devices;
  int num_stages() const { return static_cast<int>(operators.size()); }
  bool operator<(const Shape& o) const { return std::tie(operators, devices) < std::tie(o.operators, o.devices); }
};

struct Configuration {
  Shape shape;
  std::vector<double> ms;     // t_s; infinite when the stage does not fit
  std::vector<int> variants;  // of stages that fit
  double over = 0;            // largest share of a device's memory that a stage needs; 0 when all fit
  double objective_ms = 0;    // infinite when one does not fit
  bool fits() const { return over == 0; }
  bool operator<(const Configuration& o) const {
    return std::tie(over, objective_ms, shape) < std::tie(o.over, o.objective_ms, o.shape);
  }
  // Fits where the other does not, or by less is too large, or is shorter.
  bool better_than(const Configuration& o) const {
    if (fits() && o.fits()) return objective_ms < o.objective_ms * kShorter;
    return over < o.over * kShorter;
  }
};

Plan plan_of(const Configuration& one) {
  Plan plan;
  plan.cuts.assign(one.shape.operators.begin(), one.shape.operators.end() - 1);
  plan.device_cuts.assign(one.shape.devices.begin(), one.shape.devices.end() - 1);
  plan.schedule = pipeline::Schedule::k1f1b;
  plan.variants.assign(one.variants.begin(), one.variants.end());
  return plan;
}

// For every number of stages up to `most`, at [stages]: all devices in the most even groups (least sum of squares) of
// sizes that a stage may have, the largest first; empty when there are none.
std::vector<std::vector<int>> even_groups(const Problem& problem, int most) {
  const int devices = problem.num_devices();
  // [stages][devices]
  std::vector<std::vector<double>> least(at(most) + 1, std::vector<double>(at(devices) + 1, kInfinity));
  std::vector<std::vector<int>> last(at(most) + 1, std::vector<int>(at(devices) + 1));
  least[0][0] = 0;
  for (int stages = 1; stages <= most; ++stages) {
    for (const int size : problem.group_sizes()) {
      for (int d = size; d <= devices; ++d) {
        const double squares = least[at(stages) - 1][at(d - size)] + static_cast<double>(size) * size;
        if (squares >= least[at(stages)][at(d)]) continue;
        least[at(stages)][at(d)] = squares;
        last[at(stages)][at(d)] = size;
      }
    }
  }
  std::vector<std::vector<int>> groups(at(most) + 1);
  for (int stages = 1; stages <= most; ++stages) {
    if (least[at(stages)][at(devices)] == kInfinity) continue;
    std::vector<int>& sizes = groups[at(stages)];
    for (int s = stages, d = devices; s > 0; --s) {
      sizes.push_back(last[at(s)][at(d)]);
      d -= sizes.back();
    }
    std::sort(sizes.rbegin(), sizes.rend());
  }
  return groups;
}

std::vector<int> ends_of(const std::vector<int>& sizes) {
  std::vector<int> ends(sizes.size());
  std::partial_sum(sizes.begin(), sizes.end(), ends.begin());
  return ends;
}

// The search from one start.
class AcesoSearch {
 public:
  AcesoSearch(const Problem& problem, const std::vector<int>& ends, int effort)
      : problem_(problem), ends_(ends), effort_(effort) {}

  // The best configuration met; nothing when the start may not be.
  std::optional<Configuration> run(const Shape& start);

 private:
  struct Place {
    int p0 = 0, p1 = 0, d0 = 0, d1 = 0;
  };
  Place place(const Shape& shape, int s) const {
    return {s == 0 ? 0 : shape.operators[at(s - 1)], shape.operators[at(s)], s == 0 ? 0 : shape.devices[at(s - 1)],
            shape.devices[at(s)]};
  }
  double ms(const Shape& shape, int s, int* variant = nullptr) const {
    const Place at = place(shape, s);
    return stage_ms(problem_, at.p0, at.p1, at.d0, at.d1, shape.num_stages() - s, Transfers::kCounted, variant);
  }
  double least_compute_ms(const Place& at) const;  // of its variants, whether they fit or not
  // The share of a device's memory, by the variant that needs least.
  double memory_share(const Shape& shape, int s) const;
  // The load that makes a stage the bottleneck: its memory where the configuration does not fit, its time where it
  // does.
  double load(const Shape& shape, int s, bool fits) const { return fits ? ms(shape, s) : memory_share(shape, s); }
  std::vector<double> loads(const Configuration& from) const;

  // Spends effort. nullopt for a shape that was met before, that is impossible whatever its memory, or that comes when
  // the effort is spent.
  std::optional<Configuration> propose(Shape shape);
  // The first configuration met that is better than best_, primitives on stage `target` being number `hops` in a row;
  // those worth a search of their own go to unexplored_.
  std::optional<Configuration> hop(const Configuration& from, int target, int hops);
  // The primitives for the resources that stage `target` is short of, the scarcest first.
  std::vector<Primitive> ranked_primitives(const Configuration& from, int target) const;
  std::vector<Shape> apply(Primitive primitive, const Configuration& from, int target) const;
  void move_operators(const Configuration& from, int target, std::vector<Shape>& to) const;
  // All but `target`, the idlest first.
  std::vector<int> by_load(const Configuration& from, int target) const;
  // Operators from `target` to `partner` through the stages between, each left below the goal; single operators or
  // whole layers.
  void relay(const Configuration& from, int target, int partner, double goal, bool layers,
             std::vector<Shape>& to) const;
  void exchange_devices(const Configuration& from, int target, bool more, std::vector<Shape>& to) const;

  const Problem& problem_;
  const std::vector<int>& ends_;  // of layers
  int effort_;
  int trial_ = 0;  // what is left of kAcesoTrial
  Configuration best_;
  std::set<Shape> met_;
  std::set<Configuration> unexplored_;  // the most promising first
};

double AcesoSearch::least_compute_ms(const Place& at) const {
  const pipeline::DeviceGroup& group = problem_.group(at.d0, at.d1);
  double least = kInfinity;
  for (int v = 0; v < problem_.num_variants(); ++v) {
    least = std::min(least, problem_.compute_ms(at.p0, at.p1, group, v));
  }
  return least;
}

double AcesoSearch::memory_share(const Shape& shape, int s) const {
  const Place at = place(shape, s);
  const pipeline::DeviceGroup& group = problem_.group(at.d0, at.d1);
  const int in_flight =
      pipeline::in_flight(pipeline::Schedule::k1f1b, shape.num_stages(), s + 1, problem_.micro_batches());
  double least = kInfinity;
  for (int v = 0; v < problem_.num_variants(); ++v) {
    least = std::min(least, problem_.memory_bytes(at.p0, at.p1, group, in_flight, v) / group.capacity_bytes);
  }
  return least;
}

std::vector<double> AcesoSearch::loads(const Configuration& from) const {
  if (from.fits()) return from.ms;
  std::vector<double> shares;
  for (int s = 0; s < from.shape.num_stages(); ++s) shares.push_back(memory_share(from.shape, s));
  return shares;
}

std::optional<Configuration> AcesoSearch::propose(Shape shape) {
  if (effort_ <= 0 || trial_ <= 0) return std::nullopt;
  --effort_;
  --trial_;
  if (!met_.insert(shape).second) return std::nullopt;
  Configuration made;
  const int stages = shape.num_stages();
  made.ms.resize(at(stages));
  made.variants.resize(at(stages));
  double sum = 0, longest = 0;
  for (int s = 0; s < stages; ++s) {
    const Place where = place(shape, s);
    if (!problem_.group(where.d0, where.d1).valid) return std::nullopt;
    const double t = ms(shape, s, &made.variants[at(s)]);
    made.ms[at(s)] = t;
    sum += t;
    longest = std::max(longest, t);
    if (t < kInfinity) continue;
    const double share = problem_.options().memory ? memory_share(shape, s) : 0;
    if (share <= 1) return std::nullopt;  // not for its memory: no variable, or it idles
    made.over = std::max(made.over, share);
  }
  made.objective_ms = made.fits() ? chain_ms(problem_, sum, longest) : kInfinity;
  made.shape = std::move(shape);
  // Only the whole plan shows whether a stage idles beside the others.
  if (made.fits() && !pipeline::feasible(problem_, plan_of(made))) return std::nullopt;
  return made;
}

std::vector<Primitive> AcesoSearch::ranked_primitives(const Configuration& from, int target) const {
  struct Share {
    double target = 0, all = 0;
    double value() const { return all > 0 ? target / all : 0; }
  };
  std::array<Share, 3> shares;  // of Resource
  if (from.fits()) {
    for (int s = 0; s < from.shape.num_stages(); ++s) {
      const Place where = place(from.shape, s);
      const pipeline::DeviceGroup& group = problem_.group(where.d0, where.d1);
      const double least = least_compute_ms(where);
      const double taken = problem_.compute_ms(where.p0, where.p1, group, from.variants[at(s)]);
      // The time paid for memory: recomputation and gathers. Communication: all that is not compute.
      const std::array<double, 3> parts = {least, from.ms[at(s)] - taken, taken - least};
      for (std::size_t r = 0; r < parts.size(); ++r) {
        shares[r].all += parts[r];
        if (s == target) shares[r].target = parts[r];
      }
    }
  }
  std::array<Resource, 3> order = {Resource::kCompute, Resource::kCommunication, Resource::kMemory};
  std::stable_sort(order.begin(), order.end(), [&](Resource a, Resource b) {
    return shares[static_cast<std::size_t>(a)].value() > shares[static_cast<std::size_t>(b)].value();
  });
  // More devices hold and compute less each; fewer have less to sum and fewer servers to cross. Operators that leave
  // take of everything.
  std::vector<Primitive> primitives = {Primitive::kMoveOperators, Primitive::kMoreDevices, Primitive::kFewerDevices};
  if (order[0] == Resource::kCommunication) std::swap(primitives[1], primitives[2]);
  return primitives;
}

std::vector<int> AcesoSearch::by_load(const Configuration& from, int target) const {
  const std::vector<double> load_of = loads(from);
  std::vector<int> others;
  for (int s = 0; s < from.shape.num_stages(); ++s) {
    if (s != target) others.push_back(s);
  }
  std::stable_sort(others.begin(), others.end(), [&](int a, int b) { return load_of[at(a)] < load_of[at(b)]; });
  return others;
}

void AcesoSearch::move_operators(const Configuration& from, int target, std::vector<Shape>& to) const {
  const std::vector<double> load_of = loads(from);
  const std::vector<int> idlest = by_load(from, target);
  for (std::size_t i = 0; i < idlest.size(); ++i) {
    const int partner = idlest[i];
    if (i >= at(kPartners) && std::abs(partner - target) != 1) continue;  // the idlest, and the neighbours
    const double gap = load_of[at(target)] - load_of[at(partner)];
    if (!(gap > 0)) continue;
    for (const double part : kGoals) {
      const double goal = load_of[at(target)] - gap * part;
      relay(from, target, partner, goal, false, to);
      if (ends_.size() < at(problem_.num_instructions())) relay(from, target, partner, goal, true, to);
    }
  }
}

void AcesoSearch::relay(const Configuration& from, int target, int partner, double goal, bool layers,
                        std::vector<Shape>& to) const {
  const int step = partner > target ? 1 : -1;
  Shape shape = from.shape;
  for (int s = target; s != partner; s += step) {
    int& border = shape.operators[at(step > 0 ? s : s - 1)];
    const Place where = place(shape, s);
    // As few as bring it below the goal; one stays. A stage that is passed through may be below it as it is.
    bool below = s != target && load(shape, s, from.fits()) < goal;
    if (!below && !layers && from.fits()) {
      // No border on this side of `near` will do: the compute alone is too long.
      int near = border, far = step > 0 ? where.p0 : where.p1;
      while (std::abs(near - far) > 1) {
        border = (near + far) / 2;
        (least_compute_ms(place(shape, s)) < goal ? far : near) = border;
      }
      border = near;
    }
    while (!below) {
      if (!layers) {
        border -= step;
      } else if (step > 0) {
        const auto here = std::lower_bound(ends_.begin(), ends_.end(), border);
        border = here == ends_.begin() ? 0 : *(here - 1);
      } else {
        border = *std::upper_bound(ends_.begin(), ends_.end(), border);
      }
      if (step > 0 ? border <= where.p0 : border >= where.p1) return;
      below = load(shape, s, from.fits()) < goal;
    }
  }
  if (load(shape, partner, from.fits()) < goal) to.push_back(std::move(shape));
}

void AcesoSearch::exchange_devices(const Configuration& from, int target, bool more, std::vector<Shape>& to) const {
  const int stages = from.shape.num_stages();
  std::vector<int> sizes(at(stages));
  std::adjacent_difference(from.shape.devices.begin(), from.shape.devices.end(), sizes.begin());
  const std::vector<int> idlest = by_load(from, target);
  // Those that give begin with the idlest, those that take with the busiest.
  const std::vector<int> busiest(idlest.rbegin(), idlest.rend());
  const std::vector<int>& partners = more ? idlest : busiest;
  const int firsts = std::min(kPartners, static_cast<int>(partners.size())), own = sizes[at(target)];
  for (int first = 0; first < firsts && (more || own > 1); ++first) {
    std::vector<int> made = sizes;
    made[at(target)] += more ? own : -(own / 2);
    int left = more ? -own : own / 2;  // devices that no stage has
    const auto halve_or_double = [&](int s, bool halve) {
      const int change = halve ? -(made[at(s)] / 2) : made[at(s)];
      made[at(s)] += change;
      left -= change;
    };
    halve_or_double(partners[at(first)], more);
    const bool halve = left < 0;
    for (const int s : halve ? idlest : busiest) {
      const int change = halve ? sizes[at(s)] / 2 : sizes[at(s)];
      if (s != partners[at(first)] && change > 0 && change <= std::abs(left)) halve_or_double(s, halve);
    }
    if (left == 0) to.push_back({from.shape.operators, ends_of(made)});
  }
  const auto may_be = [&](int size) {
    return std::binary_search(problem_.group_sizes().begin(), problem_.group_sizes().end(), size);
  };
  for (int i = 0; i < firsts; ++i) {
    std::vector<int> made = sizes;
    int& taker = made[at(more ? target : partners[at(i)])];
    int& giver = made[at(more ? partners[at(i)] : target)];
    do {
      --giver;
      ++taker;
    } while (giver > 0 && !(may_be(giver) && may_be(taker)));
    if (giver > 0) to.push_back({from.shape.operators, ends_of(made)});
  }
}

std::vector<Shape> AcesoSearch::apply(Primitive primitive, const Configuration& from, int target) const {
  std::vector<Shape> to;
  if (primitive == Primitive::kMoveOperators) {
    move_operators(from, target, to);
  } else {
    exchange_devices(from, target, primitive == Primitive::kMoreDevices, to);
  }
  return to;
}

std::optional<Configuration> AcesoSearch::hop(const Configuration& from, int target, int hops) {
  for (const Primitive primitive : ranked_primitives(from, target)) {
    std::vector<Configuration> found;
    for (Shape& shape : apply(primitive, from, target)) {
      if (std::optional<Configuration> made = propose(std::move(shape))) found.push_back(std::move(*made));
    }
    std::sort(found.begin(), found.end());
    if (!found.empty() && found.front().better_than(best_)) return found.front();
    for (const Configuration& one : found) {
      if (!best_.fits() || (one.fits() && one.objective_ms < best_.objective_ms * kAcesoNear)) unexplored_.insert(one);
    }
    if (hops == kAcesoHops) continue;
    for (int i = 0; i < std::min(kAcesoCandidates, static_cast<int>(found.size())); ++i) {
      const std::vector<double> load_of = loads(found[at(i)]);
      const auto longest = std::max_element(load_of.begin(), load_of.end());
      std::optional<Configuration> next =
          hop(found[at(i)], static_cast<int>(std::distance(load_of.begin(), longest)), hops + 1);
      if (next) return next;
    }
  }
  return std::nullopt;
}

std::optional<Configuration> AcesoSearch::run(const Shape& start) {
  trial_ = kAcesoTrial;
  std::optional<Configuration> from = propose(start);
  if (!from) return std::nullopt;
  best_ = *from;
  while (effort_ > 0) {
    const std::vector<double> load_of = loads(*from);
    std::vector<int> targets(load_of.size());
    std::iota(targets.begin(), targets.end(), 0);
    std::stable_sort(targets.begin(), targets.end(), [&](int a, int b) { return load_of[at(a)] > load_of[at(b)]; });
    std::optional<Configuration> better;
    for (std::size_t i = 0; i < targets.size() && !better; ++i) {
      trial_ = kAcesoTrial;
      better = hop(*from, targets[i], 1);
    }
    if (better) {
      best_ = *better;
      from = std::move(better);
      continue;
    }
    if (unexplored_.empty()) break;
    from = *unexplored_.begin();
    unexplored_.erase(unexplored_.begin());
  }
  return best_;
}

// Equal compute in every stage, as far as those that need a variable have one.
Shape balanced(const Problem& problem, const std::vector<int>& ends, const std::vector<int>& groups) {
  const int stages = static_cast<int>(groups.size());
  const int units = static_cast<int>(ends.size()), n = problem.num_instructions();
  Shape shape;
  shape.devices = ends_of(groups);
  const double all = problem.work_ms(0, n);
  const auto end = [&](int unit) { return unit == 0 ? 0 : ends[at(unit - 1)]; };
  for (int s = 0, before = 0; s < stages; ++s) {
    const int behind = stages - 1 - s;  // stages, with a unit each
    int variables_behind = 0;           // that they need
    while (variables_behind < behind && problem.stages_need_variables(variables_behind + 1)) ++variables_behind;
    int unit = s == stages - 1 ? units : before + 1;
    while (unit < units - behind && problem.work_ms(0, end(unit)) < all * (s + 1) / stages) ++unit;
    while (unit > before + 1 && problem.variables(end(unit), n) < variables_behind) --unit;
    if (problem.stages_need_variables(stages - s)) {
      while (unit < units - behind && problem.variables(end(before), end(unit)) == 0) ++unit;
    }
    shape.operators.push_back(end(unit));
    before = unit;
  }
  return shape;
}

}  // namespace

std::optional<ChainPlan> aceso_chain(const Problem& problem, const std::vector<int>& ends, int max_stages, int effort) {
  const int most_stages = std::min({max_stages, problem.num_instructions(), problem.num_devices()});
  const std::vector<std::vector<int>> groups = even_groups(problem, most_stages);
  const std::vector<int> operators = ends_of(std::vector<int>(at(problem.num_instructions()), 1));
  std::optional<Configuration> best;
  for (int stages = 1; stages <= most_stages; ++stages) {
    if (groups[at(stages)].empty()) continue;
    for (const std::vector<int>* units : {&ends, &operators}) {
      if (units->size() < at(stages)) continue;
      std::optional<Configuration> found =
          AcesoSearch(problem, ends, effort).run(balanced(problem, *units, groups[at(stages)]));
      if (found && found->fits() && (!best || *found < *best)) best = std::move(found);
      if (ends.size() == operators.size()) break;  // the same start
    }
  }
  if (!best) return std::nullopt;
  ChainPlan made;
  made.objective_ms = best->objective_ms;
  made.plan = plan_of(*best);
  return made;
}

Planner aceso(const pipeline::Profile& profile, int max_stages) {
  return [ends = unit_ends(profile, static_cast<int>(profile.size())), max_stages](
             const pipeline::Problem& problem, double) { return aceso_chain(problem, ends, max_stages, kAcesoEffort); };
}

}  // namespace automap::rivals
