// Actors: a call makes one training problem and plays it (models/plays.h).
#pragma once

#include <cstdint>

#include "models/plays.h"
#include "models/policy.h"
#include "train/problem_source.h"

namespace automap::train {

// Plays problem `number` of `source`; its plays have the numbers from number * options.plays on.
models::Played play_problem(const ProblemSource& source, std::uint64_t number, const models::Policy& policy,
                            const models::PlayOptions& options, std::uint64_t seed);

}  // namespace automap::train
