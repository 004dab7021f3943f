// Reads JSON documents strictly: an error names the source, the path, the value found and the value expected.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/json.h"

namespace automap {

// The name of a document in errors, the kind of those errors, and the hint when it is no JSON at all.
struct JsonSource {
  std::string name;  // "cluster.json"
  ErrorKind kind = ErrorKind::kData;
  std::string hint;
};

// The document; a byte order mark before it is skipped. Throws Error(source.kind): no JSON ("name:line:column"), more
// than 16 levels deep, a key given twice in one object.
Json parse_json(std::string_view text, const JsonSource& source);
// The same of Json::parse_elements. Of a key given twice in an element the last one counts: nobody writes them by hand.
Json parse_json_elements(std::string_view text, const JsonSource& source, std::string_view key,
                         const std::function<void(const Json&)>& each);

// A value of a document and its path: "cluster.json: servers[0].devices: found 0, expected ...". Source and value must
// outlive it.
class JsonValue {
 public:
  JsonValue(const Json& value, const JsonSource& source, std::string path = "")
      : value_(&value), source_(&source), path_(std::move(path)) {}

  const Json& json() const { return *value_; }

  // Keys of an object. Throw when this is none; at() also when the key is missing.
  bool has(const char* key) const;  // present and not null
  JsonValue at(const char* key) const;
  std::vector<std::pair<std::string, JsonValue>> members() const;
  // Every key is one of these; else the error names the nearest and all of them.
  void only_keys(const std::vector<std::string>& known) const;
  // The object's "schema" must be `prefix` and a whole number up to `newest`, which is returned; `what` names such a
  // document: "a cluster file". Without the key: `absent`, or an error when that is 0.
  int schema(const std::string& prefix, int newest, const std::string& what, int absent = 0) const;

  std::vector<JsonValue> items() const;  // of an array

  // Numbers in [smallest, largest] of a size that in_file_range() allows; `what` describes them in errors: "a number of
  // GB/s above 0".
  double number(double smallest, double largest, const std::string& what) const;
  double positive(const std::string& unit) const;      // above 0
  double not_negative(const std::string& unit) const;  // at least 0
  std::int64_t integer(std::int64_t smallest, std::int64_t largest) const;
  bool boolean() const;
  std::string text() const;

  // "found <value>, expected <expected>".
  [[noreturn]] void wrong(const std::string& expected, const std::string& hint = "") const;
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;

 private:
  void require_range(double value) const;
  std::string child(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

  const Json* value_;
  const JsonSource* source_;
  std::string path_;
};

}  // namespace automap
