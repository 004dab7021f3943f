#include "common/base/json_object.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "common/base/printable.h"

namespace automap {
JsonObject::JsonObject(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) fail("found " + std::string(object_.type_name()) + ", expected an object");
}

const Json& JsonObject::at(const char* key) const {
  if (!object_.contains(key)) fail("missing key \"" + std::string(key) + "\"");
  return object_.at(key);
}

std::string JsonObject::text(const char* key) const {
  const Json& value = at(key);
  if (!value.is_string()) wrong(key, value, "a string");
  return value.get<std::string>();
}

bool JsonObject::flag(const char* key) const {
  return has(key) && at(key) == Json(true);
}

std::vector<int> JsonObject::integers(const char* key, int smallest, int largest) const {
  std::vector<int> out;
  for (const Json& item : array(key)) out.push_back(integer_of(item, key, smallest, largest));
  return out;
}

std::vector<std::string> JsonObject::texts(const char* key) const {
  std::vector<std::string> out;
  for (const Json& item : array(key)) {
    if (!item.is_string()) wrong(key, item, "strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

double JsonObject::number(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
    wrong(key, value, "a number of at least 0");
  }
  return value.get<double>();
}

const Json& JsonObject::array(const char* key) const {
  const Json& value = at(key);
  if (!value.is_array()) wrong(key, value, "an array");
  return value;
}

void JsonObject::wrong(const std::string& key, const Json& found, const std::string& expected) const {
  const std::string shown = excerpt(found.dump(-1, Json::BadUtf8::kReplace), 60);
  throw Error(ErrorKind::kData, where_ + ": " + key + ": found " + shown + ", expected " + expected);
}

void JsonObject::fail(const std::string& what, const std::string& hint) const {
  throw Error(ErrorKind::kData, where_ + ": " + what, hint);
}

int JsonObject::integer_of(const Json& value, const char* key, int smallest, int largest) const {
  if (!value.is_number_integer() || value.get<double>() < smallest || value.get<double>() > largest) {
    wrong(key, value, "a whole number from " + std::to_string(smallest) + " to " + std::to_string(largest));
  }
  return value.get<int>();
}

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json or_null(const std::optional<double>& number) {
  return number ? Json(*number) : Json();
}

std::int64_t whole_bytes(double bytes) {
  return static_cast<std::int64_t>(std::ceil(std::min(bytes, 9e18)));
}

}  // namespace automap
