#include "datagen/distributions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/rng.h"
#include "common/io/profile_file.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/row.h"
#include "datagen/exact_math.h"
#include "datagen/families.h"
#include "datagen/random_block.h"
#include "tests/datagen/one_family.h"
#include "tests/temporary_folder.h"

namespace automap::datagen {
namespace {

using pipeline::Profile;
using pipeline::RowProblem;

double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

// Standard deviation over mean: does not depend on the row's units.
double variation(const std::vector<double>& x) {
  const double m = mean(x);
  double sum = 0;
  for (double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(x.size())) / m;
}

double share(const std::vector<double>& x, std::size_t first, std::size_t last) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
  return std::accumulate(begin, x.begin() + static_cast<std::ptrdiff_t>(last), 0.0) /
         std::accumulate(x.begin(), x.end(), 0.0);
}

// c of many rows, each brought to mean 1.
std::vector<double> pooled(const Generator& generator, int rows) {
  std::vector<double> all;
  for (int i = 0; i < rows; ++i) {
    const Profile profile = generator.profile(1, static_cast<std::uint64_t>(i));
    const double m = mean(profile.c_ms);
    for (double c : profile.c_ms) all.push_back(c / m);
  }
  return all;
}

double quantile(std::vector<double> x, double part) {
  std::sort(x.begin(), x.end());
  return x[static_cast<std::size_t>(part * static_cast<double>(x.size() - 1))];
}

std::string error_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

TEST(ExactMath, AgreesWithTheLibrary) {
  Rng rng(1, 2, 3);
  for (int i = 0; i < 100000; ++i) {
    const double x = rng.uniform(-50, 50);
    EXPECT_NEAR(exp_of(x) / std::exp(x), 1, 1e-14);
    const double y = std::exp(rng.uniform(-50, 50));
    EXPECT_NEAR(log_of(y), std::log(y), 1e-14 * std::max(1.0, std::abs(std::log(y))));
    const auto f = static_cast<float>(x);
    EXPECT_NEAR(exp2_of(f) / std::exp2(static_cast<double>(f)), 1, 1e-6);
    const auto g = static_cast<float>(y);
    EXPECT_NEAR(log2_of(g), std::log2(static_cast<double>(g)), 1e-5);
  }
  EXPECT_EQ(exp_of(0), 1);
  EXPECT_EQ(log_of(1), 0);
  EXPECT_EQ(exp2_of(3), 8);
}

TEST(RandomBlock, IsTheStreamOfRng) {
  for (std::size_t count : {4u, 32u, 60u, 64u, 128u, 516u, 1536u}) {
    for (std::uint64_t first : {0u, 4u, 64u}) {
      const std::uint64_t seed = 0x123456789abcdefu, item = 0xfedcba9876543210u;
      std::vector<std::uint32_t> fast(count), plain(count);
      fill_random(fast.data(), count, seed, 7, item, first);
      internal::fill_random_plain(plain.data(), count, seed, 7, item, first);
      EXPECT_EQ(fast, plain);
      Rng rng(seed, 7, item);
      for (std::uint64_t i = 0; i < first; ++i) rng.next_u32();
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(fast[i], rng.next_u32());
    }
  }
}

TEST(Families, SimpleOnesHaveTheirMoments) {
  constexpr int kRows = 40;
  const auto near = [](const char* what, double found, double expected, double relative) {
    EXPECT_NEAR(found, expected, relative * expected) << what;
  };
  near("uniform 0..1", variation(pooled(one_family("uniform", "\"low\": 0"), kRows)), 1 / std::sqrt(3.0), 0.02);
  near("uniform 0.5..1", variation(pooled(one_family("uniform", "\"low\": 0.5"), kRows)), 0.5 / std::sqrt(12.0) / 0.75,
       0.02);
  near("normal", variation(pooled(one_family("normal", "\"deviation\": 0.2"), kRows)), 0.2, 0.02);
  // sqrt(n p (1 - p)) / (n p)
  near("binomial", variation(pooled(one_family("binomial", "\"trials\": 50, \"probability\": 0.3"), kRows)),
       std::sqrt(0.7 / (50 * 0.3)), 0.02);
  near("binomial, 2 trials", variation(pooled(one_family("binomial", "\"trials\": 2, \"probability\": 0.5"), kRows)),
       std::sqrt(0.5), 0.02);
  near("log-normal", variation(pooled(one_family("lognormal", "\"c_sigma\": 0.5"), kRows)),
       std::sqrt(std::exp(0.25) - 1), 0.03);
  near("exponential", variation(pooled(one_family("exponential", "\"floor\": 0"), kRows)), 1, 0.03);
  near("exponential above a floor", variation(pooled(one_family("exponential", "\"floor\": 0.5"), kRows)), 0.5, 0.03);
  // Pareto: median over smallest = 2^(1/alpha).
  const std::vector<double> pareto = pooled(one_family("power_law", "\"exponent\": 2, \"cap\": 1e6", 60000), 2);
  near("Pareto", quantile(pareto, 0.5) / quantile(pareto, 0), std::sqrt(2.0), 0.02);
  near("Pareto, 99 %", quantile(pareto, 0.99) / quantile(pareto, 0), 10, 0.1);
  const std::vector<double> capped = pooled(one_family("power_law", "\"exponent\": 1, \"cap\": 20", 4096), 1);
  near("capped Pareto", quantile(capped, 1) / quantile(capped, 0), 20, 0.01);
  const std::vector<double> two =
      pooled(one_family("bimodal", "\"ratio\": 10, \"share\": 0.25, \"jitter\": 0", 8192), 1);
  near("bimodal ratio", quantile(two, 1) / quantile(two, 0), 10, 1e-5);
  const double middle = (quantile(two, 1) + quantile(two, 0)) / 2;
  near("bimodal share",
       static_cast<double>(std::count_if(two.begin(), two.end(), [&](double x) { return x > middle; })) / two.size(),
       0.25, 0.1);
}

TEST(Families, BinomialDrawsEveryCountAsOftenAsItShould) {
  const Generator generator = one_family("binomial", "\"trials\": 4, \"probability\": 0.5", 60000);
  const Profile profile = generator.profile(1, 0);
  const double unit = *std::max_element(profile.c_ms.begin(), profile.c_ms.end()) / 4;
  std::vector<double> counts(5, 0);
  for (double c : profile.c_ms) ++counts[static_cast<std::size_t>(std::lround(c / unit))];
  const double expected[] = {1 / 16.0, 4 / 16.0, 6 / 16.0, 4 / 16.0, 1 / 16.0};
  for (std::size_t k = 0; k < 5; ++k) EXPECT_NEAR(counts[k] / 60000, expected[k], 0.008);
}

TEST(Families, ArraysAreIndependent) {
  const Profile p = one_family("lognormal", "", 20000).profile(3, 1);
  const double c = mean(p.c_ms), w = mean(p.w_bytes);
  double cross = 0, cc = 0, ww = 0;
  for (std::size_t i = 0; i < p.c_ms.size(); ++i) {
    cross += (p.c_ms[i] - c) * (p.w_bytes[i] - w);
    cc += (p.c_ms[i] - c) * (p.c_ms[i] - c);
    ww += (p.w_bytes[i] - w) * (p.w_bytes[i] - w);
  }
  EXPECT_LT(std::abs(cross) / std::sqrt(cc * ww), 0.05);
}

TEST(Families, TransformerLayersRepeat) {
  const Generator generator =
      one_family("transformer",
                 "\"layers\": 16, \"slots\": 8, \"narrow\": 0.25, \"jitter\": 0, \"embedding\": 0.5, \"head\": 0.3");
  for (std::uint64_t row = 0; row < 20; ++row) {
    const Profile p = generator.profile(1, row);  // 1024 = 16 layers of 64 instructions = 8 slots of 8
    for (std::size_t i = 64; i + 64 < 1000; ++i) {
      ASSERT_EQ(p.c_ms[i], p.c_ms[i + 64 < 1000 ? i + 64 : i]) << i;
      ASSERT_EQ(p.a_bytes[i], p.a_bytes[i + 64]) << i;
      ASSERT_EQ(p.w_bytes[i], p.w_bytes[i + 64]) << i;
    }
    // The cut between two layers is the narrowest.
    EXPECT_LT(p.a_bytes[63], 0.26 * *std::min_element(p.a_bytes.begin(), p.a_bytes.begin() + 56));
    EXPECT_NEAR(share(p.w_bytes, 0, 1), 0.5, 1e-3);
    EXPECT_NEAR(share(p.c_ms, 1014, 1024), 0.3, 1e-3);
  }
}

TEST(Families, CnnActivationsFallAndParametersRise) {
  const Generator generator = one_family("cnn", "\"dense_end\": 0");
  int falls = 0, rises = 0;
  for (std::uint64_t row = 0; row < 50; ++row) {
    const Profile p = generator.profile(1, row);
    double a_head = 0, a_tail = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      a_head += p.a_bytes[i];
      a_tail += p.a_bytes[767 + i];
    }
    falls += a_head > 2 * a_tail;
    rises += share(p.w_bytes, 768, 1024) > 2 * share(p.w_bytes, 0, 256);
  }
  EXPECT_GE(falls, 48);
  EXPECT_GE(rises, 47);
  // As given: 64x over 4 steps, 4x per step.
  const Profile p = one_family("cnn", "\"stages\": 4, \"fall\": 64, \"jitter\": 0, \"tilt\": 0").profile(1, 0);
  EXPECT_NEAR(p.a_bytes[100] / p.a_bytes[300], 4, 1e-3);
  EXPECT_NEAR(p.a_bytes[100] / p.a_bytes[900], 64, 1e-2);
  EXPECT_NEAR(share(one_family("cnn", "\"dense_end\": 0.7").profile(1, 2).w_bytes, 1014, 1024), 0.7, 1e-3);
}

