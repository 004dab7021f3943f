#include "common/io/dataset_lock.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/paths.h"

namespace automap::io {
namespace {

constexpr std::string_view kPrefix = ".shards-", kSuffix = ".tmp";

// A claim by its file name; nothing when the name is none.
std::optional<DatasetWriter> parse_name(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  if (name.size() < kSuffix.size() || name.substr(name.size() - kSuffix.size()) != kSuffix) return std::nullopt;
  const char* const end = name.data() + name.size();
  DatasetWriter writer;
  const auto first = std::from_chars(name.data() + kPrefix.size(), end, writer.first_shard);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto last = std::from_chars(first.ptr + 1, end, writer.last_shard);
  if (last.ec != std::errc() || last.ptr == end || *last.ptr != '.') return std::nullopt;
  return writer;
}

std::vector<std::pair<std::string, DatasetWriter>> claim_files(const std::string& folder) {
  std::vector<std::pair<std::string, DatasetWriter>> found;
  for (const std::string& name : names_in_folder(folder)) {
    if (const auto writer = parse_name(name)) found.emplace_back(folder + "/" + name, *writer);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return found;
}

LockFile make_claim(const std::string& folder, std::uint64_t first_shard, std::uint64_t last_shard) {
  for (const DatasetWriter& writer : dataset_writers(folder)) {
    if (writer.first_shard >= last_shard || first_shard >= writer.last_shard) continue;
    throw Error(ErrorKind::kIo,
                folder + ": shards " + std::to_string(writer.first_shard) + " to " +
                    std::to_string(writer.last_shard - 1) + " are being made by " + writer.owner,
                "wait until it has ended, or make other shards with --shard-range");
  }
  const std::string stem = folder + "/" + std::string(kPrefix) + std::to_string(first_shard) + "-" +
                           std::to_string(last_shard) + "." + std::to_string(::getpid()) + "-";
  // On a shared folder another machine may have the same process id.
  for (int attempt = 0;; ++attempt) {
    std::optional<LockFile> made =
        LockFile::try_take(stem + std::to_string(attempt) + std::string(kSuffix), LockFile::AtEnd::kRemove);
    if (made) return std::move(*made);
  }
}

}  // namespace

std::vector<DatasetWriter> dataset_writers(const std::string& folder) {
  std::vector<DatasetWriter> writers;
  for (auto& [path, writer] : claim_files(folder)) {
    if (!is_locked(path)) continue;
    writer.owner = lock_owner(path);
    writers.push_back(std::move(writer));
  }
  return writers;
}

LockFile lock_dataset(const std::string& folder) {
  return LockFile::take(folder + "/" + kFolderLockName);
}

ShardClaim::ShardClaim(const std::string& folder, std::uint64_t first_shard, std::uint64_t last_shard)
    : file_(make_claim(folder, first_shard, last_shard)) {}

void remove_stale_claims(const std::string& folder) {
  for (const auto& [path, writer] : claim_files(folder)) {
    if (is_unlocked(path)) ::unlink(path.c_str());
  }
}

}  // namespace automap::io
