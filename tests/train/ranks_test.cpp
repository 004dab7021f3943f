// Several ranks as threads of one process, with queues in place of a network.
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/files.h"
#include "common/base/log.h"
#include "tests/sanitized.h"
#include "tests/train/simple_learner.h"
#include "train/rank_place.h"
#include "train/rank_players.h"
#include "train/trainer.h"

namespace automap::train {
namespace {

// A wire carries the messages of one job. A rank that is gone is gone for all.
class Wire {
 public:
  explicit Wire(int size) : size_(size), gone_(static_cast<std::size_t>(size)) {}
  int size() const { return size_; }
  bool send(int from, int to, std::string_view bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (gone_[static_cast<std::size_t>(to)]) return false;
    queues_[{from, to}].emplace_back(bytes);
    changed_.notify_all();
    return true;
  }
  std::optional<std::string> receive(int from, int to) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto& queue = queues_[{from, to}];
    changed_.wait(lock, [&] {
      return !queue.empty() || gone_[static_cast<std::size_t>(from)] || gone_[static_cast<std::size_t>(to)];
    });
    if (queue.empty() || gone_[static_cast<std::size_t>(to)]) return std::nullopt;
    std::string bytes = std::move(queue.front());
    queue.pop_front();
    return bytes;
  }
  void leave(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::string>> queues_;
  std::vector<bool> gone_;
};

class QueueLink : public models::RankLink {
 public:
  // Gone after so many messages received; -1: never.
  QueueLink(Wire& wire, int rank, int dies_after = -1) : wire_(wire), rank_(rank), left_(dies_after) {}
  ~QueueLink() override { wire_.leave(rank_); }
  int rank() const override { return rank_; }
  int size() const override { return wire_.size(); }
  bool send(int to, std::string_view bytes) override { return wire_.send(rank_, to, bytes); }
  std::optional<std::string> receive(int from) override {
    if (left_ >= 0 && left_-- == 0) wire_.leave(rank_);
    return wire_.receive(from, rank_);
  }