TEST(Families, TheOthersHaveTheirShape) {
  for (std::uint64_t row = 0; row < 20; ++row) {
    // The encoder's output crosses every cut of the decoder.
    const Profile two =
        one_family("encoder_decoder",
                   "\"layers\": 8, \"split\": 0.5, \"slots\": 8, \"contrast\": 0, \"jitter\": 0, \"memory\": "
                   "2, \"narrow\": 0.5, \"decoder_compute\": 2")
            .profile(1, row);
    const double between = *std::min_element(two.a_bytes.begin(), two.a_bytes.begin() + 500);
    const double decoder = *std::min_element(two.a_bytes.begin() + 512, two.a_bytes.end() - 1);
    EXPECT_NEAR(decoder / between, 3, 1e-3);  // its own narrow cut and twice the encoder's
    EXPECT_NEAR(share(two.c_ms, 512, 1024), 2.0 / 3, 1e-6);

    const Profile ends = one_family("embedding", "\"first\": 0.6, \"last\": 0.2, \"head\": 0.25").profile(1, row);
    EXPECT_NEAR(share(ends.w_bytes, 0, 1), 0.6, 1e-3);
    EXPECT_NEAR(share(ends.w_bytes, 1014, 1024), 0.2, 0.01);
    EXPECT_NEAR(share(ends.c_ms, 1014, 1024), 0.25, 1e-3);

    const Profile few = one_family("sparse", "\"density\": 0.05").profile(1, row);
    const auto variables = std::count_if(few.w_bytes.begin(), few.w_bytes.end(), [](double w) { return w > 0; });
    EXPECT_GE(variables, 20);
    EXPECT_LE(variables, 90);

    const Profile u =
        one_family("unet", "\"levels\": 4, \"fall\": 8, \"skip\": 1, \"jitter\": 0, \"tilt\": 0").profile(1, row);
    // Seven parts: levels 0 1 2 3 2 1 0 with own activations 1, 1/2, 1/4, 1/8 and the skips of the levels above.
    const double expected[] = {1, 1.5, 1.75, 1.875, 1.75, 1.5, 1};
    for (std::size_t part = 0; part < 7; ++part) {
      EXPECT_NEAR(u.a_bytes[part * 1024 / 7 + 70] / u.a_bytes[70], expected[part], 1e-4);
    }
    EXPECT_GT(share(u.w_bytes, 439, 585), share(u.w_bytes, 0, 146));

    const Profile experts =
        one_family("moe", "\"layers\": 8, \"slots\": 9, \"every\": 2, \"experts\": 50, \"contrast\": 0, \"jitter\": 0")
            .profile(1, row);
    EXPECT_GT(share(experts.w_bytes, 128, 256), 10 * share(experts.w_bytes, 0, 128));
    EXPECT_EQ(share(experts.w_bytes, 0, 128), share(experts.w_bytes, 256, 384));
  }
}

