#include "common/base/options.h"

#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

#include "common/base/check.h"
#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/option_pages.h"
#include "common/base/plugin.h"
#include "common/base/printable.h"
#include "common/base/reason.h"
#include "common/base/suggest.h"
#include "common/base/text_table.h"

extern char** environ;

namespace automap {
namespace {

namespace po = boost::program_options;

constexpr int kHelpWidth = 100, kLeastHelpWidth = 40;

std::string trim(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// "--batch=64" -> "batch".
std::string name_in(const std::string& argument) {
  const std::string given = argument.substr(0, argument.find('='));
  return given.substr(std::min(given.find_first_not_of('-'), given.size()));
}

std::string dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

template <typename Number>
bool parse_number(const std::string& text, Number* value) {
  const char* first = text.data();
  const char* last = first + text.size();
  if (first != last && *first == '+') ++first;
  Number parsed = 0;
  const auto [end, status] = std::from_chars(first, last, parsed);
  if (status != std::errc() || end != last || first == last) return false;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(parsed)) return false;
  }
  *value = parsed;
  return true;
}

std::string number_text(double value) {
  char text[64];
  // "1000000", which std::to_chars would make 1e+06.
  const bool whole = std::fabs(value) < 1e15 && std::trunc(value) == value;
  const auto result = whole ? std::to_chars(text, text + sizeof text, static_cast<std::int64_t>(value))
                            : std::to_chars(text, text + sizeof text, value);
  return std::string(text, result.ptr);
}

bool parse_bool(const std::string& text, bool* value) {
  for (const char* yes : {"on", "true", "yes", "1"}) {
    if (text == yes) return *value = true, true;
  }
  for (const char* no : {"off", "false", "no", "0"}) {
    if (text == no) return *value = false, true;
  }
  return false;
}

// `text` in lines of at most `width` columns, the first starting at column `column`, the others indented to `indent`.
std::string wrap(const std::string& text, int column, int indent, int width) {
  std::string out;
  std::istringstream words(text);
  std::string word;
  bool first = true;
  while (words >> word) {
    const int columns = display_width(word);
    if (!first && column + 1 + columns > width) {
      out += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
      column = indent;
    } else if (!first) {
      out += " ";
      ++column;
    }
    out += word;
    column += columns;
    first = false;
  }
  return out;
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

bool parse_duration(const std::string& text, double* seconds) {
  static const std::pair<const char*, double> kUnits[] = {{"ms", 1e-3}, {"s", 1},    {"m", 60},
                                                          {"min", 60},  {"h", 3600}, {"", 1}};
  const std::size_t digits = text.find_first_not_of("0123456789.+-eE");
  const std::string number = text.substr(0, digits),
                    unit = digits == std::string::npos ? "" : trim(text.substr(digits));
  for (const auto& [name, scale] : kUnits) {
    double value = 0;
    if (unit == name && parse_number(number, &value)) {
      *seconds = value * scale;
      return true;
    }
  }
  return false;
}

namespace {

// As people write it: "12ms", "1.5s". Reading it gives the same number.
std::string duration_text(double seconds) {
  const std::string ms = number_text(seconds * 1e3) + "ms";
  double again = 0;
  const bool same = seconds > 0 && seconds < 1 && parse_duration(ms, &again) && again == seconds;
  return same ? ms : number_text(seconds) + "s";
}

}  // namespace

Option& Option::range(double smallest, double largest) {
  smallest_ = smallest;
  largest_ = largest;
  return *this;
}
Option& Option::choices(std::vector<std::string> allowed) {
  choices_ = std::move(allowed);
  return *this;
}
Option& Option::suggestions(std::vector<std::string> known) {
  suggestions_ = std::move(known);
  return *this;
}
Option& Option::metavar(std::string name) {
  metavar_ = std::move(name);
  return *this;
}
Option& Option::shorthand(char letter) {
  shorthand_ = letter;
  return *this;
}
Option& Option::advanced() {
  advanced_ = true;
  return *this;
}
Option& Option::required() {
  required_ = true;
  return *this;
}
Option& Option::shown_default(std::string text) {
  shown_default_ = std::move(text);
  return *this;
}
Option& Option::traits(OptionTraits bits) {
  traits_ |= bits;
  return *this;
}
Option& Option::role(FileRole role) {
  role_ = role;
  return *this;
}

OptionTable::OptionTable(std::string tool, std::string summary)
    : tool_(std::move(tool)), summary_(std::move(summary)) {}

void OptionTable::example(std::string command, std::string says) {
  examples_.push_back({std::move(command), std::move(says)});
}
void OptionTable::group(std::string title) {
  group_ = std::move(title);
}
void OptionTable::epilog(std::string text) {
  epilog_ = std::move(text);
}

Option& OptionTable::append(Option::Target target, std::string name, std::string help) {
  AM_CHECK(find(name) == nullptr);
  Option& option = options_.emplace_back();
  option.name_ = std::move(name);
  option.help_ = std::move(help);
  option.group_ = group_;
  option.target_ = target;
  option.default_ = value_text(option);
  option.metavar_ = std::visit(
      Overloaded{[](Option::Flag) { return ""; }, [](Option::OnOff) { return "on|off"; },
                 [](Option::Seconds) { return "TIME"; }, [](int*) { return "N"; }, [](std::int64_t*) { return "N"; },
                 [](std::uint64_t*) { return "N"; }, [](double*) { return "X"; }, [](std::string*) { return "TEXT"; },
                 [](std::vector<std::string>*) { return "TEXT"; }},
      target);
  return option;
}

Option& OptionTable::add_flag(bool* value, std::string name, std::string help) {
  return append(Option::Flag{value}, std::move(name), std::move(help));
}
Option& OptionTable::add_on_off(bool* value, std::string name, std::string help) {
  return append(Option::OnOff{value}, std::move(name), std::move(help));
}
Option& OptionTable::add_seconds(double* value, std::string name, std::string help) {
  return append(Option::Seconds{value, !std::isfinite(*value)}, std::move(name), std::move(help));
}
Option& OptionTable::add(int* value, std::string name, std::string help) {
  return append(value, std::move(name), std::move(help));
}
Option& OptionTable::add(std::int64_t* value, std::string name, std::string help) {
  return append(value, std::move(name), std::move(help));
}
Option& OptionTable::add(std::uint64_t* value, std::string name, std::string help) {
  return append(value, std::move(name), std::move(help));
}
Option& OptionTable::add(double* value, std::string name, std::string help) {
  return append(value, std::move(name), std::move(help));
}
Option& OptionTable::add(std::string* value, std::string name, std::string help) {
  return append(value, std::move(name), std::move(help));
}
Option& OptionTable::add(std::vector<std::string>* value, std::string name, std::string help) {
  return append(value, std::move(name), std::move(help));
}
Option& OptionTable::positional(std::string* value, std::string name, std::string help) {
  Option& option = append(value, std::move(name), std::move(help));
  option.positional_ = true;
  return option;
}
Option& OptionTable::positional(std::vector<std::string>* value, std::string name, std::string help) {
  Option& option = append(value, std::move(name), std::move(help));
  option.positional_ = true;
  return option;
}

void OptionTable::add_common(bool* json) {
  AM_CHECK(!common_added_);
  common_added_ = true;
  json_ = json;
  group("Common");
  const std::size_t own = options_.size();
  const auto flag = [&](bool* value, const char* name, std::string help) -> Option& {
    Option& option = add_flag(value, name, std::move(help));
    option.builtin_ = true;
    return option;
  };
  if (json) add_flag(json, "json", "print one JSON document on standard output (docs/formats), errors too");
  add_flag(&quiet_, "quiet", "nothing but results and errors").shorthand('q');
  add_flag(&verbose_, "verbose", "say more about what is done").shorthand('v');
  if (find("config") != nullptr) file_option_ = "options";
  Option& config = add(&config_, file_option_, "read options from FILE: INI (key = value) or JSON");
  config.reads_file().metavar("FILE");
  config.builtin_ = true;
  flag(&dump_config_, "dump-config", "print the options in force as a file for --" + file_option_ + " and exit");
  flag(&help_, "help", "show the usual options and exit").shorthand('h');
  flag(&help_all_, "help-all", "show every option and exit");
  flag(&version_, "version", "print the version and exit");
  for (std::size_t i = own; i < options_.size(); ++i) options_[i].traits(kCommonOption);
}

Option* OptionTable::find(const std::string& name) {
  for (Option& option : options_) {
    if (option.name_ == name) return &option;
  }
  return nullptr;
}
const Option* OptionTable::find(const std::string& name) const {
  return const_cast<OptionTable*>(this)->find(name);
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> out;
  for (const Option& option : options_) {
    if (!option.positional_) out.push_back(option.name_);
  }
  return out;
}

std::vector<std::string> OptionTable::names_with(OptionTraits any) const {
  std::vector<std::string> out;
  for (const Option& option : options_) {
    if ((option.traits_ & any) != 0) out.push_back(option.name_);
  }
  return out;
}

OptionTraits OptionTable::traits_of(const std::string& name) const {
  const Option* option = find(name);
  AM_CHECK(option != nullptr);
  return option->traits_;
}

const std::string& OptionTable::source_of(const std::string& name) const {
  const Option* option = find(name);
  AM_CHECK(option != nullptr);
  return option->source_;
}
std::string OptionTable::value_of(const std::string& name) const {
  const Option* option = find(name);
  AM_CHECK(option != nullptr);
  return value_text(*option);
}

std::string OptionTable::value_text(const Option& option) const {
  return std::visit(
      Overloaded{[](Option::Flag f) { return std::string(*f.value ? "true" : "false"); },
                 [](Option::OnOff f) { return std::string(*f.value ? "on" : "off"); },
                 [](Option::Seconds s) { return std::isfinite(*s.value) ? duration_text(*s.value) : "none"; },
                 [](int* n) { return std::to_string(*n); }, [](std::int64_t* n) { return std::to_string(*n); },
                 [](std::uint64_t* n) { return std::to_string(*n); }, [](double* x) { return number_text(*x); },
                 [](std::string* s) { return *s; }, [](std::vector<std::string>* list) { return join(*list, ","); }},
      option.target_);
}

// `where` starts the message: "--grid", "AUTOMAP_INFER_GRID", "run.ini:3: grid".
void OptionTable::assign(Option& option, const std::vector<std::string>& values, const std::string& source,
                         const std::string& where) {
  const ErrorKind kind = source == "flag" ? ErrorKind::kUsage : ErrorKind::kConfig;
  const std::string see = "see " + program() + (option.advanced_ ? " --help-all" : " --help");
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw Error(kind, where + ": found '" + found + "', expected " + expected, see);
  };
  if (auto* list = std::get_if<std::vector<std::string>*>(&option.target_)) {
    **list = values;
    option.source_ = source;
    return;
  }
  if (values.size() != 1) {
    throw Error(kind, where + ": given " + std::to_string(values.size()) + " times, expected once", see);
  }
  const std::string& text = values.front();
  if (text.empty()) throw Error(kind, where + ": the value is empty", see);
  const auto bounds = [&](const char* what) {
    const bool low = std::isfinite(option.smallest_), high = std::isfinite(option.largest_);
    std::string out = what;
    if (low && high) return out + " from " + number_text(option.smallest_) + " to " + number_text(option.largest_);
    if (low) return out + " of at least " + number_text(option.smallest_);
    if (high) return out + " of at most " + number_text(option.largest_);
    return out;
  };
  const auto in_range = [&](double value) { return value >= option.smallest_ && value <= option.largest_; };
  const auto assign_number = [&](auto* target, const char* what) {
    std::remove_reference_t<decltype(*target)> value = 0;
    if (!parse_number(text, &value) || !in_range(static_cast<double>(value))) fail(text, bounds(what));
    *target = value;
  };
  std::visit(
      Overloaded{
          [&](Option::Flag f) {
            if (!parse_bool(text, f.value)) fail(text, "true or false");
          },
          [&](Option::OnOff f) {
            if (!parse_bool(text, f.value)) fail(text, "on or off");
          },
          [&](Option::Seconds s) {
            if (s.none && text == "none") {
              *s.value = std::numeric_limits<double>::infinity();
              return;
            }
            double value = 0;
            if (!parse_duration(text, &value) || !in_range(value)) {
              fail(text, bounds("a time such as 2s or 500ms") +
                             (std::isfinite(option.smallest_) || std::isfinite(option.largest_) ? " seconds" : ""));
            }
            *s.value = value;
          },
          [&](int* n) { assign_number(n, "a whole number"); },
          [&](std::int64_t* n) { assign_number(n, "a whole number"); },
          [&](std::uint64_t* n) { assign_number(n, "a whole number"); },
          [&](double* x) { assign_number(x, "a number"); },
          [&](std::string* s) {
            const auto& allowed = option.choices_;
            if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
              const std::string near = closest_name(text, allowed);
              fail(text, "one of " + join(allowed, ", ") + (near.empty() ? "" : " (did you mean '" + near + "'?)"));
            }
            *s = text;
          },
          [&](std::vector<std::string>*) {}},
      option.target_);
  option.source_ = source;
}

