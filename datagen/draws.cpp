#include "datagen/draws.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "datagen/avx2.h"
#include "datagen/exact_math.h"

namespace automap::datagen {
namespace {

constexpr float kFloatLog2E = 1.44269504f;

// Quantile function of the standard normal distribution: Wichura's PPND7 (AS 241, 1988), relative error 1e-7.
double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
  }
  const double r = std::sqrt(-log_of(q < 0 ? p : 1 - p)) - 1.6;
  const double z = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
                   ((0.12021132975 * r + 0.73700164250) * r + 1);
  return q < 0 ? -z : z;
}

#if AUTOMAP_DATAGEN_AVX2
#define AUTOMAP_DATAGEN_INLINE __attribute__((always_inline)) inline
#else
#define AUTOMAP_DATAGEN_INLINE inline
#endif

AUTOMAP_DATAGEN_INLINE void multiply_log_normal_body(float* x, float scale, const std::uint32_t* bits, int m,
                                                     const float* table) {
  // In pieces of two loops: look-ups, one at a time, then powers, which compilers turn into vectors.
  constexpr int kPiece = 128;
  float z[kPiece];
  for (int first = 0; first < m; first += kPiece) {
    const int count = std::min(kPiece, m - first);
    for (int i = 0; i < count; ++i) z[i] = scale * normal(table, bits[first + i]);
    for (int i = 0; i < count; ++i) x[first + i] *= exp2_of(z[i]);
  }
}

void multiply_log_normal_plain(float* x, float scale, const std::uint32_t* bits, int m, const float* table) {
  multiply_log_normal_body(x, scale, bits, m, table);
}

#if AUTOMAP_DATAGEN_AVX2
// The same operations on the same numbers, eight at a time.
__attribute__((target("avx2"))) void multiply_log_normal_avx2(float* x, float scale, const std::uint32_t* bits, int m,
                                                              const float* table) {
  multiply_log_normal_body(x, scale, bits, m, table);
}
#endif

}  // namespace

const float* normal_table() {
  static const std::vector<float> table = [] {
    std::vector<float> made(kNormalCells + 1);
    for (int k = 1; k < kNormalCells; ++k) {
      made[static_cast<std::size_t>(k)] = static_cast<float>(normal_quantile(static_cast<double>(k) / kNormalCells));
    }
    made.front() = -4.1f;
    made.back() = 4.1f;
    return made;
  }();
  return table.data();
}

void jitter(float* x, double sigma, Workspace& work) {
  if (!(sigma > 0)) return;
  const float* table = normal_table();
  const std::uint32_t* bits = work.random(size(work.m));
  const float scale = static_cast<float>(sigma) * kFloatLog2E;
#if AUTOMAP_DATAGEN_AVX2
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) return multiply_log_normal_avx2(x, scale, bits, work.m, table);
#endif
  multiply_log_normal_plain(x, scale, bits, work.m, table);
}

void log_normal(float* x, double sigma, Workspace& work) {
  std::fill(x, x + work.m, 1.0f);
  jitter(x, sigma, work);
}

void keep_share(float* x, double share, Workspace& work) {
  const std::uint32_t* bits = work.random(size(work.m));
  const auto limit = static_cast<float>(share);
  for (int i = 0; i < work.m; ++i) x[i] = unit(bits[i]) < limit ? x[i] : 0.0f;
  const int one = static_cast<int>(static_cast<std::uint64_t>(work.m) * work.rng->next_u32() >> 32);
  if (!(x[one] > 0)) x[one] = 1;
}

void give_share(float* x, int first, int count, double share, Workspace& work) {
  if (!(share > 0)) return;
  double others = 0;
  for (int i = 0; i < work.m; ++i) {
    if (i < first || i >= first + count) others += x[i];
  }
  if (!(others > 0)) others = 1;
  const auto each = static_cast<float>(others * share / (1 - share) / count);
  for (int i = first; i < first + count; ++i) x[i] = each;
}

void jitter_all(double sigma, Workspace& work) {
  for (float* x : {work.c, work.a, work.w}) jitter(x, sigma, work);
}

int end_of(const Workspace& work) {
  return std::max(1, work.m / 100);
}

}  // namespace automap::datagen