// A slow twin of Generator::row(): the model behind it through make_row().
TEST(Generator, RowsAreMakeRowOfTheirProfiles) {
  for (const char* name : {"mixed", "plain", "paper"}) {
    const Generator generator = Generator::load(name);
    for (std::uint64_t i = 0; i < 500; ++i) {
      const RowProblem row = generator.row(7, i);
      const pipeline::ProblemParts parts = problem_of_row(row);
      const pipeline::Row made = make_row(generator.profile(7, i), parts.cluster);
      ASSERT_NEAR(made.scale_ms / row.scale_ms, 1, 1e-6);
      for (std::size_t k = 0; k < 128; ++k) {
        ASSERT_NEAR(row.caw[k], made.compute[k], 1.3e-7) << name << " " << i << " C " << k;
        ASSERT_NEAR(row.caw[128 + k], made.activation[k], 1.3e-7) << name << " " << i << " A " << k;
        ASSERT_NEAR(row.caw[256 + k], made.weight[k], 1.3e-7) << name << " " << i << " W " << k;
      }
    }
  }
}

TEST(Generator, TenThousandPlainRowsAreProblems) {
  const Generator generator = Generator::load("plain");
  std::vector<int> seen(generator.distributions().size(), 0);
  int limited = 0, different = 0, overlap = 0, feasible_limited = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const RowProblem row = generator.row(11, i);
    ASSERT_NO_THROW(check_row(row)) << i;
    const int devices = devices_of_row(row);
    ASSERT_GE(row.stages, 2);
    ASSERT_LE(row.stages, 16);
    ASSERT_LE(row.stages, std::min(devices, instructions_of_row(row)));
    ASSERT_LE(row.servers, 64);
    ASSERT_LE(devices, 512);
    ASSERT_GE(row.num_instructions, 16u);
    ASSERT_LE(row.num_instructions, 2000u);
    ++seen[row.distribution];
    different += row.server_seed != 0;
    overlap += row.schedule == pipeline::Schedule::k1f1bOverlap;
    // Parameters over compute stay within what the configuration says.
    const double allreduce = 2.0 * (devices - 1) * row.caw[383] / (row.micro_batches * row.caw[127]);
    ASSERT_LE(allreduce, 50.1);
    if (std::isfinite(row.memory_limit)) {
      ++limited;
      // The plan the limit was made for: equal shares of the devices, cuts by a greedy pass against the limit.
      if (devices > 128) continue;
      const pipeline::Problem problem = problem_of_row(row).problem();
      pipeline::Plan plan;
      plan.schedule = row.schedule;
      int p = 0;
      for (int s = 1; s < row.stages; ++s) {
        plan.device_cuts.push_back(s * (devices / row.stages));
        const pipeline::DeviceGroup& group =
            problem.group(s == 1 ? 0 : plan.device_cuts[static_cast<std::size_t>(s - 2)], plan.device_cuts.back());
        const int from = p;
        const int kept = in_flight(row.schedule, row.stages, s, row.micro_batches);
        while (p < problem.num_instructions() - (row.stages - s) &&
               problem.memory_bytes(from, p + 1, group, kept) <= group.capacity_bytes) {
          ++p;
        }
        plan.cuts.push_back(p);
      }
      const bool fits =
          valid_structure(problem, plan) && infeasible_reason(problem, plan).find("memory") == std::string::npos;
      feasible_limited += fits;
      ASSERT_TRUE(fits) << i << " " << infeasible_reason(problem, plan);
    } else {
      ++feasible_limited;
    }
    if (i < 300 && devices <= 64) {
      ASSERT_NO_THROW(problem_of_row(row).problem());
    }
  }
  double weights = 0;
  for (const FamilySpec& family : families()) weights += family.weight;
  for (std::size_t f = 0; f < seen.size(); ++f) {
    const std::string& name = generator.distributions()[f];
    if (name == "empirical") {
      EXPECT_EQ(seen[f], 0);  // real models stay what rows are judged by
    } else {
      EXPECT_GT(seen[f], 0.7 * 10000 * families()[f].weight / weights) << name;
    }
  }
  EXPECT_NEAR(limited, 3500, 250);
  EXPECT_NEAR(overlap, 3000, 250);
  EXPECT_GT(different, 700);
}

