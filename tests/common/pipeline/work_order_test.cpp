#include "common/pipeline/work_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/numbers.h"
#include "common/pipeline/list_scheduler.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/timeline.h"
#include "common/pipeline/warmup.h"
#include "common/pipeline/work_simulation.h"
#include "tests/sanitized.h"

namespace automap::pipeline {
namespace {

// Parts of random length.
WorkTimes random_times(Placement placement, int groups, int chunks, bool split, CounterRandom& random) {
  WorkTimes times;
  times.group_of_part = group_of_parts(placement, groups, chunks);
  for (int p = 0; p < groups * chunks; ++p) {
    times.forward_ms.push_back(random.uniform(0.2, 2));
    times.backward_ms.push_back(random.uniform(0.4, 4));
    if (split) times.weights_ms.push_back(random.uniform(0, 3));
    times.stash_bytes.push_back(random.uniform(0.5, 2));
    times.sync.emplace_back();
    if (random.integer(0, 1) == 0) times.sync.back() = {{0.4, random.uniform(0, 2)}, {1, random.uniform(0, 2)}};
    if (p == 0) continue;
    const bool same = times.group_of_part[at(p - 1)] == times.group_of_part[at(p)];
    times.transfer_ms.push_back(same || random.integer(0, 2) == 0 ? 0 : random.uniform(0, 3));
  }
  for (int g = 0; g < groups; ++g) {
    times.exchange_ms.push_back(random.integer(0, 1) == 0 ? 0 : random.uniform(0, 0.5));
    times.optimizer_ms.push_back(random.uniform(0, 1));
    times.room_bytes.push_back(kInfinity);
  }
  return times;
}

// Equal parts without messages, of which a whole group's forward takes `forward`.
WorkTimes even_times(Placement placement, int groups, int chunks, double forward, double backward, double weights,
                     double transfer = 0) {
  WorkTimes times;
  times.group_of_part = group_of_parts(placement, groups, chunks);
  const std::size_t parts = at(groups * chunks);
  times.forward_ms.assign(parts, forward / chunks);
  times.backward_ms.assign(parts, backward / chunks);
  if (weights > 0) times.weights_ms.assign(parts, weights / chunks);
  for (std::size_t p = 0; p + 1 < parts; ++p) {
    times.transfer_ms.push_back(times.group_of_part[p] == times.group_of_part[p + 1] ? 0 : transfer);
  }
  times.sync.resize(parts);
  times.exchange_ms.assign(at(groups), 0);
  times.optimizer_ms.assign(at(groups), 0);
  times.stash_bytes.assign(parts, 1.0 / chunks);
  times.room_bytes.assign(at(groups), groups);  // that of 1F1B's first stage
  return times;
}

// The same step told by events: a group starts its next work when it is free and has what that needs, a link sends its
// messages one after the other, in the order in which they were ready.
double by_events(const WorkTimes& times, int micro_batches, const WorkOrder& order) {
  const int groups = times.num_groups(), parts = times.num_parts();
  std::vector<std::deque<WorkItem>> waiting;
  for (const GroupOrder& own : order) waiting.emplace_back(own.begin(), own.end());
  std::set<std::tuple<WorkKind, int, int>> here;  // has come
  for (int m = 0; m < micro_batches; ++m) {
    here.insert({WorkKind::kForward, 0, m});
    here.insert({WorkKind::kBackward, parts - 1, m});
  }
  std::vector<bool> busy(at(groups), false);
  struct Message {
    double ms;
    std::tuple<WorkKind, int, int> what;
  };
  std::map<std::pair<int, int>, std::deque<Message>> link;  // from a group to another
  std::map<std::pair<int, int>, bool> sending;
  using Event = std::tuple<double, int, std::function<void(double)>>;
  const auto later = [](const Event& a, const Event& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
  };
  std::priority_queue<Event, std::vector<Event>, decltype(later)> events(later);
  int sequence = 0;
  const auto plan = [&](double when, std::function<void(double)> what) {
    events.push({when, sequence++, std::move(what)});
  };
  std::vector<double> free(at(groups), 0);
  std::map<int, double> last_start;
  std::function<void(int, double)> start;
  std::function<void(std::pair<int, int>, double)> send = [&](std::pair<int, int> on, double now) {
    auto& queue = link[on];
    if (sending[on] || queue.empty()) return;
    sending[on] = true;
    const Message message = queue.front();
    queue.pop_front();
    plan(now + message.ms, [&, on, message](double then) {
      sending[on] = false;
      here.insert(message.what);
      start(on.second, then);
      send(on, then);
    });
  };
  start = [&](int g, double now) {
    auto& own = waiting[at(g)];
    if (busy[at(g)] || own.empty()) return;
    const WorkItem item = own.front();
    if (item.kind != WorkKind::kWeights && here.count({item.kind, item.part, item.micro_batch}) == 0) return;
    own.pop_front();
    busy[at(g)] = true;
    if (item.kind == (times.split_backward() ? WorkKind::kWeights : WorkKind::kBackward)) last_start[item.part] = now;
    plan(now + times.item_ms(item), [&, g, item](double then) {
      busy[at(g)] = false;
      free[at(g)] = then;
      const int to = item.kind == WorkKind::kBackward ? item.part - 1 : item.part + 1;
      if (item.kind != WorkKind::kWeights && to >= 0 && to < parts) {
        const int on = times.group_of_part[at(to)];
        if (on == g) {
          here.insert({item.kind, to, item.micro_batch});
        } else {
          link[{g, on}].push_back({times.transfer_ms[at(std::min(item.part, to))], {item.kind, to, item.micro_batch}});
          send({g, on}, then);
        }
      }
      start(g, then);
    });
  };
  for (int g = 0; g < groups; ++g) start(g, 0);
  while (!events.empty()) {
    const Event event = events.top();
    events.pop();
    std::get<2>(event)(std::get<0>(event));
  }
  double length = 0;
  const std::vector<double>& ready_in = times.split_backward() ? times.weights_ms : times.backward_ms;
  for (int g = 0; g < groups; ++g) {
    EXPECT_TRUE(waiting[at(g)].empty());
    double synced = 0;
    for (int part = parts - 1; part >= 0; --part) {
      if (times.group_of_part[at(part)] != g) continue;
      for (const SyncBucket& bucket : times.sync[at(part)]) {
        synced = std::max(synced, last_start[part] + bucket.ready_share * ready_in[at(part)]) + bucket.ms;
      }
    }
    length = std::max(length, std::max(free[at(g)], synced) + times.exchange_ms[at(g)] + times.optimizer_ms[at(g)]);
  }
  return length;
}

// An order of the list scheduler with a random rule, or of a row.
WorkOrder random_order(const WorkTimes& times, Placement placement, int chunks, int micro_batches,
                       CounterRandom& random) {
  const int groups = times.num_groups();
  if (random.integer(0, 1) == 0 && placement == Placement::kRoundRobin) {
    if (chunks == 1 && times.split_backward()) return zero_bubble_order(groups, micro_batches);
    if (!times.split_backward() && micro_batches % groups == 0) return interleaved_order(groups, chunks, micro_batches);
  }
  ListRule rule = backward_first();
  for (ListRule::Worth& worth : rule.worth) {
    worth = {random.uniform(-2, 2), random.uniform(-2, 2), random.uniform(-2, 2), random.uniform(-2, 2)};
  }
  rule.patience = random.uniform(0, 1);
  return list_order(times, micro_batches, rule);
}

TEST(WorkSimulation, EqualsTheEventsOfTheSameOrder) {
  for (std::uint64_t seed = 0; seed < 3000 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 91);
    const Placement placement = random.integer(0, 2) == 0 ? Placement::kV : Placement::kRoundRobin;
    const int chunks = placement == Placement::kV ? 2 : random.integer(1, 3), groups = random.integer(2, 5);
    const bool split = random.integer(0, 1) == 0;
    const int micro_batches = random.integer(0, 1) == 0 ? groups * random.integer(1, 3) : random.integer(1, 9);
    const WorkTimes times = random_times(placement, groups, chunks, split, random);
    const WorkOrder order = random_order(times, placement, chunks, micro_batches, random);
    ASSERT_EQ(order_fault(order, times.group_of_part, micro_batches, split), "");
    WorkRecord record;
    const double ms = simulate_order_ms(times, micro_batches, order, &record);
    ASSERT_NEAR(ms, by_events(times, micro_batches, order), 1e-9 * ms);
    // No order is below the bound, and a record is the step that it is of.
    ASSERT_LE(any_order_bound_ms(times, micro_batches), ms * (1 + 1e-9));
    ASSERT_EQ(*std::max_element(record.end_ms.begin(), record.end_ms.end()), ms);
    for (int g = 0; g < groups; ++g) ASSERT_EQ(record.work[at(g)].size(), order[at(g)].size());
  }
}

// All orders of a tiny step: groups take turns in every possible way.
double shortest_of_all(const WorkTimes& times, int micro_batches) {
  const int kinds = times.split_backward() ? 3 : 2;
  double best = kInfinity;
  WorkOrder order(times.exchange_ms.size());
  std::set<std::tuple<int, int, int>> done;
  std::vector<double> kept(order.size(), 0);
  const auto all = at(times.num_parts() * micro_batches * kinds);
  std::function<void()> next = [&] {
    if (done.size() == all) {
      best = std::min(best, simulate_order_ms(times, micro_batches, order));
      return;
    }
    for (int part = 0; part < times.num_parts(); ++part) {
      const auto g = at(times.group_of_part[at(part)]);
      for (int kind = 0; kind < kinds; ++kind) {
        int m = 0;  // micro-batches are alike: in their order
        while (m < micro_batches && done.count({kind, part, m}) > 0) ++m;
        if (m == micro_batches) continue;
        const bool from_front = kind != 0 || part == 0 || done.count({0, part - 1, m}) > 0;
        const bool from_behind = kind != 1 || part + 1 == times.num_parts() || done.count({1, part + 1, m}) > 0;
        const bool own = kind == 0 || done.count({kind - 1, part, m}) > 0;
        if (!from_front || !from_behind || !own) continue;
        const double by = kind == 0           ? times.stash_bytes[at(part)]
                          : kind + 1 == kinds ? -times.stash_bytes[at(part)]
                                              : 0;
        if (kept[g] + by > times.room_bytes[g] * (1 + 1e-9)) continue;
        kept[g] += by;
        done.insert({kind, part, m});
        order[g].push_back({static_cast<WorkKind>(kind), part, m});
        next();
        order[g].pop_back();
        done.erase({kind, part, m});
        kept[g] -= by;
      }
    }
  };
  next();
  return best;
}

TEST(AnyOrder, NoOrderOfATinyStepIsBelowTheBoundAndTheSearchComesNear) {
  int found = 0;
  double worst = 0, sum = 0;
  for (std::uint64_t seed = 0; seed < 60 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 95);
    const bool split = random.integer(0, 2) == 0;
    const Placement placement = Placement::kRoundRobin;
    WorkTimes times = random_times(placement, 2, 1, split, random);
    const int micro_batches = split ? 2 : 3;
    for (int g = 0; g < 2; ++g) times.room_bytes[at(g)] = times.stash_bytes[at(g)] * random.integer(1, 3);
    const double least = shortest_of_all(times, micro_batches);
    ASSERT_LE(any_order_bound_ms(times, micro_batches), least * (1 + 1e-9));
    const SearchedOrder searched = search_order(times, micro_batches, {}, 40);
    ASSERT_FALSE(searched.order.empty());
    ASSERT_GE(searched.step_ms, least * (1 - 1e-9));
    worst = std::max(worst, searched.step_ms / least - 1);
    sum += searched.step_ms / least - 1;
    ++found;
  }
  EXPECT_LT(worst, 0.1);
  EXPECT_LT(sum / found, 0.01);
}

