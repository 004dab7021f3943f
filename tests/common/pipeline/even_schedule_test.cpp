#include "common/pipeline/even_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

EvenTimes random_interleaved(int groups, int chunks, CounterRandom& random) {
  EvenTimes times;
  times.groups = groups;
  times.chunks = chunks;
  const int parts = groups * chunks;
  for (int p = 0; p < parts; ++p) {
    times.forward_ms.push_back(random.uniform(0.2, 2));
    times.backward_ms.push_back(random.uniform(0.4, 4));
    if (p + 1 < parts) times.transfer_ms.push_back(random.integer(0, 2) == 0 ? 0 : random.uniform(0, 3));
    times.sync.emplace_back();
    if (random.integer(0, 1) == 0) times.sync.back() = {{0.4, random.uniform(0, 2)}, {1, random.uniform(0, 2)}};
  }
  for (int g = 0; g < groups; ++g) times.behind_ms.push_back(random.uniform(0, 1));
  return times;
}

// The same step told by events: a group starts its next operation when it is free and has what that needs, a link sends
// its messages one after the other, in the order in which they were ready.
double by_events(const EvenTimes& times, int micro_batches) {
  const int groups = times.groups, parts = groups * times.chunks;
  std::vector<std::deque<ChunkOperation>> waiting;
  for (int g = 0; g < groups; ++g) {
    const auto order = times.weights_ms.empty() ? interleaved_order(groups, times.chunks, micro_batches, g)
                                                : zero_bubble_order(groups, micro_batches, g);
    waiting.emplace_back(order.begin(), order.end());
  }
  std::set<std::tuple<bool, int, int>> here;  // backward, part, micro-batch: has come
  for (int m = 0; m < micro_batches; ++m) here.insert({false, 0, m});
  std::vector<bool> busy(static_cast<std::size_t>(groups), false);
  struct Message {
    double ms;
    std::tuple<bool, int, int> what;
  };
  std::map<std::pair<int, bool>, std::deque<Message>> link;  // from a group, backwards
  std::map<std::pair<int, bool>, bool> sending;
  using Event = std::tuple<double, int, std::function<void(double)>>;
  const auto later = [](const Event& a, const Event& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
  };
  std::priority_queue<Event, std::vector<Event>, decltype(later)> events(later);
  int sequence = 0;
  const auto plan = [&](double when, std::function<void(double)> what) {
    events.push({when, sequence++, std::move(what)});
  };
  std::vector<double> free(static_cast<std::size_t>(groups), 0);
  std::map<int, double> last_start;
  std::function<void(int, double)> start;
  std::function<void(int, bool, double)> send = [&](int from, bool backward, double now) {
    auto& queue = link[{from, backward}];
    if (sending[{from, backward}] || queue.empty()) return;
    sending[{from, backward}] = true;
    const Message message = queue.front();
    queue.pop_front();
    plan(now + message.ms, [&, from, backward, message](double then) {
      sending[{from, backward}] = false;
      here.insert(message.what);
      start(std::get<1>(message.what) % groups, then);
      send(from, backward, then);
    });
  };
  start = [&](int g, double now) {
    auto& own = waiting[static_cast<std::size_t>(g)];
    if (busy[static_cast<std::size_t>(g)] || own.empty()) return;
    const ChunkOperation o = own.front();
    const int part = o.chunk * groups + g;
    const bool alone = o.weights || (o.backward && part + 1 == parts);
    if (!alone && here.count({o.backward, part, o.micro_batch}) == 0) return;
    own.pop_front();
    busy[static_cast<std::size_t>(g)] = true;
    if (times.weights_ms.empty() ? o.backward : o.weights) last_start[part] = now;
    const auto p = static_cast<std::size_t>(part);
    const double takes = o.weights ? times.weights_ms[p] : o.backward ? times.backward_ms[p] : times.forward_ms[p];
    plan(now + takes, [&, g, o, part](double then) {
      busy[static_cast<std::size_t>(g)] = false;
      free[static_cast<std::size_t>(g)] = then;
      const int to = o.backward ? part - 1 : part + 1;
      if (!o.weights && to >= 0 && to < parts) {
        link[{g, o.backward}].push_back(
            {times.transfer_ms[static_cast<std::size_t>(std::min(part, to))], {o.backward, to, o.micro_batch}});
        send(g, o.backward, then);
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
  const std::vector<double>& ready_in = times.weights_ms.empty() ? times.backward_ms : times.weights_ms;
  for (int g = 0; g < groups; ++g) {
    EXPECT_TRUE(waiting[static_cast<std::size_t>(g)].empty());
    double synced = 0;
    for (int part = parts - groups + g; part >= 0; part -= groups) {
      for (const SyncBucket& bucket : times.sync[static_cast<std::size_t>(part)]) {
        synced = std::max(synced, last_start[part] + bucket.ready_share * ready_in[static_cast<std::size_t>(part)]) +
                 bucket.ms;
      }
    }
    length = std::max(
        length, std::max(free[static_cast<std::size_t>(g)], synced) + times.behind_ms[static_cast<std::size_t>(g)]);
  }
  return length;
}

TEST(Interleaved, EqualsTheEventsOfTheSameOrder) {
  for (std::uint64_t seed = 0; seed < 2500; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 91);
    const int chunks = random.integer(1, 4), groups = random.integer(chunks > 1 ? 3 : 2, 5);
    const int micro_batches = groups * random.integer(1, 4);
    const EvenTimes times = random_interleaved(groups, chunks, random);
    const double ms = simulate_even_ms(times, micro_batches);
    ASSERT_NEAR(ms, by_events(times, micro_batches), 1e-9 * ms);
    // No group takes less than its work.
    for (int g = 0; g < groups; ++g) {
      double work = 0;
      for (int part = g; part < groups * chunks; part += groups) {
        work += times.forward_ms[static_cast<std::size_t>(part)] + times.backward_ms[static_cast<std::size_t>(part)];
      }
      ASSERT_GE(ms, micro_batches * work);
    }
  }
}

TEST(ZeroBubble, EqualsTheEventsOfTheSameOrder) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 94);
    const int groups = random.integer(2, 6), micro_batches = random.integer(1, 14);
    EvenTimes times = random_interleaved(groups, 1, random);
    for (int g = 0; g < groups; ++g) times.weights_ms.push_back(random.uniform(0, 3));
    const double ms = simulate_even_ms(times, micro_batches);
    ASSERT_NEAR(ms, by_events(times, micro_batches), 1e-9 * ms);
    // Without a part of its own for the weights it is 1F1B, whose backward makes both.
    EvenTimes none = times;
    none.weights_ms.assign(static_cast<std::size_t>(groups), 0);
    for (auto& buckets : none.sync) buckets.clear();
    EvenTimes plain = none;
    plain.weights_ms.clear();
    ASSERT_NEAR(simulate_even_ms(none, micro_batches), simulate_even_ms(plain, micro_batches), 1e-9 * ms);
  }
}

