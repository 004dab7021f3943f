#include "plan/systems/heuristics/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "plan/systems/heuristics/planning.h"
#include "tests/plan/systems/heuristics/random_work.h"
#include "tests/sanitized.h"

namespace automap::heuristics {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Every task once, none before what it reads is there, none beside another one of its device, no link with two
// messages.
void expect_possible(const WorkGraph& graph, const Machine& machine, const Execution& run) {
  std::map<std::pair<ValueId, DeviceId>, double> arrives;
  std::map<std::int32_t, std::vector<std::pair<double, double>>> busy;  // by resource
  for (const MessageRun& m : run.messages) {
    const auto made = run.tasks[at(graph.values[at(m.value)].producer)];
    EXPECT_EQ(arrives.count({m.value, m.to}), 0u) << "sent twice";
    if (made.device == m.from) {
      EXPECT_GE(m.start_ms, made.end_ms);
    } else {
      ASSERT_EQ(arrives.count({m.value, m.from}), 1u) << "from where it is not";
      EXPECT_GE(m.start_ms, (arrives[{m.value, m.from}]));
    }
    EXPECT_NEAR(m.end_ms - m.start_ms, machine.message_ms(m.from, m.to, graph.values[at(m.value)].bytes), 1e-9);
    arrives[{m.value, m.to}] = m.end_ms;
    busy[machine.links().link(m.from, m.to)].emplace_back(m.start_ms, m.end_ms);
  }
  for (TaskId t = 0; t < graph.size(); ++t) {
    const TaskRun& own = run.tasks[at(t)];
    ASSERT_NE(own.device, kNone);
    busy[own.device].emplace_back(own.start_ms, own.end_ms);
    for (const ValueId v : graph.read[at(t)]) {
      const TaskRun& made = run.tasks[at(graph.values[at(v)].producer)];
      if (made.device == own.device) {
        EXPECT_GE(own.start_ms, made.end_ms);
      } else {
        ASSERT_EQ(arrives.count({v, own.device}), 1u);
        EXPECT_GE(own.start_ms, (arrives[{v, own.device}]));
      }
    }
  }
  for (auto& [resource, times] : busy) {
    std::sort(times.begin(), times.end());
    for (std::size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i].first, times[i - 1].second);
  }
}

// The static run again, in the most obvious manner: at every moment, first what ends sends its messages, then every
// device that can begin its next task does.
class Twin {
 public:
  Twin(const WorkGraph& graph, const Machine& machine, const Schedule& schedule, const Conditions& conditions)
      : graph_(graph), machine_(machine), schedule_(schedule), conditions_(conditions) {}

  std::vector<TaskRun> run() {
    std::vector<TaskRun> out(graph_.tasks.size());
    std::vector<std::size_t> next(schedule_.order.size(), 0);
    std::vector<double> free(schedule_.order.size(), 0);
    std::vector<TaskId> unsent;
    for (;;) {
      std::vector<double> start(next.size(), kNever);
      double now = kNever;
      for (DeviceId d = 0; d < machine_.num_devices(); ++d) {
        if (next[at(d)] == schedule_.order[at(d)].size()) continue;
        start[at(d)] = std::max(free[at(d)], arrived(schedule_.order[at(d)][next[at(d)]], d));
        now = std::min(now, start[at(d)]);
      }
      for (const TaskId t : unsent) now = std::min(now, out[at(t)].end_ms);
      if (now == kNever) return out;
      std::vector<TaskId> ends;
      for (const TaskId t : unsent) {
        if (out[at(t)].end_ms == now) ends.push_back(t);
      }
      std::sort(ends.begin(), ends.end());
      for (const TaskId t : ends) {
        send(t, out[at(t)]);
        unsent.erase(std::find(unsent.begin(), unsent.end(), t));
      }
      for (DeviceId d = 0; d < machine_.num_devices() && ends.empty(); ++d) {
        if (start[at(d)] != now) continue;
        const TaskId t = schedule_.order[at(d)][next[at(d)]++];
        const double ms =
            machine_.task_ms(graph_.tasks[at(t)].ms, d) * conditions_.noise[at(t)] * conditions_.slow[at(d)];
        out[at(t)] = {d, now, now + ms};
        free[at(d)] = now + ms;
        unsent.push_back(t);
      }
    }
  }