// The paper's bubbles: (S - 1) (F + B + W) of 1F1B become (S - 1) (F + B - W), with F = B = W a third.
TEST(ZeroBubble, TheBubbleIsThePapers) {
  for (const int groups : {2, 4, 8}) {
    for (const double weights : {0.5, 1.0}) {
      const WorkTimes times = even_times(Placement::kRoundRobin, groups, 1, 1, 1, weights);
      const int m = 3 * groups;
      EXPECT_NEAR(simulate_order_ms(times, m, zero_bubble_order(groups, m)),
                  m * (2 + weights) + (groups - 1) * (2 - weights), 1e-9)
          << groups;
    }
  }
}

TEST(ZeroBubble, AsManyInFlightAsThereAreGroups) {
  for (const int groups : {2, 3, 5}) {
    for (const int micro_batches : {1, 2, 4, 11}) {
      const WorkOrder order = zero_bubble_order(groups, micro_batches);
      EXPECT_EQ(order_fault(order, group_of_parts(Placement::kRoundRobin, groups, 1), micro_batches, true), "");
      for (const GroupOrder& own : order) {
        EXPECT_EQ(kept_at_most(own, std::vector<double>(at(groups), 1), true).micro_batches,
                  std::min(groups, micro_batches));
      }
    }
  }
}

