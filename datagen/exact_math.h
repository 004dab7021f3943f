// exp, log and powers from +, -, *, / and bit patterns only. IEEE 754 defines those to the last bit, while libm's
// functions differ between versions and machines; rows must not. (The room is compiled without fused multiply-add.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace automap::datagen {

// e^x, relative error below 1e-15; x is clamped to ±700.
inline double exp_of(double x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0.693147180369123816490,
                   kLn2Low = 1.90821492927058770002e-10;
  x = std::min(std::max(x, -700.0), 700.0);
  const double k = std::floor(x * kLog2E + 0.5);
  const double r = x - k * kLn2High - k * kLn2Low;
  constexpr double kTerms[] = {1.0 / 87178291200,
                               1.0 / 6227020800,
                               1.0 / 479001600,
                               1.0 / 39916800,
                               1.0 / 3628800,
                               1.0 / 362880,
                               1.0 / 40320,
                               1.0 / 5040,
                               1.0 / 720,
                               1.0 / 120,
                               1.0 / 24,
                               1.0 / 6,
                               1.0 / 2,
                               1,
                               1};
  double sum = 0;
  for (double term : kTerms) sum = sum * r + term;
  const auto bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return sum * power;
}

// Natural logarithm of a normal number above 0, relative error below 1e-15.
inline double log_of(double x) {
  constexpr double kLn2 = 0.6931471805599453;
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  double mantissa;
  std::memcpy(&mantissa, &bits, sizeof mantissa);
  if (mantissa > 1.4142135623730951) {
    mantissa /= 2;
    ++exponent;
  }
  // log m = 2 artanh z.
  const double z = (mantissa - 1) / (mantissa + 1);
  constexpr double kTerms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                               1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1};
  double sum = 0;
  for (double term : kTerms) sum = sum * (z * z) + term;
  return exponent * kLn2 + 2 * z * sum;
}

inline double pow_of(double base, double exponent) {
  return exp_of(exponent * log_of(base));
}

// 2^x for arrays, relative error below 1e-6; |x| <= 120, which the caller sees to (a branch would cost the vectors).
inline float exp2_of(float x) {
  const std::int32_t k = static_cast<std::int32_t>(x + 128.5f) - 128;  // nearest
  const float f = x - static_cast<float>(k);
  float sum = 1.5403530e-4f;  // ln 2^i / i!
  sum = sum * f + 1.3333558e-3f;
  sum = sum * f + 9.6181291e-3f;
  sum = sum * f + 5.5504109e-2f;
  sum = sum * f + 2.4022651e-1f;
  sum = sum * f + 6.9314718e-1f;
  sum = sum * f + 1.0f;
  const std::int32_t bits = (k + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return sum * power;
}

// log2 x for arrays, absolute error below 1e-6 (2^-23 relative for large ones); x a normal number above 0.
inline float log2_of(float x) {
  std::int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  // Mantissa in [1/sqrt 2, sqrt 2).
  const std::int32_t exponent = (bits - 0x3f3504f3) >> 23;
  bits -= exponent * (1 << 23);
  float mantissa;
  std::memcpy(&mantissa, &bits, sizeof mantissa);
  const float z = (mantissa - 1.0f) / (mantissa + 1.0f);
  const float square = z * z;
  float sum = 0.32059890f;  // 2 / (ln 2 i)
  sum = sum * square + 0.41219859f;
  sum = sum * square + 0.57707802f;
  sum = sum * square + 0.96179669f;
  sum = sum * square + 2.88539008f;
  return static_cast<float>(exponent) + z * sum;
}

}  // namespace automap::datagen
