// The byte loops under the HLO readers: character classes, balanced skipping, hashing. Nothing here allocates, nothing
// reads outside [p, end).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace automap::graph::scan {

constexpr std::uint8_t kIdentifier = 1;  // A-Z a-z 0-9 _ . -
constexpr std::uint8_t kSpace = 2;
constexpr std::uint8_t kDigit = 4;

constexpr std::array<std::uint8_t, 256> make_classes() {
  std::array<std::uint8_t, 256> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[static_cast<std::size_t>(c)] = kIdentifier;
  for (int c = 'A'; c <= 'Z'; ++c) classes[static_cast<std::size_t>(c)] = kIdentifier;
  for (int c = '0'; c <= '9'; ++c) classes[static_cast<std::size_t>(c)] = kIdentifier | kDigit;
  for (const char c : {'_', '.', '-'}) classes[static_cast<std::size_t>(c)] = kIdentifier;
  for (const char c : {' ', '\t', '\n', '\r', '\v', '\f'}) classes[static_cast<std::size_t>(c)] = kSpace;
  return classes;
}
inline constexpr std::array<std::uint8_t, 256> kClasses = make_classes();

inline bool is(std::uint8_t what, char c) {
  return (kClasses[static_cast<unsigned char>(c)] & what) != 0;
}

inline const char* skip_class(std::uint8_t what, const char* p, const char* end) {
  while (p < end && is(what, *p)) ++p;
  return p;
}

// `p` stands on the opening quote. Returns one past the closing quote, or nullptr when there is none before `end`.
inline const char* skip_string(const char* p, const char* end) {
  const char quote = *p++;
  const char* const begin = p;
  while (p < end) {
    const auto* q = static_cast<const char*>(std::memchr(p, quote, static_cast<std::size_t>(end - p)));
    if (q == nullptr) return nullptr;
    // An odd run of backslashes before the quote escapes it. Runs are disjoint, so this stays linear.
    const char* b = q;
    while (b > begin && b > p && b[-1] == '\\') --b;
    if (((q - b) & 1) == 0) return q + 1;
    p = q + 1;
  }
  return nullptr;
}

// `p` stands on '/'. Returns one past a comment, `p` when this is none, nullptr when /* is never closed.
inline const char* skip_comment(const char* p, const char* end) {
  if (end - p < 2) return p;
  if (p[1] == '/') {
    const auto* newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
    return newline == nullptr ? end : newline;
  }
  if (p[1] != '*') return p;
  for (const char* q = p + 2; q < end;) {
    q = static_cast<const char*>(std::memchr(q, '*', static_cast<std::size_t>(end - q)));
    if (q == nullptr || q + 1 >= end) return nullptr;
    if (q[1] == '/') return q + 2;
    ++q;
  }
  return nullptr;
}

// `p` stands on Open. Returns one past the matching Close, or nullptr when the text ends before it. Strings in double
// or single quotes and comments are skipped as a whole; other brackets do not count.
template <char Open, char Close>
const char* skip_balanced(const char* p, const char* const end) {
  std::int64_t depth = 0;
  while (p < end) {
#if defined(__SSE2__)
    if (end - p >= 16) {
      const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      const auto mask_of = [&](char c) {
        return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(c))));
      };
      const unsigned opens = mask_of(Open);
      const unsigned closes = mask_of(Close);
      const unsigned others = mask_of('"') | mask_of('\'') | mask_of('/');
      unsigned special = opens | closes | others;
      if (special == 0) {
        p += 16;
        continue;
      }
      const int num_closes = __builtin_popcount(closes);
      if (others == 0 && depth > num_closes) {
        depth += __builtin_popcount(opens) - num_closes;
        p += 16;
        continue;
      }
      // Step to the special characters one by one, up to the first string or comment.
      const char* const base = p;
      const char* jump = nullptr;
      while (special != 0) {
        const int bit = __builtin_ctz(special);
        special &= special - 1;
        const unsigned one = 1u << bit;
        if ((opens & one) != 0) {
          ++depth;
        } else if ((closes & one) != 0) {
          if (--depth == 0) return base + bit + 1;
        } else {
          const char* const at = base + bit;
          jump = *at == '/' ? skip_comment(at, end) : skip_string(at, end);
          if (jump == nullptr) return nullptr;
          if (jump == at) {  // a lone slash
            jump = nullptr;
            continue;
          }
          break;
        }
      }
      p = jump != nullptr ? jump : base + 16;
      continue;
    }
#endif
    const char c = *p;
    if (c == Open) {
      ++depth;
    } else if (c == Close) {
      if (--depth == 0) return p + 1;
    } else if (c == '"' || c == '\'') {
      p = skip_string(p, end);
      if (p == nullptr) return nullptr;
      continue;
    } else if (c == '/') {
      const char* const next = skip_comment(p, end);
      if (next == nullptr) return nullptr;
      if (next != p) {
        p = next;
        continue;
      }
    }
    ++p;
  }
  return nullptr;
}

inline std::size_t count_byte(char c, const char* p, const char* const end) {
  std::size_t count = 0;
#if defined(__SSE2__)
  const __m128i wanted = _mm_set1_epi8(c);
  for (; end - p >= 16; p += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    count += static_cast<std::size_t>(
        __builtin_popcount(static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(block, wanted)))));
  }
#endif
  for (; p < end; ++p) count += *p == c ? 1 : 0;
  return count;
}

inline std::uint64_t load64(const char* p) {
  std::uint64_t v = 0;
  std::memcpy(&v, p, 8);
  return v;
}
inline std::uint32_t load32(const char* p) {
  std::uint32_t v = 0;
  std::memcpy(&v, p, 4);
  return v;
}

// A good 64-bit hash of short strings (names, shapes): two overlapping loads and a multiplication for up to 16 bytes.
inline std::uint64_t hash(std::string_view s) {
  __extension__ typedef unsigned __int128 Wide;
  constexpr std::uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xe7037ed1a0b428dbu;
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  const char* p = s.data();
  const std::size_t n = s.size();
  std::uint64_t a = 0, b = 0, seed = k0 * (n + 1);
  if (n >= 8) {
    for (std::size_t i = 0; i + 16 < n; i += 16) seed = mix(load64(p + i) ^ k1, load64(p + i + 8) ^ seed);
    if (n > 16) {
      a = load64(p + n - 16);
      b = load64(p + n - 8);
    } else {
      a = load64(p);
      b = load64(p + n - 8);
    }
  } else if (n >= 4) {
    a = load32(p);
    b = load32(p + n - 4);
  } else if (n > 0) {
    a = (static_cast<std::uint64_t>(static_cast<unsigned char>(p[0])) << 16) |
        (static_cast<std::uint64_t>(static_cast<unsigned char>(p[n / 2])) << 8) | static_cast<unsigned char>(p[n - 1]);
  }
  return mix(a ^ k1, b ^ seed);
}

}  // namespace automap::graph::scan