// The paper's claim (section 6): where all passes take as long, groups wait for their first forward alone, in the
// memory of 1F1B; no order of this placement is shorter.
TEST(ZeroBubbleV, WaitsForFirstForwardsAlone) {
  for (const int groups : {1, 2, 3, 4, 6, 8, 16}) {
    for (const int micro_batches : {2 * groups, 2 * groups + 1, 5 * groups}) {
      SCOPED_TRACE(std::to_string(groups) + " groups, " + std::to_string(micro_batches));
      const WorkTimes times = even_times(Placement::kV, groups, 2, 1, 1, 1);
      const WorkOrder order = zb_v_order(groups, micro_batches);
      ASSERT_EQ(order_fault(order, times.group_of_part, micro_batches, true), "");
      const double ms = simulate_order_ms(times, micro_batches, order);
      EXPECT_NEAR(ms, 3.0 * micro_batches + 0.5 * (groups - 1), 1e-9);
      EXPECT_LE(ms, 1.02 * any_order_bound_ms(times, micro_batches));
      for (const GroupOrder& own : order) {
        EXPECT_LE(kept_at_most(own, times.stash_bytes, true).bytes, groups * (1 + 1e-9));
      }
    }
  }
}

// Alternating lists are what the recurrence of schedule.h computes, and one chunk of interleaved 1F1B is 1F1B.
TEST(WorkSimulation, OfAlternatingListsIsTheRecurrence) {
  for (std::uint64_t seed = 0; seed < 500 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 92);
    const int groups = random.integer(2, 6), micro_batches = random.integer(1, 12);
    WorkTimes times = random_times(Placement::kRoundRobin, groups, 1, false, random);
    PipelineTimes plain;
    plain.forward_ms = times.forward_ms;
    plain.backward_ms = times.backward_ms;
    plain.transfer_ms = times.transfer_ms;
    plain.allreduce_ms.assign(times.forward_ms.size(), 0);
    for (std::size_t s = 0; s < times.forward_ms.size(); ++s) {
      plain.sync_left_ms.push_back(sync_left_ms(times.sync[s], times.backward_ms[s]) + times.exchange_ms[s]);
    }
    plain.optimizer_ms = times.optimizer_ms;
    const double ms = simulate_step_ms(plain, micro_batches, Schedule::k1f1b);
    ASSERT_NEAR(simulate_order_ms(times, micro_batches, interleaved_order(groups, 1, micro_batches)), ms, 1e-9 * ms);
    int k = micro_batches;
    for (int s = 0; s < groups; ++s) plain.in_flight.push_back(k = random.integer(1, k));
    const double adaptive = simulate_step_ms(plain, micro_batches, Schedule::kAdaptive);
    ASSERT_NEAR(simulate_order_ms(times, micro_batches, alternating_order(plain.in_flight, micro_batches)), adaptive,
                1e-9 * adaptive);
  }
}

