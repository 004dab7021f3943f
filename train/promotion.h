// A sequential paired test decides whether a policy is better than another. Problems are asked in looks, each of which
// doubles their number, until the test is settled.
//
//   accepted   upper bound < margin: mean difference + kSigmas standard errors, of at least kLeastProblems problems,
//              and the first found no plan on no more of them than the second
//   refused    lower bound > margin: mean difference - kSigmas standard errors
//   neither    the standard error is as small as asked for, there have been kMostLooks, there are no more problems, or
//              no more time
//
// The verdict is about the difference itself: accepted at a margin of 0 is better, refused is worse, neither is
// undecided. A policy that is accepted at a margin above 0 may be any of them, but is not worse by more than the
// margin.
//
// A policy that is no better is accepted at one look with a chance of 1 - Phi(2.4) = 0.8 %, so at kMostLooks looks with
// 5 % at most, however the looks depend on each other. tests/train/promotion_test.cpp simulates this.
//
// That holds where the mean is about normal, which it is not when rare problems are everything: a policy that is a
// little better elsewhere and loses the plan in one problem of 1500 would be accepted before that problem was asked.
// Therefore
//   - gaps count up to kMostGap only, and a missing plan as much (train/paired.h); the test judges the mean of these;
//   - one problem more is counted than was asked, the worst possible: the first lost the plan, the second did not.
//     So a difference of 0.1 points is accepted after some 4000 problems, not before; one of 0.5 points after 700.
// Assumption: problems are drawn at random from those that count, so that problems rarer than one in all that were
// asked weigh kMostGap times that share at most.
#pragma once

#include <cmath>

#include "train/paired.h"

namespace automap::train {

class PromotionTest {
 public:
  static constexpr int kMostLooks = 6;
  static constexpr double kSigmas = 2.4;

  // `margin` is a gap; 0 asks for better, above 0 for not much worse. `standard_error` is the one at which a difference
  // is known well enough.
  PromotionTest(double margin, double standard_error) : margin_(margin), asked_error_(standard_error) {}

  // To be called after each look. `d` covers the counted gaps of all problems asked so far; `first_lost` and
  // `second_lost` count the problems without a plan. Returns true if another look is needed.
  bool look(const PairedDifference& d, int first_lost = 0, int second_lost = 0) {
    ++looks_;
    const double n = d.problems, beyond = kMostGap - d.mean;
    const double squares = d.standard_error * d.standard_error * n * (n - 1) + beyond * beyond * n / (n + 1);
    error_ = std::sqrt(squares / n / (n + 1));
    upper_bound_ = d.mean + beyond / (n + 1) + kSigmas * error_;
    enough_ = d.problems >= kLeastProblems;
    loses_plans_ = first_lost > second_lost;
    all_alike_ = d.mean == 0 && d.standard_error == 0;
    // A difference that no problem has shown may have either sign.
    lower_bound_ = all_alike_ ? -upper_bound_ : d.mean - kSigmas * d.standard_error;
    // Real policies do not differ by the same amount on all problems.
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
  bool all_alike() const { return all_alike_; }      // every problem gave both the same gap
  bool loses_plans() const { return loses_plans_; }  // the first lost plans on more problems than the second
  bool enough() const { return enough_; }            // at least kLeastProblems were asked
  // The standard error and the upper bound of the difference count the one problem more, the lower bound does not. To
  // be accepted the upper bound must be below the margin; to be refused the lower bound must be above it.
  double standard_error() const { return error_; }
  double upper_bound() const { return upper_bound_; }
  double lower_bound() const { return lower_bound_; }
  // True if the test ended before the difference was known as well as asked for.
  bool unsettled() const { return !accepted_ && !refused_ && !error_reached_; }
  // The field of automap.comparison/3, after the last look.
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
