#include "common/pipeline/plan_json.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_text.h"
#include "common/base/numbers.h"
#include "common/base/printable.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/plan_reader.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/turn.h"

namespace automap::pipeline {
namespace {

Schedule read_schedule(const std::string& text, const std::string& where) {
  if (const std::optional<Schedule> schedule = parse_schedule(text)) return *schedule;
  throw Error(ErrorKind::kData, where + ": found \"" + text + "\", expected one of " + schedule_names());
}

constexpr int kMany = 1 << 30;
constexpr int kMostChunks = 64;

constexpr const char* kRecomputeNone = "none";
constexpr const char* kRecomputeLayer = "layer";

constexpr const char* kOneWidth = "one";
constexpr const char* kAnyWidths = "any";

constexpr std::pair<const char*, double MemoryParts::*> kMemoryParts[] = {
    {"weights", &MemoryParts::weights}, {"gradients", &MemoryParts::gradients}, {"slots", &MemoryParts::slots},
    {"frozen", &MemoryParts::frozen},   {"stash", &MemoryParts::stash},         {"workspace", &MemoryParts::workspace},
    {"buckets", &MemoryParts::buckets}};

void read_part(const PlanObject& reader, int num_instructions, PlanPart* stage) {
  stage->first_instruction = reader.integer("first_instruction", 1, num_instructions);
  stage->last_instruction = reader.integer("last_instruction", 1, num_instructions);
  stage->first_name = reader.text_or_empty("first_name");
  stage->last_name = reader.text_or_empty("last_name");
  stage->first_layer = reader.text_or_empty("first_layer");
  stage->last_layer = reader.text_or_empty("last_layer");
  if (reader.has("loop_turns")) {
    for (const Json& item : reader.array("loop_turns")) {
      const PlanObject turns(item, reader.where("loop_turns"));
      stage->loop_turns.push_back({turns.text("loop"), turns.integer("first", 0, kMany),
                                   turns.integer("last", 0, kMany), turns.integer("of", 0, kMany)});
    }
  }
  stage->transfer_ms = reader.number("transfer_ms");
  stage->weight_bytes = reader.number_or_zero("weight_bytes");
}

// All of a group but which devices it has and how many samples its replicas.
void read_group(const PlanObject& reader, int num_devices, PlanStage* stage) {
  stage->compute_ms = reader.number("compute_ms");
  stage->allreduce_ms = reader.number("allreduce_ms");
  stage->memory_bytes = reader.number("memory_bytes");
  stage->capacity_bytes = reader.number_or_zero("capacity_bytes");
  stage->replicas = reader.integer_or("replicas", 1, num_devices, stage->devices);
  stage->width = reader.integer_or("width", 1, num_devices, 1);
  stage->variant.zero = reader.integer_or("zero", 0, 3, 0);
  const std::string recompute = reader.has("recompute") ? reader.text("recompute") : kRecomputeNone;
  if (recompute != kRecomputeNone && recompute != kRecomputeLayer) {
    reader.wrong("recompute", reader.at("recompute"), "\"none\" or \"layer\"");
  }
  stage->variant.recompute = recompute == kRecomputeLayer;
  stage->forward_ms = reader.number_or_zero("forward_ms");
  stage->backward_ms = reader.number_or_zero("backward_ms");
  stage->shared_gradients_ms = reader.number_or_zero("shared_gradients_ms");
  stage->optimizer_ms = reader.number_or_zero("optimizer_ms");
  if (reader.has("sync")) {
    for (const Json& bucket : reader.array("sync")) {
      const PlanObject sync(bucket, reader.where("sync"));
      stage->sync.push_back({sync.number("ready_share"), sync.number("ms")});
    }
    double sum = 0;
    for (const SyncBucket& bucket : stage->sync) sum += bucket.ms;
    if (std::abs(sum - stage->allreduce_ms) > 1e-9 * sum) {
      reader.wrong("allreduce_ms", reader.at("allreduce_ms"), "the sum of sync, " + Json(sum).dump());
    }
  }
  if (reader.has("memory")) {
    const PlanObject memory(reader.at("memory"), reader.where("memory"));
    for (const auto& [key, part] : kMemoryParts) stage->memory.*part = memory.number(key);
  }
}

// Reads a stage of versions 1 and 2, where one object holds both the stage and its only part.
PlanStage read_stage(const Json& item, const std::string& where, int num_instructions, int num_devices) {
  const PlanObject reader(item, where);
  PlanStage stage;
  read_part(reader, num_instructions, &stage);
  stage.first_device = reader.integer("first_device", 1, num_devices);
  stage.devices = reader.integer("devices", 1, num_devices);
  for (int device = 0; device < stage.devices; ++device) stage.device_numbers.push_back(stage.first_device + device);
  read_group(reader, num_devices, &stage);
  stage.samples = reader.number_or_zero("samples");
  stage.in_flight = reader.integer_or("in_flight", 1, kMany, 0);
  return stage;
}

// Reads the devices of a group, behind those of the groups in front. Its replicas have equally many samples: all plans
// have had this so far.
void read_devices(const PlanObject& reader, int in_front, PlanStage* stage) {
  std::vector<int> devices = reader.integers("devices", 1, machine::kMaxDevices);
  if (devices.empty()) reader.fail("devices: found none, expected at least one");
  stage->first_device = in_front + 1;
  stage->devices = static_cast<int>(devices.size());
  stage->device_numbers = std::move(devices);
}

void read_samples(const PlanObject& reader, PlanStage* stage) {
  const Json& samples = reader.array("samples");
  for (const Json& of_replica : samples) {
    if (!of_replica.is_number() || of_replica.get<double>() < 0)
      reader.wrong("samples", of_replica, "a number of samples");
    if (of_replica.get<double>() != samples[0].get<double>()) {
      reader.fail(
          "samples: found replicas with " + samples[0].dump() + " and " + of_replica.dump() + ", expected equally many",
          "this version runs plans whose replicas share a micro-batch evenly");
    }
  }
  if (samples.size() != static_cast<std::size_t>(stage->replicas)) {
    reader.fail("samples: found " + std::to_string(samples.size()) + " entries, expected one for each of the " +
                std::to_string(stage->replicas) + " replicas");
  }
  stage->samples = samples[0].get<double>();
}

Json sync_json(const std::vector<SyncBucket>& buckets) {
  Json sync = Json::array();
  for (const SyncBucket& bucket : buckets) sync.push_back({{"ready_share", bucket.ready_share}, {"ms", bucket.ms}});
  return sync;
}

// The positions of a part of stage `number`, and the bytes across the cut behind them.
Json part_json(const PlanPart& stage, int number) {
  Json turns = Json::array();
  for (const LoopTurns& of : stage.loop_turns) {
    turns.push_back({{"loop", of.loop}, {"first", of.first}, {"last", of.last}, {"of", of.all}});
  }
  Json json = {{"group", number},
               {"first_instruction", stage.first_instruction},
               {"last_instruction", stage.last_instruction},
               {"first_name", or_null(stage.first_name)},
               {"last_name", or_null(stage.last_name)},
               {"first_layer", or_null(stage.first_layer)},
               {"last_layer", or_null(stage.last_layer)},
               {"loop_turns", std::move(turns)},
               {"weight_bytes", whole_bytes(stage.weight_bytes)},
               {"transfer_ms", stage.transfer_ms}};
  if (stage.work) {
    json["work"] = {{"forward_ms", stage.work->forward_ms},
                    {"backward_ms", stage.work->backward_ms},
                    {"weights_ms", stage.work->weights_ms},
                    {"sync", sync_json(stage.work->sync)}};
  }
  return json;
}

// The devices of a stage, their shares of its work, and its times.
Json group_json(const PlanStage& stage) {
  Json devices = Json::array(), memory = Json::object();
  for (const int device : stage.device_numbers) devices.push_back(device);
  for (const auto& [key, part] : kMemoryParts) memory[key] = whole_bytes(stage.memory.*part);
  return {{"devices", std::move(devices)},
          {"replicas", stage.replicas},
          {"width", stage.width},
          {"samples", std::vector<double>(static_cast<std::size_t>(stage.replicas), stage.samples)},
          {"zero", stage.variant.zero},
          {"recompute", stage.variant.recompute ? kRecomputeLayer : kRecomputeNone},
          {"compute_ms", stage.compute_ms},
          {"forward_ms", stage.forward_ms},
          {"backward_ms", stage.backward_ms},
          {"allreduce_ms", stage.allreduce_ms},
          {"sync", sync_json(stage.sync)},
          {"shared_gradients_ms", stage.shared_gradients_ms},
          {"optimizer_ms", stage.optimizer_ms},
          {"memory_bytes", whole_bytes(stage.memory_bytes)},
          {"memory", std::move(memory)},
          {"capacity_bytes", whole_bytes(stage.capacity_bytes)}};
}

}  // namespace

namespace {

void name_part(const Profile& profile, int p0, int p1, PlanPart& stage) {
  if (!profile.name.empty()) {
    stage.first_name = profile.name[static_cast<std::size_t>(p0)];
    stage.last_name = profile.name[static_cast<std::size_t>(p1) - 1];
  }
  if (profile.layer.empty()) return;
  for (int p = p0; p < p1 && stage.first_layer.empty(); ++p) {
    stage.first_layer = profile.layer[static_cast<std::size_t>(p)];
  }
  for (int p = p1; p > p0 && stage.last_layer.empty(); --p) {
    stage.last_layer = profile.layer[static_cast<std::size_t>(p) - 1];
  }
}

}  // namespace

namespace {

std::vector<LoopTurns> loop_turns_of(const Profile& profile, int p0, int p1) {
  std::vector<LoopTurns> out;
  for (int p = p0; p < p1 && !profile.name.empty(); ++p) {
    const auto turn = turn_of(profile.name[static_cast<std::size_t>(p)]);
    if (!turn) continue;
    if (out.empty() || out.back().loop != turn->loop) {
      out.push_back({std::string(turn->loop), turn->number, turn->number, turn->all});
    }
    out.back().last = turn->number;
  }
  return out;
}

PlanPart describe_part(const PlacedStage& placed, const PlacedPart& part, const Profile& profile) {
  PlanPart out;
  out.first_instruction = part.p0 + 1;
  out.last_instruction = part.p1;
  name_part(profile, part.p0, part.p1, out);
  out.loop_turns = loop_turns_of(profile, part.p0, part.p1);
  if (part.behind.bytes_per_ms > 0) {
    out.transfer_ms = part.behind.ms(placed.problem->activation_bytes(part.p1));
  }
  out.weight_bytes = placed.problem->weight_bytes(part.p0, part.p1);
  return out;
}

// Its parts together.
PlanStage describe_stage(const PlacedStage& placed, const Profile& profile, int in_flight, double memory_bytes,
                         const MemoryParts& memory) {
  const Problem& problem = *placed.problem;
  const DeviceGroup& group = placed.group();
  PlanStage stage;
  static_cast<PlanPart&>(stage) = describe_part(placed, placed.part(), profile);
  stage.width = placed.width();
  stage.first_device = placed.d0 * stage.width + 1;
  stage.replicas = placed.d1 - placed.d0;
  stage.devices = stage.replicas * stage.width;
  for (const int device : placed.device_numbers()) stage.device_numbers.push_back(device + 1);
  stage.samples = problem.micro_batch_samples() / stage.replicas;
  stage.variant = problem.variant(placed.variant);
  for (const PlacedPart& part : placed.parts) {
    if (&part != &placed.parts.front()) stage.more_parts.push_back(describe_part(placed, part, profile));
    PipelineTimes times;
    add_stage_times(problem, part.p0, part.p1, group, placed.variant, times);
    stage.forward_ms += times.forward_ms.front();
    stage.backward_ms += times.backward_ms.front();
    stage.optimizer_ms += times.optimizer_ms.front();
    stage.shared_gradients_ms += problem.exchange_ms(part.p0, part.p1, group);
    std::vector<SyncBucket> sync;
    problem.sync_buckets(part.p0, part.p1, group, placed.variant, sync);
    // In the order in which backwards make them ready.
    stage.sync.insert(stage.sync.begin(), sync.begin(), sync.end());
  }
  stage.compute_ms = stage.forward_ms + stage.backward_ms;
  for (const SyncBucket& bucket : stage.sync) stage.allreduce_ms += bucket.ms;
  stage.in_flight = in_flight;
  stage.memory = memory;
  stage.memory_bytes = memory_bytes;
  stage.capacity_bytes = group.capacity_bytes;
  return stage;
}

// Fills in the work of every part, on which an ordered schedule's lists are based.
void describe_work(const PlacedPlan& placed, PlanDocument* document) {
  const WorkTimes times = work_times(placed);
  const std::vector<PlacedPlan::PartOf> parts = placed.parts();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    PlanStage& stage = document->stages[at(parts[p].stage)];
    PlanPart& part = parts[p].number == 0 ? stage : stage.more_parts[at(parts[p].number - 1)];
    part.work = PlanPart::Work{times.forward_ms[p], times.backward_ms[p],
                               times.split_backward() ? times.weights_ms[p] : 0, times.sync[p]};
  }
}

}  // namespace

