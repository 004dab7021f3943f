#include "common/base/rng.h"

#include "common/base/check.h"

namespace automap {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;  // golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

std::uint32_t Rng::next_u32() {
  if (used_ == 4) {
    block_ = philox4x32(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[static_cast<std::size_t>(used_++)];
}

std::uint64_t Rng::next_u64() {
  const std::uint64_t low = next_u32();
  return static_cast<std::uint64_t>(next_u32()) << 32 | low;
}

double Rng::uniform() {
  return static_cast<double>(next_u64() >> 11) * 0x1p-53;
}

std::uint64_t Rng::below(std::uint64_t count) {
  AM_CHECK(count > 0);
  // Values below `reject` would make the low remainders one draw more likely than the others.
  const std::uint64_t reject = (0 - count) % count;
  for (;;) {
    const std::uint64_t value = next_u64();
    if (value >= reject) return value % count;
  }
}

}  // namespace automap