// Equal parts without messages: the bubble is (S - 1) (F + B) / v of Megatron's formula.
TEST(Interleaved, TheBubbleShrinksWithTheChunks) {
  for (const int v : {1, 2, 4}) {
    const WorkTimes times = even_times(Placement::kRoundRobin, 4, v, 1, 2, 0);
    EXPECT_NEAR(simulate_order_ms(times, 8, interleaved_order(4, v, 8)), 8 * 3 + 3 * 3.0 / v, 1e-9) << v;
  }
}

TEST(Interleaved, EveryOperationOnceAndInOrder) {
  for (const int v : {1, 2, 3}) {
    EXPECT_EQ(order_fault(interleaved_order(3, v, 6), group_of_parts(Placement::kRoundRobin, 3, v), 6, false), "");
  }
}

TEST(OrderFault, NamesTheFirstElement) {
  const std::vector<int> of = group_of_parts(Placement::kRoundRobin, 2, 1);
  const auto fault = [&](const std::string& first, const std::string& second, bool split = false) {
    WorkOrder order(2);
    std::string wrong;
    EXPECT_TRUE(parse_order(first, &order[0], &wrong) && parse_order(second, &order[1], &wrong)) << wrong;
    return order_fault(order, of, 2, split);
  };
  const std::string good = "F2.1 B2.1 F2.2 B2.2";
  EXPECT_EQ(fault("F1.1 F1.2 B1.1 B1.2", good), "");
  EXPECT_EQ(fault("F1.1 F1.2 B1.1", good), "group 1: B1.2 is missing");
  EXPECT_EQ(fault("F1.1 F1.1 B1.1 B1.2", good), "group 1: F1.1 stands twice");
  EXPECT_EQ(fault("F1.1 B1.2 F1.2 B1.1", good), "group 1: B1.2 stands in front of F1.2");
  EXPECT_EQ(fault("F1.1 F2.2 B1.1 B1.2", good), "group 1: F2.2 is work of group 2");
  EXPECT_EQ(fault("F1.1 F1.3 B1.1 B1.2", good), "group 1: F1.3 is none of 2 parts and 2 micro-batches");
  EXPECT_EQ(fault("F1.1 W1.1 B1.1 B1.2", good), "group 1: W1.1: the backward is one pass");
  EXPECT_EQ(fault("F1.1 B1.1 F1.2 B1.2", "F2.2 B2.2 F2.1 B2.1"),
            "group 1: B1.1 waits for ever: the lists wait for each other");
  GroupOrder order;
  std::string wrong;
  for (const char* text : {"F1", "G1.1", "F0.1", "F1.0", "F1.1x", "F1.1  F1.2", "F-1.1", "F1.99999999999"}) {
    EXPECT_FALSE(parse_order(text, &order, &wrong)) << text;
  }
  ASSERT_TRUE(parse_order("F1.1 B1.1 W1.1", &order, &wrong));
  EXPECT_EQ(order_text(order), "F1.1 B1.1 W1.1");
}

