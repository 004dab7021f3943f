// What an interleaved layout takes (--layout ...,chunks=2, or a framework's words of it): simulated alone, so that
// there is no plan to report on, to write or to draw.
#pragma once

#include <string>

#include "infer/input.h"
#include "plan/planners/question.h"
#include "plan/planners/score.h"

namespace automap::infer {

struct InterleavedUse {
  const planners::ScoredChunks& scored;
  const planners::Question& question;
  const PlanInput& input;
};

// Ends with a newline; of at most `width` columns.
std::string interleaved_text(const InterleavedUse& of, int width);

// The document "automap.interleaved/1" (docs/formats/plan.md), with a final newline.
std::string interleaved_json(const InterleavedUse& of);

}  // namespace automap::infer
