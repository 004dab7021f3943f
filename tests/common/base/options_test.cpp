#include "common/base/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "tests/temporary_folder.h"

namespace automap {
namespace {

// A table with one option of each type.
struct Tool {
  std::string input, planner = "auto", output;
  std::vector<std::string> others;
  int micro_batches = 16;
  std::int64_t seed = -1;
  std::uint64_t bytes = 7;
  double scale = 0.5, limit_s = 2;
  bool memory = true, all = false, json = false;
  OptionTable table{"tool", "does things"};

  Tool() {
    table.example("automap-tool x", "the usual");
    table.group("Input");
    table.positional(&input, "INPUT", "what to read").reads_file().required();
    table.group("Plan");
    table.add(&micro_batches, "micro-batches", "micro-batches per step").range(1, 1024).metavar("M");
    table.add(&planner, "planner", "which planner").choices({"auto", "exact", "local-search"});
    table.add(&output, "output", "where to").writes_file().shorthand('o').metavar("FILE");
    table.add(&others, "also", "more of them").no_file();
    table.add(&seed, "seed", "a seed").advanced();
    table.add(&bytes, "bytes", "a size");
    table.add(&scale, "scale", "a factor").range(0, 1);
    table.add_seconds(&limit_s, "time-limit", "how long").range(0, 3600);
    table.add_on_off(&memory, "memory", "look at memory");
    table.add_flag(&all, "all-planners", "every planner");
    table.add_common(&json);
  }
  bool parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "automap-tool");
    return table.parse(static_cast<int>(arguments.size()), arguments.data());
  }
};

TEST(Options, ATimeMayBeNoneWhereThatIsTheDefault) {
  double time = std::numeric_limits<double>::infinity(), other = 2;
  OptionTable table("tool", "does it");
  table.add_seconds(&time, "time-limit", "how long").range(0.001, 3600);
  table.add_seconds(&other, "other", "how long").range(0.001, 3600);
  EXPECT_EQ(table.value_of("time-limit"), "none");
  const char* limited[] = {"automap-tool", "--time-limit", "2s"};
  ASSERT_TRUE(table.parse(3, limited));
  EXPECT_EQ(time, 2);
  EXPECT_EQ(table.value_of("time-limit"), "2s");
  const char* unlimited[] = {"automap-tool", "--time-limit", "none"};
  ASSERT_TRUE(table.parse(3, unlimited));
  EXPECT_EQ(time, std::numeric_limits<double>::infinity());
  const char* wrong[] = {"automap-tool", "--other", "none"};
  EXPECT_THROW(table.parse(3, wrong), Error);
  const char* infinite[] = {"automap-tool", "--time-limit", "inf"};
  EXPECT_THROW(table.parse(3, infinite), Error);
}

Error error_of(const std::vector<const char*>& arguments) {
  Tool tool;
  try {
    tool.parse(arguments);
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "accepted";
  return Error(ErrorKind::kInternal, "");
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) { std::ofstream(path_) << text; }
  const char* path() const { return path_.c_str(); }
  std::string folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  std::string path_ = folder_.file("test.cfg");
};

