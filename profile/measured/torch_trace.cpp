// Traces of torch.profiler: each kernel was launched from somewhere (they share a correlation), and what the host was
// in there names it: modules (with_stack and with_modules, or an export of both) and record_function. What autograd
// does is the backward pass of the forward operation that has its sequence number, and so of the modules that one was
// in.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "profile/measured/forms.h"
#include "profile/measured/trace_events.h"

namespace automap::measured {
namespace {

using Range = TraceEvents::Range;

// The places of the host: paths of modules and annotations, as a tree.
class Scopes {
 public:
  static constexpr std::uint32_t kNowhere = 0;

  std::uint32_t inside(std::uint32_t scope, std::uint32_t name) {
    const auto [at, is_new] = children_.emplace(std::pair(scope, name), static_cast<std::uint32_t>(parents_.size()));
    if (is_new) {
      parents_.push_back(scope);
      names_.push_back(name);
    }
    return at->second;
  }
  std::string path(std::uint32_t scope, const Names& names) const {
    std::vector<std::string> parts;
    for (; scope != kNowhere; scope = parents_[scope]) parts.push_back(names.text(names_[scope]));
    std::reverse(parts.begin(), parts.end());
    return join(parts, "/");
  }

 private:
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> children_;
  std::vector<std::uint32_t> parents_{0}, names_{0};
};

struct Place {
  std::uint32_t scope = Scopes::kNowhere;
  bool backward = false, optimizer = false;
  std::int64_t sequence = -1;  // of the forward operation, in the backward pass
};

// Modules, annotations and operations inside of each other; real ones are some 60 deep.
constexpr std::size_t kMostDepth = 256;

// True if `range` runs behind a range that ends at `end`, not inside of it. Ends are rounded: siblings overlap by a
// hair, and a child may end a hair behind its parent. The middle of the range tells the two apart.
bool runs_behind(const Range& range, double end) {
  return range.begin + (range.end - range.begin) / 2 >= end;
}

// Finds the place of the host at each launch. `forward`: by sequence number, the places of forward operations.
class Sweep {
 public:
  Sweep(TraceEvents* events, Scopes* scopes, const std::string& source)
      : events_(*events), scopes_(*scopes), source_(source) {
    std::sort(events_.ranges.begin(), events_.ranges.end(), [](const Range& a, const Range& b) {
      if (a.thread != b.thread) return a.thread < b.thread;
      if (a.begin != b.begin) return a.begin < b.begin;
      return a.end > b.end;
    });
    std::sort(events_.launches.begin(), events_.launches.end(),
              [](const TraceEvents::Launch& a, const TraceEvents::Launch& b) {
                return a.thread != b.thread ? a.thread < b.thread : a.begin < b.begin;
              });
    run();
  }

  // By correlation; null: nobody launched it.
  const Place* place(std::int64_t correlation) const {
    const auto found = places_.find(correlation);
    return found == places_.end() ? nullptr : &found->second;
  }
  std::uint32_t scope(const Place& place) const {
    if (place.scope != Scopes::kNowhere || place.sequence < 0) return place.scope;
    const auto found = forward_.find(place.sequence);
    return found == forward_.end() ? Scopes::kNowhere : found->second;
  }
  double launched(std::int64_t correlation) const { return launched_.at(correlation); }

 private:
  struct Open {
    double end = 0;
    Place place;
  };

