#include "models/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/base/error.h"

namespace automap::models {
namespace {

constexpr std::size_t kInputs = 3;

Decision after_state_decision(int actions, int chosen, float start) {
  Decision decision;
  decision.actions = actions;
  decision.chosen = chosen;
  for (int i = 0; i < actions * static_cast<int>(kInputs); ++i)
    decision.inputs.push_back(start + static_cast<float>(i));
  for (int i = 0; i < actions; ++i) decision.log_bound.push_back(0.1f * static_cast<float>(i));
  return decision;
}

Episode episode_of(int decisions, float y) {
  Episode episode;
  episode.y = y;
  for (int i = 0; i < decisions; ++i) episode.decisions.push_back(after_state_decision(2, i % 2, y));
  return episode;
}

TEST(SumTree, WorkedCase) {
  SumTree tree(3);
  tree.set(0, 1);
  tree.set(2, 3);
  EXPECT_EQ(tree.total(), 4);
  EXPECT_EQ(tree.find(0.5), 0u);
  EXPECT_EQ(tree.find(1), 2u);
  EXPECT_EQ(tree.find(4), 2u);
}

// The slow twin: a plain list of values, summed from the left.
TEST(SumTree, FindsWhatAListFinds) {
  for (const std::size_t leaves : {1, 5, 16, 17, 256, 257, 5000}) {
    SumTree tree(leaves);
    std::vector<double> list(leaves, 0.0);
    Rng rng(7, 1, leaves);
    for (int round = 0; round < 300; ++round) {
      const std::size_t leaf = rng.below(leaves);
      // Whole numbers: their sums are exact in any order.
      const auto value = static_cast<double>(rng.below(4));
      tree.set(leaf, value);
      list[leaf] = value;
      double total = 0;
      for (const double x : list) total += x;
      ASSERT_EQ(tree.total(), total);
      if (total == 0) continue;
      double mass = rng.uniform() * total;
      const std::size_t found = tree.find(mass);
      std::size_t expected = 0;
      while (mass >= list[expected]) mass -= list[expected++];
      ASSERT_EQ(found, expected);
    }
  }
}

TEST(SumTree, NeverFindsAnEmptyLeafWhateverTheRounding) {
  SumTree tree(1000);
  for (std::size_t i = 0; i < 1000; i += 7) tree.set(i, 0.1 + 1e-9 * static_cast<double>(i));
  for (const double share : {0.0, 0.3, 0.999999999, 1.0, 1.5}) {
    EXPECT_GT(tree[tree.find(share * tree.total())], 0) << share;
  }
}

TEST(EpisodeReplay, KeepsTheChosenRowAlone) {
  ReplayOptions options;
  options.inputs = kInputs;
  EpisodeReplay replay(options);
  Episode episode;
  episode.decisions = {after_state_decision(4, 2, 10)};
  episode.decisions[0].exact_y = {1, 2, 3, 4};
  replay.add(episode);
  const DecisionView kept = replay.decision(0, 0);
  // Row 2 of rows 10.., 13.., 16.., 19..
  EXPECT_EQ(std::vector<float>(kept.inputs, kept.inputs + kInputs), (std::vector<float>{16, 17, 18}));
  EXPECT_EQ(*kept.log_bound, 0.2f);
  EXPECT_EQ(kept.actions, 1);
  EXPECT_EQ(kept.chosen, 0);
  EXPECT_EQ(kept.legal, nullptr);
}

TEST(EpisodeReplay, KeepsAllRowsWhenTold) {
  ReplayOptions options;
  options.inputs = kInputs;
  options.keep_all_rows = true;
  EpisodeReplay replay(options);
  Episode episode;
  episode.y = 0.5f;
  for (int i = 0; i < 3; ++i) episode.decisions.push_back(after_state_decision(4 - i, 1, 10 * static_cast<float>(i)));
  replay.add(episode);
  EXPECT_EQ(replay.decisions_of(0), 3);
  EXPECT_EQ(replay.y(0), 0.5f);
  for (int i = 0; i < 3; ++i) {
    const Decision& given = episode.decisions[static_cast<std::size_t>(i)];
    const DecisionView kept = replay.decision(0, i);
    ASSERT_EQ(kept.actions, given.actions);
    EXPECT_EQ(kept.chosen, 1);
    EXPECT_EQ(std::vector<float>(kept.inputs, kept.inputs + given.inputs.size()), given.inputs);
    EXPECT_EQ(std::vector<float>(kept.log_bound, kept.log_bound + kept.actions), given.log_bound);
  }
}

TEST(EpisodeReplay, FlatDecisionsKeepTheirMasks) {
  ReplayOptions options;
  options.inputs = 2;
  options.flat = true;
  EpisodeReplay replay(options);
  Episode episode;
  for (int i = 0; i < 2; ++i) {
    Decision decision;
    decision.inputs = {static_cast<float>(i), 7};
    decision.actions = 3;
    decision.chosen = 2;
    if (i == 1) decision.legal = {0, 1, 1};
    episode.decisions.push_back(decision);
  }
  replay.add(episode);
  const DecisionView first = replay.decision(0, 0), second = replay.decision(0, 1);
  EXPECT_EQ(std::vector<std::uint8_t>(first.legal, first.legal + 3), (std::vector<std::uint8_t>{1, 1, 1}));
  EXPECT_EQ(std::vector<std::uint8_t>(second.legal, second.legal + 3), (std::vector<std::uint8_t>{0, 1, 1}));
  EXPECT_EQ(second.inputs[0], 1);
  EXPECT_EQ(second.log_bound, nullptr);
  EXPECT_EQ(second.chosen, 2);
}

TEST(EpisodeReplay, TheOldestLeaves) {
  ReplayOptions options;
  options.inputs = kInputs;
  options.episodes = 3;
  EpisodeReplay replay(options);
  replay.add(Episode{});  // nothing was decided: not kept
  EXPECT_EQ(replay.episodes(), 0u);
  for (int i = 0; i < 5; ++i) replay.add(episode_of(i + 1, static_cast<float>(i)));
  EXPECT_EQ(replay.episodes(), 3u);
  EXPECT_EQ(replay.decisions(), 3u + 4 + 5);
  std::map<float, int> counts;
  Rng rng(1, 1, 1);
  std::vector<ReplaySample> samples;
  replay.sample(12000, 1, rng, samples);
  for (const ReplaySample& sample : samples) {
    ASSERT_LT(sample.decision, replay.decisions_of(sample.slot));
    EXPECT_EQ(sample.weight, 1);
    ++counts[replay.y(sample.slot)];
  }
  // Uniform over the 12 decisions; stratified, so the counts are nearly exact.
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts[2], 3000, 10);
  EXPECT_NEAR(counts[3], 4000, 10);
  EXPECT_NEAR(counts[4], 5000, 10);
}

TEST(EpisodeReplay, PrioritiesAndImportanceWeights) {
  ReplayOptions options;
  options.inputs = kInputs;
  options.prioritized = true;
  options.alpha = 0.5;
  EpisodeReplay replay(options);
  replay.add(episode_of(2, 0));
  EXPECT_EQ(replay.priority(0, 0), 1);  // new: the largest there was, 1 at first
  // (error + 0.001)^0.5: 8.999 -> 3, 0.999 -> 1.
  replay.set_error({0, 0, 1}, 8.999);
  replay.set_error({0, 1, 1}, 0.999);
  EXPECT_NEAR(replay.priority(0, 0), 3, 1e-12);
  EXPECT_NEAR(replay.priority(0, 1), 1, 1e-12);
  EXPECT_NEAR(replay.mean_priority(), 2, 1e-12);

  // P = 3/4, 1/4; N P = 1.5, 0.5; beta 1: weights 1/1.5, 1/0.5, over the largest: 1/3, 1. Four strata: three and one.
  Rng rng(3, 1, 4);
  std::vector<ReplaySample> samples;
  replay.sample(4, 1, rng, samples);
  for (int i = 0; i < 4; ++i) {
    const ReplaySample& sample = samples[static_cast<std::size_t>(i)];
    EXPECT_EQ(sample.decision, i < 3 ? 0 : 1);
    EXPECT_NEAR(sample.weight, i < 3 ? 1.0 / 3 : 1.0, 1e-6);
  }
  // beta 0.5: (1/1.5)^0.5 / (1/0.5)^0.5 = 0.57735.
  replay.sample(4, 0.5, rng, samples);
  EXPECT_NEAR(samples[0].weight, 0.57735, 1e-5);
  EXPECT_NEAR(samples[3].weight, 1, 1e-6);

  replay.add(episode_of(1, 1));
  EXPECT_NEAR(replay.priority(1, 0), 3, 1e-12);  // the largest ever, also after it shrinks
  replay.set_error({0, 0, 1}, 0);
  replay.add(episode_of(1, 1));
  EXPECT_NEAR(replay.priority(2, 0), 3, 1e-12);
}

TEST(EpisodeReplay, SavedAndLoadedIsTheSame) {
  ReplayOptions options;
  options.inputs = kInputs;
  options.prioritized = true;
  options.episodes = 5;
  EpisodeReplay replay(options);
  for (int i = 0; i < 8; ++i) replay.add(episode_of(i % 3 + 1, static_cast<float>(i)));
  replay.set_error({1, 0, 1}, 0.7);
  ByteWriter first;
  replay.save(first);
  EpisodeReplay loaded(options);
  ByteReader reader(first.bytes(), "x");
  loaded.load(reader);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(loaded.decisions(), replay.decisions());
  replay.add(episode_of(2, 9));
  loaded.add(episode_of(2, 9));
  ByteWriter second, third;
  replay.save(second);
  loaded.save(third);
  EXPECT_EQ(second.bytes(), third.bytes());
  EXPECT_NE(first.bytes(), second.bytes());
}

TEST(EpisodeReplay, LongEpisodes) {
  ReplayOptions options;
  options.inputs = kInputs;
  options.episodes = 3;
  EpisodeReplay usual(options);
  EXPECT_THROW(usual.add(episode_of(kMaxDecisions / 2 + 1, 1)), Error);
  options.max_decisions = 500;
  EpisodeReplay replay(options);
  for (int i = 0; i < 4; ++i) replay.add(episode_of(500 - i, static_cast<float>(i)));
  EXPECT_EQ(replay.decisions(), 499u + 498u + 497u);
  EXPECT_EQ(replay.decision(1, 498).inputs[0], 1.0f);
  EXPECT_THROW(replay.add(episode_of(501, 1)), Error);
  ByteWriter saved;
  replay.save(saved);
  EpisodeReplay loaded(options);
  ByteReader reader(saved.bytes(), "x");
  loaded.load(reader);
  EXPECT_EQ(loaded.decisions(), replay.decisions());
  // The limit is not in the bytes: what is short enough goes into any replay, what is not is refused.
  ByteReader again(saved.bytes(), "x");
  EXPECT_THROW(usual.load(again), Error);
  options.max_decisions = 0;
  EpisodeReplay small(options);
  small.add(episode_of(2, 1));
  ByteWriter little;
  small.save(little);
  ByteReader last(little.bytes(), "x");
  loaded.load(last);
  EXPECT_EQ(loaded.decisions(), 2u);
}

// Every cut and every flipped byte is refused or loads as some replay of the right shape; nothing crashes.
TEST(EpisodeReplay, DamagedBytesAreRefused) {
  ReplayOptions options;
  options.inputs = kInputs;
  options.episodes = 2;
  EpisodeReplay replay(options);
  replay.add(episode_of(2, 1));
  ByteWriter saved;
  replay.save(saved);
  for (std::size_t length = 0; length < saved.bytes().size(); ++length) {
    EpisodeReplay loaded(options);
    ByteReader reader(std::string_view(saved.bytes()).substr(0, length), "cut.state");
    try {
      loaded.load(reader);
      FAIL() << length;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(std::string(error.what()).find("cut.state"), std::string::npos);
    }
  }
  int refused = 0;
  for (std::size_t at = 0; at < saved.bytes().size(); ++at) {
    std::string bytes = saved.bytes();
    bytes[at] = static_cast<char>(bytes[at] ^ 0x80);
    EpisodeReplay loaded(options);
    ByteReader reader(bytes, "x");
    try {
      loaded.load(reader);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(LabelReplay, RingAndBytes) {
  LabelReplay labels(3);
  for (int i = 0; i < 5; ++i) {
    Decision decision = after_state_decision(2, 0, static_cast<float>(i));
    decision.exact_y = {static_cast<float>(i), 1};
    decision.label_limit_y = 0.5f;
    labels.add(decision);
  }
  EXPECT_EQ(labels.size(), 3u);
  Rng rng(1, 2, 3);
  std::map<float, int> seen;
  for (int i = 0; i < 300; ++i) ++seen[labels.sample(rng).exact_y[0]];
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen.count(0) + seen.count(1), 0u);
  ByteWriter out, again;
  labels.save(out);
  LabelReplay loaded(3);
  ByteReader in(out.bytes(), "x");
  loaded.load(in, kInputs, false);
  loaded.save(again);
  EXPECT_EQ(out.bytes(), again.bytes());
  LabelReplay other(4);
  ByteReader in_other(out.bytes(), "x");
  EXPECT_THROW(other.load(in_other, kInputs, false), Error);
}

}  // namespace
}  // namespace automap::models