// `memory-limited-order`: where memory limits what is in flight, strict alternation waits; a backward that goes first
// whenever it can comes near the closed form in the same memory.
TEST(Eager, WaitsLessThanAlternationInTheSameMemory) {
  const WorkTimes times = even_times(Placement::kRoundRobin, 4, 1, 1, 2, 0, 0.01);
  const std::vector<int> k = {3, 3, 2, 1};
  const double strict = simulate_order_ms(times, 32, alternating_order(k, 32));
  const WorkOrder order = eager_order(times, k, 32);
  const double eager = simulate_order_ms(times, 32, order);
  EXPECT_LT(eager, 0.85 * strict);
  for (std::size_t s = 0; s < k.size(); ++s) {
    EXPECT_LE(kept_at_most(order[s], times.stash_bytes, false).micro_batches, k[s]);
  }
}

// F = B = W in the memory of 1F1B, transfers of so much of a forward: searched is never behind a named order at its
// memory, and its best placement is near the bound of any order.
TEST(Searched, IsNeverBehindARowAtItsMemory) {
  for (const auto& [groups, micro_batches, transfer] :
       {std::tuple(4, 16, 0.1), std::tuple(8, 16, 0.0), std::tuple(8, 16, 0.1), std::tuple(8, 32, 0.1),
        std::tuple(16, 16, 0.1), std::tuple(16, 32, 0.1)}) {
    SCOPED_TRACE(groups);
    const WorkTimes linear = even_times(Placement::kRoundRobin, groups, 1, 1, 1, 1, transfer);
    const WorkOrder h1 = zero_bubble_order(groups, micro_batches);
    EXPECT_LE(search_order(linear, micro_batches, {h1}, 20).step_ms, simulate_order_ms(linear, micro_batches, h1));
    double over_bound = kInfinity;
    for (const Placement placement : {Placement::kV, Placement::kRoundRobin}) {
      const WorkTimes times = even_times(placement, groups, 2, 1, 1, 1, transfer);
      std::vector<WorkOrder> starts;
      if (placement == Placement::kV && micro_batches >= 2 * groups) starts = {zb_v_order(groups, micro_batches)};
      const SearchedOrder best = search_order(times, micro_batches, starts, 40);
      over_bound = std::min(over_bound, best.step_ms / any_order_bound_ms(times, micro_batches));
      for (const WorkOrder& start : starts) EXPECT_LE(best.step_ms, simulate_order_ms(times, micro_batches, start));
      for (int g = 0; g < groups; ++g) {
        EXPECT_LE(kept_at_most(best.order[at(g)], times.stash_bytes, true).bytes, groups * (1 + 1e-9));
      }
    }
    EXPECT_LE(over_bound, 1.03);
  }
}

