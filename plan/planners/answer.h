// The answer to a question holds the shortest plan that the question allows, the best plan of every kind (explorer,
// paper Fig. 5), and lower bounds on all plans.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/planners/bounds.h"
#include "plan/planners/candidate.h"
#include "plan/planners/kinds.h"
#include "plan/planners/layers.h"
#include "plan/planners/question.h"
#include "plan/planners/relaxed_rules.h"

namespace automap::planners {

struct Answer {
  Candidate one_width;             // the best whose stages are of one width; none: notes.infeasible says why
  std::optional<Candidate> mixed;  // shorter, and its stages are of different widths
  // Shorter, or all that is asked for, and its schedule is ordered.
  std::optional<Candidate> ordered;
  bool ordered_is_plan() const {
    return ordered && (only_ordered || ordered->simulated_step_ms < one_or_mixed().simulated_step_ms);
  }
  const Candidate& one_or_mixed() const { return mixed ? *mixed : one_width; }
  const Candidate& plan() const { return ordered_is_plan() ? *ordered : one_or_mixed(); }
  bool only_ordered = false;     // Question::beside.only
  Bounds bounds;                 // of plans whose stages are of one width; 0 where an ordered plan is the answer
  Bounds any_widths;             // of plans of stages of any widths; 0: not asked, or not known
  Bounds any_order;              // of plans of any schedule, where one of an ordered one was found
  std::vector<Candidate> kinds;  // the best of every row that was asked, the shortest first; the plan is not repeated
  SearchNotes notes;
  std::vector<WidthAlternative> widths;  // where the profile knows several
  std::string why_fewer;                 // why it leaves devices of the cluster free; empty: it does not
  double free_plan_ms = 0;               // as StepPlan has it
  std::vector<RelaxedRule> relaxed;      // rules that cost more than kRuleWorthNaming
  std::string leaner;  // what the plan costs for filling less memory than the shortest; empty: nothing
  // The question's profile was the other one (see below).
  bool other_profile = false;
};

// Gives another profile of the same model, or none. Where no plan fits into memory, or the plan nearly fills a device,
// the question is asked of this profile, too, and the shorter of both plans counts.
using OtherProfile = std::function<pipeline::Profile()>;

// Answers a question with the plan search and these kinds. If a kind's plan is shorter than the searched one and as the
// question asks, it becomes the plan, and its split of the batch a premise of the bounds. Kinds for which no time is
// left have no row. Stops by the request's limits like plan_step, and throws as it does. Afterwards `question` has the
// profile that the answer is about.
Answer answer(Question& question, const std::vector<KindRow>& kinds, const OtherProfile& other = {});

// Cuts of the plan at whole layers (layers.h), in what is left of the request's time.
LayerResult split_at_layers(const Question& question, const Answer& found);

}  // namespace automap::planners
