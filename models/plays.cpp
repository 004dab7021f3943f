#include "models/plays.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/suffix_values.h"
#include "models/child_scores.h"
#include "models/features.h"
#include "models/policy_search.h"

namespace automap::models {
namespace {

using pipeline::Objective;
using pipeline::Plan;

constexpr std::uint32_t kPlayStream = 0x706c6179, kLabelStream = 0x6c61626c, kExpertStream = 0x65787065;
// The largest error of labels, where stages have variants: far below what the network tells apart.
constexpr double kLabelSlack = 1e-3;
// Plans of the last boundary that the simulation compares.
constexpr int kSimulatedFinishes = 8;

// A prefix and its children.
struct Node {
  std::vector<Prefix> children;
  ChildScores scores;
  std::vector<float> best;  // the best return met below each child; infinity: none
  std::vector<int> next;    // node of each child, -1: not expanded
  std::vector<std::uint8_t> visited;
  double known_ms = 0;  // V of the best rollout met on the way here and among the children
};

class Tree {
 public:
  Tree(const PlanSpace& space, const Policy& policy, const PlayOptions& options, Played& played)
      : space_(space), policy_(policy), options_(options), played_(played), root_(space.root()) {}

  double root_bound_ms() const { return root_.bound_ms; }
  float y_of(double length_ms) const {
    return std::isfinite(length_ms) ? static_cast<float>(std::log(length_ms / root_.bound_ms)) : kUnknown;
  }

  int root_node() {
    if (nodes_.empty()) add_node(root_, known_at_root());
    return 0;
  }
  Node& node(int i) { return nodes_[at(i)]; }
  const std::vector<Node>& nodes() const { return nodes_; }

  // The node below a child; a child with S-2 stages is the last that is decided and has none.
  int descend(int from, int child) {
    if (node(from).next[at(child)] < 0) {
      const Prefix prefix = node(from).children[at(child)];
      const int added = add_node(prefix, node(from).known_ms);
      node(from).next[at(child)] = added;
    }
    return node(from).next[at(child)];
  }

  // The child of `from` with this boundary, added when it was not promising; -1: infeasible.
  int child_at(int from, int point, int device_cut) {
    Node& n = node(from);
    for (std::size_t c = 0; c < n.children.size(); ++c) {
      if (n.children[c].point == point && n.children[c].d1 == device_cut) return static_cast<int>(c);
    }
    Prefix child;
    const Prefix parent = from == 0 ? root_ : parents_[at(from)];
    if (!space_.append(parent, point, device_cut, child)) return -1;
    n.children.push_back(child);
    n.scores.features.resize(n.children.size() * kFeatures);
    n.scores.log_bound.resize(n.children.size());
    n.scores.y.resize(n.children.size());
    n.best.resize(n.children.size());
    n.next.push_back(-1);
    n.visited.push_back(0);
    fill(n, n.children.size() - 1);
    return static_cast<int>(n.children.size()) - 1;
  }

  int greedy(int from) const {
    const std::vector<float>& y = nodes_[at(from)].scores.y;
    return static_cast<int>(std::min_element(y.begin(), y.end()) - y.begin());
  }

  // The return of the best plan below a prefix whose last boundary is left.
  float finish(const Prefix& prefix) {
    if (options_.objective == Objective::kValue) {
      Plan plan;
      const double value_ms = space_.finish(prefix, kInfinity, options_.keep_best ? &plan : nullptr);
      note(value_ms, [&] { return plan; });
      return y_of(value_ms);
    }
    double best = kInfinity;
    for (const auto& [value, plan] : space_.finish_best(prefix, kSimulatedFinishes)) {
      // V is at most a few percent above the simulation: what is far behind cannot win.
      const double ms = simulated_ms(plan);
      note(ms, [&, &shorter = plan] { return shorter; });
      best = std::min(best, ms);
    }
    return y_of(best);
  }
  double simulated_ms(const Plan& plan) const { return pipeline::simulate_step_ms(space_.problem(), plan); }

  const PlanSpace& space() const { return space_; }

