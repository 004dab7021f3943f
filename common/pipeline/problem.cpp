#include "common/pipeline/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/error.h"
#include "common/pipeline/problem_storage.h"

namespace automap::pipeline {

namespace {

// The first place of low..high where `reached` holds, which holds behind it, too; high when it holds at none in front
// of it. `guess`: where that mostly is.
template <typename Reached>
int first_place(int low, int high, int guess, const Reached& reached) {
  guess = std::clamp(guess, low, high);
  if (guess < high && !reached(guess)) {
    low = guess + 1;
  } else if (guess > low && reached(guess - 1)) {
    high = guess - 1;
  } else {
    return guess;
  }
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (reached(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

const char* to_string(ValueForm form) {
  return form == ValueForm::kFull ? "full" : "paper";
}

const char* to_string(Replicas replicas) {
  return replicas == Replicas::kWhole ? "whole" : "fractional";
}

const char* to_string(GradientSync sync) {
  return sync == GradientSync::kOverlap ? "overlap" : "after";
}

RangeMax::RangeMax(const std::vector<double>& values)
    : values_(values), from_begin_(values.size()), to_end_(values.size()) {
  std::vector<double> blocks;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, values.size());
    from_begin_[begin] = values[begin];
    for (std::size_t i = begin + 1; i < end; ++i) from_begin_[i] = std::max(from_begin_[i - 1], values[i]);
    to_end_[end - 1] = values[end - 1];
    for (std::size_t i = end - 1; i-- > begin;) to_end_[i] = std::max(to_end_[i + 1], values[i]);
    blocks.push_back(to_end_[begin]);
  }
  levels_.push_back(std::move(blocks));
  for (std::size_t width = 2; width <= levels_.front().size(); width *= 2) {
    const std::vector<double>& below = levels_.back();
    std::vector<double> level(levels_.front().size() - width + 1);
    for (std::size_t i = 0; i < level.size(); ++i) level[i] = std::max(below[i], below[i + width / 2]);
    levels_.push_back(std::move(level));
  }
}

double RangeMax::most(int first, int last) const {
  if (values_.empty() || first >= last) return 0;
  const auto from = static_cast<std::size_t>(first), to = static_cast<std::size_t>(last);
  const std::size_t first_block = from / kBlock, last_block = (to - 1) / kBlock;
  if (first_block == last_block) return *std::max_element(values_.begin() + first, values_.begin() + last);
  const double most = std::max(to_end_[from], from_begin_[to - 1]);
  const std::size_t between = last_block - first_block - 1;
  if (between == 0) return most;
  std::size_t level = 0;
  while ((std::size_t{2} << level) <= between) ++level;
  const std::vector<double>& of = levels_[level];
  return std::max(most, std::max(of[first_block + 1], of[last_block - (std::size_t{1} << level)]));
}

bool Problem::makes_superfluous(const DeviceGroup& g, int one_variant, int other_variant) const {
  const StageColumns &one = columns(g, one_variant), &other = columns(g, other_variant);
  if (one.peak != other.peak || !sync_terms(g, one_variant).never_longer(sync_terms(g, other_variant))) return false;
  // Comparing the sums over all positions first mostly saves comparing each position.
  if (one.both[n_] != other.both[n_] || one.optimizer[n_] > other.optimizer[n_] || one.state[n_] > other.state[n_] ||
      one.stash[n_] > other.stash[n_]) {
    return false;
  }
  // Mostly they are the same column.
  const auto same = [&](const double* a, const double* b) { return a == b || std::equal(a, a + n_ + 1, b); };
  const auto never_more = [&](const double* a, const double* b) {
    for (int p = 1; p <= n_ && a != b; ++p) {
      if (a[p] - a[p - 1] > b[p] - b[p - 1]) return false;
    }
    return true;
  };
  if (!same(one.both, other.both) || !same(one.backward, other.backward) ||
      !never_more(one.optimizer, other.optimizer) || !never_more(one.state, other.state) ||
      !never_more(one.stash, other.stash)) {
    return false;
  }
  for (int p = 0; p < n_ && one.entry != other.entry; ++p) {
    if (one.entry[p] > other.entry[p]) return false;
  }
  return true;
}

const std::vector<int>& Problem::useful_variants(const DeviceGroup& g) const {
  Storage::Useful& useful = storage_->useful[idx(g.columns) / options_.variants.size()];
  if (useful.found.load(std::memory_order_acquire)) return useful.variants;
  const std::lock_guard<std::mutex> lock(storage_->finding);
  if (useful.found.load(std::memory_order_relaxed)) return useful.variants;
  std::vector<int> variants;
  for (int v = 0; v < num_variants(); ++v) {
    bool superfluous = false;
    for (int u = 0; u < num_variants() && !superfluous; ++u) {
      if (u != v) superfluous = makes_superfluous(g, u, v) && (u < v || !makes_superfluous(g, v, u));
    }
    if (!superfluous) variants.push_back(v);
  }
  useful.variants = std::move(variants);
  useful.found.store(true, std::memory_order_release);
  return useful.variants;
}

void Problem::sync_buckets(int p0, int p1, const DeviceGroup& g, int variant, std::vector<SyncBucket>& buckets) const {
  buckets.clear();
  const double all = summed_bytes(p0, p1);
  if (g.size == 1 || all <= 0) return;
  if (options_.gradient_sync == GradientSync::kAfter) {
    buckets.push_back({1, sync(g, variant).ms(all)});
    return;
  }
  const StageColumns& c = columns(g, variant);
  const double whole = c.backward[p1] - c.backward[p0];
  for (int begin = p0; begin < p1;) {
    const double before = summed_until(p0, begin);
    const int end = bucket_end(p0, begin, p1);
    const double bytes = summed_until(p0, end) - before;
    if (!(bytes > 0)) break;
    // The first position that has gradients is the last to be ready; the last bucket is when the backward ends.
    const int first = first_place(begin + 1, end, next_gradient_[idx(begin)],
                                  [&](int place) { return summed_until(p0, place) > before; });
    const double share =
        begin == p0 || !(whole > 0) ? 1 : std::min(1.0, (c.backward[p1] - c.backward[first - 1]) / whole);
    buckets.push_back({share, sync(g, variant).ms(bytes)});
    begin = end;
  }
  std::reverse(buckets.begin(), buckets.end());
}

int Problem::bucket_end(int p0, int p, int p1) const {
  const double before = summed_until(p0, p);
  return first_place(p + 1, p1, next_bucket_[idx(p)],
                     [&](int place) { return !(summed_until(p0, place) - before < options_.bucket_bytes); });
}

double Problem::bucket_bytes(int p0, int p1, const DeviceGroup& g) const {
  if (g.size == 1 || options_.gradient_sync == GradientSync::kAfter) return 0;
  return std::min(options_.bucket_bytes, gradient_bytes(p0, p1));
}

double Problem::tied_bytes(int p0, int p1, const DeviceGroup& g, int variant) const {
  double bytes = 0;
  for (const SharedWeight& weight : shared_) {
    if (weight.first > p0 || weight.position <= p0 || weight.position > p1) continue;
    const StageVariant& how = options_.variants[idx(variant)];
    bytes += weight.weight_bytes / (how.zero >= 3 ? g.size : 1) +
             weight.gradient_bytes / (options_.shards_gradients(how) ? g.size : 1) +
             weight.slot_bytes / (how.zero >= 1 ? g.size : 1);
  }
  return bytes;
}

MemoryParts Problem::memory_parts(int p0, int p1, const DeviceGroup& g, int in_flight, int variant) const {
  const StageVariant& how = options_.variants[idx(variant)];
  MemoryParts parts;
  parts.weights = weight_bytes(p0, p1);
  parts.gradients = storage_->gradient_state[idx(p1)] - storage_->gradient_state[idx(p0)];
  parts.slots = slots_[idx(p1)] - slots_[idx(p0)];
  for (const SharedWeight& weight : shared_) {
    if (weight.first > p0 || weight.position <= p0 || weight.position > p1) continue;
    parts.weights += weight.weight_bytes;
    parts.gradients += weight.gradient_bytes;
    parts.slots += weight.slot_bytes;
  }
  if (how.zero >= 3) parts.weights /= g.size;
  if (options_.shards_gradients(how)) parts.gradients /= g.size;
  if (how.zero >= 1) parts.slots /= g.size;
  parts.frozen = frozen_[idx(p1)] - frozen_[idx(p0)];
  parts.stash = flight_bytes(p0, p1, g, variant) * in_flight;
  parts.workspace = columns(g, variant).workspace(p0, p1) * g.stash_scale;
  parts.buckets = bucket_bytes(p0, p1, g);
  return parts;
}

int Problem::most_in_flight(int p0, int p1, const DeviceGroup& g, int variant) const {
  if (!options_.memory) return options_.micro_batches;
  const double room = g.capacity_bytes - fixed_bytes(p0, p1, g, variant);
  if (room < 0) return 0;
  const double each = flight_bytes(p0, p1, g, variant);
  const double most = options_.micro_batches;
  return each * most <= room ? options_.micro_batches : static_cast<int>(room / each);
}

int Problem::in_flight(Schedule schedule, int num_stages, int stage, int p0, int p1, const DeviceGroup& g,
                       int variant) const {
  if (schedule == Schedule::kAdaptive) return most_in_flight(p0, p1, g, variant);
  const int k = pipeline::in_flight(schedule, num_stages, stage, options_.micro_batches);
  return !options_.memory || memory_bytes(p0, p1, g, k, variant) <= g.capacity_bytes ? k : 0;
}

Link Problem::link_of(const machine::MessageGroups& groups, int first_server, int last_server, int width) const {
  machine::MessageLinks links = messages_[idx(first_server)];
  links.port_bytes_per_ms = smallest_inter(first_server, last_server);
  links.between_bytes_per_ms *= width;
  double bytes_per_ms = machine::bytes_per_ms(links, groups);
  if (width > 1 && !groups.inside) {
    const double gathered = 1 - 1.0 / width;  // by each device of what comes in
    bytes_per_ms = 1 / (1 / bytes_per_ms + gathered / (links.inside_bytes_per_ms * groups.devices));
  }
  return {groups.inside ? links.inside_latency_ms : links.between_latency_ms, bytes_per_ms};
}

Link Problem::link(int d0, int d1, int e0, int e1) const {
  const DeviceGroup &from = group(d0, d1), &to = group(e0, e1);
  const int first = server_of_device(std::min(d0, e0)), last = server_of_device(std::max(d1, e1) - 1);
  return link_of({std::min(from.size, to.size), std::min(from.servers, to.servers), first == last}, first, last,
                 options_.width);
}

Link Problem::link_at_width(int width, int d0, int d1, int d2) const {
  const auto server = [&](int device) { return server_of_device(device / options_.width); };
  const int first = server(d0), middle = server(d1 - 1), next = server(d1), last = server(d2 - 1);
  return link_of({std::min(d1 - d0, d2 - d1) / width, std::min(middle - first, last - next) + 1, first == last}, first,
                 last, width);
}

int Problem::devices_that_count(const DeviceGroup& g) const {
  const machine::MessageLinks& links = messages_.front();
  if (options_.width > 1) return g.size;  // each gathers what comes in
  if (!std::isfinite(links.between_bytes_per_ms)) return 0;
  const double ports = g.port_bytes_per_ms * g.servers;
  return static_cast<int>(std::min<double>(g.size, std::ceil(ports / links.between_bytes_per_ms)));
}

double Problem::transfer_ms(double bytes, int d0, int d1, int d2) const {
  return bytes > 0 ? link(d0, d1, d2).ms(bytes) : 0;
}

}  // namespace automap::pipeline