 private:
  double arrived(TaskId t, DeviceId d) const {
    double out = 0;
    for (const ValueId v : graph_.read[at(t)]) {
      const auto it = there_.find({v, d});
      out = std::max(out, it == there_.end() ? kNever : it->second);
    }
    return out;
  }

  void send(TaskId t, const TaskRun& made) {
    for (const ValueId v : graph_.made[at(t)]) {
      there_[{v, made.device}] = made.end_ms;
      for (DeviceId d = 0; d < machine_.num_devices(); ++d) {
        const auto& readers = graph_.values[at(v)].consumers;
        const bool reads =
            std::any_of(readers.begin(), readers.end(), [&](TaskId r) { return schedule_.home[at(r)] == d; });
        if (!reads || d == made.device) continue;
        double& link = link_free_[machine_.links().link(made.device, d)];
        link = std::max(link, made.end_ms) + machine_.message_ms(made.device, d, graph_.values[at(v)].bytes);
        there_[{v, d}] = link;
      }
    }
  }

  const WorkGraph& graph_;
  const Machine& machine_;
  const Schedule& schedule_;
  const Conditions& conditions_;
  std::map<std::int32_t, double> link_free_;
  std::map<std::pair<ValueId, DeviceId>, double> there_;
};

struct Problem {
  WorkGraph graph;
  Machine machine;
  Devices devices;
  Schedule schedule;
};
Problem random_problem(std::uint64_t item, int tasks, double memory_gib = 1) {
  Rng rng(11, 3, item);
  WorkGraph graph = random_work(&rng, tasks);
  Machine machine(small_cluster({2, 2}, memory_gib));
  Devices devices = random_devices(&rng, graph.units(), 4);
  Schedule schedule = plan_schedule(graph, machine, devices);
  return {std::move(graph), machine, std::move(devices), std::move(schedule)};
}

AssistantRules rules_of(const Schedule& schedule) {
  AssistantRules rules;
  rules.theta_ms = 0.002 * schedule.planned.makespan_ms;
  return rules;
}

TEST(Simulation, RunsEveryTaskOnceAndWaits) {
  for (std::uint64_t item = 0; item < 100 / kShare; ++item) {
    const Problem p = random_problem(item, 80);
    expect_possible(p.graph, p.machine, p.schedule.planned);
    const Conditions conditions = draw_conditions(p.graph, p.machine, 0.4, 1, 2, 7, item);
    expect_possible(p.graph, p.machine, run_static(p.graph, p.machine, p.schedule, conditions));
    const Execution assisted = run_assisted(p.graph, p.machine, p.schedule, conditions, rules_of(p.schedule));
    expect_possible(p.graph, p.machine, assisted);
    EXPECT_GT(assisted.makespan_ms, 0);
  }
}

TEST(Simulation, StaticIsAnObviousTwin) {
  for (std::uint64_t item = 0; item < 100 / kShare; ++item) {
    const Problem p = random_problem(item, 60);
    for (const double sigma : {0.0, 0.5}) {
      const Conditions conditions = draw_conditions(p.graph, p.machine, sigma, 2, 1.5, 8, item);
      const Execution run = run_static(p.graph, p.machine, p.schedule, conditions);
      const std::vector<TaskRun> twin = Twin(p.graph, p.machine, p.schedule, conditions).run();
      for (TaskId t = 0; t < p.graph.size(); ++t) {
        ASSERT_EQ(run.tasks[at(t)].device, twin[at(t)].device);
        ASSERT_NEAR(run.tasks[at(t)].start_ms, twin[at(t)].start_ms, 1e-9) << "graph " << item << " task " << t;
        ASSERT_NEAR(run.tasks[at(t)].end_ms, twin[at(t)].end_ms, 1e-9);
      }
    }
  }
}

// Without surprises the assistants do nothing, to the bit.
TEST(Assistants, WithoutSurprisesAssistedIsStatic) {
  for (std::uint64_t item = 0; item < 200 / kShare; ++item) {
    const Problem p = random_problem(item, 100);
    const Conditions none = no_surprise(p.graph, p.machine);
    const Execution fixed = run_static(p.graph, p.machine, p.schedule, none);
    const Execution assisted = run_assisted(p.graph, p.machine, p.schedule, none, rules_of(p.schedule));
    EXPECT_EQ(assisted.pulled + assisted.pushed, 0);
    for (TaskId t = 0; t < p.graph.size(); ++t) {
      ASSERT_EQ(fixed.tasks[at(t)].start_ms, p.schedule.planned.tasks[at(t)].start_ms);
      ASSERT_EQ(assisted.tasks[at(t)].start_ms, fixed.tasks[at(t)].start_ms);
      ASSERT_EQ(assisted.tasks[at(t)].end_ms, fixed.tasks[at(t)].end_ms);
    }
  }
}

