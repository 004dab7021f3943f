#include "infer/training_state.h"

#include <numeric>

namespace automap::infer {
namespace {

// The largest share of all gradients' bytes in the weights' bytes: a half where all have 16 bits, more where some (of
// norms) are made in f32.
constexpr double kMostOfShort = 0.75;

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void keep(const TrainingState& state, double* weight, double* gradient, double* slots) {
  const double master = *weight;
  if (state.gradient > 0) *gradient = master * state.gradient / kMasterBytes;
  if (state.weight > 0) *weight = master * state.weight / kMasterBytes;
  if (state.copies()) *slots += master;
}

// The part that a profile and its columns at a width share.
template <typename Columns>
void keep_columns(const TrainingState& state, Columns* columns) {
  for (std::size_t i = 0; i < columns->w_bytes.size(); ++i) {
    keep(state, &columns->w_bytes[i], &columns->gradient_bytes[i], &columns->slot_bytes[i]);
  }
  for (pipeline::SharedWeight& shared : columns->shared) {
    keep(state, &shared.weight_bytes, &shared.gradient_bytes, &shared.slot_bytes);
  }
}

}  // namespace

bool has_mixed_precision(const pipeline::Profile& profile) {
  if (profile.gradient_bytes.empty() || profile.slot_bytes.empty()) return false;
  const bool short_products = profile.work.find("16") != std::string::npos;  // "matmul bf16", "matmul f16"
  const double weights = sum(profile.w_bytes);
  return short_products && sum(profile.slot_bytes) > 0 && sum(profile.gradient_bytes) < kMostOfShort * weights;
}

void keep_state(const TrainingState& state, pipeline::Profile* profile) {
  keep_columns(state, profile);
  for (pipeline::WidthColumns& columns : profile->widths) {
    if (!columns.gradient_bytes.empty() && !columns.slot_bytes.empty()) keep_columns(state, &columns);
  }
}

}  // namespace automap::infer
