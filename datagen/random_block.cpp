#include "datagen/random_block.h"

#include <array>

#include "common/base/check.h"
#include "common/base/rng.h"
#include "datagen/avx2.h"

#if AUTOMAP_DATAGEN_AVX2
#include <immintrin.h>
#endif

namespace automap::datagen {

namespace internal {

void fill_random_plain(std::uint32_t* out, std::size_t count, std::uint64_t seed, std::uint32_t stream,
                       std::uint64_t item, std::uint64_t first) {
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  std::array<std::uint32_t, 4> counter = {static_cast<std::uint32_t>(first / 4), stream,
                                          static_cast<std::uint32_t>(item), static_cast<std::uint32_t>(item >> 32)};
  for (std::size_t i = 0; i < count; i += 4, ++counter[0]) {
    const std::array<std::uint32_t, 4> block = philox4x32(counter, key);
    for (std::size_t j = 0; j < 4; ++j) out[i + j] = block[j];
  }
}

}  // namespace internal

#if AUTOMAP_DATAGEN_AVX2
namespace {

// The two halves of eight 32 x 32 bit products.
struct Product {
  __m256i low, high;
};

__attribute__((target("avx2"), always_inline)) inline Product multiply(__m256i x, __m256i factor) {
  const __m256i even = _mm256_mul_epu32(x, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  return {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa),
          _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa)};
}

// Eight Philox4x32-10 blocks (common/base/rng.cpp) in the lanes of four registers.
struct Blocks {
  __m256i x0, x1, x2, x3;
};

// From four registers of eight blocks to the blocks one after the other.
__attribute__((target("avx2"), always_inline)) inline void store(const Blocks& x, std::uint32_t* out) {
  const __m256i t0 = _mm256_unpacklo_epi32(x.x0, x.x1), t1 = _mm256_unpackhi_epi32(x.x0, x.x1);
  const __m256i t2 = _mm256_unpacklo_epi32(x.x2, x.x3), t3 = _mm256_unpackhi_epi32(x.x2, x.x3);
  const __m256i b04 = _mm256_unpacklo_epi64(t0, t2), b15 = _mm256_unpackhi_epi64(t0, t2);
  const __m256i b26 = _mm256_unpacklo_epi64(t1, t3), b37 = _mm256_unpackhi_epi64(t1, t3);
  __m256i* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(b04, b15, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(b26, b37, 0x20));
  _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(b04, b15, 0x31));
  _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(b26, b37, 0x31));
}

__attribute__((target("avx2"), always_inline)) inline void round_of(Blocks& x, __m256i key0, __m256i key1) {
  const Product a = multiply(x.x0, _mm256_set1_epi64x(0xD2511F53));
  const Product b = multiply(x.x2, _mm256_set1_epi64x(0xCD9E8D57));
  x.x0 = _mm256_xor_si256(_mm256_xor_si256(b.high, x.x1), key0);
  x.x1 = b.low;
  x.x2 = _mm256_xor_si256(_mm256_xor_si256(a.high, x.x3), key1);
  x.x3 = a.low;
}

int lanes(std::uint64_t value) {
  return static_cast<int>(static_cast<std::uint32_t>(value));
}

// 64 numbers a turn, in two independent chains; count is a multiple of 64.
__attribute__((target("avx2"))) void fill_avx2(std::uint32_t* out, std::size_t count, std::uint64_t seed,
                                               std::uint32_t stream, std::uint64_t item, std::uint32_t block) {
  const __m256i steps = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (std::size_t i = 0; i < count; i += 64, block += 16) {
    Blocks x = {_mm256_add_epi32(_mm256_set1_epi32(lanes(block)), steps), _mm256_set1_epi32(lanes(stream)),
                _mm256_set1_epi32(lanes(item)), _mm256_set1_epi32(lanes(item >> 32))};
    Blocks y = x;
    y.x0 = _mm256_add_epi32(_mm256_set1_epi32(lanes(block + 8)), steps);
    std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const __m256i k0 = _mm256_set1_epi32(lanes(key0)), k1 = _mm256_set1_epi32(lanes(key1));
      round_of(x, k0, k1);
      round_of(y, k0, k1);
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    store(x, out + i);
    store(y, out + i + 32);
  }
}

}  // namespace
#endif

void fill_random(std::uint32_t* out, std::size_t count, std::uint64_t seed, std::uint32_t stream, std::uint64_t item,
                 std::uint64_t first) {
  AM_CHECK(count % 4 == 0 && first % 4 == 0);
  std::size_t done = 0;
#if AUTOMAP_DATAGEN_AVX2
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) {
    done = count / 64 * 64;
    fill_avx2(out, done, seed, stream, item, static_cast<std::uint32_t>(first / 4));
  }
#endif
  internal::fill_random_plain(out + done, count - done, seed, stream, item, first + done);
}

}  // namespace automap::datagen