void OptionTable::needs_value(const Option& option) {
  throw Error(ErrorKind::kUsage, "--" + option.name_ + " needs a value: --" + option.name_ + " " + option.metavar_,
              option.choices_.empty() ? "" : "one of " + join(option.choices_, ", "));
}

void OptionTable::read_arguments(int argc, const char* const* argv) {
  po::options_description description;
  po::positional_options_description positionals;
  static const char* const kRest = "positional arguments";
  positionals.add(kRest, -1);
  description.add_options()(kRest, po::value<std::vector<std::string>>());
  for (const Option& option : options_) {
    if (option.positional_) continue;
    const std::string spec = option.name_ + (option.shorthand_ ? std::string(",") + option.shorthand_ : "");
    auto* value = po::value<std::string>();
    if (std::holds_alternative<Option::Flag>(option.target_)) value->zero_tokens();
    description.add_options()(spec.c_str(), value);
  }

  po::parsed_options parsed(&description);
  try {
    namespace style = po::command_line_style;
    parsed = po::command_line_parser(argc, argv)
                 .options(description)
                 .positional(positionals)
                 .style(style::unix_style & ~style::allow_guessing)
                 .run();
  } catch (const po::unknown_option& e) {
    const std::string given = e.get_option_name().substr(0, e.get_option_name().find('='));
    const std::string name = name_in(given);
    const auto meant = instead_.find(dashes(name));
    if (meant != instead_.end()) throw Error(ErrorKind::kUsage, "unknown option " + given, meant->second);
    const std::string near = closest_name(dashes(name), names());
    throw Error(ErrorKind::kUsage, "unknown option " + given,
                near.empty() ? "see " + program() + " --help" : "did you mean --" + near + "?");
  } catch (const po::error_with_option_name& e) {
    const std::string name = name_in(e.get_option_name());
    const Option* option = find(name);
    for (const Option& other : options_) {
      if (!option && name.size() == 1 && other.shorthand_ == name[0]) option = &other;
    }
    if (option && std::holds_alternative<Option::Flag>(option->target_)) {
      throw Error(ErrorKind::kUsage, "--" + option->name_ + " takes no value");
    }
    if (option) needs_value(*option);
    throw Error(ErrorKind::kUsage, e.what(), "see " + program() + " --help");
  } catch (const po::error& e) {
    throw Error(ErrorKind::kUsage, e.what(), "see " + program() + " --help");
  }

  std::vector<std::string> rest;
  std::vector<std::pair<Option*, std::vector<std::string>>> given;
  for (const auto& item : parsed.options) {
    if (item.string_key == kRest) {
      rest.insert(rest.end(), item.value.begin(), item.value.end());
      continue;
    }
    Option* option = find(item.string_key);
    AM_CHECK(option != nullptr);
    const bool flag = std::holds_alternative<Option::Flag>(option->target_);
    // "--" ends the options; as a value it is written --NAME=--.
    if (!flag && item.original_tokens.size() > 1 && item.original_tokens[1] == "--") needs_value(*option);
    const std::vector<std::string> values = flag ? std::vector<std::string>{"true"} : item.value;
    auto at = std::find_if(given.begin(), given.end(), [&](const auto& g) { return g.first == option; });
    if (at == given.end()) {
      given.emplace_back(option, values);
    } else if (!flag) {
      at->second.insert(at->second.end(), values.begin(), values.end());
    }
  }
  for (auto& [option, values] : given) assign(*option, values, "flag", "--" + option->name_);

  std::size_t used = 0;
  for (Option& option : options_) {
    if (!option.positional_ || used == rest.size()) continue;
    const bool all = std::holds_alternative<std::vector<std::string>*>(option.target_);
    const std::size_t end = all ? rest.size() : used + 1;
    assign(option, {rest.begin() + static_cast<std::ptrdiff_t>(used), rest.begin() + static_cast<std::ptrdiff_t>(end)},
           "flag", option.name_);
    used = end;
  }
  if (used < rest.size()) {
    throw Error(ErrorKind::kUsage, "unexpected argument '" + rest[used] + "'", "usage: " + usage_line());
  }
}