TEST(Options, ReadsEveryType) {
  Tool tool;
  EXPECT_TRUE(tool.parse({"in.hlo",
                          "--micro-batches",
                          "8",
                          "--planner=exact",
                          "-o",
                          "out.json",
                          "--also",
                          "a",
                          "--also=b",
                          "--seed",
                          "-5",
                          "--bytes=18446744073709551615",
                          "--scale",
                          "1e-1",
                          "--time-limit",
                          "500ms",
                          "--memory",
                          "off",
                          "--all-planners",
                          "--json"}));
  EXPECT_EQ(tool.input, "in.hlo");
  EXPECT_EQ(tool.micro_batches, 8);
  EXPECT_EQ(tool.planner, "exact");
  EXPECT_EQ(tool.output, "out.json");
  EXPECT_EQ(tool.others, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(tool.seed, -5);
  EXPECT_EQ(tool.bytes, UINT64_MAX);
  EXPECT_DOUBLE_EQ(tool.scale, 0.1);
  EXPECT_DOUBLE_EQ(tool.limit_s, 0.5);
  EXPECT_FALSE(tool.memory);
  EXPECT_TRUE(tool.all);
  EXPECT_TRUE(tool.json);
  EXPECT_EQ(tool.table.source_of("planner"), "flag");
  EXPECT_EQ(tool.table.source_of("quiet"), "default");
}

TEST(Options, DefaultsStay) {
  Tool tool;
  EXPECT_TRUE(tool.parse({"-"}));
  EXPECT_EQ(tool.input, "-");
  EXPECT_EQ(tool.micro_batches, 16);
  EXPECT_TRUE(tool.memory);
}

TEST(Options, MistakesAreNamedWithTheWayOut) {
  struct Case {
    std::vector<const char*> arguments;
    const char* message;
    const char* hint;
  };
  const Case cases[] = {
      {{}, "missing INPUT", "automap-tool INPUT"},
      {{"x", "y"}, "unexpected argument 'y'", "usage"},
      {{"x", "--micro-batch", "3"}, "unknown option --micro-batch", "--micro-batches?"},
      {{"x", "--plnaner", "auto"}, "unknown option --plnaner", "--planner?"},
      {{"x", "--nothing-like-it"}, "unknown option", "--help"},
      {{"x", "--micro-batches", "0"}, "found '0', expected a whole number from 1 to 1024", "--help"},
      {{"x", "--micro-batches", "2000"}, "from 1 to 1024", ""},
      {{"x", "--micro-batches", "3.5"}, "found '3.5'", ""},
      {{"x", "--micro-batches", "99999999999999999999"}, "from 1 to 1024", ""},
      {{"x", "--micro-batches", "7x"}, "found '7x'", ""},
      {{"x", "--bytes", "-1"}, "found '-1'", ""},
      {{"x", "--scale", "nan"}, "found 'nan'", ""},
      {{"x", "--scale", "1.01"}, "from 0 to 1", ""},
      {{"x", "--planner", "exakt"}, "one of auto, exact, local-search (did you mean 'exact'?)", ""},
      {{"x", "--planner"}, "--planner needs a value", "auto, exact"},
      {{"x", "-o"}, "--output needs a value: --output FILE", ""},
      {{"x", "--output", "--"}, "--output needs a value: --output FILE", ""},
      {{"x", "-o", "--", "--json"}, "--output needs a value", ""},
      {{"--planner", "--", "x"}, "--planner needs a value", "auto, exact"},
      {{"x", "-o", ""}, "--output: the value is empty", ""},
      {{"x", "--planner", "auto", "--planner", "exact"}, "given 2 times", ""},
      {{"x", "--memory", "maybe"}, "expected on or off", ""},
      {{"x", "--all-planners=yes"}, "takes no value", ""},
      {{"x", "--time-limit", "2 parsecs"}, "a time such as 2s or 500ms", ""},
      {{"x", "--time-limit", "-1s"}, "from 0 to 3600 seconds", ""},
      {{"x", "--quiet", "--verbose"}, "contradict", ""},
      {{"x", "--config", "/no/such/file"}, "/no/such/file", ""},
  };
  for (const Case& c : cases) {
    const Error error = error_of(c.arguments);
    EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find(c.hint), std::string::npos) << error.what() << " / " << error.hint();
    EXPECT_TRUE(error.kind() == ErrorKind::kUsage || error.kind() == ErrorKind::kIo);
  }
}

TEST(Options, TwoDashesEndTheOptions) {
  Tool tool;
  EXPECT_TRUE(tool.parse({"--output=--", "--", "--json"}));
  EXPECT_EQ(tool.output, "--");
  EXPECT_EQ(tool.input, "--json");
  EXPECT_FALSE(tool.json);
}

TEST(Options, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const ConfigFile file("micro_batches = 2\nplanner = exact  # as in the paper\nscale=0.25\n\n; note\nalso = a, b\n");
  const Environment environment("AUTOMAP_TOOL_PLANNER", "local-search");
  {
    Tool tool;
    EXPECT_TRUE(tool.parse({"x", "--config", file.path()}));
    EXPECT_EQ(tool.micro_batches, 2);
    EXPECT_EQ(tool.table.source_of("micro-batches"), std::string(file.path()) + ":1");
    EXPECT_EQ(tool.planner, "local-search");
    EXPECT_EQ(tool.table.source_of("planner"), "AUTOMAP_TOOL_PLANNER");
    EXPECT_DOUBLE_EQ(tool.scale, 0.25);
    EXPECT_EQ(tool.others, (std::vector<std::string>{"a", "b"}));
  }
  Tool tool;
  EXPECT_TRUE(tool.parse({"x", "--config", file.path(), "--planner=auto"}));
  EXPECT_EQ(tool.planner, "auto");
}

TEST(Options, ConfigFilesServeSeveralTools) {
  const ConfigFile ini("[other]\nanything = 1\n[tool]\nmicro-batches = 3\n");
  Tool tool;
  EXPECT_TRUE(tool.parse({"x", "--config", ini.path()}));
  EXPECT_EQ(tool.micro_batches, 3);
  const ConfigFile json(
      R"({"scale": 0.125, "memory": false, "also": ["p", "q"], "tool": {"micro_batches": 4, "time-limit": "30ms"},
                            "other": {"anything": 1}})");
  Tool second;
  EXPECT_TRUE(second.parse({"x", "--config", json.path()}));
  EXPECT_EQ(second.micro_batches, 4);
  EXPECT_DOUBLE_EQ(second.scale, 0.125);
  EXPECT_DOUBLE_EQ(second.limit_s, 0.03);
  EXPECT_FALSE(second.memory);
  EXPECT_EQ(second.others, (std::vector<std::string>{"p", "q"}));
}

