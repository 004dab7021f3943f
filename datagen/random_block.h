// Draws random numbers by the thousand: the same numbers as Rng(seed, stream, item), many at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace automap::datagen {

// out[i] = the (first + i)-th next_u32() of Rng(seed, stream, item); `first` and the size of `out` are multiples of 4,
// up to 2^34 numbers in all. Uses AVX2 where the processor has it; the numbers are the same without.
void fill_random(std::uint32_t* out, std::size_t count, std::uint64_t seed, std::uint32_t stream, std::uint64_t item,
                 std::uint64_t first);

namespace internal {
// The slow obvious twin.
void fill_random_plain(std::uint32_t* out, std::size_t count, std::uint64_t seed, std::uint32_t stream,
                       std::uint64_t item, std::uint64_t first);
}  // namespace internal

}  // namespace automap::datagen
