#include "common/io/profile_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/number_range.h"
#include "common/base/printable.h"
#include "common/io/file_errors.h"
#include "common/io/profile_columns.h"
#include "common/io/profile_file.h"

namespace automap::io {
namespace {

using pipeline::Profile;

std::string number_text(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string csv_field(const std::string& value) {
  const bool plain = value.find_first_of(",\"\r\n") == std::string::npos &&
                     (value.empty() || (value.front() != ' ' && value.front() != '\t' && value.front() != '#' &&
                                        value.back() != ' ' && value.back() != '\t'));
  if (plain) return value;
  std::string quoted = "\"";
  for (char c : value) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

// One line of a comment: backslash, line ends and blanks at the edges escaped.
std::string attribute_text(const std::string& value) {
  std::string text;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const bool edge = i == 0 || i + 1 == value.size();
    switch (value[i]) {
      case '\\': text += "\\\\"; break;
      case '\n': text += "\\n"; break;
      case '\r': text += "\\r"; break;
      case ' ': text += edge ? "\\s" : " "; break;
      case '\t': text += edge ? "\\t" : "\t"; break;
      default: text += value[i];
    }
  }
  return text;
}

std::string attribute_value(std::string_view text) {
  std::string value;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      value += text[i];
      continue;
    }
    switch (text[++i]) {
      case 'n': value += '\n'; break;
      case 'r': value += '\r'; break;
      case 's': value += ' '; break;
      case 't': value += '\t'; break;
      default: value += text[i];
    }
  }
  return value;
}

std::string_view trim_blanks(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string_view without_bom(std::string_view bytes) {
  return bytes.substr(0, 3) == "\xef\xbb\xbf" ? bytes.substr(3) : bytes;
}

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& source) : rest_(without_bom(text)), source_(source) {}

  Profile run() {
    std::vector<std::string> fields;
    while (next_record(fields)) {
      if (columns_.empty()) {
        read_header(fields);
      } else {
        read_row(fields);
      }
    }
    if (columns_.empty()) fail("no header found, expected the columns c_ms, a_bytes, w_bytes, stash_bytes");
    return std::move(profile_);
  }

