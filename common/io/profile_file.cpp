#include "common/io/profile_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/io/hdf5.h"
#include "common/io/pipedream.h"

namespace automap::io {
namespace {

using pipeline::Profile;

constexpr std::string_view kSchemaName = "automap.profile/";
constexpr std::int64_t kVersion = 2, kOldestVersion = 1;
constexpr std::uint64_t kMaxInstructions = 10'000'000;
constexpr const char* kFormatHint = "docs/formats/profile.md describes profile files";

struct NumberColumn {
  const char* name;
  std::vector<double> Profile::*values;
};
constexpr std::array<NumberColumn, 4> kNumbers = {{{"c_ms", &Profile::c_ms},
                                                   {"a_bytes", &Profile::a_bytes},
                                                   {"w_bytes", &Profile::w_bytes},
                                                   {"stash_bytes", &Profile::stash_bytes}}};
struct TextColumn {
  const char* name;
  std::vector<std::string> Profile::*values;
};
constexpr std::array<TextColumn, 3> kTexts = {
    {{"name", &Profile::name}, {"op_name", &Profile::op_name}, {"layer", &Profile::layer}}};

struct TextAttribute {
  const char* name;
  std::string Profile::*value;
};
constexpr std::array<TextAttribute, 3> kTextAttributes = {
    {{"model", &Profile::model}, {"device", &Profile::device}, {"source_sha256", &Profile::source_sha256}}};
struct NumberAttribute {
  const char* name;
  double Profile::*value;
};
constexpr std::array<NumberAttribute, 2> kNumberAttributes = {
    {{"micro_batch_size", &Profile::micro_batch_size}, {"forward_fraction", &Profile::forward_fraction}}};

std::string schema_text(std::int64_t version = kVersion) {
  return std::string(kSchemaName) + std::to_string(version);
}

// The version that a schema names.
std::int64_t check_schema(std::string_view schema, const std::string& where) {
  if (schema.substr(0, kSchemaName.size()) != kSchemaName) {
    throw Error(ErrorKind::kData, where + ": schema is '" + std::string(schema) + "', expected '" + schema_text() + "'",
                kFormatHint);
  }
  std::int64_t version = 0;
  const std::string_view digits = schema.substr(kSchemaName.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), version);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (whole && version >= kOldestVersion && version <= kVersion) return version;
  const bool newer = whole && version > kVersion;
  throw Error(ErrorKind::kData,
              where + ": schema '" + std::string(schema) + "'" +
                  (newer ? " is newer than this program" : " is unknown") + ", which reads '" + schema_text() + "'",
              newer ? "update AutoMap, or write the profile again with this version" : kFormatHint);
}

// The ranges of the attributes; the columns are checked by check_profile.
void check_attributes(const Profile& profile, const std::string& source) {
  if (!std::isfinite(profile.micro_batch_size) || profile.micro_batch_size < 0) {
    throw Error(ErrorKind::kData, source + ": micro_batch_size is " + std::to_string(profile.micro_batch_size) +
                                      ", expected a finite value of at least 0");
  }
  check_profile(profile, source);
}

// --- HDF5 ---

// In the library's process: everything that `columns` asks for, in the order in which read_hdf5 takes it.
std::string hdf5_columns(const Hdf5Bytes& file, const std::string& source, ProfileColumns columns) {
  const Hdf5Reader reader(file.data, source);
  const auto schema = reader.string_attribute("schema");
  if (!schema) {
    throw Error(ErrorKind::kData,
                source + ": an HDF5 file without the attribute schema, expected '" + schema_text() + "'", kFormatHint);
  }
  const std::int64_t found = check_schema(*schema, source);
  if (const auto version = reader.number_attribute("version"); version && *version > static_cast<double>(kVersion)) {
    check_schema(std::string(kSchemaName) + std::to_string(static_cast<std::int64_t>(std::min(*version, 1e9))), source);
  }
  if (found >= 2 && file.extra > 0) {
    throw Error(ErrorKind::kData,
                source + ": damaged: found " + std::to_string(file.extra) +
                    " bytes behind the end of the HDF5 data, expected its checksum",
                "copy it again from where it is whole, or make it again");
  }
  ByteWriter out;
  const Profile none;
  for (const TextAttribute& attribute : kTextAttributes) {
    out.put_string(reader.string_attribute(attribute.name).value_or(none.*attribute.value));
  }
  for (const NumberAttribute& attribute : kNumberAttributes) {
    out.put<double>(reader.number_attribute(attribute.name).value_or(none.*attribute.value));
  }
  for (const NumberColumn& column : kNumbers) reader.doubles(column.name, kMaxInstructions, &out);
  for (const TextColumn& column : kTexts) {
    const bool wanted = columns == ProfileColumns::kAll || column.values != &Profile::op_name;
    const bool there = wanted && reader.has_dataset(column.name);
    out.put<std::uint8_t>(there);
    if (there) reader.strings(column.name, kMaxInstructions, &out);
  }
  return std::move(out.bytes());
}

Profile read_hdf5(std::string_view bytes, const std::string& source, ProfileColumns columns) {
  const Hdf5Bytes file = check_hdf5_bytes(bytes, source);
  const std::string answer = in_hdf5_process(file.verified ? Hdf5Task::kReadVerified : Hdf5Task::kReadUnknown, source,
                                             bytes.size(), [&] { return hdf5_columns(file, source, columns); });
  ByteReader in(answer, source);
  Profile profile;
  for (const TextAttribute& attribute : kTextAttributes) profile.*attribute.value = in.get_string();
  for (const NumberAttribute& attribute : kNumberAttributes) profile.*attribute.value = in.get<double>();
  for (const NumberColumn& column : kNumbers) profile.*column.values = in.get_vector<double>();
  for (const TextColumn& column : kTexts) {
    if (in.get<std::uint8_t>() != 0) profile.*column.values = read_strings(&in);
  }
  return profile;
}

std::string hdf5_bytes(const std::string& shown_path, const Profile& profile) {
  const auto made = [&] {
    Hdf5Writer writer(shown_path);
    writer.write_attribute("schema", schema_text());
    writer.write_attribute("version", kVersion);
    for (const TextAttribute& attribute : kTextAttributes) {
      writer.write_attribute(attribute.name, profile.*attribute.value);
    }
    for (const NumberAttribute& attribute : kNumberAttributes) {
      writer.write_attribute(attribute.name, profile.*attribute.value);
    }
    for (const NumberColumn& column : kNumbers) writer.write_doubles(column.name, profile.*column.values);
    for (const TextColumn& column : kTexts) {
      if (!(profile.*column.values).empty()) writer.write_strings(column.name, profile.*column.values);
    }
    return writer.finish();
  };
  std::string bytes = in_hdf5_process(Hdf5Task::kWrite, shown_path, 0, made);
  add_hdf5_checksum(&bytes);
  return bytes;
}

// --- CSV ---

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

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string shown(std::string_view text) {
  constexpr int kShown = 60;
  return "'" + excerpt(text, kShown) + "'";
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
                kFormatHint);
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
      if (trim(line.substr(0, line.find('\r'))).empty()) {
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
        fields.emplace_back(trim(content));
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
    const std::string_view key = trim(line.substr(0, equals));
    const std::string_view value = trim(line.substr(equals + 1));
    if (key == "schema") check_schema(value, source_ + ":" + std::to_string(record_line_));
    for (const TextAttribute& attribute : kTextAttributes) {
      if (key == attribute.name) profile_.*attribute.value = attribute_value(value);
    }
    for (const NumberAttribute& attribute : kNumberAttributes) {
      if (key == attribute.name) profile_.*attribute.value = number(value, attribute.name);
    }
  }