// The paper's bubbles: (S - 1) (F + B + W) of 1F1B become (S - 1) (F + B - W), with F = B = W a third.
TEST(ZeroBubble, TheBubbleIsThePapers) {
  for (const int groups : {2, 4, 8}) {
    for (const double weights : {0.5, 1.0}) {
      EvenTimes times;
      times.groups = groups;
      times.chunks = 1;
      const auto all = static_cast<std::size_t>(groups);
      times.forward_ms.assign(all, 1);
      times.backward_ms.assign(all, 1);
      times.weights_ms.assign(all, weights);
      times.transfer_ms.assign(all - 1, 0);
      times.sync.resize(all);
      times.behind_ms.assign(all, 0);
      const int m = 3 * groups;
      EXPECT_NEAR(simulate_even_ms(times, m), m * (2 + weights) + (groups - 1) * (2 - weights), 1e-9) << groups;
    }
  }
}

TEST(ZeroBubble, EveryPassOnceInOrderAndAsManyInFlightAsThereAreGroups) {
  for (const int groups : {2, 3, 5}) {
    for (const int micro_batches : {1, 2, 4, 11}) {
      for (int g = 0; g < groups; ++g) {
        std::vector<int> passes(static_cast<std::size_t>(micro_batches), 0);
        int alive = 0, most = 0;
        for (const ChunkOperation& o : zero_bubble_order(groups, micro_batches, g)) {
          EXPECT_EQ(o.chunk, 0);
          int& done = passes[static_cast<std::size_t>(o.micro_batch)];
          EXPECT_EQ(done++, o.weights ? 2 : o.backward ? 1 : 0);
          alive += o.weights ? -1 : o.backward ? 0 : 1;
          most = std::max(most, alive);
        }
        EXPECT_EQ(passes, std::vector<int>(static_cast<std::size_t>(micro_batches), 3));
        EXPECT_EQ(most, std::min(groups, micro_batches));
      }
    }
  }
}

TEST(Interleaved, OneChunkIs1f1b) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 92);
    const int groups = random.integer(2, 6), micro_batches = random.integer(1, 12);
    EvenTimes times = random_interleaved(groups, 1, random);
    PipelineTimes plain;
    plain.forward_ms = times.forward_ms;
    plain.backward_ms = times.backward_ms;
    plain.transfer_ms = times.transfer_ms;
    plain.allreduce_ms.assign(times.forward_ms.size(), 0);
    for (std::size_t s = 0; s < times.forward_ms.size(); ++s) {
      plain.sync_left_ms.push_back(sync_left_ms(times.sync[s], times.backward_ms[s]));
    }
    plain.optimizer_ms = times.behind_ms;
    const double ms = simulate_step_ms(plain, micro_batches, Schedule::k1f1b);
    ASSERT_NEAR(simulate_even_ms(times, micro_batches), ms, 1e-9 * ms);
  }
}

