#include "common/base/printable.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"

namespace automap {
namespace {

// Any number below 2^21 in as few bytes as UTF-8 has for it, also those that are no character.
std::string utf8(char32_t c) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), byte(0x80 | (c & 63))};
  if (c < 0x10000) return {byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 63)), byte(0x80 | (c & 63))};
  return {byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 63)), byte(0x80 | (c >> 6 & 63)), byte(0x80 | (c & 63))};
}

// One by one, from Unicode's DerivedCoreProperties.txt (Default_Ignorable_Code_Point) and UnicodeData.txt.
std::set<char32_t> hidden_characters() {
  std::set<char32_t> out = {0x7f,   0xad,   0x34f,  0x61c,  0x115f, 0x1160, 0x17b4, 0x17b5,
                            0x180b, 0x180c, 0x180d, 0x180e, 0x180f, 0x3164, 0xfeff, 0xffa0};
  for (char32_t c = 0; c < 0x20; ++c) out.insert(c);            // Cc
  for (char32_t c = 0x80; c < 0xa0; ++c) out.insert(c);         // Cc
  for (char32_t c = 0x200b; c <= 0x200f; ++c) out.insert(c);    // zero width, marks
  for (char32_t c = 0x2028; c <= 0x202e; ++c) out.insert(c);    // Zl, Zp, embeddings
  for (char32_t c = 0x2060; c <= 0x206f; ++c) out.insert(c);    // invisible, isolates
  for (char32_t c = 0xfe00; c <= 0xfe0f; ++c) out.insert(c);    // variation selectors
  for (char32_t c = 0xfff0; c <= 0xfffb; ++c) out.insert(c);    // reserved, annotations
  for (char32_t c = 0x1bca0; c <= 0x1bca3; ++c) out.insert(c);  // shorthand
  for (char32_t c = 0x1d173; c <= 0x1d17a; ++c) out.insert(c);  // music
  for (char32_t c = 0xe0000; c <= 0xe0fff; ++c) out.insert(c);  // tags
  return out;
}

TEST(Printable, EveryCodePoint) {
  const std::set<char32_t> hidden = hidden_characters();
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    const bool surrogate = c >= 0xd800 && c < 0xe000;
    const std::string text = "a" + utf8(c) + "b";
    std::string expected = text;
    if (surrogate) {
      expected = "a";
      for (const char byte : utf8(c)) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(byte));
        expected += escape;
      }
      expected += "b";
    } else if (hidden.count(c) > 0) {
      char escape[16];
      std::snprintf(escape, sizeof escape,
                    c < 0x80      ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      expected = std::string("a") + (c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : escape) + "b";
    }
    ASSERT_EQ(printable(text), expected) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(printable(expected), expected);
    ASSERT_EQ(printable_lines(text), c == '\n' ? text : expected);
  }
}

TEST(Printable, BytesThatAreNoUtf8) {
  for (const auto& [bytes, shown] : std::vector<std::pair<std::string, std::string>>{
           {"\x9b", "\\x9b"},
           {"\xff\xfe", "\\xff\\xfe"},
           {"\xc0\x8a", "\\xc0\\x8a"},                    // a line end, longer than needed
           {"\xe0\x80\x9b", "\\xe0\\x80\\x9b"},           // U+001B, longer than needed
           {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond Unicode
           {"\xe2\x80", "\\xe2\\x80"},                    // cut short
           {"\xe2\x80\x1b[2J", "\\xe2\\x80\\x1b[2J"},     // the next character is not swallowed
           {"\xe2\xe2\x80\xae", "\\xe2\\u202e"},          // nor is a whole one behind half a one
           {"\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"},
       }) {
    EXPECT_EQ(printable(bytes), shown);
  }
}

TEST(Printable, WhatIsCommon) {
  EXPECT_EQ(printable("a\n\x1b[2J"), "a\\n\\x1b[2J");
  EXPECT_EQ(printable(std::string("nul\0here", 8)), "nul\\x00here");
  EXPECT_EQ(printable("größer … 模型/層 C:\\x1b\\n"), "größer … 模型/層 C:\\x1b\\n");
  EXPECT_EQ(printable_lines("a\r\nb\tc"), "a\\r\nb\\tc");
}

TEST(Printable, CutsKeepCharactersAndEscapesWhole) {
  EXPECT_EQ(excerpt("ab\ncd", 4), "ab…");
  EXPECT_EQ(excerpt("ab\ncd", 6), "ab\\ncd");
  EXPECT_EQ(excerpt("größer", 4), "grö…");
  const std::string text = "x\x1b[31m\u202e\u00e9 \\u202e \\x1b \xff\xfe y\U000e0041z";
  const std::set<std::string> units = {"\\x1b", "\\u202e", "\\xff", "\\xfe", "\\U000e0041"};
  for (int width = 3; width < 70; ++width) {
    for (const std::string& cut : {excerpt(text, width), shorten(text, width)}) {
      EXPECT_LE(display_width(cut), width);
      EXPECT_EQ(printable(cut), cut);
      // Every backslash begins a whole escape.
      for (std::size_t at = cut.find('\\'); at != std::string::npos; at = cut.find('\\', at + 1)) {
        bool whole = false;
        for (const std::string& unit : units) whole = whole || cut.compare(at, unit.size(), unit) == 0;
        EXPECT_TRUE(whole) << cut;
      }
    }
  }
}

TEST(Printable, JsonStaysExactAndActsOnNoTerminal) {
  std::string all;
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c < 0xd800 || c >= 0xe000) all += utf8(c);
  }
  const Json document = {{"name", all}, {all, 1}};
  for (const int indent : {2, -1}) {
    const std::string text = json_text(document, indent);
    EXPECT_EQ(printable_lines(text), text);
    EXPECT_TRUE(Json::parse(text) == document);
  }
  EXPECT_EQ(json_text(Json("\u009b\u202e\U000e0041é\x7f"), -1), "\"\\u009b\\u202e\\udb40\\udc41é\\u007f\"\n");
}

TEST(Printable, LiteralsOfPython) {
  EXPECT_EQ(python_literal("a\"b\\\n\u202e\U000e0041"), "\"a\\\"b\\\\\\n\\u202e\\U000e0041\"");
}

TEST(Printable, ErrorsAreLinesOfOurs) {
  const Error error(ErrorKind::kData, "no file 'a\nerror: b'", "try\x1b[2J\n  hint: c", {"x\ny", "  ^"});
  EXPECT_STREQ(error.what(), "no file 'a\\nerror: b'\n  x\\ny\n    ^");
  EXPECT_EQ(error.hint(), "try\\x1b[2J\\n  hint: c");
}

TEST(Printable, TablesAndProgress) {
  TextTable table({{"na\u202eme", TextTable::Align::kLeft}, {"n"}});
  table.add_row({"a\nb\x1b", "1"});
  table.add_row({"c", "2"});
  EXPECT_EQ(table.render(),
            "na\\u202eme  n\n"
            "----------  -\n"
            "a\\nb\\x1b    1\n"
            "c           2\n");
  std::string out;
  double now = 0;
  Progress progress(
      "la\x9b"
      "bel\n",
      4, "", [&] { return now; }, [&](const std::string& text) { out += text; }, 100);
  now = 1;
  progress.update(2, "no\u009bte\x1b]0;x\x07");
  EXPECT_EQ(out, "\r\x1b[Kla\\x9bbel\\n  50 %  ETA 00:01  no\\u009bte\\x1b]0;x\\x07");
}

}  // namespace
}  // namespace automap
