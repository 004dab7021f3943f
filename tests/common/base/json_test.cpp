#include "common/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/base/rng.h"

namespace automap {
namespace {

using testing::HasSubstr;
using Library = nlohmann::ordered_json;
using Replace = Library::error_handler_t;

// One document, made in both ways.
struct Twins {
  Json ours;
  Library theirs;
};

template <typename T>
Twins twins(const T& value) {
  return {Json(value), Library(value)};
}

std::string random_text(Rng& rng) {
  const std::vector<std::string> parts = {"a",
                                          "key",
                                          "\"",
                                          "\\",
                                          "/",
                                          "\n",
                                          "\x01",
                                          "\x7f",
                                          "é",
                                          "\u2028",
                                          "\U0001f600",
                                          "\xff",
                                          "\xc3",
                                          "\xed\xa0\x80",
                                          std::string(1, '\0'),
                                          " "};
  std::string out;
  for (std::uint64_t n = rng.below(5); n > 0; --n) out += parts[rng.below(parts.size())];
  return out;
}

Twins random_twins(Rng& rng, int depth) {
  const std::uint64_t kind = rng.below(depth > 0 ? 11 : 8);
  switch (kind) {
    case 0: return {Json(), Library()};
    case 1: return twins(rng.below(2) == 0);
    case 2: return twins(static_cast<int>(rng.below(7)) - 3);
    case 3: return twins(rng.below(4));
    case 4: return twins(static_cast<std::int64_t>(rng()));
    case 5: return twins(static_cast<double>(rng.below(4)));
    case 6: {
      const double special[] = {0.1, -0.0, 1e300, 1e-310, std::nan(""), HUGE_VAL, 1.0 / 3, 123456789012345680.0};
      return twins(special[rng.below(8)] * (rng.below(2) == 0 ? 1 : rng.uniform()));
    }
    case 7: return twins(random_text(rng));
    case 8: {
      Twins out{Json::array(), Library::array()};
      for (std::uint64_t n = rng.below(5); n > 0; --n) {
        Twins value = random_twins(rng, depth - 1);
        out.ours.push_back(value.ours);
        out.theirs.push_back(value.theirs);
      }
      return out;
    }
    default: {
      Twins out{Json::object(), Library::object()};
      for (std::uint64_t n = rng.below(6); n > 0; --n) {
        const std::string key = random_text(rng);
        Twins value = random_twins(rng, depth - 1);
        out.ours[key] = value.ours;
        out.theirs[key] = value.theirs;
      }
      return out;
    }
  }
}

std::string strict(const Json& json) {
  try {
    return json.dump();
  } catch (const JsonError& error) {
    return error.what();
  }
}
std::string strict(const Library& json) {
  try {
    return json.dump();
  } catch (const Library::exception& error) {
    return error.what();
  }
}

// The parsed value as text, or the error.
std::string parsed(const std::string& text) {
  try {
    return Json::parse(text).dump();
  } catch (const JsonError& error) {
    return error.what() + std::string(" at ") + std::to_string(error.byte());
  }
}
std::string parsed_by_library(const std::string& text) {
  try {
    return Library::parse(text).dump();
  } catch (const Library::parse_error& error) {
    return error.what() + std::string(" at ") + std::to_string(error.byte);
  } catch (const Library::exception& error) {
    return error.what() + std::string(" at 0");
  }
}

TEST(Json, IsWrittenAndReadAsTheLibraryDoes) {
  for (std::uint64_t item = 0; item < 3000; ++item) {
    Rng rng(1, 0, item);
    const Twins both = random_twins(rng, 4);
    for (const int indent : {-1, 0, 1, 2}) {
      ASSERT_EQ(both.ours.dump(indent, Json::BadUtf8::kReplace),
                both.theirs.dump(indent, ' ', false, Replace::replace));
    }
    ASSERT_EQ(strict(both.ours), strict(both.theirs));
    const std::string text = both.theirs.dump(static_cast<int>(rng.below(3)) - 1, ' ', false, Replace::replace);
    ASSERT_EQ(parsed(text), parsed_by_library(text));
    // Members, sizes and kinds.
    ASSERT_EQ(both.ours.size(), both.theirs.size());
    ASSERT_EQ(both.ours.empty(), both.theirs.empty());
    ASSERT_STREQ(both.ours.type_name(), both.theirs.type_name());
    ASSERT_EQ(both.ours.is_number_integer(), both.theirs.is_number_integer());
    ASSERT_EQ(both.ours.is_number_unsigned(), both.theirs.is_number_unsigned());
    ASSERT_EQ(both.ours.is_number_float(), both.theirs.is_number_float());
    std::string ours, theirs;
    for (const auto& [key, value] : both.ours.items()) ours += key + value.dump(-1, Json::BadUtf8::kReplace);
    for (const auto& [key, value] : both.theirs.items()) theirs += key + value.dump(-1, ' ', false, Replace::replace);
    ASSERT_EQ(ours, theirs);
    ours.clear(), theirs.clear();
    for (const Json& value : both.ours) ours += value.type_name();
    for (const Library& value : both.theirs) theirs += value.type_name();
    ASSERT_EQ(ours, theirs);
    ASSERT_EQ(both.ours.sorted().dump(-1, Json::BadUtf8::kReplace),
              nlohmann::json(both.theirs).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

TEST(Json, DamagedTextsAreRefusedAsByTheLibrary) {
  int refused = 0;
  for (std::uint64_t item = 0; item < 5000; ++item) {
    Rng rng(2, 0, item);
    std::string text =
        random_twins(rng, 3).theirs.dump(static_cast<int>(rng.below(3)) - 1, ' ', false, Replace::replace);
    for (std::uint64_t n = 1 + rng.below(2); n > 0; --n) {
      const std::size_t at = rng.below(text.size() + 1);
      const std::string other = "{}[],:\"\\eE+-.019tfn\x80 \n/*";
      if (rng.below(2) == 0 && at < text.size()) text.erase(at, 1 + rng.below(3));
      if (rng.below(2) == 0) text.insert(std::min(at, text.size()), 1, other[rng.below(other.size())]);
    }
    ASSERT_EQ(parsed(text), parsed_by_library(text)) << text;
    const Json or_null = Json::parse_or_null(text);
    if (!Library::accept(text)) {
      ++refused;
      ASSERT_TRUE(or_null.is_null());
    }
  }
  EXPECT_GT(refused, 1000);
  for (const char* text : {"", " ", "1e999", "-1e999", "[1e999]", "\xef\xbb\xbf[1]", "18446744073709551615",
                           "18446744073709551616", "-9223372036854775808", "-9223372036854775809", "-0", "1.0", "1e2",
                           "{\"a\": 1, \"b\": 2, \"a\": 3}", "\"\\ud83d\\ude00\"", "\"\\ud83d\"", "nul", "// 1\n1"}) {
    EXPECT_EQ(parsed(text), parsed_by_library(text)) << text;
  }
  try {
    Json::parse("1e999");
    ADD_FAILURE();
  } catch (const JsonError& error) {
    EXPECT_EQ(error.kind(), JsonError::Kind::kRange);
  }
}

TEST(Json, IsComparedAsByTheLibrary) {
  std::vector<Twins> all;
  for (std::uint64_t item = 0; item < 150; ++item) {
    Rng rng(3, 0, item);
    all.push_back(random_twins(rng, 2));
  }
  all.push_back(twins(std::int64_t{-1}));
  all.push_back(twins(std::numeric_limits<std::uint64_t>::max()));
  all.push_back(twins(1.0));
  all.push_back({{{"a", 1}, {"b", 2}}, {{"a", 1}, {"b", 2}}});
  all.push_back({{{"b", 2}, {"a", 1}}, {{"b", 2}, {"a", 1}}});
  for (const Twins& a : all) {
    for (const Twins& b : all) {
      ASSERT_EQ(a.ours == b.ours, a.theirs == b.theirs) << a.theirs << " " << b.theirs;
      ASSERT_NE(a.ours == b.ours, a.ours != b.ours);
    }
  }
  EXPECT_EQ(Json(1), 1.0);
  EXPECT_EQ(Json("a"), "a");
  EXPECT_NE(Json("1"), 1);
  EXPECT_NE(Json(true), 1);
}

#define EXPECT_TWINS(...)                                         \
  do {                                                            \
    const Json ours = __VA_ARGS__;                                \
    const Library theirs = __VA_ARGS__;                           \
    EXPECT_EQ(ours.dump(), theirs.dump());                        \
    EXPECT_EQ(std::string(ours.type_name()), theirs.type_name()); \
  } while (false)

TEST(Json, InitializerLists) {
  const std::string text = "text";
  const std::vector<int> ints = {1, 2};
  const std::map<std::string, double> numbers = {{"z", 1}, {"a", 0.5}};
  EXPECT_TWINS({});
  EXPECT_TWINS({1});
  EXPECT_TWINS({"a"});
  EXPECT_TWINS({"a", "b"});
  EXPECT_TWINS({"a", 1});
  EXPECT_TWINS({{"a", 1}});
  EXPECT_TWINS({{"a", "b"}});
  EXPECT_TWINS({{"a", "b"}, {"c", "d"}});
  EXPECT_TWINS({{"a", 1}, {"b", 2, 3}});
  EXPECT_TWINS({{"a", 1}, {2, "b"}});
  EXPECT_TWINS({{"a", 1}, {"a", 2}});
  EXPECT_TWINS({{"a", {}}, {"b", {{}}}, {"c", nullptr}});
  EXPECT_TWINS({{"a", {{"b", {{"c", 1.0}}}}}, {text, text}, {"list", {1, 2u, 3.5, true, "x"}}});
  EXPECT_TWINS({{"ints", ints}, {"numbers", numbers}, {"text", {text}}});
  EXPECT_TWINS({{{"a", 1}}, {{"b", 2}}});
  EXPECT_EQ(Json::array().dump(), "[]");
  EXPECT_EQ(Json::array({"a", 1}).dump(), Library::array({"a", 1}).dump());
  EXPECT_EQ(Json::array({{{"a", 1}}}).dump(), Library::array({{{"a", 1}}}).dump());
  EXPECT_EQ(Json::array({{"a", 1}}).dump(), Library::array({{"a", 1}}).dump());
  Json rows;
  Library their_rows;
  rows.push_back({1, "a"}), their_rows.push_back({1, "a"});
  rows.push_back({{"a", 1}}), their_rows.push_back({{"a", 1}});
  rows.push_back({"a", 1}), their_rows.push_back({"a", 1});
  rows[0] = {{"b", {{"c", 2}}}}, their_rows[0] = {{"b", {{"c", 2}}}};
  rows[1] = {3}, their_rows[1] = {3};
  EXPECT_EQ(rows.dump(), their_rows.dump());
}

TEST(Json, IsMadeOfNumbersTextsAndContainers) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(-1L).dump(), "-1");
  EXPECT_EQ(Json(~0ULL).dump(), "18446744073709551615");
  EXPECT_TRUE(Json(1u).is_number_unsigned());
  EXPECT_FALSE(Json(1).is_number_unsigned());
  EXPECT_TRUE(Json::parse("1").is_number_unsigned());
  EXPECT_FALSE(Json::parse("-1").is_number_unsigned());
  EXPECT_EQ(Json(std::string_view("ab")).dump(), "\"ab\"");
  EXPECT_EQ(Json(std::vector<std::string>{"a", "b"}).dump(), R"(["a","b"])");
  EXPECT_EQ(Json(std::vector<float>{0.1f}).dump(), Library(std::vector<float>{0.1f}).dump());
  EXPECT_EQ(Json(std::vector<Json>{1, "a"}).dump(), R"([1,"a"])");
  EXPECT_EQ(Json(std::map<std::string, std::vector<int>>{{"b", {1}}, {"a", {}}}).dump(), R"({"a":[],"b":[1]})");
  EXPECT_EQ(Json(2.75).get<int>(), 2);
  EXPECT_EQ(Json(7).get<double>(), 7.0);
  EXPECT_EQ(Json(true).get<int>(), 1);
  EXPECT_THROW(Json(true).get<double>(), JsonError);
  EXPECT_EQ(Json({1, 2}).get<std::vector<int>>(), (std::vector<int>{1, 2}));
}

TEST(Json, CopiesAreApartAndMovesLeaveNull) {
  Json a = {{"x", {1, 2}}, {"y", "text"}};
  Json b = a;
  b["x"][0] = 5;
  b["z"] = nullptr;
  EXPECT_EQ(a.dump(), R"({"x":[1,2],"y":"text"})");
  EXPECT_EQ(b.dump(), R"({"x":[5,2],"y":"text","z":null})");
  Json c = std::move(a);
  EXPECT_TRUE(a.is_null());  // NOLINT(bugprone-use-after-move): it says so
  EXPECT_EQ(c.size(), 2u);
  // Values of a document's own.
  c["w"] = c["x"];
  c["x"].push_back(c["x"]);
  c = c["w"];
  EXPECT_EQ(c.dump(), "[1,2]");
  Json& self = c;
  c = self;
  EXPECT_EQ(c.dump(), "[1,2]");
}

TEST(Json, MembersAreFoundAddedMergedAndErased) {
  Json json;
  EXPECT_EQ(json.find("a"), json.end());
  json["b"] = 1;
  json[std::string("a")] = 2;
  json["b"] = 3;
  EXPECT_EQ(json.dump(), R"({"b":3,"a":2})");
  EXPECT_TRUE(json.contains("a"));
  EXPECT_FALSE(json.contains("c"));
  EXPECT_EQ(*json.find("a"), 2);
  EXPECT_EQ(json.value("c", Json("none")), "none");
  json.update({{"a", 4}, {"c", 5}});
  EXPECT_EQ(json.dump(), R"({"b":3,"a":4,"c":5})");
  EXPECT_TRUE(json.erase("b"));
  EXPECT_FALSE(json.erase("b"));
  EXPECT_EQ(json.dump(), R"({"a":4,"c":5})");
  for (auto [key, value] : json.items()) value = key;
  EXPECT_EQ(json.dump(), R"({"a":"a","c":"c"})");
  EXPECT_EQ(json.back(), "c");
}

// The library's words, which files that are wrong bring into messages.
TEST(Json, WhatIsMissingOrOfAnotherTypeThrows) {
  const auto says = [](const auto& call) {
    try {
      call();
    } catch (const JsonError& error) {
      EXPECT_EQ(error.kind(), JsonError::Kind::kUse);
      return std::string(error.what());
    } catch (const Library::exception& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const Json object = {{"a", 1}}, array = {1};
  const Library their_object = {{"a", 1}}, their_array = {1};
  EXPECT_EQ(says([&] { object.at("b"); }), says([&] { their_object.at("b"); }));
  EXPECT_EQ(says([&] { array.at("b"); }), says([&] { their_array.at("b"); }));
  EXPECT_EQ(says([&] { array.at(1); }), says([&] { their_array.at(1); }));
  EXPECT_EQ(says([&] { object.at(0); }), says([&] { their_object.at(0); }));
  EXPECT_EQ(says([&] { array.value("b", Json()); }), says([&] { their_array.value("b", Library()); }));
  EXPECT_EQ(says([&] { object.get<std::string>(); }), says([&] { their_object.get<std::string>(); }));
  EXPECT_EQ(says([&] { object.get<bool>(); }), says([&] { their_object.get<bool>(); }));
  EXPECT_EQ(says([&] { array.get<int>(); }), says([&] { their_array.get<int>(); }));
  EXPECT_EQ(says([&] { Json("x").get<double>(); }), says([&] { Library("x").get<double>(); }));
  EXPECT_EQ(says([&] { Json(object).push_back(1); }), says([&] { Library(their_object).push_back(1); }));
  EXPECT_EQ(says([] { Json(1)["x"]; }), says([] { Library(1)["x"]; }));
  EXPECT_EQ(says([&] { Json(array).update(object); }), says([&] { Library(their_array).update(their_object); }));
  EXPECT_EQ(says([&] { Json(object).update(array); }), says([&] { Library(their_object).update(their_array); }));
  EXPECT_THAT(says([&] { object["b"]; }), HasSubstr("key 'b' not found"));
  EXPECT_THAT(says([&] { array[1]; }), HasSubstr("array index 1"));
  EXPECT_THAT(says([&] { Json().back(); }), HasSubstr("no last"));
}

TEST(Json, DeepDocumentsAreDestroyedWithoutTheStack) {
  constexpr std::size_t kDepth = 300000;
  std::string text;
  for (std::size_t i = 0; i < kDepth; ++i) text += i % 2 == 0 ? "[1," : "{\"a\":";
  text += "0";
  for (std::size_t i = kDepth; i > 0; --i) text += i % 2 == 1 ? "]" : "}";
  EXPECT_EQ(Json::parse(text).size(), 2u);
  EXPECT_THROW(Json::parse(text.substr(0, text.size() - 1)), JsonError);
}

class Log : public JsonWatcher {
 public:
  void begin(int depth, bool object) override { text += std::to_string(depth) + (object ? "{" : "["); }
  void end(int depth, bool object) override { text += std::to_string(depth) + (object ? "}" : "]"); }
  void key(int depth, const std::string& key) override { text += std::to_string(depth) + key + ":"; }
  void value(int depth) override { text += std::to_string(depth) + "v"; }
  std::string text;
};

TEST(Json, AWatcherSeesWhatOpensAndCloses) {
  Log log;
  Json::parse(R"({"a": [1, {"b": null}], "c": {}})", &log);
  EXPECT_EQ(log.text, "0{1a:1[2v2{3b:3v2}1]1c:1{1}0}");
}

// Paths as the library's patches have them.
TEST(Json, DifferencesAreTheLibrarysPatches) {
  const auto text_at = [](const Library& json, const std::string& path) {
    const Library::json_pointer at(path);
    return json.contains(at) ? json.at(at).dump() : "nothing";
  };
  int checked = 0;
  for (std::uint64_t item = 0; item < 2000; ++item) {
    Rng rng(4, 0, item);
    const Library have = Library::parse(random_twins(rng, 4).theirs.dump(-1, ' ', false, Replace::replace));
    Library want = have;
    const Library flat = have.is_structured() ? have.flatten() : Library::object();
    for (const auto& step : flat.items()) {
      if (rng.below(3) != 0 || !want.contains(Library::json_pointer(step.key()))) continue;
      want[Library::json_pointer(step.key())] =
          Library::parse(random_twins(rng, 2).theirs.dump(-1, ' ', false, Replace::replace));
    }
    const std::vector<JsonDifference> found = json_differences(Json::parse(have.dump()), Json::parse(want.dump()));
    const Library patch = Library::diff(have, want);
    ASSERT_EQ(found.size(), patch.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto path = patch[i]["path"].get<std::string>();
      ASSERT_EQ(found[i].path, path);
      ASSERT_EQ(found[i].have, text_at(have, path));
      ASSERT_EQ(found[i].want, text_at(want, path));
      ++checked;
    }
  }
  EXPECT_GT(checked, 500);
}

TEST(JsonElements, AreTheDocumentsInPieces) {
  const auto pieces = [](const std::string& text, Json* rest) {
    Json elements = Json::array();
    *rest = Json::parse_elements(text, "rows", [&](const Json& element) { elements.push_back(element); });
    return elements;
  };
  Json rest;
  // Whole elements, of any kind; an array of that name elsewhere is none of them.
  const std::string rows = R"([1, {"rows": [2, [3]]}, [], null, "a", {"b": {"rows": []}}])";
  EXPECT_EQ(pieces(R"({"a": [7, 8], "rows": )" + rows + R"(, "z": {"rows": [9]}})", &rest), Json::parse(rows));
  EXPECT_EQ(rest, Json::parse(R"({"a": [7, 8], "rows": [], "z": {"rows": [9]}})"));
  EXPECT_EQ(pieces(rows, &rest), Json::parse(rows));
  EXPECT_EQ(rest, Json::array());
  EXPECT_EQ(pieces(R"({"rows": {"rows": [1]}})", &rest), Json::array());
  EXPECT_EQ(rest, Json::parse(R"({"rows": {"rows": [1]}})"));
  EXPECT_EQ(pieces("5", &rest), Json::array());
  EXPECT_EQ(rest, Json(5));
  // What comes before an error was handed over.
  int seen = 0;
  try {
    Json::parse_elements(R"({"rows": [1, 2, x]})", "rows", [&](const Json&) { ++seen; });
    ADD_FAILURE();
  } catch (const JsonError& error) {
    EXPECT_EQ(error.byte(), 17u);
  }
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace automap
