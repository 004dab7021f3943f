// The table of kinds of whole plans (paper 3.5, Fig. 5; design 2.5): data parallelism, a sharded optimizer, operator
// partitioning alone, the paper's pipeline, even grids, other schedules, stages of different widths. Each row finds the
// best plan of its kind on the costs of the question. A new kind needs a row and a function (kinds.cpp; for published
// systems plan/systems/rivals/published.cpp).
#pragma once

#include <optional>
#include <vector>

#include "plan/planners/candidate.h"
#include "plan/planners/question.h"
#include "plan/planners/sweep.h"

namespace automap::planners {

// A row's turn. `question` has what is left of the time, and the batch of the plan; `best` is the shortest plan of one
// width so far.
struct KindTurn {
  const Question& question;
  const Candidate& best;
  const Bounds& bounds;                   // of `best`, open until rows that ask after bounds
  const std::vector<Candidate>& earlier;  // of the rows before
  std::optional<Sweep>& grids;            // even grids that may be the best, once a row has looked
  // Ordered plans nearly as short as the best of their row, of other splits and widths: searched orders start there.
  std::vector<Candidate>& starts;
};

// Rows that reports speak of.
constexpr const char* kFullyShardedKind = "data parallel, ZeRO 3 (FSDP)";
constexpr const char* kSeveralStagesKind = "best even grid of several stages";

struct KindRow {
  const char* name;
  // Returns true if the question wants this kind searched.
  bool (*asked)(const Question& question);
  // A candidate of the kind, one without a plan that says why, or nothing where there is nothing to say. Throws
  // Error(kUsage/kInfeasible) where the numbers of the question leave none.
  std::optional<Candidate> (*find)(const KindTurn& turn, const char* name);
  // Stages of any widths: what no plan of those is below is asked, too.
  bool any_widths;
  std::optional<pipeline::Schedule> schedule = {};  // the ordered schedule that its plans have
  // Asked last, when bounds are closed unless the plan is an ordered one: they may say that there is none of the kind.
  bool after_bounds = false;
};

// The kinds with one stage, or equal stages, under the schedules of plans; then those that Question::beside asks for.
const std::vector<KindRow>& uniform_kinds();
const std::vector<KindRow>& beside_kinds();

// True if plans with another split of the batch than the one searched may be the plan, and are judged as kinds are.
bool open_question(const Question& question);

}  // namespace automap::planners
