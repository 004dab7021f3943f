// The replay memories of the learner, without LibTorch: prioritized sampling of decisions from a ring of episodes
// (Schaul et al. 2016, "Prioritized experience replay", proportional variant), and a ring of labelled decisions.
//
// Nothing here locks: one thread at a time. Memory is bounded by the capacities: an episode keeps 4 * (features + 1)
// bytes per decision (only the chosen after-state), times the number of actions when all rows are kept, and about 250
// more (priorities included; flat family 400); a labelled decision 4 * actions * (features + 2) bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/byte_stream.h"
#include "common/base/rng.h"
#include "models/episode.h"

namespace automap::models {

// Non-negative values of which one is drawn in proportion. Arity 16: a node's children lie in two cache lines. A node
// is always its children's sum in order, so that the tree depends on its leaves alone (no drift, bit-equal after
// loading).
class SumTree {
 public:
  static constexpr std::size_t kArity = 16;

  explicit SumTree(std::size_t leaves);
  std::size_t size() const { return leaves_; }
  void set(std::size_t leaf, double value);
  double operator[](std::size_t leaf) const { return levels_[0][leaf]; }
  double total() const { return levels_.back()[0]; }
  // The leaf i with sum of leaves before i <= mass < that + leaf i; never a leaf of value 0 while total() > 0.
  // Leaves 1, 0, 3: mass 0.5 -> 0, mass 1 -> 2, mass 4 (beyond the end) -> 2.
  std::size_t find(double mass) const;

 private:
  std::size_t leaves_;
  std::vector<std::vector<double>> levels_;  // [0] the leaves, padded with zeros; back(): the root
};

struct ReplayOptions {
  std::size_t episodes = 20000;
  std::size_t inputs = 58;  // of a row
  bool prioritized = false;
  double alpha = 0.2;          // priority = (error + kPriorityFloor)^alpha
  bool keep_all_rows = false;  // of after-state decisions; else the chosen row alone
  bool flat = false;           // decisions are one state vector each
  // Most decisions of an episode; 0: kMaxDecisions, half of it for after-state decisions. Each costs 8 bytes per
  // episode kept. Not part of a saved replay: it only has to be enough for what is loaded.
  std::size_t max_decisions = 0;
};

constexpr double kPriorityFloor = 1e-3;

// A decision as it is kept; valid until the next add().
struct DecisionView {
  const float* inputs = nullptr;  // [rows][inputs]; the flat family has one row
  int actions = 0;
  const float* log_bound = nullptr;     // [actions]; null: flat family
  const std::uint8_t* legal = nullptr;  // [actions]; null: all
  int chosen = 0;
};
DecisionView view_of(const Decision& decision);

struct ReplaySample {
  std::size_t slot = 0;  // episode
  int decision = 0;
  float weight = 1;  // importance weight, largest of the batch = 1
};

class EpisodeReplay {
 public:
  explicit EpisodeReplay(const ReplayOptions& options);

  // Keeps what training needs of it; the oldest episode leaves. New decisions get the largest priority there was.
  // Episodes without decisions are not kept.
  void add(const Episode& episode);
  std::size_t episodes() const { return ring_.size(); }
  std::size_t decisions() const { return decisions_; }
  float y(std::size_t slot) const { return ring_[slot].y; }
  int decisions_of(std::size_t slot) const { return ring_[slot].decisions; }
  DecisionView decision(std::size_t slot, int decision) const;

  // Stratified: the total priority is split into `batch` equal parts and one decision drawn from each. Importance
  // weight (N P(i))^-beta over the batch's largest (1 without priorities). Needs decisions() >= 1.
  void sample(int batch, double beta, Rng& rng, std::vector<ReplaySample>& out) const;
  // After an update: the decision's new error (absolute, not negative). No effect without priorities.
  void set_error(const ReplaySample& sample, double error);
  double priority(std::size_t slot, int decision) const;
  // Mean over all decisions.
  double mean_priority() const;

  void save(ByteWriter& out) const;
  // Replaces everything; throws Error(kData) when damaged.
  void load(ByteReader& in);
  std::size_t bytes() const;  // about what save() writes

 private:
  // Packed: three blocks instead of three per decision.
  struct Stored {
    std::vector<float> floats;        // decision after decision: inputs, log_bound
    std::vector<std::int16_t> shape;  // actions, chosen of each; empty: all 1, 0
    std::vector<std::uint8_t> legal;  // flat: decision after decision; empty: all legal
    float y = 0;
    std::int32_t decisions = 0;
  };
  std::size_t leaf(std::size_t slot, int decision) const { return slot * stride_ + static_cast<std::size_t>(decision); }
  std::size_t floats_of(int actions) const;
  void check_loaded(const Stored& stored, ByteReader& in) const;

  ReplayOptions options_;
  std::size_t stride_;  // leaves per episode
  std::vector<Stored> ring_;
  std::size_t next_ = 0, decisions_ = 0;
  double largest_ = 1;  // priority ever given
  SumTree tree_;
};

// Labelled decisions with all their rows; drawn uniformly with replacement.
class LabelReplay {
 public:
  explicit LabelReplay(std::size_t capacity) : capacity_(capacity) {}

  void add(Decision decision);
  std::size_t size() const { return ring_.size(); }
  const Decision& sample(Rng& rng) const { return ring_[static_cast<std::size_t>(rng.below(ring_.size()))]; }

  void save(ByteWriter& out) const;
  void load(ByteReader& in, std::size_t inputs, bool flat);
  std::size_t bytes() const;  // about what save() writes

 private:
  std::size_t capacity_;
  std::size_t next_ = 0;
  std::vector<Decision> ring_;
};

}  // namespace automap::models
