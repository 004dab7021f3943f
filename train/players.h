// Players play the problems of a round: on the threads of this process, or on those of all ranks of a run
// (rank_players.h). Plays do not depend on who plays them: a play is determined by its problem's number, its policy,
// the run's progress and the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/actors.h"
#include "train/worker_pool.h"

namespace automap::train {

class Players {
 public:
  virtual ~Players() = default;
  // Begins to play problems first .. first + count - 1 in the background. `progress` is the share of the run that is
  // over; it sets the random choices of plays (PlayOptions).
  virtual void begin(std::uint64_t first, std::size_t count, std::shared_ptr<const models::Policy> policy,
                     double progress) = 0;
  // Waits for all of them and returns them in the order of their numbers. Returns nothing where the round could not be
  // played to its end; lost() then says why. Throws what a play threw.
  virtual std::vector<models::Played> finish() = 0;
  // The failure of the processes: "rank 1 (node2) is gone"; no round can be begun then. Empty: none.
  virtual std::string lost() const { return {}; }
  // Returns true if a process other than this one was asked to stop.
  virtual bool stop_requested() const { return false; }
};

class LocalPlayers : public Players {
 public:
  LocalPlayers(const ProblemSource& source, const models::PlayOptions& options, std::uint64_t seed, WorkerPool& pool)
      : source_(source), options_(options), seed_(seed), pool_(pool) {}
  void begin(std::uint64_t first, std::size_t count, std::shared_ptr<const models::Policy> policy,
             double progress) override;
  std::vector<models::Played> finish() override;

 private:
  const ProblemSource& source_;
  models::PlayOptions options_;
  const std::uint64_t seed_;
  WorkerPool& pool_;
  std::vector<models::Played> played_;
};

}  // namespace automap::train
