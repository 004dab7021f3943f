// Whether a policy is better than another: a sequential paired test. Problems are asked in looks, each doubling what
// there is, until it is settled.
//
//   accepted   mean difference + kSigmas standard errors < margin: the first is better
//   refused    mean difference - kSigmas standard errors > margin
//   undecided  the standard error is as small as asked for, or there have been kMostLooks: not shown to be better
//
// A policy that is no better is accepted at one look with a chance of 1 - Phi(2.4) = 0.8 %, so at kMostLooks looks
// with 5 % at most, however the looks depend on each other. One that is d better is missed with a chance of about
// 1 - Phi(d / e - 2.4) where the error comes down to e: 18 % for 0.1 points and 0.03. tests/train/promotion_test.cpp
// plays nights.
#pragma once

#include "train/evaluation.h"

namespace automap::train {

class PromotionTest {
 public:
  static constexpr int kMostLooks = 6;
  static constexpr double kSigmas = 2.4;

  // `margin`: gaps; 0: better, above: not much worse. `standard_error`: of a difference that is known well enough.
  PromotionTest(double margin, double standard_error) : margin_(margin), standard_error_(standard_error) {}

  // After each look, of all problems asked so far. Whether another is needed.
  bool look(const PairedDifference& difference) {
    ++looks_;
    const double error = kSigmas * difference.standard_error;
    // Policies that make no difference at all are not told apart, whatever the margin.
    no_difference_ = difference.mean == 0 && difference.standard_error == 0;
    accepted_ = !no_difference_ && difference.mean + error < margin_;
    const bool refused = difference.mean - error > margin_;
    return !accepted_ && !refused && difference.standard_error > standard_error_ && looks_ < kMostLooks;
  }

  int looks() const { return looks_; }
  bool accepted() const { return accepted_; }
  bool no_difference() const { return no_difference_; }

 private:
  double margin_, standard_error_;
  int looks_ = 0;
  bool accepted_ = false, no_difference_ = false;
};

}  // namespace automap::train
