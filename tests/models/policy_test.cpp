#include "models/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/rng.h"
#include "models/features.h"
#include "models/partition_env.h"
#include "tests/temporary_folder.h"

namespace automap::models {
namespace {

Architecture small_architecture(Head head = Head::kResidual) {
  Architecture a;
  a.features = kFeatures;
  a.feature_version = kFeatureVersion;
  a.hidden = {24, 16};
  a.head = head;
  if (head == Head::kCategorical || head == Head::kResidualCategorical) {
    a.atoms = 21;
    a.low = 0;
    a.high = 2;
  }
  return a;
}

Architecture flat(bool dueling, int atoms = 1) {
  Architecture a;
  a.family = Family::kFlat;
  a.features = 40;
  a.feature_version = kFeatureVersion;
  a.hidden = {24, 20};
  a.head = atoms > 1 ? Head::kCategorical : Head::kPlain;
  a.atoms = atoms;
  a.low = -1;
  a.high = 2;
  a.actions = 128;
  a.dueling = dueling;
  a.flat_input = FlatInput::kRaw;
  return a;
}

std::vector<float> random_weights(std::size_t count, std::uint64_t item) {
  Rng rng(3, 2, item);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.uniform(-0.4, 0.4));
  return values;
}

Policy random_policy(const Architecture& a, std::uint64_t item = 0) {
  return Policy(a, random_weights(Policy::num_weights(a), item), R"({"seed": 1})");
}

// The layers in double, as policy.h lays the weights out.
std::vector<double> dense(const std::vector<double>& x, const float*& weights, std::size_t outputs, bool relu) {
  std::vector<double> y(outputs);
  for (std::size_t o = 0; o < outputs; ++o) {
    y[o] = weights[x.size() * outputs + o];
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += x[i] * weights[i * outputs + o];
    if (relu) y[o] = std::max(y[o], 0.0);
  }
  weights += (x.size() + 1) * outputs;
  return y;
}

double mean_of_logits(const double* logits, const Architecture& a) {
  double total = 0, weighted = 0;
  for (int i = 0; i < a.atoms; ++i) {
    total += std::exp(logits[i]);
    weighted += std::exp(logits[i]) * (a.low + (a.high - a.low) * i / (a.atoms - 1));
  }
  return weighted / total;
}

std::vector<double> naive_actions(const Policy& policy, const float* input, double log_bound) {
  const Architecture& a = policy.architecture();
  const float* weights = policy.weights().data();
  std::vector<double> x(input, input + a.features);
  for (const int width : a.hidden) x = dense(x, weights, static_cast<std::size_t>(width), true);
  const std::size_t atoms = static_cast<std::size_t>(a.atoms), actions = static_cast<std::size_t>(a.actions);
  std::vector<double> value(atoms);
  if (a.dueling) value = dense(x, weights, atoms, false);
  std::vector<double> net = dense(x, weights, actions * atoms, false);
  if (a.dueling) {
    for (std::size_t i = 0; i < atoms; ++i) {
      double mean = 0;
      for (std::size_t k = 0; k < actions; ++k) mean += net[k * atoms + i] / static_cast<double>(actions);
      for (std::size_t k = 0; k < actions; ++k) net[k * atoms + i] += value[i] - mean;
    }
  }
  EXPECT_EQ(weights, policy.weights().data() + policy.weights().size());
  std::vector<double> y(actions);
  for (std::size_t k = 0; k < actions; ++k) {
    switch (a.head) {
      case Head::kPlain: y[k] = net[k]; break;
      case Head::kResidual:
        y[k] = log_bound + 0.1 * (std::max(net[k], 0.0) + std::log1p(std::exp(-std::abs(net[k]))));
        break;
      case Head::kBounded: y[k] = log_bound + input[a.features - 1] / (1 + std::exp(-net[k])); break;
      case Head::kCategorical: y[k] = mean_of_logits(net.data() + k * atoms, a); break;
      case Head::kResidualCategorical: y[k] = log_bound + mean_of_logits(net.data() + k * atoms, a); break;
    }
  }
  return y;
}

TEST(Policy, OfPartitionings) {
  Architecture a;
  a.features = PartitionEnv::kFeatures;
  a.feature_version = PartitionEnv::kFeatureVersion;
  a.hidden = {8};
  a.head = Head::kPlain;
  const Policy policy(a, random_weights(Policy::num_weights(a), 5));
  EXPECT_EQ(Policy::parse(policy.serialize(), "x").weights(), policy.weights());
  a.features = kFeatures;
  const Policy other(a, random_weights(Policy::num_weights(a), 5));
  EXPECT_THROW(Policy::parse(other.serialize(), "x"), Error);
}

TEST(Policy, PredictsAsDocumentedWithEveryHead) {
  for (const Head head :
       {Head::kPlain, Head::kResidual, Head::kCategorical, Head::kResidualCategorical, Head::kBounded}) {
    const Policy policy = random_policy(small_architecture(head), static_cast<std::uint64_t>(head));
    constexpr std::size_t kCount = 13;
    const std::vector<float> x = random_weights(kCount * kFeatures, 77), bounds = random_weights(kCount, 78);
    std::vector<float> y(kCount);
    policy.predict(x.data(), bounds.data(), kCount, y.data());
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(y[i], naive_actions(policy, x.data() + i * kFeatures, bounds[i])[0], 1e-5);
      if (head == Head::kResidual) {
        EXPECT_GE(y[i], bounds[i]);
      }
    }
    policy.predict(x.data(), bounds.data(), 0, nullptr);
  }
}