// Tasks move, never what is pinned; units keep their places otherwise; memory is not exceeded.
TEST(Assistants, MoveOnlyWhatMayMove) {
  std::int64_t moved = 0;
  for (std::uint64_t item = 0; item < 100 / kShare; ++item) {
    Problem p = random_problem(item, 120, 0.12);
    const Conditions conditions = draw_conditions(p.graph, p.machine, 0.3, 0, 4, 9, item);
    const Execution run = run_assisted(p.graph, p.machine, p.schedule, conditions, rules_of(p.schedule));
    expect_possible(p.graph, p.machine, run);
    std::vector<double> bytes(4, 0);
    int away = 0;
    for (TaskId t = 0; t < p.graph.size(); ++t) {
      bytes[at(p.schedule.home[at(t)])] += p.graph.tasks[at(t)].memory_bytes;
      if (run.tasks[at(t)].device == p.schedule.home[at(t)]) continue;
      ++away;
      EXPECT_FALSE(p.graph.tasks[at(t)].pinned);
    }
    EXPECT_EQ(away, run.pulled + run.pushed);
    for (DeviceId d = 0; d < 4; ++d) {
      if (run.extra_bytes[at(d)] > 0) {
        EXPECT_LE(bytes[at(d)] + run.extra_bytes[at(d)], p.machine.capacity_bytes(d));
      }
    }
    moved += away;
  }
  EXPECT_GT(moved, 0);
  // No room, no moves.
  const Problem p = random_problem(3, 120, 1e-9);
  const Conditions conditions = draw_conditions(p.graph, p.machine, 0.3, 0, 4, 9, 3);
  const Execution run = run_assisted(p.graph, p.machine, p.schedule, conditions, rules_of(p.schedule));
  EXPECT_EQ(run.pulled + run.pushed, 0);
}

TEST(Assistants, LearnHowSlowADeviceIs) {
  const Problem p = random_problem(5, 150);
  const Conditions conditions = draw_conditions(p.graph, p.machine, 0, 2, 3, 1, 0);
  const Execution run = run_assisted(p.graph, p.machine, p.schedule, conditions, rules_of(p.schedule));
  EXPECT_NEAR(run.ratios[2], 3, 0.3);
  for (const DeviceId d : {0, 1, 3}) EXPECT_NEAR(run.ratios[at(d)], 1, 1e-9);
}

// Begun at its latest start no task has made the step longer, and some task has no time to spare.
TEST(Assistants, KnowTheLatestStarts) {
  for (std::uint64_t item = 0; item < 50 / kShare; ++item) {
    const Problem p = random_problem(item, 80);
    double least = kNever;
    for (TaskId t = 0; t < p.graph.size(); ++t) {
      const double spare = p.schedule.latest_start[at(t)] - p.schedule.planned.tasks[at(t)].start_ms;
      ASSERT_GE(spare, -1e-9);
      ASSERT_LE(p.schedule.latest_start[at(t)], p.schedule.planned.makespan_ms);
      least = std::min(least, spare);
    }
    EXPECT_NEAR(least, 0, 1e-9);
  }
}

struct Row {
  DeviceId device;
  double ms;
  std::vector<TaskId> reads;
  bool may_move = false;
  double bytes = 1e3;  // of what it makes: little
};
struct Runs {
  Execution fixed, assisted;
  int moved() const { return assisted.pulled + assisted.pushed; }
};
// A task a row, device 0 slow.
Runs runs_of(const std::vector<Row>& rows, const std::vector<int>& servers, double slow) {
  WorkGraph graph;
  Devices devices;
  std::vector<std::vector<TaskId>> readers(rows.size());
  for (TaskId t = 0; t < static_cast<TaskId>(rows.size()); ++t) {
    Task task;
    task.ms = rows[at(t)].ms;
    task.unit = t;
    task.pinned = !rows[at(t)].may_move;
    graph.tasks.push_back(task);
    devices.push_back(rows[at(t)].device);
    for (const TaskId from : rows[at(t)].reads) readers[at(from)].push_back(t);
  }
  for (TaskId t = 0; t < graph.size(); ++t) {
    if (!readers[at(t)].empty()) graph.values.push_back({t, rows[at(t)].bytes, readers[at(t)]});
  }
  graph.link();
  const Machine machine(small_cluster(servers));
  const Schedule schedule = plan_schedule(graph, machine, devices);
  Conditions conditions = no_surprise(graph, machine);
  conditions.slow[0] = slow;
  return {run_static(graph, machine, schedule, conditions),
          run_assisted(graph, machine, schedule, conditions, rules_of(schedule))};
}

