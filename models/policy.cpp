#include "models/policy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/rng.h"
#include "models/features.h"
#include "models/forward.h"
#include "models/partition_env.h"

namespace automap::models {

namespace {

// "automap.policy/" and the version in digits, a line feed, zeros up to 24 bytes.
constexpr std::string_view kSchema = "automap.policy/";
constexpr std::string_view kMagic = "automap.policy/1\n";
constexpr std::size_t kMagicBytes = 24;

// Far above anything useful; they keep sizes from overflowing and memory from being asked for in vain.
constexpr int kMostInputs = 65536;
constexpr int kMostHiddenLayers = 16;
constexpr int kMostWidth = 8192;
constexpr int kMostActions = 1024;
constexpr int kMostAtoms = 1024;
constexpr std::size_t kMostWeights = std::size_t{64} << 20;
constexpr std::size_t kMostProvenanceBytes = std::size_t{16} << 20;

const char* const kHint =
    "train it again (automap-train), or take a policy "
    "that came with this version";

// For partition_env.h's after-states.
bool partition_policy(const Architecture& a) {
  return a.family == Family::kAfterState && a.feature_version == PartitionEnv::kFeatureVersion &&
         a.features == PartitionEnv::kFeatures;
}

bool is_categorical(Head head) {
  return head == Head::kCategorical || head == Head::kResidualCategorical;
}
bool is_residual(Head head) {
  return head == Head::kResidual || head == Head::kResidualCategorical || head == Head::kBounded;
}

std::string range_reason(const char* field, long long value, long long low, long long high) {
  if (value >= low && value <= high) return "";
  return std::string(field) + " is " + std::to_string(value) + ", must be " + std::to_string(low) + ".." +
         std::to_string(high);
}

// The reason why no network can have this architecture; empty when one can.
std::string impossible_reason(const Architecture& a) {
  if (std::string reason = range_reason("features", a.features, 1, kMostInputs); !reason.empty()) return reason;
  if (std::string reason =
          range_reason("the number of hidden layers", static_cast<long long>(a.hidden.size()), 0, kMostHiddenLayers);
      !reason.empty()) {
    return reason;
  }
  for (const int width : a.hidden) {
    if (std::string reason = range_reason("a hidden layer's width", width, 1, kMostWidth); !reason.empty()) {
      return reason;
    }
  }
  if (std::string reason = range_reason("family", static_cast<int>(a.family), 0, 1); !reason.empty()) return reason;
  if (std::string reason = range_reason("flat_input", static_cast<int>(a.flat_input), 0, 1); !reason.empty()) {
    return reason;
  }
  if (std::string reason = range_reason("head", static_cast<int>(a.head), 0, 4); !reason.empty()) return reason;
  if (std::string reason = range_reason("objective", a.objective, 0, 1); !reason.empty()) return reason;
  const bool categorical = is_categorical(a.head);
  if (std::string reason = range_reason("atoms", a.atoms, categorical ? 2 : 1, categorical ? kMostAtoms : 1);
      !reason.empty()) {
    return reason;
  }
  if (!std::isfinite(a.low) || !std::isfinite(a.high) || (categorical && !(a.low < a.high))) {
    return "the atoms' range must be finite with low < high";
  }
  const bool flat = a.family == Family::kFlat;
  if (std::string reason = range_reason("actions", a.actions, 1, flat ? kMostActions : 1); !reason.empty()) {
    return reason;
  }
  if (flat && is_residual(a.head)) return "the flat family has no residual head";
  if (!flat && a.dueling) return "only the flat family has dueling heads";
  return "";
}

// Floats in all layers, or kMostWeights + 1 when above kMostWeights. `a` has no impossible_reason.
std::size_t count_weights(const Architecture& a) {
  std::size_t in = static_cast<std::size_t>(a.features), total = 0;
  const auto add = [&](std::size_t out) {
    if (total <= kMostWeights) total += (in + 1) * out;
  };
  for (const int width : a.hidden) {
    add(static_cast<std::size_t>(width));
    in = static_cast<std::size_t>(width);
  }
  if (a.dueling) add(static_cast<std::size_t>(a.atoms));
  add(static_cast<std::size_t>(a.actions) * static_cast<std::size_t>(a.atoms));
  return total <= kMostWeights ? total : kMostWeights + 1;
}

std::string checked_reason(const Architecture& a) {
  std::string reason = impossible_reason(a);
  if (reason.empty() && count_weights(a) > kMostWeights) {
    reason = "it would have more than " + std::to_string(kMostWeights) + " weights";
  }
  return reason;
}

void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}

void put_f32(std::string& out, float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  put_u32(out, bits);
}

std::uint32_t u32_at(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

float f32_at(std::string_view bytes, std::size_t at) {
  const std::uint32_t bits = u32_at(bytes, at);
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Reads the fields before the weights. `ok` turns false at the first read beyond the end.
struct Fields {
  std::string_view bytes;
  std::size_t at = kMagicBytes;
  bool ok = true;

  std::uint32_t u32() {
    if (!ok || bytes.size() - at < 4) {
      ok = false;
      return 0;
    }
    at += 4;
    return u32_at(bytes, at - 4);
  }
  float f32() {
    const std::uint32_t bits = u32();
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  // Numbers that do not fit become -1, which every check refuses.
  int number() {
    const std::uint32_t value = u32();
    return value <= 0x7fffffff ? static_cast<int>(value) : -1;
  }
  template <typename Enum>
  Enum enumeration() {
    const std::uint32_t value = u32();
    return static_cast<Enum>(value <= 255 ? value : 255);
  }
};

struct Header {
  Architecture architecture;
  std::string_view provenance;
  std::size_t weights_at = 0;
  std::size_t file_bytes = 0;
  std::string reason;      // why it is none
  bool cut_short = false;  // the bytes end before it does
};

Header read_header(std::string_view bytes) {
  Header header;
  Fields fields{bytes};
  Architecture& a = header.architecture;
  a.family = fields.enumeration<Family>();
  a.features = fields.number();
  a.feature_version = fields.number();
  a.head = fields.enumeration<Head>();
  a.atoms = fields.number();
  a.low = fields.f32();
  a.high = fields.f32();
  a.objective = fields.number();
  a.actions = fields.number();
  const std::uint32_t dueling = fields.u32();
  a.dueling = dueling == 1;
  a.flat_input = fields.enumeration<FlatInput>();
  const std::uint32_t hidden = fields.u32();
  a.hidden.clear();
  if (hidden > kMostHiddenLayers) {
    header.reason = range_reason("the number of hidden layers", hidden, 0, kMostHiddenLayers);
    return header;
  }
  for (std::uint32_t i = 0; i < hidden; ++i) a.hidden.push_back(fields.number());
  const std::size_t provenance_bytes = fields.u32();
  header.cut_short = !fields.ok;
  if (header.cut_short) return header;
  if (dueling > 1) {
    header.reason = "dueling is " + std::to_string(dueling) + ", must be 0..1";
    return header;
  }
  header.reason = checked_reason(a);
  if (header.reason.empty() && provenance_bytes > kMostProvenanceBytes) {
    header.reason = range_reason("the provenance's length", static_cast<long long>(provenance_bytes), 0,
                                 static_cast<long long>(kMostProvenanceBytes));
  }
  if (!header.reason.empty()) return header;
  header.weights_at = (fields.at + provenance_bytes + 3) / 4 * 4;
  header.file_bytes = header.weights_at + 4 * count_weights(a) + 4;
  header.cut_short = bytes.size() < header.file_bytes;
  if (!header.cut_short) header.provenance = bytes.substr(fields.at, provenance_bytes);
  return header;
}

}  // namespace

bool Architecture::operator==(const Architecture& other) const {
  return features == other.features && feature_version == other.feature_version && hidden == other.hidden &&
         head == other.head && atoms == other.atoms && low == other.low && high == other.high &&
         objective == other.objective && family == other.family && actions == other.actions &&
         dueling == other.dueling && flat_input == other.flat_input;
}

struct Policy::Network {
  ForwardNetwork forward;
};

Policy::Policy(Architecture architecture, std::vector<float> weights, std::string provenance_json)
    : architecture_(std::move(architecture)), weights_(std::move(weights)), provenance_(std::move(provenance_json)) {
  const Architecture& a = architecture_;
  if (const std::string reason = checked_reason(a); !reason.empty()) {
    throw Error(ErrorKind::kConfig, "no such policy: " + reason);
  }
  if (weights_.size() != count_weights(a)) {
    throw Error(ErrorKind::kData, "a policy of this architecture has " + std::to_string(count_weights(a)) +
                                      " weights, but " + std::to_string(weights_.size()) + " were given");
  }
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (!std::isfinite(weights_[i])) {
      throw Error(ErrorKind::kData, "weight " + std::to_string(i) + " of the policy is not a finite number",
                  "the training diverged; take an earlier checkpoint or a "
                  "smaller learning rate");
    }
  }
  if (provenance_.size() > kMostProvenanceBytes) {
    throw Error(ErrorKind::kData,
                "the policy's provenance is longer than " + std::to_string(kMostProvenanceBytes) + " bytes");
  }
  std::vector<int> heads;
  if (a.dueling) heads.push_back(a.atoms);
  heads.push_back(a.actions * a.atoms);
  network_ = std::make_shared<const Network>(Network{ForwardNetwork(a.features, a.hidden, heads, weights_.data())});
}

std::size_t Policy::num_weights(const Architecture& architecture) {
  return checked_reason(architecture).empty() ? count_weights(architecture) : 0;
}

std::string Policy::serialize() const {
  const Architecture& a = architecture_;
  std::string out(kMagic);
  out.resize(kMagicBytes, '\0');
  put_u32(out, static_cast<std::uint32_t>(a.family));
  put_u32(out, static_cast<std::uint32_t>(a.features));
  put_u32(out, static_cast<std::uint32_t>(a.feature_version));
  put_u32(out, static_cast<std::uint32_t>(a.head));
  put_u32(out, static_cast<std::uint32_t>(a.atoms));
  put_f32(out, a.low);
  put_f32(out, a.high);
  put_u32(out, static_cast<std::uint32_t>(a.objective));
  put_u32(out, static_cast<std::uint32_t>(a.actions));
  put_u32(out, a.dueling ? 1 : 0);
  put_u32(out, static_cast<std::uint32_t>(a.flat_input));
  put_u32(out, static_cast<std::uint32_t>(a.hidden.size()));
  for (const int width : a.hidden) put_u32(out, static_cast<std::uint32_t>(width));
  put_u32(out, static_cast<std::uint32_t>(provenance_.size()));
  out += provenance_;
  out.resize((out.size() + 3) / 4 * 4, '\0');
  for (const float weight : weights_) put_f32(out, weight);
  put_u32(out, crc32c(out));
  return out;
}

Policy Policy::load(const std::string& path) {
  return parse(read_file(path, 4 * kMostWeights + kMostProvenanceBytes + (1 << 20)), input_name(path));
}

Policy Policy::parse(std::string_view bytes, const std::string& source) {
  const auto refuse = [&](const std::string& what, const char* hint) {
    throw Error(ErrorKind::kData, source + ": " + what, hint);
  };
  if (bytes.substr(0, kSchema.size()) != kSchema) {
    refuse("not a policy: it does not start with \"" + std::string(kSchema) + "\"",
           "policies are written by automap-train");
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    // Digits up to the line feed: another version. Anything else: damaged.
    const std::string_view rest = bytes.substr(kSchema.size(), 10);
    const std::size_t digits = rest.find_first_not_of("0123456789");
    if (digits != std::string_view::npos && digits > 0 && rest[digits] == '\n') {
      refuse("policy version " + std::string(rest.substr(0, digits)) + ", this program reads version 1",
             "use the AutoMap that wrote it, or train again");
    }
    refuse("damaged or cut short: no version behind \"" + std::string(kSchema) + "\"", kHint);
  }
  if (bytes.size() < kMagicBytes + 4) {
    refuse("cut short: it has only " + std::to_string(bytes.size()) + " bytes", "copy it again");
  }
  const Header header = read_header(bytes);
  const std::uint32_t stored = u32_at(bytes, bytes.size() - 4);
  if (crc32c(bytes.substr(0, bytes.size() - 4)) != stored) {
    if (header.reason.empty() && header.cut_short) {
      refuse("cut short: it has " + std::to_string(bytes.size()) + " bytes" +
                 (header.file_bytes > 0 ? " of " + std::to_string(header.file_bytes) : ""),
             "copy it again");
    }
    if (header.reason.empty() && bytes.size() > header.file_bytes) {
      refuse(std::to_string(bytes.size() - header.file_bytes) + " bytes too many behind its end", "copy it again");
    }
    refuse("damaged: its checksum (crc32c) is not the one stored in it", "copy it again");
  }
  if (!header.reason.empty()) refuse("this program cannot run such a network: " + header.reason, kHint);
  if (header.cut_short || bytes.size() != header.file_bytes) {
    refuse("it has " + std::to_string(bytes.size()) + " bytes, its architecture needs " +
               std::to_string(header.file_bytes),
           kHint);
  }
  const Architecture& a = header.architecture;
  // The paper's arrays have no version of their own.
  if (a.family == Family::kAfterState || a.flat_input == FlatInput::kPerAction) {
    if (a.feature_version != kFeatureVersion && !partition_policy(a)) {
      refuse("made for feature version " + std::to_string(a.feature_version) + ", this program computes version " +
                 std::to_string(kFeatureVersion),
             "train it again, or use the AutoMap that wrote it");
    }
  }
  if (a.family == Family::kAfterState && a.features != kFeatures && !partition_policy(a)) {
    refuse("it takes " + std::to_string(a.features) + " features, this program computes " + std::to_string(kFeatures),
           kHint);
  }
  std::vector<float> weights(count_weights(a));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = f32_at(bytes, header.weights_at + 4 * i);
    if (!std::isfinite(weights[i])) {
      refuse("weight " + std::to_string(i) + " is not a finite number", "the training diverged; train it again");
    }
  }
  return Policy(a, std::move(weights), std::string(header.provenance));
}

void Policy::predict(const float* features, const float* log_bound, int count, float* y) const {
  const Architecture& a = architecture_;
  if (a.family != Family::kAfterState) {
    throw Error(ErrorKind::kData, "a policy of the flat family cannot rank after-states",
                "train without --preset faithful");
  }
  if (count <= 0) return;
  // One output goes straight into y.
  if (!is_categorical(a.head)) {
    network_->forward.run(features, count, y);
    if (a.head == Head::kResidual) residual_softplus(log_bound, count, y);
    if (a.head == Head::kBounded) between(log_bound, features + a.features - 1, a.features, count, y);
    return;
  }
  std::vector<float> logits(static_cast<std::size_t>(count) * static_cast<std::size_t>(a.atoms));
  network_->forward.run(features, count, logits.data());
  categorical_mean(logits.data(), count, a.atoms, a.low, a.high, y);
  if (a.head == Head::kResidualCategorical) {
    for (int i = 0; i < count; ++i) y[i] += log_bound[i];
  }
}

void Policy::predict_actions(const float* states, int count, float* y) const {
  const Architecture& a = architecture_;
  if (a.family != Family::kFlat) {
    throw Error(ErrorKind::kData, "a policy of the after-state family has no actions of a flat state");
  }
  if (count <= 0) return;
  const int outputs = network_->forward.outputs();
  std::vector<float> net(static_cast<std::size_t>(count) * static_cast<std::size_t>(outputs));
  network_->forward.run(states, count, net.data());
  const std::size_t atoms = static_cast<std::size_t>(a.atoms), actions = static_cast<std::size_t>(a.actions);
  std::vector<float> sums(atoms);
  for (std::size_t row = 0; row < static_cast<std::size_t>(count); ++row) {
    float* values = net.data() + row * static_cast<std::size_t>(outputs);
    float* advantages = values;
    if (a.dueling) {
      advantages = values + atoms;
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (std::size_t action = 0; action < actions; ++action) {
        for (std::size_t i = 0; i < atoms; ++i) sums[i] += advantages[action * atoms + i];
      }
      for (std::size_t i = 0; i < atoms; ++i) values[i] -= sums[i] / static_cast<float>(actions);
      for (std::size_t action = 0; action < actions; ++action) {
        for (std::size_t i = 0; i < atoms; ++i) advantages[action * atoms + i] += values[i];
      }
    }
    if (is_categorical(a.head)) {
      categorical_mean(advantages, a.actions, a.atoms, a.low, a.high, y + row * actions);
    } else {
      std::copy(advantages, advantages + actions, y + row * actions);
    }
  }
}

Policy untrained_policy(std::uint64_t seed) {
  constexpr std::uint32_t kUntrainedStream = 0x756e7472;
  Architecture architecture;
  architecture.features = kFeatures;
  architecture.feature_version = kFeatureVersion;
  std::vector<float> weights;
  Rng rng(seed, kUntrainedStream, 0);
  int in = architecture.features;
  std::vector<int> layers = architecture.hidden;
  layers.push_back(architecture.atoms);
  for (const int out : layers) {
    const double range = std::sqrt(6.0 / in);
    for (int i = 0; i < in * out; ++i) weights.push_back(static_cast<float>(rng.uniform(-range, range)));
    weights.insert(weights.end(), static_cast<std::size_t>(out), 0.0f);
    in = out;
  }
  return Policy(architecture, std::move(weights), R"({"untrained": true})");
}

}  // namespace automap::models
