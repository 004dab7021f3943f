#include "plan/systems/heuristics/training_graph.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "common/base/depth_first.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/graph/flow_order.h"
#include "common/graph/layers.h"
#include "common/graph/variable_updates.h"
#include "profile/host_time.h"
#include "profile/step_positions.h"
#include "profile/step_times.h"
#include "profile/time_estimator.h"

namespace automap::heuristics {

using graph::InputRole;
using graph::NodeId;
using graph::Opcode;
using graph::Part;

namespace {

constexpr double kMuch = 0.1;  // of the step

Pass pass_of(Part part) {
  switch (part) {
    case Part::kInput: return Pass::kState;
    case Part::kForward: return Pass::kForward;
    case Part::kBackward: return Pass::kBackward;
    case Part::kOptimizer: return Pass::kUpdate;
    case Part::kFree:
    case Part::kGlue: break;
  }
  return Pass::kOther;
}

// Sets of nodes or tasks; the smallest number stands for a set.
class Sets {
 public:
  explicit Sets(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0); }
  std::int32_t find(std::int32_t i) {
    while (parent_[at(i)] != i) {
      parent_[at(i)] = parent_[at(parent_[at(i)])];
      i = parent_[at(i)];
    }
    return i;
  }
  void join(std::int32_t a, std::int32_t b) {
    a = find(a);
    b = find(b);
    parent_[at(std::max(a, b))] = std::min(a, b);
  }

 private:
  std::vector<std::int32_t> parent_;
};

class GraphMaker {
 public:
  GraphMaker(const graph::Graph& graph, const graph::TrainingStep& step, const machine::DeviceModel& device,
             Colocate colocate)
      : graph_(graph),
        step_(step),
        flow_(step.flow),
        order_(graph::order_forward(step)),
        at_(step, order_),
        free_(graph::find_free(step.flow)),
        colocate_(colocate),
        base_(at(flow_.size()), kNone),
        kernel_(at(flow_.size())) {
    if (order_.order.empty()) {
      throw Error(ErrorKind::kData, "the module has no forward pass: nothing that it computes reaches a result",
                  "a training or inference step is divided among devices; is this the right module?");
    }
    charge_times(device);
  }

  TrainingGraph run() {
    find_bases();
    join_light_with_readers();
    number_tasks();
    charge_free();
    find_values();
    find_units();
    out_.graph.link();
    count_memory();
    sum_up();
    if (out_.graph.total_ms() <= 0) {
      throw Error(ErrorKind::kData, "nothing in the module takes time",
                  "a training or inference step is divided among devices; is this the right module?");
    }
    return std::move(out_);
  }

 private:
  // --- Times, and where backward instructions belong ---

  void charge_times(const machine::DeviceModel& device) {
    profile::InstructionTimes times = profile::estimate_times(graph_, device);
    profile::wait_at_every_kernel(&times);
    out_.warnings = times.notices;
    std::int32_t last_use = 0;
    for (const std::int32_t v : step_.variables) last_use = std::max(last_use, at_.last_use(step_.inputs[at(v)].node));
    place_ = profile::place_backward(at_, last_use);
    for (const NodeId id : order_.order) place_[at(id)] = at_.position(id);
    const profile::StepTimes running(at_, times, place_, std::vector<std::int32_t>(at(flow_.size()), graph::kNone),
                                     std::vector<double>(at(at_.size()), 0.0));
    ms_.assign(at(flow_.size()), 0);
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (running.runs(id)) ms_[at(id)] = times.ms[at(flow_.node(id).instruction)];
    }
  }

  // --- Which nodes make a task ---

