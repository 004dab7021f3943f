// The terms of V (docs/cost-model.md), in the one place that has them. A stage or a transfer in front of a suffix
// changes the suffix's
//   x, the longest path term of its stages and transfers, measured from where the suffix starts,
//   p, one micro-batch through it, forward and backward,
//   y, the sync and optimizer that its own backward drain leaves unhidden.
// V = x + max(0, y) of the whole pipeline. Written for loops that are vectorized: no branches, no calls.
#pragma once

namespace automap::pipeline::terms {

inline double larger(double a, double b) {
  return a < b ? b : a;
}
inline double smaller(double a, double b) {
  return b < a ? b : a;
}

// Numbers that the terms of a stage with K of M micro-batches in flight need.
struct InFlight {
  int k = 1;
  bool stalls = false;  // M > K
  double steady = 0;    // M - 1
  double ahead = 0;     // K - 1
  double laps = 0;      // (M - 1) / K, rounded down
  InFlight(int micro_batches, int in_flight)
      : k(in_flight),
        stalls(micro_batches > in_flight),
        steady(micro_batches - 1),
        ahead(in_flight - 1),
        laps((micro_batches - 1) / in_flight) {}
};

// x of a suffix with a transfer of t one way in front of it; p grows by 2 t, y falls by t.
inline double x_behind_transfer(double x, double t, double micro_batches) {
  return larger(x + 2 * t, (micro_batches + 1) * t);
}

// x of a suffix with a stage in front of it: compute F + B, of which `small` = min(F, B). kFull: all terms, else the
// papers' (p is not needed then); kStalls: k.stalls. p grows by compute.
template <bool kFull, bool kStalls>
inline double x_behind_stage(double x, double p, double compute, double small, const InFlight& k) {
  double longest = larger(x, k.steady * compute);
  if (kFull) {
    longest = larger(longest, p + (k.steady * compute - k.ahead * small));
    if (kStalls) {
      const double stall = p - k.ahead * compute;
      longest = larger(longest, p + k.steady * compute + larger(stall, k.laps * stall));
    }
  }
  return longest + compute;
}
// The same chosen when it runs.
inline double x_behind_stage(double x, double p, double compute, double small, const InFlight& k, bool full) {
  if (!full) return x_behind_stage<false, false>(x, p, compute, small, k);
  return k.stalls ? x_behind_stage<true, true>(x, p, compute, small, k)
                  : x_behind_stage<true, false>(x, p, compute, small, k);
}

// The terms of kFull that hold p, as lines over it: slope * p + constant, compute not yet added.
struct PathLine {
  double slope = 0, constant = 0;
};
inline PathLine first_round_line(double compute, double small, const InFlight& k) {
  return {1, k.steady * compute - k.ahead * small};
}
inline PathLine one_stall_line(double compute, const InFlight& k) {
  return {2, (k.steady - k.ahead) * compute};
}
inline PathLine all_stalls_line(double compute, const InFlight& k) {
  return {1 + k.laps, (k.steady - k.laps * k.ahead) * compute};
}

// y of a suffix with a stage in front of it: own = its exposed sync and its optimizer.
inline double y_behind_stage(double y, double own, double backward) {
  return larger(y - backward, own);
}

// The gradient sync of the stages of one group (Problem::sync_terms): the lines of a machine::CollectiveTime. Concave
// in bytes and 0 for none, so that the sync of all bytes at once is never longer than that of its buckets together. It
// grows with the bytes: lower bounds on a stage's bytes and last bucket give a lower bound on its exposed sync.
struct Sync {
  double latency_ms[3] = {0, 0, 0}, ms_per_byte[3] = {0, 0, 0};
  bool one_line = true;  // all are the same
  // Time for some bytes. kOneLine: one_line, for loops that most problems go through.
  template <bool kOneLine = false>
  double line_ms(double bytes) const {
    if (kOneLine) return latency_ms[0] + bytes * ms_per_byte[0];
    const double first = latency_ms[0] + bytes * ms_per_byte[0];
    const double second = latency_ms[1] + bytes * ms_per_byte[1];
    const double third = latency_ms[2] + bytes * ms_per_byte[2];
    return smaller(first, smaller(second, third));
  }
  // The least part of the sync that is left when a backward ends: the last bucket (Problem::last_bucket_bytes), or the
  // remainder that did not fit beside the backward.
  template <bool kOneLine = false>
  double exposed_ms(double bytes, double last_bucket, double backward) const {
    const double last = line_ms<kOneLine>(smaller(bytes, last_bucket));
    const double left = line_ms<kOneLine>(bytes) - backward;
    return bytes > 0 ? larger(last, left) : 0.0;
  }
  // Time of a sync that is not overlapped.
  template <bool kOneLine = false>
  double whole_ms(double bytes) const {
    return bytes > 0 ? line_ms<kOneLine>(bytes) : 0.0;
  }
  // No bytes take longer than with the other.
  bool never_longer(const Sync& other) const {
    for (int i = 0; i < 3; ++i) {
      if (latency_ms[i] > other.latency_ms[i] || ms_per_byte[i] > other.ms_per_byte[i]) return false;
    }
    return true;
  }
};

}  // namespace automap::pipeline::terms
