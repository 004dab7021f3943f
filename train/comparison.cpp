#include "train/comparison.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "common/base/cli.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"
#include "train/report.h"

namespace automap::train {
namespace {

// Of each problem, whether any of the planners found a plan.
std::vector<std::uint8_t> with_plan(std::initializer_list<const std::vector<PlannerLengths>*> planners) {
  std::vector<std::uint8_t> out;
  for (const std::vector<PlannerLengths>* some : planners) {
    for (const PlannerLengths& planner : *some) {
      out.resize(planner.length_ms.size());
      for (std::size_t i = 0; i < out.size(); ++i) out[i] |= std::isfinite(planner.length_ms[i]) ? 1 : 0;
    }
  }
  return out;
}

}  // namespace

Comparison::Comparison(const std::vector<models::Policy>& policies, std::shared_ptr<const ProblemSource> source,
                       const EvaluationOptions& options, WorkerPool& pool, double time_limit_s)
    : policies_(policies), source_(std::move(source)), options_(options), pool_(pool), time_limit_s_(time_limit_s) {
  // Both gaps count from the same plan: the difference needs no optimum.
  options_.exact = false;
  options_.show_progress = false;
}

Asked Comparison::ask(int times) {
  constexpr int kLeastPart = 16, kOfEachThread = 4;
  int wanted = 0;
  for (const int count : options_.problems) wanted += count * times;
  const int part_size = std::max(kLeastPart, kOfEachThread * pool_.threads());
  const int parts = std::max(1, (wanted + part_size - 1) / part_size);
  const std::size_t before = problems();
  Progress progress("comparing", static_cast<std::uint64_t>(wanted), "problems");
  for (int part = 0; part < parts; ++part) {
    if (problems() > 0 && StopToken::stop_requested()) return Asked::kStopped;
    if (problems() > 0 && seconds_since(begin_) >= time_limit_s_) return Asked::kTime;
    EvaluationOptions some = options_;
    for (int& count : some.problems) {
      // Rounded up, so that the first part has some of every kind.
      const long long all = static_cast<long long>(count) * times;
      const auto until = [&](int end) { return (all * end + parts - 1) / parts; };
      count = static_cast<int>(until(part + 1) - until(part));
    }
    try {
      ask_part(some);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kStopped || problems() == 0) throw;
      return Asked::kStopped;
    }
    progress.update(problems() - before);
    log_verbose(std::to_string(problems()) + " problems judged");
    if (source_->size() > 0 && next_ >= source_->size()) break;
  }
  if (problems() == 0) {
    throw Error(ErrorKind::kData, source_->fingerprint() + ": no plan is known for any of the held-out problems",
                "loosen the memory limits of the data");
  }
  if (source_->size() > 0 && next_ >= source_->size()) return Asked::kNoMore;
  return problems() > before ? Asked::kAll : Asked::kNoMore;
}

void Comparison::ask_part(EvaluationOptions options) {
  options.first = next_;
  // The first part needs some.
  options.may_be_empty = next_ > 0;
  const Evaluation evaluation(source_, options, pool_, "");
  next_ = evaluation.next();
  if (evaluation.problems().empty()) return;
  const auto first = evaluation.plan(policies_[0], pool_);
  const auto second = policies_.size() == 1 ? evaluation.baselines() : evaluation.plan(policies_[1], pool_);
  const std::vector<std::uint8_t> known = with_plan({&evaluation.baselines(), &first, &second});
  const std::size_t searches = std::min(first.size(), second.size());
  compared_.first.resize(searches);
  compared_.second.resize(searches);
  compared_.searches.clear();
  for (std::size_t p = 0; p < searches; ++p) {
    compared_.searches.push_back(first[p].planner);
    const std::vector<double> a = evaluation.gaps(first[p]), b = evaluation.gaps(second[p]);
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (!known[i]) continue;
      compared_.first[p].push_back(a[i]);
      compared_.second[p].push_back(b[i]);
    }
  }
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (!known[i]) continue;
    compared_.first_lost += std::isfinite(first[searches - 1].length_ms[i]) ? 0 : 1;
    compared_.second_lost += std::isfinite(second[searches - 1].length_ms[i]) ? 0 : 1;
  }
}

std::string why_unsettled(const PromotionTest& test, Asked asked, int problems, double asked_error) {
  if (!test.unsettled()) return "";
  if (!test.enough()) {
    return std::to_string(problems) + " problems could be judged, at least " + std::to_string(kLeastProblems) +
           " are needed: nothing is shown";
  }
  const std::string end = asked == Asked::kStopped ? "stopped by a signal"
                          : asked == Asked::kTime  ? "the time is over (--time-limit)"
                          : test.looks() == PromotionTest::kMostLooks
                              ? std::to_string(PromotionTest::kMostLooks) + " looks are the most"
                              : "there are no more problems";
  return "the standard error of the difference is " + format_number(test.standard_error() * 100) + " %, " +
         format_number(asked_error * 100) + " % were asked for: " + end;
}

const char* ended_by(const PromotionTest& test, Asked asked) {
  if (test.unsettled() && asked == Asked::kTime) return "time";
  if (test.unsettled() && asked == Asked::kStopped) return "stopped";
  return test.ended_by();
}

std::string verdict_text(const std::string& first, const std::string& second, double margin, const PromotionTest& test,
                         const Compared& compared, const std::string& unsettled) {
  std::string by = compared.searches.back() + ": difference from " +
                   interval_text(Interval{test.lower_bound(), test.upper_bound()}) + ", bounds for up to " +
                   std::to_string(PromotionTest::kMostLooks) + " looks";
  if (test.all_alike()) by += ", no problem told them apart";
  if (test.loses_plans()) {
    by += ", no plan on " + std::to_string(compared.first_lost) + " problems, the other's on " +
          std::to_string(compared.second_lost);
  }
  if (!unsettled.empty()) by += "; " + unsettled;
  std::string text = test.verdict() == Verdict::kUndecided
                         ? "undecided: " + first + " against " + second
                         : first + " is " + to_string(test.verdict()) + " than " + second;
  text += " (" + by + ")\n";
  if (margin > 0) {
    text += std::string(test.accepted() ? "shown" : "NOT shown") + " to be worse by less than " +
            format_percent(margin) + "\n";
  }
  return text;
}

}  // namespace automap::train
