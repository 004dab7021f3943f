// The checksum behind the data of our HDF5 files, looked at before the HDF5 library sees them.
//
// HDF5 takes no notice of bytes behind the end that a file's superblock names, and cuts them off when it opens a file
// for writing. So h5py reads a file with a checksum, and a file that h5py edited has none any more.
//
//   offset from the end of the data      bytes
//   0                                    16     "AutoMap checksum"
//   16                                   8      how many bytes stand before (little-endian)
//   24                                   4      1, the version of this
//   28                                   4      CRC-32C of everything before these four bytes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace automap::io {

// True for bytes that start like an HDF5 file.
bool is_hdf5(std::string_view bytes);

struct Hdf5Bytes {
  std::string_view data;    // what is for the library
  bool verified = false;    // there is a checksum, and it is right
  std::uint64_t extra = 0;  // bytes behind the end of the data that are no checksum
};

// The content of a file as its first bytes and its checksum state it. Throws Error(kData) naming `source`: cut short,
// another checksum than the file's.
Hdf5Bytes check_hdf5_bytes(std::string_view bytes, const std::string& source);

// The end of the data by the superblock. Throws Error(kData) naming `source` when that is nonsense, or beyond the file.
std::uint64_t hdf5_data_end(std::string_view bytes, const std::string& source);

// Appends the checksum.
void add_hdf5_checksum(std::string* bytes);

}  // namespace automap::io
