// automap-datagen: datasets of random planning problems. Parses, calls, prints.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/inputs.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/printable.h"
#include "common/base/processors.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"
#include "datagen/distributions.h"
#include "datagen/generate.h"
#include "datagen/preview.h"

namespace {

using namespace automap;
using namespace automap::datagen;

constexpr std::uint64_t kMostPreviewed = 1000;
// More threads than this per processor only cost memory.
constexpr int kMostThreadsPerProcessor = 4;

struct Options {
  std::string config = "mixed", output, shard_range, part;
  std::vector<std::string> profiles;
  std::uint64_t rows = 0, seed = 1, shard_rows = 65536, preview = 0;
  int threads = 0;
  bool oracle = false, compress = false, list = false, json = false;
};

void declare(OptionTable& table, Options& o) {
  table.example("automap-datagen --rows 20000 --seed 1 -o data", "random problems of all families, as HDF5");
  table.example("automap-datagen --rows 200 --config paper --oracle -o labelled", "with exact optima as labels");
  table.example("automap-datagen --preview 3 --seed 7", "look at a few rows; nothing is written");
  table.group("Rows");
  table.add(&o.rows, "rows", "how many rows; more than the folder has extends it")
      .range(0, 1e12)
      .metavar("N")
      .shown_default("");
  table
      .add(
          &o.config, "config",
          "families and ranges: a JSON file, or a built-in (" +
              [] {
                std::string names;
                for (const std::string& name : built_in_configs()) names += (names.empty() ? "" : ", ") + name;
                return names;
              }() +
              "); docs/datagen.md lists every key")
      .reads_file()
      .metavar("FILE");
  table
      .add(&o.profiles, "profiles",
           "draw the family empirical from these profiles, files or folders of them; a fifth of the rows where the "
           "configuration says nothing of it")
      .reads_folder()
      .metavar("PATH");
  table.add(&o.seed, "seed", "another seed gives other rows").metavar("S");
  table.add_flag(&o.oracle, "oracle",
                 "label every row with its exact optimum (slow: about 70 rows per CPU-second of mixed)");
  table.group("Files");
  table.add(&o.output, "output", "the dataset's folder; made when it is not there, continued when it is")
      .writes_folder()
      .shorthand('o')
      .metavar("DIR");
  table.add(&o.shard_rows, "shard-rows", "rows per file").range(1, static_cast<double>(kMostShardRows)).metavar("N");
  table.add(&o.shard_range, "shard-range", "only shards A to B-1, for the jobs of an array: 0:16")
      .no_file()
      .metavar("A:B");
  table
      .add(&o.part, "part",
           "only part K (0 to N-1) of N nearly equal ones, in whole shards, for the jobs of an array; the same command "
           "without it then checks all and makes what is missing")
      .no_file()
      .metavar("K/N");
  table.add_flag(&o.compress, "compress", "archive: a quarter smaller, much slower to write and to open");
  table.add(&o.threads, "threads", "worker threads, 0: one per processor; what is written does not depend on it")
      .range(0, 1024)
      .metavar("N")
      .shown_default("0");
  table.group("Looking");
  table.add_flag(&o.list, "list-distributions", "the families and their parameters");
  table.add(&o.preview, "preview", "draw the first N rows as text and write nothing")
      .range(0, static_cast<double>(kMostPreviewed))
      .metavar("N")
      .shown_default("");
  table.epilog(
      "Run the same command again to continue after a stop, a crash or a full disk: finished shards are checked and "
      "kept. "
      "Exit codes: 0 all there, 2 wrong usage or configuration, or the folder holds another dataset, 3 cannot read or "
      "write, 75 stopped early.");
  table.add_common(&o.json);
}

void set_shard_range(const std::string& text, GenerateOptions& options) {
  const std::size_t colon = text.find(':');
  const auto number = [](const std::string& part, std::uint64_t& value) {
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value);
    return status == std::errc() && end == part.data() + part.size();
  };
  if (colon == std::string::npos || !number(text.substr(0, colon), options.first_shard) ||
      !number(text.substr(colon + 1), options.last_shard) || options.first_shard >= options.last_shard) {
    throw Error(ErrorKind::kUsage, "--shard-range: found '" + text + "', expected A:B with A < B",
                "0:16 makes shards 0 to 15");
  }
}

