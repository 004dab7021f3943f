#include "models/boundary_scan.h"

#include "models/forward.h"

// This file is compiled with -ffp-contract=off (CMakeLists.txt).

namespace automap::models {

namespace {

namespace generic {
#include "models/boundary_scan.inc"
}  // namespace generic

// By hand rather than with target_clones, as in forward.cpp.
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace avx2 {
#include "models/boundary_scan.inc"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
#endif
namespace avx512 {
#include "models/boundary_scan.inc"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

using Scan = void (*)(const StageScan& scan, const float* work, const float* weight, const float* activation, int count,
                      float* bound);

Scan best_scan() {
#if defined(__x86_64__)
  if (best_isa() == Isa::kAvx512) return &avx512::scan_points;
  if (best_isa() == Isa::kAvx2) return &avx2::scan_points;
#endif
  return &generic::scan_points;
}

}  // namespace

void scan_boundary(const StageScan& scan, const float* work, const float* weight, const float* activation, int first,
                   int last, float* bound) {
  static const Scan best = best_scan();
  best(scan, work + first, weight + first, activation + first, last - first + 1, bound);
}

}  // namespace automap::models
