#include "common/io/dataset_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <initializer_list>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/reason.h"

namespace automap::io {
namespace {
using pipeline::RowProblem;

// More rows than fit on any disk of today; keeps every product of counts and sizes within 64 bits.
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 48;

std::string crc_text(std::uint32_t crc) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", crc);
  return text.data();
}

constexpr const char* kChecksumKey = "manifest_crc32c";
constexpr const char* kListHashKey = "shards_sha256";
constexpr int kListHashVersion = 3;  // older ones have `sha256` in every line instead

// A shard as it stands in the list.
std::string line_of(const ShardEntry& entry, int version) {
  Json line = Json::object();
  line["file"] = entry.file;
  line["first_row"] = entry.first_row;
  line["rows"] = entry.rows;
  line["bytes"] = entry.bytes;
  line["caw_offset"] = entry.caw_offset;
  line["crc32c"] = crc_text(entry.crc32c);
  line["rest_crc32c"] = crc_text(entry.rest_crc32c);
  if (version < kListHashVersion) line["sha256"] = entry.sha256;
  return line.dump();
}

// SHA-256 of all lines of the list, each with a line end.
std::string list_hash(const DatasetManifest& manifest) {
  Sha256 sha;
  for (const ShardEntry& entry : manifest.shards) sha.update(line_of(entry, manifest.version) + "\n");
  return sha.hex();
}

// The last lines: the checksum of the lines before them.
std::string checksum_lines(std::string_view before) {
  return "  \"" + std::string(kChecksumKey) + "\": \"" + crc_text(crc32c(before)) + "\"\n}\n";
}

class ManifestReader {
 public:
  // For single lines of the list.
  explicit ManifestReader(const std::string& source) : source_(source) {}
  ManifestReader(std::string_view text, const std::string& source) : source_(source), text_(text) {
    try {
      root_ = Json::parse(text);
    } catch (const JsonError& e) {
      fail("not JSON: " + reason_of(e));
    }
    if (!root_.is_object()) fail("found no JSON object");
  }

  DatasetManifest run() {
    DatasetManifest manifest;
    manifest.version = check_schema();
    manifest.checksum = check_checksum();
    manifest.generator = string(root_, "", "generator");
    manifest.rows = count(root_, "", "rows", 1);
    manifest.shard_rows = count(root_, "", "shard_rows", 1);
    manifest.seed = value(root_, "", "seed", &Json::is_number_unsigned, "a whole number from 0").get<std::uint64_t>();
    manifest.oracle = value(root_, "", "oracle", &Json::is_boolean, "true or false").get<bool>();
    manifest.compressed = value(root_, "", "compressed", &Json::is_boolean, "true or false").get<bool>();
    for (const Json& name : value(root_, "", "distributions", &Json::is_array, "a list of names")) {
      if (!name.is_string()) fail("distributions: expected names");
      manifest.distributions.push_back(name.get<std::string>());
    }
    if (manifest.distributions.empty() || manifest.distributions.size() > 256) {
      fail("distributions: found " + std::to_string(manifest.distributions.size()) + " names, expected 1 to 256");
    }
    manifest.config_json = value(root_, "", "config", &Json::is_object, "an object").dump();
    const Json& shards = value(root_, "", "shards", &Json::is_array, "a list");
    for (std::size_t i = 0; i < shards.size(); ++i) {
      manifest.shards.push_back(shard(shards[i], "shards[" + std::to_string(i) + "]", manifest));
    }
    if (manifest.version >= kListHashVersion) {
      const std::string found = string(root_, "", kListHashKey), expected = list_hash(manifest);
      if (found != expected) {
        fail(std::string(kListHashKey) + ": found \"" + excerpt(found, 64) + "\", and the lines of `shards` have " +
             expected);
      }
    } else if (root_.contains(kListHashKey)) {
      fail(std::string(kListHashKey) + ": unknown key");
    }
    check_keys(root_, "",
               {"schema", "generator", "rows", "shard_rows", "seed", "oracle", "compressed", "distributions", "config",
                "shards", kListHashKey, kChecksumKey});
    return manifest;
  }

