// Verifies the checksums of shards that are in use: each shard is read once, before its first row is given out, and the
// others in the meantime by a thread of low priority, so that a row of a damaged shard is never used and damage further
// on is reported before it is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace automap::io {

class ShardChecks {
 public:
  struct Item {
    std::string path;        // for messages
    std::string_view bytes;  // mapped as long as this object lives
    std::uint32_t crc32c = 0;
  };
  ShardChecks(std::vector<Item> shards, std::string hint);
  ~ShardChecks();  // does not wait for what has not been looked at
  ShardChecks(const ShardChecks&) = delete;
  ShardChecks& operator=(const ShardChecks&) = delete;

  // Returns when this shard is as it was written. Throws Error(kData) naming the shard when it is not, and from then on
  // always, for whatever shard. From any thread; costs two looks at memory once the shard has been checked.
  void require(std::size_t shard);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace automap::io
