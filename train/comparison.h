// Runs --compare: asks two policies, or one policy and the same search without a network, for plans of the same
// problems, and words the verdict. train/promotion.h decides when enough problems have been asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/policy.h"
#include "train/evaluation.h"
#include "train/promotion.h"
#include "train/worker_pool.h"

namespace automap::train {

// Counted gaps on the same problems: those that a policy or a baseline has a plan for.
struct Compared {
  std::vector<std::string> searches;
  std::vector<std::vector<double>> first, second;  // [search][problem]
  int first_lost = 0, second_lost = 0;             // problems without a plan, last search
};

// The reasons why no more problems were asked.
enum class Asked : std::uint8_t { kAll, kNoMore, kTime, kStopped };

class Comparison {
 public:
  // `policies` are one or two, and must outlive it. `options` are those of the first look. The time limit counts from
  // here.
  Comparison(const std::vector<models::Policy>& policies, std::shared_ptr<const ProblemSource> source,
             const EvaluationOptions& options, WorkerPool& pool, double time_limit_s);

  // Asks about the next `times` times the options' number of problems. They are asked in parts that are each mixed as
  // the whole is, so that a limit or a signal (StopToken) does not change the mixture of what was asked; the first part
  // is always asked to its end. Throws Error(kStopped) when a signal came before the first part was over, Error(kData)
  // when no problem of it has a plan to compare.
  Asked ask(int times);
  const Compared& compared() const { return compared_; }

 private:
  std::size_t problems() const { return compared_.first.empty() ? 0 : compared_.first.back().size(); }
  void ask_part(EvaluationOptions options);

  const std::vector<models::Policy>& policies_;
  std::shared_ptr<const ProblemSource> source_;
  EvaluationOptions options_;
  WorkerPool& pool_;
  double time_limit_s_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t next_ = 0;  // of the source's problems
  Compared compared_;
};

// The field of automap.comparison/3: PromotionTest::ended_by(), or "time" or "stopped" where that ended the comparison.
const char* ended_by(const PromotionTest& test, Asked asked);
// The reason why the comparison ended before it was settled; empty: it is settled. `asked_error`: the standard error
// that was asked for.
std::string why_unsettled(const PromotionTest& test, Asked asked, int problems, double asked_error);
// "A is better than B (beam 16 + corridor: difference from -0.3 to -0.1 %)", "A is worse than B (...)", "undecided: A
// against B (...; why)"; with a margin another line about it.
std::string verdict_text(const std::string& first, const std::string& second, double margin, const PromotionTest& test,
                         const Compared& compared, const std::string& unsettled);

}  // namespace automap::train