RandomProblemOptions small_problems() {
  RandomProblemOptions how;
  how.min_instructions = 12;
  how.max_instructions = 30;
  how.min_servers = how.max_servers = 2;
  how.min_devices = how.max_devices = 2;
  how.min_micro_batches = how.max_micro_batches = 8;
  how.whole = 1;
  how.with_shared = 0;
  return how;
}

Plan even_plan(const Problem& problem, int groups, int chunks, Schedule schedule) {
  Plan plan;
  plan.schedule = schedule;
  plan.chunks = chunks;
  const int n = problem.num_instructions(), parts = groups * chunks;
  for (int p = 1; p < parts; ++p) plan.cuts.push_back(n * p / parts);
  for (int s = 1; s < groups; ++s) plan.device_cuts.push_back(s * problem.num_devices() / groups);
  return plan;
}

// Memory is what a replay of the order holds, and the timeline is the simulated step.
TEST(PlacedWork, OfProblems) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 300 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, small_problems());
    made.options.micro_batch_samples = 4;
    const Problem problem = made.problem();
    for (const int groups : {2, 4}) {
      if (!problem.group(0, 4 / groups).valid) continue;
      const Plan eager = even_plan(problem, groups, 1, Schedule::kEager);
      const Plan two = even_plan(problem, groups, 2, Schedule::kInterleaved);
      ++compared;
      for (const Plan& plan : {eager, two}) {
        ASSERT_TRUE(valid_structure(problem, plan));
        const PlacedPlan placed = place(problem, plan);
        const WorkTimes times = work_times(placed);
        const WorkOrder order = order_of(placed, times);
        const Timeline timeline = record_timeline(placed);
        ASSERT_EQ(timeline.step_ms, simulate_step_ms(placed));
        const std::vector<double> memory = memory_of(placed);
        for (int g = 0; g < groups; ++g) {
          // Counts, for every part, the work that began and did not end, at every moment.
          const PlacedStage& stage = placed.stages[at(g)];
          double most = 0;
          for (std::size_t until = 0; until <= order[at(g)].size(); ++until) {
            double now = 0;
            for (std::size_t i = 0; i < until; ++i) {
              const WorkItem& item = order[at(g)][i];
              now += (item.kind == WorkKind::kForward ? 1 : -1) * times.stash_bytes[at(item.part)];
            }
            most = std::max(most, now);
          }
          double workspace = 0, buckets = 0, kept = 0;
          for (const PlacedPart& part : stage.parts) {
            const MemoryParts own = problem.memory_parts(part.p0, part.p1, stage.group(), 1, 0);
            kept += own.total() - own.stash - own.workspace - own.buckets;
            workspace = std::max(workspace, own.workspace);
            buckets = std::max(buckets, own.buckets);
          }
          const double expected = kept + most + workspace + buckets;
          ASSERT_NEAR(memory[at(g)], expected, 1e-9 * expected + 1e-6);
          ASSERT_NEAR(timeline.groups[at(g)].most_bytes(), expected, 1e-9 * expected + 1e-6);
          ASSERT_NEAR(memory_parts_of(placed)[at(g)].total(), expected, 1e-9 * expected + 1e-6);
        }
        ASSERT_LE(any_order_bound_ms(times, 8), timeline.step_ms * (1 + 1e-9));
      }
      // With as many in flight as there are micro-batches eager is what gpipe's memory allows.
      Plan gpipe = even_plan(problem, groups, 1, Schedule::kGpipe);
      Plan wide = eager;
      wide.warmup.assign(at(groups), 8);
      ASSERT_NEAR(memory_of(place(problem, gpipe)).front(),
                  problem.memory_bytes(0, gpipe.cuts[0], place(problem, gpipe).stages[0].group(), 8), 1);
      ASSERT_LE(in_flight_of(place(problem, wide)).front(), 8);
    }
  }
  EXPECT_GT(compared, 100 / kShare);
}