TEST(Policy, FlatNetworkAnswersForAllActions) {
  for (const bool dueling : {false, true}) {
    for (const int atoms : {1, 11}) {
      const Policy policy = random_policy(flat(dueling, atoms), 5);
      constexpr std::size_t kCount = 3;
      const std::vector<float> x = random_weights(kCount * 40, 79);
      std::vector<float> y(kCount * 128);
      policy.predict_actions(x.data(), kCount, y.data());
      for (std::size_t row = 0; row < kCount; ++row) {
        const std::vector<double> expected = naive_actions(policy, x.data() + row * 40, 0);
        for (std::size_t k = 0; k < 128; ++k) EXPECT_NEAR(y[row * 128 + k], expected[k], 1e-5);
      }
      EXPECT_THROW(policy.predict(x.data(), x.data(), 1, y.data()), Error);
    }
  }
  float number = 0;
  EXPECT_THROW(random_policy(small_architecture()).predict_actions(&number, 1, &number), Error);
}

TEST(Policy, FileRoundTrip) {
  Architecture simulated = small_architecture();
  simulated.objective = 1;
  Architecture bare = small_architecture(Head::kPlain);
  bare.hidden = {};
  for (const Architecture& a : {small_architecture(), small_architecture(Head::kResidualCategorical), simulated, bare,
                                flat(true), flat(false, 51)}) {
    const Policy policy = random_policy(a);
    const Policy again = Policy::parse(policy.serialize(), "test");
    EXPECT_TRUE(again.architecture() == a);
    EXPECT_EQ(again.weights(), policy.weights());
    EXPECT_EQ(again.provenance(), R"({"seed": 1})");
    EXPECT_EQ(again.serialize(), policy.serialize());
  }
  const TemporaryFolder folder;
  const std::string path = folder.file("test.policy");
  write_file_atomic(path, random_policy(small_architecture()).serialize());
  EXPECT_EQ(Policy::load(path).weights(), random_policy(small_architecture()).weights());
  std::filesystem::remove(path);
  EXPECT_THROW(Policy::load(path), Error);
}

// The bytes of docs/formats/policy.md: they must not move.
TEST(Policy, BytesAreAsDocumented) {
  Architecture a = small_architecture(Head::kPlain);
  a.hidden = {};
  std::vector<float> weights(kFeatures + 1, 0);
  weights[0] = 1;
  const std::string bytes = Policy(a, weights, "{}").serialize();
  EXPECT_EQ(bytes.size(), 24u + 13 * 4 + 4 + 4 * (kFeatures + 1) + 4);
  EXPECT_EQ(bytes.substr(0, 24), std::string("automap.policy/1\n") + std::string(7, '\0'));
  EXPECT_EQ(bytes[24], 0);                // family
  EXPECT_EQ(bytes[28], kFeatures);        // features
  EXPECT_EQ(bytes[32], kFeatureVersion);  // feature_version
  EXPECT_EQ(bytes[72], 2);                // bytes of provenance
  EXPECT_EQ(bytes.substr(76, 4), std::string("{}\0\0", 4));
  EXPECT_EQ(bytes.substr(80, 4), std::string("\x00\x00\x80\x3f", 4));
}

