// Functions with which the families draw their arrays. Everything is made of additions, multiplications and bit
// patterns, so that rows are the same on every machine (exact_math.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/rng.h"
#include "datagen/families.h"

namespace automap::datagen {

// A 24-bit number to [0, 1).
inline float unit(std::uint32_t bits) {
  constexpr float kUnit = 0x1p-24f;
  return static_cast<float>(static_cast<std::int32_t>(bits >> 8)) * kUnit;
}

// (0, 1].
inline float open_unit(std::uint32_t bits) {
  // Through int32, which vectors convert: 31 bits.
  return (static_cast<float>(static_cast<std::int32_t>(bits >> 1)) + 0.5f) * 0x1p-31f;
}

// Quantiles of the standard normal distribution at k / 4096, linear between: a normal number costs one look-up. The
// ends stand at ±4.1.
constexpr int kNormalCells = 4096;
const float* normal_table();

inline float normal(const float* table, std::uint32_t bits) {
  const std::uint32_t cell = bits >> 20;
  const float part = static_cast<float>(static_cast<std::int32_t>(bits & 0xfffff)) * 0x1p-20f;
  return table[cell] + part * (table[cell + 1] - table[cell]);
}

inline float normal(Rng& rng) {
  return normal(normal_table(), rng.next_u32());
}

inline std::size_t size(int m) {
  return static_cast<std::size_t>(m);
}

// x[i] *= log-normal of this sigma and median 1.
void jitter(float* x, double sigma, Workspace& work);
void log_normal(float* x, double sigma, Workspace& work);
// c, a and w.
void jitter_all(double sigma, Workspace& work);

// x[i] = 0 but for a share of the instructions, at least one.
void keep_share(float* x, double share, Workspace& work);

// Instructions first .. first+count-1 get together this share of the whole; others keep their proportions.
void give_share(float* x, int first, int count, double share, Workspace& work);

// About 1 % of the instructions stand for the first or the last layer.
int end_of(const Workspace& work);

}  // namespace automap::datagen
