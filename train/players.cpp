#include "train/players.h"

#include <utility>

namespace automap::train {

void LocalPlayers::begin(std::uint64_t first, std::size_t count, std::shared_ptr<const models::Policy> policy,
                         double progress) {
  options_.progress = progress;
  played_.clear();
  played_.resize(count);
  pool_.start(count, [this, first, policy = std::move(policy)](std::size_t i) {
    played_[i] = play_problem(source_, first + i, *policy, options_, seed_);
  });
}

std::vector<models::Played> LocalPlayers::finish() {
  pool_.wait();
  return std::move(played_);
}

}  // namespace automap::train
