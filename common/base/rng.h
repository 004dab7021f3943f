// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as
// 1, 2, 3"). The numbers of item i of a stream depend on (seed, stream, i) only, so results do not depend on how work
// is spread over threads or where a run resumes.
#pragma once

#include <array>
#include <cstdint>

namespace automap {

// One Philox4x32-10 block.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

class Rng {
 public:
  // Key = seed; counter = (draw, stream, item). Up to 2^34 draws of 32 bits per item.
  Rng(std::uint64_t seed, std::uint32_t stream, std::uint64_t item)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        counter_{0, stream, static_cast<std::uint32_t>(item), static_cast<std::uint32_t>(item >> 32)} {}

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  // [0, 1), a multiple of 2^-53.
  double uniform();
  // [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Uniform in 0 .. count-1, without bias; count >= 1.
  std::uint64_t below(std::uint64_t count);

  // For <random> and std::shuffle (whose results differ between libraries; below() does not).
  using result_type = std::uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffffffffu; }
  result_type operator()() { return next_u32(); }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace automap