PlanDocument describe_plan(const Problem& problem, const Profile& profile, const Plan& plan) {
  AM_CHECK(valid_structure(problem, plan));
  return describe_plan(place(problem, plan), profile);
}

PlanDocument describe_plan(const PlacedPlan& placed, const Profile& profile) {
  const Problem& problem = placed.problem();
  const int n = problem.num_instructions();
  AM_CHECK(profile.size() == n);
  PlanDocument document;
  document.model = profile.model;
  document.micro_batches = problem.micro_batches();
  document.micro_batch_samples = problem.micro_batch_samples();
  document.replicas = to_string(problem.options().replicas);
  document.gradient_sync = to_string(problem.options().gradient_sync);
  document.num_instructions = n;
  document.attention_heads = profile.attention_heads;
  document.num_devices = placed.num_devices();
  document.bound_devices = {document.num_devices};
  document.plan = placed.plan;
  const std::vector<int> in_flight = in_flight_of(placed);
  const std::vector<double> bytes = memory_of(placed);
  const std::vector<MemoryParts> parts = memory_parts_of(placed);
  for (std::size_t i = 0; i < placed.stages.size(); ++i) {
    document.stages.push_back(describe_stage(placed.stages[i], profile, in_flight[i], bytes[i], parts[i]));
  }
  if (!is_alternating(placed.plan.schedule)) describe_work(placed, &document);
  document.step_ms = value_ms(placed);
  document.simulated_step_ms = simulate_step_ms(placed);
  return document;
}