TEST(PlacedWork, RulesOfASchedule) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, small_problems());
    made.options.micro_batch_samples = 4;
    made.options.memory = false;
    made.options.allow_idle_stages = made.options.allow_empty_stages = true;
    const Problem problem = made.problem();
    if (!problem.group(0, 2).valid) continue;
    Plan plan = even_plan(problem, 2, 2, Schedule::kInterleaved);
    EXPECT_EQ(infeasible_reason(problem, plan), "");
    plan.chunks = 3;  // cuts for two
    EXPECT_FALSE(feasible(problem, plan));
    Plan split = even_plan(problem, 2, 1, Schedule::kZbH1);
    split.split_backward = true;
    EXPECT_EQ(feasible(problem, split), problem.has_weights_pass() && splits_backward(problem.variant(0)));
    Plan searched = even_plan(problem, 2, 1, Schedule::kSearched);
    EXPECT_FALSE(feasible(problem, searched));  // no lists
    WorkOrder order = alternating_order({2, 1}, problem.micro_batches());
    searched.order = std::make_shared<const WorkOrder>(order);
    EXPECT_EQ(infeasible_reason(problem, searched), "");
    order[1].pop_back();
    searched.order = std::make_shared<const WorkOrder>(order);
    EXPECT_EQ(infeasible_reason(problem, searched), "group 2: B2.8 is missing");
  }
}

}  // namespace
}  // namespace automap::pipeline
