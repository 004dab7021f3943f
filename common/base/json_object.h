// The values of JSON objects by their keys, for data files: plans. Parsing and other documents: json_reader.h; writing:
// json_text.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"

namespace automap {

// The values of one JSON object.
class JsonObject {
 public:
  // `object` must stay alive; errors begin with `where`. Throws when `object` is no object.
  JsonObject(const Json& object, std::string where);

  // Present and not null.
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const Json& at(const char* key) const;
  std::string where(const char* key) const { return where_ + ": " + key; }

  std::string text(const char* key) const;
  std::string text_or_empty(const char* key) const { return has(key) ? text(key) : ""; }
  bool flag(const char* key) const;  // absent: false
  int integer(const char* key, int smallest, int largest) const { return integer_of(at(key), key, smallest, largest); }
  int integer_or(const char* key, int smallest, int largest, int absent) const {
    return has(key) ? integer(key, smallest, largest) : absent;
  }
  std::vector<int> integers(const char* key, int smallest, int largest) const;
  std::vector<std::string> texts(const char* key) const;
  // Finite and not negative: a time, a size or a share.
  double number(const char* key) const;
  double number_or_zero(const char* key) const { return has(key) ? number(key) : 0; }
  std::optional<double> number_if_any(const char* key) const {
    return has(key) ? std::optional<double>(number(key)) : std::nullopt;
  }
  const Json& array(const char* key) const;

  // The value `found` of `key` is not what it should be.
  [[noreturn]] void wrong(const std::string& key, const Json& found, const std::string& expected) const;
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;
  int integer_of(const Json& value, const char* key, int smallest, int largest) const;

 private:
  const Json& object_;
  std::string where_;
};

// The form of optional texts and byte counts: null for none; whole bytes, rounded up so that a file never promises too
// much room.
Json or_null(const std::string& text);
Json or_null(const std::optional<double>& number);
std::int64_t whole_bytes(double bytes);

}  // namespace automap