namespace {

Json learning_json(const PlanLearning& learning) {
  Json steps = Json::array();
  for (const PlanLearning::Step& step : learning.steps) {
    steps.push_back({{"play", step.play}, {"seconds", step.seconds}, {"length_ms", step.length_ms}});
  }
  return {{"plays", learning.plays},
          {"earlier_plays", learning.earlier_plays},
          {"updates", learning.updates},
          {"seconds", learning.seconds},
          {"steps", steps}};
}

PlanLearning read_learning(const PlanObject& learning) {
  const auto count = [](const PlanObject& object, const char* key) {
    return static_cast<std::uint64_t>(std::max(0.0, object.number(key)));
  };
  PlanLearning out;
  out.plays = count(learning, "plays");
  out.earlier_plays = count(learning, "earlier_plays");
  out.updates = count(learning, "updates");
  out.seconds = learning.number("seconds");
  for (const Json& item : learning.array("steps")) {
    const PlanObject step(item, learning.where("steps"));
    out.steps.push_back({count(step, "play"), step.number("seconds"), step.number("length_ms")});
  }
  return out;
}

Json planner_table_json(const PlannerTable& table) {
  const bool bounded = table.reference_ms > 0;
  Json rows = Json::array();
  for (const PlannerTableRow& row : table.rows) {
    const auto if_found = [&](double value) { return row.stages > 0 ? Json(value) : Json(); };
    rows.push_back({{"planner", row.planner},
                    {"stages", row.stages > 0 ? Json(row.stages) : Json()},
                    {"step_ms", if_found(row.step_ms)},
                    {"simulated_step_ms", if_found(row.simulated_step_ms)},
                    {"gap", bounded ? if_found(row.gap) : Json()},
                    {"planning_ms", row.planning_ms},
                    {"cut_by_time", row.cut_by_time}});
  }
  return {{"reference_ms", bounded ? Json(table.reference_ms) : Json()},
          {"reference_method", or_null(table.reference_method)},
          {"rows", rows}};
}

PlannerTable read_planner_table(const PlanObject& table, int most_stages) {
  PlannerTable out;
  out.reference_ms = table.number_or_zero("reference_ms");
  out.reference_method = table.text_or_empty("reference_method");
  for (const Json& item : table.array("rows")) {
    const PlanObject reader(item, table.where("rows"));
    PlannerTableRow row;
    row.planner = reader.text("planner");
    if (reader.has("stages")) row.stages = reader.integer("stages", 1, most_stages);
    row.step_ms = reader.number_or_zero("step_ms");
    row.simulated_step_ms = reader.number_or_zero("simulated_step_ms");
    if (row.stages > 0 && out.reference_ms > 0) row.gap = row.step_ms / out.reference_ms - 1;
    row.planning_ms = reader.number("planning_ms");
    row.cut_by_time = reader.flag("cut_by_time");
    out.rows.push_back(std::move(row));
  }
  return out;
}

// The word for the quantity that was scaled.
const char* scaled_word(const MeasuredStep& step) {
  if (step.network_factor != 1) return "everything";
  return step.compute_factor != 1 ? "compute" : "nothing";
}

Json measured_step_json(const MeasuredStep& step) {
  return {{"layout", step.layout},
          {"batch", step.batch},
          {"measured_ms", step.measured_ms},
          {"estimated_ms", step.estimated_ms},
          {"factor", step.factor()},
          {"scaled", scaled_word(step)},
          {"compute_factor", step.compute_factor},
          {"network_factor", step.network_factor},
          {"class", step.error_class},
          {"usual_factors", {step.usual_factor_least, step.usual_factor_most}},
          {"usual", step.usual()}};
}

MeasuredStep read_measured_step(const PlanObject& reader) {
  MeasuredStep step;
  const auto positive = [&](const char* key) {
    const double value = reader.number(key);
    if (!(value > 0)) reader.wrong(key, reader.at(key), "a number above 0");
    return value;
  };
  constexpr double kLargestFactor = 1000;
  const auto factor = [&](const char* key) {
    const double value = reader.number(key);
    if (!(value >= 1 / kLargestFactor && value <= kLargestFactor)) {
      reader.wrong(key, reader.at(key), "a factor from 0.001 to 1000");
    }
    return value;
  };
  step.layout = reader.text("layout");
  step.batch = positive("batch");
  step.measured_ms = positive("measured_ms");
  step.estimated_ms = positive("estimated_ms");
  step.compute_factor = factor("compute_factor");
  step.network_factor = factor("network_factor");
  step.error_class = reader.text("class");
  const Json& usual = reader.array("usual_factors");
  if (usual.size() != 2 || !usual[0].is_number() || !usual[1].is_number()) {
    reader.wrong("usual_factors", usual, "two numbers, the least and the most");
  }
  step.usual_factor_least = usual[0].get<double>();
  step.usual_factor_most = usual[1].get<double>();
  return step;
}

Json bounds_json(const PlanDocument& document) {
  const auto known = [](double ms) { return ms > 0 ? Json(ms) : Json(); };
  Json bounds = {{"value", known(document.lower_bound_ms)},     {"simulated", known(document.simulated_bound_ms)},
                 {"any_order", known(document.order_bound_ms)}, {"all_devices", document.bound_all_devices},
                 {"devices", document.bound_devices},           {"devices_in_part", document.bound_devices_in_part}};
  if (!document.bound_within.empty()) bounds["within"] = document.bound_within;
  const PlanDocument::BoundPremises& premises = document.premises;
  if (!premises.schedules.empty()) {
    bounds["premises"] = {{"widths", premises.widths},
                          {"schedules", premises.schedules},
                          {"stages", {premises.least_stages, premises.most_stages}},
                          {"micro_batch_samples", premises.micro_batch_samples},
                          {"rules", premises.rules}};
    Json relaxed = Json::array();
    for (const PlanDocument::Relaxed& one : document.relaxed) {
      relaxed.push_back({{"rule", one.rule}, {"options", one.options}, {"simulated_step_ms", one.simulated_ms}});
    }
    bounds["relaxed"] = relaxed;
  }
  if (document.bounded != BoundedWidths::kAll) {
    const bool one = document.bounded == BoundedWidths::kOne;
    bounds["widths"] = one ? kOneWidth : kAnyWidths;
    bounds["other"] = {{"widths", one ? kAnyWidths : kOneWidth},
                       {"value", known(document.other_bounds.value_ms)},
                       {"simulated", known(document.other_bounds.simulated_ms)},
                       {"method", or_null(document.other_bounds.method)}};
  }
  return bounds;
}

}  // namespace