 private:
  Wire& wire_;
  const int rank_;
  int left_;
};

class RanksTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kQuiet);
    folder_ = std::filesystem::temp_directory_path() / ("automap-ranks-" + std::to_string(::getpid()) + "-" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    source_ = open_source("synth:mixed", 1, {}, {});
    WorkerPool pool(1);
    EvaluationOptions options;
    options.problems = {6, 0, 0, 0};
    evaluation_ = std::make_unique<Evaluation>(open_source("synth:mixed", 99, {}, {}), options, pool, "");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  TrainerSettings settings(const std::string& name) {
    TrainerSettings s;
    s.folder = (folder_ / name).string();
    std::filesystem::create_directories(s.folder);
    s.round_problems = 6;
    s.episodes = 6 * 4 * 6;
    s.time_s = 1e9;
    s.batch = 16;
    s.evaluate_every = 60;
    s.checkpoint_every_s = 1e9;
    s.play.label_fraction = 0.3;
    s.play.label_work = 20000;
    return s;
  }

  static RankFacts facts(int rank, int threads = 1) {
    RankFacts out = facts_of_this_process();
    out.program = "AutoMap 1";
    out.options = {{"seed", "1"}};
    out.data = "rows";
    out.host = "node" + std::to_string(rank);
    out.threads = threads;
    return out;
  }

  // Runs rank `rank`; returns its exit code.
  int serve(Wire& wire, int rank, const TrainerSettings& s, int dies_after = -1) {
    QueueLink link(wire, rank, dies_after);
    WorkerPool pool(0);
    return serve_ranks(
        link,
        [&] {
          return RankWork{facts(rank), std::make_unique<LocalPlayers>(*source_, s.play, s.seed, pool)};
        },
        [&] { return stop_of_rank_ == rank; });
  }

  // A run of `size` ranks, of which `dying` (0: none) is gone after `dies_after` messages.
  TrainResult run(TrainerSettings s, int size, Checkpoint* resume = nullptr, int dying = 0, int dies_after = -1) {
    Wire wire(size);
    codes_.assign(static_cast<std::size_t>(size), -1);
    std::vector<std::thread> others;
    for (int rank = 1; rank < size; ++rank) {
      others.emplace_back([&, rank] {
        codes_[static_cast<std::size_t>(rank)] = serve(wire, rank, s, rank == dying ? dies_after : -1);
      });
    }
    SimpleLearner learner;
    WorkerPool pool(0);
    LocalPlayers own(*source_, s.play, s.seed, pool);
    QueueLink link(wire, 0);
    RankPlayers players(link, own, facts(0));
    s.players = &players;
    TrainResult result = train(learner, *source_, *evaluation_, pool, s, resume);
    traffic_ = players.traffic();
    end_ranks(link, result.stopped ? 75 : 0, players.lost());
    for (std::thread& other : others) other.join();
    return result;
  }

  void expect_same(const TrainerSettings& a, const TrainerSettings& b) {
    EXPECT_EQ(read_file(a.folder + "/policy.bin"), read_file(b.folder + "/policy.bin"));
    const Checkpoint one = load_checkpoint(a.folder + "/checkpoint"), other = load_checkpoint(b.folder + "/checkpoint");
    EXPECT_EQ(one.learner_state, other.learner_state);
    EXPECT_EQ(one.acting_policy, other.acting_policy);
    EXPECT_EQ(one.counters.plays, other.counters.plays);
    EXPECT_EQ(one.counters.y, other.counters.y);
    EXPECT_EQ(one.counters.best_score, other.counters.best_score);
  }

  std::filesystem::path folder_;
  std::unique_ptr<ProblemSource> source_;
  std::unique_ptr<Evaluation> evaluation_;
  std::vector<int> codes_;
  RankPlayers::Traffic traffic_;
  int stop_of_rank_ = 0;
};

TEST_F(RanksTest, TheSameForAnyNumberOfRanks) {
  const TrainerSettings alone = settings("alone");
  {
    SimpleLearner learner;
    WorkerPool pool(0);
    train(learner, *source_, *evaluation_, pool, alone, nullptr);
  }
  for (const int ranks : {2, 3, 7}) {
    const TrainerSettings s = settings("ranks" + std::to_string(ranks));
    const TrainResult result = run(s, ranks);
    EXPECT_FALSE(result.stopped);
    expect_same(alone, s);
    for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(codes_[static_cast<std::size_t>(rank)], 0);
    EXPECT_GT(traffic_.rounds, 2u);
    EXPECT_GT(traffic_.received_bytes, 1000u);
  }
}

TEST_F(RanksTest, ALostRankEndsTheRoundAndAnyNumberGoesOn) {
  const TrainerSettings whole = settings("whole");
  run(whole, 1);
  int ranks_of_resumed = 1;
  // Before it was asked, before its first plays, while playing, after playing.
  for (const int dies_after : kSanitized ? std::vector<int>{1, 4} : std::vector<int>{1, 2, 3, 4, 7}) {
    const TrainerSettings s = settings("lost" + std::to_string(dies_after));
    const TrainResult result = run(s, 3, nullptr, 2, dies_after);
    EXPECT_TRUE(result.stopped) << dies_after;
    EXPECT_NE(result.reason.find("rank 2 (node2, process "), std::string::npos) << result.reason;
    EXPECT_EQ(codes_[1], 75);
    EXPECT_EQ(codes_[2], 75);
    Checkpoint before = load_checkpoint(s.folder + "/checkpoint");
    EXPECT_FALSE(run(s, ranks_of_resumed, &before).stopped);
    expect_same(whole, s);
    ranks_of_resumed = ranks_of_resumed % 3 + 1;
  }
}

TEST_F(RanksTest, ASignalToAnotherRankStopsTheRun) {
  const TrainerSettings s = settings("stop");
  stop_of_rank_ = 1;
  const TrainResult result = run(s, 2);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.reason, "a signal");
  EXPECT_EQ(codes_[1], 75);
}

TEST_F(RanksTest, RankZeroGoneIsAStop) {
  const TrainerSettings s = settings("gone");
  Wire wire(2);
  wire.leave(0);
  EXPECT_EQ(serve(wire, 1, s), 75);
}

