#include "common/pipeline/coarse_profile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace automap::pipeline {
namespace {

// PositionRuns of positions, by the position behind each.
class PositionRuns {
 public:
  PositionRuns(std::size_t n, const std::vector<int>& ends) : of_position_(n) {
    for (const int end : ends) ends_.push_back(static_cast<std::size_t>(end));
    for (std::size_t run = 0, i = 0; run < ends_.size(); ++run) {
      for (; i < ends_[run]; ++i) of_position_[i] = static_cast<std::int32_t>(run);
    }
  }

  std::vector<double> sums(const std::vector<double>& values) const {
    return each(values, [](double all, double one) { return all + one; });
  }
  std::vector<double> most(const std::vector<double>& values) const {
    return each(values, [](double all, double one) { return std::max(all, one); });
  }
  template <typename T>
  std::vector<T> firsts(const std::vector<T>& values) const {
    std::vector<T> out;
    for (std::size_t run = 0; run < ends_.size() && !values.empty(); ++run) {
      out.push_back(values[run == 0 ? 0 : ends_[run - 1]]);
    }
    return out;
  }
  std::vector<double> lasts(const std::vector<double>& values) const {
    std::vector<double> out;
    for (const std::size_t end : ends_) out.push_back(values[end - 1]);
    return out;
  }
  std::vector<DeviceTimes> sums(const std::vector<DeviceTimes>& times) const {
    std::vector<DeviceTimes> out;
    for (const DeviceTimes& one : times) {
      DeviceTimes coarse{one.device, one.samples, {}, {}, sums(one.optimizer_ms)};
      for (const std::vector<double>& ms : one.forward_ms) coarse.forward_ms.push_back(sums(ms));
      for (const std::vector<double>& ms : one.backward_ms) coarse.backward_ms.push_back(sums(ms));
      out.push_back(std::move(coarse));
    }
    return out;
  }
  // Means of `values`, weighted.
  std::vector<double> means(std::vector<double> values, const std::vector<double>& weights) const {
    if (values.empty()) return {};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= weights[i];
    std::vector<double> out = sums(values);
    const std::vector<double> all = sums(weights);
    for (std::size_t run = 0; run < out.size(); ++run) out[run] = all[run] > 0 ? out[run] / all[run] : 0;
    return out;
  }
  std::vector<SharedWeight> shared(std::vector<SharedWeight> weights) const {
    for (SharedWeight& weight : weights) {
      weight.first = of_position_[static_cast<std::size_t>(weight.first) - 1] + 1;
      weight.position = of_position_[static_cast<std::size_t>(weight.position) - 1] + 1;
    }
    weights.erase(std::remove_if(weights.begin(), weights.end(),
                                 [](const SharedWeight& weight) { return weight.first == weight.position; }),
                  weights.end());
    return weights;
  }

 private:
  template <typename Join>
  std::vector<double> each(const std::vector<double>& values, const Join& join) const {
    if (values.empty()) return {};
    std::vector<double> out;
    std::size_t i = 0;
    for (const std::size_t end : ends_) {
      double all = values[i];
      for (++i; i < end; ++i) all = join(all, values[i]);
      out.push_back(all);
    }
    return out;
  }

  std::vector<std::size_t> ends_;
  std::vector<std::int32_t> of_position_;
};

// Backward time of each position on the first device, ms, at the number of samples nearest to the profile's
// micro-batch; c_ms where the profile has no such times.
std::vector<double> backward_ms(const Profile& profile, const std::vector<DeviceTimes>& times) {
  if (times.empty() || times.front().samples.empty()) return profile.c_ms;
  const DeviceTimes& first = times.front();
  std::size_t nearest = 0;
  for (std::size_t i = 0; i < first.samples.size(); ++i) {
    const auto far = [&](std::size_t k) { return std::abs(first.samples[k] - profile.micro_batch_size); };
    if (far(i) < far(nearest)) nearest = i;
  }
  return first.backward_ms[nearest];
}

}  // namespace

std::vector<int> thinnest_cuts(const Profile& profile, int positions) {
  const auto n = static_cast<std::size_t>(profile.size()), most = std::min(n, static_cast<std::size_t>(positions));
  std::vector<int> ends;
  for (std::size_t k = 1, first = 0; k <= most; ++k) {
    const std::size_t last = k * n / most;
    const auto begin = profile.a_bytes.begin();
    const auto thinnest =
        std::min_element(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last));
    ends.push_back(static_cast<int>(last == n ? n : static_cast<std::size_t>(thinnest - begin) + 1));
    first = last;
  }
  double all_ms = 0;
  for (const double ms : profile.c_ms) all_ms += ms;
  for (std::size_t i = 0; i < n; ++i) {
    if (!(profile.c_ms[i] * static_cast<double>(most) > all_ms)) continue;
    if (i > 0) ends.push_back(static_cast<int>(i));
    ends.push_back(static_cast<int>(i) + 1);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

Profile coarse_profile(const Profile& profile, const std::vector<int>& ends) {
  const PositionRuns runs(profile.c_ms.size(), ends);
  Profile out;
  out.model = profile.model;
  out.device = profile.device;
  out.micro_batch_size = profile.micro_batch_size;
  out.forward_fraction = profile.forward_fraction;
  out.work = profile.work;
  out.source_sha256 = profile.source_sha256;
  out.accumulated_micro_batches = profile.accumulated_micro_batches;
  out.attention_heads = profile.attention_heads;
  out.c_ms = runs.sums(profile.c_ms);
  out.a_bytes = runs.lasts(profile.a_bytes);
  out.layer = runs.firsts(profile.layer);
  // Merges the fields that a profile and a width have in common.
  const auto coarsen = [&](const auto& from, auto* to) {
    to->w_bytes = runs.sums(from.w_bytes);
    to->gradient_bytes = runs.sums(from.gradient_bytes);
    to->slot_bytes = runs.sums(from.slot_bytes);
    to->frozen_bytes = runs.sums(from.frozen_bytes);
    to->stash_bytes = runs.sums(from.stash_bytes);
    to->workspace_bytes = runs.most(from.workspace_bytes);
    to->layer_entry_bytes = runs.sums(from.layer_entry_bytes);
    to->stage_entry_bytes = runs.firsts(from.stage_entry_bytes);
    to->times = runs.sums(from.times);
    to->weight_share = runs.means(from.weight_share, backward_ms(profile, from.times));
    to->shared = runs.shared(from.shared);
  };
  coarsen(profile, &out);
  for (const WidthColumns& columns : profile.widths) {
    WidthColumns coarse;
    coarse.width = columns.width;
    coarsen(columns, &coarse);
    for (const std::vector<double>& ms : columns.collective_ms) coarse.collective_ms.push_back(runs.sums(ms));
    coarse.servers = columns.servers;
    out.widths.push_back(std::move(coarse));
  }
  return out;
}

}  // namespace automap::pipeline
