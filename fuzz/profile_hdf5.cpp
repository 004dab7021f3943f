// libFuzzer target over HDF5 profiles: any bytes, with a checksum that is right where there is one, give a profile or
// an Error. The HDF5 library may crash or hang on them, in its own process.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/error.h"
#include "common/io/hdf5.h"
#include "common/io/profile_file.h"

// Stands in for the limit of memory in a build without sanitizers: damaged sizes do not lead to huge allocations.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=256:allocator_may_return_null=1";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  // The children inherit it, which is three times as fast as one start each.
  static const bool started = (io::start_hdf5(), true);
  static_cast<void>(started);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (!io::is_hdf5(bytes)) return 0;
  constexpr std::size_t kChecksumBytes = 32;
  if (size > kChecksumBytes && bytes.compare(size - kChecksumBytes, 7, "AutoMap") == 0) {
    bytes.resize(size - kChecksumBytes);
    io::add_hdf5_checksum(&bytes);
  }
  try {
    io::read_profile(bytes, "fuzz");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
  }
  return 0;
}
