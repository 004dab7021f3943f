#include "plan/emit/quote.h"

#include <algorithm>
#include <cctype>

#include "common/base/json.h"

namespace automap::emit {

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string("_-+=./:,@%").find(c) != std::string::npos;
  });
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

std::string toml_literal(const std::string& text) {
  // JSON's escapes are TOML's too; DEL alone is written as it is in JSON, and not allowed in TOML.
  std::string out;
  for (const char c : Json(text).dump(-1, Json::BadUtf8::kReplace)) {
    out += c == '\x7f' ? std::string("\\u007f") : std::string(1, c);
  }
  return out;
}

}  // namespace automap::emit