Json utilization_json(const PlanUtilization& of) {
  const auto known = [](double value) { return value > 0 ? Json(value) : Json(); };
  return {{"samples_per_s", known(of.samples_per_s)},
          {"tokens_per_s", known(of.tokens_per_s)},
          {"model_tflops_per_device", known(of.model_tflops)},
          {"mfu", known(of.mfu)},
          {"hfu", known(of.hfu)}};
}

namespace {

Json corner_json(const PlanCorner& corner) {
  Json row = {{"name", corner.name}, {"fits", corner.fits}, {"why", corner.why}};
  if (!corner.fits) return row;
  row["layout"] = or_null(corner.layout);
  row["stages"] = corner.stages;
  row["width"] = corner.width;
  row["devices"] = corner.devices;
  row["micro_batches"] = corner.micro_batches;
  row["micro_batch_samples"] = corner.micro_batch_samples;
  row["step_ms"] = corner.step_ms;
  row["simulated_step_ms"] = corner.simulated_step_ms;
  row["memory_bytes"] = corner.memory_bytes;
  row["capacity_bytes"] = corner.capacity_bytes;
  row["utilization"] = utilization_json(corner.utilization);
  if (!corner.left_out.empty()) row["left_out"] = corner.left_out;
  if (!corner.chunk_cuts.empty()) row["chunk_cuts"] = corner.chunk_cuts;
  if (!corner.stage_devices.empty()) {
    row["stage_devices"] = corner.stage_devices;
    row["stage_widths"] = corner.stage_widths;
  }
  return row;
}

Json corners_json(const std::vector<PlanCorner>& corners) {
  Json rows = Json::array();
  for (const PlanCorner& corner : corners) rows.push_back(corner_json(corner));
  return rows;
}

Json sensitivity_json(const std::vector<PlanSensitivity>& rows) {
  Json out = Json::array();
  for (const PlanSensitivity& row : rows) {
    const bool fits = row.simulated_step_ms > 0;
    out.push_back({{"changed", row.changed},
                   {"simulated_step_ms", fits ? Json(row.simulated_step_ms) : Json()},
                   {"best_ms", row.best_ms > 0 ? Json(row.best_ms) : Json()},
                   {"loss", fits ? Json(row.loss()) : Json()},
                   {"best", or_null(row.best)}});
  }
  return out;
}

std::vector<PlanSensitivity> read_sensitivity(const PlanObject& plan) {
  std::vector<PlanSensitivity> rows;
  for (const Json& item : plan.array("sensitivity")) {
    const PlanObject reader(item, plan.where("sensitivity"));
    rows.push_back({reader.text("changed"), reader.number_or_zero("simulated_step_ms"),
                    reader.number_or_zero("best_ms"), reader.text_or_empty("best")});
    if (rows.back().simulated_step_ms > 0 && rows.back().best_ms == 0) reader.fail("best_ms: missing");
  }
  return rows;
}

}  // namespace

std::vector<const PlanPart*> PlanStage::own_parts() const {
  std::vector<const PlanPart*> own = {this};
  for (const PlanPart& part : more_parts) own.push_back(&part);
  return own;
}

double PlanStage::sends_ms() const {
  double ms = 0;
  for (const PlanPart* part : own_parts()) ms += part->transfer_ms;
  return ms;
}

std::vector<const PlanPart*> PlanDocument::parts() const {
  std::vector<const PlanPart*> of_model;
  std::vector<std::size_t> seen(stages.size(), 0);
  for (const int group : group_of_parts(plan.placement, static_cast<int>(stages.size()), plan.chunks)) {
    const PlanStage& stage = stages[at(group)];
    const std::size_t number = seen[at(group)]++;
    of_model.push_back(number == 0 ? &stage : &stage.more_parts[number - 1]);
  }
  return of_model;
}

std::vector<int> PlanDocument::stage_widths() const {
  std::vector<int> of_stages;
  for (const PlanStage& stage : stages) of_stages.push_back(stage.width);
  return of_stages;
}

bool PlanDocument::mixed_widths() const {
  return std::any_of(stages.begin(), stages.end(), [&](const PlanStage& s) { return s.width != stages.front().width; });
}

namespace {

Json lists_json(const std::vector<std::vector<std::string>>& lists) {
  Json json = Json::array();
  for (const std::vector<std::string>& list : lists) json.push_back(list);
  return json;
}

constexpr const char* kPlacedRoundRobin = "round-robin";
constexpr const char* kPlacedV = "v";

// The row of the schedule, and the choices that the row leaves open.
Json schedule_json(const PlanDocument& document) {
  const Plan& plan = document.plan;
  Json in_flight = Json::array();
  for (const PlanStage& stage : document.stages) in_flight.push_back(stage.in_flight);
  Json json = {{"name", to_string(plan.schedule)}, {"in_flight", in_flight}};
  if (says_in_flight(plan.schedule)) return json;
  json["chunks"] = plan.chunks;
  json["placement"] = plan.placement == Placement::kV ? kPlacedV : kPlacedRoundRobin;
  json["split_backward"] = plan.split_backward;
  if (plan.order == nullptr) return json;
  Json& order = json["order"] = Json::array();
  for (const GroupOrder& of_group : *plan.order) order.push_back(order_text(of_group));
  return json;
}

}  // namespace

