// automap-search propagate.
#include <charconv>
#include <numeric>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/sharding/explain.h"
#include "plan/partition/names.h"
#include "search/commands.h"
#include "search/report.h"

namespace automap::search {

using namespace partition;

namespace {

using sharding::ShardingModel;
using sharding::TensorDim;

// "params/wte=0" -> the input and its dimension; -1: kept whole.
TensorDim parse_decision(const ShardingModel& model, const std::string& text) {
  const std::size_t equals = text.rfind('=');
  int dim = 0;
  const char* end = text.data() + text.size();
  const auto parsed = equals == std::string::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                                  : std::from_chars(text.data() + equals + 1, end, dim);
  if (parsed.ec != std::errc() || parsed.ptr != end || equals == 0) {
    throw Error(ErrorKind::kUsage, "--set: found '" + text + "', expected TENSOR=DIMENSION",
                "such as --set 'params/wte=0'; -1 keeps the tensor whole");
  }
  const sharding::ModelInput& input =
      model.inputs()[static_cast<std::size_t>(model.find_input(text.substr(0, equals)))];
  const auto rank = static_cast<int>(model.flow().shape(input.node).dims.size());
  if (dim < -1 || dim >= rank) {
    throw Error(ErrorKind::kUsage,
                "--set " + text + ": " + input.name + " is " + shape_of(model, input.node) +
                    ", which has no dimension " + std::to_string(dim),
                rank > 0 ? "0 to " + std::to_string(rank - 1) + ", or -1 to keep it whole"
                         : "a scalar can only be kept whole: -1");
  }
  return {input.node, dim};
}

// Adds the numbers of devices that would do, which a conflict does not say.
void add_divisors(const ShardingModel& model, const TensorDim& at, sharding::Explanation* conflict) {
  if (at.dim < 0) return;
  const sharding::GroupId group = model.linkage().group_of(at);
  if (group == graph::kNone) return;
  std::int64_t extent = 0;
  for (const sharding::Obstacle& obstacle : model.linkage().obstacles(group)) {
    if (obstacle.kind != sharding::Obstacle::Kind::kIndivisible) return;
    extent = std::gcd(extent, obstacle.extent);
  }
  const std::string others = divisors_text(extent, kMostDevicesNamed);
  if (extent > 0) {
    conflict->lines.push_back(others.empty()
                                  ? "no number of devices up to " + std::to_string(kMostDevicesNamed) + " would do"
                                  : others + " devices would do");
  }
}

}  // namespace

int propagate_command(int argc, char** argv) {
  ModelOptions model;
  std::vector<std::string> sets;
  int shards = 8;
  bool json = false;
  OptionTable table("search propagate", "complete a partial decision to every tensor; explain every step");
  table.example("automap-search propagate fixtures/hlo/tiny_mlp.hlo --shards 4 --set 'params/dense_1/kernel=1'",
                "what follows from one decision, and what is left to decide");
  table.example("automap-search propagate fixtures/hlo/t5_6_6.hlo.gz --set decoder/embedding=0 --set softmax/kernel=-1",
                "several; -1 keeps a tensor whole");
  table.example("automap-search propagate fixtures/hlo/tiny_mlp.hlo --shards 4 --set 'params/dense_1/kernel=1' --json",
                "every step, for scripts");
  model.declare(&table);
  table.add(&shards, "shards", "devices to split over").range(1, kMostShards).metavar("N");
  table
      .add(&sets, "set",
           "split an input along a dimension (-1: keep it whole); by name, path or its end, HLO name or index; may be "
           "given several times")
      .no_file()
      .metavar("TENSOR=DIM");
  table.epilog("Exit codes: 0 complete or stuck, 2 wrong usage, 3 bad input, 4 conflict.");
  table.add_common(&json);
  if (!table.parse(argc, argv)) return 0;

  const LoadedModel loaded = load_sharding_model(model, shards);
  const ShardingModel& m = *loaded.model;
  // All of them are read before the first is taken, so that a slip is a slip and no half answer.
  std::vector<TensorDim> wanted;
  for (const std::string& text : sets) wanted.push_back(parse_decision(m, text));

  sharding::Propagation decided(m.linkage());
  Completion completion;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const TensorDim at = wanted[i];
    const std::size_t before = decided.mark();
    const auto conflict = at.dim >= 0 ? decided.split(at) : decided.keep_whole(at.node);
    if (conflict) {
      completion.outcome = Completion::Outcome::kConflict;
      completion.conflict = explain(m, decided, *conflict);
      completion.refused = sets[i];
      add_divisors(m, at, &completion.conflict);
      break;
    }
    completion.decisions.push_back({sets[i], at, decided.mark() == before});
  }
  if (completion.outcome != Completion::Outcome::kConflict && !decided.complete()) {
    completion.outcome = Completion::Outcome::kStuck;
  }
  if (!decided.complete()) completion.stuck = explain_stuck(m, decided);
  if (json) {
    print_exact(completion_json(m, decided, completion));
  } else {
    print_report(completion_report(m, decided, completion));
  }
  for (const std::string& warning : m.step().warnings) log_warning(warning);
  return completion.outcome == Completion::Outcome::kConflict ? exit_code(ErrorKind::kInfeasible) : 0;
}

}  // namespace automap::search
