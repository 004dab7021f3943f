#include "plan/planners/step_sizes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/error.h"
#include "common/machine/chosen_devices.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using pipeline::Profile;
using pipeline::Replicas;

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorKind::kUsage, what, hint);
}

// "16 or 32": the divisors next to a number that is none.
std::string nearest_divisors(std::int64_t number, std::int64_t wanted) {
  const std::vector<std::int64_t> all = divisors(number);
  const auto above = std::upper_bound(all.begin(), all.end(), wanted);
  std::string text;
  if (above != all.begin()) text = std::to_string(*(above - 1));
  if (above != all.end()) text += (text.empty() ? "" : " or ") + std::to_string(*above);
  return text;
}

StepSize size_of(std::int64_t samples, std::int64_t micro_batches) {
  if (micro_batches > kMostGivenMicroBatches) {
    const std::int64_t larger = (micro_batches * samples + kMostGivenMicroBatches - 1) / kMostGivenMicroBatches;
    refuse(std::to_string(micro_batches) + " micro-batches per step, at most " +
               std::to_string(kMostGivenMicroBatches) + " are planned",
           "give a --micro-batch of " + std::to_string(larger) + " samples or more");
  }
  return {static_cast<double>(samples), static_cast<int>(micro_batches)};
}

// B, mb and M are given or follow from one another.
// `reach`: the most samples that a replica has times for.
std::vector<StepSize> whole_sizes(const StepRequest& r, std::int64_t own, double reach) {
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (r.batch == 0) {
    if (r.micro_batch > 0 || r.micro_batches > 0) {
      const std::int64_t samples = r.micro_batch > 0 ? r.micro_batch : own;
      return {size_of(samples, r.micro_batches > 0 ? r.micro_batches : usual_micro_batches(samples))};
    }
    StepRequest asked = r;
    asked.batch = usual_batch(own);
    return whole_sizes(asked, own, reach);
  }
  if (r.micro_batch > 0 && r.micro_batches > 0) {
    if (r.micro_batch * r.micro_batches != r.batch) {
      refuse(text(r.micro_batches) + " micro-batches of " + text(r.micro_batch) + " samples are " +
                 text(r.micro_batch * r.micro_batches) + " samples, not the batch of " + text(r.batch),
             "leave one of --batch, --micro-batch and --micro-batches out");
    }
    return {size_of(r.micro_batch, r.micro_batches)};
  }
  if (r.micro_batch > 0 || r.micro_batches > 0) {
    const std::int64_t given = r.micro_batch > 0 ? r.micro_batch : r.micro_batches;
    if (r.batch % given != 0) {
      refuse("a batch of " + text(r.batch) + " samples does not split into " +
                 (r.micro_batch > 0 ? "micro-batches of " + text(given) : text(given) + " micro-batches"),
             std::string(r.micro_batch > 0 ? "--micro-batch " : "--micro-batches ") + nearest_divisors(r.batch, given) +
                 " would do");
    }
    return {r.micro_batch > 0 ? size_of(given, r.batch / given) : size_of(r.batch / given, given)};
  }
  std::vector<StepSize> sizes;
  const std::vector<std::int64_t> of_batch = divisors(r.batch);
  std::int64_t spare = 0;  // the largest micro-batch of too many that the times reach
  bool reached = false;
  for (const std::int64_t samples : of_batch) {
    const std::int64_t count = r.batch / samples;
    // A batch with few divisors may have to go sample by sample.
    const bool lone = samples == 1 && of_batch.size() <= 2 && count <= kMostChosenMicroBatches;
    const bool in_reach = static_cast<double>(samples) <= reach;
    if (lone || count <= kMostMicroBatches) {
      sizes.push_back(size_of(samples, count));
      reached = reached || in_reach;
    } else if (in_reach && count <= kMostChosenMicroBatches) {
      spare = samples;
    }
  }
  if (!reached && spare > 0) sizes.push_back(size_of(spare, r.batch / spare));
  const double wanted = std::log(static_cast<double>(own));
  std::stable_sort(sizes.begin(), sizes.end(), [&](const StepSize& a, const StepSize& b) {
    return std::fabs(std::log(a.samples) - wanted) < std::fabs(std::log(b.samples) - wanted);
  });
  return sizes;
}

void keep_whole_rounds(const StepRequest& request, std::vector<StepSize>* sizes) {
  const auto left_over = [&](const StepSize& size) { return size.micro_batches % request.rounds_of != 0; };
  sizes->erase(std::remove_if(sizes->begin(), sizes->end(), left_over), sizes->end());
}

}  // namespace

