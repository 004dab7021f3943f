// Estimates the time of a fused library kernel on a device, and the memory that it keeps and needs beside its operands
// and results (docs/profile.md, "Fused kernels").
#pragma once

#include "common/graph/graph.h"
#include "common/machine/device.h"
#include "profile/fused_chains.h"
#include "profile/kernel_model.h"

namespace automap::profile {

// The share of the peak that an attention kernel reaches with the products of the scores that `band` leaves, in (0, 1):
// heads of `head` values, `keys` keys per query. Never so little that skipping the others were slower than to compute
// all.
double attention_share_of_peak(std::int64_t head, std::int64_t keys, const ScoreBand& band, bool gradient);

// The compute and data movement of the kernel: products at that share (of the scores in its band), every array once.
Work fused_work(const KernelModel& kernels, const graph::Graph& graph, const FusedKernel& kernel);

// The time as one kernel, but at most that of its parts as kernels of their own, which software would choose then (in
// f32 on vector units a kernel that recomputes the scores, at a share of the peak that tensor units reach, is slower
// than the products).
double fused_kernel_ms(const KernelModel& kernels, const graph::Graph& graph, const FusedKernel& kernel);

// The bytes that a gradient needs of its forward kernel beside its operands and result: a 32-bit statistic per row.
double kept_bytes(const graph::Graph& graph, const FusedKernel& kernel);

// The bytes that the kernel needs while it works: a gradient of Q adds up in 32 bits, with a sum per row.
double fused_workspace_bytes(const graph::Graph& graph, const FusedKernel& kernel);

}  // namespace automap::profile
