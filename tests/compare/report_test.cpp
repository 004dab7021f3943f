// Reports of planted answers.
#include "compare/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/base/json.h"
#include "common/base/text_table.h"

namespace automap::compare {
namespace {

using systems::Judge;
using testing::HasSubstr;
using testing::Not;

Compared planted() {
  Compared compared;
  compared.model = "mo<del>";
  compared.cluster = "pair";
  compared.batch = 1024;
  compared.systems = systems::systems_of("automap,alpa,dapple");
  Answer ours;
  ours.found = true;
  ours.plan = "2 stages of 1 device, 4 micro-batches of 256";
  ours.own_ms = 110;
  ours.step_ms = 100;
  ours.fullest_share = 0.5;
  ours.search_s = 2;
  ours.simulated_bound_ms = 80;
  Answer alpa = ours;
  alpa.step_ms = 150;
  alpa.simulated_bound_ms = -1;
  Answer none;
  none.why_not = "nothing fits";
  compared.answers = {ours, alpa, none};
  return compared;
}

TEST(CompareReport, FitsTheTerminal) {
  for (const int width : {60, 80, 100}) {
    std::istringstream lines(report_text(planted(), width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), width) << line;
  }
  // Columns without room are named, and the plan is not among them.
  EXPECT_THAT(report_text(planted(), 60), HasSubstr("(there is no room for own model, ms"));
  EXPECT_THAT(report_text(planted(), 60), testing::ContainsRegex("\nsystem [^\n]* plan"));
}

TEST(CompareReport, SaysWhoIsShortestAndHowFarFromTheProof) {
  const std::string text = report_text(planted());
  EXPECT_THAT(text, HasSubstr("mo<del> on pair, 1 024 samples a step"));
  EXPECT_THAT(
      text, HasSubstr("Shortest: AutoMap. AutoMap's plan is at most 25.0 % above the shortest of those it considers."));
  EXPECT_THAT(text, HasSubstr("1.500"));
  EXPECT_THAT(text, HasSubstr("DAPPLE has no plan: nothing fits"));
}

TEST(CompareReport, ARivalThatIsShorterIsNamed) {
  Compared compared = planted();
  compared.answers[1].step_ms = 90;
  EXPECT_THAT(report_text(compared), HasSubstr("Shortest: Alpa."));
  // Below what AutoMap's bound is about, the bound says nothing.
  compared.answers[1].step_ms = 70;
  EXPECT_THAT(report_text(compared), Not(HasSubstr("at most")));
  compared.answers[1].step_ms = 100;
  EXPECT_THAT(report_text(compared), HasSubstr("Shortest: AutoMap, Alpa."));
}

TEST(CompareReport, RatiosToNothing) {
  Compared compared = planted();
  compared.answers[0].step_ms = 0;
  const std::string text = report_text(compared);
  EXPECT_THAT(text, testing::ContainsRegex("AutoMap .* 1\\.000 "));
  EXPECT_THAT(text, testing::ContainsRegex("Alpa .* - "));
  EXPECT_THAT(report_html(compared), HasSubstr("<svg"));
  compared.answers[0].step_ms = 1e-300;
  EXPECT_THAT(report_text(compared), testing::ContainsRegex("Alpa .* - "));
}

TEST(CompareReport, WhatAnotherJudgeSaysSetsNoScale) {
  Compared compared = planted();
  compared.answers[1].judge = Judge::kOwnSimulator;
  compared.answers[1].step_ms = 100000;
  EXPECT_THAT(report_html(compared), HasSubstr("own (cut off)"));
  EXPECT_THAT(report_html(compared), HasSubstr("width=\"380.0\" height=\"20\" fill=\"#2a6f97\""));
}

TEST(CompareReport, WhatDoesNotFitIsNoShortest) {
  Compared compared = planted();
  compared.answers[1].step_ms = 50;
  compared.answers[1].fullest_share = 1.2;
  const std::string text = report_text(compared);
  EXPECT_THAT(text, HasSubstr("Shortest: AutoMap."));
  EXPECT_THAT(text, HasSubstr("does not fit"));
  EXPECT_THAT(text, Not(HasSubstr("0.500")));
  EXPECT_EQ(Json::parse(report_json(compared))["systems"][1]["fits"], false);
  compared.answers[0].fullest_share = 2;
  EXPECT_THAT(report_text(compared), HasSubstr("No system has a plan that fits and can be set against others."));
}

TEST(CompareReport, WhoWasNotAskedIsOneSentence) {
  Compared compared = planted();
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
    compared.answers[i] = {};
    compared.answers[i].asked = false;
    compared.answers[i].why_not = "none of <its> business";
  }
  const std::string text = report_text(compared);
  EXPECT_THAT(text, HasSubstr("\nNot asked: AutoMap, DAPPLE: none of <its> business.\n"));
  EXPECT_THAT(text, Not(HasSubstr("\nDAPPLE ")));
  EXPECT_THAT(text, Not(HasSubstr("this program")));
  EXPECT_THAT(report_html(compared), HasSubstr("Not asked: AutoMap, DAPPLE: none of &lt;its&gt; business."));
  const Json document = Json::parse(report_json(compared));
  ASSERT_EQ(document["systems"].size(), 3u);
  EXPECT_EQ(document["systems"][0]["asked"], false);
  EXPECT_EQ(document["systems"][1]["asked"], true);
}

TEST(CompareReport, NobodyHasAPlan) {
  Compared compared = planted();
  for (Answer& answer : compared.answers) answer.found = false;
  EXPECT_THAT(report_text(compared), HasSubstr("No system has a plan."));
  EXPECT_THAT(report_html(compared), HasSubstr("no plan"));
}

TEST(CompareReport, Json) {
  const Json document = Json::parse(report_json(planted()));
  EXPECT_EQ(document["schema"], "automap.systems/1");
  ASSERT_EQ(document["systems"].size(), 3u);
  EXPECT_EQ(document["systems"][0]["gap"], 0.25);
  EXPECT_FALSE(document["systems"][1].contains("gap"));
  EXPECT_EQ(document["systems"][2]["why_not"], "nothing fits");
  EXPECT_FALSE(document["systems"][2].contains("simulated_step_ms"));
}

TEST(CompareReport, ThePageHidesNoMarkup) {
  const std::string page = report_html(planted());
  EXPECT_THAT(page, HasSubstr("mo&lt;del&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("mo<del>")));
  EXPECT_THAT(page, HasSubstr("<svg"));
}

}  // namespace
}  // namespace automap::compare
