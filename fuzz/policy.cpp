// Policy::parse on arbitrary bytes: an error or a policy that writes the same bytes again and can be run.
#include "models/policy.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/error.h"
#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using automap::models::Policy;
  const std::string bytes = automap::fuzz::with_right_crc(automap::fuzz::text_of(data, size));
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