std::string refusal(const std::string& bytes) {
  try {
    Policy::parse(bytes, "bad.policy");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("bad.policy"), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

// `bytes` with a u32 replaced and the checksum made right again.
std::string with_u32(std::string bytes, std::size_t at, std::uint32_t value) {
  std::memcpy(bytes.data() + at, &value, 4);
  const std::uint32_t crc = crc32c(std::string_view(bytes).substr(0, bytes.size() - 4));
  std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
  return bytes;
}

TEST(Policy, RefusesBadFilesByName) {
  const std::string good = random_policy(small_architecture()).serialize();
  const auto expect = [](const std::string& bytes, const std::string& words) {
    const std::string message = refusal(bytes);
    EXPECT_NE(message.find(words), std::string::npos) << message << "\nwithout: " << words;
  };
  expect("", "not a policy");
  expect("{\"schema\": \"automap.plan/1\"}", "not a policy");
  expect("automap.policy/", "no version");
  expect("automap.policy/2\n and more", "policy version 2, this program reads version 1");
  expect("automap.policy/12345678901\n", "no version");
  expect(good.substr(0, 20), "cut short");
  expect(good.substr(0, 60), "cut short");
  expect(good.substr(0, good.size() / 2), "cut short: it has");
  expect(good.substr(0, good.size() - 1), "cut short: it has");
  expect(good + "x", "1 bytes too many");
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 4);
  expect(flipped, "checksum");
  expect(with_u32(good, 24, 9), "family");
  expect(with_u32(good, 28, 0), "features is 0");
  expect(with_u32(good, 28, 0xffffffff), "features is -1");
  expect(with_u32(good, 32, kFeatureVersion + 1), "made for feature version " + std::to_string(kFeatureVersion + 1));
  expect(with_u32(good, 36, 7), "head is 7");
  expect(with_u32(good, 40, 5), "atoms is 5");
  expect(with_u32(good, 52, 2), "objective is 2");
  expect(with_u32(good, 56, 128), "actions is 128");
  expect(with_u32(good, 60, 1), "dueling");
  expect(with_u32(good, 60, 2), "dueling is 2");
  expect(with_u32(good, 68, 1000000000), "hidden layers is 1000000000");
  expect(with_u32(good, 72, 0x7fffffff), "width is 2147483647");
  expect(with_u32(good, 72, 32), "its architecture needs");
  expect(with_u32(good, 80, 0xfffffff0), "provenance's length");
  const std::size_t weight = good.size() - 4 - 4 * 10;
  expect(with_u32(good, weight, 0x7fc00000), "is not a finite number");
  expect(with_u32(good, weight, 0x7f800000), "is not a finite number");
  Architecture other = small_architecture();
  other.features = kFeatures - 1;
  expect(random_policy(other).serialize(), "features, this program computes");
}

TEST(Policy, NoByteOfAFileCanChangeUnnoticed) {
  Architecture a = small_architecture();
  a.hidden = {2};
  const std::string good = random_policy(a).serialize();
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    EXPECT_NE(refusal(bytes), "accepted") << i;
    EXPECT_NE(refusal(good.substr(0, i)), "accepted") << i;
  }
}

TEST(Policy, ImpossibleArchitecturesAndWeights) {
  Architecture a = small_architecture();
  EXPECT_EQ(Policy::num_weights(a), (kFeatures + 1) * 24 + 25 * 16 + 17 * 1u);
  EXPECT_THROW(Policy(a, std::vector<float>(3)), Error);
  std::vector<float> weights = random_weights(Policy::num_weights(a), 1);
  weights[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(Policy(a, weights), Error);
  a.hidden = std::vector<int>(16, 8192);
  EXPECT_EQ(Policy::num_weights(a), 0u);  // more weights than allowed
  a.hidden = {0};
  EXPECT_EQ(Policy::num_weights(a), 0u);
  a = flat(true);
  EXPECT_EQ(Policy::num_weights(a), 41 * 24 + 25 * 20 + 21 * 1 + 21 * 128u);
  a.head = Head::kResidual;
  EXPECT_EQ(Policy::num_weights(a), 0u);
}

}  // namespace
}  // namespace automap::models
