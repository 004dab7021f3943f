// Whether a policy is better than another: a sequential paired test. Problems are asked in looks, each doubling what
// there is, until it is settled.
//
//   accepted   upper bound < margin: mean difference + kSigmas standard errors, of kLeastProblems problems or more, and
//              the first found no plan on no more of them than the second
//   refused    lower bound > margin: mean difference - kSigmas standard errors
//   neither    the standard error is as small as asked for, there have been kMostLooks, there are no more problems, or
//              no more time
//
// The verdict is about the difference itself: accepted at a margin of 0 is better, refused is worse, neither is
// undecided; what is accepted at a margin above 0 may be any of them, but is not worse by more than the margin.
//
// A policy that is no better is accepted at one look with a chance of 1 - Phi(2.4) = 0.8 %, so at kMostLooks looks
// with 5 % at most, however the looks depend on each other. tests/train/promotion_test.cpp plays nights.
//
// That holds where the mean is about normal, which it is not when rare problems are everything: a policy that is a
// little better elsewhere and loses the plan in one problem of 1500 would be accepted before that problem was asked.
// Therefore
//   - gaps count up to kMostGap only, and no plan as much (train/paired.h; what is judged is the mean of these);
//   - one problem more is counted than was asked, the worst there can be: the first lost the plan, the second did not.
//     So 0.1 points are accepted after some 4000 problems, not before; sooner 0.5 points, after 700.
// Assumption: problems are asked at random from those that count, so that what is rarer than one in all that were asked
// weighs kMostGap times that at most.
#pragma once

#include <cmath>

#include "train/paired.h"

namespace automap::train {

class PromotionTest {
 public:
  static constexpr int kMostLooks = 6;
  static constexpr double kSigmas = 2.4;

  // `margin`: gaps; 0: better, above: not much worse. `standard_error`: of a difference that is known well enough.
  PromotionTest(double margin, double standard_error) : margin_(margin), asked_error_(standard_error) {}

  // After each look, of all problems asked so far, counted gaps; of how many the first and the second found no plan.
  // Whether another look is needed.
  bool look(const PairedDifference& d, int first_lost = 0, int second_lost = 0) {
    ++looks_;
    const double n = d.problems, beyond = kMostGap - d.mean;
    const double squares = d.standard_error * d.standard_error * n * (n - 1) + beyond * beyond * n / (n + 1);
    error_ = std::sqrt(squares / n / (n + 1));
    upper_bound_ = d.mean + beyond / (n + 1) + kSigmas * error_;
    enough_ = d.problems >= kLeastProblems;
    loses_plans_ = first_lost > second_lost;
    all_alike_ = d.mean == 0 && d.standard_error == 0;
    // What no problem has told apart may be on either side.
    lower_bound_ = all_alike_ ? -upper_bound_ : d.mean - kSigmas * d.standard_error;
    // That all problems differ by the same is nothing that policies do.
    const bool believable = d.standard_error > 0 || all_alike_;
    accepted_ = enough_ && believable && !loses_plans_ && upper_bound_ < margin_;
    refused_ = enough_ && lower_bound_ > margin_;
    error_reached_ = enough_ && error_ <= asked_error_;
    verdict_ = verdict_of(Interval{lower_bound_, upper_bound_}, d.problems);
    if (verdict_ == Verdict::kBetter && (loses_plans_ || !believable)) verdict_ = Verdict::kUndecided;
    return !accepted_ && !refused_ && !error_reached_ && looks_ < kMostLooks;
  }

  int looks() const { return looks_; }
  bool accepted() const { return accepted_; }
  Verdict verdict() const { return verdict_; }
  bool all_alike() const { return all_alike_; }      // every problem was the same to both
  bool loses_plans() const { return loses_plans_; }  // the first, on more problems than the second
  bool enough() const { return enough_; }            // problems
  // Of the difference, with the one problem more: standard error, and what has to be below the margin; and without it
  // what must not be above.
  double standard_error() const { return error_; }
  double upper_bound() const { return upper_bound_; }
  double lower_bound() const { return lower_bound_; }
  // Over before the difference was known as well as asked for.
  bool unsettled() const { return !accepted_ && !refused_ && !error_reached_; }
  // Of automap.comparison/3, after the last look.
  const char* ended_by() const {
    if (accepted_) return "accepted";
    if (!enough_) return "too_few_problems";
    if (refused_) return "refused";
    if (error_reached_) return "error_reached";
    return looks_ == kMostLooks ? "looks" : "no_more_problems";
  }

 private:
  double margin_, asked_error_;
  int looks_ = 0;
  double error_ = 0, upper_bound_ = kMostGap, lower_bound_ = -kMostGap;
  Verdict verdict_ = Verdict::kUndecided;
  bool enough_ = false, accepted_ = false, refused_ = false, error_reached_ = false, all_alike_ = false,
       loses_plans_ = false;
};

}  // namespace automap::train