TEST(Generator, RowsOfWholeSamplesAreProblems) {
  const Generator generator = Generator::load("mixed");
  constexpr int kRows = 10000;
  std::vector<int> schedules(3, 0), zeros(4, 0);
  int whole_groups = 0, overlap = 0, optimizer = 0, recompute = 0, halved = 0;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    const RowProblem row = generator.row(11, i);
    ASSERT_NO_THROW(check_row(row)) << i;
    ASSERT_GE(row.samples, 1) << i;
    whole_groups += groups_of_row_exist(row);
    ++schedules[static_cast<std::size_t>(row.schedule)];
    ++zeros[row.zero];
    overlap += row.gradient_sync;
    optimizer += row.optimizer_factor > 0;
    recompute += row.layers > 0;
    halved += row.gradient_share < 1;
    ASSERT_LE(row.layers, instructions_of_row(row));
    if (i < 300 && devices_of_row(row) <= 64) {
      ASSERT_NO_THROW(problem_of_row(row).problem());
    }
  }
  EXPECT_EQ(whole_groups, kRows);
  EXPECT_NEAR(schedules[2], 0.85 * kRows, 200);
  EXPECT_NEAR(zeros[0], 0.2 * kRows, 200);
  EXPECT_NEAR(zeros[1], 0.75 * kRows, 200);
  EXPECT_EQ(zeros[2], 0);
  EXPECT_NEAR(overlap, 0.85 * kRows, 200);
  EXPECT_NEAR(optimizer, 0.9 * kRows, 200);
  EXPECT_NEAR(recompute, 0.8 * kRows, 200);
  EXPECT_NEAR(halved, 0.4 * kRows, 200);
}

