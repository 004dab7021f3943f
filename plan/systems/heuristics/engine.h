// The event engine behind simulation.h, for its functions alone.
#pragma once

#include <deque>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/systems/heuristics/simulation.h"

namespace automap::heuristics {

class Engine {
 public:
  // In the schedule's order where it has one and there are no rules; else by priority. All must stay alive.
  Engine(const WorkGraph& graph, const Machine& machine, const Schedule& schedule, Conditions conditions,
         const AssistantRules* rules);

  Execution run();
  // By device: tasks in the order in which they began.
  std::vector<std::vector<TaskId>> begun() { return std::move(begun_); }

 private:
  enum class State : std::uint8_t { kWaits, kFetches, kReady, kRuns, kDone };
  enum class Kind : std::uint8_t { kTaskEnds, kArrives };
  using Event = std::tuple<double, Kind, std::int32_t, DeviceId>;  // time; of a task or value; the device
  struct Copy {
    DeviceId device = 0;
    bool there = false;
    double arrives_ms = 0;
  };
  // The queue of a device.
  struct Queue {
    std::set<std::pair<double, TaskId>> ready;  // by -priority
    std::deque<TaskId> behind;                  // what finds no room in it
    TaskId running = kNone;
    std::size_t next = 0;   // in the schedule's order: the first that is here and has not begun
    double waiting_ms = 0;  // predicted, of ready, behind and what is under way
    double ratio = 1;
    double planned_bytes = 0, extra_bytes = 0;
    bool pulls = false;  // a task that it pulled is under way
  };

  // --- Everybody ---
  double predicted_ms(TaskId t, DeviceId d) const { return machine_.task_ms(graph_.tasks[at(t)].ms, d); }
  void end_task(TaskId t);
  void enable(TaskId t);
  void arrive(ValueId v, DeviceId d);
  void make_ready(TaskId t);
  void take_out(TaskId t);  // of its queue
  void begin_next(DeviceId d);
  void begin(TaskId t, DeviceId d);
  void find_next(DeviceId d);  // past what has begun or moved away
  const Copy* copy_at(ValueId v, DeviceId d) const;
  // From the nearest copy, unless it is there or under way.
  void send(ValueId v, DeviceId to);
  // The copy from which the value would arrive first, and when.
  std::pair<double, DeviceId> nearest(ValueId v, DeviceId to) const;

  // --- Assistants (assistants.cpp) ---
  // When messages that nobody has sent yet would arrive, one behind the other on a link.
  class Messages {
   public:
    explicit Messages(const Engine& engine) : engine_(engine) {}
    double arrives_ms(DeviceId from, DeviceId to, double bytes, double made_ms);

   private:
    const Engine& engine_;
    std::vector<std::pair<std::int32_t, double>> free_;  // by link
  };
  void list_alternates();
  double backlog_ms(DeviceId d) const;
  double running_ms(DeviceId d) const;
  // The time by which the task makes the step longer, in ms; below 0: it does not.
  double late_at_home_ms(TaskId t) const;
  double late_there_ms(TaskId t, DeviceId d) const;
  double late_ms(TaskId t, DeviceId d, double end_ms) const;
  bool has_memory(TaskId t, DeviceId d) const;
  double needed_bytes(TaskId t, DeviceId d) const;
  bool worth_moving(TaskId t, DeviceId to) const;
  bool may_move(TaskId t) const;
  void move(TaskId t, DeviceId to);
  bool push(TaskId t);
  void push_last(DeviceId d);
  void pull(DeviceId d);
  void observe(TaskId t);

  const WorkGraph& graph_;
  const Machine& machine_;
  const Schedule& schedule_;
  const Conditions conditions_;
  const AssistantRules* rules_;
  double now_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Queue> queues_;              // by device
  std::vector<double> link_free_;          // by resource of MachineLinks
  std::vector<std::vector<Copy>> copies_;  // by value
  std::vector<DeviceId> place_;            // by task, and so are the next ones
  std::vector<State> state_;
  std::vector<std::int32_t> missing_;  // values that are not made yet; then, that are not at its place
  std::vector<std::vector<DeviceId>> alternates_;
  std::vector<std::vector<TaskId>> begun_;
  Execution out_;
};

}  // namespace automap::heuristics