std::string to_json_text(const PlanDocument& document) {
  Json parts = Json::array(), groups = Json::array(), alternatives = Json::array(), limits = Json::array();
  for (const PlanStage& stage : document.stages) groups.push_back(group_json(stage));
  const std::vector<int> group_of =
      group_of_parts(document.plan.placement, static_cast<int>(document.stages.size()), document.plan.chunks);
  for (const PlanPart* part : document.parts()) parts.push_back(part_json(*part, group_of[parts.size()] + 1));
  for (const PlanAlternative& other : document.alternatives) {
    alternatives.push_back({{"planner", other.planner},
                            {"stages", other.stages},
                            {"step_ms", other.step_ms},
                            {"simulated_step_ms", other.simulated_step_ms},
                            {"planning_ms", other.planning_ms}});
  }
  for (const PlanLimitText& limit : document.limits) {
    limits.push_back(
        {{"kind", limit.kind}, {"stage", limit.stage}, {"ms", limit.ms}, {"share", limit.share}, {"text", limit.text}});
  }
  Json layer_split = nullptr;
  if (document.layer_split) {
    const LayerSplit& split = *document.layer_split;
    layer_split = {{"split_before", split.split_before},
                   {"split_spec", split.split_spec.empty() ? Json() : Json(split.split_spec)},
                   {"no_split_spec", or_null(split.no_split_spec)},
                   {"layers_per_stage", split.layers_per_stage},
                   {"stage_layers", lists_json(split.stage_layers)},
                   {"stage_modules", lists_json(split.stage_modules)},
                   {"cuts", split.cuts},
                   {"device_cuts", split.device_cuts},
                   {"widths", split.widths},
                   {"step_ms", split.step_ms},
                   {"simulated_step_ms", split.simulated_step_ms}};
  }
  const bool bounded = document.lower_bound_ms > 0;
  Json answer = {{"cluster", document.cluster},
                 {"batch", document.batch()},
                 {"micro_batch_samples", document.micro_batch_samples},
                 {"micro_batches", document.micro_batches},
                 {"replicas", or_null(document.replicas)},
                 {"gradient_sync", or_null(document.gradient_sync)},
                 {"instructions", document.num_instructions},
                 {"attention_heads", document.attention_heads},
                 {"devices", document.num_devices},
                 {"schedule", schedule_json(document)},
                 {"parts", parts},
                 {"groups", groups},
                 {"step_ms", document.step_ms},
                 {"simulated_step_ms", document.simulated_step_ms},
                 {"utilization", utilization_json(document.utilization)},
                 {"lower_bound_ms", bounded ? Json(document.lower_bound_ms) : Json()},
                 {"lower_bound_method", or_null(document.lower_bound_method)},
                 {"gap", bounded ? Json(document.gap) : Json()},
                 {"bounds", bounds_json(document)},
                 {"limits", limits},
                 {"planner", document.planner},
                 {"objective", document.objective},
                 {"planning_ms", document.planning_ms},
                 {"found_ms", document.found_ms > 0 ? Json(document.found_ms) : Json()},
                 {"proven_ms", document.proven_ms > 0 ? Json(document.proven_ms) : Json()},
                 {"cut_by_time", document.cut_by_time},
                 {"alternatives", alternatives},
                 {"layer_split", layer_split},
                 {"estimates", document.estimates}};
  Json json = in_envelope(kPipelinePlanSchema, "pipeline", document, std::move(answer));
  if (document.expected_most_ms > 0) json["expected_ms"] = {document.expected_least_ms, document.expected_most_ms};
  if (!document.widths.empty()) {
    Json& widths = json["widths"] = Json::array();
    for (const PlanWidth& other : document.widths) {
      widths.push_back({{"width", other.width},
                        {"stages", other.stages},
                        {"step_ms", other.step_ms},
                        {"simulated_step_ms", other.simulated_step_ms}});
    }
  }
  if (!document.report.empty()) {
    Json& report = json["report"] = Json::array();
    for (const PlanSentence& one : document.report) report.push_back({{"label", one.label}, {"text", one.text}});
  }
  if (!document.corners.empty()) json["corners"] = corners_json(document.corners);
  if (document.mixed_widths()) {
    Json& partitions = json["partitions"] = Json::array();
    for (const std::string& partition : document.partitions) partitions.push_back(Json::parse(partition));
  } else if (!document.partitions.empty()) {
    json["partition"] = Json::parse(document.partitions.front());
  }
  if (document.online) json["online"] = learning_json(*document.online);
  if (document.planner_table) json["planner_table"] = planner_table_json(*document.planner_table);
  if (!document.sensitivity.empty()) json["sensitivity"] = sensitivity_json(document.sensitivity);
  if (document.measured_step) json["measured_step"] = measured_step_json(*document.measured_step);
  if (document.cost) json["cost"] = cost_json(*document.cost);
  if (document.frontier) json["frontier"] = frontier_json(*document.frontier);
  if (document.to_type) {
    json["to_type"] = {{"framework", document.to_type->framework},
                       {"arguments", document.to_type->arguments},
                       {"missing", document.to_type->missing},
                       {"cannot", or_null(document.to_type->cannot)},
                       {"hint", or_null(document.to_type->hint)}};
    if (!document.to_type->instead.empty()) {
      json["to_type"]["instead"] = {{"plan", document.to_type->instead},
                                    {"simulated_step_ms", document.to_type->instead_ms}};
    }
  }
  // Names come from the input and may hold any bytes.
  return json_text(json);
}

