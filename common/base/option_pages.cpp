#include "common/base/option_pages.h"

#include <algorithm>
#include <cctype>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/options.h"

namespace automap {
namespace {

constexpr char kPageRequest[] = "--help-as";

// Text of a manual page: nothing in it is a request, and a dash is what a shell takes for one.
std::string roff(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_begins = c == '\n';
  }
  return out;
}

std::string bold(const std::string& text) {
  return "\\fB" + roff(text) + "\\fR";
}
std::string italic(const std::string& text) {
  return "\\fI" + roff(text) + "\\fR";
}

// "automap-search opp" has the page automap-search-opp.
std::string page_name(std::string program) {
  std::replace(program.begin(), program.end(), ' ', '-');
  return program;
}

std::string man_begin(const std::string& program, const std::string& summary) {
  std::string title = page_name(program);
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  return ".TH " + title + " 1 \"\" \"AutoMap " + version() + "\" AutoMap\n.SH NAME\n" + roff(page_name(program)) +
         " \\- " + roff(summary) + "\n";
}

std::string man_end(const std::string& see) {
  return ".SH EXIT STATUS\n0: done; 2: wrong usage or a wrong cluster or device; 3: an input or output that cannot be "
         "used;\n4: no feasible answer; 75: stopped early. " +
         roff("docs/exit-codes.md") + " of AutoMap says more.\n.SH SEE ALSO\n" + see + "\n";
}

// A column of a line of words.
std::string column(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return "\t" + text;
}

// "on|off" -> "on off". None where a part stands for something else, as in "auto|N".
std::string words_of_metavar(std::string metavar) {
  for (char& c : metavar) {
    if (c != '|' && c != '-' && !std::islower(static_cast<unsigned char>(c)) &&
        !std::isdigit(static_cast<unsigned char>(c)))
      return "";
    if (c == '|') c = ' ';
  }
  return metavar;
}

}  // namespace

std::optional<std::string> page_form(int argc, const char* const* argv) {
  if (argc < 3 || std::string(argv[argc - 2]) != kPageRequest) return std::nullopt;
  const std::string form = argv[argc - 1];
  if (form != "man" && form != "words") {
    throw Error(ErrorKind::kUsage, std::string(kPageRequest) + ": found '" + form + "', expected man or words");
  }
  return form;
}

std::string commands_as(const std::string& form, const std::string& program, const std::string& summary,
                        const std::vector<std::pair<std::string, std::string>>& commands) {
  std::string out;
  if (form == "words") {
    for (const auto& [name, says] : commands) out += "command" + column(name) + column(says) + "\n";
    return out;
  }
  out = man_begin(program, summary) + ".SH SYNOPSIS\n" + bold(program) + " " + italic("COMMAND") + " [" +
        italic("arguments") + "]\n.SH COMMANDS\n";
  std::string see;
  for (const auto& [name, says] : commands) {
    out += ".TP\n" + bold(name) + "\n" + roff(says) + "\n";
    see += (see.empty() ? "" : ", ") + bold(program + "-" + name) + "(1)";
  }
  return out + man_end(see);
}

std::string OptionTable::words() const {
  std::string out;
  for (const Option& option : options_) {
    const FileRole role = option.role_.value_or(FileRole::kNoFile);
    const bool file = role == FileRole::kReadsFile || role == FileRole::kWritesFile;
    const bool folder = role == FileRole::kReadsFolder || role == FileRole::kWritesFolder;
    std::string values = join(option.choices_.empty() ? option.suggestions_ : option.choices_, " ");
    // "f32|bf16|f16": an option may read its words itself.
    if (values.empty() && option.metavar_.find('|') != std::string::npos) values = words_of_metavar(option.metavar_);
    const bool flag = std::holds_alternative<Option::Flag>(option.target_);
    out += (option.positional_ ? "argument" : "option") + column((option.positional_ ? "" : "--") + option.name_) +
           column(option.shorthand_ ? std::string("-") + option.shorthand_ : "") +
           column(flag     ? "flag"
                  : file   ? "file"
                  : folder ? "folder"
                           : "text") +
           column(values) + column(option.help_) + "\n";
  }
  return out;
}

std::string OptionTable::man_page() const {
  std::string out = man_begin(program(), summary_) + ".SH SYNOPSIS\n" + bold(program()) +
                    roff(usage_line().substr(program().size())) + "\n";
  if (!examples_.empty()) out += ".SH EXAMPLES\n";
  for (const Example& example : examples_) {
    out += ".TP\n" + bold(example.command) + "\n" + roff(example.says) + "\n";
  }
  out += ".SH OPTIONS\n";
  std::vector<std::string> groups;
  for (const Option& option : options_) {
    if (std::find(groups.begin(), groups.end(), option.group_) == groups.end()) groups.push_back(option.group_);
  }
  for (const std::string& group : groups) {
    if (!group.empty()) out += ".SS " + roff(group) + "\n";
    for (const Option& option : options_) {
      if (option.group_ != group) continue;
      const OptionWords words = words_of(option);
      out += ".TP\n";
      if (option.positional_) {
        out += italic(option.name_);
      } else {
        if (option.shorthand_) out += bold(std::string("-") + option.shorthand_) + ", ";
        out += bold("--" + option.name_);
        if (!words.value.empty()) out += " " + italic(words.value);
      }
      out += "\n" + roff(words.help) + "\n";
    }
  }
  if (!epilog_.empty()) out += ".SH NOTES\n" + roff(epilog_) + "\n";
  const std::size_t command = program().find(' ');
  return out + ".SH ENVIRONMENT\n" + roff(sources_text()) + "\n" +
         man_end(bold(command == std::string::npos ? "automap" : program().substr(0, command)) + "(1)");
}

}  // namespace automap