  ShardEntry shard(const Json& object, const std::string& where, const DatasetManifest& manifest) const {
    ShardEntry entry;
    entry.file = string(object, where, "file");
    entry.first_row = count(object, where, "first_row", 0);
    entry.rows = count(object, where, "rows", 1);
    entry.bytes = count(object, where, "bytes", 1);
    const bool hashed = manifest.version < kListHashVersion;
    if (hashed) entry.sha256 = string(object, where, "sha256");
    entry.crc32c = crc(object, where, "crc32c");
    entry.rest_crc32c = crc(object, where, "rest_crc32c");
    entry.caw_offset = count(object, where, "caw_offset", 0);
    check_keys(
        object, where,
        {"file", "first_row", "rows", "bytes", "caw_offset", "crc32c", "rest_crc32c", hashed ? "sha256" : "file"});
    if (entry.caw_offset > entry.bytes ||
        (!manifest.compressed && entry.rows > (entry.bytes - entry.caw_offset) / kCawRowBytes)) {
      fail(where + ": /caw does not fit into the file");
    }
    const std::uint64_t number = entry.first_row / manifest.shard_rows;
    // The name is fixed, so a manifest cannot point out of its folder.
    if (entry.first_row % manifest.shard_rows != 0 || number >= manifest.num_shards() ||
        entry.rows != manifest.rows_of_shard(number) || entry.file != shard_file_name(number)) {
      fail(where + ": found " + excerpt(entry.file, 60) + " with " + std::to_string(entry.rows) + " rows from " +
           std::to_string(entry.first_row) + ", which does not fit " + std::to_string(manifest.rows) +
           " rows in shards of " + std::to_string(manifest.shard_rows));
    }
    if (!manifest.shards.empty() && manifest.shards.back().first_row >= entry.first_row) {
      fail(where + ": shards are not in order");
    }
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, source_ + ": " + what, "docs/formats/dataset.md describes the file");
  }

  // False when there is none. It is looked for in the text, so that changes that JSON does not tell apart count as
  // changes.
  bool check_checksum() const {
    if (!root_.contains(kChecksumKey)) return false;
    const std::size_t size = checksum_lines("").size();
    if (text_.size() > size &&
        text_.substr(text_.size() - size) == checksum_lines(text_.substr(0, text_.size() - size))) {
      return true;
    }
    throw Error(
        ErrorKind::kData,
        source_ + ": damaged, or changed after it was written: its checksum " + kChecksumKey + " is another one",
        "run the automap-datagen command again: it keeps the shards that are as they were and repairs this file");
  }

  void check_keys(const Json& object, const std::string& where, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, ignored] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        fail((where.empty() ? "" : where + ".") + excerpt(key, 60) + ": unknown key");
      }
    }
  }

  int check_schema() const {
    const std::string schema = string(root_, "", "schema");
    for (int version = 1; version <= kDatasetVersion; ++version) {
      if (schema == dataset_schema(version)) return version;
    }
    const std::string prefix = std::string(kDatasetSchemaName) + "/";
    if (schema.rfind(prefix, 0) != 0) {
      fail("schema: found \"" + excerpt(schema, 60) + "\", expected \"" + dataset_schema() + "\"");
    }
    throw Error(ErrorKind::kData,
                source_ + ": found " + excerpt(schema, 60) + ", this version of AutoMap reads " + dataset_schema(),
                "use the version of AutoMap that wrote it, or make the dataset again with automap-datagen");
  }

  const Json& value(const Json& object, const std::string& where, const char* key, bool (Json::*is)() const noexcept,
                    const char* expected) const {
    const std::string name = where.empty() ? key : where + "." + key;
    if (!object.is_object() || !object.contains(key)) fail(name + " is missing, expected " + expected);
    const Json& found = object.at(key);
    if (!(found.*is)()) fail(name + ": found " + excerpt(found.dump(), 60) + ", expected " + expected);
    return found;
  }

  std::string string(const Json& object, const std::string& where, const char* key) const {
    return value(object, where, key, &Json::is_string, "a string").get<std::string>();
  }

  std::uint64_t count(const Json& object, const std::string& where, const char* key, std::uint64_t smallest) const {
    const auto found = value(object, where, key, &Json::is_number_unsigned, "a whole number").get<std::uint64_t>();
    if (found < smallest || found > kMostRows) {
      fail((where.empty() ? key : where + "." + key) + ": found " + std::to_string(found) + ", expected " +
           std::to_string(smallest) + " to " + std::to_string(kMostRows));
    }
    return found;
  }

  std::uint32_t crc(const Json& object, const std::string& where, const char* key) const {
    const std::string text = string(object, where, key);
    if (text.size() != 8 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail(where + "." + key + ": found \"" + excerpt(text, 20) + "\", expected 8 hexadecimal digits");
    }
    return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
  }

  const std::string& source_;
  std::string_view text_;
  Json root_;
};

}  // namespace

std::string dataset_schema(int version) {
  return std::string(kDatasetSchemaName) + "/" + std::to_string(version);
}

