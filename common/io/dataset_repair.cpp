#include "common/io/dataset_repair.h"

#include <sys/stat.h>

#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/io/dataset.h"

namespace automap::io {
namespace {

constexpr std::string_view kShardsKey = "  \"shards\": [";

// All before the list of shards.
std::string head_of(const DatasetManifest& manifest) {
  DatasetManifest empty = manifest;
  empty.shards.clear();
  const std::string text = to_json_text(empty);
  return text.substr(0, text.find(kShardsKey) + kShardsKey.size());
}

void drop_wrong_entries(const std::string& folder, DatasetManifest& manifest) {
  std::vector<ShardEntry> right;
  for (const ShardEntry& entry : manifest.shards) {
    if (!shard_problem(folder, manifest, entry, ShardHashes::kCrcAndSha)) right.push_back(entry);
  }
  manifest.shards = std::move(right);
}

// A dataset that had more rows would be cut.
void check_none_beyond(const std::string& folder, const DatasetManifest& wanted, const Error& damage) {
  const std::string beyond = shard_file_name(wanted.num_shards());
  struct stat info = {};
  if (::lstat((folder + "/" + beyond).c_str(), &info) != 0) return;
  throw Error(ErrorKind::kConfig,
              std::string(damage.what()) + "; it cannot be repaired as " + std::to_string(wanted.rows) +
                  " rows, because " + beyond + " is there",
              "ask for as many rows as the dataset had");
}

}  // namespace

DatasetManifest understand_manifest(const std::string& folder, std::string_view text, const DatasetManifest& wanted) {
  const std::string path = folder + "/" + kManifestName;
  try {
    DatasetManifest found = parse_manifest(text, path);
    if (!found.checksum) drop_wrong_entries(folder, found);
    return found;
  } catch (const Error& damage) {
    if (damage.kind() != ErrorKind::kData) throw;
    DatasetManifest repaired = wanted;
    const std::string head = head_of(wanted);
    repaired.shards = salvage_entries(text, wanted);
    const std::size_t listed = repaired.shards.size();
    drop_wrong_entries(folder, repaired);
    if (text.substr(0, head.size()) != head && repaired.shards.empty()) {
      throw Error(ErrorKind::kData, damage.what(),
                  "nothing shows that the folder held this dataset: make it in another folder, or remove " + path +
                      " to have all shards here written again");
    }
    check_none_beyond(folder, wanted, damage);
    log_warning(std::string(damage.what()) + ": repaired; " + std::to_string(repaired.shards.size()) + " of " +
                std::to_string(listed) + " shards listed are as they were");
    return repaired;
  }
}

}  // namespace automap::io
