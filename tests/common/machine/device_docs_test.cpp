// docs/device-model.md lists every device that is known by name.
#include <gtest/gtest.h>

#include <string>

#include "common/base/files.h"
#include "common/machine/device.h"
#include "tests/common/machine/plain_number.h"

namespace automap::machine {
namespace {

TEST(DeviceDocs, ListEveryDevice) {
  const std::string docs = read_file(std::string(AUTOMAP_SOURCE_DIR) + "/docs/device-model.md");
  for (const std::string& name : device_names()) {
    // Its row of the table: "| v100-16gb, v100-32gb | 15.7 | ... | 900 |".
    std::string row;
    for (std::size_t at = 0; at < docs.size() && row.empty();) {
      const std::size_t end = std::min(docs.find('\n', at), docs.size());
      const std::string line = docs.substr(at, end - at);
      const std::string names =
          ", " + line.substr(0, line.find(" |", 2)).substr(line.rfind("| ", 0) == 0 ? 2 : 0) + ",";
      if (line.rfind("| ", 0) == 0 && names.find(", " + name + ",") != std::string::npos) row = line;
      at = end + 1;
    }
    ASSERT_FALSE(row.empty()) << "docs/device-model.md has no row for " << name;
    const DeviceModel device = load_device(name);
    for (const double value : {device.matmul_tflops("f32"), device.memory_gib, device.memory_gbytes_per_s}) {
      EXPECT_NE(row.find(" " + plain(value)), std::string::npos) << name << " lacks " << value << ": " << row;
    }
  }
}

}  // namespace
}  // namespace automap::machine
