#include "train/rank_players.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/cli.h"
#include "common/base/clock.h"
#include "common/base/log.h"

namespace automap::train {
namespace {

using Clock = std::chrono::steady_clock;

std::string name_of(int rank, const RankFacts& facts) {
  return "rank " + std::to_string(rank) + " (" + facts.host + ", process " + std::to_string(facts.process) + ")";
}

}  // namespace

RankPlayers::RankPlayers(models::RankLink& link, Players& own, const RankFacts& facts)
    : link_(link), own_(own), others_(static_cast<std::size_t>(link.size())), own_threads_(facts.threads) {
  int threads = own_threads_;
  for (int rank = 1; rank < link_.size(); ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    std::optional<std::string> bytes;
    if (link_.send(rank, bytes_of_message(RankMessage::kCollect))) bytes = link_.receive(rank);
    if (!bytes) {
      throw Error(ErrorKind::kIo, name + " is gone before the run has begun",
                  "its own error, or the launcher's log, says why");
    }
    if (kind_of_message(*bytes, name) == RankMessage::kFailed) throw failure_of_message(*bytes, name);
    const RankFacts theirs = facts_of_message(*bytes, name);
    Other& other = others_[static_cast<std::size_t>(rank)];
    other.name = name_of(rank, theirs);
    other.threads = std::max(1, theirs.threads);
    threads += other.threads;
    const std::string difference = rank_difference(facts, theirs);
    if (!difference.empty()) {
      throw Error(ErrorKind::kConfig, other.name + " was started differently: " + difference,
                  "start every rank with the same program, options and data");
    }
  }
  // One thread of rank 0 learns.
  own_share_ = (own_threads_ - 0.75) / threads;
}

void RankPlayers::begin(std::uint64_t first, std::size_t count, std::shared_ptr<const models::Policy> policy,
                        double progress) {
  begun_ = Clock::now();
  // Blocks: rank 0's in front, the others' behind it by their threads.
  const auto own = static_cast<std::size_t>(std::llround(own_share_ * static_cast<double>(count)));
  std::size_t left = link_.size() == 1 ? 0 : count - std::min(count, own);
  int threads = 0;
  for (std::size_t rank = 1; rank < others_.size(); ++rank) threads += others_[rank].threads;
  own_.begin(first, count - left, policy, progress);
  std::uint64_t at = first + count - left;
  for (std::size_t rank = 1; rank < others_.size(); ++rank) {
    Other& other = others_[rank];
    other.count = left * static_cast<std::size_t>(other.threads) / static_cast<std::size_t>(threads);
    left -= other.count;
    threads -= other.threads;
    if (!lost_.empty()) return;
    const std::string bytes = bytes_of_message(PlayOrder{at, other.count, policy->serialize(), progress});
    at += other.count;
    traffic_.sent_bytes += bytes.size();
    if (!link_.send(static_cast<int>(rank), bytes)) lose(static_cast<int>(rank));
  }
}

std::vector<models::Played> RankPlayers::finish() {
  std::vector<models::Played> played = own_.finish();
  const auto own_done = Clock::now();
  double least_idle_s = 1e9;
  for (int rank = 1; rank < link_.size() && lost_.empty(); ++rank) {
    const Other& other = others_[static_cast<std::size_t>(rank)];
    std::optional<std::string> bytes;
    if (link_.send(rank, bytes_of_message(RankMessage::kCollect))) bytes = link_.receive(rank);
    if (!bytes) {
      lose(rank);
      break;
    }
    traffic_.received_bytes += bytes->size();
    if (kind_of_message(*bytes, other.name) == RankMessage::kFailed) throw failure_of_message(*bytes, other.name);
    PlayAnswer answer = answer_of_message(*bytes, other.name);
    if (answer.played.size() != other.count) {
      throw Error(ErrorKind::kInternal, other.name + " played " + std::to_string(answer.played.size()) +
                                            " problems of " + std::to_string(other.count));
    }
    stop_requested_ = stop_requested_ || answer.stop_requested;
    least_idle_s = std::min(least_idle_s, answer.waited_s);
    std::move(answer.played.begin(), answer.played.end(), std::back_inserter(played));
  }
  if (!lost_.empty()) return {};
  ++traffic_.rounds;
  const double waited_s = seconds_since(own_done), round_s = std::max(1e-6, seconds_since(begun_));
  traffic_.waited_s += waited_s;
  // The division of a round changes only its time: the share grows while rank 0 waits and shrinks while others do.
  constexpr double kMostChange = 0.3, kLeastShare = 0.01, kMostShare = 0.95;
  const double change = std::clamp((waited_s - least_idle_s) / round_s, -kMostChange, kMostChange);
  own_share_ = std::clamp(own_share_ * (1 + change), kLeastShare, kMostShare);
  return played;
}

void RankPlayers::lose(int rank) {
  lost_ = others_[static_cast<std::size_t>(rank)].name + " is gone";
}

void end_ranks(models::RankLink& link, int exit_code, const std::string& message) {
  const std::string bytes = bytes_of_message(EndOrder{exit_code, message});
  for (int rank = 1; rank < link.size(); ++rank) {
    // Waits for the answer, so that this process does not close the connection before its words have arrived. A message
    // that was still being sent comes first.
    if (!link.send(rank, bytes)) continue;
    link.receive(rank);
  }
}

int serve_ranks(models::RankLink& link, const std::function<RankWork()>& open,
                const std::function<bool()>& stop_requested) {
  const std::string source = "rank 0";
  RankWork work;
  std::optional<Error> failure;
  std::string answer;
  try {
    work = open();
    answer = bytes_of_message(work.facts);
  } catch (const Error& e) {
    failure = e;
  }
  PlayAnswer played;
  Clock::time_point played_at;
  bool has_played = false;
  for (;;) {
    const std::optional<std::string> bytes = link.receive(0);
    if (!bytes) {
      if (failure) throw *failure;
      log_warning("rank 0 is gone; its folder holds the checkpoint of the last one it wrote: --resume goes on");
      return kExitStoppedEarly;
    }
    switch (kind_of_message(*bytes, source)) {
      case RankMessage::kCollect:
        if (failure) {
          link.send(0, bytes_of_message(*failure));
          throw *failure;
        }
        if (has_played) {
          played.waited_s = seconds_since(played_at);
          played.stop_requested = stop_requested && stop_requested();
          answer = bytes_of_message(played);
        }
        link.send(0, answer);
        break;
      case RankMessage::kPlay: {
        if (failure) break;
        const PlayOrder order = order_of_message(*bytes, source);
        try {
          work.players->begin(order.first, static_cast<std::size_t>(order.count),
                              std::make_shared<const models::Policy>(models::Policy::parse(order.policy, source)),
                              order.progress);
          played.played = work.players->finish();
        } catch (const Error& e) {
          failure = e;
        }
        played_at = Clock::now();
        has_played = true;
        break;
      }
      case RankMessage::kEnd: {
        const EndOrder order = end_of_message(*bytes, source);
        link.send(0, bytes_of_message(RankMessage::kBye));
        if (!order.message.empty()) log_warning("rank 0 ended the run: " + order.message);
        // Rank 0 has not asked for these plays any more, and does not know.
        if (failure) log_warning(std::string("a play of this rank had failed: ") + failure->what());
        return order.exit_code;
      }
      default: throw Error(ErrorKind::kInternal, "rank 0 sent a message that is an answer");
    }
  }
}

}  // namespace automap::train
