#include "profile/measured/table.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/base/error.h"
#include "common/base/number_range.h"
#include "common/base/printable.h"
#include "profile/measured/forms.h"

namespace automap::measured {
namespace {

std::string_view without_blanks(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

TableRow row_of_line(std::string_view line, std::size_t number, const std::string& source) {
  TableRow row;
  row.line = number;
  for (std::size_t at = 0; at <= line.size();) {
    const std::string_view rest = line.substr(at);
    const auto blanks = std::min(rest.find_first_not_of(" \t"), rest.size());
    if (blanks == rest.size() || rest[blanks] != '"') {
      const std::size_t end = std::min(rest.find(','), rest.size());
      row.fields.emplace_back(without_blanks(rest.substr(0, end)));
      at += end + 1;
      continue;
    }
    std::string field;
    std::size_t i = blanks + 1;
    for (; i < rest.size(); ++i) {
      if (rest[i] == '"') {
        if (i + 1 == rest.size() || rest[i + 1] != '"') break;
        ++i;
      }
      field += rest[i];
    }
    if (i == rest.size()) {
      throw Error(ErrorKind::kData, source + ":" + std::to_string(number) + ": a quoted field is never closed",
                  kMeasuredHint);
    }
    const std::size_t end = std::min(rest.find(',', i), rest.size());
    if (const std::string_view behind = without_blanks(rest.substr(i + 1, end - i - 1)); !behind.empty()) {
      throw Error(ErrorKind::kData,
                  source + ":" + std::to_string(number) + ": found '" + excerpt(behind, kShownColumns) +
                      "' behind a quoted field, expected a comma (a quote inside of a field is doubled)",
                  kMeasuredHint);
    }
    row.fields.push_back(std::move(field));
    at += end + 1;
  }
  return row;
}

// The next line, without blanks around it; it is taken from the text.
std::string_view take_line(std::string_view* text) {
  const std::size_t end = text->find('\n');
  const std::string_view line = without_blanks(text->substr(0, end));
  *text = end == std::string_view::npos ? std::string_view() : text->substr(end + 1);
  return line;
}

bool is_row(std::string_view line) {
  return !line.empty() && line.front() != '#';
}

// `shown`: makes the text of what stands in the file.
template <typename Shown>
double time_in_range(double ms, const Shown& shown, const std::string& where) {
  if (ms < 0 || !in_file_range(ms)) {
    throw Error(ErrorKind::kData, where + ": found " + shown() + ", expected a time: " + kFileRange, kMeasuredHint);
  }
  return ms;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<TableRow> table_rows(std::string_view text, const std::string& source) {
  std::vector<TableRow> rows;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::string_view line = take_line(&text);
    if (is_row(line)) rows.push_back(row_of_line(line, number, source));
  }
  return rows;
}

bool has_column(std::string_view text, std::string_view name) {
  std::string_view header;
  while (!text.empty() && !is_row(header)) header = take_line(&text);
  if (!is_row(header)) return false;
  for (std::size_t at = 0; at <= header.size();) {
    const std::size_t comma = std::min(header.find(',', at), header.size());
    std::string_view field = without_blanks(header.substr(at, comma - at));
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"') field = field.substr(1, field.size() - 2);
    if (lower_case(field) == name) return true;
    at = comma + 1;
  }
  return false;
}

double checked_time(double ms, const std::string& where) {
  return time_in_range(
      ms, [&] { return std::to_string(ms) + " ms"; }, where);
}

double time_of_text(std::string_view text, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  return time_in_range(
      number ? value : -1, [&] { return "'" + excerpt(text, kShownColumns) + "'"; }, where);
}

double time_of_json(const Json& value, const std::string& where) {
  const auto shown = [&] { return excerpt(value.dump(-1, Json::BadUtf8::kReplace), kShownColumns); };
  return time_in_range(value.is_number() ? value.get<double>() : -1, shown, where);
}

}  // namespace automap::measured
