#include "profile/measured/trace_events.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "common/base/error.h"
#include "common/base/json_reader.h"
#include "common/base/text_table.h"
#include "profile/measured/forms.h"

namespace automap::measured {

std::uint32_t Names::id(const std::string& text) {
  const auto [at, is_new] = ids_.emplace(text, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(&at->first);
  return at->second;
}

namespace {

class TraceReader {
 public:
  explicit TraceReader(const std::string& source) : source_(source) {}

  void read(const Json& event) {
    ++events_.seen;
    if (!event.is_object()) fail("found " + std::string(event.type_name()) + ", expected an event, an object");
    const std::string& phase = text(event, "ph");
    if (phase == "M") {
      read_name(event);
    } else if (phase == "X") {
      read_complete(event);
    }
    const std::size_t kept =
        events_.kernels.size() + events_.launches.size() + events_.ranges.size() + events_.ops.size();
    if (kept > static_cast<std::size_t>(kMostEvents)) {
      throw Error(ErrorKind::kData, source_ + ": more than " + format_count(kMostEvents) + " events",
                  "trace some steps, not the whole run");
    }
  }

  TraceEvents take() {
    for (std::size_t i = 0; i < events_.threads.size(); ++i) {
      const auto found = processes_.find(thread_process_[i]);
      if (found != processes_.end()) events_.threads[i].process = found->second;
    }
    return std::move(events_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, where() + ": " + what, kMeasuredHint);
  }
  std::string where() const { return source_ + ": traceEvents[" + std::to_string(events_.seen - 1) + "]"; }

  // Empty where there is none.
  static const std::string& text(const Json& object, std::string_view key) {
    static const std::string none;
    const Json* const found = object.find(key);
    return found != object.end() && found->is_string() ? found->string() : none;
  }
  static const Json& member(const Json& object, std::string_view key) {
    static const Json none;
    const Json* const found = object.find(key);
    return found != object.end() ? *found : none;
  }
  // Numbers come as such or as texts.
  static std::string any(const Json& value) {
    return value.is_string() ? value.string() : value.is_number_integer() ? value.dump() : std::string();
  }
  static std::int64_t whole(const Json& object, std::string_view key, std::int64_t absent) {
    const Json& value = member(object, key);
    if (value.is_string()) {
      const std::string& digits = value.string();
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      return !digits.empty() && error == std::errc() && end == digits.data() + digits.size() ? number : absent;
    }
    return value.is_number_integer() ? value.get<std::int64_t>() : absent;
  }

  double microseconds(const Json& event, std::string_view key) const {
    const Json& value = member(event, key);
    const std::string place = where() + ": " + std::string(key);
    return value.is_string() ? time_of_text(value.string(), place) : time_of_json(value, place);
  }

  std::uint32_t thread(const Json& event) {
    const std::string process = any(member(event, "pid"));
    const auto [at, is_new] = thread_ids_.emplace(process + '\n' + any(member(event, "tid")),
                                                  static_cast<std::uint32_t>(thread_process_.size()));
    if (is_new) {
      thread_process_.push_back(process);
      events_.threads.emplace_back();
    }
    return at->second;
  }

  void read_name(const Json& event) {
    const std::string& what = text(event, "name");
    const std::string& name = text(member(event, "args"), "name");
    if (what == "process_name") processes_[any(member(event, "pid"))] = name;
    if (what == "thread_name") events_.threads[thread(event)].name = name;
  }

  void read_complete(const Json& event) {
    std::string category = text(event, "cat");
    // Before 2022: "Kernel", "Memcpy", "Runtime", "Operator".
    for (char& c : category) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (category == "operator") category = "cpu_op";
    const Json& args = member(event, "args");
    if (category.empty()) return read_op(event, args);
    if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset" || category == "memcpy" ||
        category == "memset") {
      TraceEvents::Kernel kernel;
      kernel.begin = microseconds(event, "ts");
      kernel.us = microseconds(event, "dur");
      kernel.correlation = whole(args, "correlation", -1);
      kernel.device = whole(args, "device", 0);
      kernel.name = events_.names.id(text(event, "name"));
      events_.kernels.push_back(kernel);
    } else if (category == "cuda_runtime" || category == "cuda_driver" || category == "runtime") {
      const std::int64_t correlation = whole(args, "correlation", -1);
      if (correlation < 0) return;
      events_.launches.push_back({correlation, microseconds(event, "ts"), thread(event)});
    } else if (category == "cpu_op" || category == "user_annotation" || category == "python_function") {
      read_range(event, category, args);
    }
  }

  void read_range(const Json& event, const std::string& category, const Json& args) {
    using Kind = TraceEvents::Range::Kind;
    constexpr std::string_view kModule = "nn.Module: ";
    std::string name = text(event, "name");
    TraceEvents::Range range;
    range.sequence = whole(args, "Sequence number", -1);
    if (begins(name, "ProfilerStep#")) {
      range.kind = Kind::kStep;
    } else if (begins(name, "Optimizer.step")) {
      range.kind = Kind::kOptimizer;
    } else if (begins(name, "Optimizer.zero_grad")) {
      range.kind = Kind::kZeroGradients;
    } else if (begins(name, "enumerate(DataLoader)")) {
      return;  // an annotation that torch makes by itself, around the wait for data
    } else if (category == "python_function") {
      if (!begins(name, kModule)) return;
      name.erase(0, kModule.size());
    } else if (category == "user_annotation") {
      range.kind = Kind::kAnnotation;
    } else if (begins(name, "autograd::engine::evaluate_function") || whole(args, "Fwd thread id", 0) > 0) {
      range.kind = Kind::kBackwardOp;
    } else if (range.sequence >= 0) {
      range.kind = Kind::kForwardOp;
    } else {
      return;
    }
    // Profilers write some of these where a range was still open at the end.
    if (const Json& dur = member(event, "dur"); dur.is_number() && dur.get<double>() < 0) {
      ++events_.skipped;
      return;
    }
    range.begin = microseconds(event, "ts");
    range.end = range.begin + microseconds(event, "dur");
    range.thread = thread(event);
    range.name = events_.names.id(name);
    events_.ranges.push_back(range);
  }

  // Reads an event of XLA's, which has no category.
  void read_op(const Json& event, const Json& args) {
    TraceEvents::Op op;
    const std::string& instruction = text(args, "hlo_op");
    op.hlo = !instruction.empty();
    op.begin = microseconds(event, "ts");
    op.us = member(event, "dur").is_null() ? 0 : microseconds(event, "dur");
    op.thread = thread(event);
    op.name = events_.names.id(op.hlo ? instruction : text(event, "name"));
    op.module = events_.names.id(text(args, "hlo_module"));
    op.op_name = events_.names.id(op_name_of(args));
    op.run = events_.names.id(any(member(args, "run_id")));
    events_.ops.push_back(op);
  }

  // The path of scopes, without the type that TensorFlow's profiler puts behind a colon.
  static std::string op_name_of(const Json& args) {
    for (const char* key : {"tf_op", "name"}) {
      std::string path = text(args, key);
      const std::size_t colon = path.rfind(':');
      if (colon != std::string::npos && path.find('/', colon) == std::string::npos) path.resize(colon);
      if (path.find('/') != std::string::npos) return path;
    }
    return "";
  }

  const std::string& source_;
  TraceEvents events_;
  std::unordered_map<std::string, std::uint32_t> thread_ids_;
  std::vector<std::string> thread_process_;                 // by thread
  std::unordered_map<std::string, std::string> processes_;  // names by pid
};

// Whether an error of JSON, "source:line:column: ...", is where the text ends.
bool is_at_end(std::string_view error, std::string_view text, const std::string& source) {
  const auto line = 1 + std::count(text.begin(), text.end(), '\n');
  const std::size_t last = text.size() - (text.rfind('\n') + 1);  // columns of the last line; npos + 1 is 0
  for (std::size_t column = last; column <= last + 1; ++column) {
    if (begins(error, source + ":" + std::to_string(line) + ":" + std::to_string(column) + ":")) return true;
  }
  return false;
}

}  // namespace

TraceEvents read_trace_events(std::string_view text, const std::string& source) {
  TraceReader reader(source);
  const JsonSource from{source, ErrorKind::kData, "some profilers write inf or NaN, which is no JSON: put 0 there"};
  try {
    parse_json_elements(text, from, "traceEvents", [&](const Json& event) { reader.read(event); });
  } catch (const Error& error) {
    if (!is_at_end(error.what(), text, source)) throw;
    throw Error(error.kind(), error.what(),
                "the trace may have been cut short: stop the profiler before the program ends");
  }
  return reader.take();
}

MeasuredTimes read_trace(std::string_view text, const std::string& source) {
  TraceEvents events = read_trace_events(text, source);
  const bool torch = !events.kernels.empty() || !events.ranges.empty() || !events.launches.empty();
  return torch ? torch_times(std::move(events), source) : xla_times(std::move(events), source);
}

}  // namespace automap::measured