// Tasks 1 to 3 of device 0 could run on the other server, but task 4, before the long task 5, reads them at home: when
// that server's port is busy with what task 6 made, they would come back too late.
TEST(Assistants, CountWhatQueuesOnTheWayBack) {
  const auto runs = [](double queued_bytes) {
    return runs_of({{0, 1, {}},
                    {0, 10, {0}, true},
                    {0, 10, {0}, true},
                    {0, 10, {0}, true},
                    {0, 1, {1, 2, 3}},
                    {0, 200, {4}},
                    {1, 0, {}, false, queued_bytes},
                    {0, 1, {6}}},
                   {1, 2}, 4);
  };
  const Runs empty = runs(0), full = runs(50e6);  // 200 ms
  EXPECT_GT(empty.moved(), 0);
  EXPECT_LT(empty.assisted.makespan_ms, empty.fixed.makespan_ms - 10);
  EXPECT_EQ(full.moved(), 0);
  EXPECT_EQ(full.assisted.makespan_ms, full.fixed.makespan_ms);
}

// The other server is empty, but too far: its devices are not all that tasks 1 to 3 may go to.
TEST(Assistants, LookInTheirServerFirst) {
  const Runs runs = runs_of({{0, 1, {}, false, 15e6},  // 15 ms inside, 60 between
                             {0, 10, {0}, true},
                             {0, 10, {0}, true},
                             {0, 10, {0}, true},
                             {0, 1, {1, 2, 3}},
                             {1, 5, {}}},
                            {2, 4}, 2);
  EXPECT_GT(runs.moved(), 0);
  EXPECT_LT(runs.assisted.makespan_ms, runs.fixed.makespan_ms - 10);
}

// Device 1 is free for task 3 until task 2 ends, then it has tasks 4 and 5 to do.
TEST(Assistants, AreNotInTheWayOfTheHost) {
  for (const double last_ms : {10.0, 40.0}) {  // task 3 is late for the end of the step, or only by the plan
    const Runs runs = runs_of(
        {{0, 1, {}}, {0, 10, {0}}, {0, 10, {1}}, {0, 20, {1}, true}, {1, 10, {2}}, {1, last_ms, {4}}}, {2}, 1.2);
    EXPECT_EQ(runs.moved(), 0);
    EXPECT_EQ(runs.assisted.makespan_ms, runs.fixed.makespan_ms);
  }
}

// A device that is slow by 2 costs less with assistants, as a mean of many graphs.
TEST(Assistants, HelpWithAStraggler) {
  double fixed = 0, assisted = 0;
  for (std::uint64_t item = 0; item < 50 / kShare + 5; ++item) {
    const Problem p = random_problem(item, 100);
    const DeviceId slow = straggler_of(p.graph, p.machine, p.devices);
    const Conditions conditions = draw_conditions(p.graph, p.machine, 0, slow, 2, 1, item);
    fixed += run_static(p.graph, p.machine, p.schedule, conditions).makespan_ms;
    assisted += run_assisted(p.graph, p.machine, p.schedule, conditions, rules_of(p.schedule)).makespan_ms;
  }
  EXPECT_LT(assisted, fixed);
}

TEST(Simulation, NoiseHasTheDeviationAskedFor) {
  const Problem p = random_problem(1, 400);
  double sum = 0, squares = 0;
  const int runs = 20;
  for (std::uint64_t run = 0; run < runs; ++run) {
    for (const double noise : draw_conditions(p.graph, p.machine, 0.3, 0, 2, 1, run).noise) {
      sum += std::log(noise);
      squares += std::log(noise) * std::log(noise);
    }
  }
  const double n = runs * 400.0;
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / n), 0.3, 0.02);
  EXPECT_EQ(draw_conditions(p.graph, p.machine, 0.3, 0, 2, 1, 0).slow[0], 2);
}

}  // namespace
}  // namespace automap::heuristics