TEST(Options, MistakesInFilesAndEnvironmentNameThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"micro-batches = 3\nplaner = exact\n", ".cfg:2: unknown option 'planer'"},
      {"micro-batches = 0\n", ".cfg:1: micro-batches: found '0'"},
      {"micro-batches\n", ".cfg:1: found 'micro-batches', expected key = value"},
      {"scale = 0\nscale = 1\n", ".cfg:2: 'scale' is given twice"},
      {"help = true\n", "unknown option 'help'"},
      {"INPUT = x\n", "unknown option 'INPUT'"},
      {"{\"micro-batches\": 3,}", "not valid JSON"},
      {"{\"micro-batches\": null}", "micro-batches: found null"},
      {"{\"planer\": \"auto\"}", "unknown option 'planer'"},
  };
  for (const auto& [text, message] : cases) {
    const ConfigFile file(text);
    const Error error = error_of({"x", "--config", file.path()});
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
  const Environment environment("AUTOMAP_TOOL_MICRO", "3");
  const Error error = error_of({"x"});
  EXPECT_EQ(error.kind(), ErrorKind::kConfig);
  EXPECT_NE(std::string(error.what()).find("AUTOMAP_TOOL_MICRO"), std::string::npos);
  EXPECT_NE(error.hint().find("AUTOMAP_TOOL_MICRO_BATCHES"), std::string::npos);
}

TEST(Options, CommandsOfOneProgramHaveTheirOwnTables) {
  const Environment environment("AUTOMAP_TOOL_OPEN_SHARDS", "4");
  int shards = 8;
  OptionTable table("tool open", "opens");
  table.add(&shards, "shards", "how many");
  const char* const arguments[] = {"automap-tool"};
  ASSERT_TRUE(table.parse(1, arguments));
  EXPECT_EQ(shards, 4);
  EXPECT_EQ(table.program(), "automap-tool open");
  EXPECT_NE(table.help_text(false).find("Usage: automap-tool open [options]"), std::string::npos);
  EXPECT_NE(table.config_text().find("[tool open]\nshards = 4"), std::string::npos);
  const ConfigFile file("[tool]\nshards = 1\n[tool open]\nshards = 2\n[tool close]\ncolour = red\n");
  OptionTable other("tool open", "opens");
  int shards_of_other = 8;
  other.add(&shards_of_other, "number", "how many");
  const char* const with_file[] = {"automap-tool", "--config", file.path()};
  try {
    other.parse(3, with_file);
    ADD_FAILURE() << "AUTOMAP_TOOL_OPEN_SHARDS is no option of this table";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("AUTOMAP_TOOL_OPEN_SHARDS"), std::string::npos) << e.what();
  }
}

TEST(Options, DumpedConfigurationReadsBackAsItself) {
  Tool tool;
  ASSERT_TRUE(tool.parse({"x", "--micro-batches", "9", "--time-limit", "250ms", "--memory=off", "--all-planners",
                          "--also", "a", "--also", "b", "--planner", "exact", "--scale", "0.1"}));
  const ConfigFile file(tool.table.config_text());
  Tool again;
  ASSERT_TRUE(again.parse({"x", "--config", file.path()}));
  for (const std::string& name : tool.table.names()) {
    if (name != "config") {
      EXPECT_EQ(tool.table.value_of(name), again.table.value_of(name)) << name;
    }
  }
}

TEST(Options, TraitsAreOfTheRow) {
  constexpr OptionTraits kNarrow = kFirstOwnTrait, kSlow = kFirstOwnTrait << 1;
  int width = 1, depth = 2;
  bool json = false;
  OptionTable table{"tool", "does things"};
  table.add(&width, "width", "how wide").traits(kNarrow | kInProvenance);
  table.add(&depth, "depth", "how deep").range(1, 9).traits(kSlow).traits(kInProvenance);
  table.add_flag(&json, "loud", "no trait");
  table.add_common(&json);
  using Names = std::vector<std::string>;
  EXPECT_EQ(table.names_with(kNarrow), Names{"width"});
  EXPECT_EQ(table.names_with(kNarrow | kSlow), (Names{"width", "depth"}));
  EXPECT_EQ(table.traits_of("depth"), kSlow | kInProvenance);
  EXPECT_EQ(table.names_with(kFirstOwnTrait << 2), Names{});
  // The rest of the table is everybody's.
  Names all{"width", "depth", "loud"};
  for (const std::string& name : table.names_with(kCommonOption)) all.push_back(name);
  EXPECT_EQ(all, table.names());
  const char* const arguments[] = {"automap-tool", "--depth", "7"};
  ASSERT_TRUE(table.parse(3, arguments));
  const std::map<std::string, std::string> provenance = table.provenance();
  EXPECT_EQ(provenance.size(), 4u);  // with "version" and "git"
  EXPECT_EQ(provenance.at("option_width"), "1");
  EXPECT_EQ(provenance.at("option_depth"), "7");
}

