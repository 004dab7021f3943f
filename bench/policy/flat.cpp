#include "bench/policy/measure.h"
#include "common/base/error.h"

namespace automap::bench {

std::optional<pipeline::Plan> flat_plan(const models::PlanSpace&, const models::Policy&) {
  throw Error(ErrorKind::kData, "the flat network's environment is not built", "give an after-state policy");
}

}  // namespace automap::bench
