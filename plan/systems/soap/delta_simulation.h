// The step of a strategy in which one operator after the other gets another configuration. Only the part of the
// simulation that a change affects is repeated (FlexFlow, section 5.3). Its times are those of simulate() to the bit,
// task by task.
//
// The paper says what the delta simulation does, and its code was never published; the way to keep it exact is ours.
// The blocks of the changed operator and of its edges are replaced. Tasks whose times may change are then taken in the
// order of the earliest moment at which they could be ready, before or after (ties as in the full simulation); when one
// is taken, nothing that comes before it can change any more:
//   - if a task before it has no place any more, it loses its own, and comes back when that one has got one;
//   - if it is ready later than now, it loses its place and waits until then;
//   - else it gets its place in the order of its device, its start and its end. Where these differ from before, the
//     next one on the device and the tasks behind it are looked at again, if that can matter to them.
// When a task loses its place, the next one on its device and the tasks behind it are looked at again, too.
//
// Where a change reaches much (in a chain of operators that all devices share everything behind it moves), this is
// slower than the full simulation. So it ends after kMostLooks of the tasks were taken: all tasks that do not come
// before that moment lose their places, and run event by event as in the full simulation, from the state of the devices
// then.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/systems/soap/full_simulation.h"
#include "plan/systems/soap/machine_links.h"
#include "plan/systems/soap/space.h"
#include "plan/systems/soap/task_graph.h"

namespace automap::soap {

class DeltaSimulation {
 public:
  // `space` and `machine` must stay alive; `strategy` is one of the space.
  DeltaSimulation(const Space& space, const MachineLinks& machine, Strategy strategy);
  // The share of the tasks after which the rest runs event by event. Times do not depend on it.
  static constexpr double kMostLooks = 0.01;
  void set_most_looks(double share) { most_looks_ = share; }

  const Strategy& strategy() const { return strategy_; }  // with what is proposed
  double step_ms() const { return step_ms_; }
  // Gives an operator another configuration; the step's length then. accept() or reject() comes before the next one.
  double propose(OperatorId op, Config config);
  void accept();
  void reject();

  // Counts since the beginning: tasks taken, and tasks made anew. For work that is counted.
  std::int64_t tasks_taken() const { return tasks_taken_; }
  std::int64_t tasks_made() const { return tasks_made_; }
  std::int32_t num_tasks() const { return num_tasks_; }
  // As Simulated::tasks, for comparison.
  std::vector<TaskTimes> times() const;

 private:
  using TaskId = std::int32_t;
  struct State {
    double ms = 0, ready = 0, start = 0, end = 0;
    TaskOrder order = 0;
    double queued = 0;  // the earliest moment that it is queued for; below 0: it is not
    std::int32_t resource = kNone;
    std::int32_t block = kNone;    // operators, then edges
    std::int32_t local = 0;        // number in its block
    std::uint32_t saved = 0;       // the proposal that its times were saved in
    std::uint32_t watched_in = 0;  // the proposal that `watch` is of
    TaskId watch = kNone;          // a task before it that had no place
    std::int32_t missing = 0;      // tasks before it that have not run, event by event
    bool placed = false, alive = false;
    bool timed = false;  // it has had a place; `end` is what the tasks behind it know
  };
  // A task on a device, where it stands in its order.
  struct Slot {
    double ready = 0;
    TaskOrder order = 0;
    TaskId task = 0;
    bool operator<(const Slot& o) const { return ready != o.ready ? ready < o.ready : order < o.order; }
  };
  struct Saved {
    TaskId task;
    double ready, start, end;
    bool placed, timed;
  };
  struct Block {
    OperatorBlock op;
    EdgeBlock edge;
    TaskId first = 0;
    std::int32_t size = 0;
  };

  State& state(TaskId t) { return states_[static_cast<std::size_t>(t)]; }
  const State& state(TaskId t) const { return states_[static_cast<std::size_t>(t)]; }
  Block& block(std::int32_t b) { return blocks_[static_cast<std::size_t>(b)]; }
  const Block& block(std::int32_t b) const { return blocks_[static_cast<std::size_t>(b)]; }
  bool is_edge(std::int32_t b) const { return b >= space_.size(); }
  const Edge& edge_of(std::int32_t b) const { return space_.edges[static_cast<std::size_t>(b - space_.size())]; }

  bool waits_for_device(const State& s) const { return s.resource < machine_.num_resources(); }

  void make_block(std::int32_t b);
  void take_ids(std::int32_t b, const std::vector<Task>& tasks);
  void free_ids(TaskId first, std::int32_t size);
  template <bool Makes, bool Back, typename See>
  bool over_pairs(OperatorId op, std::int32_t part, const See& see) const;
  template <bool Behind, typename See>
  void around(TaskId t, const See& see) const;  // see(task) for each; false ends it
  template <typename See>
  void before(TaskId t, const See& see) const;  // see(task) for each; false ends it
  template <typename See>
  void behind(TaskId t, const See& see) const;
  bool ready_at(TaskId t, double* ready);  // false: a task before it has no place

  std::vector<Slot>& order_of(std::int32_t resource);
  void save(TaskId t);
  void put(TaskId t, double ready);
  void remove(TaskId t);
  void wait(TaskId t, double ready);
  void queue(TaskId t, double ready);
  void queue_again(TaskId t);
  void look_at(const std::vector<Slot>& order, std::size_t place);
  void look_behind(TaskId t, double old_end, bool had_end);
  void take(const Slot& entry);
  void run();
  void run_events_from(const Slot& moment);
  void replace_blocks(const std::vector<std::int32_t>& changed);
  void measure();

  const Space& space_;
  const MachineLinks& machine_;
  Strategy strategy_;
  std::vector<State> states_;
  std::vector<Block> blocks_;              // operators, then edges
  std::vector<std::vector<TaskId>> free_;  // first ids of free ranges, by the logarithm of their size
  std::vector<std::vector<Slot>> orders_;  // by resource; the last: of tasks without one
  std::vector<Slot> heap_;
  double step_ms_ = 0, most_looks_ = kMostLooks;
  std::int32_t num_tasks_ = 0;
  std::int64_t tasks_taken_ = 0, tasks_made_ = 0;

  // State that a rejection restores.
  bool proposed_ = false;
  std::uint32_t proposal_ = 0;
  OperatorId changed_ = kNone;
  Config old_config_;
  double old_step_ms_ = 0;
  std::int32_t old_num_tasks_ = 0;
  std::vector<std::pair<std::int32_t, Block>> old_blocks_;
  std::vector<Saved> saved_;
  std::vector<std::uint32_t> order_saved_;  // by resource: the proposal
  std::vector<std::pair<std::int32_t, std::vector<Slot>>> old_orders_;
  std::vector<std::vector<Slot>> spare_;
  std::vector<std::int32_t> changed_blocks_;
  std::vector<TaskId> waiting_;  // those that run event by event
};

}  // namespace automap::soap
