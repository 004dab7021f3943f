#include "common/hlo/json_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.h"

namespace automap::hlo {
namespace {

using testing::HasSubstr;

template <typename F>
std::string cursor_error(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    return e.what();
  }
  return "";
}

std::string skip_error(const std::string& text) {
  return cursor_error([&] {
    std::deque<std::string> arena;
    JsonCursor json(text, "f.json", &arena);
    json.skip();
    json.end_document();
  });
}

TEST(JsonCursorTest, ReadsValues) {
  std::deque<std::string> arena;
  JsonCursor json(" { \"a\" : [1, -2.5e+3, true, false, null], \"b\": {}, \"c\": \"x\" } ", "f", &arena);
  std::string_view key;
  json.enter_object();
  ASSERT_TRUE(json.next_key(&key));
  EXPECT_EQ(key, "a");
  json.enter_array();
  ASSERT_TRUE(json.next_element());
  EXPECT_EQ(json.number(), "1");
  ASSERT_TRUE(json.next_element());
  EXPECT_EQ(json.number(), "-2.5e+3");
  ASSERT_TRUE(json.next_element());
  EXPECT_TRUE(json.boolean());
  ASSERT_TRUE(json.next_element());
  EXPECT_FALSE(json.boolean());
  ASSERT_TRUE(json.next_element());
  EXPECT_EQ(json.peek(), JsonCursor::Kind::kNull);
  json.null();
  EXPECT_FALSE(json.next_element());
  ASSERT_TRUE(json.next_key(&key));
  EXPECT_EQ(json.skip(), "{}");
  ASSERT_TRUE(json.next_key(&key));
  EXPECT_EQ(json.string(), "x");
  EXPECT_FALSE(json.next_key(&key));
  json.end_document();
}

TEST(JsonCursorTest, DecodesEscapesAsNlohmannDoes) {
  const std::string text = R"("a\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00 z")";
  std::deque<std::string> arena;
  JsonCursor json(text, "f", &arena);
  EXPECT_EQ(json.string(), nlohmann::json::parse(text).get<std::string>());
}

TEST(JsonCursorTest, AcceptsExactlyWhatNlohmannAccepts) {
  for (const std::string text : {"{}",        "[]",         "[1]",       "[1,]",
                                 "[,1]",      "{\"a\":1,}", "{\"a\" 1}", "{a:1}",
                                 "01",        "-",          "1.",        ".5",
                                 "1e",        "1e5",        "-0.0",      "tru",
                                 "true",      "nul",        "\"",        "\"\\x\"",
                                 "\"\\u12\"", "[1 2]",      "{} {}",     "[[[[]]]]",
                                 "[[}]",      "\"a\nb\"",   "[1]x",      "{\"a\":{\"b\":[{},{}]}}",
                                 "",          "   ",        "{\"a\":}",  "[null,true,false]",
                                 "+1",        "'a'",        "NaN"}) {
    EXPECT_EQ(skip_error(text).empty(), nlohmann::json::accept(text)) << text;
  }
}

TEST(JsonCursorTest, ErrorsHaveLineAndColumn) {
  EXPECT_THAT(skip_error("{\n  \"a\": [1,\n 2,, 3]}"), HasSubstr("f.json:3:4: found ',', expected a JSON value"));
  EXPECT_THAT(skip_error("{\"a\": \"never"), HasSubstr("f.json:1:7: this string never ends"));
  EXPECT_THAT(skip_error("{\"a\": 1"), HasSubstr("f.json:1:8: found the end of the file, expected ',' or '}'"));
}

TEST(JsonCursorTest, SkipsDeepNestingWithoutRecursion) {
  const int depth = 2000000;
  EXPECT_EQ(skip_error(std::string(depth, '[') + std::string(depth, ']')), "");
  EXPECT_THAT(skip_error(std::string(depth, '[')), HasSubstr("end of the file"));
}

}  // namespace
}  // namespace automap::hlo
