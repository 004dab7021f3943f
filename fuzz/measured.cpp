// Measured times in every form (--measured), and what they make of a small model.
#include <utility>

#include "common/hlo/hlo_text.h"
#include "fuzz/reader.h"
#include "profile/measured/attribution.h"
#include "profile/profile_hlo.h"

namespace {

constexpr const char* kModel = R"(HloModule m
ENTRY e {
  w0 = f32[64,64] parameter(0)
  w1 = f32[64,64] parameter(1)
  x = f32[16,64] parameter(2)
  d0 = f32[16,64] dot(x, w0), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/h_0/dot"}
  t0 = f32[16,64] tanh(d0), metadata={op_name="jit(f)/h_0/tanh"}
  d1 = f32[16,64] dot(t0, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/h_1/dot"}
  ROOT t1 = f32[16,64] tanh(d1), metadata={op_name="jit(f)/h_1/tanh"}
})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  static const auto* const module = [] {
    auto* made = new hlo::HloModule;
    made->graph = hlo::read_hlo_text(kModel, "model");
    return made;
  }();
  static const auto* const model = [] {
    profile::ProfileRequest request;
    request.places = true;
    return new profile::ModelProfile(profile::profile_module(*module, "model", request));
  }();
  return fuzz::read_or_refuse([&] {
    const measured::MeasuredTimes times = measured::parse_measured(std::string(fuzz::text_of(data, size)), "fuzz");
    profile::ModelProfile scaled = *model;
    measured::apply_measured(times, module->graph, 0, &scaled);
  });
}
