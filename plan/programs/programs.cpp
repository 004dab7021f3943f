#include "plan/programs/programs.h"

#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/graph/flow_order.h"
#include "common/graph/training_step.h"
#include "common/hlo/hlo_writer.h"
#include "common/pipeline/list_scheduler.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/turn.h"
#include "plan/programs/group_splits.h"
#include "plan/programs/manifest.h"
#include "plan/programs/program_set.h"
#include "plan/programs/stage_program.h"
#include "plan/programs/step_cut.h"

namespace automap::programs {

using graph::kNone;
using pipeline::PlanDocument;
using pipeline::Schedule;

namespace {

// Times of the parts, by which the schedule eager decides.
pipeline::WorkTimes times_of(const PlanDocument& plan) {
  pipeline::WorkTimes times;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const pipeline::PlanStage& stage = plan.stages[s];
    times.group_of_part.push_back(static_cast<int>(s));
    times.forward_ms.push_back(stage.forward_ms);
    times.backward_ms.push_back(stage.backward_ms);
    times.stash_bytes.push_back(0);
    times.sync.emplace_back();
    if (s + 1 < plan.stages.size()) times.transfer_ms.push_back(stage.transfer_ms);
  }
  times.exchange_ms.assign(plan.stages.size(), 0);
  times.optimizer_ms.assign(plan.stages.size(), 0);
  times.room_bytes.assign(plan.stages.size(), 1);
  return times;
}

std::vector<int> groups_of(const PlanDocument& plan) {
  return pipeline::group_of_parts(plan.plan.placement, plan.plan.num_stages(), plan.plan.chunks);
}

void check_same_model(const PlanDocument& plan, const std::string& plan_source, const hlo::HloModule& module,
                      const std::string& model_source, const graph::TrainingStep& step, const graph::FlowOrder& order) {
  const auto hash = plan.provenance.find("model_sha256");
  if (hash != plan.provenance.end() && !hash->second.empty() && hash->second != module.sha256) {
    throw Error(ErrorKind::kData, plan_source + ": it was made for another file than " + model_source,
                "give the model that the plan was made for, or plan this one");
  }
  const auto n = static_cast<int>(order.order.size());
  if (plan.num_instructions != n) {
    for (const pipeline::PlanPart* part : plan.parts()) {
      if (pipeline::turn_of(part->first_name) || pipeline::turn_of(part->last_name) || !part->loop_turns.empty()) {
        throw Error(
            ErrorKind::kData,
            plan_source + ": its parts are cut between the turns of a loop over layers, which no program can be yet",
            "plan with --whole-loops, or export the model with its layers unrolled");
      }
    }
    throw Error(ErrorKind::kData,
                plan_source + ": it is a plan of " + std::to_string(plan.num_instructions) + " forward instructions, " +
                    model_source + " has " + std::to_string(n),
                "plan the model anew; one with loops over layers with --whole-loops");
  }
  for (const pipeline::PlanPart* part : plan.parts()) {
    if (part->first_instruction < 1 || part->first_instruction > n || part->first_name.empty()) continue;
    const graph::NodeId node = order.order[static_cast<std::size_t>(part->first_instruction - 1)];
    const std::string name(step.flow.graph().instruction(step.flow.node(node).instruction).name);
    if (name != part->first_name) {
      throw Error(ErrorKind::kData,
                  plan_source + ": its part that begins with '" + part->first_name + "' begins with '" + name +
                      "' in " + model_source,
                  "the plan was made with other --variables or --batch-input, or for another model: plan it anew");
    }
  }
}

void check_step(const graph::TrainingStep& step, const std::string& model_source) {
  const graph::Graph& graph = step.flow.graph();
  if (!step.training) {
    throw Error(ErrorKind::kData, model_source + ": it is no training step: no variable is updated by a gradient",
                "export the whole step, its loss, gradients and optimizer");
  }
  if (!step.expanded_whiles.empty()) {
    throw Error(ErrorKind::kData,
                model_source + ": its loop '" + std::string(graph.instruction(step.expanded_whiles.front()).name) +
                    "' runs the whole pass itself, which is not cut yet",
                "export a step of one micro-batch; the plan says how many there are");
  }
  for (const graph::EntryInput& input : step.inputs) {
    if (input.leaf == kNone) continue;
    throw Error(ErrorKind::kData, model_source + ": parameter '" + input.parameter_name + "' is within a tuple",
                "export the step with flat arguments, as jax.jit does");
  }
}

void check_batch(const PlanDocument& plan, const std::string& plan_source, const graph::TrainingStep& step,
                 const std::string& model_source) {
  if (step.batch <= 0 || plan.micro_batch_samples <= 0) return;
  if (std::abs(plan.micro_batch_samples - static_cast<double>(step.batch)) < 1e-9) return;
  const std::string samples = std::to_string(std::llround(plan.micro_batch_samples));
  throw Error(ErrorKind::kData,
              plan_source + ": its micro-batches have " + samples + " samples, the shapes of " + model_source + " " +
                  std::to_string(step.batch),
              "export the step with " + samples + " samples, or plan with --micro-batch " + std::to_string(step.batch));
}

class Writer {
 public:
  Writer(const graph::FlowGraph& flow, std::vector<ProgramFile>* files) : flow_(flow), files_(files) {}