std::map<std::string, std::string> OptionTable::provenance() const {
  std::map<std::string, std::string> out = {{"version", version()}, {"git", git_revision()}};
  for (const std::string& name : names_with(kInProvenance)) out["option_" + name] = value_of(name);
  return out;
}

std::string OptionTable::environment_name(const std::string& option_name) const {
  std::string name = "AUTOMAP_" + tool_ + "_" + option_name;
  for (char& c : name) {
    c = c == '-' || c == ' ' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

void OptionTable::read_environment() {
  const std::string prefix = environment_name("");
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view whole = *entry;
    const std::size_t equals = whole.find('=');
    const std::string name(whole.substr(0, equals));
    if (equals == std::string_view::npos || name.compare(0, prefix.size(), prefix) != 0) continue;
    std::string key = dashes(name.substr(prefix.size()));
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    Option* option = find(key);
    if (!option || option->positional_ || environment_name(key) != name) {
      const std::string near = closest_name(key, names());
      throw Error(ErrorKind::kConfig, "unknown environment variable " + name,
                  near.empty() ? "unset it; " + program() + " --help-all lists the options"
                               : "did you mean " + environment_name(near) + "?");
    }
    if (option->source_ == "default") assign(*option, {std::string(whole.substr(equals + 1))}, name, name);
  }
}

void OptionTable::assign_from_config(const std::string& key, const std::vector<std::string>& values,
                                     const std::string& source) {
  Option* option = find(dashes(key));
  if (!option || option->positional_ || option->builtin_) {
    const std::string near = closest_name(dashes(key), names());
    throw Error(ErrorKind::kConfig, source + ": unknown option '" + key + "'",
                near.empty() ? "see " + program() + " --help-all" : "did you mean '" + near + "'?");
  }
  if (option->source_ == "default") assign(*option, values, source, source + ": " + key);
}

void OptionTable::read_config(const std::string& path) {
  const std::string source = input_name(path);
  const std::string text = read_file(path, 1 << 20);
  if (text.find('\0') != std::string::npos) {
    throw Error(ErrorKind::kConfig, source + ": found binary data, expected an INI or JSON file of options");
  }
  const std::string start = trim(text).substr(0, 1);
  if (start == "{") {
    read_config_json(text, source);
  } else {
    read_config_ini(text, source);
  }
}

// Sections may be named after tools, so that one file can serve several: those of other tools are skipped.
void OptionTable::read_config_ini(const std::string& text, const std::string& source) {
  std::istringstream lines(text);
  std::string line;
  std::set<std::string> seen;
  bool skipping = false;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = source + ":" + std::to_string(number);
    line = trim(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      skipping = trim(line.substr(1, line.size() - 2)) != tool_;
      continue;
    }
    if (skipping) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) {
      throw Error(ErrorKind::kConfig, where + ": found '" + shorten(line, 60) + "', expected key = value");
    }
    const std::string key = trim(line.substr(0, equals));
    std::string value = trim(line.substr(equals + 1));
    if (const std::size_t comment = value.find(" #"); comment != std::string::npos)
      value = trim(value.substr(0, comment));
    if (!seen.insert(dashes(key)).second) throw Error(ErrorKind::kConfig, where + ": '" + key + "' is given twice");
    const Option* option = find(dashes(key));
    std::vector<std::string> values = {value};
    if (option && std::holds_alternative<std::vector<std::string>*>(option->target_)) {
      values.clear();
      std::istringstream items(value);
      for (std::string item; std::getline(items, item, ',');) values.push_back(trim(item));
    }
    assign_from_config(key, values, where);
  }
}

