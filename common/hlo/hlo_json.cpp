#include "common/hlo/hlo_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <system_error>

#include "common/base/printable.h"

namespace automap::hlo::proto {

namespace {

using Kind = JsonCursor::Kind;

// Base64 with either alphabet; false on anything else.
bool decode_base64(std::string_view text, std::string* out) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  out->reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    std::uint32_t v = 0;
    if (c >= 'A' && c <= 'Z') {
      v = static_cast<std::uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      v = static_cast<std::uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      v = static_cast<std::uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '-') {
      v = 62;
    } else if (c == '/' || c == '_') {
      v = 63;
    } else {
      return false;
    }
    bits = (bits << 6) | v;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out->push_back(static_cast<char>((bits >> count) & 0xff));
    }
  }
  return count < 6;
}

class JsonDecoder {
 public:
  JsonDecoder(JsonCursor* json, std::size_t input_bytes, Strings* strings, std::vector<std::string>* unknown_types)
      : json_(*json), strings_(*strings), unknown_types_(*unknown_types), budget_(input_bytes) {}

  void message(const Schema& schema, void* out, int depth) {
    if (depth > kMaxMessageDepth) {
      fail_here(std::string(schema.message) + " nested more than " + std::to_string(kMaxMessageDepth) + " levels deep");
    }
    expect(Kind::kObject, schema.message, "");
    json_.enter_object();
    std::string_view key;
    while (json_.next_key(&key)) {
      const Field* field = schema.find(key);
      if (field == nullptr) {
        json_.skip();
      } else if (json_.peek() == Kind::kNull) {
        json_.null();
      } else if (field->string_map) {
        string_map(*field, schema, field->member(out));
      } else if (!field->repeated) {
        value(*field, schema, field->member(out), depth);
      } else {
        expect(Kind::kArray, schema.message, field->name);
        json_.enter_array();
        while (json_.next_element()) value(*field, schema, field->member(out), depth);
      }
    }
  }

