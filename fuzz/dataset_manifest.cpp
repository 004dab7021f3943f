// Fuzzes dataset.json with a right checksum, and the repair of a damaged one.
#include <cstdio>

#include "common/base/check.h"
#include "common/io/dataset_format.h"
#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  // The last line but one holds the checksum of all before it: eight digits, a quote, and the end.
  std::string text(fuzz::text_of(data, size));
  const std::size_t line = text.rfind("  \"manifest_crc32c\": \"");
  if (line != std::string::npos) {
    char crc[9];
    std::snprintf(crc, sizeof crc, "%08x", crc32c(std::string_view(text).substr(0, line)));
    text.replace(line, std::string::npos, std::string("  \"manifest_crc32c\": \"") + crc + "\"\n}\n");
  }
  return fuzz::read_or_refuse([&] {
    const io::DatasetManifest manifest = io::parse_manifest(text, "fuzz");
    manifest.fingerprint();
    const std::string again = io::to_json_text(manifest);
    AM_CHECK(io::to_json_text(io::parse_manifest(again, "again")) == again);
    io::salvage_entries(text, manifest);
  });
}