void OptionTable::read_config_json(const std::string& text, const std::string& source) {
  Json document;
  try {
    document = Json::parse(text);
  } catch (const JsonError& e) {
    throw Error(ErrorKind::kConfig, source + ": not valid JSON: " + reason_of(e));
  }
  const auto text_of = [&](const Json& value, const std::string& key) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number() || value.is_boolean()) return value.dump();
    throw Error(ErrorKind::kConfig,
                source + ": " + key + ": found " + value.type_name() + ", expected a string, number or boolean");
  };
  const auto read_object = [&](const Json& object, bool nested) {
    for (const auto& [key, value] : object.items()) {
      if (value.is_object() && !nested) continue;  // the section of a tool
      std::vector<std::string> values;
      if (value.is_array()) {
        for (const auto& item : value) values.push_back(text_of(item, key));
      } else {
        values.push_back(text_of(value, key));
      }
      assign_from_config(key, values, source);
    }
  };
  if (document.contains(tool_) && document[tool_].is_object()) read_object(document[tool_], true);
  read_object(document, false);
}

bool OptionTable::parse(int argc, const char* const* argv) {
  if (!common_added_) add_common(nullptr);
  if (const std::optional<std::string> form = page_form(argc, argv)) {
    print_exact(*form == "man" ? man_page() : words());
    return false;
  }
  read_arguments(argc, argv);
  if (help_ || help_all_) {
    print(help_text(help_all_, terminal_columns()));
    return false;
  }
  if (version_) {
    print(version_report(program()));
    return false;
  }
  if (json_ && *json_) set_json_errors(true);
  read_environment();
  if (!config_.empty()) read_config(config_);
  if (json_) set_json_errors(*json_);
  if (quiet_ && verbose_) throw Error(ErrorKind::kUsage, "--quiet and --verbose contradict each other");
  set_log_level(quiet_ ? LogLevel::kQuiet : verbose_ ? LogLevel::kVerbose : LogLevel::kNormal);
  if (dump_config_) {
    print_exact(config_text());
    return false;
  }
  for (const Option& option : options_) {
    if (!option.required_ || option.source_ != "default") continue;
    throw Error(ErrorKind::kUsage,
                "missing " + (option.positional_ ? "" : std::string("--")) + option.name_ + ": " + option.help_,
                "usage: " + usage_line());
  }
  check_files(named_files());
  return true;
}