  static constexpr float kUnknown = std::numeric_limits<float>::infinity();

 private:
  double known_at_root() const {
    Rollouts rollouts = space_.rollouts(root_);
    space_.improve(root_, rollouts);
    return rollouts.best_ms;
  }
  // `known_ms`: the best rollout met on the way to the node.
  int add_node(const Prefix& prefix, double known_ms) {
    Node n;
    std::vector<int> parent_of;
    std::vector<Rollouts> rollouts;
    space_.promising({prefix}, options_.children, n.children, parent_of, rollouts);
    const std::size_t count = n.children.size();
    n.known_ms = known_ms;
    score_children(space_, policy_, options_.objective, root_.bound_ms, kSecondLooks, n.children, rollouts, n.known_ms,
                   n.scores);
    n.best.resize(count);
    n.next.assign(count, -1);
    n.visited.assign(count, 0);
    for (std::size_t c = 0; c < count; ++c) n.best[c] = return_of(rollouts[c]);
    played_.after_states += count;
    if (options_.keep_best) note_rollouts(rollouts);
    nodes_.push_back(std::move(n));
    parents_.push_back(prefix);
    return static_cast<int>(nodes_.size()) - 1;
  }
  // Rollouts are judged by V; under the simulation they say nothing certain.
  float return_of(const Rollouts& rollouts) const {
    return options_.objective == Objective::kValue && rollouts.best_ms < kInfinity ? y_of(rollouts.best_ms) : kUnknown;
  }
  // One more child, as if it had been looked at a second time.
  void fill(Node& n, std::size_t c) {
    Rollouts rollouts = space_.rollouts(n.children[c]);
    space_.improve(n.children[c], rollouts);
    child_inputs(space_, root_.bound_ms, n.children[c], rollouts, n.known_ms, c, n.scores);
    policy_.predict(n.scores.features.data() + c * kFeatures, n.scores.log_bound.data() + c, 1, n.scores.y.data() + c);
    n.best[c] = return_of(rollouts);
    ++played_.after_states;
  }

  // Notes the shortest rollout of the children by V, which is a plan, too.
  void note_rollouts(const std::vector<Rollouts>& rollouts) {
    const auto shortest = std::min_element(rollouts.begin(), rollouts.end(),
                                           [](const Rollouts& a, const Rollouts& b) { return a.best_ms < b.best_ms; });
    if (shortest == rollouts.end() || !(shortest->best_ms < kInfinity)) return;
    const bool simulated = options_.objective == Objective::kSimulated;
    const double ms = simulated ? simulated_ms(space_.plan_of(*shortest)) : shortest->best_ms;
    note(ms, [&] { return space_.plan_of(*shortest); });
  }
  template <typename PlanOf>
  void note(double ms, const PlanOf& plan_of) {
    if (!options_.keep_best || !(ms < played_.best_ms)) return;
    played_.best_ms = ms;
    played_.best = plan_of();
  }