TEST(Generator, TransformersSayHowManyLayersTheyHave) {
  const Generator generator(R"({"families": {"transformer": {"layers": 24}, "moe": {"layers": 24}},
                               "rows": {"instructions": 1000}, "variants": {"recompute": 1, "layers": 5}})",
                            "x");
  const Generator other(R"({"families": {"cnn": {}}, "variants": {"recompute": 1, "layers": 5}})", "x");
  for (std::uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(generator.row(1, i).layers, 24);
    EXPECT_EQ(other.row(1, i).layers, 5);
  }
}

// The draws of one section change nothing else: a comparison of two configurations is one of the same models.
TEST(Generator, SectionsOfWholeSamplesAreDrawnApart) {
  const Generator all = Generator::load("mixed");
  const Generator plain(R"({"samples": {"whole": 0}})", "plain");
  const Generator update(R"({"update": {"overlap_sync": 0, "slots": 3}})", "update");
  const Generator variants(R"({"variants": {"zero": 0, "recompute": 0}})", "variants");
  for (std::uint64_t i = 0; i < 300; ++i) {
    const RowProblem row = all.row(3, i), none = plain.row(3, i), u = update.row(3, i), v = variants.row(3, i);
    EXPECT_EQ(none.samples, 0);
    EXPECT_EQ(variants_of_row(none), 1);
    for (const RowProblem* other : {&none, &u, &v}) {
      EXPECT_EQ(other->caw, row.caw);
      EXPECT_EQ(other->stages, row.stages);
      EXPECT_EQ(other->server_seed, row.server_seed);
    }
    EXPECT_EQ(u.slot_factor, 3);
    EXPECT_EQ(v.slot_factor, row.slot_factor);
    EXPECT_EQ(u.launch_share, row.launch_share);
    EXPECT_EQ(u.zero, row.zero);
    EXPECT_EQ(v.optimizer_factor, row.optimizer_factor);
  }
}

