// SHA-256 (FIPS 180-4) and CRC-32C, both small enough that a library would be the larger dependency. Datasets hash
// gigabytes, so the instructions that x86-64 has for both are used where the processor knows them.
#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/files.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define AUTOMAP_HASH_INSTRUCTIONS 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define AUTOMAP_HASH_INSTRUCTIONS 0
#endif

namespace automap {
namespace {

constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t rotate_right(std::uint32_t x, int by) {
  return x >> by | x << (32 - by);
}

void sha256_block(const unsigned char* block, std::array<std::uint32_t, 8>& state) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = static_cast<std::uint32_t>(block[4 * i]) << 24 | static_cast<std::uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<std::uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3;
    const std::uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  // The words change their names instead of their places.
  const auto round = [&](int i, auto a1, auto b1, auto c1, auto& d1, auto e1, auto f1, auto g1, auto& h1) {
    const std::uint32_t s1 = rotate_right(e1, 6) ^ rotate_right(e1, 11) ^ rotate_right(e1, 25);
    h1 += s1 + (g1 ^ (e1 & (f1 ^ g1))) + kRoundConstants[static_cast<std::size_t>(i)] + w[i];
    d1 += h1;
    const std::uint32_t s0 = rotate_right(a1, 2) ^ rotate_right(a1, 13) ^ rotate_right(a1, 22);
    h1 += s0 + ((a1 & b1) | (c1 & (a1 | b1)));
  };
  for (int i = 0; i < 64; i += 8) {
    round(i, a, b, c, d, e, f, g, h);
    round(i + 1, h, a, b, c, d, e, f, g);
    round(i + 2, g, h, a, b, c, d, e, f);
    round(i + 3, f, g, h, a, b, c, d, e);
    round(i + 4, e, f, g, h, a, b, c, d);
    round(i + 5, d, e, f, g, h, a, b, c);
    round(i + 6, c, d, e, f, g, h, a, b);
    round(i + 7, b, c, d, e, f, g, h, a);
  }
  const std::uint32_t words[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += words[i];
}

// Reflected Castagnoli polynomial.
constexpr std::uint32_t kCrc32cPolynomial = 0x82f63b78;

std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table;
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kCrc32cPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t crc) {
  static const std::array<std::uint32_t, 256> table = make_crc_table();
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return crc;
}

#if AUTOMAP_HASH_INSTRUCTIONS
struct HashInstructions {
  bool crc = false, sha = false;
  HashInstructions() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0) return;
    const bool sse41 = (c & bit_SSE4_1) != 0, ssse3 = (c & bit_SSSE3) != 0;
    crc = (c & bit_SSE4_2) != 0;
    constexpr unsigned kSha = 1u << 29;  // leaf 7, EBX
    sha = sse41 && ssse3 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
  }
};
const HashInstructions& instructions() {
  static const HashInstructions found;
  return found;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(std::string_view bytes, std::uint32_t crc) {
  const char* data = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t wide = crc;
  for (; left >= 8; left -= 8, data += 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; left > 0; --left, ++data) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*data));
  return crc;
}

// The state is kept as the instructions want it: (A, B, E, F) and (C, D, G, H), highest word first.
__attribute__((target("sha,sse4.1,ssse3"))) void sha256_by_instruction(const unsigned char* data, std::size_t blocks,
                                                                       std::array<std::uint32_t, 8>& state) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  auto* words = reinterpret_cast<__m128i*>(state.data());
  const __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(abcd, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
  for (; blocks > 0; --blocks, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i & 3];
      if (i < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), swap);
      } else {
        const __m128i before = w[(i + 3) & 3];
        now = _mm_sha256msg1_epu32(now, w[(i + 1) & 3]);
        now = _mm_add_epi32(now, _mm_alignr_epi8(before, w[(i + 2) & 3], 4));
        now = _mm_sha256msg2_epu32(now, before);
      }
      const __m128i k =
          _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRoundConstants.data()) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}
#endif

void sha256_blocks(const unsigned char* data, std::size_t blocks, std::array<std::uint32_t, 8>& state) {
#if AUTOMAP_HASH_INSTRUCTIONS
  if (instructions().sha) {
    sha256_by_instruction(data, blocks, state);
    return;
  }
#endif
  for (; blocks > 0; --blocks, data += 64) sha256_block(data, state);
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::update(std::string_view bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  total_bytes_ += left;
  if (filled_ > 0) {
    const std::size_t taken = std::min(left, block_.size() - filled_);
    if (taken > 0) std::memcpy(block_.data() + filled_, data, taken);
    filled_ += taken, data += taken, left -= taken;
    if (filled_ < block_.size()) return;
    sha256_blocks(block_.data(), 1, state_);
    filled_ = 0;
  }
  sha256_blocks(data, left / 64, state_);
  filled_ = left % 64;
  if (filled_ > 0) std::memcpy(block_.data(), data + (left - filled_), filled_);
}

std::string Sha256::hex() const {
  std::array<std::uint32_t, 8> state = state_;
  unsigned char tail[128] = {};
  if (filled_ > 0) std::memcpy(tail, block_.data(), filled_);
  tail[filled_] = 0x80;
  const std::size_t tail_bytes = filled_ < 56 ? 64 : 128;
  std::uint64_t bits = total_bytes_ * 8;
  for (std::size_t i = 1; i <= 8; ++i, bits >>= 8) tail[tail_bytes - i] = static_cast<unsigned char>(bits & 0xff);
  sha256_blocks(tail, tail_bytes / 64, state);

  std::string text;
  for (const std::uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 0xf];
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t crc) {
#if AUTOMAP_HASH_INSTRUCTIONS
  if (instructions().crc) return ~crc32c_by_instruction(bytes, ~crc);
#endif
  return ~crc32c_by_table(bytes, ~crc);
}

namespace internal {
std::string sha256_hex_portable(std::string_view bytes) {
  Sha256 hash;
  const std::size_t whole = bytes.size() / 64 * 64;
  for (std::size_t at = 0; at < whole; at += 64) {
    sha256_block(reinterpret_cast<const unsigned char*>(bytes.data()) + at, hash.state_);
  }
  hash.total_bytes_ = whole;
  hash.update(bytes.substr(whole));
  return hash.hex();
}
std::uint32_t crc32c_portable(std::string_view bytes) {
  return ~crc32c_by_table(bytes, ~0u);
}
}  // namespace internal

}  // namespace automap