  void enter(const Range& range) {
    while (!open_.empty() && (open_.back().end <= range.begin || runs_behind(range, open_.back().end)))
      open_.pop_back();
    if (open_.size() == kMostDepth) {
      throw Error(ErrorKind::kData,
                  source_ + ": '" + excerpt(events_.names.text(range.name), kShownColumns) + "' is inside of " +
                      format_count(static_cast<long long>(kMostDepth)) + " other ranges, the most there can be",
                  kMeasuredHint);
    }
    Open open;
    open.end = range.end;
    if (!open_.empty()) {
      open.end = std::min(open.end, open_.back().end);  // so that the innermost is the first to end
      open.place = open_.back().place;
    }
    switch (range.kind) {
      case Range::Kind::kModule:
      case Range::Kind::kAnnotation: open.place.scope = scopes_.inside(open.place.scope, range.name); break;
      case Range::Kind::kOptimizer:
      case Range::Kind::kZeroGradients: open.place.optimizer = true; break;
      case Range::Kind::kStep: break;
      case Range::Kind::kForwardOp:
        // The last that begins with a number is the one that autograd notes it of.
        (open.place.backward ? recomputed_ : forward_)[range.sequence] = open.place.scope;
        break;
      case Range::Kind::kBackwardOp:
        // Threads of autograd are in no module; one that the user's thread waits in is.
        if (!open.place.backward) {
          open.place.scope = Scopes::kNowhere;
        } else if (const auto again = recomputed_.find(range.sequence); again != recomputed_.end()) {
          // A checkpoint has recomputed this within the backward pass; it is found by the thread's own numbers.
          if (again->second != Scopes::kNowhere) open.place.scope = again->second;
        }
        open.place.backward = true;
        if (range.sequence >= 0) open.place.sequence = range.sequence;
        break;
    }
    open_.push_back(open);
  }

  void go_to(std::uint32_t thread) {
    if (thread == thread_) return;
    open_.clear();
    recomputed_.clear();
    thread_ = thread;
  }

  void run() {
    std::size_t next = 0;
    const auto enter_until = [&](std::uint32_t thread, double time) {
      for (; next < events_.ranges.size(); ++next) {
        const Range& range = events_.ranges[next];
        if (range.thread > thread || (range.thread == thread && range.begin > time)) return;
        go_to(range.thread);
        enter(range);
      }
    };
    for (const TraceEvents::Launch& launch : events_.launches) {
      enter_until(launch.thread, launch.begin);
      go_to(launch.thread);
      while (!open_.empty() && open_.back().end <= launch.begin) open_.pop_back();
      places_.emplace(launch.correlation, open_.empty() ? Place() : open_.back().place);
      launched_.emplace(launch.correlation, launch.begin);
    }
    enter_until(static_cast<std::uint32_t>(events_.threads.size()), 0);
  }

  TraceEvents& events_;
  Scopes& scopes_;
  const std::string& source_;
  std::vector<Open> open_;
  std::uint32_t thread_ = 0;
  std::unordered_map<std::int64_t, std::uint32_t> forward_, recomputed_;  // scopes of forward operations
  std::unordered_map<std::int64_t, Place> places_;
  std::unordered_map<std::int64_t, double> launched_;
};

// The steps that the user's loop told the profiler of.
class Steps {
 public:
  explicit Steps(const std::vector<Range>& ranges) {
    for (const Range& range : ranges) {
      if (range.kind == Range::Kind::kStep) steps_.emplace_back(range.begin, range.end);
    }
    std::sort(steps_.begin(), steps_.end());
  }
  bool any() const { return !steps_.empty(); }
  std::int64_t count() const { return static_cast<std::int64_t>(steps_.size()); }
  bool covers(double time) const {
    auto after = std::upper_bound(steps_.begin(), steps_.end(), std::pair(time, time),
                                  [](const auto& a, const auto& b) { return a.first < b.first; });
    return after != steps_.begin() && time < (--after)->second;
  }

