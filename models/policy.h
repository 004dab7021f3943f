// A trained policy: a small network that tells, for an after-state, how far above its bound the best completion will
// be. Native forward pass, no library; the file `automap.policy/1` (docs/formats/policy.md) is little-endian: magic,
// architecture, provenance, weights f32, crc32c.
//
// The prediction is y = log(L / LB_root), L the length of the best completion of the after-state, LB_root the bound of
// the empty plan: smaller is better, and values of after-states of different prefixes of the same problem compare.
//
// The same class and file hold the paper's flat network (flat_env.h), which answers for all actions of a state at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace automap::models {

// The numbers of all enumerations here are persisted, do not change them.
enum class Family : std::uint8_t {
  kAfterState = 0,  // one network shared over all after-states: features of one in, its y out
  kFlat = 1,        // the paper's: a flat state vector in, one y per action out
};
enum class FlatInput : std::uint8_t {
  kRaw = 0,        // the paper's arrays
  kPerAction = 1,  // per action a few cost-model features of what taking it leads to, divided by the bound
};

enum class Head : std::uint8_t {
  kPlain = 0,                // y = net
  kResidual = 1,             // y = log(bound / LB_root) + 0.1 softplus(net): never below the bound; after-state only
  kCategorical = 2,          // y = sum_i softmax(net)_i z_i, z evenly on [low, high]
  kResidualCategorical = 3,  // y = log(bound / LB_root) + that; after-state only
  // y = log(bound / LB_root) + r sigmoid(net), r the last feature, log(best rollout / bound): between the two lengths
  // that are known to enclose the best completion; after-state only
  kBounded = 4,
};

struct Architecture {
  int features = 0;                    // inputs: kFeatures per after-state, or the flat state's length
  int feature_version = 0;             // kFeatureVersion, or PartitionEnv::kFeatureVersion
  std::vector<int> hidden = {64, 64};  // ReLU layers
  Head head = Head::kResidual;
  int atoms = 1;  // outputs; > 1 only for categorical heads
  float low = 0, high = 1;
  // The length that the training minimized: 0 value, 1 simulated.
  int objective = 0;
  Family family = Family::kAfterState;
  // Flat family only (else as they stand here). Dueling (arXiv 1511.06581): a value [atoms] and an advantage
  // [actions][atoms] head on the last hidden layer; net = value + advantage - mean of the advantages over all actions,
  // atom by atom.
  int actions = 1;
  bool dueling = false;
  FlatInput flat_input = FlatInput::kRaw;
  bool operator==(const Architecture& other) const;
};

class Policy {
 public:
  // Weights of layer l: [in][out] row-major then bias [out]; one flat vector in layer order. Output of the last layer:
  // [actions][atoms] row-major. Dueling: the value head [in][atoms] and its bias, then the advantage head
  // [in][actions * atoms] and its bias.
  // Throws Error(kConfig) for an architecture that cannot be (naming the field), Error(kData) when the weights are not
  // num_weights() finite numbers.
  Policy(Architecture architecture, std::vector<float> weights, std::string provenance_json = "{}");

  // Throws Error(kIo/kData) naming file and field: not a policy, newer version, other architecture than this program
  // can run, wrong checksum, cut short, NaN weights.
  static Policy load(const std::string& path);
  static Policy parse(std::string_view bytes, const std::string& source);
  std::string serialize() const;
  // 0 when the architecture cannot be.
  static std::size_t num_weights(const Architecture& architecture);

  const Architecture& architecture() const { return architecture_; }
  const std::vector<float>& weights() const { return weights_; }
  const std::string& provenance() const { return provenance_; }

  // y of `count` after-states: features [count][features], log_bound [count] = log(bound / LB_root), y [count].
  // Thread-safe; the same bits on every machine (no fused multiply-add, fixed order of sums).
  // After-state family only.
  void predict(const float* features, const float* log_bound, int count, float* y) const;
  // Flat family only: y of every action of `count` states: states [count][features], y [count][actions]. Q = -y.
  void predict_actions(const float* states, int count, float* y) const;

 private:
  struct Network;  // weights laid out for the kernels; copies of a policy share it
  Architecture architecture_;
  std::vector<float> weights_;
  std::string provenance_;
  std::shared_ptr<const Network> network_;
};

// The default after-state network with weights as before any training (He initialization, arXiv 1502.01852): what shows
// how much of a search's worth is learned.
Policy untrained_policy(std::uint64_t seed);

}  // namespace automap::models