  const PlanSpace& space_;
  const Policy& policy_;
  const PlayOptions& options_;
  Played& played_;
  Prefix root_;
  std::vector<Node> nodes_;
  std::vector<Prefix> parents_;
};

using Path = std::vector<std::pair<int, int>>;  // (node, child)

float clipped(float y) {
  return std::isfinite(y) ? std::min(y, kInfeasibleY) : kInfeasibleY;
}

Decision whole_decision(const Node& node, int chosen) {
  Decision d;
  d.inputs = node.scores.features;
  d.actions = static_cast<int>(node.children.size());
  d.log_bound = node.scores.log_bound;
  d.chosen = chosen;
  return d;
}

Episode single_decision(const Node& node, int chosen, float y) {
  Episode episode;
  Decision d;
  const auto begin = node.scores.features.begin() + static_cast<std::ptrdiff_t>(at(chosen) * kFeatures);
  d.inputs.assign(begin, begin + kFeatures);
  d.actions = 1;
  d.log_bound = {node.scores.log_bound[at(chosen)]};
  episode.decisions.push_back(std::move(d));
  episode.y = clipped(y);
  episode.feasible = std::isfinite(y);
  return episode;
}

// Takes a return up a path: each decision keeps the best that was met below it.
void back_up(Tree& tree, const Path& path, float y) {
  float below = y;
  for (std::size_t i = path.size(); i-- > 0;) {
    Node& node = tree.node(path[i].first);
    float& best = node.best[at(path[i].second)];
    best = std::min(best, below);
    below = *std::min_element(node.best.begin(), node.best.end());
  }
}

void emit_path(Tree& tree, const Path& path, float y, const PlayOptions& options, Played& played) {
  if (options.whole_episodes) {
    Episode episode;
    for (const auto& [node, child] : path) episode.decisions.push_back(whole_decision(tree.node(node), child));
    episode.y = clipped(y);
    episode.feasible = std::isfinite(y);
    if (episode.decisions.empty()) return;
    played.decisions += episode.decisions.size();
    played.episodes.push_back(std::move(episode));
    return;
  }
  if (options.best_return) return;  // emit_visited() at the end
  for (const auto& [node, child] : path) {
    played.episodes.push_back(single_decision(tree.node(node), child, y));
    ++played.decisions;
  }
}

void emit_visited(const Tree& tree, Played& played) {
  for (const Node& node : tree.nodes()) {
    for (std::size_t c = 0; c < node.children.size(); ++c) {
      if (!node.visited[c]) continue;
      played.episodes.push_back(single_decision(node, static_cast<int>(c), node.best[c]));
      ++played.decisions;
    }
  }
}

// One play with exploration `epsilon`. Returns its y.
float play(Tree& tree, double epsilon, double near_bound, Rng& rng, Path& path) {
  path.clear();
  const int stages = tree.space().stages();
  if (stages == 2) return tree.finish(tree.space().root());
  int here = tree.root_node();
  for (int s = 0;; ++s) {
    const int count = static_cast<int>(tree.node(here).children.size());
    if (count == 0) return Tree::kUnknown;
    int child = 0;
    if (rng.uniform() < epsilon) {
      const int among = rng.uniform() < near_bound ? (count + 1) / 2 : count;
      child = static_cast<int>(rng.below(static_cast<std::uint64_t>(among)));
    } else {
      child = tree.greedy(here);
    }
    tree.node(here).visited[at(child)] = 1;
    path.emplace_back(here, child);
    if (s == stages - 3) return tree.finish(tree.node(here).children[at(child)]);
    here = tree.descend(here, child);
  }
}

// The path of a plan through the tree; shorter than S-2 where the plan space does not have it.
Path path_of_plan(Tree& tree, const Plan& plan) {
  Path path;
  const PlanSpace& space = tree.space();
  int here = tree.root_node();
  for (int s = 0; s + 2 < space.stages(); ++s) {
    int point = -1;
    for (int p = 1; p + 1 < space.num_points(); ++p) {
      if (space.cut_of_point(p) == plan.cuts[at(s)]) point = p;
    }
    if (point < 0) break;
    const int child = tree.child_at(here, point, plan.device_cuts[at(s)]);
    if (child < 0) break;
    path.emplace_back(here, child);
    if (s + 3 < space.stages()) here = tree.descend(here, child);
  }
  return path;
}

// Plays a plan of this length, if the plan space has it.
void follow(Tree& tree, const Plan& plan, double ms, const PlayOptions& options, Played& played) {
  const Path path = path_of_plan(tree, plan);
  if (static_cast<int>(path.size()) + 2 != tree.space().stages()) return;
  for (const auto& [node, child] : path) tree.node(node).visited[at(child)] = 1;
  back_up(tree, path, tree.y_of(ms));
  emit_path(tree, path, tree.y_of(ms), options, played);
}

// Stops the exact program after a fixed amount of work: the same on every machine.
std::function<bool()> after_polls(long long polls) {
  auto left = std::make_shared<long long>(polls);
  return [left] { return --*left < 0; };
}

// The optimum over the pivots; nullopt when it is not proven within the work allowed.
std::optional<Plan> exact_plan(const PlanSpace& space, const PlayOptions& options, double incumbent_ms, double* ms) {
  pipeline::ExactOptions exact;
  exact.min_stages = exact.max_stages = space.stages();
  exact.schedule = space.schedule();
  exact.upper_bound_ms = incumbent_ms;
  Work work(WorkLimits::until(after_polls(options.label_work / 5)));
  exact.work = &work;
  const pipeline::ExactResult result = pipeline::solve_exact(space.problem(), exact);
  if (result.by_stages.empty() || !result.by_stages.front().proven || result.by_stages.front().plans.empty()) {
    return std::nullopt;
  }
  *ms = result.by_stages.front().value_ms.front();
  return result.by_stages.front().plans.front();
}

void label_node(const Tree& tree, const Node& node, const pipeline::SuffixValues& values, double limit_ms,
                Played& played) {
  Decision d = whole_decision(node, 0);
  d.label_limit_y = tree.y_of(limit_ms);
  const PlanSpace& space = tree.space();
  d.exact_y.resize(node.children.size());
  float best = Tree::kUnknown;
  // All children share everything but their last boundary.
  std::vector<int> cuts, device_cuts;
  std::vector<std::pair<int, int>> boundaries;
  for (const Prefix& child : node.children) {
    const int s = child.stages - 1;
    if (boundaries.empty()) {
      for (int i = 0; i < s; ++i) {
        cuts.push_back(space.cut_of_point(child.points[at(i)]));
        device_cuts.push_back(child.device_cuts[at(i)]);
      }
    }
    boundaries.emplace_back(space.cut_of_point(child.point), child.d1);
  }
  std::vector<double> completions;
  values.completions_ms(cuts, device_cuts, boundaries, completions);
  for (std::size_t c = 0; c < node.children.size(); ++c) {
    d.exact_y[c] = tree.y_of(completions[c]);
    if (d.exact_y[c] < best) {
      best = d.exact_y[c];
      d.chosen = static_cast<int>(c);
    }
  }
  if (!std::isfinite(best)) return;
  Episode episode;
  episode.y = clipped(best);
  episode.decisions.push_back(std::move(d));
  played.episodes.push_back(std::move(episode));
  ++played.decisions;
  ++played.labelled;
}

// Exact values of all children along the optimal path, the policy's own path and one exploring path, so that the policy
// learns what to do where it really comes to (DAgger, arXiv 1011.0686).
void label_problem(Tree& tree, const KnownOptimum* known, const PlayOptions& options, double incumbent_ms,
                   const Path& exploring, Played& played) {
  const PlanSpace& space = tree.space();
  double optimum_ms = known ? known->ms : 0;
  std::optional<Plan> optimum;
  if (known) optimum = known->plan;
  if (!optimum) optimum = exact_plan(space, options, incumbent_ms, &optimum_ms);
  if (!optimum || !(optimum_ms > 0)) return;
  pipeline::SuffixValuesOptions suffix;
  suffix.stages = space.stages();
  suffix.schedule = space.schedule();
  suffix.limit_ms = options.label_limit * optimum_ms;
  suffix.most_labels = options.label_work;
  suffix.optimum_ms = optimum_ms;  // too many labels lower the limit
  suffix.slack = kLabelSlack;
  const pipeline::SuffixValues values(space.problem(), suffix);
  if (!values.valid()) return;

  std::vector<int> nodes;
  const auto take = [&](const Path& path) {
    for (const auto& [node, child] : path) {
      if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
    }
  };
  take(path_of_plan(tree, *optimum));
  Path greedy;
  for (int here = tree.root_node(), s = 0; s + 2 < space.stages() && !tree.node(here).children.empty(); ++s) {
    greedy.emplace_back(here, tree.greedy(here));
    if (s + 3 < space.stages()) here = tree.descend(here, greedy.back().second);
  }
  take(greedy);
  take(exploring);
  for (const int node : nodes) label_node(tree, tree.node(node), values, values.limit_ms(), played);
}

// Under the simulation nothing is exact: the best of the exact program's plans and their neighbours, by simulation,
// played as a demonstration.
void demonstrate(Tree& tree, const PlayOptions& options, Played& played) {
  const PlanSpace& space = tree.space();
  pipeline::ExactOptions exact;
  exact.min_stages = exact.max_stages = space.stages();
  exact.schedule = space.schedule();
  exact.k_best = 16;
  Work work(WorkLimits::until(after_polls(options.label_work / 5)));
  exact.work = &work;
  const pipeline::ExactResult result = pipeline::solve_exact(space.problem(), exact);
  if (result.by_stages.empty() || result.by_stages.front().plans.empty()) return;
  const std::vector<Plan>& plans = result.by_stages.front().plans;
  const Plan* best = nullptr;
  double best_ms = kInfinity;
  for (const Plan& plan : plans) {
    const double ms = tree.simulated_ms(plan);
    if (ms < best_ms) {
      best_ms = ms;
      best = &plan;
    }
  }
  if (!best) return;
  Work without_end;
  const Plan polished = pipeline::polish(space.problem(), *best, Objective::kSimulated, without_end, 1000);
  follow(tree, polished, std::min(best_ms, tree.simulated_ms(polished)), options, played);
}

// Follows the plan of a beam with this policy, moved in its corridor: what is met on its way learns from a better end
// than the plays came to.
void follow_expert(Tree& tree, const Policy& policy, const PlayOptions& options, Played& played) {
  const PlanSpace& space = tree.space();
  Work work(WorkLimits::of_units(options.expert_work));
  PolicySearchOptions search;
  search.beam = options.expert_beam;
  search.objective = options.objective;
  search.work = &work;
  const std::optional<FoundPlan> found = search_plan(space, &policy, search);
  if (!found) return;
  const Plan refined = pipeline::refine_in_corridor(space.problem(), found->plan, 8, 2, &work);
  const Plan* best = nullptr;
  double best_ms = kInfinity;
  for (const Plan* plan : {&refined, &found->plan}) {
    const double ms = pipeline::length_ms(space.problem(), *plan, options.objective);
    if (ms < best_ms && static_cast<int>(path_of_plan(tree, *plan).size()) + 2 == space.stages()) {
      best = plan;
      best_ms = ms;
    }
  }
  if (!best) return;
  follow(tree, *best, best_ms, options, played);
}

void play_after_state(const PlanSpace& space, const KnownOptimum* known, std::uint64_t number, const Policy& policy,
                      const PlayOptions& options, std::uint64_t seed, Played& played) {
  Tree tree(space, policy, options, played);
  Path path, exploring;
  float best = Tree::kUnknown;
  for (int i = 0; i < options.plays; ++i) {
    const std::uint64_t play_number =
        number * static_cast<std::uint64_t>(options.plays) + static_cast<std::uint64_t>(i);
    Rng rng(seed, kPlayStream, play_number);
    const float y = play(tree, epsilon_of_play(options, play_number), options.near_bound, rng, path);
    ++played.plays;
    played.steps += static_cast<std::uint64_t>(space.stages() - 1);
    if (std::isfinite(y)) {
      played.y += static_cast<double>(y);
    } else {
      ++played.infeasible;
    }
    best = std::min(best, y);
    back_up(tree, path, y);
    emit_path(tree, path, y, options, played);
    if (i == 0) exploring = path;
  }
  const bool small = space.problem().num_devices() <= options.label_devices && space.stages() <= options.label_stages;
  const bool chosen = Rng(seed, kLabelStream, number).uniform() < options.label_fraction;
  const bool labelled = options.label_fraction > 0 && (known || (small && chosen));
  if (space.stages() > 2 && labelled) {
    if (options.objective == Objective::kSimulated) {
      demonstrate(tree, options, played);
    } else {
      // A little above the best plan met, which is often the optimum itself.
      const double incumbent_ms =
          std::isfinite(best) ? tree.root_bound_ms() * std::exp(static_cast<double>(best)) * 1.001 : kInfinity;
      label_problem(tree, known, options, incumbent_ms, exploring, played);
    }
  }
  if (space.stages() > 2 && !labelled && Rng(seed, kExpertStream, number).uniform() < options.expert_fraction) {
    follow_expert(tree, policy, options, played);
  }
  if (options.best_return && !options.whole_episodes) emit_visited(tree, played);
}

void play_flat(const PlanSpace& space, std::uint64_t number, const Policy& policy, const PlayOptions& options,
               std::uint64_t seed, Played& played) {
  const double root_ms = space.root().bound_ms;
  FlatEnv env(space, options.flat_input);
  const int size = FlatEnv::state_size(options.flat_input);
  constexpr int kActions = FlatEnv::kActions;
  std::array<float, kActions> q{};
  std::vector<int> legal_actions;
  for (int i = 0; i < options.plays; ++i) {
    const std::uint64_t play_number =
        number * static_cast<std::uint64_t>(options.plays) + static_cast<std::uint64_t>(i);
    Rng rng(seed, kPlayStream, play_number);
    const double epsilon = epsilon_of_play(options, play_number);
    Episode episode;
    env.reset();
    while (!env.done()) {
      Decision d;
      d.inputs.resize(at(size));
      d.legal.resize(kActions);
      d.actions = kActions;
      env.state(d.inputs.data());
      env.legal(d.legal.data());
      legal_actions.clear();
      for (int a = 0; a < kActions; ++a) {
        if (d.legal[at(a)]) legal_actions.push_back(a);
      }
      if (legal_actions.empty()) break;
      if (rng.uniform() < epsilon) {
        d.chosen = legal_actions[rng.below(legal_actions.size())];
      } else {
        flat_q(policy, d.inputs.data(), q.data());
        d.chosen = *std::max_element(legal_actions.begin(), legal_actions.end(),
                                     [&](int a, int b) { return q[at(a)] < q[at(b)]; });
      }
      env.step(d.chosen);
      ++played.steps;
      ++played.after_states;
      episode.decisions.push_back(std::move(d));
    }
    ++played.plays;
    double length_ms = env.value_ms();
    if (std::isfinite(length_ms) && options.objective == Objective::kSimulated) {
      length_ms = pipeline::simulate_step_ms(space.problem(), env.plan());
    }
    episode.feasible = std::isfinite(length_ms);
    const float y = episode.feasible ? static_cast<float>(std::log(length_ms / root_ms)) : kInfeasibleY;
    episode.y = std::min(y, kInfeasibleY);
    if (episode.feasible) {
      played.y += static_cast<double>(y);
    } else {
      ++played.infeasible;
    }
    if (episode.decisions.empty()) continue;
    played.decisions += episode.decisions.size();
    played.episodes.push_back(std::move(episode));
  }
}

}  // namespace

double epsilon_of_play(const PlayOptions& options, std::uint64_t play) {
  const double done = options.epsilon_episodes == 0
                          ? std::clamp(options.progress, 0.0, 1.0)
                          : std::min(1.0, static_cast<double>(play) / static_cast<double>(options.epsilon_episodes));
  const double epsilon = options.exponential && options.epsilon_start > 0 && options.epsilon_end > 0
                             ? options.epsilon_start * std::pow(options.epsilon_end / options.epsilon_start, done)
                             : options.epsilon_start + (options.epsilon_end - options.epsilon_start) * done;
  if (options.flat || epsilon <= 0) return epsilon;
  const double rung = static_cast<double>(play % 8) / 7;
  return std::pow(epsilon, 0.5 + 1.5 * rung);
}

Played play_space(const PlanSpace& space, std::uint64_t number, const Policy& policy, const PlayOptions& options,
                  std::uint64_t seed, const KnownOptimum* known) {
  Played played;
  const double root_ms = space.root().bound_ms;
  if (!space.possible() || !(root_ms > 0) || !std::isfinite(root_ms)) {
    played.plays = played.infeasible = static_cast<std::uint64_t>(options.plays);
  } else if (options.flat) {
    play_flat(space, number, policy, options, seed, played);
  } else {
    play_after_state(space, known, number, policy, options, seed, played);
  }
  return played;
}

}  // namespace automap::models
