#include "datagen/random_block.h"

#include <array>

#include "common/base/check.h"
#include "common/base/rng.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define AUTOMAP_DATAGEN_AVX2 1
#else
#define AUTOMAP_DATAGEN_AVX2 0
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

// Eight Philox4x32-10 blocks (common/base/rng.cpp) side by side, 32 numbers a turn; count is a multiple of 32.
__attribute__((target("avx2"))) void fill_avx2(std::uint32_t* out, std::size_t count, std::uint64_t seed,
                                               std::uint32_t stream, std::uint64_t item, std::uint32_t block) {
  const __m256i factor0 = _mm256_set1_epi64x(0xD2511F53);
  const __m256i factor2 = _mm256_set1_epi64x(0xCD9E8D57);
  const auto lanes = [](std::uint64_t value) { return static_cast<int>(static_cast<std::uint32_t>(value)); };
  const __m256i steps = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (std::size_t i = 0; i < count; i += 32, block += 8) {
    __m256i x0 = _mm256_add_epi32(_mm256_set1_epi32(lanes(block)), steps);
    __m256i x1 = _mm256_set1_epi32(lanes(stream));
    __m256i x2 = _mm256_set1_epi32(lanes(item));
    __m256i x3 = _mm256_set1_epi32(lanes(item >> 32));
    std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Product a = multiply(x0, factor0);
      const Product b = multiply(x2, factor2);
      x0 = _mm256_xor_si256(_mm256_xor_si256(b.high, x1), _mm256_set1_epi32(lanes(key0)));
      x1 = b.low;
      x2 = _mm256_xor_si256(_mm256_xor_si256(a.high, x3), _mm256_set1_epi32(lanes(key1)));
      x3 = a.low;
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    // From four registers of eight blocks to the blocks one after the other.
    const __m256i t0 = _mm256_unpacklo_epi32(x0, x1), t1 = _mm256_unpackhi_epi32(x0, x1);
    const __m256i t2 = _mm256_unpacklo_epi32(x2, x3), t3 = _mm256_unpackhi_epi32(x2, x3);
    const __m256i b04 = _mm256_unpacklo_epi64(t0, t2), b15 = _mm256_unpackhi_epi64(t0, t2);
    const __m256i b26 = _mm256_unpacklo_epi64(t1, t3), b37 = _mm256_unpackhi_epi64(t1, t3);
    __m256i* to = reinterpret_cast<__m256i*>(out + i);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(b04, b15, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(b26, b37, 0x20));
    _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(b04, b15, 0x31));
    _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(b26, b37, 0x31));
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
    done = count / 32 * 32;
    fill_avx2(out, done, seed, stream, item, static_cast<std::uint32_t>(first / 4));
  }
#endif
  internal::fill_random_plain(out + done, count - done, seed, stream, item, first + done);
}

}  // namespace automap::datagen
