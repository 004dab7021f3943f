// The families that look like models, and rows of real ones.
#include "datagen/layered_families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/io/profile_file.h"
#include "datagen/distributions.h"
#include "datagen/empirical.h"
#include "tests/datagen/one_family.h"
#include "tests/temporary_folder.h"

namespace automap::datagen {
namespace {

using pipeline::Profile;

double sum(const std::vector<double>& x, std::size_t first, std::size_t last) {
  double total = 0;
  for (std::size_t i = first; i < last; ++i) total += x[i];
  return total;
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  const double mx = sum(x, 0, x.size()) / n, my = sum(y, 0, y.size()) / n;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

TEST(LayeredFamilies, OneLatentSizeDrivesAllThreeArrays) {
  const Generator tied = one_family("latent",
                                    "\"layers\": 256, \"slots\": 1, \"apart\": 0, \"w_power\": 1, \"density\": 1, "
                                    "\"a_power\": 1, \"smooth\": 0.9, \"head\": 0",
                                    256);
  std::vector<double> c_a, lag;
  for (std::uint64_t row = 0; row < 20; ++row) {
    const Profile p = tied.profile(1, row);
    // One layer has w + 1 so that every model has a variable; all others have c = w.
    int equal = 0;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < 256; ++i) ratios.push_back(p.w_bytes[i] / p.c_ms[i]);
    const double unit = median(ratios);
    for (std::size_t i = 0; i < 256; ++i) equal += std::abs(p.w_bytes[i] / (unit * p.c_ms[i]) - 1) < 1e-4;
    EXPECT_GE(equal, 255) << row;
    std::vector<double> a(p.a_bytes.begin(), p.a_bytes.end() - 1), c(p.c_ms.begin(), p.c_ms.end() - 1);
    c_a.push_back(correlation(c, a));
    lag.push_back(correlation({a.begin(), a.end() - 1}, {a.begin() + 1, a.end()}));
  }
  EXPECT_GT(median(c_a), 0.5);
  EXPECT_GT(median(lag), 0.8);
}

TEST(LayeredFamilies, BlocksRepeatBetweenTheirEnds) {
  const Generator generator = one_family(
      "blocks",
      "\"layers\": 16, \"slots\": 32, \"two\": 0, \"spread\": 0, \"jitter\": 0, \"lead\": 0.1, \"tail\": 0.1, "
      "\"embedding\": 0.5, \"head\": 0.25, \"head_weights\": 0.4, \"head_activation\": 3, \"frozen\": 0",
      1280);
  for (std::uint64_t row = 0; row < 20; ++row) {
    const Profile p = generator.profile(1, row);  // 128 before, 1024 = 16 layers of 64 = 32 slots of 2, 128 behind
    for (std::size_t i = 128; i + 64 < 1152; ++i) {
      ASSERT_NEAR(p.c_ms[i], p.c_ms[i + 64], 1e-5 * p.c_ms[i]) << i;
      ASSERT_NEAR(p.a_bytes[i], p.a_bytes[i + 64], 1e-5 * p.a_bytes[i]) << i;
      ASSERT_NEAR(p.w_bytes[i], p.w_bytes[i + 64], 1e-5 * p.w_bytes[i]) << i;
    }
    const double c = sum(p.c_ms, 0, 1280), w = sum(p.w_bytes, 0, 1280);
    EXPECT_NEAR(p.w_bytes[0] / w, 0.5, 1e-3);
    EXPECT_NEAR(p.w_bytes[1152] / w, 0.25 * 0.4, 1e-3);
    EXPECT_GT(sum(p.c_ms, 1152, 1184) / c, 0.2);
    const double most = *std::max_element(p.a_bytes.begin() + 128, p.a_bytes.begin() + 1152);
    EXPECT_NEAR(p.a_bytes[1152] / most, 3, 1e-3);
    EXPECT_LT(p.a_bytes[1270], 0.01 * most);
  }
  const Profile none = one_family("blocks", "\"frozen\": 1", 300).profile(1, 0);
  EXPECT_EQ(sum(none.w_bytes, 0, 300), 0);
}

// Where several slots fall into one instruction, they add up: the same model drawn at fewer instructions.
TEST(LayeredFamilies, FewerInstructionsAddUpTheSlots) {
  const std::string model =
      "\"layers\": 8, \"slots\": 32, \"two\": 0, \"spread\": 0, \"jitter\": 0, \"lead\": 0, \"tail\": 0, "
      "\"embedding\": 0, \"head\": 0, \"frozen\": 0";
  for (std::uint64_t row = 0; row < 10; ++row) {
    const Profile fine = one_family("blocks", model, 256).profile(1, row),
                  coarse = one_family("blocks", model, 64).profile(1, row);
    const double c = sum(coarse.c_ms, 0, 64) / sum(fine.c_ms, 0, 256);
    const double w = sum(coarse.w_bytes, 0, 64) / sum(fine.w_bytes, 0, 256);
    for (std::size_t i = 0; i < 64; ++i) {
      ASSERT_NEAR(coarse.c_ms[i], c * sum(fine.c_ms, 4 * i, 4 * i + 4), 1e-5 * coarse.c_ms[i] + 1e-9);
      ASSERT_NEAR(coarse.w_bytes[i], w * sum(fine.w_bytes, 4 * i, 4 * i + 4), 1e-4 * coarse.w_bytes[i] + 1e-3);
    }
    const double a = coarse.a_bytes[0] / fine.a_bytes[3];
    for (std::size_t i = 0; i + 1 < 64; ++i)
      ASSERT_NEAR(coarse.a_bytes[i], a * fine.a_bytes[4 * i + 3], 1e-4 * coarse.a_bytes[i]);
  }
}

TEST(LayeredFamilies, PyramidsFallAndRise) {
  const Generator generator =
      one_family("pyramid",
                 "\"layers\": 32, \"steps\": 4, \"fall\": 64, \"rise\": 64, \"tilt\": 0, \"slots\": 1, "
                 "\"spread\": 0, \"jitter\": 0, \"dense_end\": 0.5, \"tail\": 0.1",
                 1000);
  for (std::uint64_t row = 0; row < 10; ++row) {
    const Profile p = generator.profile(1, row);
    EXPECT_NEAR(p.a_bytes[10] / p.a_bytes[300], 4, 0.01);
    EXPECT_NEAR(p.a_bytes[10] / p.a_bytes[890], 64, 0.1);
    EXPECT_NEAR(sum(p.w_bytes, 225, 450) / sum(p.w_bytes, 0, 225), 4, 0.05);
    EXPECT_NEAR(sum(p.w_bytes, 900, 1000) / sum(p.w_bytes, 0, 1000), 0.5, 1e-3);
  }
}

TEST(Empirical, TheModelsOfFixturesAreThere) {
  ASSERT_GE(fixture_profiles().size(), 15u);
  std::vector<std::string> names;
  for (const EmpiricalProfile& profile : fixture_profiles()) {
    names.push_back(profile.model);
    EXPECT_LE(profile.size(), 128u);
    EXPECT_EQ(profile.c_sum.size(), profile.size() + 1);
    EXPECT_GT(profile.c_sum.back(), 0) << profile.model;
    EXPECT_EQ(profile.a.back(), 0) << profile.model;
  }
  EXPECT_NE(std::find(names.begin(), names.end(), "bert_large"), names.end());
  // Without files they are what is drawn from; the resolved configuration says which they are.
  const Generator generator(R"({"families": {"empirical": {}}})", "test");
  EXPECT_NE(generator.config_json().find(fixture_profiles_sha256()), std::string::npos);
  EXPECT_EQ(Generator(generator.config_json(), "again").row(1, 5).caw, generator.row(1, 5).caw);
}

// A slow twin of the resampling: every source is cut into tiny parts, which go where they belong.
TEST(Empirical, ResamplesLikeManySmallParts) {
  const TemporaryFolder folder;
  Profile profile;
  for (int i = 0; i < 37; ++i) {
    profile.c_ms.push_back(1 + (i * 7) % 11);
    profile.a_bytes.push_back(1 + (i * 5) % 13);
    profile.w_bytes.push_back(i % 3 == 0 ? 1 + i : 0);
    profile.stash_bytes.push_back(0);
  }
  io::save_profile(folder.file("one.csv"), profile);
  for (const int m : {8, 24, 37, 100, 500}) {
    const Generator generator("{\"families\": {\"empirical\": {\"files\": [\"" + folder.file("one.csv") +
                                  "\"], \"window\": 1, \"warp\": 0, \"mix\": 0, \"jitter\": 0, \"keep_ratio\": 0}}, "
                                  "\"rows\": {\"points\": 65536, \"instructions\": " +
                                  std::to_string(m) + "}}",
                              "test");
    const Profile made = generator.profile(3, 0);
    std::vector<double> c(static_cast<std::size_t>(m), 0), w = c;
    for (int source = 0; source < 37; ++source) {
      for (int part = 0; part < m; ++part) {  // part m * source + part of 37 m
        c[static_cast<std::size_t>((m * source + part) / 37)] += profile.c_ms[static_cast<std::size_t>(source)] / m;
      }
      w[static_cast<std::size_t>(m * source / 37)] += profile.w_bytes[static_cast<std::size_t>(source)];
    }
    const double c_unit = sum(made.c_ms, 0, c.size()) / sum(c, 0, c.size());
    const double w_unit = sum(made.w_bytes, 0, c.size()) / sum(w, 0, c.size());
    for (std::size_t i = 0; i < c.size(); ++i) {
      ASSERT_NEAR(made.c_ms[i], c_unit * c[i], 1e-5 * made.c_ms[i]) << m << " " << i;
      ASSERT_NEAR(made.w_bytes[i], w_unit * w[i], 1e-5 * w_unit) << m << " " << i;
    }
  }
}

TEST(Empirical, FoldersOfProfiles) {
  const TemporaryFolder folder;
  Profile profile;
  for (int i = 0; i < 20; ++i) {
    profile.c_ms.push_back(1);
    profile.a_bytes.push_back(i < 19 ? 1e6 : 0);
    profile.w_bytes.push_back(1e6);
    profile.stash_bytes.push_back(0);
  }
  io::save_profile(folder.file("flat.csv"), profile);
  write_file_atomic(folder.file("README.md"), "no profile\n");
  const Generator mixed = Generator::load("mixed");
  const Generator mine = mixed.with_profiles({folder.path()});
  EXPECT_NE(mine.config_json().find(folder.file("flat.csv")), std::string::npos);
  int seen = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) seen += mine.distributions()[mine.row(1, i).distribution] == "empirical";
  EXPECT_NEAR(seen, 400, 80);
  // The resolved configuration covers what the profiles hold.
  EXPECT_EQ(Generator(mine.config_json(), "again").row(1, 7).caw, mine.row(1, 7).caw);
  profile.c_ms[3] = 5;
  io::save_profile(folder.file("flat.csv"), profile);
  EXPECT_THROW(Generator(mine.config_json(), "again"), Error);
  EXPECT_NE(mixed.with_profiles({folder.path()}).config_json(), mine.config_json());
  const TemporaryFolder none;
  write_file_atomic(none.file("a.txt"), "no profile\n");
  try {
    mixed.with_profiles({none.path()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("none of its 1 files"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace automap::datagen
