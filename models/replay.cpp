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

DecisionView view_of(const Decision& decision) {
  DecisionView view;
  view.inputs = decision.inputs.data();
  view.actions = decision.actions;
  view.log_bound = decision.log_bound.empty() ? nullptr : decision.log_bound.data();
  view.legal = decision.legal.empty() ? nullptr : decision.legal.data();
  view.chosen = decision.chosen;
  return view;
}

// After-state episodes decide at most 15 boundaries, flat ones twice that.
EpisodeReplay::EpisodeReplay(const ReplayOptions& options)
    : options_(options),
      stride_(options.max_decisions > 0 ? options.max_decisions
              : options.flat            ? kMaxDecisions
                                        : kMaxDecisions / 2),
      tree_(std::max<std::size_t>(1, options.episodes) * stride_) {
  AM_CHECK(options.episodes >= 1);
}

std::size_t EpisodeReplay::floats_of(int actions) const {
  return options_.flat ? options_.inputs : static_cast<std::size_t>(actions) * (options_.inputs + 1);
}

void EpisodeReplay::add(const Episode& episode) {
  if (episode.decisions.empty()) return;
  AM_CHECK(episode.decisions.size() <= stride_);
  AM_CHECK(std::isfinite(episode.y));
  const std::size_t width = options_.inputs;
  const bool chosen_only = !options_.flat && !options_.keep_all_rows;
  Stored stored;
  stored.y = episode.y;
  stored.decisions = static_cast<std::int32_t>(episode.decisions.size());
  std::size_t floats = 0;
  bool masked = false;
  for (const Decision& decision : episode.decisions) {
    AM_CHECK(decision.actions >= 1 && decision.actions <= 32767);
    floats += floats_of(chosen_only ? 1 : decision.actions);
    masked = masked || !decision.legal.empty();
  }
  stored.floats.reserve(floats);
  for (const Decision& decision : episode.decisions) {
    const float* row = decision.inputs.data();
    if (chosen_only) {
      const auto chosen = static_cast<std::size_t>(decision.chosen);
      stored.floats.insert(stored.floats.end(), row + chosen * width, row + (chosen + 1) * width);
      stored.floats.push_back(decision.log_bound[chosen]);
      continue;
    }
    stored.floats.insert(stored.floats.end(), decision.inputs.begin(), decision.inputs.end());
    stored.floats.insert(stored.floats.end(), decision.log_bound.begin(), decision.log_bound.end());
    stored.shape.push_back(static_cast<std::int16_t>(decision.actions));
    stored.shape.push_back(static_cast<std::int16_t>(decision.chosen));
    if (!masked) continue;
    if (decision.legal.empty()) {
      stored.legal.insert(stored.legal.end(), static_cast<std::size_t>(decision.actions), 1);
    } else {
      stored.legal.insert(stored.legal.end(), decision.legal.begin(), decision.legal.end());
    }
  }
  AM_CHECK(stored.floats.size() == floats);
  if (ring_.size() < options_.episodes) {
    ring_.emplace_back();
  } else {
    for (int i = 0; i < ring_[next_].decisions; ++i) tree_.set(leaf(next_, i), 0);
    decisions_ -= static_cast<std::size_t>(ring_[next_].decisions);
  }
  for (int i = 0; i < stored.decisions; ++i) tree_.set(leaf(next_, i), options_.prioritized ? largest_ : 1.0);
  decisions_ += static_cast<std::size_t>(stored.decisions);
  ring_[next_] = std::move(stored);
  next_ = (next_ + 1) % options_.episodes;
}

DecisionView EpisodeReplay::decision(std::size_t slot, int decision) const {
  const Stored& stored = ring_[slot];
  AM_DCHECK(decision >= 0 && decision < stored.decisions);
  DecisionView view;
  std::size_t at = 0, legal_at = 0;
  for (int i = 0;; ++i) {
    view.actions = stored.shape.empty() ? 1 : stored.shape[static_cast<std::size_t>(2 * i)];
    if (i == decision) break;
    at += floats_of(view.actions);
    legal_at += static_cast<std::size_t>(view.actions);
  }
  view.inputs = &stored.floats[at];
  if (!options_.flat) view.log_bound = view.inputs + static_cast<std::size_t>(view.actions) * options_.inputs;
  if (!stored.legal.empty()) view.legal = &stored.legal[legal_at];
  view.chosen = stored.shape.empty() ? 0 : stored.shape[static_cast<std::size_t>(2 * decision + 1)];
  return view;
}