 private:
  std::vector<std::pair<double, double>> steps_;
};

// Without those: how often the optimizer ran, else how often the outermost module did. Several optimizers of a step run
// with no module between them.
std::int64_t repeated(const TraceEvents& events, std::string* by) {
  std::vector<std::pair<double, double>> updates;
  std::vector<double> modules;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> outermost;  // by thread and name
  std::map<std::uint32_t, double> busy;                                       // until when
  for (const Range& range : events.ranges) {
    if (range.kind == Range::Kind::kOptimizer) updates.emplace_back(range.begin, range.end);
    if (range.kind != Range::Kind::kModule) continue;
    modules.push_back(range.begin);
    double& until = busy[range.thread];
    if (!runs_behind(range, until)) continue;
    until = range.end;
    ++outermost[{range.thread, range.name}];
  }
  if (!updates.empty()) {
    std::sort(updates.begin(), updates.end());
    std::sort(modules.begin(), modules.end());
    std::int64_t steps = 1;
    double end = updates.front().second;
    for (const auto& update : updates) {
      const auto ran = std::lower_bound(modules.begin(), modules.end(), end);
      if (modules.empty() ? update.first >= end : ran != modules.end() && *ran < update.first) ++steps;
      end = std::max(end, update.second);
    }
    *by = "Optimizer.step";
    return steps;
  }
  std::int64_t most = 1;
  for (const auto& [module, count] : outermost) most = std::max(most, count);
  if (most > 1) *by = "how often the outermost module ran";
  return most;
}

}  // namespace

MeasuredTimes torch_times(TraceEvents events, const std::string& source) {
  if (events.kernels.empty()) {
    throw Error(ErrorKind::kData, source + ": of " + format_count(events.seen) + " events none is a kernel of a device",
                "trace with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], "
                "with_stack=True, with_modules=True)");
  }
  Scopes scopes;
  const Sweep sweep(&events, &scopes, source);
  const Steps steps(events.ranges);
  MeasuredTimes out;
  out.source = source;
  out.form = "PyTorch trace";
  std::map<std::pair<std::uint32_t, bool>, std::pair<double, std::int64_t>> by_scope;  // us and kernels of each pass
  double nameless = 0, communication = 0, update = 0;
  std::int64_t updates = 0;
  std::map<std::int64_t, bool> devices;
  for (const TraceEvents::Kernel& kernel : events.kernels) {
    const Place* const place = sweep.place(kernel.correlation);
    if (steps.any() && !steps.covers(place == nullptr ? kernel.begin : sweep.launched(kernel.correlation))) continue;
    devices[kernel.device] = true;
    const std::string& name = events.names.text(kernel.name);
    const std::uint32_t scope = place == nullptr ? Scopes::kNowhere : sweep.scope(*place);
    if (name.find("nccl") != std::string::npos || begins(name, "Memcpy HtoD") || begins(name, "Memcpy DtoH")) {
      communication += kernel.us;
    } else if (place != nullptr && place->optimizer) {
      update += kernel.us;
      ++updates;
    } else if (scope == Scopes::kNowhere) {
      nameless += kernel.us;
    } else {
      auto& [us, count] = by_scope[{scope, place->backward}];
      us += kernel.us;
      ++count;
    }
  }
  if (devices.empty()) {
    throw Error(
        ErrorKind::kData,
        source + ": no kernel was launched in one of its " + format_count(steps.count()) + " steps (ProfilerStep)",
        kMeasuredHint);
  }
  if (steps.any()) {
    out.steps = steps.count();
    out.steps_by = "ProfilerStep";
  } else {
    out.steps = repeated(events, &out.steps_by);
    out.notes.push_back(
        "nothing in the trace says where a step begins (ProfilerStep, by profiler.step()): it is taken for " +
        format_count(out.steps) + (out.steps == 1 ? " step" : " steps") +
        (out.steps_by.empty() ? "" : ", by " + out.steps_by));
  }
  if (events.skipped > 0) {
    out.notes.push_back(format_count(events.skipped) +
                        " of the host's ranges, which would end before they begin, left out");
  }
  out.devices = static_cast<int>(devices.size());
  const double share = 1e-3 / (static_cast<double>(out.steps) * out.devices);
  out.nameless_ms = nameless * share;
  out.communication_ms = communication * share;
  std::map<std::uint32_t, MeasuredTime> times;
  for (const auto& [key, counted] : by_scope) {
    MeasuredTime& time = times[key.first];
    time.named = Named::kScope;
    (key.second ? time.backward_ms : time.forward_ms) = counted.first * share;
    time.count = counted.second + (time.name.empty() ? 0 : time.count);
    time.name = scopes.path(key.first, events.names);
  }
  for (auto& [scope, time] : times) out.times.push_back(std::move(time));
  if (updates > 0) {
    MeasuredTime time;
    time.named = Named::kOptimizer;
    time.name = "Optimizer.step";
    time.forward_ms = update * share;
    time.count = updates;
    out.times.push_back(std::move(time));
  }
  return out;
}

}  // namespace automap::measured
