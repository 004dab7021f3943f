// Finds the rules on plans that cost much, by searching for shorter plans without them.
#pragma once

#include <string>
#include <vector>

#include "plan/planners/candidate.h"
#include "plan/planners/question.h"

namespace automap::planners {

// A rule that all plans of a question keep, which a shorter plan would break.
struct RelaxedRule {
  std::string rule;         // "every stage has a trainable variable of its own and something to compute"
  std::string options;      // that lift it: "--allow-empty-stages --allow-idle-stages"
  double simulated_ms = 0;  // of a plan found without it
  bool possible = true;     // which runs on the same machines; else it says what the machines cost
};

// A rule is worth naming where the answer changes by more.
constexpr double kRuleWorthNaming = 0.02;

// The rules that bind: looked for quickly, each alone, around `plan`, which is of one width, and named where what is
// found is shorter than the answer's `step_ms`. Those that the options have lifted, or that nothing was found to break,
// are not among them.
std::vector<RelaxedRule> relaxed_rules(const Question& question, const Candidate& plan, double step_ms);

// The rules that all plans of the question keep, for people.
std::vector<std::string> rules_of(const Question& question);

}  // namespace automap::planners