  double number(std::string_view text, const std::string& column) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
      fail(column + ": found " + shown(text) + ", expected a number");
    }
    if (!std::isfinite(value) || value < 0) {
      fail(column + ": found " + shown(text) + ", expected a finite value of at least 0");
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
      for (const TextColumn& known : kTexts) {
        if (name == known.name) column.texts = known.values;
      }
      if (column.numbers == nullptr && column.texts == nullptr) {
        fail("unknown column " + shown(name) +
             ", expected c_ms, a_bytes, w_bytes, stash_bytes and optionally name, op_name, layer");
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

bool is_csv(std::string_view bytes) {
  bytes = without_bom(bytes);
  // The header is the first line that is neither blank nor a comment.
  constexpr std::size_t kProbe = std::size_t{1} << 20;
  bytes = bytes.substr(0, kProbe);
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const std::string_view line = trim(bytes.substr(0, end));
    bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + 1);
    if (line.empty() || line == "\r") continue;
    if (line.front() == '#') {
      if (line.find(kSchemaName) != std::string_view::npos) return true;
      continue;
    }
    // Some of our columns, by name.
    return line.find("c_ms") != std::string_view::npos || line.find("w_bytes") != std::string_view::npos ||
           line.find("a_bytes") != std::string_view::npos;
  }
  return false;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && std::string_view(text).substr(text.size() - end.size()) == end;
}