namespace {

void check_kind(const PlanObject& reader) {
  const std::string kind = reader.text("kind");
  if (kind == "pipeline") return;
  const bool partition = kind == "operator" || kind == "data";
  reader.fail("kind: found \"" + kind + "\", expected \"pipeline\"",
              partition ? "plans of the kinds operator and data are read by automap-search apply and explain" : "");
}

// Reads the question: the inputs that the plan answers.
void read_question(const PlanObject& reader, PlanDocument& document) {
  document.model = reader.text("model");
  document.cluster = reader.text("cluster");
  document.version = plan_version(reader.text("schema"));
  document.micro_batches = reader.integer("micro_batches", 1, kMany);
  document.micro_batch_samples = reader.number_or_zero("micro_batch_samples");
  document.replicas = reader.text_or_empty("replicas");
  if (reader.has("batch") && std::abs(reader.number("batch") - document.batch()) > 1e-9 * document.batch()) {
    reader.fail("batch is not micro_batches times micro_batch_samples");
  }
  document.gradient_sync = reader.text_or_empty("gradient_sync");
  document.num_instructions = reader.integer("instructions", 1, kMany);
  if (reader.has("attention_heads")) document.attention_heads = reader.integer("attention_heads", 0, kMany);
  document.num_devices = reader.integer("devices", 1, kMany);
}

void read_bounds(const PlanObject& reader, PlanDocument& document) {
  document.lower_bound_ms = reader.number_or_zero("lower_bound_ms");
  document.lower_bound_method = reader.text_or_empty("lower_bound_method");
  if (document.lower_bound_ms > 0) document.gap = document.step_ms / document.lower_bound_ms - 1;
  document.bound_devices = {document.num_devices};
  if (!reader.has("bounds")) return;
  const PlanObject bounds(reader.at("bounds"), reader.where("bounds"));
  document.simulated_bound_ms = bounds.number_or_zero("simulated");
  if (bounds.has("all_devices")) document.bound_all_devices = bounds.at("all_devices") == Json(true);
  if (bounds.has("devices")) document.bound_devices = bounds.integers("devices", 1, machine::kMaxDevices);
  if (bounds.has("devices_in_part")) {
    document.bound_devices_in_part = bounds.integers("devices_in_part", 1, machine::kMaxDevices);
  }
  if (bounds.has("within")) document.bound_within = bounds.texts("within");
  if (!bounds.has("widths")) return;
  const std::string widths = bounds.text("widths");
  if (widths != kOneWidth && widths != kAnyWidths) bounds.wrong("widths", bounds.at("widths"), "\"one\" or \"any\"");
  document.bounded = widths == kOneWidth ? BoundedWidths::kOne : BoundedWidths::kAny;
  if (!bounds.has("other")) return;
  const PlanObject other(bounds.at("other"), bounds.where("other"));
  document.other_bounds = {other.number_or_zero("value"), other.number_or_zero("simulated"),
                           other.text_or_empty("method")};
}

// Reads how the plan was found.
void read_search(const PlanObject& reader, PlanDocument& document) {
  document.planner = reader.text("planner");
  document.objective = reader.text_or_empty("objective");
  document.planning_ms = reader.number("planning_ms");
  document.found_ms = reader.number_or_zero("found_ms");
  document.proven_ms = reader.number_or_zero("proven_ms");
  document.cut_by_time = reader.flag("cut_by_time");
}

std::vector<PlanAlternative> read_alternatives(const PlanObject& reader) {
  std::vector<PlanAlternative> alternatives;
  for (const Json& item : reader.array("alternatives")) {
    const PlanObject other(item, reader.where("alternatives"));
    alternatives.push_back({other.text("planner"), other.integer("stages", 1, kMany), other.number("step_ms"),
                            other.number_or_zero("simulated_step_ms"), other.number("planning_ms")});
  }
  return alternatives;
}

std::vector<PlanLimitText> read_limits(const PlanObject& reader) {
  std::vector<PlanLimitText> limits;
  for (const Json& item : reader.array("limits")) {
    const PlanObject limit(item, reader.where("limits"));
    limits.push_back({limit.text("kind"), limit.integer("stage", 0, kMany), limit.number("ms"), limit.number("share"),
                      limit.text("text")});
  }
  return limits;
}

// [S] lists of texts; a file need not have them.
std::vector<std::vector<std::string>> read_lists_of_texts(const PlanObject& reader, const char* key,
                                                          std::size_t stages) {
  std::vector<std::vector<std::string>> lists;
  if (!reader.has(key)) return lists;
  const Json& all = reader.array(key);
  for (std::size_t s = 0; s < all.size(); ++s) {
    const std::string name = std::string(key) + "[" + std::to_string(s) + "]";
    const Json list = {{"list", all[s]}};
    lists.push_back(PlanObject(list, reader.where(name.c_str())).texts("list"));
  }
  if (!lists.empty() && lists.size() != stages) {
    reader.fail(std::string(key) + ": found " + std::to_string(lists.size()) + " lists, expected " +
                std::to_string(stages) + ", one for each stage");
  }
  return lists;
}

LayerSplit read_layer_split(const PlanObject& split, int num_instructions, int num_devices) {
  LayerSplit out;
  out.split_before = split.texts("split_before");
  if (split.has("split_spec")) out.split_spec = split.texts("split_spec");
  out.no_split_spec = split.text_or_empty("no_split_spec");
  out.cuts = split.integers("cuts", 1, num_instructions - 1);
  out.stage_layers = read_lists_of_texts(split, "stage_layers", out.cuts.size() + 1);
  out.stage_modules = read_lists_of_texts(split, "stage_modules", out.cuts.size() + 1);
  out.step_ms = split.number("step_ms");
  out.simulated_step_ms = split.number("simulated_step_ms");
  out.device_cuts = split.integers("device_cuts", 1, num_devices - 1);
  if (split.has("widths")) out.widths = split.integers("widths", 1, num_devices);
  const Json& stacks = split.at("layers_per_stage");
  const PlanObject layers(stacks, split.where("layers_per_stage"));
  for (const auto& [stack, counts] : stacks.items())
    out.layers_per_stage[stack] = layers.integers(stack.c_str(), 0, kMany);
  return out;
}

// Checks a partition of replicas: every tensor has a dimension, or -1. The rest is kept as it stands.
std::string read_partition(const Json& json, const std::string& where) {
  const PlanObject partition(json, where);
  const Json& dims = partition.at("partition");
  const PlanObject of(dims, partition.where("partition"));
  for (const auto& [tensor, dim] : dims.items()) of.integer_of(dim, tensor.c_str(), -1, kMany);
  return json.dump();
}

PlanCorner read_corner(const PlanObject& row, int num_instructions) {
  PlanCorner corner;
  corner.name = row.text("name");
  corner.fits = row.flag("fits");
  corner.why = row.text_or_empty("why");
  if (!corner.fits) return corner;
  corner.layout = row.text_or_empty("layout");
  corner.stages = row.integer("stages", 1, kMany);
  corner.width = row.integer("width", 1, machine::kMaxDevices);
  corner.devices = row.integer("devices", 1, machine::kMaxDevices);
  corner.micro_batches = row.integer("micro_batches", 1, kMany);
  corner.micro_batch_samples = row.number("micro_batch_samples");
  corner.step_ms = row.number("step_ms");
  corner.simulated_step_ms = row.number("simulated_step_ms");
  corner.memory_bytes = row.number_or_zero("memory_bytes");
  corner.capacity_bytes = row.number_or_zero("capacity_bytes");
  corner.left_out = row.text_or_empty("left_out");
  if (row.has("chunk_cuts")) corner.chunk_cuts = row.integers("chunk_cuts", 1, num_instructions - 1);
  if (row.has("stage_devices")) corner.stage_devices = row.integers("stage_devices", 1, machine::kMaxDevices);
  if (row.has("stage_widths")) corner.stage_widths = row.integers("stage_widths", 1, machine::kMaxDevices);
  return corner;
}

// Reads the optional keys.
void read_extras(const PlanObject& reader, PlanDocument& document) {
  if (reader.has("limits")) document.limits = read_limits(reader);
  if (reader.has("layer_split")) {
    document.layer_split = read_layer_split(PlanObject(reader.at("layer_split"), reader.where("layer_split")),
                                            document.num_instructions, document.num_devices);
  }
  if (reader.has("partition"))
    document.partitions.push_back(read_partition(reader.at("partition"), reader.where("partition")));
  if (reader.has("partitions")) {
    for (const Json& partition : reader.array("partitions")) {
      document.partitions.push_back(read_partition(partition, reader.where("partitions")));
    }
  }
  if (reader.has("corners")) {
    for (const Json& item : reader.array("corners")) {
      document.corners.push_back(read_corner(PlanObject(item, reader.where("corners")), document.num_instructions));
    }
  }
  if (reader.has("online")) document.online = read_learning(PlanObject(reader.at("online"), reader.where("online")));
  if (reader.has("planner_table")) {
    document.planner_table =
        read_planner_table(PlanObject(reader.at("planner_table"), reader.where("planner_table")), kMany);
  }
  if (reader.has("sensitivity")) document.sensitivity = read_sensitivity(reader);
  if (reader.has("measured_step")) {
    document.measured_step = read_measured_step(PlanObject(reader.at("measured_step"), reader.where("measured_step")));
  }
  if (reader.has("estimates")) document.estimates = reader.texts("estimates");
  if (reader.has("warnings")) document.warnings = reader.texts("warnings");
  if (reader.has("report")) {
    for (const Json& item : reader.array("report")) {
      const PlanObject one(item, reader.where("report"));
      document.report.push_back({one.text("label"), one.text("text")});
    }
  }
}

// Checks that the stage `s`, from 0, agrees with the lists.
void check_stage(const PlanObject& reader, const PlanDocument& document, std::size_t s, int in_flight) {
  const PlanStage& stage = document.stages[s];
  if (stage.in_flight > 0 && stage.in_flight != in_flight) {
    reader.fail("stage " + std::to_string(s + 1) + " contradicts in_flight");
  }
  const bool last = s + 1 == document.stages.size();
  const int d0 = s == 0 ? 0 : document.plan.device_cuts[s - 1];
  const int d1 = last ? document.num_devices : document.plan.device_cuts[s];
  // Those of several parts for each stage were looked at one by one.
  const bool several = document.plan.chunks > 1;
  const int p0 = several || s == 0 ? 0 : document.plan.cuts[s - 1];
  const int p1 = several || last ? document.num_instructions : document.plan.cuts[s];
  const bool other_part = !several && (stage.first_instruction != p0 + 1 || stage.last_instruction != p1);
  if (other_part || stage.first_device != d0 + 1 || stage.devices != d1 - d0) {
    reader.fail("stage " + std::to_string(s + 1) +
                (document.version >= 3
                     ? ": expected instructions and devices that follow those of the stage in front, and "
                       "the last stage to end with the last of them"
                     : " contradicts cuts and device_cuts"));
  }
  if (stage.replicas * stage.width != stage.devices) {
    reader.fail("stage " + std::to_string(s + 1) + ": replicas times width are not its devices");
  }
}

// The lists must tell one story.
void check_lists_agree(const PlanObject& reader, const PlanDocument& document, const std::vector<int>& in_flight) {
  const std::size_t stages = document.stages.size();
  if (stages == 0) reader.fail("stages: found none, expected at least one");
  if (document.plan.cuts.size() + 1 != stages * at(document.plan.chunks) ||
      document.plan.device_cuts.size() != stages - 1 || in_flight.size() != stages) {
    reader.fail(document.version >= 3 ? "schedule.in_flight and groups do not agree on the number of stages"
                                      : "cuts, device_cuts, in_flight and stages do not agree on the number of stages");
  }
  for (const std::vector<int>* cuts : {&document.plan.cuts, &document.plan.device_cuts}) {
    if (std::adjacent_find(cuts->begin(), cuts->end(), std::greater_equal<>()) != cuts->end()) {
      reader.fail("cuts and device_cuts must be strictly increasing");
    }
  }
  for (std::size_t s = 0; s < stages; ++s) check_stage(reader, document, s, in_flight[s]);
}

}  // namespace