 private:
  void value(const Field& field, const Schema& schema, void* member, int depth) {
    switch (field.store) {
      case Store::kMessage: {
        const Schema& sub = field.message_schema();
        if (field.repeated) spend(sub.bytes);
        message(sub, field.add_message(member), depth + 1);
        return;
      }
      case Store::kText: *static_cast<std::string_view*>(member) = text(field, schema); return;
      case Store::kTexts:
        spend(sizeof(std::string_view));
        static_cast<std::vector<std::string_view>*>(member)->push_back(text(field, schema));
        return;
      case Store::kInt64: *static_cast<std::int64_t*>(member) = integer(field, schema); return;
      case Store::kInt32: {
        const std::int64_t v = integer(field, schema);
        // Enum numbers and bit counts: a number that does not fit is as unknown as any other.
        *static_cast<std::int32_t*>(member) = static_cast<std::int32_t>(std::clamp<std::int64_t>(
            v, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
        return;
      }
      case Store::kBool: *static_cast<bool*>(member) = integer(field, schema) != 0; return;
      case Store::kDouble: *static_cast<double*>(member) = real(field, schema); return;
      case Store::kInts: {
        auto& values = *static_cast<Ints*>(member);
        const std::int64_t v = integer(field, schema);
        if (!field.literal_data || values.size() <= kMaxLiteralElements) values.push_back(v);
        return;
      }
      case Store::kDoubles: {
        auto& values = *static_cast<std::vector<double>*>(member);
        const double v = real(field, schema);
        if (!field.literal_data || values.size() <= kMaxLiteralElements) values.push_back(v);
        return;
      }
    }
  }

  void string_map(const Field& field, const Schema& schema, void* member) {
    expect(Kind::kObject, schema.message, field.name);
    auto& entries = *static_cast<std::vector<MapEntry>*>(member);
    json_.enter_object();
    std::string_view key;
    while (json_.next_key(&key)) {
      spend(sizeof(MapEntry));
      expect(Kind::kString, schema.message, field.name);
      entries.push_back({key, json_.string()});
    }
  }

  std::string_view text(const Field& field, const Schema& schema) {
    expect(Kind::kString, schema.message, field.name);
    const std::size_t at = json_.position();
    const std::string_view s = json_.string();
    if (field.wire != Wire::kBytes || s.empty()) return s;
    std::string bytes;
    if (!decode_base64(s, &bytes)) {
      json_.fail_at(at, describe(schema.message, field.name) + " is not base64, which JSON needs for bytes");
    }
    strings_.push_back(std::move(bytes));
    return strings_.back();
  }

  std::int64_t integer(const Field& field, const Schema& schema) {
    const std::size_t at = json_.position();
    const Kind kind = json_.peek();
    if (kind == Kind::kBool) {
      if (field.wire != Wire::kBool) expect(Kind::kNumber, schema.message, field.name);
      return json_.boolean() ? 1 : 0;
    }
    std::string_view s;
    if (kind == Kind::kString) {
      s = json_.string();
    } else {
      expect(Kind::kNumber, schema.message, field.name);
      s = json_.number();
    }
    if (field.wire == Wire::kBool && (s == "true" || s == "false")) return s == "true" ? 1 : 0;
    if (field.wire == Wire::kEnum && kind == Kind::kString && !s.empty() && !(s[0] >= '0' && s[0] <= '9')) {
      return enumerator(s, field, schema, at);
    }
    std::int64_t value = 0;
    const char* const end = s.data() + s.size();
    const auto parsed = std::from_chars(s.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end) return value;
    std::uint64_t bits = 0;
    const auto unsigned_parsed = std::from_chars(s.data(), end, bits);
    if (unsigned_parsed.ec == std::errc() && unsigned_parsed.ptr == end) return static_cast<std::int64_t>(bits);
    // "1e3" and "2.0" are integers, too.
    double d = 0;
    if (parse_double(s, &d) && d == std::floor(d) && std::abs(d) < 9e18) return static_cast<std::int64_t>(d);
    json_.fail_at(at, describe(schema.message, field.name) + ": found '" + shown(s) + "', expected " +
                          (field.wire == Wire::kBool ? "true or false" : "an integer of 64 bits"));
  }

  std::int64_t enumerator(std::string_view name, const Field& field, const Schema& schema, std::size_t at) {
    for (const EnumValue* v = field.enum_values.begin; v != field.enum_values.end; ++v) {
      if (v->name == name) return v->number;
    }
    if (field.name != "element_type") return -1;  // a value of the future
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (c >= 'a' && c <= 'z');
    });
    if (!plain || name.size() > 64) {
      json_.fail_at(at, describe(schema.message, field.name) + ": found '" + shown(name) +
                            "', expected the name of an element type, such as F32");
    }
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    const auto known = std::find(unknown_types_.begin(), unknown_types_.end(), lower);
    if (known != unknown_types_.end()) return kFirstUnknownType + (known - unknown_types_.begin());
    if (unknown_types_.size() == 256) json_.fail_at(at, "more than 256 unknown element types");
    unknown_types_.push_back(std::move(lower));
    return kFirstUnknownType + static_cast<std::int64_t>(unknown_types_.size()) - 1;
  }

  double real(const Field& field, const Schema& schema) {
    const std::size_t at = json_.position();
    std::string_view s;
    if (json_.peek() == Kind::kString) {
      s = json_.string();
      if (s == "NaN") return std::numeric_limits<double>::quiet_NaN();
      if (s == "Infinity") return std::numeric_limits<double>::infinity();
      if (s == "-Infinity") return -std::numeric_limits<double>::infinity();
    } else {
      expect(Kind::kNumber, schema.message, field.name);
      s = json_.number();
    }
    double d = 0;
    if (!parse_double(s, &d)) {
      json_.fail_at(at, describe(schema.message, field.name) + ": found '" + shown(s) + "', expected a number");
    }
    return d;
  }