std::size_t bytes_of(ColumnType type) {
  switch (type) {
    case ColumnType::kU8: return 1;
    case ColumnType::kU16:
    case ColumnType::kI16: return 2;
    case ColumnType::kF32:
    case ColumnType::kU32: return 4;
  }
  return 0;
}

namespace {

std::vector<DatasetColumn> all_columns() {
  // A member of RowProblem.
  const auto of_row = [](const char* name, const char* units, ColumnType type, std::size_t offset, int since) {
    return DatasetColumn{name, units, type, 1, false, since, offset};
  };
  constexpr const char* kAtLink = "scale_ms at the slowest link";
  return {
      of_row("scale_ms", "ms", ColumnType::kF32, offsetof(RowProblem, scale_ms), 1),
      of_row("num_instructions", "1", ColumnType::kU32, offsetof(RowProblem, num_instructions), 1),
      of_row("distribution", "1", ColumnType::kU8, offsetof(RowProblem, distribution), 1),
      of_row("servers", "1", ColumnType::kU16, offsetof(RowProblem, servers), 1),
      of_row("devices_per_server", "1", ColumnType::kU16, offsetof(RowProblem, devices_per_server), 1),
      of_row("intra_over_inter", "1", ColumnType::kF32, offsetof(RowProblem, intra_over_inter), 1),
      of_row("micro_batches", "1", ColumnType::kU16, offsetof(RowProblem, micro_batches), 1),
      of_row("stages", "1", ColumnType::kU16, offsetof(RowProblem, stages), 1),
      of_row("memory_limit", kAtLink, ColumnType::kF32, offsetof(RowProblem, memory_limit), 1),
      of_row("schedule", "1", ColumnType::kU8, offsetof(RowProblem, schedule), 1),
      of_row("forward_fraction", "1", ColumnType::kF32, offsetof(RowProblem, forward_fraction), 1),
      of_row("stash_factor", "1", ColumnType::kF32, offsetof(RowProblem, stash_factor), 1),
      of_row("hop_latency", "scale_ms", ColumnType::kF32, offsetof(RowProblem, hop_latency), 1),
      of_row("server_seed", "1", ColumnType::kU32, offsetof(RowProblem, server_seed), 1),
      of_row("samples", "1", ColumnType::kU16, offsetof(RowProblem, samples), 2),
      of_row("launch_share", "1", ColumnType::kF32, offsetof(RowProblem, launch_share), 2),
      of_row("launch_even", "1", ColumnType::kF32, offsetof(RowProblem, launch_even), 2),
      of_row("gradient_share", "1", ColumnType::kF32, offsetof(RowProblem, gradient_share), 2),
      of_row("slot_factor", "1", ColumnType::kF32, offsetof(RowProblem, slot_factor), 2),
      of_row("gradient_sync", "1", ColumnType::kU8, offsetof(RowProblem, gradient_sync), 2),
      of_row("bucket", kAtLink, ColumnType::kF32, offsetof(RowProblem, bucket), 2),
      of_row("optimizer_factor", "1", ColumnType::kF32, offsetof(RowProblem, optimizer_factor), 2),
      of_row("workspace_factor", "1", ColumnType::kF32, offsetof(RowProblem, workspace_factor), 2),
      of_row("zero", "1", ColumnType::kU8, offsetof(RowProblem, zero), 2),
      of_row("layers", "1", ColumnType::kU16, offsetof(RowProblem, layers), 2),
      {"oracle/cuts", "grid point", ColumnType::kI16, kOracleBoundaries, true, 1, 0},
      {"oracle/device_cuts", "device", ColumnType::kI16, kOracleBoundaries, true, 1, 0},
      {"oracle/variants", "1", ColumnType::kU8, kOracleBoundaries + 1, true, 2, 0},
      {"oracle/length", "scale_ms", ColumnType::kF32, 1, true, 1, 0},
  };
}

}  // namespace

const std::vector<DatasetColumn>& dataset_columns(bool oracle, int version) {
  static const std::array<std::array<std::vector<DatasetColumn>, 2>, kDatasetVersion> lists = [] {
    std::array<std::array<std::vector<DatasetColumn>, 2>, kDatasetVersion> made;
    for (const DatasetColumn& column : all_columns()) {
      for (int v = column.since; v <= kDatasetVersion; ++v) {
        made[static_cast<std::size_t>(v) - 1][1].push_back(column);
        if (!column.oracle) made[static_cast<std::size_t>(v) - 1][0].push_back(column);
      }
    }
    return made;
  }();
  return lists[static_cast<std::size_t>(version) - 1][oracle ? 1 : 0];
}

