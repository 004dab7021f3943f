// A dataset of one shard, dataset.json and behind it the shard's bytes, with checksums that are right: any bytes give
// rows, or an Error. The HDF5 library may crash or hang on them, in its own process.
#include <cstdio>
#include <filesystem>

#include "common/base/check.h"
#include "common/io/dataset.h"
#include "common/io/dataset_format.h"
#include "common/io/hdf5.h"
#include "fuzz/reader.h"

// Stands in for the limit of memory in a build without sanitizers: damaged sizes do not lead to huge allocations.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=256:allocator_may_return_null=1";
}

namespace {

// One for the whole run, gone with it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "automap-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  void put(const std::string& name, std::string_view bytes) const {
    std::FILE* const file = std::fopen((path_ + "/" + name).c_str(), "wb");
    if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) std::abort();
    std::fclose(file);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  // The children inherit it, which is three times as fast as one start each.
  static const bool started = (io::start_hdf5(), true);
  static_cast<void>(started);
  static const Folder folder;
  const std::string_view all = fuzz::text_of(data, size);
  const std::size_t begin = all.find("\x89HDF\r\n");
  if (begin == std::string_view::npos) return 0;
  std::string text(all.substr(0, begin));
  const std::string_view bytes = all.substr(begin);
  const std::size_t line = text.rfind("  \"manifest_crc32c\": \"");
  if (line == std::string::npos) return 0;
  char crc[9];
  std::snprintf(crc, sizeof crc, "%08x", crc32c(std::string_view(text).substr(0, line)));
  text.replace(line, std::string::npos, std::string("  \"manifest_crc32c\": \"") + crc + "\"\n}\n");
  return fuzz::read_or_refuse([&] {
    io::DatasetManifest manifest = io::parse_manifest(text, "fuzz");
    if (manifest.shards.size() != 1) return;
    io::ShardEntry& entry = manifest.shards[0];
    entry.bytes = bytes.size();
    entry.crc32c = crc32c(bytes);
    entry.rest_crc32c = entry.crc32c;
    if (!manifest.compressed) {
      const std::uint64_t caw_bytes = entry.rows * io::kCawRowBytes;
      if (entry.caw_offset > bytes.size() || caw_bytes > bytes.size() - entry.caw_offset) return;
      entry.rest_crc32c = crc32c(bytes.substr(entry.caw_offset + caw_bytes), crc32c(bytes.substr(0, entry.caw_offset)));
    }
    folder.put(io::shard_file_name(0), bytes);
    folder.put("dataset.json", io::to_json_text(manifest));
    const io::DatasetReader reader(folder.path());
    for (std::uint64_t i = 0; i < reader.size(); ++i) {
      reader.row(i);
      if (reader.has_oracle()) reader.oracle(i);
    }
    io::verify_dataset(folder.path());
  });
}
