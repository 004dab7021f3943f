#include "models/replay.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace automap::models {
namespace {

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

void save_decision(const Decision& decision, ByteWriter& out) {
  out.put_vector(decision.inputs);
  out.put<std::int32_t>(decision.actions);
  out.put_vector(decision.log_bound);
  out.put_vector(decision.legal);
  out.put<std::int32_t>(decision.chosen);
  out.put_vector(decision.exact_y);
  out.put<float>(decision.label_limit_y);
}

Decision load_decision(ByteReader& in, std::size_t inputs, bool flat) {
  Decision decision;
  decision.inputs = in.get_vector<float>();
  decision.actions = in.get<std::int32_t>();
  decision.log_bound = in.get_vector<float>();
  decision.legal = in.get_vector<std::uint8_t>();
  decision.chosen = in.get<std::int32_t>();
  decision.exact_y = in.get_vector<float>();
  decision.label_limit_y = in.get<float>();
  if (decision.actions < 1 || decision.chosen < 0 || decision.chosen >= decision.actions) {
    in.fail("a decision without its action");
  }
  const auto actions = static_cast<std::size_t>(decision.actions);
  if (decision.inputs.size() != (flat ? inputs : actions * inputs) ||
      decision.log_bound.size() != (flat ? 0 : actions) ||
      (!decision.legal.empty() && (!flat || decision.legal.size() != actions)) ||
      (!decision.exact_y.empty() && decision.exact_y.size() != actions)) {
    in.fail("a decision of another shape");
  }
  return decision;
}

}  // namespace

SumTree::SumTree(std::size_t leaves) : leaves_(leaves) {
  AM_CHECK(leaves >= 1);
  std::size_t nodes = round_up(leaves, kArity);
  levels_.emplace_back(nodes, 0.0);
  do {
    nodes /= kArity;
    if (nodes > 1) nodes = round_up(nodes, kArity);
    levels_.emplace_back(nodes, 0.0);
  } while (nodes > 1);
}

void SumTree::set(std::size_t leaf, double value) {
  AM_CHECK(leaf < leaves_ && std::isfinite(value) && value >= 0);
  levels_[0][leaf] = value;
  for (std::size_t level = 1; level < levels_.size(); ++level) {
    leaf /= kArity;
    const double* children = &levels_[level - 1][leaf * kArity];
    double sum = 0;
    for (std::size_t i = 0; i < kArity; ++i) sum += children[i];
    levels_[level][leaf] = sum;
  }
}

std::size_t SumTree::find(double mass) const {
  AM_DCHECK(total() > 0);
  std::size_t node = 0;
  for (std::size_t level = levels_.size() - 1; level-- > 0;) {
    const double* children = &levels_[level][node * kArity];
    std::size_t chosen = kArity;
    for (std::size_t i = 0; i < kArity; ++i) {
      if (children[i] <= 0) continue;
      chosen = i;  // the last that is not empty, when rounding left some mass over
      if (mass < children[i]) break;
      mass -= children[i];
    }
    AM_CHECK(chosen < kArity);
    node = node * kArity + chosen;
  }
  return node;
}

EpisodeReplay::EpisodeReplay(const ReplayOptions& options)
    : options_(options), tree_(std::max<std::size_t>(1, options.episodes) * kMaxDecisions) {
  AM_CHECK(options.episodes >= 1);
}

void EpisodeReplay::add(Episode episode) {
  if (episode.decisions.empty()) return;
  AM_CHECK(episode.decisions.size() <= static_cast<std::size_t>(kMaxDecisions));
  AM_CHECK(std::isfinite(episode.y));
  for (Decision& decision : episode.decisions) {
    decision.exact_y = {};
    if (!options_.flat && !options_.keep_all_rows && decision.actions > 1) {
      const auto chosen = static_cast<std::ptrdiff_t>(decision.chosen);
      const auto width = static_cast<std::ptrdiff_t>(decision.inputs.size()) / decision.actions;
      const auto row = decision.inputs.begin() + chosen * width;
      decision.inputs = std::vector<float>(row, row + width);
      decision.log_bound = {decision.log_bound[static_cast<std::size_t>(chosen)]};
      decision.actions = 1;
      decision.chosen = 0;
    }
  }
  if (ring_.size() < options_.episodes) {
    ring_.emplace_back();
  } else {
    for (std::size_t i = 0; i < ring_[next_].decisions.size(); ++i) tree_.set(leaf(next_, static_cast<int>(i)), 0);
    decisions_ -= ring_[next_].decisions.size();
  }
  for (std::size_t i = 0; i < episode.decisions.size(); ++i) {
    tree_.set(leaf(next_, static_cast<int>(i)), options_.prioritized ? largest_ : 1.0);
  }
  decisions_ += episode.decisions.size();
  ring_[next_] = std::move(episode);
  episodes_ = ring_.size();
  next_ = (next_ + 1) % options_.episodes;
}

