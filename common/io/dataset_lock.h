// Locks for the writers of a dataset's folder. Jobs of an array share it: each claims the shards that it makes, by a
// locked file `.shards-A-B.PID-K.tmp` that says whose it is. Claims are made and looked through under the folder's own
// lock, which also protects dataset.json and is held for moments only. Readers look and lock nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/folder_lock.h"

namespace automap::io {

struct DatasetWriter {
  std::uint64_t first_shard = 0, last_shard = 0;  // makes first_shard .. last_shard - 1
  std::string owner;                              // as lock_owner() says
};
// All processes, of whatever machine, that make shards of this folder now. Empty when the folder cannot be read.
std::vector<DatasetWriter> dataset_writers(const std::string& folder);

// The lock of dataset.json.
LockFile lock_dataset(const std::string& folder);

// For as long as it lives. The caller holds the folder's lock. Throws Error(kIo) naming the owner when somebody else
// has claimed one of these shards.
class ShardClaim {
 public:
  ShardClaim(const std::string& folder, std::uint64_t first_shard, std::uint64_t last_shard);

 private:
  LockFile file_;
};

// Removes the claims of processes that are gone. The caller holds the folder's lock.
void remove_stale_claims(const std::string& folder);

}  // namespace automap::io
