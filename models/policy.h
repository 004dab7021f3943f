// A trained policy: a small network that tells, for an after-state, how far above its bound the best completion will
// be. Native forward pass, no library; the file `automap.policy/1` (docs/formats/policy.md) is little-endian: magic,
// architecture, provenance, weights f32, crc32c.
//
// The prediction is y = log(L / LB_root), L the length of the best completion of the after-state, LB_root the bound of
// the empty plan: smaller is better, and values of after-states of different prefixes of the same problem compare.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automap::models {

enum class Head : std::uint8_t {
  kPlain = 0,                // y = net
  kResidual = 1,             // y = log(bound / LB_root) + 0.1 softplus(net): never below the bound
  kCategorical = 2,          // y = sum_i softmax(net)_i z_i, z evenly on [low, high]
  kResidualCategorical = 3,  // y = log(bound / LB_root) + that
};

struct Architecture {
  int features = 0;                    // inputs per after-state; kFeatures
  int feature_version = 0;             // kFeatureVersion
  std::vector<int> hidden = {64, 64};  // ReLU layers
  Head head = Head::kResidual;
  int atoms = 1;  // outputs; > 1 only for categorical heads
  float low = 0, high = 1;
  // What V the training minimized: 0 value, 1 simulated.
  int objective = 0;
  bool operator==(const Architecture& other) const;
};

class Policy {
 public:
  // Weights of layer l: [in][out] row-major then bias [out]; one flat vector in layer order.
  Policy(Architecture architecture, std::vector<float> weights, std::string provenance_json = "{}");

  // Throws Error(kIo/kData) naming file and field: not a policy, newer version, other architecture than this program
  // can run, wrong checksum, cut short, NaN weights.
  static Policy load(const std::string& path);
  static Policy parse(std::string_view bytes, const std::string& source);
  std::string serialize() const;
  static std::size_t num_weights(const Architecture& architecture);

  const Architecture& architecture() const { return architecture_; }
  const std::vector<float>& weights() const { return weights_; }
  const std::string& provenance() const { return provenance_; }

  // y of `count` after-states: features [count][features], log_bound [count] = log(bound / LB_root), y [count].
  // Thread-safe; the same bits on every machine (no fused multiply-add, fixed order of sums).
  void predict(const float* features, const float* log_bound, int count, float* y) const;

 private:
  Architecture architecture_;
  std::vector<float> weights_;
  std::string provenance_;
};

}  // namespace automap::models
