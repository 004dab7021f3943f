// Distributions over y on evenly spaced atoms: the C51 projection (Bellemare, Dabney, Munos 2017) and the HL-Gauss
// histogram (Farebrother et al. 2024, "Stop regressing").
#pragma once

#include <vector>

namespace automap::models {

// Atoms at low, low + width, .., high; at least 2.
struct Support {
  int atoms = 2;
  double low = 0, high = 1;
  double width() const { return (high - low) / (atoms - 1); }
  double at(int atom) const { return low + width() * atom; }
};

// A distribution of `count` masses at `positions` moved onto the support: each mass is shared by its two neighbours in
// proportion to nearness; positions outside go to the nearest end. Writes support.atoms values of the same sum.
// Atoms 0, 1, 2; mass 1 at 0.25 -> 0.75, 0.25, 0.
void project_c51(const Support& support, const double* positions, const double* masses, int count, double* out);

// The normal distribution around `mean` (clamped to the support) with deviation 0.75 widths, integrated over the bins
// [atom - width/2, atom + width/2] and normalized over them: its mean is `mean` but near the ends. Sums to 1.
void hl_gauss(const Support& support, double mean, double* out);

constexpr double kHlGaussSigma = 0.75;  // in widths, the paper's choice

// Softmax of `logits` into `out` (both [count]); returns sum_i out_i support.at(i).
double softmax_mean(const Support& support, const float* logits, double* out);

}  // namespace automap::models
