// Traces of JAX's profiler: what ran of which HLO instruction. A device's streams say it, or its line "XLA Ops" where
// it has no streams (TPU); of a module on the CPU, its threads. Other lines tell the same time again and are not read.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/text_table.h"
#include "profile/measured/forms.h"
#include "profile/measured/trace_events.h"

namespace automap::measured {
namespace {

using Op = TraceEvents::Op;

bool communicates(std::string_view instruction) {
  for (const std::string_view name : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all",
                                      "collective-", "send", "recv"}) {
    if (begins(instruction, name)) return true;
  }
  return false;
}

constexpr const char* kOpsLine = "XLA Ops";
constexpr const char* kModulesLine = "XLA Modules";

// "jit_step(1234)": behind the name stands a fingerprint.
std::string module_name(const std::string& text) {
  return text.substr(0, text.find('('));
}

// Ops of TPUs do not say their module: it is the one of their process that runs meanwhile.
void name_modules(TraceEvents* events) {
  struct Run {
    double begin, end;
    std::uint32_t module;
  };
  std::map<std::string, std::vector<Run>> runs;  // by process
  for (const Op& op : events->ops) {
    const TraceThread& thread = events->threads[op.thread];
    if (thread.name != kModulesLine) continue;
    const std::uint32_t module = events->names.id(module_name(events->names.text(op.name)));
    runs[thread.process].push_back({op.begin, op.begin + op.us, module});
  }
  for (auto& [process, all] : runs) {
    std::sort(all.begin(), all.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
  }
  const std::uint32_t none = events->names.id("");
  for (Op& op : events->ops) {
    const TraceThread& thread = events->threads[op.thread];
    const auto found = runs.find(thread.process);
    if (op.module != none || thread.name != kOpsLine || found == runs.end()) continue;
    // The middle of it: ends are rounded.
    const double middle = op.begin + op.us / 2;
    auto after = std::upper_bound(found->second.begin(), found->second.end(), middle,
                                  [](double time, const Run& run) { return time < run.begin; });
    if (after != found->second.begin() && middle <= (--after)->end) op.module = after->module;
  }
}

// The lines that count.
std::vector<bool> lines_of_devices(const TraceEvents& events) {
  std::map<std::string, std::vector<std::size_t>> streams, ops;  // by process
  std::vector<bool> has_ops(events.threads.size(), false);
  for (const Op& op : events.ops) {
    if (op.hlo) has_ops[op.thread] = true;
  }
  for (std::size_t i = 0; i < events.threads.size(); ++i) {
    const TraceThread& thread = events.threads[i];
    if (!begins(thread.process, "/device:")) continue;
    if (has_ops[i] && begins(thread.name, "Stream #")) streams[thread.process].push_back(i);
    if (thread.name == kOpsLine) ops[thread.process].push_back(i);
  }
  for (auto& [process, lines] : ops) {
    if (streams.count(process) == 0) streams[process] = lines;
  }
  std::vector<bool> counts(events.threads.size(), false);
  for (const auto& [process, lines] : streams) {
    for (const std::size_t i : lines) counts[i] = true;
  }
  // On the CPU it is the host's threads.
  return streams.empty() ? has_ops : counts;
}

// Sets each op's own time: loops and calls span the ops that they run. `ops` are sorted by line.
void take_inner_times(std::vector<Op>* ops) {
  std::sort(ops->begin(), ops->end(), [](const Op& a, const Op& b) {
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.us > b.us;
  });
  struct Open {
    std::size_t op;
    double end;
  };
  std::vector<Open> open;
  for (std::size_t i = 0; i < ops->size(); ++i) {
    const Op& op = (*ops)[i];
    while (!open.empty() && ((*ops)[open.back().op].thread != op.thread || open.back().end <= op.begin))
      open.pop_back();
    const double end = op.begin + op.us;
    if (!open.empty() && end <= open.back().end) {
      double& outer = (*ops)[open.back().op].us;
      outer = std::max(0.0, outer - op.us);
    }
    open.push_back({i, end});
  }
}

// Runs of the module, on the device that had most. `ops` are its own, by line and time.
std::int64_t count_steps(const TraceEvents& events, const std::vector<Op>& ops, const std::string& module,
                         std::string* by) {
  std::map<std::string, std::set<std::uint32_t>> runs;
  for (const Op& op : ops) {
    if (!events.names.text(op.run).empty()) runs[events.threads[op.thread].process].insert(op.run);
  }
  std::size_t most = 0;
  for (const auto& [process, ids] : runs) most = std::max(most, ids.size());
  if (most > 0) {
    *by = "run_id";
    return static_cast<std::int64_t>(most);
  }
  std::map<std::string, std::int64_t> modules;
  for (const Op& op : events.ops) {
    const TraceThread& thread = events.threads[op.thread];
    if (thread.name == kModulesLine && (module.empty() || module_name(events.names.text(op.name)) == module)) {
      ++modules[thread.process];
    }
  }
  std::int64_t all = 0;
  for (const auto& [process, count] : modules) all = std::max(all, count);
  if (all > 0) {
    *by = "the runs of the module";
    return all;
  }
  // Counts how often most of the time's instructions ran: those of loops run more often. The kernels of one
  // instruction run one behind the other.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::int64_t, double>> by_op;  // line and name
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool goes_on = i > 0 && ops[i - 1].thread == ops[i].thread && ops[i - 1].name == ops[i].name;
    auto& [count, us] = by_op[{ops[i].thread, ops[i].name}];
    count += goes_on ? 0 : 1;
    us += ops[i].us;
  }
  std::map<std::int64_t, double> by_count;
  for (const auto& [op, counted] : by_op) by_count[counted.first] += counted.second;
  std::int64_t steps = 1;
  double longest = -1;
  for (const auto& [count, us] : by_count) {
    if (us > longest) {
      longest = us;
      steps = count;
    }
  }
  if (steps > 1) *by = "how often its instructions ran";
  return steps;
}

}  // namespace