 private:
  // A column of the file: one of ours, by position in kNumbers or kTexts.
  struct Column {
    std::string name;
    std::vector<double> Profile::*numbers = nullptr;
    std::vector<std::string> Profile::*texts = nullptr;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, source_ + ":" + std::to_string(std::max<std::size_t>(1, record_line_)) + ": " + what,
                kProfileHint);
  }

  std::string_view take_line() {
    const auto end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    ++line_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
  }

  // The fields of the next line with any; comments and blank lines are passed over, quoted fields may span lines.
  bool next_record(std::vector<std::string>& fields) {
    while (!rest_.empty()) {
      record_line_ = line_ + 1;
      if (rest_.front() == '#') {
        read_comment(take_line());
        continue;
      }
      const std::string_view line = rest_.substr(0, rest_.find('\n'));
      if (trim_blanks(line.substr(0, line.find('\r'))).empty()) {
        take_line();
        continue;
      }
      read_fields(fields);
      return true;
    }
    return false;
  }

  void read_fields(std::vector<std::string>& fields) {
    fields.clear();
    constexpr std::size_t kMaxFields = 1024;
    while (true) {
      if (fields.size() == kMaxFields) fail("more than " + std::to_string(kMaxFields) + " fields in a row");
      const auto start = rest_.find_first_not_of(" \t");
      if (start != std::string_view::npos && rest_[start] == '"') {
        rest_.remove_prefix(start);
        fields.push_back(quoted_field());
      } else {
        const std::string_view field = rest_.substr(0, rest_.find_first_of(",\n"));
        rest_.remove_prefix(field.size());
        std::string_view content = field;
        if (!content.empty() && content.back() == '\r' && (rest_.empty() || rest_.front() == '\n')) {
          content.remove_suffix(1);
        }
        fields.emplace_back(trim_blanks(content));
      }
      if (!rest_.empty() && rest_.front() == ',') {
        rest_.remove_prefix(1);
        continue;
      }
      if (!rest_.empty()) rest_.remove_prefix(1);
      ++line_;
      return;
    }
  }

  std::string quoted_field() {
    std::string value;
    std::size_t i = 1;
    for (;; ++i) {
      if (i >= rest_.size()) fail("a quoted field is never closed");
      if (rest_[i] == '"') {
        if (i + 1 < rest_.size() && rest_[i + 1] == '"') {
          value += '"';
          ++i;
          continue;
        }
        break;
      }
      if (rest_[i] == '\n') ++line_;
      value += rest_[i];
    }
    rest_.remove_prefix(i + 1);
    const auto after = rest_.find_first_not_of(" \t\r");
    rest_.remove_prefix(after == std::string_view::npos ? rest_.size() : after);
    if (!rest_.empty() && rest_.front() != ',' && rest_.front() != '\n') {
      fail("found " + shown(rest_.substr(0, rest_.find('\n'))) + " after a quoted field, expected a comma");
    }
    return value;
  }

  // "# key = value"; other comments are free text.
  void read_comment(std::string_view line) {
    line.remove_prefix(1);
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) return;
    const std::string_view key = trim_blanks(line.substr(0, equals));
    const std::string_view value = trim_blanks(line.substr(equals + 1));
    if (key == "schema") check_profile_schema(value, source_ + ":" + std::to_string(record_line_));
    for (const TextAttribute& attribute : kTextAttributes) {
      if (key == attribute.name) profile_.*attribute.value = attribute_value(value);
    }
    for (const NumberAttribute& attribute : kNumberAttributes) {
      if (key == attribute.name) profile_.*attribute.value = number(value, attribute.name);
    }
    if (key == "accumulated_micro_batches") {
      const double turns = number(value, std::string(key));
      if (turns < 1 || turns > std::numeric_limits<std::int32_t>::max() || turns != std::floor(turns))
        fail(std::string(key) + ": found " + shown(value) + ", expected a whole number of at least 1");
      profile_.accumulated_micro_batches = static_cast<std::int32_t>(turns);
    }
  }

  double number(std::string_view text, const std::string& column) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
      fail(column + ": found " + shown(text) + ", expected a number");
    }
    if (!in_file_range(value) || value < 0) {
      fail(column + ": found " + shown(text) + ", expected a finite value of at least 0: " + kFileRange);
    }
    return value;
  }

  void read_header(const std::vector<std::string>& fields) {
    for (const std::string& name : fields) {
      Column column;
      column.name = name;
      for (const NumberColumn& known : kNumbers) {
        if (name == known.name) column.numbers = known.values;
      }
      for (const NumberColumn& known : kMoreNumbers) {
        if (name == known.name) column.numbers = known.values;
      }
      for (const TextColumn& known : kTexts) {
        if (name == known.name) column.texts = known.values;
      }
      if (column.numbers == nullptr && column.texts == nullptr) {
        std::vector<std::string> needed, more;
        for (const NumberColumn& known : kNumbers) needed.emplace_back(known.name);
        for (const NumberColumn& known : kMoreNumbers) more.emplace_back(known.name);
        for (const TextColumn& known : kTexts) more.emplace_back(known.name);
        fail("unknown column " + shown(name) + ", expected " + join(needed) + " and optionally " + join(more));
      }
      for (const Column& other : columns_) {
        if (other.name == name) fail("column " + name + " is given twice");
      }
      columns_.push_back(std::move(column));
    }
    for (const NumberColumn& known : kNumbers) {
      const bool given = std::any_of(columns_.begin(), columns_.end(),
                                     [&](const Column& column) { return column.name == known.name; });
      if (!given) fail(std::string("column ") + known.name + " is missing (write zeros for what is not known)");
    }
  }

  void read_row(const std::vector<std::string>& fields) {
    if (fields.size() != columns_.size()) {
      fail("found " + std::to_string(fields.size()) + " fields, expected " + std::to_string(columns_.size()));
    }
    if (profile_.c_ms.size() == kMaxInstructions) {
      fail("more than " + std::to_string(kMaxInstructions) + " instructions");
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const Column& column = columns_[i];
      if (column.numbers != nullptr) {
        (profile_.*column.numbers).push_back(number(fields[i], column.name));
      } else {
        (profile_.*column.texts).push_back(fields[i]);
      }
    }
  }

  std::string_view rest_;
  const std::string& source_;
  std::size_t line_ = 0;         // lines taken so far
  std::size_t record_line_ = 0;  // where the record being read starts
  std::vector<Column> columns_;
  Profile profile_;
};

}  // namespace

