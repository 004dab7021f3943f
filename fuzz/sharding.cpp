// libFuzzer target over partitioning: HLO text, a NUL and bytes that decide. The module is linked, inputs are split as
// the bytes say, and everything that is made of a decision is made: collectives, explanations, a plan, annotated HLO.
// Any bytes give that or an Error(kData); decisions are undone to where they began and do not depend on their order;
// plans and HLO are read back.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/rng.h"
#include "common/graph/dependence.h"
#include "common/hlo/hlo_text.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/collectives.h"
#include "common/sharding/explain.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "models/partition_env.h"
#include "plan/emit/emit.h"
#include "plan/partition/apply_plan.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/partition_search.h"

using automap::Error;
using automap::ErrorKind;
using automap::Rng;
using namespace automap::sharding;
namespace graph = automap::graph;
namespace hlo = automap::hlo;
namespace models = automap::models;
namespace emit = automap::emit;
namespace partition = automap::partition;

namespace {

constexpr std::int32_t kMostNodes = 3000;  // calls of calls can be expanded to very many
constexpr std::size_t kMostExplained = 60;

// The bytes as they come, then whatever follows from all of the input.
class Choices {
 public:
  Choices(std::string_view bytes, std::uint64_t seed) : bytes_(bytes), rng_(seed, 0, 0) {}
  std::size_t below(std::size_t n) {
    if (at_ < bytes_.size()) return static_cast<unsigned char>(bytes_[at_++]) % n;
    return static_cast<std::size_t>(rng_.below(n));
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  Rng rng_;
};

std::vector<TensorState> states(const Propagation& decided) {
  std::vector<TensorState> out;
  for (NodeId node = 0; node < decided.linkage().flow().size(); ++node) out.push_back(decided.state(node));
  return out;
}

void check_same(const std::vector<TensorState>& a, const std::vector<TensorState>& b) {
  AM_CHECK(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    AM_CHECK(a[i].kind == b[i].kind && a[i].dim == b[i].dim && a[i].partial == b[i].partial);
  }
}

TensorDim choose(const ShardingModel& model, Choices* choices) {
  const ModelInput& input = model.inputs()[choices->below(model.inputs().size())];
  const std::size_t rank = model.flow().shape(input.node).dims.size();
  return {input.node, static_cast<std::int32_t>(choices->below(rank + 1))};  // one too many
}

std::vector<TensorDim> decide(const ShardingModel& model, Propagation* decided, Choices* choices) {
  std::vector<TensorDim> accepted;
  for (std::size_t left = 1 + choices->below(6); left > 0; --left) {
    const TensorDim at = choose(model, choices);
    const std::size_t mark = decided->mark();
    const std::vector<TensorState> before = states(*decided);
    const bool whole = choices->below(5) == 0;
    const auto conflict = whole ? decided->keep_whole(at) : decided->split(at);
    if (conflict) {
      check_same(before, states(*decided));
      AM_CHECK(!explain(model, *decided, *conflict).summary.empty());
      continue;
    }
    if (!whole) {
      const TensorState state = decided->state(at.node);
      AM_CHECK(state.kind == TensorStateKind::kSplit && state.dim == at.dim);
    }
    if (choices->below(4) == 0) {
      decided->undo(mark);
      check_same(before, states(*decided));
    } else if (!whole) {
      accepted.push_back(at);
    }
  }
  return accepted;
}

void check_collectives(const ShardingModel& model, const Propagation& decided) {
  std::size_t of_groups = 0;
  for (const GroupId group : decided.split_groups()) {
    of_groups += collectives_of_group(model, group, Placement::kAtOnce).size();
    collectives_of_group(model, group, Placement::kDelayed);
    collectives_of_group(model, group, Placement::kCombined);
  }
  for (const Placement placement : {Placement::kAtOnce, Placement::kDelayed, Placement::kCombined}) {
    const std::vector<Collective> all = find_collectives(model, decided, placement);
    std::size_t reduced = 0;
    for (const Collective& c : all) {
      AM_CHECK(c.node >= 0 && c.node < model.flow().size() && c.bytes >= 0 && c.times >= 0);
      AM_CHECK(decided.group_state(c.group) == GroupState::kSplit);
      if (c.reduces()) {
        AM_CHECK(!c.sources.empty() && c.reduction != Reduction::kNone);
        ++reduced;
      }
    }
    if (placement == Placement::kAtOnce) AM_CHECK(all.size() == of_groups);
    AM_CHECK(total(all, automap::CollectiveKind::kAllReduce).count == static_cast<std::int64_t>(reduced));
  }
}

void check_explanations(const ShardingModel& model, const Propagation& decided, Choices* choices) {
  const std::size_t nodes = static_cast<std::size_t>(model.flow().size());
  for (std::size_t i = 0; i < std::min(nodes, kMostExplained); ++i) {
    const NodeId node = static_cast<NodeId>(nodes <= kMostExplained ? i : choices->below(nodes));
    AM_CHECK(!explain(model, decided, node).summary.empty());
    scopes_of(model, node);
  }
  const Linkage& linkage = model.linkage();
  for (GroupId group = 0; group < std::min(linkage.num_groups(), GroupId{40}); ++group) {
    if (!linkage.possible(group)) AM_CHECK(!explain_obstacle(model, group).summary.empty());
    for (const GroupId other : linkage.neighbours(group)) AM_CHECK(linkage.meeting(group, other).a.node != kNone);
  }
  explain_stuck(model, decided);
}

partition::PartitionPlan plan_of(const ShardingModel& model, const Propagation& decided) {
  partition::PartitionPlan plan;
  plan.kind = "operator";
  for (const std::int32_t i : model.variables()) {
    plan.decided.push_back(model.inputs()[static_cast<std::size_t>(i)].name);
  }
  for (const std::int32_t i : model.data()) plan.decided.push_back(model.inputs()[static_cast<std::size_t>(i)].name);
  partition::describe_decision(model, decided, &plan);
  return plan;
}

void check_plan(ShardingModel* model, const Propagation& decided) {
  const partition::PartitionPlan plan = plan_of(*model, decided);
  emit::emit_jax(*model, plan, emit::Layout({{model, &decided}}));
  const std::string text = partition::to_json_text(plan);
  try {
    const partition::PartitionPlan again = partition::parse_partition_plan(text, "plan");
    AM_CHECK(partition::to_json_text(again) == text);
    partition::apply_plan(model, again);
  } catch (const Error& e) {
    // Names that are no UTF-8 or that several inputs share are not found again.
    AM_CHECK(e.kind() == ErrorKind::kData || e.kind() == ErrorKind::kInfeasible);
  }
}

void check_emitted(const ShardingModel& model, const Propagation& decided) {
  std::string text;
  try {
    text = emit::emit_hlo(model, decided);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kData) return;  // manual shardings, elided constants
    throw;
  }
  try {
    const graph::Graph again = hlo::read_hlo_text(text, "emitted");
    // Nothing is lost, and nothing but annotations is added.
    std::int32_t annotations = 0;
    for (graph::InstructionId id = 0; id < again.num_instructions(); ++id) {
      if (again.instruction(id).opcode == graph::Opcode::kCustomCall && graph::is_annotation(again, id)) ++annotations;
    }
    AM_CHECK(again.num_instructions() >= model.graph().num_instructions());
    AM_CHECK(again.num_instructions() - annotations <= model.graph().num_instructions());
  } catch (const Error& e) {
    throw Error(ErrorKind::kInternal, std::string("what was written cannot be read: ") + e.what());
  }
}

void check_problem(const ShardingModel& model, Choices* choices) {
  static const automap::machine::DeviceModel device = automap::machine::load_device("v100-16gb");
  static const automap::machine::Cluster cluster = automap::machine::load_cluster("a100-4x8");
  if (model.linkage().shards() > cluster.num_devices()) return;
  const partition::PartitionCost cost(model, device, cluster);
  std::vector<GroupId> groups_of;
  const auto objective =
      choices->below(2) == 0 ? models::PartitionObjective::kCount : models::PartitionObjective::kTime;
  const models::PartitionProblem problem = partition::make_problem(
      model, cost, choices->below(2) == 0 ? model.variables() : model.data(), objective, 0, &groups_of);
  models::check_partition_problem(problem);
  models::PartitionEnv env(problem);
  while (!env.done()) env.step(static_cast<int>(choices->below(2)));
  AM_CHECK(!env.conflict());
  partition::SearchLimits limits;
  limits.units = 10'000'000;
  Propagation decided(model.linkage());
  const partition::PartitionAnswer answer = partition::search_greedy(problem, limits);
  for (const std::int32_t group : answer.groups) {
    AM_CHECK(!decided.split_group(groups_of[static_cast<std::size_t>(group)]));
  }
  const double exact = partition::search_enumerate(problem, limits).bound;
  AM_CHECK(exact >= answer.score.value - 1e-9 * (1 + std::abs(exact)));
  cost.estimate(decided);
}

void check_repair(ShardingModel* model, Choices* choices) {
  const TensorDim at = choose(*model, choices);
  const int most = static_cast<int>(choices->below(8));
  const partition::RepairResult repaired = partition::repair(model, at, most);
  if (!repaired.possible) {
    AM_CHECK(!repaired.why_not.empty());
    return;
  }
  AM_CHECK(repaired.gathered_tensors <= most && repaired.split_share >= 0 && repaired.split_share <= 1 + 1e-9);
  Propagation decided(model->linkage());
  AM_CHECK(!decided.split(at));
  check_collectives(*model, decided);
  check_emitted(*model, decided);
  check_plan(model, decided);
}

void run(const std::string& text, Choices* choices) {
  const graph::Graph g = hlo::read_hlo_text(text, "fuzz");
  static const int kShards[] = {1, 2, 4, 8, 3, 7, 64, 1000000};
  ModelOptions options;
  options.shards = kShards[choices->below(8)];
  ShardingModel model = ShardingModel::build(g, options);
  if (model.flow().size() > kMostNodes || model.inputs().empty()) return;
  {
    Propagation decided(model.linkage());
    const std::vector<TensorDim> accepted = decide(model, &decided, choices);
    Propagation once(model.linkage()), reversed(model.linkage());
    for (const TensorDim at : accepted) AM_CHECK(!once.split(at));
    for (auto at = accepted.rbegin(); at != accepted.rend(); ++at) AM_CHECK(!reversed.split(*at));
    check_same(states(once), states(reversed));
    check_collectives(model, decided);
    check_explanations(model, decided, choices);
    check_emitted(model, decided);
    check_problem(model, choices);
    partition::find_batch(model);
    check_plan(&model, once);  // relinks the model: what was decided before is gone
  }
  check_repair(&model, choices);
}

// Most changes of single bytes are no HLO any more: half of the time a number, an opcode, a name or a line is changed.
std::string changed(std::string text, Rng* rng) {
  static const char* const kNumbers[] = {"0", "1", "2", "3", "4", "6", "7", "8", "16", "32", "-1", "1000000007"};
  static const char* const kOpcodes[] = {"add",
                                         "multiply",
                                         "dot",
                                         "reduce",
                                         "broadcast",
                                         "transpose",
                                         "reshape",
                                         "copy",
                                         "select",
                                         "convert",
                                         "pad",
                                         "slice",
                                         "concatenate",
                                         "gather",
                                         "scatter",
                                         "convolution",
                                         "while",
                                         "call",
                                         "conditional",
                                         "tuple",
                                         "get-tuple-element",
                                         "fusion",
                                         "custom-call",
                                         "all-reduce",
                                         "sort",
                                         "reduce-window",
                                         "opt-barrier",
                                         "parameter",
                                         "iota",
                                         "dynamic-slice",
                                         "reverse",
                                         "constant",
                                         "rng",
                                         "select-and-scatter",
                                         "cholesky",
                                         "topk",
                                         "fft",
                                         "map",
                                         "clamp",
                                         "bitcast",
                                         "reduce-precision",
                                         "triangular-solve",
                                         "infeed",
                                         "batch-norm-training",
                                         "dynamic-update-slice",
                                         "async-start",
                                         "stochastic-convert",
                                         "subtract"};
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  struct Piece {
    std::size_t begin, size;
  };
  std::vector<Piece> numbers, opcodes, names, lines;
  for (std::size_t i = 0, line = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      lines.push_back({line, i + 1 - line});
      line = i + 1;
    }
    if (!is_word(text[i]) || (i > 0 && is_word(text[i - 1]))) continue;
    std::size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    const Piece piece = {i, end - i};
    const bool digits = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    (digits ? numbers : end < text.size() && text[end] == '(' ? opcodes : names).push_back(piece);
  }
  const auto one_of = [&](const std::vector<Piece>& pieces) { return pieces[rng->below(pieces.size())]; };
  const std::uint64_t what = rng->below(6);
  if (what <= 1 && !numbers.empty()) {
    const Piece at = one_of(numbers);
    text.replace(at.begin, at.size, kNumbers[rng->below(std::size(kNumbers))]);
  } else if (what == 2 && !opcodes.empty()) {
    const Piece at = one_of(opcodes);
    text.replace(at.begin, at.size, kOpcodes[rng->below(std::size(kOpcodes))]);
  } else if (what == 3 && !names.empty()) {
    const Piece from = one_of(names), to = one_of(names);
    text.replace(to.begin, to.size, text.substr(from.begin, from.size));
  } else if (!lines.empty()) {
    const Piece from = one_of(lines), to = one_of(lines);
    text.replace(to.begin, what == 4 ? to.size : 0, text.substr(from.begin, from.size));
  }
  return text;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Rng rng(seed, 1, 0);
  if (rng.below(2) == 0) return LLVMFuzzerMutate(data, size, most);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t text = std::min(bytes.find('\0'), bytes.size());
  std::string next = bytes.substr(0, text);
  for (std::uint64_t left = 1 + rng.below(3); left > 0; --left) next = changed(std::move(next), &rng);
  next += bytes.substr(text);
  next.resize(std::min(next.size(), most));
  std::copy(next.begin(), next.end(), data);
  return next.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t text = std::min(bytes.find('\0'), bytes.size());
  Choices choices(std::string_view(bytes).substr(std::min(text + 1, bytes.size())), automap::crc32c(bytes));
  try {
    run(bytes.substr(0, text), &choices);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kData) throw;
  }
  return 0;
}
