#include "common/base/json_reader.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/join.h"
#include "common/base/number_range.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"

namespace automap {
namespace {

constexpr int kMaxDepth = 16;
constexpr int kMostShown = 60;                // columns of a value in an error
constexpr std::size_t kLongestGuessed = 100;  // a longer key is no misspelling of ours

std::string describe(const Json& value) {
  return excerpt(value.dump(-1, Json::BadUtf8::kReplace), kMostShown);
}

// "3:14": line and column of a byte offset, both from 1.
std::string line_and_column(std::string_view text, std::size_t offset) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < std::min(offset, text.size()); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return std::to_string(line) + ":" + std::to_string(column);
}

class Checks : public JsonWatcher {
 public:
  Checks(const JsonSource& source, bool keys) : source_(source), with_keys_(keys) {}

  void begin(int depth, bool object) override {
    if (depth >= kMaxDepth) {
      throw Error(source_.kind, source_.name + ": nested deeper than " + std::to_string(kMaxDepth) + " levels",
                  source_.hint);
    }
    if (object && with_keys_) keys_.emplace_back();
  }
  void end(int, bool object) override {
    if (object && with_keys_) keys_.pop_back();
  }
  // A key given twice is a mistake that a JSON library silently accepts; nested keys are told apart by depth.
  void key(int, const std::string& key) override {
    if (!with_keys_ || keys_.back().insert(key).second) return;
    throw Error(source_.kind, source_.name + ": key " + describe(key) + " is given twice in one object");
  }

 private:
  const JsonSource& source_;
  const bool with_keys_;
  std::vector<std::set<std::string>> keys_;
};

// What `parse` makes of the text; of it what is wrong as an Error.
template <typename Parse>
Json parsed(std::string_view text, const JsonSource& source, const Parse& parse) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  try {
    return parse(text);
  } catch (const JsonError& error) {
    if (error.kind() != JsonError::Kind::kSyntax) {
      throw Error(source.kind, source.name + ": not JSON that can be read: " + error.what(), source.hint);
    }
    // The library's "[json.exception...] parse error at line 1, column 2: reason": keep the reason, count ourselves.
    std::string reason = error.what();
    const std::size_t colon = reason.find(": ");
    if (colon != std::string::npos) reason = reason.substr(colon + 2);
    throw Error(
        source.kind,
        source.name + ":" + line_and_column(text, error.byte() == 0 ? 0 : error.byte() - 1) + ": not JSON: " + reason,
        source.hint);
  }
}

}  // namespace

Json parse_json(std::string_view text, const JsonSource& source) {
  Checks checks(source, true);
  return parsed(text, source, [&](std::string_view json) { return Json::parse(json, &checks); });
}

Json parse_json_elements(std::string_view text, const JsonSource& source, std::string_view key,
                         const std::function<void(const Json&)>& each) {
  Checks checks(source, false);
  return parsed(text, source, [&](std::string_view json) { return Json::parse_elements(json, key, each, &checks); });
}

bool JsonValue::has(const char* key) const {
  if (!value_->is_object()) wrong("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonValue JsonValue::at(const char* key) const {
  if (!value_->is_object()) wrong("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) JsonValue(*value_, *source_, child(key)).fail("missing");
  return JsonValue(*found, *source_, child(key));
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  if (!value_->is_object()) wrong("an object");
  std::vector<std::pair<std::string, JsonValue>> out;
  for (const auto& [key, value] : value_->items()) out.emplace_back(key, JsonValue(value, *source_, child(key)));
  return out;
}

void JsonValue::only_keys(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : members()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string guess = key.size() > kLongestGuessed ? "" : closest_name(key, known);
    value.fail("unknown key", (guess.empty() ? "" : "did you mean " + guess + "? ") + "known keys: " + join(known));
  }
}

int JsonValue::schema(const std::string& prefix, int newest, const std::string& what, int absent) const {
  if (absent > 0 && value_->is_object() && !value_->contains("schema")) return absent;
  const JsonValue schema = at("schema");
  const std::string found = schema.text();
  const std::string expected = "\"" + prefix + std::to_string(newest) + "\"";
  if (found.rfind(prefix, 0) != 0) schema.wrong(expected, "this is not " + what);
  const std::string version = found.substr(prefix.size());
  for (int number = 1; number <= newest; ++number) {
    if (version == std::to_string(number)) return number;
  }
  const bool newer = !version.empty() && version.find_first_not_of("0123456789") == std::string::npos && version != "0";
  schema.wrong("at most " + expected, newer ? "it was written for a newer version of AutoMap" : "");
}

std::vector<JsonValue> JsonValue::items() const {
  if (!value_->is_array()) wrong("an array");
  std::vector<JsonValue> out;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    out.emplace_back((*value_)[i], *source_, path_ + "[" + std::to_string(i) + "]");
  }
  return out;
}

void JsonValue::require_range(double value) const {
  if (!in_file_range(value)) wrong(std::string("a number whose size is ") + kFileRange);
}

double JsonValue::number(double smallest, double largest, const std::string& what) const {
  const double value = value_->is_number() ? value_->get<double>() : std::nan("");
  if (!std::isfinite(value) || !(value >= smallest && value <= largest)) wrong(what);
  require_range(value);
  return value;
}

double JsonValue::positive(const std::string& unit) const {
  const double value = value_->is_number() ? value_->get<double>() : std::nan("");
  if (!(std::isfinite(value) && value > 0)) wrong("a number of " + unit + " above 0");
  require_range(value);
  return value;
}

double JsonValue::not_negative(const std::string& unit) const {
  const double value = value_->is_number() ? value_->get<double>() : std::nan("");
  if (!(std::isfinite(value) && value >= 0)) wrong("a number of " + unit + " of at least 0");
  require_range(value);
  return value;
}

std::int64_t JsonValue::integer(std::int64_t smallest, std::int64_t largest) const {
  const double value = value_->is_number() ? value_->get<double>() : std::nan("");
  // 4.0 is as good as 4: some writers know one kind of number.
  if (!(value == std::floor(value) && value >= static_cast<double>(smallest) &&
        value <= static_cast<double>(largest))) {
    wrong("a whole number from " + std::to_string(smallest) + " to " + std::to_string(largest));
  }
  return static_cast<std::int64_t>(value);
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) wrong("true or false");
  return value_->get<bool>();
}

std::string JsonValue::text() const {
  if (!value_->is_string()) wrong("a string");
  return value_->get<std::string>();
}

void JsonValue::wrong(const std::string& expected, const std::string& hint) const {
  fail("found " + describe(*value_) + ", expected " + expected, hint);
}

void JsonValue::fail(const std::string& what, const std::string& hint) const {
  throw Error(source_->kind, source_->name + ": " + (path_.empty() ? "" : path_ + ": ") + what, hint);
}

}  // namespace automap