  static bool parse_double(std::string_view s, double* value) {
    if (s.empty() || s.size() > 400) return false;
    const std::string copy(s);
    char* end = nullptr;
    *value = std::strtod(copy.c_str(), &end);
    return end == copy.c_str() + copy.size() && (copy[0] == '-' || (copy[0] >= '0' && copy[0] <= '9'));
  }

  static std::string shown(std::string_view s) { return excerpt(s, 40); }

  static std::string describe(std::string_view message, std::string_view field) {
    return std::string(message) + (field.empty() ? "" : "." + std::string(field));
  }

  void expect(Kind kind, std::string_view message, std::string_view field) {
    const Kind found = json_.peek();
    if (found == kind) return;
    fail_here(describe(message, field) + ": found " + JsonCursor::name(found) + ", expected " + JsonCursor::name(kind));
  }
  [[noreturn]] void fail_here(const std::string& text) { json_.fail_at(json_.position(), text); }
  void spend(std::size_t bytes) {
    if (!budget_.take(bytes)) fail_here("far more messages than a module of this size can hold");
  }

  JsonCursor& json_;
  Strings& strings_;
  std::vector<std::string>& unknown_types_;
  Budget budget_;
};

// The positions of the objects that have a key "computations", nearest to the outside first; `keys` gets the keys of
// the outermost object, for the error message.
std::vector<std::size_t> find_json_modules(JsonCursor* json, std::vector<std::string>* keys) {
  constexpr int kMaxWrappers = 3;
  std::vector<std::size_t> level = {json->position()};
  for (int depth = 0; depth <= kMaxWrappers && !level.empty(); ++depth) {
    std::vector<std::size_t> modules, next;
    for (const std::size_t at : level) {
      json->go_to(at);
      bool is_module = false;
      std::vector<std::size_t> inner;
      std::string_view key;
      json->enter_object();
      while (json->next_key(&key)) {
        if (depth == 0 && keys->size() < 8) keys->emplace_back(key);
        if (key == "computations") is_module = true;
        const Kind kind = json->peek();
        if (kind == Kind::kObject) inner.push_back(json->position());
        if (kind == Kind::kArray && depth < kMaxWrappers && key != "computations") {
          // A module group: an array of objects, each a candidate.
          json->enter_array();
          while (json->next_element()) {
            if (json->peek() == Kind::kObject && inner.size() < 1024) inner.push_back(json->position());
            json->skip();
          }
          continue;
        }
        json->skip();
      }
      if (depth == 0) json->end_document();
      if (is_module) modules.push_back(at);
      next.insert(next.end(), inner.begin(), inner.end());
    }
    if (!modules.empty()) return modules;
    level = std::move(next);
  }
  return {};
}

}  // namespace

HloModuleProto decode_json(std::string_view text, const std::string& source, Strings* strings,
                           std::vector<std::string>* unknown_types) {
  JsonCursor json(text, source, strings);
  const std::size_t begin = json.position();
  if (json.peek() != Kind::kObject) json.fail_expected("'{' of an HloProto");
  std::vector<std::string> keys;
  const std::vector<std::size_t> modules = find_json_modules(&json, &keys);
  if (modules.empty()) {
    std::string found;
    for (const std::string& key : keys) found += (found.empty() ? "" : ", ") + key;
    json.fail_at(begin,
                 "no HLO module in this JSON: no object with \"computations\"" +
                     (found.empty() ? std::string() : "; its keys are " + found),
                 "accepted are HloProto and HloModuleProto as proto3 JSON, and AST dumps with \"Functions\"");
  }
  if (modules.size() > 1) {
    json.fail_at(modules[1], "a second HLO module; the first is at " + place_in(text, modules[0], source),
                 "give one module per file");
  }
  json.go_to(modules[0]);
  HloModuleProto module;
  JsonDecoder(&json, text.size(), strings, unknown_types).message(module_schema(), &module, 0);
  return module;
}

}  // namespace automap::hlo::proto
