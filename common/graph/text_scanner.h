// A scanner of an attribute's short text. It skips blanks between words, and comments (/*index=5*/) where the text may
// have them. Callers report what they expected.
#pragma once

#include <cctype>
#include <cstddef>
#include <string_view>

namespace automap::graph::internal {

class TextScanner {
 public:
  explicit TextScanner(std::string_view text, bool comments = false) : text_(text), comments_(comments) {}

  void skip_blanks() {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
      if (!comments_ || text_.substr(at_, 2) != "/*") return;
      const std::size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
    }
  }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  bool peek(char c) {
    skip_blanks();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    skip_blanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  // Letters, digits and '_'; empty: there are none.
  std::string_view word() {
    skip_blanks();
    const std::size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    return text_.substr(start, at_ - start);
  }

 protected:
  std::string_view text_;
  std::size_t at_ = 0;

 private:
  bool comments_;
};

}  // namespace automap::graph::internal
