// --explain WORD: one part of what --details prints, alone and in plain sentences. One table says which words there
// are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "infer/report.h"

namespace automap::infer {

// The first `most` of them, commas between; 0: all.
std::string explained_words(std::size_t most = 0);

// The words that were asked for; each text may hold several, commas between. Throws Error(kUsage) for one that is none.
std::vector<std::string> check_explained(const std::vector<std::string>& asked);

// Of words that check_explained() let pass: each part behind its title.
std::string explained_text(const std::vector<std::string>& words, const pipeline::PlanDocument& document,
                           const pipeline::Problem& problem, const ReportOptions& options);

}  // namespace automap::infer
