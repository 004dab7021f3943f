#include "common/base/json_text.h"

#include "common/base/json.h"
#include "common/base/printable.h"

namespace automap {

std::string json_text(const Json& document, int indent) {
  return printable_json(document.dump(indent, Json::BadUtf8::kReplace)) + "\n";
}

std::string python_literal(const std::string& text) {
  // JSON's literals are Python's, as long as nothing is written as a pair of surrogates: printable() writes none.
  return printable(Json(text).dump(-1, Json::BadUtf8::kReplace));
}

}  // namespace automap