std::uint64_t DatasetManifest::rows_of_shard(std::uint64_t shard) const {
  return std::min(shard_rows, rows - shard * shard_rows);
}

const ShardEntry* DatasetManifest::find(std::uint64_t shard) const {
  const std::uint64_t first_row = shard * shard_rows;
  const auto it = std::lower_bound(shards.begin(), shards.end(), first_row,
                                   [](const ShardEntry& entry, std::uint64_t row) { return entry.first_row < row; });
  return it == shards.end() || it->first_row != first_row ? nullptr : &*it;
}

std::string DatasetManifest::fingerprint() const {
  return sha256_hex(dataset_schema(version) + "\n" + generator + "\n" + std::to_string(seed) + "\n" +
                    std::to_string(rows) + "\n" + (oracle ? "oracle" : "") + "\n" + config_json + "\n");
}

std::string shard_file_name(std::uint64_t shard) {
  std::string number = std::to_string(shard);
  constexpr std::size_t kDigits = 6;
  if (number.size() < kDigits) number.insert(0, kDigits - number.size(), '0');
  return "shard-" + number + ".h5";
}

int grid_point(int cut, std::uint32_t num_instructions) {
  const int n = static_cast<int>(std::min<std::uint32_t>(num_instructions, pipeline::kGranularity));
  return (cut * pipeline::kGranularity + n - 1) / n;
}

int cut_of_grid_point(int point, std::uint32_t num_instructions) {
  const int n = static_cast<int>(std::min<std::uint32_t>(num_instructions, pipeline::kGranularity));
  return point * n / pipeline::kGranularity;
}

std::string canonical_json(std::string_view text, const std::string& source) {
  try {
    return Json::parse(text).dump();
  } catch (const JsonError& e) {
    throw Error(ErrorKind::kConfig, source + ": not JSON: " + e.what());
  }
}

std::string to_json_text(const DatasetManifest& manifest) {
  Json root = Json::object();
  root["schema"] = dataset_schema(manifest.version);
  root["generator"] = manifest.generator;
  root["rows"] = manifest.rows;
  root["shard_rows"] = manifest.shard_rows;
  root["seed"] = manifest.seed;
  root["oracle"] = manifest.oracle;
  root["compressed"] = manifest.compressed;
  root["distributions"] = manifest.distributions;
  root["config"] = Json::parse(manifest.config_json);
  std::string text = root.dump(2);
  // A shard on one line each: a thousand shards stay readable, and `grep shard-000017 dataset.json` says all.
  text.erase(text.rfind('}'));
  while (text.back() == '\n' || text.back() == ' ') text.pop_back();
  text += ",\n  \"shards\": [";
  const char* separator = "\n";
  for (const ShardEntry& entry : manifest.shards) {
    text += separator + std::string("    ") + line_of(entry, manifest.version);
    separator = ",\n";
  }
  text += (manifest.shards.empty() ? "" : "\n  ") + std::string("],\n");
  if (manifest.version >= kListHashVersion) {
    text += "  \"" + std::string(kListHashKey) + "\": \"" + list_hash(manifest) + "\",\n";
  }
  return text + checksum_lines(text);
}

DatasetManifest parse_manifest(std::string_view text, const std::string& source) {
  return ManifestReader(text, source).run();
}

std::vector<ShardEntry> salvage_entries(std::string_view text, const DatasetManifest& manifest) {
  const std::string source = "a line";
  const ManifestReader reader(source);
  DatasetManifest so_far = manifest;
  so_far.shards.clear();
  const auto take = [&](const Json& line) {
    try {
      so_far.shards.push_back(reader.shard(line, source, so_far));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kData) throw;
    }
  };
  const Json whole = Json::parse_or_null(text);
  if (whole.is_object() && whole.contains("shards") && whole.at("shards").is_array()) {
    for (const Json& line : whole.at("shards")) take(line);
    return std::move(so_far.shards);
  }
  // Entries hold no braces, so whatever stands between a brace and the next one that is JSON may be one, also where a
  // line end was lost. No byte is parsed twice.
  constexpr std::size_t kNone = std::string_view::npos;
  for (std::size_t first = kNone, at = text.find_first_of("{}"); at != kNone; at = text.find_first_of("{}", at + 1)) {
    if (text[at] == '{') {
      first = at;
      continue;
    }
    if (first == kNone) continue;
    const Json entry = Json::parse_or_null(text.substr(first, at + 1 - first));
    if (entry.is_object()) take(entry);
    first = kNone;
  }
  return std::move(so_far.shards);
}

}  // namespace automap::io
