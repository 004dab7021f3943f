// One table of options per tool, and everything made from it: the command-line parser, --config files (INI or JSON),
// environment variables, --help / --help-all, --version, --dump-config, and checked values.
//
//   struct Options { std::string input; int micro_batches = 16; } options;
//   OptionTable table("infer", "plan the pipeline-parallel training of a model");
//   table.example("automap-infer model.hlo --cluster config-c", "a plan for 16 V100 in 3 servers");
//   table.positional(&options.input, "INPUT", "the model: HLO or a profile; - reads standard input");
//   table.group("Plan");
//   table.add(&options.micro_batches, "micro-batches", "micro-batches per step").range(1, 65536).metavar("M");
//   if (!table.parse(argc, argv)) return 0;   // --help and the like have printed their answer
//
// A value comes from, in this order: flag, environment (AUTOMAP_INFER_MICRO_BATCHES), --config file
// (micro-batches = 16, or micro_batches), default. Unknown flags, keys and variables, values of the wrong type, out
// of range or not among the choices throw Error(kUsage), or Error(kConfig) when they stand in a file or the
// environment; each names the place, the allowed values and the nearest known name.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/inputs.h"

namespace automap {

class OptionTable;

// What a program does with an option besides its value stands in the option's row, not in lists of names: bits, the
// first of which are everybody's, the others each program's own (infer/options.h).
using OptionTraits = std::uint32_t;
constexpr OptionTraits kInProvenance = 1;    // its value goes into the provenance of what the program writes
constexpr OptionTraits kCommonOption = 2;    // every program has it (OptionTable::add_common)
constexpr OptionTraits kFirstOwnTrait = 16;  // the least of a program's own

// One option; the setters return the option so that they can be chained after OptionTable::add.
class Option {
 public:
  Option& range(double smallest, double largest);       // of numbers and durations (in seconds), both included
  Option& choices(std::vector<std::string> allowed);    // of strings
  Option& suggestions(std::vector<std::string> known);  // values that completion offers; others are as good
  Option& metavar(std::string name);                    // what --help calls the value: FILE, M
  Option& shorthand(char letter);                       // -o
  Option& advanced();                                   // only --help-all shows it
  Option& required();                                   // must be given, by whatever source
  Option& shown_default(std::string text);              // when the default is better said in words
  Option& traits(OptionTraits bits);                    // these, too

  // The file that the value names. Every option with a text of any form must call one of these: parse() refuses outputs
  // that would replace inputs (common/base/inputs.h), and it can protect only the inputs that it knows of.
  Option& reads_file() {
    return role(FileRole::kReadsFile);
  }  // when there is one of that name; presets and "-" need no other word
  Option& reads_folder() { return role(FileRole::kReadsFolder); }    // or a file
  Option& writes_file() { return role(FileRole::kWritesFile); }      // - is standard output
  Option& writes_folder() { return role(FileRole::kWritesFolder); }  // whoever writes into it calls check_folder
  Option& no_file() { return role(FileRole::kNoFile); }
  Option& role(FileRole role);

 private:
  friend class OptionTable;
  struct Flag {
    bool* value;
  };
  struct OnOff {
    bool* value;
  };
  struct Seconds {
    double* value;
    bool none;  // may be infinite
  };
  using Target = std::variant<Flag, OnOff, Seconds, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                              std::vector<std::string>*>;

  std::string name_, help_, group_, metavar_, shown_default_;
  Target target_;
  std::vector<std::string> choices_, suggestions_;
  double smallest_ = -std::numeric_limits<double>::infinity();
  double largest_ = std::numeric_limits<double>::infinity();
  char shorthand_ = 0;
  OptionTraits traits_ = 0;
  bool advanced_ = false, positional_ = false, required_ = false, builtin_ = false;
  std::optional<FileRole> role_;
  std::string default_;  // as text, taken when the option is added
  std::string source_ = "default";
};

class OptionTable {
 public:
  // `tool` "infer" belongs to the program automap-infer and the environment AUTOMAP_INFER_...; "bench-x" to bench-x;
  // "search opp" to the command opp of automap-search, AUTOMAP_SEARCH_OPP_... and the section [search opp] of files.
  OptionTable(std::string tool, std::string summary);
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // Shown first by --help, in this order.
  void example(std::string command, std::string says);
  // Options added from here on stand under this title.
  void group(std::string title);
  // The hint where somebody types an option that there is not: --gpus, as other programs have it.
  void instead_of(std::string unknown, std::string hint) { instead_.emplace(std::move(unknown), std::move(hint)); }
  // Text after the options: exit codes, files.
  void epilog(std::string text);

