// Sources of training problems: a generator of random rows, a dataset of rows, or one model on one cluster varied at
// random (fine-tuning). Problem i depends on (source, seed, i) only; every function may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/plan.h"
#include "common/pipeline/profile.h"
#include "common/pipeline/row_problem.h"

namespace automap::train {

struct TrainingProblem {
  pipeline::ProblemParts parts;  // every instruction is a pivot
  int stages = 2;
  pipeline::Schedule schedule = pipeline::Schedule::k1f1b;
  int family = 0;
  // The exact optimum, when the source knows it.
  std::optional<pipeline::Plan> optimum;
  double optimum_ms = 0;
};

class ProblemSource {
 public:
  virtual ~ProblemSource() = default;
  virtual TrainingProblem problem(std::uint64_t i) const = 0;
  // The number of problems where it is finite; 0: unlimited.
  virtual std::uint64_t size() const { return 0; }
  virtual const std::vector<std::string>& families() const = 0;
  // A text that changes with anything that changes the problems.
  virtual std::string fingerprint() const = 0;
};

// The rows of a dataset that a source gives. In every full block of 16 rows one row, drawn at random from the block's
// number alone, is held out: in even blocks to choose the best policy of a run, in odd blocks for --evaluate and
// --compare. The three parts share no row, whatever the seed. In a dataset from which nothing is learned
// (--evaluate-data) one of every two rows, drawn at random from their number alone, serves the first purpose and the
// other row the second.
enum class Rows : std::uint8_t { kAll, kLearned, kChosenBy, kJudgedBy, kAllChosenBy, kAllJudgedBy };
constexpr std::uint64_t kRowsPerHeldOut = 16;

// `data` is "synth:CONFIG" (a built-in configuration or a JSON file; all of it whatever `rows` says) or the folder of a
// dataset, whose rows are taken in order and again from the start. `only` and `without` choose among the generator's
// families. No row of a shard is given out before all of the shard has been compared with its checksum, unless the data
// are trusted. Throws Error(kUsage/kConfig/kIo/kData) as the generator and the dataset reader do, and Error(kData) for
// a part of a dataset of fewer than 32 rows (with --evaluate-data, 2).
std::unique_ptr<ProblemSource> open_source(const std::string& data, std::uint64_t seed,
                                           const std::vector<std::string>& only,
                                           const std::vector<std::string>& without, bool trust_data = false,
                                           Rows rows = Rows::kAll);

// Gives random variations of one model on a cluster: micro-batches within a factor of 4, of the profile's samples up to
// 8 times (and as many as the stages need to share the devices), stages 2..16, links within a factor of 2, server count
// and every instruction's costs varied a little. `exactly` gives the question itself, for stage counts 2, 3, ... Throws
// Error(kConfig) for a cluster of one device, Error(kData) for a profile of one instruction.
std::unique_ptr<ProblemSource> model_source(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                            const pipeline::ProblemOptions& options, std::uint64_t seed, bool exactly);

// The options with which automap-infer asks about a model by default.
pipeline::ProblemOptions options_of_model(const pipeline::Profile& profile, int micro_batches);

// Returns the profile with all instructions between two pivots of the 128-point grid merged into one: plans over the
// grid keep their V, except that layers for recomputation begin at pivots.
pipeline::Profile grid_profile(const pipeline::Profile& profile);

}  // namespace automap::train
