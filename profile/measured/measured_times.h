// Reads measured times of a model's computation, whatever tool wrote the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automap::measured {

// The meaning of a name in a file.
enum class Named {
  kInstruction,  // of HLO; with the op_name of its metadata where the file has it
  kScope,        // a path of modules and annotations: "GPT_0/Block_3/Attention_3", "h.3.attn"
  kLayer,        // a layer's name, or its number in the order of the model, from 1
  kEveryLayer,   // each of the numbered layers of one kind; the name is the kind's number, from 0
  kInFront,      // what comes before the first numbered layer
  kBehind,       // what comes behind the last one
  kOutside,      // both
  kPositions,    // a run of the model's positions
  kOptimizer,    // the update of the variables
};

struct MeasuredTime {
  Named named = Named::kInstruction;
  std::string name;
  std::string op_name;
  std::int64_t first = 0, last = 0;  // of kPositions, from 1
  std::int64_t line = 0;             // of the table; 0: the form has no lines
  // Times of one step, in ms. `either`: the file does not tell the pass.
  std::optional<double> forward_ms, backward_ms, either_ms;
  double samples = 0;      // of the micro-batch that was measured; 0: the file does not say
  std::int64_t count = 1;  // how often it ran in all that was measured

  double ms() const { return forward_ms.value_or(0) + backward_ms.value_or(0) + either_ms.value_or(0); }
};

struct MeasuredTimes {
  std::string source;  // the file, for people
  std::string form;    // "PyTorch trace", "per-layer CSV"
  std::vector<MeasuredTime> times;
  // Time of one step, in ms, without a name that could be a model's: kernels outside of all modules.
  double nameless_ms = 0;
  double communication_ms = 0;     // of one step: collectives and copies of the host, which are no computation
  std::int64_t steps = 1;          // that were averaged
  std::string steps_by;            // what they were told by, "ProfilerStep"; empty: the file is of one step
  int devices = 1;                 // that were averaged
  std::int64_t positions = 0;      // of the model that was measured; 0: the file does not say
  std::string model_sha256;        // of the file of that model, where the times say it
  std::string module;              // of an XLA trace: the module that most of the time was in
  std::vector<std::string> notes;  // of what was read, for people
};

// The file's form is told from its bytes, gzipped or not: a trace of torch.profiler, one of JAX's profiler
// (*.trace.json.gz), layers as CSV, a table of operators of Aceso, a computation profile of Galvatron, or the times of
// a folder of programs. docs/profile.md describes what is read of each. A folder is read by its measured.json.
// Throws Error(kIo) where it cannot be read, and Error(kData) naming the place: none of these forms, cut short, a time
// that is negative, no number or beyond in_file_range(), no times at all, more than kMostEvents events.
MeasuredTimes read_measured(const std::string& path);
// Reads bytes that were already read from a file.
MeasuredTimes parse_measured(std::string bytes, const std::string& source);

// The most events of one trace: a day of steps; a stored event takes some 50 bytes.
constexpr std::int64_t kMostEvents = 50'000'000;

}  // namespace automap::measured
