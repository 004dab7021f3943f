// Policy::parse on arbitrary bytes: an error or a policy that writes the same bytes again and can be run.
#include "models/policy.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using automap::models::Policy;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.size() >= 4) {
    // The checksum is made right: what is behind it is to be reached.
    const std::uint32_t crc = automap::crc32c(std::string_view(bytes).substr(0, bytes.size() - 4));
    for (std::size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<char>(crc >> (8 * i) & 0xff);
  }
  try {
    const Policy policy = Policy::parse(bytes, "fuzz");
    AM_CHECK(Policy::parse(policy.serialize(), "again").weights() == policy.weights());
    const auto& a = policy.architecture();
    const std::vector<float> input(static_cast<std::size_t>(a.features), 0.5f), bound(1, 0.0f);
    std::vector<float> y(static_cast<std::size_t>(a.actions));
    if (a.family == automap::models::Family::kFlat) {
      policy.predict_actions(input.data(), 1, y.data());
    } else {
      policy.predict(input.data(), bound.data(), 1, y.data());
    }
  } catch (const automap::Error& error) {
    if (error.kind() == automap::ErrorKind::kInternal) throw;
  }
  return 0;
}