// The message of the error of rank 0 when rank 1 says hello like this.
std::string refusal(const RankFacts& theirs) {
  Wire wire(2);
  QueueLink one(wire, 1);
  one.send(0, bytes_of_message(theirs));
  QueueLink zero(wire, 0);
  WorkerPool pool(0);
  const auto source = open_source("synth:mixed", 1, {}, {});
  LocalPlayers own(*source, {}, 1, pool);
  RankFacts ours = facts_of_this_process();
  ours.program = "AutoMap 1";
  ours.options = {{"seed", "1"}, {"batch-size", "64"}};
  ours.data = "rows";
  try {
    const RankPlayers players(zero, own, ours);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kConfig);
    return e.what();
  }
  return "";
}

TEST(RankFactsTest, WhatDiffersIsNamed) {
  RankFacts facts = facts_of_this_process();
  facts.host = "node7";
  facts.process = 4711;
  facts.program = "AutoMap 1";
  facts.options = {{"seed", "1"}, {"batch-size", "64"}};
  facts.data = "rows";
  EXPECT_EQ(refusal(facts), "");
  RankFacts other = facts;
  other.options[0].second = "2";
  EXPECT_EQ(refusal(other), "rank 1 (node7, process 4711) was started differently: --seed is 2, for rank 0 it is 1");
  other = facts;
  other.program = "AutoMap 2";
  EXPECT_NE(refusal(other).find("the program is AutoMap 2, for rank 0 it is AutoMap 1"), std::string::npos);
  other = facts;
  other.data = "others";
  EXPECT_NE(refusal(other).find("the data is others, for rank 0 it is rows"), std::string::npos);
  other.options.clear();
  other.program.clear();
  EXPECT_NE(refusal(other).find("and 1 more"), std::string::npos) << refusal(other);
}

TEST_F(RanksTest, AFailureOfARankIsThatOfTheRun) {
  Wire wire(2);
  std::thread other([&] {
    QueueLink link(wire, 1);
    EXPECT_THROW(serve_ranks(
                     link, []() -> RankWork { throw Error(ErrorKind::kData, "no such rows", "make them"); }, nullptr),
                 Error);
  });
  QueueLink link(wire, 0);
  WorkerPool pool(0);
  LocalPlayers own(*source_, {}, 1, pool);
  try {
    const RankPlayers players(link, own, facts(0));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    EXPECT_STREQ(e.what(), "rank 1: no such rows");
    EXPECT_EQ(e.hint(), "make them");
  }
  other.join();
}

// Rank 0 ends the run before it has asked for plays that failed: the other rank says so.
TEST_F(RanksTest, AFailureThatRankZeroDoesNotAskForIsTold) {
  Wire wire(2);
  QueueLink zero(wire, 0);
  zero.send(1, bytes_of_message(PlayOrder{0, 4, "no policy at all", 0}));
  zero.send(1, bytes_of_message(EndOrder{75, "rank 2 is gone"}));
  set_log_level(LogLevel::kNormal);
  testing::internal::CaptureStderr();
  const int code = serve(wire, 1, settings("told"));
  const std::string told = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kQuiet);
  EXPECT_EQ(code, 75);
  EXPECT_NE(told.find("rank 0 ended the run: rank 2 is gone"), std::string::npos) << told;
  EXPECT_NE(told.find("a play of this rank had failed: "), std::string::npos) << told;
}

TEST(RankMessages, AnOrderArrivesAsItWas) {
  const PlayOrder order = order_of_message(bytes_of_message(PlayOrder{7, 4, "a policy", 1.0 / 3}), "rank 0");
  EXPECT_EQ(order.first, 7u);
  EXPECT_EQ(order.count, 4u);
  EXPECT_EQ(order.policy, "a policy");
  EXPECT_EQ(order.progress, 1.0 / 3);
}