  // Finds every value's base: the node whose value its readers get; kNone: at hand everywhere. Also finds the kernels,
  // as far as light instructions join their operands.
  void find_bases() {
    std::vector<char> at_hand(free_.begin(), free_.end());
    for (const graph::EntryInput& input : step_.inputs) {
      at_hand[at(input.node)] = input.role == InputRole::kStepInput || input.role == InputRole::kUnused;
    }
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (at_hand[at(id)]) continue;
      base_[at(id)] = id;
      if (at_.part(id) == Part::kInput) continue;
      if (flow_.producer(id) != id) {
        const NodeId unit = flow_.producer(id);
        if (base_[at(unit)] == kNone) base_[at(unit)] = unit;
        kernel_.join(unit, id);
        continue;
      }
      if (ms_[at(id)] > 0 || flow_.shape(id).is_tuple()) continue;
      std::vector<NodeId> read;  // bases
      for (const NodeId operand : flow_.operands(id)) {
        if (base_[at(operand)] != kNone) read.push_back(base_[at(operand)]);
      }
      if (read.empty()) {
        base_[at(id)] = kNone;
        continue;
      }
      if (graph::is_movement(flow_, id) && base_[at(flow_.operands(id)[0])] != kNone) {
        base_[at(id)] = base_[at(flow_.operands(id)[0])];
        continue;
      }
      const std::int32_t first = kernel_.find(read.front());
      bool one = at_.part(read.front()) == at_.part(id);
      for (const NodeId base : read) one = one && kernel_.find(base) == first;
      if (one) kernel_.join(first, id);
    }
  }

  // Backwards, so that a chain of light work goes to the kernel behind it.
  void join_light_with_readers() {
    std::vector<std::vector<std::int32_t>> readers(at(flow_.size()));  // by base: nodes
    std::vector<int> members(at(flow_.size()), 0);
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (!is_made(id)) continue;
      ++members[at(kernel_.find(id))];
      for (const NodeId operand : flow_.operands(id)) {
        if (base_[at(operand)] != kNone) readers[at(base_[at(operand)])].push_back(id);
      }
    }
    for (NodeId id = flow_.size() - 1; id >= 0; --id) {
      if (!is_made(id) || at_.part(id) == Part::kInput || ms_[at(id)] > 0 || flow_.shape(id).is_tuple()) continue;
      if (kernel_.find(id) != id || members[at(id)] != 1 || readers[at(id)].empty()) continue;
      const std::int32_t reader = kernel_.find(readers[at(id)].front());
      bool one = at_.part(readers[at(id)].front()) == at_.part(id);
      for (const NodeId other : readers[at(id)]) one = one && kernel_.find(other) == reader;
      if (one) kernel_.join(reader, id);
    }
  }

  // A node with a value or a time of its own.
  bool is_made(NodeId id) const { return base_[at(id)] == id; }

  // Tasks in the order in which a depth-first search into operands, in their order, finishes them: from the loss, then
  // from all that nobody reads. So a weight stands directly before its first reader.
  void number_tasks() {
    std::vector<std::int32_t> number(at(flow_.size()), kNone);  // by kernel
    std::vector<NodeId> heaviest;
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (!is_made(id)) continue;
      std::int32_t& n = number[at(kernel_.find(id))];
      if (n == kNone) {
        n = static_cast<std::int32_t>(heaviest.size());
        heaviest.push_back(id);
      } else if (ms_[at(id)] > ms_[at(heaviest[at(n)])]) {
        heaviest[at(n)] = id;
      }
    }
    std::vector<std::vector<int>> reads(heaviest.size());
    std::vector<char> is_read(heaviest.size(), 0);
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (!is_made(id)) continue;
      const std::int32_t n = number[at(kernel_.find(id))];
      for (const NodeId operand : flow_.operands(id)) {
        if (base_[at(operand)] == kNone) continue;
        const std::int32_t from = number[at(kernel_.find(base_[at(operand)]))];
        if (from == n) continue;
        reads[at(n)].push_back(from);
        is_read[at(from)] = 1;
      }
    }
    std::vector<int> roots;
    if (step_.loss_node != graph::kNone && base_[at(step_.loss_node)] != kNone)
      roots.push_back(number[at(kernel_.find(base_[at(step_.loss_node)]))]);
    for (std::size_t n = 0; n < heaviest.size(); ++n) {
      if (!is_read[n]) roots.push_back(static_cast<int>(n));
    }
    const std::vector<int> order = finish_order(reads, roots);
    AM_CHECK(order.size() == heaviest.size());  // joining made no cycle
    std::vector<TaskId> task_of_number(heaviest.size());
    for (std::size_t t = 0; t < order.size(); ++t) task_of_number[at(order[t])] = static_cast<TaskId>(t);
    task_of_.assign(at(flow_.size()), kNone);
    main_.resize(order.size());
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (base_[at(id)] != kNone) task_of_[at(id)] = task_of_number[at(number[at(kernel_.find(base_[at(id)]))])];
    }
    describe_tasks(order, heaviest);
  }

  void describe_tasks(const std::vector<int>& order, const std::vector<NodeId>& heaviest) {
    const graph::LayerNames layers = graph::name_layers(step_, order_);
    for (std::size_t t = 0; t < order.size(); ++t) {
      const NodeId main = heaviest[at(order[t])];
      main_[t] = main;
      Task task;
      const graph::Instruction& instruction = graph_.instruction(flow_.node(main).instruction);
      task.name = std::string(instruction.name);
      task.opcode = std::string(instruction.opcode_name);
      const std::int32_t place = place_[at(main)];
      if (place != graph::kNone && at(place) < layers.name.size()) task.layer = layers.name[at(place)];
      task.pass = pass_of(at_.part(main));
      task.pinned = task.pass == Pass::kState;
      out_.graph.tasks.push_back(std::move(task));
    }
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (is_made(id)) out_.graph.tasks[at(task_of_[at(id)])].ms += ms_[at(id)];
    }
    for (const graph::EntryInput& input : step_.inputs) {
      const TaskId t = task_of_[at(input.node)];
      if (t != kNone) out_.graph.tasks[at(t)].name = input.name;
    }
  }

  // Charges values that are at hand everywhere and take time all the same (a table of constants) to their first reader.
  void charge_free() {
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (base_[at(id)] != kNone || ms_[at(id)] <= 0) continue;
      TaskId first = kNone;
      for (const NodeId user : flow_.users(id)) {
        const TaskId t = task_of_[at(user)];
        if (t != kNone && (first == kNone || t < first)) first = t;
      }
      if (first != kNone) {
        out_.graph.tasks[at(first)].ms += ms_[at(id)];
      } else if (!flow_.users(id).empty()) {
        ms_[at(flow_.users(id)[0])] += ms_[at(id)];  // further on, in the same manner
      }
    }
  }

  // --- What they send each other ---

  void find_values() {
    std::vector<std::vector<TaskId>> readers(at(flow_.size()));  // by base
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (!is_made(id) || flow_.producer(id) != id) continue;
      for (const NodeId operand : flow_.operands(id)) {
        const NodeId base = base_[at(operand)];
        if (base != kNone && task_of_[at(base)] != task_of_[at(id)]) readers[at(base)].push_back(task_of_[at(id)]);
      }
    }
    for (NodeId id = 0; id < flow_.size(); ++id) {
      auto& tasks = readers[at(id)];
      if (tasks.empty()) continue;
      std::sort(tasks.begin(), tasks.end());
      tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
      out_.graph.values.push_back({task_of_[at(id)], static_cast<double>(flow_.shape(id).bytes), std::move(tasks)});
    }
  }

  void find_units() {
    const graph::VariableUpdates updates = graph::find_variable_updates(step_);
    Sets units(out_.graph.tasks.size());
    const auto join = [&](NodeId a, NodeId b, bool pin) {
      const TaskId s = task_of_[at(a)], t = task_of_[at(b)];
      if (s == kNone || t == kNone) return;
      units.join(s, t);
      for (const TaskId one : {s, t}) out_.graph.tasks[at(one)].pinned = out_.graph.tasks[at(one)].pinned || pin;
    };
    const auto variable = [&](std::int32_t v) { return step_.inputs[at(step_.variables[at(v)])].node; };
    for (std::size_t i = 0; i < step_.inputs.size(); ++i) {
      const graph::EntryInput& input = step_.inputs[i];
      if (input.result != graph::kNone) join(input.node, flow_.results()[at(input.result)], true);
      if (updates.slot_of[i] != graph::kNone) join(input.node, variable(updates.slot_of[i]), true);
    }
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (updates.worker_of[at(id)] != graph::kNone && is_made(id) && at_.part(id) == Part::kOptimizer)
        join(id, variable(updates.worker_of[at(id)]), true);
    }
    if (colocate_ == Colocate::kPasses) {
      for (std::size_t t = 0; t < main_.size(); ++t) {
        const std::int32_t place = place_[at(main_[t])];
        if (place != graph::kNone && at_.part(main_[t]) == Part::kBackward)
          join(main_[t], order_.order[at(place)], false);
      }
      for (const std::int32_t v : step_.variables) {
        const NodeId node = step_.inputs[at(v)].node;
        if (at_.first_use(node) != graph::kNone) join(node, order_.order[at(at_.first_use(node))], false);
      }
    }
    for (TaskId t = 0; t < out_.graph.size(); ++t) out_.graph.tasks[at(t)].unit = units.find(t);
  }

  // --- What stays ---

  void count_memory() {
    WorkGraph& g = out_.graph;
    for (const graph::EntryInput& input : step_.inputs) {
      const TaskId t = task_of_[at(input.node)];
      if (t != kNone) g.tasks[at(t)].memory_bytes += static_cast<double>(flow_.shape(input.node).bytes);
    }
    for (const Value& value : g.values) {
      Task& maker = g.tasks[at(value.producer)];
      const bool kept = std::any_of(value.consumers.begin(), value.consumers.end(),
                                    [&](TaskId t) { return g.tasks[at(t)].pass == Pass::kBackward; });
      if (maker.pass == Pass::kForward && kept) maker.memory_bytes += value.bytes;
    }
  }

  void sum_up() {
    out_.training = step_.training;
    for (const Task& task : out_.graph.tasks) {
      switch (task.pass) {
        case Pass::kForward: out_.forward_ms += task.ms; break;
        case Pass::kBackward: out_.backward_ms += task.ms; break;
        case Pass::kUpdate: out_.update_ms += task.ms; break;
        case Pass::kState:
        case Pass::kOther: out_.other_ms += task.ms; break;
      }
    }
    const double all = out_.graph.total_ms();
    for (const Task& task : out_.graph.tasks) {
      if (task.opcode != "while" && task.opcode != "fusion") continue;
      if (task.ms < kMuch * all) continue;
      out_.warnings.push_back(task.opcode + " " + task.name + " takes " + format_percent(task.ms / all) +
                              " of the compute and is one task: nobody looks inside it");
    }
  }

  const graph::Graph& graph_;
  const graph::TrainingStep& step_;
  const graph::FlowGraph& flow_;
  const graph::FlowOrder order_;
  const profile::StepPositions at_;
  const std::vector<bool> free_;
  const Colocate colocate_;
  std::vector<double> ms_;           // by node, and so are the next ones
  std::vector<std::int32_t> place_;  // the forward position of forward and backward nodes
  std::vector<NodeId> base_;
  Sets kernel_;
  std::vector<TaskId> task_of_;
  std::vector<NodeId> main_;  // by task
  TrainingGraph out_;
};

}  // namespace

TrainingGraph training_graph_of(const graph::Graph& graph, const graph::TrainingStep& step,
                                const machine::DeviceModel& device, Colocate colocate) {
  return GraphMaker(graph, step, device, colocate).run();
}

}  // namespace automap::heuristics