// Shards floor(K shards / N) to floor((K + 1) shards / N) - 1. False when there are more parts than shards and this one
// is empty.
bool set_part(const std::string& text, GenerateOptions& options) {
  std::uint64_t part = 0, parts = 0;
  const std::size_t slash = text.find('/');
  const auto number = [](std::string_view digits, std::uint64_t& value) {
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return status == std::errc() && end == digits.data() + digits.size();
  };
  constexpr std::uint64_t kMostParts = 100000;
  if (slash == std::string::npos || !number(std::string_view(text).substr(0, slash), part) ||
      !number(std::string_view(text).substr(slash + 1), parts) || part >= parts || parts > kMostParts) {
    throw Error(
        ErrorKind::kUsage,
        "--part: found '" + text + "', expected K/N with K from 0 to N-1 and N up to " + std::to_string(kMostParts),
        "--part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT in an array whose numbers begin at 0");
  }
  const std::uint64_t shards = (options.rows + options.shard_rows - 1) / options.shard_rows;
  options.first_shard = part * shards / parts;
  options.last_shard = (part + 1) * shards / parts;
  return options.first_shard < options.last_shard;
}

// --shard-range and --part. False when there is nothing to do, which has been said then.
bool choose_shards(const Options& o, GenerateOptions& options) {
  if (!o.shard_range.empty() && !o.part.empty()) {
    throw Error(ErrorKind::kUsage, "--part and --shard-range exclude each other", "--part alone finds the shards");
  }
  if (!o.shard_range.empty()) set_shard_range(o.shard_range, options);
  if (o.part.empty() || set_part(o.part, options)) return true;
  log_info("--part " + o.part + ": more parts than shards, nothing to do (smaller --shard-rows make more)");
  if (o.json) {
    print_exact(json_text(Json{{"schema", "automap.datagen/1"},
                               {"folder", options.folder},
                               {"rows", o.rows},
                               {"rows_written", 0},
                               {"shards_written", 0},
                               {"shards_kept", 0},
                               {"seconds", 0.0},
                               {"stopped", false}}));
  }
  return false;
}

// The rows of the shards that this job makes.
std::uint64_t rows_in_range(const GenerateOptions& options) {
  const std::uint64_t shards = (options.rows + options.shard_rows - 1) / options.shard_rows;
  const std::uint64_t first = std::min(options.first_shard, shards), last = std::min(options.last_shard, shards);
  return std::min(options.rows, last * options.shard_rows) - std::min(options.rows, first * options.shard_rows);
}

int thread_count(int asked) {
  const int processors = usable_processors();
  if (asked == 0) return processors;
  const int most = std::max(8, kMostThreadsPerProcessor * processors);
  if (asked <= most) return asked;
  log_warning("--threads " + std::to_string(asked) + " on " + std::to_string(processors) + " processors: using " +
              std::to_string(most));
  return most;
}

int list(bool json) {
  if (json) {
    Json families = Json::array();
    for (const DistributionInfo& info : list_distributions()) {
      Json parameters = Json::array();
      for (const Parameter& p : info.parameters) {
        parameters.push_back({{"name", p.name},
                              {"meaning", p.meaning},
                              {"default_low", p.default_value},
                              {"default_high", p.default_high}});
      }
      families.push_back({{"name", info.name}, {"summary", info.summary}, {"parameters", parameters}});
    }
    print_exact(json_text(Json{{"schema", "automap.distributions/1"}, {"distributions", families}}));
    return 0;
  }
  std::string out;
  for (const DistributionInfo& info : list_distributions()) {
    out += info.name + ": " + info.summary + "\n";
    for (const Parameter& p : info.parameters) {
      const bool range = p.default_high != p.default_value && std::isfinite(p.default_high);
      out += "    " + p.name + " = " + format_number(p.default_value) +
             (range ? " .. " + format_number(p.default_high) : "") + ": " + p.meaning + "\n";
    }
  }
  print(out);
  return 0;
}

