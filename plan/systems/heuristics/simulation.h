// Simulates a step of a divided graph, event by event: devices that run one task after the other, messages that queue
// for links, and, where they are asked for, scheduling assistants.
//
// In all three modes a task can begin when its operands are on its device. When a task ends, each value that it made is
// sent once to every other device that is to read it, over the link between the two (soap::MachineLinks: a pair of
// devices of a server has one, a server's port is one), in the order in which the tasks end (ties: task, value,
// device); a link carries one message after the other. Memory that a plan needs is there from the beginning.
//
// - Planned: a device that is free begins the task of the highest priority in its queue, which holds the first
//   kQueueLength that were ready; ties go to the earlier task. The priority is the bottom level with messages of mean
//   length. This is what the compiler predicts: its makespan is the one that is reported.
// - Static: the same tasks on the same devices in the same order as planned, whatever they take in truth.
// - Assisted: every device has an assistant, with a queue and counters: the waiting work, in predicted ms; the ratio r
//   of observed to predicted time, as a moving average; the tasks under way to it. Of every task it has the compiler's
//   descriptor: home, priority, predicted time on every device, the latest start that does not make the step longer,
//   and the alternates, a few devices that may run it. Assistants act when a task ends and when a device is free:
//     (a) reorder: the ready task of the highest priority begins, not the next one of the order;
//     (b) pull: a free device looks at the queues of the devices with most waiting, and takes the last of a queue that
//         lists it, if the task is late at home, and less late here, both by more than theta. Late is the time by which
//         it makes the step longer: readers get its values after their latest start, with messages and the queues
//         before them on their links included; here also, the device's own next task begins after its latest start;
//     (c) push: a device whose r is above 1 + tau asks the same for its alternates, of tasks as they come to it and of
//         the last of its queue as it ends one;
//     (d) the values of a moved task are where it ran: readers get them from the nearest copy;
//     (e) a compiler gets the ratios to plan anew ("feedback").
//   A task moves at most once, and only where the device has memory for its operands and results, beside the plan and
//   earlier moves. So with observed times as predicted nothing is late, and assisted is planned is static. A task that
//   is behind the plan and holds nobody up stays where it is: it would be in the way elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/systems/heuristics/division.h"

namespace automap::heuristics {

constexpr std::size_t kQueueLength = 64;

struct TaskRun {
  DeviceId device = kNone;
  double start_ms = 0, end_ms = 0;
};

struct MessageRun {
  ValueId value = 0;
  DeviceId from = 0, to = 0;
  double start_ms = 0, end_ms = 0;
};

struct Execution {
  double makespan_ms = 0;
  std::vector<TaskRun> tasks;        // by task
  std::vector<MessageRun> messages;  // in the order in which they were sent
  std::vector<double> ratios;        // by device: r at the end; 1 without assistants
  std::vector<double> extra_bytes;   // by device: what moved tasks needed there
  int pulled = 0, pushed = 0;        // tasks
};

// Conditions of a run that were not predicted: a task takes p * noise[task] * slow[device].
struct Conditions {
  std::vector<double> noise, slow;
};
Conditions no_surprise(const WorkGraph& graph, const Machine& machine);
// Noise of a logarithm with normal distribution of mean 0 and deviation sigma; one device is slow.
Conditions draw_conditions(const WorkGraph& graph, const Machine& machine, double sigma, DeviceId straggler,
                           double slow, std::uint64_t seed, std::uint64_t run);

struct AssistantRules {
  double theta_ms = 0;  // > 0: what a move must gain
  double tau = 0.1;     // how far r must be above 1 to push
  double newest = 0.1;  // weight of the newest observation in r, in (0, 1]: with more, one long task is a slow device
  int alternates = 4;   // of a task
};

// The schedule that the compiler gives to the devices.
struct Schedule {
  std::vector<DeviceId> home;              // by task
  std::vector<double> priority;            // by task, ms
  std::vector<std::vector<TaskId>> order;  // by device
  Execution planned;
  std::vector<double> latest_start;  // by task: begun later, it makes the step longer though all else is as planned
};

// `devices` by unit, all with a place.
Schedule plan_schedule(const WorkGraph& graph, const Machine& machine, const Devices& devices);
Execution run_static(const WorkGraph& graph, const Machine& machine, const Schedule& schedule,
                     const Conditions& conditions);
Execution run_assisted(const WorkGraph& graph, const Machine& machine, const Schedule& schedule,
                       const Conditions& conditions, const AssistantRules& rules);

}  // namespace automap::heuristics