std::string profile_schema(std::int64_t version) {
  return std::string(kProfileSchema) + std::to_string(version);
}

// The version that a schema names.
std::int64_t check_profile_schema(std::string_view schema, const std::string& where) {
  if (schema.substr(0, kProfileSchema.size()) != kProfileSchema) {
    throw Error(ErrorKind::kData,
                where + ": schema is '" + std::string(schema) + "', expected '" + profile_schema() + "'", kProfileHint);
  }
  std::int64_t version = 0;
  const std::string_view digits = schema.substr(kProfileSchema.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), version);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (whole && version >= kOldestProfileVersion && version <= kProfileVersion) return version;
  const bool newer = whole && version > kProfileVersion;
  throw Error(ErrorKind::kData,
              where + ": schema '" + std::string(schema) + "'" +
                  (newer ? " is newer than this program" : " is unknown") + ", which reads '" + profile_schema() + "'",
              newer ? "update AutoMap, or write the profile again with this version" : kProfileHint);
}

bool is_profile_csv(std::string_view bytes) {
  bytes = without_bom(bytes);
  // The header is the first line that is neither blank nor a comment.
  constexpr std::size_t kProbe = std::size_t{1} << 20;
  bytes = bytes.substr(0, kProbe);
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const std::string_view line = trim_blanks(bytes.substr(0, end));
    bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + 1);
    if (line.empty() || line == "\r") continue;
    if (line.front() == '#') {
      if (line.find(kProfileSchema) != std::string_view::npos) return true;
      continue;
    }
    // Some of our columns, by name.
    return line.find("c_ms") != std::string_view::npos || line.find("w_bytes") != std::string_view::npos ||
           line.find("a_bytes") != std::string_view::npos;
  }
  return false;
}

Profile parse_profile_csv(std::string_view text, const std::string& source) {
  return CsvReader(text, source).run();
}

std::string to_csv(const Profile& profile) {
  std::vector<NumberColumn> numbers(kNumbers.begin(), kNumbers.end());
  for (const NumberColumn& column : kMoreNumbers) {
    if (!(profile.*column.values).empty()) numbers.push_back(column);
  }
  // With nothing new it is what it was in the first version, which other programs go on to read.
  const bool old = numbers.size() == kNumbers.size() && profile.accumulated_micro_batches == 1;
  std::string text = "# schema = " + profile_schema(old ? kOldestProfileVersion : kProfileVersion) + "\n";
  for (const TextAttribute& attribute : kTextAttributes) {
    text += std::string("# ") + attribute.name + " = " + attribute_text(profile.*attribute.value) + "\n";
  }
  for (const NumberAttribute& attribute : kNumberAttributes) {
    text += std::string("# ") + attribute.name + " = " + number_text(profile.*attribute.value) + "\n";
  }
  if (profile.accumulated_micro_batches != 1) {
    text += "# accumulated_micro_batches = " + std::to_string(profile.accumulated_micro_batches) + "\n";
  }
  std::string header;
  for (const NumberColumn& column : numbers) header += (header.empty() ? "" : ",") + std::string(column.name);
  for (const TextColumn& column : kTexts) {
    if (!(profile.*column.values).empty()) header += "," + std::string(column.name);
  }
  text += header + "\n";
  for (std::size_t i = 0; i < profile.c_ms.size(); ++i) {
    const char* separator = "";
    for (const NumberColumn& column : numbers) {
      text += separator + number_text((profile.*column.values)[i]);
      separator = ",";
    }
    for (const TextColumn& column : kTexts) {
      if (!(profile.*column.values).empty()) text += "," + csv_field((profile.*column.values)[i]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace automap::io
