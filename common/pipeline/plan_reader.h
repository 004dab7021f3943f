// What the readers of all kinds of plans share: the JSON document with its schema checked, and its values with
// complaints that name source, key, what was found and what was expected.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace automap::pipeline {

using PlanJson = nlohmann::ordered_json;

// Pipeline plans are of version 2 (version 1 is read, too), plans of the kinds operator and data of version 1.
constexpr const char* kPlanSchema = "automap.plan/1";
constexpr const char* kPipelinePlanSchema = "automap.plan/2";
constexpr std::uint64_t kMaxPlanBytes = 64 << 20;

// Throws Error(kData) naming `source`: not JSON, nested too deeply, a key given twice in one object.
PlanJson parse_strict_json(std::string_view json_text, const std::string& source);
// The same, and: no object, another schema, a newer version (says so by name).
PlanJson parse_plan_json(std::string_view json_text, const std::string& source);

// The values of one JSON object.
class PlanObject {
 public:
  // `object` must stay alive; `where` is what complaints start with. Throws when it is no object.
  PlanObject(const PlanJson& object, std::string where);

  // Present and not null.
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const PlanJson& at(const char* key) const;
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
  // Finite and not negative: every quantity of a plan is a time, a size or a share.
  double number(const char* key) const;
  double number_or_zero(const char* key) const { return has(key) ? number(key) : 0; }
  const PlanJson& array(const char* key) const;

  // The value `found` of `key` is not what it should be.
  [[noreturn]] void wrong(const std::string& key, const PlanJson& found, const std::string& expected) const;
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;
  int integer_of(const PlanJson& value, const char* key, int smallest, int largest) const;

 private:
  const PlanJson& object_;
  std::string where_;
};

// "provenance": an object of texts; values of other types come as their JSON.
std::vector<std::pair<std::string, std::string>> read_provenance(const PlanObject& plan);

}  // namespace automap::pipeline
