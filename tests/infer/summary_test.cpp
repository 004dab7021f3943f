// The answer in fifteen lines.
#include "infer/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/base/text_table.h"

namespace automap::infer {
namespace {

using pipeline::PlanDocument;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

PlanDocument plan_of(int stages, int devices_each, int width = 1, int zero = 0) {
  PlanDocument document;
  document.model = "m";
  document.cluster = "c";
  document.micro_batches = 4;
  document.micro_batch_samples = 8;
  document.replicas = "whole";
  document.num_devices = stages * devices_each;
  document.planner = "exact";
  document.step_ms = document.simulated_step_ms = 100;
  document.expected_least_ms = 80;
  document.expected_most_ms = 150;
  document.simulated_bound_ms = 90;
  for (int s = 0; s < stages; ++s) {
    pipeline::PlanStage stage;
    stage.first_layer = "h/" + std::to_string(2 * s);
    stage.last_layer = "h/" + std::to_string(2 * s + 1);
    stage.devices = devices_each;
    stage.width = width;
    stage.replicas = devices_each / width;
    stage.samples = 8.0 / stage.replicas;
    stage.variant.zero = zero;
    for (int d = 0; d < devices_each; ++d) stage.device_numbers.push_back(s * devices_each + d + 1);
    stage.memory_bytes = 1e9 * (s + 1);
    stage.capacity_bytes = 1e10;
    document.stages.push_back(stage);
  }
  document.plan.cuts.assign(static_cast<std::size_t>(stages - 1), 0);
  document.limits = {{"stage", 1, 90, 0.9, "stage 1 computes"}};
  return document;
}

ReportOptions options_of(const PlanDocument& document) {
  ReportOptions options;
  options.model_batch = 2;
  options.cluster_devices = document.num_devices;
  return options;
}

TEST(Summary, SaysWhatThePlanIs) {
  const auto title = [](const PlanDocument& document) {
    const std::string text = summary_text(document, options_of(document));
    return text.substr(0, text.find("\nTakes"));
  };
  EXPECT_EQ(title(plan_of(1, 8)), "Plan    Train m on all 8 devices of c: data parallelism");
  EXPECT_THAT(title(plan_of(1, 8, 1, 3)), HasSubstr(": FSDP (ZeRO 3)"));
  EXPECT_THAT(title(plan_of(1, 8, 1, 1)), HasSubstr(": data parallelism with ZeRO 1"));
  EXPECT_THAT(title(plan_of(1, 8, 4, 0)), HasSubstr(": tensor parallelism of 4, data parallelism of 2"));
  EXPECT_THAT(title(plan_of(1, 1)), HasSubstr("on the device of c: one replica"));
  EXPECT_THAT(title(plan_of(2, 4)), HasSubstr(": a pipeline of 2 stages, data parallelism of 4"));
  PlanDocument again = plan_of(2, 4);
  again.stages[0].variant.recompute = true;
  EXPECT_THAT(title(again), HasSubstr("recomputation\n        in 1 stage"));
  again.stages[1].variant.recompute = true;
  EXPECT_THAT(title(again), AllOf(HasSubstr("recomputation"), Not(HasSubstr("recomputation in"))));
}

TEST(Summary, SaysHowLongAndHowSure) {
  PlanDocument document = plan_of(2, 4);
  document.utilization = {80, 81920, 100, 0.321, 0.4};
  const std::string text = summary_text(document, options_of(document));
  EXPECT_THAT(text, HasSubstr("100 ms a step (80.0 ms to 150 ms), 81 920 tokens/s, MFU 32.1 %"));
  EXPECT_THAT(text, HasSubstr("of 9.31 GiB on the\n        fullest device"));
  EXPECT_THAT(text, HasSubstr("Stages  1  h/0 to h/1 on devices 1-4\n        2  h/2 to h/3 on devices 5-8\n"));
  EXPECT_THAT(
      text, HasSubstr("Proven  no plan of the kinds searched is below 90.0 ms, 10.0 % less (on the devices tried)\n"));
  EXPECT_THAT(text, HasSubstr("(no --batch: 16 times the model's 2)"));
  PlanDocument ordered = document;
  ordered.order_bound_ms = 95;
  EXPECT_THAT(summary_text(ordered, options_of(ordered)), Not(HasSubstr("no order of these stages' work")));
  ordered.plan.schedule = pipeline::Schedule::kSearched;
  EXPECT_THAT(
      summary_text(ordered, options_of(ordered)),
      HasSubstr(
          "10.0 % less (on the devices tried); no order\n        of these stages' work is below 95.0 ms, 5.0 % less"));
  document.bound_all_devices = true;
  document.simulated_bound_ms = 99.95;
  EXPECT_THAT(summary_text(document, options_of(document)), HasSubstr("is more than 0.1 % shorter"));
  document.simulated_bound_ms = 0;
  document.lower_bound_ms = 80;
  EXPECT_THAT(summary_text(document, options_of(document)),
              HasSubstr("has a V (the step in closed form) below 80.0 ms"));
  document.simulated_bound_ms = 100;
  document.bound_within = {"--stages 2"};
  EXPECT_THAT(summary_text(document, options_of(document)),
              HasSubstr("no plan of the kinds searched is shorter (within --stages 2)"));
  document.premises.most_stages = 8;
  document.premises.schedules = {"1f1b", "gpipe"};
  EXPECT_THAT(summary_text(document, options_of(document)), HasSubstr("(schedule 1f1b or gpipe; within --stages 2)"));
  document.planner = "given";
  EXPECT_THAT(summary_text(document, options_of(document)), Not(HasSubstr("Proven")));
}

TEST(Summary, NamesOthersByWhatPeopleType) {
  PlanDocument document = plan_of(1, 8);
  const auto row = [&](const char* name, const char* layout, double ms) {
    pipeline::PlanCorner corner;
    corner.name = name;
    corner.layout = layout;
    corner.fits = ms > 0;
    corner.simulated_step_ms = ms;
    document.corners.push_back(corner);
  };
  row("this plan", "", 100);
  row("data parallel", "", 100);  // the same
  row("tensor x data, one stage", "dp=4,pp=1,tp=2,micro-batch-size=8,zero=3", 120);
  row("data parallel, ZeRO 1", "", 130);
  row("zero bubble, ZB-H1 (even)", "dp=4,pp=2,schedule=zb-h1,recompute=layer", 140);
  row("operators split", "", 150);
  row("none", "", 0);
  EXPECT_THAT(
      summary_text(document, options_of(document)),
      HasSubstr("Instead dp4 tp2 zero3 120 ms; data parallel, ZeRO 1 130 ms; dp4 pp2 zb-h1 recompute 140 ms\n"));
}

pipeline::PlanCorner kind(const std::string& name, int stages, double ms) {
  pipeline::PlanCorner corner;
  corner.name = name;
  corner.fits = ms > 0;
  corner.stages = stages;
  corner.devices = 8;
  corner.step_ms = corner.simulated_step_ms = ms;
  return corner;
}

TEST(Summary, SaysWhyNotWhatPeopleKnow) {
  const auto told = [](const PlanDocument& document) {
    for (const pipeline::PlanSentence& one : summary_sentences(document, options_of(document))) {
      if (one.label == "Why not") return one.text;
    }
    return std::string();
  };
  PlanDocument plan = plan_of(2, 4);
  EXPECT_EQ(told(plan), "");  // nothing else was looked at
  plan.corners = {kind("this plan", 2, 100), kind("data parallel, ZeRO 3 (FSDP)", 1, 110)};
  EXPECT_EQ(told(plan), "FSDP would take 110 ms (+10.0 %)");
  plan.corners[1].devices = 4;
  EXPECT_EQ(told(plan), "FSDP would take 110 ms (+10.0 %) on 4 devices");
  plan.corners[1] = kind("data parallel, ZeRO 3 (FSDP)", 1, 0);
  plan.corners[1].why = "deepspeed cannot run it";
  EXPECT_EQ(told(plan), "FSDP: deepspeed cannot run it");
  plan.corners[1].memory_bytes = 80 * (1LL << 30), plan.corners[1].capacity_bytes = 72 * (1LL << 30);
  EXPECT_EQ(told(plan), "FSDP does not fit: it needs 80.0 GiB of the 72.0 GiB on each device");

  plan = plan_of(1, 8, 1, 3);
  plan.corners = {kind("this plan", 1, 100), kind("zero bubble, ZB-H1 (even)", 2, 105),
                  kind("best even grid of several stages", 4, 120)};
  plan.corners[1].left_out = "no plan has it";
  plan.corners[2].layout = "dp=2,pp=4,micro-batch-size=1";
  EXPECT_EQ(told(plan), "a pipeline (dp2 pp4) would take 120 ms (+20.0 %)");
  plan.corners.pop_back();
  EXPECT_EQ(told(plan), "a pipeline (zero bubble, ZB-H1 (even)) would take 105 ms (+5.0 %); no plan has it");
  plan.corners[1] = kind("best even grid of several stages", 4, 0);
  plan.corners[1].why = "no grid fits into memory";
  EXPECT_EQ(told(plan), "a pipeline: no grid fits into memory");
  // Replicas that hold all weights are no FSDP.
  plan.stages.front().variant.zero = 2;
  plan.corners.insert(plan.corners.begin() + 1, kind("data parallel, ZeRO 3 (FSDP)", 1, 103));
  EXPECT_EQ(told(plan), "FSDP would take 103 ms (+3.0 %); a pipeline: no grid fits into memory");
}

TEST(Summary, PartsWithoutNamesGoByTheirInstructions) {
  PlanDocument plan = plan_of(2, 4);
  for (pipeline::PlanStage& stage : plan.stages) {
    stage.first_layer = stage.last_layer = stage.first_name = stage.last_name = "";
  }
  plan.stages[0].first_instruction = 1, plan.stages[0].last_instruction = 4;
  plan.stages[1].first_instruction = 5, plan.stages[1].last_instruction = 5;
  const std::string text = summary_text(plan, options_of(plan));
  EXPECT_THAT(text, HasSubstr("1  instruction 1 to instruction 4 on device"));
  EXPECT_THAT(text, HasSubstr("2  instruction 5 on device"));
}

// For a plan of one stage the summary names a pipeline, though three others are shorter; and the batch that devices
// share.
TEST(Summary, NamesAPipelineAndABatchThatDivides) {
  PlanDocument plan = plan_of(1, 8);
  plan.corners = {kind("a", 1, 101), kind("b", 1, 102), kind("c", 1, 103), kind("p", 2, 150)};
  EXPECT_THAT(summary_text(plan, options_of(plan)), HasSubstr("Instead a 101 ms; b 102 ms; p 150 ms\n"));
  plan.corners[3].simulated_step_ms = 250;  // nobody weighs that
  EXPECT_THAT(summary_text(plan, options_of(plan)), HasSubstr("Instead a 101 ms; b 102 ms; c 103 ms\n"));
  ReportOptions options = options_of(plan);
  options.cluster_devices = 12, options.batch_given = true;
  EXPECT_THAT(summary_text(plan, options), HasSubstr("; --batch 36 divides by all 12 devices\n"));
  options.cluster_devices = 16;
  EXPECT_THAT(summary_text(plan, options), Not(HasSubstr("; for")));
  options.cluster_devices = 12, options.may_use_all = false;
  EXPECT_THAT(summary_text(plan, options), Not(HasSubstr("divides by all")));
}

TEST(Summary, FitsItsLinesAndColumns) {
  for (const int stages : {1, 2, 4, 5, 64}) {
    for (const int width : {20, 40, 63, 100}) {
      PlanDocument document = plan_of(stages, 2);
      document.model = std::string(90, 'x') + "\x1b[2J";
      for (pipeline::PlanStage& stage : document.stages) stage.first_layer = std::string(300, 'y');
      document.limits[0].text = std::string(400, 'z') + " and many words " + std::string(200, 'w');
      for (int i = 0; i < 12; ++i) document.relaxed.push_back({"a rule", "--option", 50});
      document.utilization = {1e12, 1e15, 1e6, 0.999, 1};
      for (int i = 0; i < 20; ++i) {
        pipeline::PlanCorner corner;
        corner.name = i == 0 ? "this plan" : std::string(80, 'c');
        corner.fits = true;
        corner.simulated_step_ms = 100.0 * (i + 1);
        document.corners.push_back(corner);
      }
      document.bound_within.assign(30, "--some-option 12345");
      const std::size_t most = static_cast<std::size_t>(stages) % 2 == 0 ? kSummaryLines : 5;
      const std::string text = summary_text(document, options_of(document), width, most);
      const std::vector<std::string> lines = lines_of(text);
      EXPECT_LE(lines.size(), most) << text;
      for (const std::string& line : lines) EXPECT_LE(display_width(line), std::max(width, kLeastColumns)) << line;
      EXPECT_EQ(text.find('\x1b'), std::string::npos);
      EXPECT_EQ(lines.front().rfind("Plan    Train", 0), 0u);
    }
  }
}

}  // namespace
}  // namespace automap::infer