TEST(RankMessages, PlaysArriveAsTheyWere) {
  PlayAnswer answer;
  answer.stop_requested = true;
  answer.waited_s = 0.25;
  models::Played& played = answer.played.emplace_back();
  played.plays = 8;
  played.infeasible = 1;
  played.y = -0.0;
  models::Episode& episode = played.episodes.emplace_back();
  episode.y = 0.1f;
  episode.feasible = false;
  models::Decision& d = episode.decisions.emplace_back();
  d.inputs = {1, 2, std::numeric_limits<float>::denorm_min()};
  d.actions = 3;
  d.log_bound = {0.5f};
  d.legal = {1, 0, 1};
  d.chosen = 2;
  d.exact_y = {std::numeric_limits<float>::infinity()};
  const std::string bytes = bytes_of_message(answer);
  const PlayAnswer back = answer_of_message(bytes, "rank 1");
  EXPECT_EQ(bytes_of_message(back), bytes);
  EXPECT_EQ(back.played[0].episodes[0].decisions[0].inputs, d.inputs);
  EXPECT_EQ(back.played[0].episodes[0].decisions[0].legal, d.legal);
  EXPECT_TRUE(back.stop_requested);
  EXPECT_EQ(back.waited_s, 0.25);
  // Cut anywhere, or another message: an error, never more.
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_THROW(answer_of_message(std::string_view(bytes).substr(0, cut), "rank 1"), Error);
  }
  EXPECT_THROW(answer_of_message(bytes + "x", "rank 1"), Error);
  EXPECT_THROW(order_of_message(bytes, "rank 1"), Error);
  EXPECT_THROW(kind_of_message("\xff", "rank 1"), Error);
}

models::RankPlace place(const std::map<std::string, std::string>& set) {
  return place_of_ranks([&](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

TEST(RankPlaceTest, AsLaunchersSayIt) {
  EXPECT_EQ(place({}).size, 1);
  EXPECT_EQ(place({{"WORLD_SIZE", "1"}}).size, 1);
  // A batch script is one process, whatever tasks it may start.
  EXPECT_EQ(place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size, 1);
  const models::RankPlace torchrun = place({{"RANK", "2"},
                                            {"WORLD_SIZE", "3"},
                                            {"MASTER_ADDR", "h"},
                                            {"MASTER_PORT", "1234"},
                                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(torchrun.rank, 2);
  EXPECT_EQ(torchrun.size, 3);
  EXPECT_EQ(torchrun.address, "h");
  EXPECT_EQ(torchrun.port, 1235);
  const models::RankPlace srun = place({{"SLURM_PROCID", "1"},
                                        {"SLURM_STEP_NUM_TASKS", "2"},
                                        {"SLURM_STEP_NODELIST", "gpu[07-09,12],login"},
                                        {"SLURM_JOB_ID", "1234567"}});
  EXPECT_EQ(srun.rank, 1);
  EXPECT_EQ(srun.address, "gpu07");
  EXPECT_EQ(srun.port, 24567);
  const models::RankPlace mpirun =
      place({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}});
  EXPECT_EQ(mpirun.rank, 1);
  EXPECT_EQ(mpirun.port, 29500);
}

TEST(RankPlaceTest, WhatIsWrongIsNamed) {
  const auto message = [](const std::map<std::string, std::string>& set) -> std::string {
    try {
      place(set);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kConfig);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message({{"WORLD_SIZE", "2"}}).find("RANK is not set"), std::string::npos);
  EXPECT_NE(message({{"WORLD_SIZE", "two"}}).find("WORLD_SIZE: found 'two'"), std::string::npos);
  EXPECT_NE(message({{"WORLD_SIZE", "2"}, {"RANK", "2"}}).find("RANK: found '2'"), std::string::npos);
  EXPECT_NE(message({{"WORLD_SIZE", "2"}, {"RANK", "1"}}).find("MASTER_ADDR is not set"), std::string::npos);
  EXPECT_NE(
      message({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "0"}}).find("MASTER_PORT"),
      std::string::npos);
}

TEST(RankPlaceTest, FirstHost) {
  EXPECT_EQ(first_host("node"), "node");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[3,5-7]"), "node3");
  EXPECT_EQ(first_host("node[03-05,9],other"), "node03");
}

}  // namespace
}  // namespace automap::train