int preview(const Generator& generator, const Options& o) {
  Json rows = Json::array();
  for (std::uint64_t i = 0; i < o.preview; ++i) {
    const pipeline::RowProblem row = generator.row(o.seed, i);
    if (o.json) {
      rows.push_back(row_json(row, generator.distributions(), i));
    } else {
      print((i == 0 ? "" : "\n") + row_text(row, generator.distributions(), i));
    }
  }
  if (o.json) print_exact(json_text(Json{{"schema", "automap.preview/1"}, {"seed", o.seed}, {"rows", rows}}, -1));
  return 0;
}

int datagen_main(int argc, char** argv) {
  Options o;
  OptionTable table("datagen", "make a dataset of random planning problems to train planners on");
  declare(table, o);
  if (!table.parse(argc, argv)) return 0;
  if (o.list) return list(o.json);
  Generator generator = Generator::load(o.config);
  if (!o.profiles.empty()) generator = generator.with_profiles(o.profiles);
  if (o.preview > 0) return preview(generator, o);
  if (o.rows == 0) {
    const bool given = table.source_of("rows") != "default";
    throw Error(ErrorKind::kUsage,
                given ? "--rows: found 0, expected at least 1" : "missing --rows: how many rows to make",
                "automap-datagen --rows 1000000 -o data");
  }
  if (o.output.empty()) {
    throw Error(ErrorKind::kUsage, "missing --output: the folder for the dataset",
                "automap-datagen --rows " + std::to_string(o.rows) + " -o data");
  }
  GenerateOptions options;
  options.folder = o.output;
  while (options.folder.size() > 1 && options.folder.back() == '/') options.folder.pop_back();
  options.rows = o.rows;
  options.seed = o.seed;
  options.shard_rows = o.shard_rows;
  options.oracle = o.oracle;
  options.compress = o.compress;
  options.threads = thread_count(o.threads);
  if (!choose_shards(o, options)) return 0;
  check_folder(options.folder, {"dataset.json", "shard-*.h5"});

  RowSource source;
  source.row = [&](std::uint64_t index) { return generator.row(o.seed, index); };
  source.config_json = generator.config_json();
  source.distributions = generator.distributions();
  source.generator = "AutoMap " + version();

  const StopToken stop;
  GenerateHooks hooks;
  hooks.stop = [] { return StopToken::stop_requested(); };
  const auto start = std::chrono::steady_clock::now();
  GenerateResult result;
  {
    Progress progress("datagen", rows_in_range(options), "rows");
    hooks.progress = [&](std::uint64_t done, std::uint64_t) { progress.update(done); };
    result = generate_dataset(source, options, hooks);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (o.json) {
    Json document = {{"schema", "automap.datagen/1"},
                     {"folder", options.folder},
                     {"rows", o.rows},
                     {"rows_written", result.rows_written},
                     {"shards_written", result.shards_written},
                     {"shards_kept", result.shards_kept},
                     {"seconds", seconds},
                     {"stopped", result.stopped}};
    if (o.oracle) {
      document["rows_labelled"] = result.rows_labelled;
      document["rows_infeasible"] = result.rows_infeasible;
      document["rows_unlabelled"] = result.rows_unlabelled;
    }
    print_exact(json_text(document));
  } else {
    const auto count = [](std::uint64_t n) { return format_count(static_cast<long long>(n)); };
    const auto shards = [&](std::uint64_t n) { return count(n) + (n == 1 ? " shard" : " shards"); };
    std::string text = printable(options.folder) + ": ";
    if (result.shards_written > 0 || result.shards_kept == 0) {
      text += count(result.rows_written) + " rows in " + shards(result.shards_written) + " written in " +
              format_ms(seconds * 1e3);
    }
    if (result.shards_kept > 0) {
      text += (result.shards_written > 0 ? ", " : "") + shards(result.shards_kept) + " kept";
      if (result.shards_written == 0 && !result.stopped) text += ", nothing to do";
    }
    text += "\n";
    if (o.oracle && result.rows_written > 0) {
      text += "labels: " + count(result.rows_labelled) + " optimal, " + count(result.rows_infeasible) +
              " without a feasible plan, " + count(result.rows_unlabelled) + " not labelled (too large)\n";
    }
    print(text);
  }
  if (!result.stopped) return 0;
  log_warning("stopped early; run the same command again to continue");
  return kExitStoppedEarly;
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, datagen_main);
}