machine::Cluster replicas_of(const machine::Cluster& cluster, const StepSize& size) {
  const Cluster replicas =
      machine::replicas_of(size.on.empty() ? cluster : machine::on_devices(cluster, size.on), size.width);
  return size.devices > 0 ? machine::first_devices(replicas, size.devices) : replicas;
}

std::vector<int> devices_of(const machine::Cluster& cluster, const StepSize& size) {
  const Cluster replicas = replicas_of(cluster, size);
  std::vector<int> devices;
  for (int r = 0; r < replicas.num_devices(); ++r) {
    for (int d = 0; d < size.width; ++d) devices.push_back(machine::device_number(replicas, r) + d);
  }
  return devices;
}

void put_on(const machine::Cluster& replicas, std::vector<int> devices, StepSize* size) {
  size->devices = static_cast<int>(devices.size()) / size->width;
  bool first_ones = true;
  for (int r = 0; r < size->devices && first_ones; ++r) {
    first_ones = machine::device_number(replicas, r) == devices[static_cast<std::size_t>(r * size->width)];
  }
  size->on = first_ones ? std::vector<int>() : std::move(devices);
}

std::int64_t usual_batch(std::int64_t own) {
  return own * usual_micro_batches(own);
}

std::int64_t usual_micro_batches(std::int64_t own) {
  return std::clamp<std::int64_t>(kUsualBatch / own, 1, kUsualMicroBatches);
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d * d != number) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<std::int64_t> replica_sizes(std::int64_t samples, const Profile& profile, std::int64_t most_micro_batches) {
  std::vector<std::int64_t> sizes = divisors(samples);
  const auto left_out = [&](std::int64_t size) {
    return static_cast<double>(size) > pipeline::most_samples(profile) || samples / size > most_micro_batches;
  };
  sizes.erase(std::remove_if(sizes.begin(), sizes.end(), left_out), sizes.end());
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<StepSize> step_sizes(const StepRequest& request, const Profile& profile, Replicas replicas) {
  if (replicas == Replicas::kFractional) {
    const double own = profile.micro_batch_size > 0 ? profile.micro_batch_size : 1;
    const double samples = request.micro_batch > 0 ? static_cast<double>(request.micro_batch) : own;
    if (request.batch == 0) {
      const auto whole = std::max<std::int64_t>(1, std::llround(samples));
      return {
          {samples, request.micro_batches > 0 ? request.micro_batches : static_cast<int>(usual_micro_batches(whole))}};
    }
    const double count = static_cast<double>(request.batch) / samples;
    if (count < 1 || count != std::floor(count) || (request.micro_batches > 0 && count != request.micro_batches)) {
      refuse("a batch of " + std::to_string(request.batch) + " samples is no whole number of micro-batches of " +
                 std::to_string(static_cast<std::int64_t>(samples)),
             "give --micro-batch as well, or --replicas whole, which chooses it");
    }
    return {size_of(static_cast<std::int64_t>(samples), static_cast<std::int64_t>(count))};
  }
  std::vector<StepSize> sizes = whole_sizes(request, pipeline::own_samples(profile), pipeline::most_samples(profile));
  const bool split = !sizes.empty();
  keep_whole_rounds(request, &sizes);
  if (split && sizes.empty()) {
    refuse("the step has no multiple of " + std::to_string(request.rounds_of) + " micro-batches",
           "give another --batch, or other --stages");
  }
  if (sizes.empty()) {
    refuse("a batch of " + std::to_string(request.batch) + " samples splits into more than " +
               std::to_string(kMostMicroBatches) + " micro-batches however it is done",
           "give --micro-batch, or another --batch");
  }
  return sizes;
}

std::vector<StepSize> further_sizes(const StepRequest& request, const Profile& profile, Replicas replicas) {
  std::vector<StepSize> further;
  if (replicas == Replicas::kFractional || request.micro_batch > 0 || request.micro_batches > 0) return further;
  const std::vector<StepSize> sizes = step_sizes(request, profile, replicas);
  const auto batch = static_cast<std::int64_t>(sizes.front().batch());
  for (const std::int64_t count : divisors(batch)) {
    if (count <= kMostMicroBatches || count > kMostChosenMicroBatches) continue;
    const StepSize size = size_of(batch / count, count);
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) further.push_back(size);
  }
  keep_whole_rounds(request, &further);
  return further;
}

}  // namespace automap::planners