  // The target keeps its value as the default. Names are words joined by '-'.
  Option& add_flag(bool* value, std::string name, std::string help);    // present or not; in files true/false
  Option& add_on_off(bool* value, std::string name, std::string help);  // on|off
  // "2s", "500ms", "1.5m", "2"; where the default is infinite, "none" as well.
  Option& add_seconds(double* value, std::string name, std::string help);
  Option& add(int* value, std::string name, std::string help);
  Option& add(std::int64_t* value, std::string name, std::string help);
  Option& add(std::uint64_t* value, std::string name, std::string help);
  Option& add(double* value, std::string name, std::string help);
  Option& add(std::string* value, std::string name, std::string help);
  // May be given several times; in INI files a comma-separated list, in JSON an array.
  Option& add(std::vector<std::string>* value, std::string name, std::string help);
  // Arguments without a flag, in this order; a vector takes all that are left.
  Option& positional(std::string* value, std::string name, std::string help);
  Option& positional(std::vector<std::string>* value, std::string name, std::string help);

  // Adds the options every tool has: --json (when `json` is given), --quiet, --verbose, --config, --dump-config,
  // --help, --help-all, --version. parse() calls it when the tool did not. A tool that has added a --config of its own
  // gets --options for the file of options instead.
  void add_common(bool* json);

  // Returns false when the answer (help, version, resolved configuration) has been printed and the tool is done.
  bool parse(int argc, const char* const* argv);

  // After parse(): sets the value that another input of the tool gives an option, if nothing else has set it; `source`
  // names that input in errors, which are of kConfig.
  void set_unless_given(const std::string& name, const std::string& value, const std::string& source) {
    assign_from_config(name, {value}, source);
  }

  // The source of an option's value: "default", "flag", "AUTOMAP_INFER_GRID", "run.ini:3".
  const std::string& source_of(const std::string& name) const;
  // The value in force, as text that --config would accept.
  std::string value_of(const std::string& name) const;
  // The provenance that the program writes into a file: "version", "git", and "option_NAME" of what is kInProvenance.
  std::map<std::string, std::string> provenance() const;

  // `width`: the columns there are; 0: as many as are easy to read.
  std::string help_text(bool all, int width = 0) const;
  // The manual page, and what completion reads (common/base/option_pages.h): of every option.
  std::string man_page() const;
  std::string words() const;
  // All options but positionals as an INI file for --config; values that are not defaults tell their source.
  std::string config_text() const;

  const std::string& tool() const { return tool_; }
  std::string program() const { return (tool_.compare(0, 6, "bench-") == 0 ? "" : "automap-") + tool_; }
  // Names of all options, without dashes, in the order of the table (docs and completion).
  std::vector<std::string> names() const;
  // Those that have one of these traits, in this order, too.
  std::vector<std::string> names_with(OptionTraits any) const;
  OptionTraits traits_of(const std::string& name) const;

 private:
  Option& append(Option::Target target, std::string name, std::string help);
  Option* find(const std::string& name);
  const Option* find(const std::string& name) const;
  void assign(Option& option, const std::vector<std::string>& values, const std::string& source,
              const std::string& where);
  std::string value_text(const Option& option) const;
  // What --help says of an option: its value, and what it is with its default.
  struct OptionWords {
    std::string value, help;
  };
  OptionWords words_of(const Option& option) const;
  std::string sources_text() const;
  std::string environment_name(const std::string& option_name) const;
  std::string usage_line() const;
  std::vector<NamedFile> named_files() const;
  [[noreturn]] static void needs_value(const Option& option);
  void read_arguments(int argc, const char* const* argv);
  void read_environment();
  void read_config(const std::string& path);
  void read_config_ini(const std::string& text, const std::string& source);
  void read_config_json(const std::string& text, const std::string& source);
  void assign_from_config(const std::string& key, const std::vector<std::string>& values, const std::string& source);

  std::map<std::string, std::string> instead_;
  std::string tool_, summary_, group_, epilog_;
  struct Example {
    std::string command, says;
  };
  std::vector<Example> examples_;
  std::deque<Option> options_;  // deque: add() hands out references
  bool common_added_ = false;
  bool* json_ = nullptr;
  bool quiet_ = false, verbose_ = false, help_ = false, help_all_ = false, version_ = false, dump_config_ = false;
  std::string config_, file_option_ = "config";
};

// "2s", "500ms", "1.5m", "1h" or plain seconds -> seconds. False when `text` is none of these.
bool parse_duration(const std::string& text, double* seconds);

// The value of --option: `word` -> 0, else a whole number in [smallest, largest]. Throws Error(kUsage) naming the
// option.
int number_or_word(const std::string& text, const char* option, const char* word, int smallest, int largest);

}  // namespace automap