namespace {

// Reads the schedule of a version 3 file: all that its row leaves open, without the lists of the stages. Returns K_s.
std::vector<int> read_schedule_of(const PlanObject& schedule, Plan* plan) {
  plan->schedule = read_schedule(schedule.text("name"), schedule.where("name"));
  const std::vector<int> in_flight = schedule.integers("in_flight", 1, kMany);
  if (says_in_flight(plan->schedule)) return in_flight;
  plan->chunks = schedule.integer_or("chunks", 1, kMostChunks, 1);
  const std::string placement = schedule.has("placement") ? schedule.text("placement") : kPlacedRoundRobin;
  if (placement != kPlacedRoundRobin && placement != kPlacedV) {
    schedule.wrong("placement", schedule.at("placement"), "\"round-robin\" or \"v\"");
  }
  plan->placement = placement == kPlacedV ? Placement::kV : Placement::kRoundRobin;
  if (plan->placement == Placement::kV && plan->chunks != 2) {
    schedule.wrong("chunks", schedule.at("chunks"), "2, the parts of a group where they lie as a V");
  }
  plan->split_backward = schedule.has("split_backward") && schedule.flag("split_backward");
  const std::string expected = shape_expected(*plan);
  if (!expected.empty()) schedule.fail(std::string(to_string(plan->schedule)) + ": expected " + expected);
  if (plan->schedule != Schedule::kSearched && schedule.has("order")) {
    schedule.fail("order: the schedule " + std::string(to_string(plan->schedule)) + " has lists of its own");
  }
  if (plan->schedule != Schedule::kSearched) return in_flight;
  WorkOrder order;
  for (const std::string& text : schedule.texts("order")) {
    order.emplace_back();
    std::string wrong;
    if (!parse_order(text, &order.back(), &wrong)) {
      schedule.fail("order: found \"" + printable(wrong) + "\" in the list of group " + std::to_string(order.size()) +
                    ", expected F, B or W with a part and a micro-batch, like F1.1");
    }
  }
  if (order.size() != in_flight.size()) {
    schedule.fail("order: found " + std::to_string(order.size()) + " lists, expected one for each of the " +
                  std::to_string(in_flight.size()) + " groups");
  }
  plan->order = std::make_shared<const WorkOrder>(std::move(order));
  return in_flight;
}

// Stages with all that lists say of them; K_s of each.
std::vector<int> read_lists(const PlanObject& reader, const std::string& source, PlanDocument& document) {
  document.plan.schedule = read_schedule(reader.text("schedule"), reader.where("schedule"));
  if (!is_alternating(document.plan.schedule)) {
    reader.wrong("schedule", reader.at("schedule"), "one of " + alternating_names() + " in a file of this version");
  }
  document.plan.cuts = reader.integers("cuts", 1, document.num_instructions - 1);
  document.plan.device_cuts = reader.integers("device_cuts", 1, document.num_devices - 1);
  std::vector<int> in_flight = reader.integers("in_flight", 1, kMany);
  int number = 0;
  for (const Json& item : reader.array("stages")) {
    document.stages.push_back(read_stage(item, source + ": stage " + std::to_string(++number),
                                         document.num_instructions, document.num_devices));
  }
  return in_flight;
}

std::vector<int> read_parts_and_groups(const PlanObject& reader, const std::string& source, PlanDocument& document) {
  Plan& plan = document.plan;
  std::vector<int> in_flight = read_schedule_of(PlanObject(reader.at("schedule"), reader.where("schedule")), &plan);
  const Json &parts = reader.array("parts"), &groups = reader.array("groups");
  const std::size_t expected = groups.size() * at(plan.chunks);
  if (parts.size() != expected) {
    reader.fail("parts and groups: found " + std::to_string(parts.size()) + " and " + std::to_string(groups.size()) +
                ", expected " + (plan.chunks == 1 ? "a part" : std::to_string(plan.chunks) + " parts") +
                " for each group");
  }
  int in_front = 0;
  std::set<int> seen;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    const PlanObject group(groups[s], source + ": group " + std::to_string(s + 1));
    PlanStage stage;
    read_devices(group, in_front, &stage);
    in_front += stage.devices;
    for (const int device : stage.device_numbers) {
      if (seen.insert(device).second) continue;
      group.fail("devices: found " + std::to_string(device) + " a second time, expected every device in one group");
    }
    read_group(group, document.num_devices, &stage);
    read_samples(group, &stage);
    document.stages.push_back(std::move(stage));
  }
  const std::vector<int> group_of = group_of_parts(plan.placement, static_cast<int>(groups.size()), plan.chunks);
  std::vector<bool> begun(groups.size(), false);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const PlanObject part(parts[p], source + ": part " + std::to_string(p + 1));
    const int group = group_of[p];
    if (part.integer("group", 1, kMany) != group + 1) {
      part.wrong("group", part.at("group"), std::to_string(group + 1) + ", where the schedule puts it");
    }
    PlanPart read;
    read_part(part, document.num_instructions, &read);
    const int follows = plan.cuts.empty() ? 1 : plan.cuts.back() + 1;
    if (plan.chunks > 1 && (read.first_instruction != follows || read.last_instruction < follows ||
                            (p + 1 == parts.size()) != (read.last_instruction == document.num_instructions))) {
      part.fail("expected instructions that follow those of the part in front, and the last part to end with the last");
    }
    if (p + 1 < parts.size()) plan.cuts.push_back(read.last_instruction);
    PlanStage& stage = document.stages[at(group)];
    if (begun[at(group)]) {
      stage.more_parts.push_back(std::move(read));
    } else {
      static_cast<PlanPart&>(stage) = std::move(read);
    }
    begun[at(group)] = true;
  }
  for (std::size_t s = 0; s + 1 < document.stages.size(); ++s) {
    const PlanStage& stage = document.stages[s];
    plan.device_cuts.push_back(stage.first_device + stage.devices - 1);
  }
  if (plan.order != nullptr) {
    const std::string fault = order_fault(*plan.order, group_of, document.micro_batches, plan.split_backward);
    if (!fault.empty()) reader.fail("schedule.order: " + fault, "every group does each work of its parts once");
  }
  return in_flight;
}

}  // namespace

