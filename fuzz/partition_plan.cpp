// libFuzzer target over plans of partitions: any bytes give a plan that writes the same text again, or an Error(kData);
// applied to a small module it gives a decision that can be written, or an Error that says why not.
#include "plan/partition/partition_plan.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/hlo/hlo_text.h"
#include "common/sharding/model.h"
#include "plan/emit/emit.h"
#include "plan/partition/apply_plan.h"

using automap::Error;
using automap::ErrorKind;
namespace graph = automap::graph;
namespace hlo = automap::hlo;
namespace emit = automap::emit;
namespace partition = automap::partition;
namespace sharding = automap::sharding;

namespace {

// The module of the seeds: two layers, a softmax-like row sum that wants a gather, and a function called twice.
constexpr const char* kModule = R"(HloModule small
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
act {
  v = f32[16,32] parameter(0)
  ROOT t = f32[16,32] tanh(v)
}
ENTRY e {
  x = f32[16,8] parameter(0), metadata={op_name="batch[\'x\']"}
  wi = f32[8,32] parameter(1), metadata={op_name="params[\'in\'][\'w\']"}
  wo = f32[32,8] parameter(2), metadata={op_name="params[\'out\'][\'w\']"}
  h = f32[16,32] dot(x, wi), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[16,32] call(h), to_apply=act
  d = f32[16,32] call(c), to_apply=act
  y = f32[16,8] dot(d, wo), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[16,16] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  z = f32[] constant(0)
  l = f32[] reduce(s, z), dimensions={0,1}, to_apply=sum
  ROOT r = (f32[16,8], f32[]) tuple(y, l)
}
)";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const graph::Graph module = hlo::read_hlo_text(kModule, "small");
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    partition::PartitionPlan plan = partition::parse_partition_plan(bytes, "fuzz");
    const std::string text = partition::to_json_text(plan);
    AM_CHECK(partition::to_json_text(partition::parse_partition_plan(text, "again")) == text);
    partition::decided_tensors(plan);
    sharding::ShardingModel model = sharding::ShardingModel::build(module, {});
    const sharding::Propagation decided = partition::apply_plan(&model, plan);
    partition::describe_decision(model, decided, &plan);
    emit::emit_jax(model, plan, emit::Layout({{&model, &decided}}));
    hlo::read_hlo_text(emit::emit_hlo(model, decided), "emitted");
    sharding::ShardingModel other = sharding::ShardingModel::build(module, {});
    partition::apply_plan(&other, partition::parse_partition_plan(partition::to_json_text(plan), "described"));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kData && e.kind() != ErrorKind::kInfeasible) throw;
  }
  return 0;
}
