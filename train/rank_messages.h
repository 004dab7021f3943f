// Messages between the ranks of a run. Rank 0 speaks first, the others answer:
//
//   rank 0                          the others
//   kCollect                        kHello: who they are and what they were started with, or kFailed
//   kPlay: problems, a policy       (they play)
//   kCollect                        kPlayed: the plays, or kFailed
//   kEnd: exit code, why            kBye
//
// ByteWriter makes the bytes; numbers have the machine's byte order, which is the same on all machines of a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "train/actors.h"

namespace automap::train {

enum class RankMessage : std::uint8_t { kCollect, kPlay, kEnd, kHello, kPlayed, kFailed, kBye };

// The facts that must be the same for every rank, and the identity of this one.
struct RankFacts {
  std::string program;                                       // version and revision
  std::vector<std::pair<std::string, std::string>> options;  // learning_options()
  std::string data;                                          // the source's fingerprint
  std::string host;
  int process = 0;
  int threads = 1;
};
RankFacts facts_of_this_process();  // host and process

// The differences of two ranks' facts, as "--seed is 2, for rank 0 it is 1", at most three of them; empty: none.
std::string rank_difference(const RankFacts& ours, const RankFacts& theirs);

struct PlayOrder {
  std::uint64_t first = 0, count = 0;
  std::string policy;   // serialized
  double progress = 0;  // of the run
};
struct PlayAnswer {
  bool stop_requested = false;
  double waited_s = 0;  // since the last play had ended
  std::vector<models::Played> played;
};
struct EndOrder {
  int exit_code = 0;
  std::string message;  // empty: all is well
};

std::string bytes_of_message(RankMessage kind);  // kCollect, kBye
std::string bytes_of_message(const RankFacts& facts);
std::string bytes_of_message(const PlayOrder& order);
std::string bytes_of_message(const PlayAnswer& answer);
std::string bytes_of_message(const EndOrder& order);
std::string bytes_of_message(const Error& failure);

// These throw Error(kData) naming `source` where the bytes are no message, or not of this kind.
RankMessage kind_of_message(std::string_view bytes, const std::string& source);
RankFacts facts_of_message(std::string_view bytes, const std::string& source);
PlayOrder order_of_message(std::string_view bytes, const std::string& source);
PlayAnswer answer_of_message(std::string_view bytes, const std::string& source);
EndOrder end_of_message(std::string_view bytes, const std::string& source);
// The failure of another rank, `who` in front of it.
Error failure_of_message(std::string_view bytes, const std::string& who);

}  // namespace automap::train