TEST(Options, HelpShowsExamplesFirstAndHidesTheRest) {
  const Tool tool;
  const std::string help = tool.table.help_text(false), all = tool.table.help_text(true);
  EXPECT_LT(help.find("Examples:"), help.find("Usage:"));
  EXPECT_EQ(help.find("--seed"), std::string::npos);
  EXPECT_NE(all.find("--seed"), std::string::npos);
  EXPECT_NE(help.find("--planner auto|exact|local-search"), std::string::npos);
  EXPECT_NE(help.find("[16]"), std::string::npos);
  EXPECT_NE(help.find("AUTOMAP_TOOL_"), std::string::npos);
}

// Commands stay whole, for they are copied; an option's own words may be as long as they are.
TEST(Options, HelpFitsTheTerminal) {
  const Tool tool;
  for (const int width : {48, 60, 100}) {
    std::istringstream lines(tool.table.help_text(true, width));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("automap-tool") != std::string::npos || line.find("  --") == 0) continue;
      EXPECT_LE(display_width(line), width) << line;
    }
  }
  EXPECT_EQ(tool.table.help_text(true, 400), tool.table.help_text(true));
}

TEST(Options, Durations) {
  double seconds = -1;
  EXPECT_TRUE(parse_duration("2s", &seconds) && seconds == 2);
  EXPECT_TRUE(parse_duration("1.5m", &seconds) && seconds == 90);
  EXPECT_TRUE(parse_duration("2 min", &seconds) && seconds == 120);
  EXPECT_TRUE(parse_duration("1h", &seconds) && seconds == 3600);
  EXPECT_TRUE(parse_duration("0.25", &seconds) && seconds == 0.25);
  for (const char* wrong : {"", "s", "2x", "s2", "1e", "--3s", "nan", "inf"})
    EXPECT_FALSE(parse_duration(wrong, &seconds)) << wrong;
}

// A new text option that does not say whether it names a file is found by the first run of its program.
TEST(Options, EveryTextSaysWhetherItNamesAFile) {
  const auto error_with = [](auto declare) {
    std::string text;
    std::vector<std::string> list;
    OptionTable table("tool", "does things");
    declare(table, text, list);
    const char* const arguments[] = {"automap-tool"};
    try {
      table.parse(1, arguments);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error_with([](OptionTable& t, std::string& s, auto&) { t.add(&s, "x", "x"); }).find("role_"),
            std::string::npos);
  EXPECT_NE(error_with([](OptionTable& t, auto&, auto& list) { t.add(&list, "x", "x"); }).find("role_"),
            std::string::npos);
  EXPECT_NE(error_with([](OptionTable& t, std::string& s, auto&) { t.positional(&s, "X", "x"); }).find("role_"),
            std::string::npos);
  EXPECT_EQ(error_with([](OptionTable& t, std::string& s, auto&) { t.add(&s, "x", "x").no_file(); }), "");
  EXPECT_EQ(error_with([](OptionTable& t, std::string& s, auto&) { t.add(&s, "x", "x").choices({"a"}); }), "");
}

// Whatever the value came from.
TEST(Options, NoOutputReplacesAnInput) {
  const ConfigFile input("");
  EXPECT_EQ(error_of({input.path(), "-o", input.path()}).kind(), ErrorKind::kUsage);
  const std::string other = input.folder() + "/./test.cfg";
  const Error same = error_of({input.path(), "-o", other.c_str()});
  EXPECT_NE(std::string(same.what()).find(std::string("-o would replace INPUT ") + input.path()), std::string::npos)
      << same.what();
  EXPECT_NE(std::string(same.what()).find(other), std::string::npos) << same.what();
  {
    const Environment environment("AUTOMAP_TOOL_OUTPUT", input.path());
    EXPECT_NE(std::string(error_of({input.path()}).what()).find("-o would replace INPUT"), std::string::npos);
  }
  EXPECT_NE(std::string(error_of({"x", "--config", input.path(), "-o", input.path()}).what())
                .find("-o would replace --config"),
            std::string::npos);
  Tool tool;
  EXPECT_TRUE(tool.parse({input.path(), "--also", input.path(), "-o", "another"}));
}

}  // namespace
}  // namespace automap
