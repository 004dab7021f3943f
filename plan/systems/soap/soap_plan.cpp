#include "plan/systems/soap/soap_plan.h"

#include <utility>

#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/pipeline/plan_reader.h"

namespace automap::soap {

namespace {

constexpr const char* kKind = "soap";

Json operators_json(const Space& space, const Strategy& strategy) {
  Json out = Json::array();
  for (std::size_t i = 0; i < strategy.size(); ++i) {
    const Operator& op = space.operators[i];
    Json dims = Json::array();
    for (const OperatorDim& dim : op.dims) dims.push_back({{"kind", to_string(dim.kind)}, {"extent", dim.extent}});
    Json devices = Json::array();
    for (const std::int32_t device : strategy[i].devices) devices.push_back(device + 1);
    out.push_back({{"name", op.name},
                   {"opcode", op.opcode},
                   {"layer", or_null(op.layer)},
                   {"dims", dims},
                   {"degrees", strategy[i].degrees},
                   {"devices", devices}});
  }
  return out;
}

Json chains_json(const std::vector<ChainResult>& chains) {
  Json out = Json::array();
  for (const ChainResult& chain : chains) {
    out.push_back({{"start", chain.start},
                   {"start_ms", chain.start_ms},
                   {"best_ms", chain.best_ms},
                   {"proposals", chain.proposals},
                   {"accepted", chain.accepted},
                   {"best_at", chain.best_at},
                   {"settled", chain.settled}});
  }
  return out;
}

Json memory_json(const SoapPlan& plan) {
  Json devices = Json::array();
  for (const DeviceMemory& device : plan.memory) {
    devices.push_back({{"weight_bytes", whole_bytes(device.weight_bytes)},
                       {"gradient_bytes", whole_bytes(device.gradient_bytes)},
                       {"slot_bytes", whole_bytes(device.slot_bytes)},
                       {"kept_bytes", whole_bytes(device.kept_bytes)}});
  }
  return {{"fits", plan.fits()},
          {"fullest_device", plan.fullest.device + 1},
          {"bytes", whole_bytes(plan.fullest.bytes)},
          {"capacity_bytes", whole_bytes(plan.fullest.capacity_bytes)},
          {"devices", devices}};
}

}  // namespace

Json to_json(const SoapPlan& plan, const Space& space) {
  Json answer = {{"cluster", plan.cluster},
                 {"devices", plan.devices},
                 {"planner", plan.planner},
                 {"step_ms", plan.step_ms},
                 {"data_parallel_ms", plan.data_parallel_ms},
                 {"expert_ms", plan.expert_ms},
                 {"moved_bytes", whole_bytes(plan.moved_bytes)},
                 {"data_parallel_moved_bytes", whole_bytes(plan.data_parallel_moved_bytes)},
                 {"same_devices", plan.same_devices},
                 {"memory", memory_json(plan)},
                 {"operators", operators_json(space, plan.strategy)},
                 {"chains", chains_json(plan.chains)},
                 {"proposals", plan.proposals},
                 {"local_optimum", plan.local_optimum},
                 {"cut_by_time", plan.cut_by_time},
                 {"planning_ms", plan.planning_ms}};
  return pipeline::in_envelope(pipeline::kPlanSchema, kKind, plan, std::move(answer));
}

std::string to_json_text(const SoapPlan& plan, const Space& space) {
  return json_text(to_json(plan, space));
}

Strategy parse_soap_strategy(std::string_view text, const std::string& source, const Space& space, int devices) {
  const Json document = pipeline::parse_plan_json(text, source);
  const JsonObject plan(document, source);
  if (plan.text("kind") != kKind) {
    plan.fail("kind: found \"" + plan.text("kind") + "\", expected \"" + kKind + "\"",
              "automap-search soap -o PLAN writes one");
  }
  Strategy out;
  for (const Json& item : plan.array("operators")) {
    const std::string where = source + ": operator " + std::to_string(out.size() + 1);
    const JsonObject op(item, where);
    const std::string name = op.text("name");
    if (out.size() < space.operators.size() && name != space.operators[out.size()].name) {
      op.fail("name: found \"" + printable(name) + "\", the model's is \"" +
                  printable(space.operators[out.size()].name) + "\"",
              "a plan is of one model; search this one: automap-search soap");
    }
    Config config;
    config.degrees = op.integers("degrees", 1, kMostParts);
    // check_strategy says which device there is none of, and how many there are.
    for (const int device : op.integers("devices", 1, kMostParts)) config.devices.push_back(device - 1);
    out.push_back(std::move(config));
  }
  check_strategy(space, out, devices, source);
  return out;
}

}  // namespace automap::soap