TEST(Generator, MemoryLimitsBiteAndLeaveAPlan) {
  const Generator generator(R"({"cluster": {"devices": [4, 16]}, "training": {"stages": [2, 8]},
                               "samples": {"whole": 0}})",
                            "small and plain");
  int limited = 0, none = 0, bites = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const RowProblem row = generator.row(4, i);
    if (!std::isfinite(row.memory_limit)) continue;
    ++limited;
    pipeline::ProblemParts parts = problem_of_row(row);
    pipeline::ExactOptions options;
    options.min_stages = options.max_stages = row.stages;
    options.schedule = row.schedule;
    const pipeline::ExactResult with = solve_exact(parts.problem(), options);
    parts.options.memory = false;
    const pipeline::ExactResult without = solve_exact(parts.problem(), options);
    if (with.best() == nullptr) {
      ++none;
    } else {
      ASSERT_NE(without.best(), nullptr);
      bites += with.best()->value_ms[0] > 1.0001 * without.best()->value_ms[0];
    }
  }
  EXPECT_GT(limited, 50);
  EXPECT_LE(none, limited / 20);
  EXPECT_GE(bites, limited / 5);
}

// 7/27 and 6/27 add up to a little less than 1: they must not be divided again.
TEST(Generator, AResolvedConfigurationResolvesToItself) {
  const Generator a(R"({"cluster": {"devices": {"values": [4, 8, 16, 32], "weights": [7, 7, 7, 6]}}})", "weights");
  const Generator b(a.config_json(), "again");
  EXPECT_EQ(a.config_json(), b.config_json());
}

TEST(Generator, RowsDependOnSeedConfigurationAndIndexOnly) {
  const Generator a = Generator::load("mixed");
  const Generator b(a.config_json(), "again");
  EXPECT_EQ(a.config_json(), b.config_json());
  std::vector<std::array<float, 384>> forward(200), backward(200);
  std::thread other([&] {
    for (std::size_t i = 200; i-- > 0;) backward[i] = b.row(5, i).caw;
  });
  for (std::size_t i = 0; i < 200; ++i) forward[i] = a.row(5, i).caw;
  other.join();
  EXPECT_EQ(forward, backward);
  EXPECT_NE(a.row(6, 0).caw, forward[0]);
  std::set<std::array<float, 384>> unlike(forward.begin(), forward.end());
  EXPECT_EQ(unlike.size(), 200u);
}

// Written down, so that another compiler, processor or version that makes other rows is noticed. Whatever a section
// draws has a signature of its own; `plain` has that of version 0.1's only rows.
TEST(Generator, TheSameRowsOnEveryMachine) {
  const auto add = [](std::string& bytes, auto... values) {
    (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  };
  const auto rows = [&](const char* name) {
    std::string bytes;
    const Generator generator = Generator::load(name);
    for (std::uint64_t i = 0; i < 256; ++i) {
      const RowProblem row = generator.row(1, i);
      bytes.append(reinterpret_cast<const char*>(row.caw.data()), sizeof row.caw);
      add(bytes, row.scale_ms, row.memory_limit);
    }
    return sha256_hex(bytes);
  };
  EXPECT_EQ(rows("plain"), "3ad404078657f1f8a30965eb1922e1d39c6a7265eab4d8cd7e54345fbf339e4a");
  EXPECT_EQ(rows("mixed"), "f95da66db271ae6e035b7cd76522773692699d8733f17554bcbf476a50575cc1");
  std::string samples, update, variants;
  const Generator mixed = Generator::load("mixed");
  for (std::uint64_t i = 0; i < 256; ++i) {
    const RowProblem row = mixed.row(1, i);
    add(samples, row.samples, row.schedule, row.launch_share, row.launch_even);
    add(update, row.gradient_sync, row.bucket, row.gradient_share, row.slot_factor, row.optimizer_factor);
    add(variants, row.zero, row.layers, row.workspace_factor);
  }
  EXPECT_EQ(sha256_hex(samples), "c4f35d779c865c3871500ec37cff6d67b1bf17fdeb2940ff894d189bc808b8ac");
  EXPECT_EQ(sha256_hex(update), "d71e6c88cb16e0b9b04ad500d8f39228acc053d2958a0b39d5363db2edf6af0f");
  EXPECT_EQ(sha256_hex(variants), "9aa7ed25493a5c22945471082e1259d31408ee9035b81c9b2e6f0b64ba819392");
}

TEST(Generator, OnlyAndWithout) {
  const Generator mixed = Generator::load("mixed");
  const Generator some = mixed.only({"cnn", "moe"});
  const Generator rest = mixed.without({"cnn", "moe"});
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::string& inside = some.distributions()[some.row(1, i).distribution];
    EXPECT_TRUE(inside == "cnn" || inside == "moe");
    const std::string& outside = rest.distributions()[rest.row(1, i).distribution];
    EXPECT_TRUE(outside != "cnn" && outside != "moe");
  }
  EXPECT_EQ(some.distributions(), rest.distributions());
  EXPECT_NE(error_of([&] { mixed.only({"cnm"}); }, ErrorKind::kUsage).find("did you mean cnn?"), std::string::npos);
  EXPECT_NE(error_of([&] { some.without({"cnn", "moe"}); }, ErrorKind::kUsage).find("is left"), std::string::npos);
}