std::vector<NamedFile> OptionTable::named_files() const {
  std::vector<NamedFile> files;
  for (const Option& option : options_) {
    const auto* text = std::get_if<std::string*>(&option.target_);
    const auto* list = std::get_if<std::vector<std::string>*>(&option.target_);
    if ((!text && !list) || !option.choices_.empty()) continue;
    // A new option that does not say whether it names a file.
    AM_CHECK(option.role_.has_value());
    const std::string shown = option.positional_  ? option.name_
                              : option.shorthand_ ? std::string("-") + option.shorthand_
                                                  : "--" + option.name_;
    for (const std::string& path : text ? std::vector<std::string>{**text} : **list) {
      if (!path.empty()) files.push_back({shown, path, *option.role_});
    }
  }
  return files;
}

std::string OptionTable::usage_line() const {
  std::string out = program();
  for (const Option& option : options_) {
    if (!option.positional_ && option.required_) out += " --" + option.name_ + " " + option.metavar_;
    if (!option.positional_) continue;
    const bool list = std::holds_alternative<std::vector<std::string>*>(option.target_);
    out += " " + std::string(option.required_ ? "" : "[") + option.name_ + (list ? "..." : "") +
           (option.required_ ? "" : "]");
  }
  return out + " [options]";
}

OptionTable::OptionWords OptionTable::words_of(const Option& option) const {
  OptionWords words = {option.choices_.empty() ? option.metavar_ : join(option.choices_, "|"), option.help_};
  const std::string& shown = option.shown_default_.empty() ? option.default_ : option.shown_default_;
  const bool flag = std::holds_alternative<Option::Flag>(option.target_);
  if (!flag && !shown.empty() && !option.positional_) words.help += " [" + shown + "]";
  return words;
}

