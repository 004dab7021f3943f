// Parts of the reports of plans: facts, collectives, tables of split, gathered and whole tensors.
#pragma once

#include <optional>
#include <string>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/planner.h"
#include "plan/partition/price.h"

namespace automap::search::internal {

// "Step time    37.8 ms ...", wrapped; without a name a further line of the fact before.
std::string fact(const std::string& name, const std::string& value);

// The collectives: as XLA runs them, on which times are based, and the smaller bytes that would do. `shares` as for
// describe_decision.
std::string collectives_text(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                             const sharding::TensorShares* shares = nullptr);

// "1.2 GiB arguments, 300 MiB temporaries": the parts of a peak.
std::string memory_text(const partition::PeakMemory& memory);

// Two facts: the step's time and memory as all plans are counted; for a plan that cannot be counted, the reason.
// `options`: further options for automap-infer (" --keep-shardings"). nullopt: it knows no such layout.
std::string counted_text(const partition::CountedCost& counted, const std::optional<std::string>& options = "");
// "31.7 ms estimated", and for an overlapped step also its times added up.
std::string step_text(const partition::PlanEstimate& estimate);
// The text before the parts of an estimate that a search judged by: empty where the counted step time is reported, too,
// and the estimate is a plain sum.
std::string judged_text(const partition::PlanEstimate& estimate, bool counted);
// ", 6.10 ms of them hidden behind compute"; empty for a step that is added up.
std::string hidden_text(const partition::PlanEstimate& estimate);
// The lower bound on all overlapped steps.
std::string least_overlapped_text(double bound_ms);
// The estimated price of any decision on a cluster: `estimate` of automap.applied/1 and automap.explanation/1, and for
// people.
Json price_json(const partition::Price& price, const std::string& cluster);
std::string price_text(const partition::Price& price, const std::string& cluster);

// Empty where there is nothing to show.
std::string split_table(const partition::Planned& planned);
std::string whole_table(const sharding::ShardingModel& model, const partition::Planned& planned);
// All-gathers and all-to-alls that are alike up to the numbers in names, a line each. Tensors that are made whole and
// kept in parts, or whole and read in parts, move nothing. `axis`: of a mesh whose this plan is one; empty: there is
// only one.
std::string moved_tables(const sharding::ShardingModel& model, const partition::PartitionPlan& plan,
                         const std::string& axis = "");
std::string begun_table(const sharding::ShardingModel& model);

}  // namespace automap::search::internal