  void write(const ProgramSet& set, const std::string& prefix, const std::string& ending) {
    hlo::WriteOptions options;
    options.metadata = false;
    for (const Program& program : set.programs) {
      const graph::Graph module = extract_program(flow_, program.name(), program.inside, program.reads, program.makes);
      files_->push_back({file_of(program, prefix, ending), hlo::write_hlo_text(module, options)});
    }
  }

 private:
  const graph::FlowGraph& flow_;
  std::vector<ProgramFile>* files_;
};

Json groups_json(const PlanDocument& plan, std::vector<GroupSplits> splits) {
  const pipeline::WorkOrder order = work_order_of(plan);
  Json all = Json::array();
  for (std::size_t g = 0; g < order.size(); ++g) {
    const pipeline::PlanStage& stage = plan.stages[g];
    Json items = Json::array();
    for (const pipeline::WorkItem& item : order[g]) {
      items.push_back(Json::array({std::string(1, letter_of(item.kind)), item.part, item.micro_batch}));
    }
    all.push_back({{"devices", stage.devices},
                   {"device_numbers", stage.device_numbers},
                   {"replicas", stage.replicas},
                   {"width", stage.width},
                   {"zero", stage.variant.zero},
                   {"splits", std::move(splits[g].splits)},
                   {"not_divided", std::move(splits[g].not_divided)},
                   {"recompute", stage.variant.recompute},
                   {"memory_bytes", stage.memory_bytes},
                   {"order", std::move(items)}});
  }
  return all;
}

}  // namespace

pipeline::WorkOrder work_order_of(const PlanDocument& plan) {
  if (auto order = order_without_times(plan.plan, plan.micro_batches)) return *std::move(order);
  std::vector<int> in_flight;
  for (const pipeline::PlanStage& stage : plan.stages) in_flight.push_back(stage.in_flight);
  return plan.plan.schedule == Schedule::kEager ? pipeline::eager_order(times_of(plan), in_flight, plan.micro_batches)
                                                : pipeline::alternating_order(in_flight, plan.micro_batches);
}

std::vector<ProgramFile> program_files(const PlanDocument& plan, const std::string& plan_source,
                                       const hlo::HloModule& module, const std::string& model_source,
                                       const std::string& ending) {
  graph::TrainingStepOptions options;
  std::vector<graph::VariableRequest> batch_inputs;
  const auto asked = plan.provenance.find("option_batch_input");
  if (asked != plan.provenance.end()) {
    for (const std::string& name : split_at_commas(asked->second)) {
      if (!name.empty()) batch_inputs.push_back({name, "", plan_source});
    }
  }
  if (!batch_inputs.empty()) options.batch_inputs = &batch_inputs;
  const graph::TrainingStep step = graph::analyze_training_step(module.graph, options);
  check_step(step, model_source);
  const graph::FlowOrder order = graph::order_forward(step);
  check_same_model(plan, plan_source, module, model_source, step, order);
  check_batch(plan, plan_source, step, model_source);

  const std::vector<int> group_of_part = groups_of(plan);
  const StepCut cut(step, order, {plan.plan.cuts, group_of_part, plan.micro_batches, false});
  std::vector<bool> recompute;
  for (const pipeline::PlanStage& stage : plan.stages) recompute.push_back(stage.variant.recompute);
  const ProgramSet set = cut_programs(cut, recompute);
  const StepCut whole(step, order, {{}, {0}, plan.micro_batches, true});
  const ProgramSet whole_set = cut_programs(whole, {false});

  std::vector<ProgramFile> files;
  Writer writer(step.flow, &files);
  writer.write(set, "", ending);
  writer.write(whole_set, "whole.", ending);
  hlo::WriteOptions text;
  text.metadata = false;
  files.push_back({"module" + ending, hlo::write_hlo_text(module.graph, text)});

  Json manifest = {{"schema", "automap.programs/2"},
                   {"model", plan.model},
                   {"model_sha256", module.sha256},
                   {"schedule", pipeline::to_string(plan.plan.schedule)},
                   {"micro_batches", plan.micro_batches},
                   {"samples", step.batch},
                   {"group_of_part", group_of_part},
                   {"positions", static_cast<std::int64_t>(order.order.size())},
                   {"cuts", plan.plan.cuts},
                   {"groups", groups_json(plan, group_splits(plan, plan_source, module.graph, cut, set))},
                   {"inputs", inputs_json(cut)},
                   {"loss_result", step.loss_result == kNone ? Json() : Json(step.loss_result)},
                   {"plan", programs_json(cut, set, "", ending)},
                   {"whole", programs_json(whole, whole_set, "whole.", ending)},
                   {"module", "module" + ending}};
  files.push_back({"manifest.json", json_text(manifest, 1)});
  return files;
}

void write_into(const std::string& folder, const std::vector<ProgramFile>& files, OutputSet* outputs) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ErrorKind::kIo, folder + ": the folder cannot be made: " + error.message(), "give another");
  }
  for (const ProgramFile& file : files) outputs->add(folder + "/" + file.name).write(file.text);
}

}  // namespace automap::programs
