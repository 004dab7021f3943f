#include "common/graph/scan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

namespace automap::graph::scan {
namespace {

// The obvious twin of skip_balanced: one character at a time.
template <char Open, char Close>
std::ptrdiff_t slow_balanced(const std::string& s) {
  int depth = 0;
  for (std::size_t i = 0; i < s.size();) {
    const char c = s[i];
    if (c == '"' || c == '\'') {
      ++i;
      while (i < s.size() && s[i] != c) i += s[i] == '\\' ? 2 : 1;
      if (i >= s.size()) return -1;
      ++i;
      continue;
    }
    if (c == '/' && i + 1 < s.size() && s[i + 1] == '/') {
      while (i < s.size() && s[i] != '\n') ++i;
      continue;
    }
    if (c == '/' && i + 1 < s.size() && s[i + 1] == '*') {
      const std::size_t close = s.find("*/", i + 2);
      if (close == std::string::npos) return -1;
      i = close + 2;
      continue;
    }
    if (c == Open) ++depth;
    if (c == Close && --depth == 0) return static_cast<std::ptrdiff_t>(i) + 1;
    ++i;
  }
  return -1;
}

TEST(Scan, BalancedSkipAgreesWithItsSlowTwin) {
  std::mt19937 rng(7);
  const std::string alphabet = "{{{}}}aaaaaaaa    ,,\"'\\/*\n()";
  int closed = 0;
  for (int round = 0; round < 60000; ++round) {
    std::string s = "{";
    const std::size_t length = rng() % 120;
    // Few special characters in some rounds, so that whole blocks are skipped.
    const bool sparse = rng() % 2 == 0;
    for (std::size_t i = 0; i < length; ++i) {
      s.push_back(sparse && rng() % 8 != 0 ? 'x' : alphabet[rng() % alphabet.size()]);
    }
    if (rng() % 2 == 0) s += "}}}}}}}}}}}}}}}}}}}}";
    const char* const end = s.data() + s.size();
    const char* const p = skip_balanced<'{', '}'>(s.data(), end);
    const std::ptrdiff_t found = p == nullptr ? -1 : p - s.data();
    ASSERT_EQ(found, (slow_balanced<'{', '}'>(s))) << s;
    closed += found > 0 ? 1 : 0;
  }
  EXPECT_GT(closed, 10000);
}

TEST(Scan, Strings) {
  const auto skip = [](const std::string& s) {
    const char* p = skip_string(s.data(), s.data() + s.size());
    return p == nullptr ? -1 : p - s.data();
  };
  EXPECT_EQ(skip(R"("")"), 2);
  EXPECT_EQ(skip(R"("a\"b" c)"), 6);
  EXPECT_EQ(skip(R"("a\\" c")"), 5);
  EXPECT_EQ(skip(R"('a"b')"), 5);
  EXPECT_EQ(skip(R"("abc)"), -1);
  EXPECT_EQ(skip(R"("abc\")"), -1);
  EXPECT_EQ(skip(R"(")"), -1);
}

TEST(Scan, Comments) {
  const auto skip = [](const std::string& s) {
    const char* p = skip_comment(s.data(), s.data() + s.size());
    return p == nullptr ? -1 : p - s.data();
  };
  EXPECT_EQ(skip("/* a */b"), 7);
  EXPECT_EQ(skip("/***/"), 5);
  EXPECT_EQ(skip("/*/"), -1);
  EXPECT_EQ(skip("/*"), -1);
  EXPECT_EQ(skip("// a\nb"), 4);
  EXPECT_EQ(skip("//"), 2);
  EXPECT_EQ(skip("/"), 0);
  EXPECT_EQ(skip("/a"), 0);
}

TEST(Scan, CountByte) {
  std::string s;
  for (int n = 0; n < 100; ++n) {
    EXPECT_EQ(count_byte('\n', s.data(), s.data() + s.size()), static_cast<std::size_t>((n + 2) / 3));
    s.push_back(n % 3 == 0 ? '\n' : 'x');
  }
}

TEST(Scan, HashTellsShortStringsApart) {
  std::set<std::uint64_t> seen;
  std::size_t count = 0;
  for (int i = 0; i < 20000; ++i) {
    for (const std::string& s : {"a" + std::to_string(i), "broadcast_in_dim." + std::to_string(i),
                                 std::string(static_cast<std::size_t>(i % 50), 'x') + std::to_string(i)}) {
      if (s[0] == 'x' || s[0] == 'a' || s[0] == 'b') {
        ++count;
        seen.insert(hash(s));
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

}  // namespace
}  // namespace automap::graph::scan
