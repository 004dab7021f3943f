// All ranks of a run play a round together (docs/training.md, "Many machines"). Rank 0 learns, writes and prints; it
// hands out blocks of a round's problems with the weights to play them with, and gathers the plays in the order of the
// problems' numbers, so that results depend neither on the number of ranks nor on who played what. No LibTorch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/rank_link.h"
#include "train/players.h"
#include "train/rank_messages.h"

namespace automap::train {

// The players of rank 0.
class RankPlayers : public Players {
 public:
  struct Traffic {
    std::uint64_t rounds = 0, sent_bytes = 0, received_bytes = 0;  // to and from all the others together
    double waited_s = 0;                                           // for the others, after rank 0 had done its part
  };

  // Asks the others who they are. Throws Error(kConfig) naming a rank that was started with another program, other
  // options or data than rank 0, and what differs; the error of another rank, with that rank's name in front;
  // Error(kIo) when one is gone. `own` plays this rank's part.
  RankPlayers(models::RankLink& link, Players& own, const RankFacts& facts);

  void begin(std::uint64_t first, std::size_t count, std::shared_ptr<const models::Policy> policy,
             double progress) override;
  std::vector<models::Played> finish() override;
  std::string lost() const override { return lost_; }
  bool stop_requested() const override { return stop_requested_; }

  const Traffic& traffic() const { return traffic_; }

 private:
  struct Other {
    std::string name;  // "rank 1 (node2, process 4711)"
    int threads = 1;
    std::size_t count = 0;  // problems of this round
  };
  void lose(int rank);

  models::RankLink& link_;
  Players& own_;
  std::vector<Other> others_;  // [rank], the first unused
  int own_threads_ = 1;
  double own_share_ = 0;  // of a round's problems; rises while rank 0 waits, falls while others do
  std::chrono::steady_clock::time_point begun_;
  std::string lost_;
  bool stop_requested_ = false;
  Traffic traffic_;
};

// Tells the others that the run is over, and waits until they know.
void end_ranks(models::RankLink& link, int exit_code, const std::string& message);

// Runs a rank other than 0 until rank 0 ends the run: it plays the problems that it is told to. Returns the exit code:
// rank 0's, or 75 with a message when rank 0 is gone. `open` gives this rank's facts and players; an error of `open` or
// of a play is sent to rank 0 and thrown.
struct RankWork {
  RankFacts facts;
  std::unique_ptr<Players> players;
};
int serve_ranks(models::RankLink& link, const std::function<RankWork()>& open,
                const std::function<bool()>& stop_requested);

}  // namespace automap::train
