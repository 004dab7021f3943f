#include "common/base/json_text.h"

#include <nlohmann/json.hpp>

#include "common/base/printable.h"

namespace automap {
namespace {

template <typename Json>
std::string text_of(const Json& document, int indent) {
  return printable_json(document.dump(indent, ' ', false, Json::error_handler_t::replace)) + "\n";
}

}  // namespace

std::string json_text(const nlohmann::ordered_json& document, int indent) {
  return text_of(document, indent);
}
std::string json_text(const nlohmann::json& document, int indent) {
  return text_of(document, indent);
}

std::string python_literal(const std::string& text) {
  // JSON's literals are Python's, as long as nothing is written as a pair of surrogates: printable() writes none.
  return printable(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace automap
