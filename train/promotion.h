// Whether a policy is better than another: a sequential paired test. Problems are asked in looks, each doubling what
// there is, until it is settled.
//
//   accepted   mean difference + kSigmas standard errors < margin, of at least kLeastProblems problems that are not all
//              the same to both, and the first found no plan on no more of them than the second: the first is better
//   refused    mean difference - kSigmas standard errors > margin
//   undecided  the standard error is as small as asked for, there have been kMostLooks or there are no more problems:
//              not shown to be better
//
// A policy that is no better is accepted at one look with a chance of 1 - Phi(2.4) = 0.8 %, so at kMostLooks looks
// with 5 % at most, however the looks depend on each other. tests/train/promotion_test.cpp plays nights.
//
// That holds where the mean is about normal, which it is not when rare problems are everything: a policy that is a
// little better elsewhere and loses the plan in one problem of 1500 would be accepted before that problem was asked.
// Therefore
//   - gaps count up to kMostGap only, and no plan as much (what is judged is the mean of these);
//   - one problem more is counted than was asked, the worst there can be: the first lost the plan, the second did not.
//     So 0.1 points are accepted after some 4000 problems, not before; sooner 0.5 points, after 700.
// Assumption: problems are asked at random from those that count, so that what is rarer than one in all that were asked
// weighs kMostGap times that at most.
#pragma once

#include <cmath>

#include "train/evaluation.h"

namespace automap::train {

class PromotionTest {
 public:
  static constexpr int kMostLooks = 6;
  static constexpr int kLeastProblems = 30;
  static constexpr double kSigmas = 2.4;
  static constexpr double kMostGap = 1;  // 100 %

  // `margin`: gaps; 0: better, above: not much worse. `standard_error`: of a difference that is known well enough.
  PromotionTest(double margin, double standard_error) : margin_(margin), asked_error_(standard_error) {}

  // After each look, of all problems asked so far, gaps of at most kMostGap; of how many the first and the second found
  // no plan. Whether another look is needed.
  bool look(const PairedDifference& d, int first_lost = 0, int second_lost = 0) {
    ++looks_;
    const double n = d.problems, beyond = kMostGap - d.mean;
    const double squares = d.standard_error * d.standard_error * n * (n - 1) + beyond * beyond * n / (n + 1);
    error_ = std::sqrt(squares / n / (n + 1));
    upper_bound_ = d.mean + beyond / (n + 1) + kSigmas * error_;
    enough_ = d.problems >= kLeastProblems;
    loses_plans_ = first_lost > second_lost;
    // Policies that make no difference at all are not told apart, whatever the margin.
    no_difference_ = d.mean == 0 && d.standard_error == 0 && first_lost == second_lost;
    accepted_ = enough_ && d.standard_error > 0 && !loses_plans_ && upper_bound_ < margin_;
    refused_ = enough_ && d.mean - kSigmas * d.standard_error > margin_;
    error_reached_ = enough_ && (error_ <= asked_error_ || no_difference_);
    return !accepted_ && !refused_ && !error_reached_ && looks_ < kMostLooks;
  }

  int looks() const { return looks_; }
  bool accepted() const { return accepted_; }
  bool no_difference() const { return no_difference_; }
  bool loses_plans() const { return loses_plans_; }  // the first, on more problems than the second
  bool enough() const { return enough_; }            // problems
  // Of the difference, with the one problem more: standard error, and what has to be below the margin.
  double standard_error() const { return error_; }
  double upper_bound() const { return upper_bound_; }
  // Over before the difference was known as well as asked for.
  bool unsettled() const { return !accepted_ && !refused_ && !error_reached_; }
  // Of automap.comparison/2, after the last look.
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
  double error_ = 0, upper_bound_ = 0;
  bool enough_ = false, accepted_ = false, refused_ = false, error_reached_ = false, no_difference_ = false,
       loses_plans_ = false;
};

}  // namespace automap::train