bool is_hdf5_name(const std::string& path) {
  return ends_with(path, ".h5") || ends_with(path, ".hdf5");
}

}  // namespace

const char* to_string(ProfileForm form) {
  switch (form) {
    case ProfileForm::kHdf5: return "HDF5";
    case ProfileForm::kCsv: return "CSV";
    case ProfileForm::kPipedream: return "PipeDream";
  }
  return "";
}

std::optional<ProfileForm> detect_profile(std::string_view bytes) {
  if (is_hdf5(bytes)) return ProfileForm::kHdf5;
  if (is_pipedream(bytes)) return ProfileForm::kPipedream;
  if (is_csv(bytes)) return ProfileForm::kCsv;
  return std::nullopt;
}

Profile read_profile(std::string bytes, const std::string& source, ProfileColumns columns) {
  bytes = gunzip_if_gzip(std::move(bytes), source);
  const auto form = detect_profile(bytes);
  if (!form) {
    throw Error(ErrorKind::kData,
                source + ": " + (bytes.empty() ? "empty" : "not a profile") +
                    ", expected HDF5, CSV with a header of column names, or PipeDream's graph.txt",
                kFormatHint);
  }
  Profile profile;
  switch (*form) {
    case ProfileForm::kHdf5: profile = read_hdf5(bytes, source, columns); break;
    case ProfileForm::kCsv: profile = CsvReader(bytes, source).run(); break;
    case ProfileForm::kPipedream: profile = parse_pipedream(bytes, source); break;
  }
  check_attributes(profile, source);
  return profile;
}

Profile load_profile(const std::string& path) {
  return read_profile(read_file(path), input_name(path));
}

std::string to_csv(const Profile& profile) {
  // As text it is what it was in the first version, which other programs go on to read.
  std::string text = "# schema = " + schema_text(kOldestVersion) + "\n";
  for (const TextAttribute& attribute : kTextAttributes) {
    text += std::string("# ") + attribute.name + " = " + attribute_text(profile.*attribute.value) + "\n";
  }
  for (const NumberAttribute& attribute : kNumberAttributes) {
    text += std::string("# ") + attribute.name + " = " + number_text(profile.*attribute.value) + "\n";
  }
  std::string header;
  for (const NumberColumn& column : kNumbers) header += (header.empty() ? "" : ",") + std::string(column.name);
  for (const TextColumn& column : kTexts) {
    if (!(profile.*column.values).empty()) header += "," + std::string(column.name);
  }
  text += header + "\n";
  for (std::size_t i = 0; i < profile.c_ms.size(); ++i) {
    const char* separator = "";
    for (const NumberColumn& column : kNumbers) {
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

void check_profile_name(const std::string& path) {
  // Devices such as /dev/stdout have no extension; they get text.
  const bool csv = ends_with(path, ".csv") || path == "-" || path.rfind("/dev/", 0) == 0;
  if (csv || is_hdf5_name(path)) return;
  throw Error(ErrorKind::kUsage, "cannot tell the form of " + path + " from its name", "end the name in .h5 or .csv");
}

void write_profile(AtomicFile& file, const std::string& path, const Profile& profile) {
  check_attributes(profile, path);
  file.write(is_hdf5_name(path) ? hdf5_bytes(path, profile) : to_csv(profile));
}

void save_profile(const std::string& path, const Profile& profile) {
  check_profile_name(path);
  AtomicFile file(path);
  write_profile(file, path, profile);
  file.commit();
}

}  // namespace automap::io