TEST(Generator, BuiltInConfigurations) {
  for (const std::string& name : built_in_configs()) {
    const Generator generator = Generator::load(name);
    for (std::uint64_t i = 0; i < 200; ++i) {
      const RowProblem row = generator.row(2, i);
      ASSERT_NO_THROW(check_row(row));
      const int most = row.servers * row.devices_per_server;
      if (name == "small") {
        ASSERT_TRUE(most >= 4 && most <= 16 && row.stages <= 8) << most;
      }
      if (name == "medium") {
        ASSERT_TRUE(most >= 17 && most <= 64) << most;
      }
      if (name == "deep") {
        ASSERT_TRUE(most >= 16 && most <= 64 && row.stages >= 8) << most << " " << row.stages;
      }
      if (name == "large") {
        ASSERT_TRUE(most >= 65 && most <= 512) << most;
      }
      if (name == "paper") {
        ASSERT_TRUE(row.devices_per_server == 8 && row.distribution < 3);
      }
    }
  }
  EXPECT_NE(error_of([] { Generator::load("mixd"); }, ErrorKind::kConfig).find("did you mean mixed?"),
            std::string::npos);
  error_of([] { Generator::load("no/such.json"); }, ErrorKind::kIo);
}

TEST(Generator, EmpiricalResamplesProfiles) {
  const TemporaryFolder folder;
  Profile profile;
  profile.model = "ramp";
  for (int i = 0; i < 100; ++i) {
    profile.c_ms.push_back(1 + i);
    profile.a_bytes.push_back(1e6 * (100 - i));
    profile.w_bytes.push_back(i % 10 == 0 ? 5e6 : 0);
    profile.stash_bytes.push_back(0);
  }
  io::save_profile(folder.file("ramp.csv"), profile);
  const std::string path = folder.file("empirical.json");
  write_file_atomic(
      path,
      R"({"families": {"empirical": {"files": ["ramp.csv"], "window": 1, "warp": 0, "mix": 0, "jitter": 0, "keep_ratio": 1}},
 "rows": {"instructions": {"values": [50, 100, 300]}}})");
  const Generator generator = Generator::load(path);
  for (std::uint64_t i = 0; i < 30; ++i) {
    const Profile made = generator.profile(1, i);
    const auto m = static_cast<std::size_t>(made.size());
    EXPECT_NEAR(share(made.c_ms, 0, m / 2), share(profile.c_ms, 0, 50), 1e-6);
    EXPECT_NEAR(share(made.w_bytes, 0, m / 2), 0.5, 1e-6);
    EXPECT_EQ(std::count_if(made.w_bytes.begin(), made.w_bytes.end(), [](double w) { return w > 0; }), 10);
    EXPECT_GT(made.a_bytes[m / 10], made.a_bytes[m / 2]);
    if (m == 100) {
      EXPECT_NEAR(made.c_ms[10] / made.c_ms[0], 11, 1e-5);
    }
  }
  // The resolved form finds the file from anywhere, and notices that it has changed.
  EXPECT_EQ(Generator(generator.config_json(), "elsewhere/x.json").row(1, 3).caw, generator.row(1, 3).caw);
  profile.c_ms[0] = 2;
  io::save_profile(folder.file("ramp.csv"), profile);
  EXPECT_NE(error_of([&] { Generator(generator.config_json(), "x"); }, ErrorKind::kConfig).find("has changed"),
            std::string::npos);
  error_of([] { Generator(R"({"families": {"empirical": {"files": ["none.csv"]}}})", "x"); }, ErrorKind::kIo);
}