void EpisodeReplay::sample(int batch, double beta, Rng& rng, std::vector<ReplaySample>& out) const {
  AM_CHECK(decisions_ >= 1 && batch >= 1);
  out.resize(static_cast<std::size_t>(batch));
  const double total = tree_.total();
  double largest = 0;
  for (int i = 0; i < batch; ++i) {
    const std::size_t found = tree_.find((i + rng.uniform()) / batch * total);
    ReplaySample& sample = out[static_cast<std::size_t>(i)];
    sample.slot = found / stride_;
    sample.decision = static_cast<int>(found % stride_);
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
    const Stored& stored = ring_[slot];
    out.put<float>(stored.y);
    out.put<std::int32_t>(stored.decisions);
    out.put_vector(stored.floats);
    out.put_vector(stored.shape);
    out.put_vector(stored.legal);
    for (int i = 0; i < stored.decisions; ++i) out.put<double>(tree_[leaf(slot, i)]);
  }
}

std::size_t EpisodeReplay::bytes() const {
  std::size_t bytes = 64;
  for (const Stored& stored : ring_) {
    bytes += 32 + 4 * stored.floats.size() + 2 * stored.shape.size() + stored.legal.size() +
             8 * static_cast<std::size_t>(stored.decisions);
  }
  return bytes;
}

void EpisodeReplay::check_loaded(const Stored& stored, ByteReader& in) const {
  if (stored.decisions < 1 || static_cast<std::size_t>(stored.decisions) > stride_ || !std::isfinite(stored.y)) {
    in.fail("an episode of another shape");
  }
  const bool chosen_only = !options_.flat && !options_.keep_all_rows;
  if (stored.shape.size() != (chosen_only ? 0 : 2 * static_cast<std::size_t>(stored.decisions))) {
    in.fail("a decision of another shape");
  }
  std::size_t floats = 0, actions = 0;
  for (int i = 0; i < stored.decisions; ++i) {
    int count = 1, chosen = 0;
    if (!chosen_only) {
      count = stored.shape[static_cast<std::size_t>(2 * i)];
      chosen = stored.shape[static_cast<std::size_t>(2 * i + 1)];
    }
    if (count < 1 || chosen < 0 || chosen >= count) in.fail("a decision without its action");
    floats += floats_of(count);
    actions += static_cast<std::size_t>(count);
  }
  if (stored.floats.size() != floats || (!stored.legal.empty() && (!options_.flat || stored.legal.size() != actions))) {
    in.fail("a decision of another shape");
  }
}

void EpisodeReplay::load(ByteReader& in) {
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
    Stored stored;
    stored.y = in.get<float>();
    stored.decisions = in.get<std::int32_t>();
    stored.floats = in.get_vector<float>();
    stored.shape = in.get_vector<std::int16_t>();
    stored.legal = in.get_vector<std::uint8_t>();
    check_loaded(stored, in);
    for (int i = 0; i < stored.decisions; ++i) {
      const auto priority = in.get<double>();
      if (!(priority >= 0) || !std::isfinite(priority)) in.fail("a priority that is no number");
      loaded.tree_.set(leaf(slot, i), priority);
    }
    loaded.decisions_ += static_cast<std::size_t>(stored.decisions);
    loaded.ring_.push_back(std::move(stored));
  }
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

std::size_t LabelReplay::bytes() const {
  std::size_t bytes = 64;
  for (const Decision& decision : ring_) {
    bytes +=
        48 + 4 * (decision.inputs.size() + decision.log_bound.size() + decision.exact_y.size()) + decision.legal.size();
  }
  return bytes;
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