MeasuredTimes xla_times(TraceEvents events, const std::string& source) {
  name_modules(&events);
  const std::vector<bool> counts = lines_of_devices(events);
  std::vector<Op> ops;
  for (const Op& op : events.ops) {
    if (counts[op.thread] && (op.hlo || events.threads[op.thread].name == kOpsLine)) ops.push_back(op);
  }
  if (ops.empty()) {
    std::set<std::string> processes;
    for (const TraceThread& thread : events.threads) {
      if (!thread.process.empty()) processes.insert(thread.process);
    }
    const std::string seen = processes.empty() ? "" : "; it has those of " + join({processes.begin(), processes.end()});
    throw Error(ErrorKind::kData,
                source + ": of " + format_count(events.seen) + " events none says what ran on a device" + seen,
                "trace on a device: torch.profiler with ProfilerActivity.CUDA, or jax.profiler.start_trace, whose "
                "*.trace.json.gz is meant");
  }
  take_inner_times(&ops);
  // The step is the module that takes longest; others initialize, or convert.
  std::map<std::uint32_t, double> modules;
  for (const Op& op : ops) modules[op.module] += op.us;
  const std::uint32_t module = std::max_element(modules.begin(), modules.end(), [](const auto& a, const auto& b) {
                                 return a.second < b.second;
                               })->first;
  ops.erase(std::remove_if(ops.begin(), ops.end(), [&](const Op& op) { return op.module != module; }), ops.end());
  MeasuredTimes out;
  out.source = source;
  out.form = "XLA trace";
  out.module = events.names.text(module);
  out.steps = count_steps(events, ops, out.module, &out.steps_by);
  std::set<std::string> devices;
  for (const Op& op : ops) devices.insert(events.threads[op.thread].process);
  out.devices = static_cast<int>(devices.size());
  const double share = 1e-3 / (static_cast<double>(out.steps) * out.devices);
  std::map<std::pair<std::string, std::string>, MeasuredTime> times;
  for (const Op& op : ops) {
    const std::string& name = events.names.text(op.name);
    if (communicates(name)) {
      out.communication_ms += op.us * share;
      continue;
    }
    const auto [at, is_new] = times.try_emplace({name, events.names.text(op.op_name)});
    MeasuredTime& time = at->second;
    if (is_new) {
      std::tie(time.name, time.op_name) = at->first;
      time.either_ms = 0;
      time.count = 0;
    }
    *time.either_ms += op.us * share;
    ++time.count;
  }
  for (auto& [key, time] : times) out.times.push_back(std::move(time));
  return out;
}

}  // namespace automap::measured
