// Strict JSON: what is wrong is said with its place.
#include "common/base/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace automap {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const JsonSource kSource{"a.json", ErrorKind::kConfig, "see the docs"};

std::string complaint(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return std::string(error.what()) + (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "";
}

std::string complaint_about(const std::string& text) {
  return complaint([&] { parse_json(text, kSource); });
}

TEST(JsonReader, DocumentsThatAreNone) {
  EXPECT_EQ(complaint_about("{\"a\": [1, {\"a\": 2}], \"b\": {\"a\": 3}}"), "");
  EXPECT_EQ(complaint_about("\xEF\xBB\xBF{}"), "");
  EXPECT_THAT(complaint_about("{\n  \"a\" 3\n}"),
              AllOf(StartsWith("a.json:2:7: not JSON: "), HasSubstr("see the docs")));
  EXPECT_THAT(complaint_about(""), StartsWith("a.json:1:1: not JSON"));
  EXPECT_THAT(complaint_about("{\"a\": 1, \"b\": 2, \"a\": 3}"), HasSubstr("key \"a\" is given twice in one object"));
  EXPECT_THAT(complaint_about(std::string(17, '[') + std::string(17, ']')), HasSubstr("deeper than 16 levels"));
  EXPECT_EQ(complaint_about(std::string(16, '[') + std::string(16, ']')), "");
  EXPECT_THAT(complaint_about(std::string(200000, '[')), HasSubstr("deeper than 16 levels"));
  EXPECT_THAT(complaint_about("{\"a\": 1e999}"), HasSubstr("not JSON that can be read"));
  EXPECT_THAT(complaint_about("{\"a\": \"\xff\"}"), HasSubstr("a.json:1:"));
}

TEST(JsonReader, ValuesAndTheirPaths) {
  const auto document = parse_json(
      R"({"name": "x", "list": [{"n": 4.0}, {"n": 2.5}], "no": null, "yes": true, "f": -1, "schema": "my.thing/2"})",
      kSource);
  const JsonValue root(document, kSource);
  EXPECT_EQ(root.at("name").text(), "x");
  EXPECT_TRUE(root.at("yes").boolean());
  EXPECT_TRUE(root.has("name"));
  EXPECT_FALSE(root.has("no"));
  EXPECT_FALSE(root.has("else"));
  const auto list = root.at("list").items();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("n").integer(1, 4), 4);
  EXPECT_EQ(list[1].at("n").number(0, 3, "a share"), 2.5);
  EXPECT_EQ(complaint([&] { list[1].at("n").integer(1, 4); }),
            "a.json: list[1].n: found 2.5, expected a whole number from 1 to 4");
  EXPECT_EQ(complaint([&] { list[0].at("n").integer(1, 3); }),
            "a.json: list[0].n: found 4.0, expected a whole number from 1 to 3");
  EXPECT_EQ(complaint([&] { root.at("else"); }), "a.json: else: missing");
  EXPECT_EQ(complaint([&] { root.at("list").at("n"); }),
            R"(a.json: list: found [{"n":4.0},{"n":2.5}], expected an object)");
  EXPECT_EQ(complaint([&] { root.items(); }).substr(0, 14), "a.json: found ");
  EXPECT_THAT(complaint([&] { root.at("name").items(); }), HasSubstr("name: found \"x\", expected an array"));
  EXPECT_THAT(complaint([&] { root.at("f").positive("GB/s"); }), HasSubstr("expected a number of GB/s above 0"));
  EXPECT_THAT(complaint([&] { root.at("f").not_negative("GB/s"); }),
              HasSubstr("expected a number of GB/s of at least 0"));
  EXPECT_THAT(complaint([&] { root.at("name").number(0, 1, "a share"); }), HasSubstr("found \"x\", expected a share"));
  EXPECT_THAT(complaint([&] { root.at("yes").text(); }), HasSubstr("found true, expected a string"));
  EXPECT_THAT(complaint([&] { root.at("name").boolean(); }), HasSubstr("expected true or false"));
}

TEST(JsonReader, KeysAndSchemas) {
  const auto document = parse_json(R"({"cuont": 1, "schema": "my.thing/3"})", kSource);
  const JsonValue root(document, kSource);
  EXPECT_EQ(complaint([&] {
              root.only_keys({"count", "schema"});
            }),
            "a.json: cuont: unknown key | did you mean count? known keys: count, schema");
  EXPECT_EQ(complaint([&] { root.only_keys({"cuont", "schema"}); }), "");
  EXPECT_EQ(root.schema("my.thing/", 3, "a thing"), 3);
  EXPECT_EQ(root.schema("my.thing/", 4, "a thing"), 3);
  EXPECT_EQ(
      complaint([&] { root.schema("my.thing/", 2, "a thing"); }),
      "a.json: schema: found \"my.thing/3\", expected at most \"my.thing/2\" | it was written for a newer version of "
      "AutoMap");
  EXPECT_EQ(complaint([&] { root.schema("your.thing/", 2, "a thing"); }),
            "a.json: schema: found \"my.thing/3\", expected \"your.thing/2\" | this is not a thing");
  const auto bare = parse_json("{}", kSource);
  EXPECT_EQ(JsonValue(bare, kSource).schema("my.thing/", 3, "a thing", 1), 1);
  EXPECT_THAT(complaint([&] { JsonValue(bare, kSource).schema("my.thing/", 3, "a thing"); }),
              HasSubstr("schema: missing"));
}

}  // namespace
}  // namespace automap