// Equal parts without messages: the bubble is (S - 1) (F + B) / v of Megatron's formula.
TEST(Interleaved, TheBubbleShrinksWithTheChunks) {
  for (const int v : {1, 2, 4}) {
    EvenTimes times;
    times.groups = 4;
    times.chunks = v;
    times.forward_ms.assign(static_cast<std::size_t>(4 * v), 1.0 / v);
    times.backward_ms.assign(static_cast<std::size_t>(4 * v), 2.0 / v);
    times.transfer_ms.assign(static_cast<std::size_t>(4 * v - 1), 0);
    times.sync.resize(static_cast<std::size_t>(4 * v));
    times.behind_ms.assign(4, 0);
    EXPECT_NEAR(simulate_even_ms(times, 8), 8 * 3 + 3 * 3.0 / v, 1e-9) << v;
  }
}

TEST(Interleaved, EveryOperationOnceAndInOrder) {
  for (const int v : {1, 2, 3}) {
    for (int g = 0; g < 3; ++g) {
      std::set<std::tuple<bool, int, int>> seen;
      for (const ChunkOperation& o : interleaved_order(3, v, 6, g)) {
        EXPECT_TRUE(seen.insert({o.backward, o.chunk, o.micro_batch}).second);
        if (o.backward) {
          EXPECT_EQ(seen.count({false, o.chunk, o.micro_batch}), 1u);
        }
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(2 * 6 * v));
    }
  }
}

// Problems: memory is what a replay of the order holds, one chunk is the plan of contiguous stages.
TEST(Interleaved, OfProblems) {
  int compared = 0, whole = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblemOptions how;
    how.min_instructions = 12;
    how.max_instructions = 30;
    how.min_servers = how.max_servers = 2;
    how.min_devices = how.max_devices = 2;
    how.min_micro_batches = how.max_micro_batches = 8;
    how.whole = 1;
    how.with_shared = 0;
    RandomProblem made = random_problem(seed, how);
    made.options.micro_batch_samples = 4;
    const Problem problem = made.problem();
    for (const int groups : {2, 4}) {
      const int each = 4 / groups;
      if (!problem.group(0, each).valid) continue;
      EvenPlan one;
      one.groups = groups;
      one.chunks = 1;
      Plan plain;
      for (int s = 1; s < groups; ++s) {
        one.cuts.push_back(problem.num_instructions() * s / groups);
        plain.device_cuts.push_back(s * each);
      }
      plain.cuts = one.cuts;
      plain.schedule = Schedule::k1f1b;
      const double ms = simulate_step_ms(problem, plain);
      ASSERT_NEAR(simulate_even_ms(even_times(problem, one), 8), ms, 1e-9 * ms);
      const DeviceGroup& first = problem.group(0, each);
      ASSERT_NEAR(even_memory_bytes(problem, one, 0), problem.memory_bytes(0, one.cuts[0], first, groups),
                  1e-6 * first.capacity_bytes);
      ++compared;
      EvenPlan two = one;
      two.chunks = 2;
      two.cuts.clear();
      for (int p = 1; p < 2 * groups; ++p) two.cuts.push_back(problem.num_instructions() * p / (2 * groups));
      if (groups == 2) {
        EXPECT_FALSE(even_feasible(problem, two));
        continue;
      }
      EXPECT_GT(simulate_even_ms(even_times(problem, two), 8), 0);
      if (even_feasible(problem, two)) {
        ++whole;
        EvenPlan empty = two;
        empty.cuts[1] = empty.cuts[0];
        EXPECT_FALSE(even_feasible(problem, empty));
      }
      for (int g = 0; g < groups; ++g) {
        // Of every chunk what began and did not end, at every moment.
        const DeviceGroup& group = problem.group(g * each, (g + 1) * each);
        const auto part = [&](int p) {
          const int p0 = p == 0 ? 0 : two.cuts[static_cast<std::size_t>(p - 1)];
          const int p1 = p + 1 == 2 * groups ? problem.num_instructions() : two.cuts[static_cast<std::size_t>(p)];
          return problem.memory_parts(p0, p1, group, 1, 0);
        };
        const MemoryParts early = part(g), late = part(g + groups);
        const auto order = interleaved_order(groups, 2, 8, g);
        double most = 0;
        for (std::size_t until = 0; until <= order.size(); ++until) {
          int alive[2] = {0, 0};
          for (std::size_t i = 0; i < until; ++i) alive[order[i].chunk] += order[i].backward ? -1 : 1;
          most = std::max(most, alive[0] * early.stash + alive[1] * late.stash);
        }
        const double kept = early.total() - early.stash - early.workspace - early.buckets + late.total() - late.stash -
                            late.workspace - late.buckets;
        const double expected =
            kept + most + std::max(early.workspace, late.workspace) + std::max(early.buckets, late.buckets);
        ASSERT_NEAR(even_memory_bytes(problem, two, g), expected, 1e-9 * expected + 1e-6);
      }
    }
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(whole, 10);
}

}  // namespace
}  // namespace automap::pipeline
