// heldout.json of a run: the answers in it are taken, or the problems are chosen again (here there are none).
#include <memory>
#include <vector>

#include "fuzz/reader.h"
#include "train/evaluation.h"
#include "train/worker_pool.h"

namespace {

class NoProblems : public automap::train::ProblemSource {
 public:
  automap::train::TrainingProblem problem(std::uint64_t) const override { std::abort(); }
  const std::vector<std::string>& families() const override { return families_; }
  std::string fingerprint() const override { return "none"; }

 private:
  std::vector<std::string> families_{"one"};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  static train::WorkerPool pool(0);
  static const auto source = std::make_shared<const NoProblems>();
  train::EvaluationOptions options;
  options.problems = {0, 0, 0, 0};
  options.may_be_empty = true;
  return fuzz::read_or_refuse([&] {
    const train::Evaluation evaluation(source, options, pool, fuzz::path_of_file_with(fuzz::text_of(data, size)));
    for (const train::PlannerLengths& lengths : evaluation.baselines()) {
      evaluation.gaps(lengths);
      evaluation.quality(lengths, 0, 0);
    }
  });
}