PlanDocument parse_plan(std::string_view json_text, const std::string& source) {
  const Json json = parse_plan_json(json_text, source);
  const PlanObject reader(json, source);
  check_kind(reader);
  PlanDocument document;
  read_question(reader, document);
  const std::vector<int> in_flight =
      document.version >= 3 ? read_parts_and_groups(reader, source, document) : read_lists(reader, source, document);
  document.step_ms = reader.number("step_ms");
  document.simulated_step_ms = reader.number("simulated_step_ms");
  read_bounds(reader, document);
  read_search(reader, document);
  document.alternatives = read_alternatives(reader);
  read_extras(reader, document);
  for (auto& [key, value] : read_provenance(reader)) document.provenance[key] = value;
  check_lists_agree(reader, document, in_flight);
  for (std::size_t s = 0; s < in_flight.size(); ++s) document.stages[s].in_flight = in_flight[s];
  return document;
}

PlanDocument load_plan(const std::string& path) {
  const std::string source = input_name(path);
  return parse_plan(gunzip_if_gzip(read_file(path, kMaxPlanBytes), source, kMaxPlanBytes), source);
}

bool looks_like_plan(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || text[start] != '{') return false;
  return text.substr(0, 4096).find("\"automap.plan/") != std::string_view::npos;
}

std::size_t fullest_stage(const PlanDocument& document) {
  const auto fullest =
      std::max_element(document.stages.begin(), document.stages.end(), [](const PlanStage& a, const PlanStage& b) {
        return a.memory_bytes / a.capacity_bytes < b.memory_bytes / b.capacity_bytes;
      });
  return static_cast<std::size_t>(fullest - document.stages.begin());
}

}  // namespace automap::pipeline