std::string OptionTable::sources_text() const {
  return "An option may also stand in a --" + file_option_ + " file (option = value) or in the environment (" +
         environment_name("") + "<OPTION>); flags win over the environment, the environment over the file.";
}

std::string OptionTable::help_text(bool all, int width) const {
  const int room = width > 0 ? std::clamp(width, kLeastHelpWidth, kHelpWidth) : kHelpWidth;
  std::string out = program() + ": " + summary_ + "\n\n";
  if (!examples_.empty()) {
    out += "Examples:\n";
    for (const Example& example : examples_) {
      out += "  " + example.command + "\n      " + wrap(example.says, 6, 6, room) + "\n";
    }
    out += "\n";
  }
  out += "Usage: " + wrap(usage_line(), 7, 7, room) + "\n";

  const int column = std::min(32, room / 3);
  std::vector<std::string> groups;
  for (const Option& option : options_) {
    if (std::find(groups.begin(), groups.end(), option.group_) == groups.end()) groups.push_back(option.group_);
  }
  bool hidden = false;
  for (const std::string& group : groups) {
    std::string lines;
    for (const Option& option : options_) {
      if (option.group_ != group) continue;
      if (option.advanced_ && !all) {
        hidden = true;
        continue;
      }
      const auto [value, help] = words_of(option);
      std::string left = "  ";
      if (option.positional_) {
        left += option.name_;
      } else {
        left += (option.shorthand_ ? std::string("-") + option.shorthand_ + ", " : "") + "--" + option.name_;
        if (!value.empty()) left += " " + value;
      }
      const int used = display_width(left);
      left += used + 2 > column ? "\n" + std::string(static_cast<std::size_t>(column), ' ')
                                : std::string(static_cast<std::size_t>(column - used), ' ');
      lines += left + wrap(help, column, column, room) + "\n";
    }
    if (!lines.empty()) out += "\n" + (group.empty() ? "" : group + ":\n") + lines;
  }
  if (!epilog_.empty()) out += "\n" + wrap(epilog_, 0, 0, room) + "\n";
  out += "\n" + wrap(sources_text(), 0, 0, room) + "\n";
  if (hidden) out += "More options: " + program() + " --help-all\n";
  return out;
}

std::string OptionTable::config_text() const {
  std::string out = "# " + program() + " " + version() + "\n[" + tool_ + "]\n";
  for (const Option& option : options_) {
    if (option.positional_ || option.builtin_) continue;
    const std::string value = value_text(option);
    // Without a value there is nothing a reader could take, and one with a line end would be read as several options;
    // keep the key visible.
    const bool lines = value.find_first_of("\r\n") != std::string::npos;
    out += (value.empty() || lines ? "# " : "") + option.name_ + " =";
    if (!value.empty()) out += " " + (lines ? printable(value) + " (line ends cannot be written here)" : value);
    if (option.source_ != "default") out += "  # " + printable(option.source_);
    out += "\n";
  }
  return out;
}

int number_or_word(const std::string& text, const char* option, const char* word, int smallest, int largest) {
  if (text == word) return 0;
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < smallest || value > largest) {
    throw Error(ErrorKind::kUsage, std::string("--") + option + ": found '" + text + "', expected " + word +
                                       " or a whole number from " + std::to_string(smallest) + " to " +
                                       std::to_string(largest));
  }
  return value;
}

}  // namespace automap
