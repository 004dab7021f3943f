// --explain WORD prints one part of what --details prints, alone and in plain sentences. One table lists the words.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "infer/report.h"

namespace automap::infer {

// The first `most` words, commas between; 0: all.
std::string explained_words(std::size_t most = 0);

// Splits the texts asked for into words; each text may hold several, commas between. Throws Error(kUsage) for an
// unknown word.
std::vector<std::string> check_explained(const std::vector<std::string>& asked);

// The parts that the words name, each under its title. check_explained() must have accepted the words.
std::string explained_text(const std::vector<std::string>& words, const pipeline::PlanDocument& document,
                           const pipeline::Problem& problem, const ReportOptions& options);

}  // namespace automap::infer