void EpisodeReplay::sample(int batch, double beta, Rng& rng, std::vector<ReplaySample>& out) const {
  AM_CHECK(decisions_ >= 1 && batch >= 1);
  out.resize(static_cast<std::size_t>(batch));
  const double total = tree_.total();
  double largest = 0;
  for (int i = 0; i < batch; ++i) {
    const std::size_t found = tree_.find((i + rng.uniform()) / batch * total);
    ReplaySample& sample = out[static_cast<std::size_t>(i)];
    sample.slot = found / kMaxDecisions;
    sample.decision = static_cast<int>(found % kMaxDecisions);
    const double expected = static_cast<double>(decisions_) * tree_[found] / total;
    sample.weight = options_.prioritized ? static_cast<float>(std::pow(expected, -beta)) : 1.0f;
    largest = std::max(largest, static_cast<double>(sample.weight));
  }
  for (ReplaySample& sample : out) sample.weight = static_cast<float>(sample.weight / largest);
}

void EpisodeReplay::set_error(const ReplaySample& sample, double error) {
  if (!options_.prioritized) return;
  const double priority = std::pow(error + kPriorityFloor, options_.alpha);
  tree_.set(leaf(sample.slot, sample.decision), priority);
  largest_ = std::max(largest_, priority);
}

double EpisodeReplay::priority(std::size_t slot, int decision) const {
  return tree_[leaf(slot, decision)];
}

double EpisodeReplay::mean_priority() const {
  return decisions_ == 0 ? 0 : tree_.total() / static_cast<double>(decisions_);
}

void EpisodeReplay::save(ByteWriter& out) const {
  out.put<std::uint64_t>(options_.episodes);
  out.put<std::uint64_t>(ring_.size());
  out.put<std::uint64_t>(next_);
  out.put<double>(largest_);
  for (std::size_t slot = 0; slot < ring_.size(); ++slot) {
    const Episode& episode = ring_[slot];
    out.put<float>(episode.y);
    out.put<std::uint8_t>(episode.feasible);
    out.put<std::uint8_t>(static_cast<std::uint8_t>(episode.decisions.size()));
    for (std::size_t i = 0; i < episode.decisions.size(); ++i) {
      out.put<double>(tree_[leaf(slot, static_cast<int>(i))]);
      save_decision(episode.decisions[i], out);
    }
  }
}

void EpisodeReplay::load(ByteReader& in, std::size_t inputs) {
  if (in.get<std::uint64_t>() != options_.episodes) in.fail("a replay of another size");
  const auto count = in.get<std::uint64_t>();
  const auto next = in.get<std::uint64_t>();
  if (count > options_.episodes || next >= options_.episodes ||
      (count < options_.episodes && next != count % options_.episodes)) {
    in.fail("a replay of another size");
  }
  EpisodeReplay loaded(options_);
  loaded.next_ = static_cast<std::size_t>(next);
  loaded.largest_ = in.get<double>();
  if (!(loaded.largest_ >= 0) || !std::isfinite(loaded.largest_)) in.fail("a priority that is no number");
  for (std::size_t slot = 0; slot < count; ++slot) {
    Episode episode;
    episode.y = in.get<float>();
    episode.feasible = in.get<std::uint8_t>() != 0;
    const int decisions = in.get<std::uint8_t>();
    if (decisions < 1 || decisions > kMaxDecisions || !std::isfinite(episode.y)) in.fail("an episode of another shape");
    for (int i = 0; i < decisions; ++i) {
      const auto priority = in.get<double>();
      if (!(priority >= 0) || !std::isfinite(priority)) in.fail("a priority that is no number");
      loaded.tree_.set(leaf(slot, i), priority);
      episode.decisions.push_back(load_decision(in, inputs, options_.flat));
    }
    loaded.decisions_ += episode.decisions.size();
    loaded.ring_.push_back(std::move(episode));
  }
  loaded.episodes_ = loaded.ring_.size();
  *this = std::move(loaded);
}

void LabelReplay::add(Decision decision) {
  if (capacity_ == 0) return;
  AM_CHECK(decision.exact_y.size() == static_cast<std::size_t>(decision.actions));
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(decision));
  } else {
    ring_[next_] = std::move(decision);
  }
  next_ = (next_ + 1) % capacity_;
}

void LabelReplay::save(ByteWriter& out) const {
  out.put<std::uint64_t>(capacity_);
  out.put<std::uint64_t>(ring_.size());
  out.put<std::uint64_t>(next_);
  for (const Decision& decision : ring_) save_decision(decision, out);
}

void LabelReplay::load(ByteReader& in, std::size_t inputs, bool flat) {
  if (in.get<std::uint64_t>() != capacity_) in.fail("a label replay of another size");
  const auto count = in.get<std::uint64_t>();
  const auto next = in.get<std::uint64_t>();
  if (count > capacity_ || (capacity_ > 0 && next >= capacity_)) in.fail("a label replay of another size");
  LabelReplay loaded(capacity_);
  for (std::uint64_t i = 0; i < count; ++i) {
    loaded.ring_.push_back(load_decision(in, inputs, flat));
    if (loaded.ring_.back().exact_y.empty()) in.fail("a labelled decision without labels");
  }
  loaded.next_ = static_cast<std::size_t>(next);
  *this = std::move(loaded);
}

}  // namespace automap::models
