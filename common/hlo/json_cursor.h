// A pull reader of JSON text: no tree in memory, no recursion, and every error has a line and a column.
//
//   JsonCursor json(text, "model.json", &arena);
//   std::string_view key;
//   for (json.enter_object(); json.next_key(&key);) {
//     if (key == "name") name = json.string(); else json.skip();
//   }
//   json.end_document();
//
// Strict JSON (RFC 8259) of UTF-8 bytes; a leading byte order mark is ignored. Everything wrong throws Error(kData):
// source:line:column, the text found, and the text expected.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace automap::hlo {

class JsonCursor {
 public:
  enum class Kind { kObject, kArray, kString, kNumber, kBool, kNull };

  // `text` and `arena` must outlive the views returned; strings with escapes go into `arena`.
  JsonCursor(std::string_view text, std::string source, std::deque<std::string>* arena);

  // The kind of the next value, without reading it.
  Kind peek();
  static const char* name(Kind kind);

  void enter_object();
  // Reads the next key and its colon; false when the object ends (the cursor stands behind it).
  bool next_key(std::string_view* key);
  void enter_array();
  // False when the array ends.
  bool next_element();

  std::string_view string();  // decoded
  std::string_view number();  // as written
  bool boolean();
  void null();
  // One value of any kind. Its bytes.
  std::string_view skip();
  // Nothing but blanks may follow.
  void end_document();

  // The place where the next token starts.
  std::size_t position();
  void go_to(std::size_t position);  // a position returned before, for another look

  [[noreturn]] void fail_at(std::size_t position, const std::string& message, const std::string& hint = "") const;
  [[noreturn]] void fail_expected(const std::string& expected);
  const std::string& source() const { return source_; }

 private:
  void skip_blanks();
  char next_char();
  std::string_view scan_string();
  std::string found();

  std::string_view text_;
  std::string source_;
  std::deque<std::string>* arena_;
  std::size_t at_ = 0;
  bool first_ = false;  // directly behind '{' or '['
};

// "source:line:column" of a byte in `text`, both from 1; columns count bytes.
std::string place_in(std::string_view text, std::size_t position, const std::string& source);

}  // namespace automap::hlo