TEST(Config, MistakesAreNamed) {
  const auto message = [](const std::string& text) {
    return error_of([&] { Generator(text, "my.json"); }, ErrorKind::kConfig);
  };
  const auto has = [&](const std::string& text, const char* part) {
    const std::string found = message(text);
    EXPECT_NE(found.find(part), std::string::npos) << text << " -> " << found;
    EXPECT_EQ(found.find("my.json"), 0u) << found;
  };
  has(R"({"famlies": {}})", "did you mean families?");
  has(R"({"families": {"unifrom": {}}})", "did you mean uniform?");
  has(R"({"families": {"cnn": {"fal": 3}}})", "did you mean fall?");
  has(R"({"cluster": {"device": 8}})", "did you mean devices?");
  has(R"({"families": {"cnn": {"weight": -1}}})", "cnn.weight: found -1");
  has(R"({"families": {"cnn": {"weight": 0}, "moe": {"weight": 0}}})", "no family has a weight above 0");
  has(R"({"families": {}})", "no family has a weight above 0");
  has(R"({"rows": {"instructions": [200, 100]}})", "low 200 is above high 100");
  has(R"({"rows": {"instructions": 1.5}})", "found 1.5");
  has(R"({"rows": {"instructions": 2.5}})", "whole number");
  has(R"({"rows": {"instructions": 1e30}})", "expected 2 to 65536");
  has(R"({"rows": {"instructions": "many"}})", "expected a number, [low, high]");
  has(R"({"rows": {"instructions": [1, 2, 3]}})", "expected [low, high]");
  has(R"({"rows": {"instructions": {"low": 10, "hihg": 20}}})", "did you mean high?");
  has(R"({"rows": {"instructions": {"low": 10, "high": 20, "scale": "cubic"}}})", "\"log\" or \"linear\"");
  has(R"({"rows": {"instructions": {"low": 10, "high": 20, "usual": [5, 15]}}})", "outside");
  has(R"({"scales": {"transfer_over_compute": [0, 1]}})", "above 0");
  has(R"({"scales": {"as_drawn": 1}})", "true or false");
  has(R"({"cluster": {"devices": {"values": []}}})", "array of numbers");
  has(R"({"cluster": {"devices": {"values": [4, 8], "weights": [0, 0]}}})", "all are 0");
  has(R"({"cluster": {"devices": {"values": [4, 8], "weights": [1]}}})", "one number per value");
  has(R"({"training": {"stages": [2, 17]}})", "expected 2 to 16");
  has(R"({"samples": {"whole": 2}})", "samples.whole: found 2");
  has(R"({"samples": {"micro_batch": 2.5}})", "whole number");
  has(R"({"update": {"slot": 1}})", "did you mean slots?");
  has(R"({"variants": {"zero": 4}})", "expected 0 to 3");
  has(R"({"families": {"empirical": {"files": []}}})", "names no profiles");
  has(R"({"families": {"empirical": {"fixtures_sha256": "ab"}}})", "the models of this version");
  has(R"({"families": {"empirical": {"files": "a.h5"}}})", "array of strings");
  has(R"({"schema": "automap.datagen/2"})", "another version");
  has(R"({"schema": "automap.cluster/1"})", "no configuration of rows");
  has(R"({"rows": {}, "rows": {}})", "given twice");
  has("{\"rows\": \n nonsense}", "my.json:2:3: not JSON");
  has("[]", "expected an object");
  has(std::string(100000, '['), "nested deeper");
}

}  // namespace
}  // namespace automap::datagen
