// Reads traces of torch.profiler and of JAX's profiler: trace events as JSON. It keeps only those events that say when
// computation ran and for whom.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profile/measured/measured_times.h"

namespace automap::measured {

// Texts, each once: what an event holds of its names is a number.
class Names {
 public:
  std::uint32_t id(const std::string& text);
  const std::string& text(std::uint32_t id) const { return *texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_, which do not move
};

struct TraceThread {
  std::string process, name;
};

// Times in microseconds, as in the file.
struct TraceEvents {
  Names names;
  std::vector<TraceThread> threads;

  // torch.profiler: the kernels that ran on a device, ...
  struct Kernel {
    double begin = 0, us = 0;
    std::int64_t correlation = 0;
    std::int64_t device = 0;
    std::uint32_t name = 0;
  };
  // ... who launched it, ...
  struct Launch {
    std::int64_t correlation = 0;
    double begin = 0;
    std::uint32_t thread = 0;
  };
  // ... and what the host was doing.
  struct Range {
    enum class Kind : std::uint8_t {
      kModule,         // forward of an nn.Module
      kAnnotation,     // record_function
      kStep,           // ProfilerStep#N
      kOptimizer,      // Optimizer.step
      kZeroGradients,  // Optimizer.zero_grad
      kForwardOp,      // an operation that autograd will differentiate
      kBackwardOp,     // what it does for one
    };
    double begin = 0, end = 0;
    std::int64_t sequence = -1;  // by which autograd finds the forward operation
    std::uint32_t thread = 0, name = 0;
    Kind kind = Kind::kModule;
  };
  std::vector<Kernel> kernels;
  std::vector<Launch> launches;
  std::vector<Range> ranges;

  // JAX's profiler: the operations that ran.
  struct Op {
    double begin = 0, us = 0;
    std::uint32_t thread = 0, name = 0, op_name = 0, module = 0, run = 0;
    bool hlo = false;  // it says itself of which instruction it is
  };
  std::vector<Op> ops;

  std::int64_t seen = 0;     // events of the file, of all kinds
  std::int64_t skipped = 0;  // ranges that end before they begin, which are not kept
};

// Throws Error(kData): no trace, cut short, a time that cannot be one, more than kMostEvents.
TraceEvents read_trace_events(std::string_view text, const std::string& source);

// The times of a trace of torch.profiler, and of one of JAX's profiler.
MeasuredTimes torch_times(TraceEvents events, const std::string& source);
MeasuredTimes xla_times(TraceEvents events, const std::string& source);

}  // namespace automap::measured
