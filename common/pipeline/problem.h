// A planning problem: one profile on one cluster with M micro-batches, prepared so that every question about a stage, a
// transfer, a gradient sync and memory is answered in O(1). The one cost of a stage: every planner and the value
// function ask here; nobody else derives a rate. Formulas: docs/cost-model.md (design 2.1, 2.2).
//
// Instruction cuts p are 0..n, device cuts d are 0..D. A stage is (p0, p1] on devices (d0, d1], as one of variants().
// Times and bytes of a stage are differences of prefix sums (StageColumns) times factors of its device group, so
// planners may also walk the columns themselves.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/span.h"
#include "common/machine/cluster.h"
#include "common/machine/collectives.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/profile.h"
#include "common/pipeline/value_terms.h"

namespace automap::pipeline {

using machine::Cluster;
using machine::DeviceType;
using machine::ServerGroup;

enum class ValueForm : std::uint8_t { kFull, kPaper };
const char* to_string(ValueForm form);  // "full", "paper"

enum class Replicas : std::uint8_t {
  kWhole,  // a replica computes mb / r samples of each micro-batch, a whole number; times from the profile's tables
  kFractional,  // g devices take c / g of the module's own micro-batch (the papers)
};
enum class GradientSync : std::uint8_t {
  kOverlap,  // in buckets while the last micro-batch's backward proceeds; rings of NCCL
  kAfter,    // all of it behind the last backward; one flat ring (the papers)
};
const char* to_string(Replicas replicas);  // "whole", "fractional"
const char* to_string(GradientSync sync);  // "overlap", "after"

// A way to run a stage of r replicas. recompute: only the inputs of each layer are kept, and the layer's forward runs
// again in the backward. The state that ZeRO shards over the replicas, and the traffic this causes:
//   0  nothing. Gradients are all-reduced once per step (the sync).
//   1  the optimizer's state. The sync scatters the sums of the gradients (half an all-reduce), each replica updates
//      its part, and the updated weights are gathered behind the optimizer, which nothing hides.
//   2  gradients too: they are scattered after every micro-batch, layer by layer, while the layer in front goes
//      backward; what that does not hide is added to B. The last micro-batch's scatter is the sync. Weights as in 1.
//   3  weights too: each layer's are gathered before its forward and again before its backward, while the layer before
//      it in that order computes; what that does not hide is added to F and B. Two layers are whole at once, the one in
//      use and the one being gathered (workspace). Gradients as in 2, the last micro-batch's included, since gathers
//      and scatters share the ports; nothing is gathered behind the optimizer.
struct StageVariant {
  int zero = 0;
  bool recompute = false;
  bool operator==(const StageVariant& o) const { return zero == o.zero && recompute == o.recompute; }
};

// The backward in two passes is told for stages that neither compute anything again nor scatter gradients after every
// micro-batch.
inline bool splits_backward(const StageVariant& variant) {
  return !variant.recompute && variant.zero <= 1;
}

struct ProblemOptions {
  int micro_batches = 16;          // M
  double micro_batch_samples = 0;  // mb; 0: the profile's own (1 when it does not say)
  bool memory = true;              // refuse plans that exceed a device's memory
  double memory_reserve = 0;       // share of a device's memory that is not for the plan, in [0, 1)
  // Bytes of training state per weight byte: weight, gradient, two Adam moments. Without it the profile's own slots
  // and gradients count, where it has them; this is 4 where it does not.
  std::optional<double> state_factor;
  double state_factor_or_default() const { return state_factor.value_or(4); }
  bool allow_empty_stages = false;  // allow stages without a trainable variable (paper 4.4)
  bool allow_idle_stages = true;    // allow stages with hardly any compute (kIdleShare)
  ValueForm value = ValueForm::kFull;
  Replicas replicas = Replicas::kFractional;
  GradientSync gradient_sync = GradientSync::kAfter;
  double bucket_bytes = 25.0 * 1024 * 1024;  // of gradients reduced at once; kOverlap
  bool optimizer = false;                    // count the update of the variables
  // False, for bounds: sync, exchange and optimizer take no time, so that V is never above a simulated step of the same
  // problem; memory stays as it is.
  bool behind_backward = true;
  // ZeRO 2 and 3 shard gradients after the last micro-batch alone: until then a stage has all of its own in memory.
  bool whole_gradients = false;
  bool shards_gradients(const StageVariant& variant) const { return variant.zero >= 2 && !whole_gradients; }
  int group_size = 0;  // every stage has so many devices; 0: any
  // Each device of the problem is a replica of so many devices of one server (machine::replicas_of): the profile is
  // theirs (profile_at), and their messages leave by their ports side by side.
  int width = 1;
  // The variants that a stage may run as; at least one. kFractional supports zero = 0 only.
  std::vector<StageVariant> variants = {StageVariant()};
};

// The default options of planning, without the split of the batch and the variants.
inline ProblemOptions usual_options() {
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.gradient_sync = GradientSync::kOverlap;
  options.optimizer = true;
  options.allow_idle_stages = false;
  options.memory_reserve = 0.1;
  return options;
}

// Pairs of uses whose shared gradients count, those with the most bytes.
constexpr int kMostExchanged = 64;
// The most stages that are planned for.
constexpr int kMaxPlanStages = 64;
// Up to so many devices every number of them is kept as a group, which grows with their square; above, only those that
// a stage may have. With fractional replicas that is every number.
constexpr int kMostDenseDevices = 1024;

// A stage idles when its compute is below this share of the mean.
constexpr double kIdleShare = 0.05;

// The properties of devices (d0, d1] as a group of replicas.
struct DeviceGroup {
  int size = 0;               // g_s = r
  int servers = 0;            // v_s, servers touched
  bool valid = true;          // false: no stage can run on it (its replicas would share samples, or no time is known)
  int columns = 0;            // of Problem::columns()
  double speed = 0;           // kFractional: slowest relative speed
  double scale = 0;           // ms per column ms
  double stash_scale = 0;     // bytes per column byte of the stash and the workspace
  double capacity_bytes = 0;  // of the smallest device, without the reserve
  machine::CollectiveTime all_reduce, scatter;  // of its gradients: ZeRO 0, ZeRO 1 and more
  // The exchange of shared gradients with a stage in front of it and one behind it (SharedGradients): inside a server
  // where this group and all devices of the order in that direction stand in one.
  machine::CollectiveTime exchange_in_front, exchange_behind;
  double ring_bytes_per_ms = 0;  // bandwidth of its slowest ring
  double port_bytes_per_ms = 0;  // of the slowest of its servers
};

// Gradient bytes of a stage for variables that other stages hold, too (SharedWeight).
struct SharedGradients {
  double copies = 0;   // first used in front of the stage, last used in it: summed over its replicas like its own
                       // gradients, then exchanged with the stage in front
  double onwards = 0;  // first used in the stage, last used behind it: exchanged with that stage
};

// The way between two neighbouring groups: t = latency + bytes / bandwidth, and 0 for nothing to move.
struct Link {
  double latency_ms = 0;
  double bytes_per_ms = 0;
  double ms(double bytes) const { return bytes > 0 ? latency_ms + bytes / bytes_per_ms : 0; }
};

// The largest value of a range, answered in O(1): of whole blocks by a table of the ranges whose length is a power of
// two, of the parts of blocks beside them by what is largest from each place on, to both sides.
class RangeMax {
 public:
  RangeMax() = default;
  explicit RangeMax(const std::vector<double>& values);
  // Largest of values[first .. last-1]; 0 for an empty range or no values.
  double most(int first, int last) const;

 private:
  static constexpr std::size_t kBlock = 8;
  std::vector<double> values_, from_begin_, to_end_;  // [i]: of i's block, up to and with i, and from i on
  std::vector<std::vector<double>> levels_;           // [k][i]: of 2^k blocks from block i on
};

// Prefix sums over positions, whose differences are the costs of a stage; [n+1] each, entry 0 is 0.
struct StageColumns {
  const double* both = nullptr;         // forward + backward of one micro-batch, at scale 1
  const double* backward = nullptr;     // of which backward
  const double* weights = nullptr;      // of which the pass for gradients of weights; null: the backward is one pass
  const double* optimizer = nullptr;    // ms of one device, once per step
  const double* state = nullptr;        // bytes on each device whatever is in flight: weights, gradients, slots, frozen
  const double* stash = nullptr;        // bytes of one micro-batch at stash_scale 1, but for what enters the stage
  const double* entry = nullptr;        // [p0]: bytes kept of what enters a stage that begins behind p0, likewise
  const double* least_entry = nullptr;  // [p0]: at most `entry`, so that no stage keeps less than a part of it
  const RangeMax* peak = nullptr;       // of stash up to and with a position + its temporaries, at stash_scale 1
  // With recomputation, else null: the end of the layer that holds the position behind p0, and the part of its forward,
  // run again, that lies in front of p0, which a stage that begins there does not compute.
  const int* layer_end = nullptr;
  const double* layer_before = nullptr;

  // Most bytes alive at once beside the whole stash of all micro-batches in flight, at stash_scale 1: where the
  // backward pass of one has come to a position, its stash behind it is gone.
  double workspace(int p0, int p1) const {
    if (layer_end == nullptr || layer_before[p0] == 0) return std::max(0.0, peak->most(p0, p1) - stash[p1]);
    const int end = std::min(layer_end[p0], p1);
    return std::max(0.0, std::max(peak->most(p0, end) - layer_before[p0], peak->most(end, p1)) - stash[p1]);
  }
};

// Bytes on each device of a stage, by part.
struct MemoryParts {
  double weights = 0, gradients = 0, slots = 0, frozen = 0;
  double stash = 0;  // of all micro-batches in flight
  double workspace = 0, buckets = 0;
  double total() const { return weights + gradients + slots + frozen + stash + workspace + buckets; }
};

// A bucket of gradients: reduced when the backward of the last micro-batch has gone this share of its time.
struct SyncBucket {
  double ready_share = 0;
  double ms = 0;
};

class Problem {
 public:
  // Throws Error(kConfig) through check_cluster, Error(kUsage) on options out of range.
  Problem(const CheckedProfile& profile, const Cluster& cluster, const ProblemOptions& options);
  // For bounds (any_width.h): variants that differ in their times, [variants] of as many types of devices and at the
  // same samples as the profile's own. These are never longer, and only say how much work there is at the least.
  using TimesOfVariants = std::vector<std::vector<DeviceTimes>>;
  Problem(const CheckedProfile& profile, const Cluster& cluster, const ProblemOptions& options,
          const TimesOfVariants& times);

  int num_instructions() const { return n_; }
  int num_devices() const { return num_devices_; }
  int num_servers() const { return static_cast<int>(intra_bytes_per_ms_.size()); }
  int micro_batches() const { return options_.micro_batches; }
  double micro_batch_samples() const { return micro_batch_samples_; }
  double profile_samples() const { return profile_samples_; }  // of a_bytes and stash_bytes; 1 when unknown
  double forward_fraction() const { return forward_fraction_; }
  const ProblemOptions& options() const { return options_; }
  int server_of_device(int device) const { return server_of_device_[static_cast<std::size_t>(device)]; }  // 0-based
  // The number of the first device of `device` in the cluster from which the problem's devices were chosen;
  // server_number() likewise.
  int device_number(int device) const {
    return device_numbers_.empty() ? device * options_.width : device_numbers_[idx(device)];
  }
  // The number of servers of the whole cluster, side by side, that this one stands for (machine::replicas_of).
  int servers_taken_for(int server) const {
    return servers_taken_for_one_.empty() ? 1 : servers_taken_for_one_[idx(server)];
  }
  int server_number(int server) const { return server_numbers_.empty() ? server : server_numbers_[idx(server)]; }

  // The group of devices (d0, d1]. It is !valid if its size is impossible for a stage; above kMostDenseDevices devices,
  // all of its other fields are then unset, except for a single device.
  const DeviceGroup& group(int d0, int d1) const { return groups_[group_of_[group_index(d0, d1)]]; }
  // The group sizes that a stage may have, ascending.
  const std::vector<int>& group_sizes() const { return group_sizes_; }

  int num_variants() const { return static_cast<int>(options_.variants.size()); }
  const StageVariant& variant(int v) const { return options_.variants[idx(v)]; }
  const StageColumns& columns(const DeviceGroup& g, int variant = 0) const {
    return columns_[idx(g.columns) + idx(variant)];
  }
  // Those that no other makes superfluous on such a group, whatever the stage: with the same times, no more memory, and
  // no longer a sync or an update. Found when they are first asked for.
  const std::vector<int>& useful_variants(const DeviceGroup& g) const;

  // --- Times of one micro-batch on a valid group, ms ---
  double compute_ms(int p0, int p1, const DeviceGroup& g, int variant = 0) const {  // F + B
    const StageColumns& c = columns(g, variant);
    return (c.both[p1] - c.both[p0]) * g.scale;
  }
  double backward_ms(int p0, int p1, const DeviceGroup& g, int variant = 0) const {
    const StageColumns& c = columns(g, variant);
    return (c.backward[p1] - c.backward[p0]) * g.scale;
  }
  // The part of backward_ms that makes gradients of weights alone: each position's share of its own backward. 0 where
  // the profile does not tell it apart, and for variants whose backward is one pass.
  double weights_ms(int p0, int p1, const DeviceGroup& g, int variant = 0) const {
    const StageColumns& c = columns(g, variant);
    return c.weights == nullptr ? 0 : (c.weights[p1] - c.weights[p0]) * g.scale;
  }
  // Whether the profile tells it apart anywhere.
  bool has_weights_pass() const { return has_weights_pass_; }
  // For bounds: no group computes (p0, p1] in less than work_ms over the sum of its device_speed. kFractional: of the
  // micro-batch on the reference device, and equal to that when all devices of the group are alike.
  double work_ms(int p0, int p1) const { return work_[idx(p1)] - work_[idx(p0)]; }
  double device_speed(int device) const { return device_speed_[idx(device)]; }  // 0-based

  // --- Once per step ---
  double gradient_bytes(int p0, int p1) const { return gradients_[idx(p1)] - gradients_[idx(p0)]; }
  // The collective that sums the gradients of a stage over its replicas: all-reduce, or reduce-scatter from ZeRO 1 on.
  const machine::CollectiveTime& sync(const DeviceGroup& g, int variant = 0) const {
    return options_.variants[idx(variant)].zero >= 1 ? g.scatter : g.all_reduce;
  }
  // The whole sync of the stage when nothing else goes on.
  double sync_ms(double bytes, const DeviceGroup& g, int variant = 0) const {
    return g.size > 1 ? sync(g, variant).ms(bytes) : 0;
  }
  double sync_ms(int p0, int p1, const DeviceGroup& g, int variant = 0) const {
    return sync_ms(summed_bytes(p0, p1), g, variant);
  }
  // Variables that two stages hold: each sums the gradients of its own uses over its replicas, then both exchange their
  // sums, full duplex, and each updates its copy. A stage's part is its own ports' time, whatever the partner is, so
  // that it is known from the stage alone; that the partner may be later is left out. Only between a variable's first
  // and last use; kFractional (the papers) does not count it.
  SharedGradients shared_gradients(int p0, int p1) const { return shared_gradients(p0, p0, p1, p1); }
  // A lower bound on both fields for all stages that begin behind p0_first..p0_last and end at p1_first..p1_last.
  SharedGradients shared_gradients(int p0_first, int p0_last, int p1_first, int p1_last) const {
    SharedGradients bytes;
    for (const Exchanged& shared : exchanged_) {
      if (shared.first <= p0_first && p0_last < shared.position && shared.position <= p1_first) {
        bytes.copies += shared.bytes;
      }
      if (p0_last < shared.first && shared.first <= p1_first && p1_last < shared.position) {
        bytes.onwards += shared.bytes;
      }
    }
    return bytes;
  }
  double exchange_ms(const SharedGradients& bytes, const DeviceGroup& g) const {
    return g.exchange_in_front.ms(bytes.copies) + g.exchange_behind.ms(bytes.onwards);
  }
  double exchange_ms(int p0, int p1, const DeviceGroup& g) const {
    return exchanged_.empty() ? 0 : exchange_ms(shared_gradients(p0, p1), g);
  }
  // No shared gradients tell cuts of one class apart.
  int sharing_class(int p) const { return exchanged_.empty() ? 0 : sharing_class_[idx(p)]; }
  bool shares_gradients() const { return !exchanged_.empty(); }
  // All gradients that the stage sums over its replicas.
  double summed_bytes(int p0, int p1) const {
    return gradient_bytes(p0, p1) + (exchanged_.empty() ? 0 : shared_gradients(p0, p1).copies);
  }
  // Size of the bucket that a stage behind p0 reduces last, when its backward has ended: it holds the stage's first
  // positions until it is full, so that a variable larger than a bucket is one. Infinite: all gradients behind p0 are
  // one bucket, or kAfter.
  double last_bucket_bytes(int p0) const { return last_bucket_[idx(p0)]; }
  // The least part of the sync that is left when a backward of backward_ms ends; V counts this. kAfter: all of it.
  // Never more than the replay of sync_buckets leaves.
  double exposed_sync_ms(int p0, int p1, double backward_ms, const DeviceGroup& g, int variant = 0) const {
    return sync_terms(g, variant).exposed_ms(summed_bytes(p0, p1), last_bucket_bytes(p0), backward_ms);
  }
  // A lower bound on exposed_sync_ms for stages with at least so many gradient bytes and at most this backward.
  double least_exposed_sync_ms(double gradient_bytes, double backward_ms, const DeviceGroup& g, int variant = 0) const {
    const bool after = options_.gradient_sync == GradientSync::kAfter;
    return sync_terms(g, variant)
        .exposed_ms(gradient_bytes, after ? gradient_bytes : options_.bucket_bytes, backward_ms);
  }
  // For loops over stages of one group.
  terms::Sync sync_terms(const DeviceGroup& g, int variant = 0) const {
    if (g.size == 1) return {};
    terms::Sync terms;
    const machine::CollectiveTime::Lines& lines = sync(g, variant).lines();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      terms.latency_ms[i] = lines[i].latency_ms;
      terms.ms_per_byte[i] = lines[i].ms_per_byte;
      terms.one_line = terms.one_line && lines[i] == lines[0];
    }
    return terms;
  }
  // The buckets in the order they are reduced; filled from the stage's first position on, so that only the one reduced
  // first may be smaller. kAfter: one, ready at the end. Empty: nothing to reduce.
  void sync_buckets(int p0, int p1, const DeviceGroup& g, int variant, std::vector<SyncBucket>& buckets) const;
  double optimizer_ms(int p0, int p1, const DeviceGroup& g, int variant = 0) const {
    const StageColumns& c = columns(g, variant);
    return c.optimizer[p1] - c.optimizer[p0];
  }
  // All that V counts behind a last backward of backward_ms: exposed sync, exchange and optimizer.
  double behind_backward_ms(int p0, int p1, double backward_ms, const DeviceGroup& g, int variant = 0) const {
    return exposed_sync_ms(p0, p1, backward_ms, g, variant) + exchange_ms(p0, p1, g) + optimizer_ms(p0, p1, g, variant);
  }

  // --- Bytes ---
  double weight_bytes(int p0, int p1) const { return weights_[idx(p1)] - weights_[idx(p0)]; }
  // Stash of one micro-batch at the profile's samples.
  double stash_bytes(int p0, int p1) const { return stash_[idx(p1)] - stash_[idx(p0)]; }
  // Activation bytes across cut p for one micro-batch of micro_batch_samples().
  double activation_bytes(int p) const { return activation_[idx(p)]; }
  // Instructions with w > 0 in (p0, p1].
  int variables(int p0, int p1) const { return variables_[idx(p1)] - variables_[idx(p0)]; }
  // Bytes on one device of the stage that do not depend on the micro-batches in flight, and those of each of them.
  double fixed_bytes(int p0, int p1, const DeviceGroup& g, int variant = 0) const {
    const StageColumns& c = columns(g, variant);
    return c.state[p1] - c.state[p0] + tied_bytes(p0, p1, g, variant) + c.workspace(p0, p1) * g.stash_scale +
           bucket_bytes(p0, p1, g);
  }
  double flight_bytes(int p0, int p1, const DeviceGroup& g, int variant = 0) const {
    const StageColumns& c = columns(g, variant);
    return (c.stash[p1] - c.stash[p0] + c.entry[p0]) * g.stash_scale;
  }
  double memory_bytes(int p0, int p1, const DeviceGroup& g, int in_flight, int variant = 0) const {
    return fixed_bytes(p0, p1, g, variant) + flight_bytes(p0, p1, g, variant) * in_flight;
  }
  // At most memory_bytes(), which grows with the end of a stage only: with recomputation a cut inside of a layer may be
  // fatter than what enters the layer. This grows in front, too, for searches by halves.
  double least_memory_bytes(int p0, int p1, const DeviceGroup& g, int in_flight, int variant = 0) const {
    return memory_bytes(p0, p1, g, in_flight, variant) - entry_beyond_least(p0, g, in_flight, variant);
  }
  // The difference of both.
  double entry_beyond_least(int p0, const DeviceGroup& g, int in_flight, int variant = 0) const {
    const StageColumns& c = columns(g, variant);
    return (c.entry[p0] - c.least_entry[p0]) * g.stash_scale * in_flight;
  }
  MemoryParts memory_parts(int p0, int p1, const DeviceGroup& g, int in_flight, int variant = 0) const;
  // The most micro-batches that may be in flight, 0..M; 0: not even one fits. M without memory limits.
  int most_in_flight(int p0, int p1, const DeviceGroup& g, int variant = 0) const;
  // K_s of stage `stage` of num_stages as the schedule prescribes, and for kAdaptive most_in_flight(); 0 when it does
  // not fit.
  int in_flight(Schedule schedule, int num_stages, int stage, int p0, int p1, const DeviceGroup& g,
                int variant = 0) const;

  // --- Requirements of a stage ---
  // Memory, variables, idleness. `needs_variable` as given by stages_need_variables(S).
  bool stage_fits(int p0, int p1, const DeviceGroup& g, int in_flight, bool needs_variable, int variant = 0) const {
    return p1 > p0 && g.valid && in_flight > 0 && (!needs_variable || variables(p0, p1) > 0) && !idles(p0, p1, g) &&
           (!options_.memory || memory_bytes(p0, p1, g, in_flight, variant) <= g.capacity_bytes);
  }
  // True below kIdleShare of the compute that every stage would have if the work were spread evenly over all devices.
  bool idles(int p0, int p1, const DeviceGroup& g) const {
    return !options_.allow_idle_stages && compute_ms(p0, p1, g) < idle_below_ms_;
  }
  // True when a plan of S stages must hold a trainable variable in each (paper 4.4): the profile has at least S
  // instructions with w > 0 and --allow-empty-stages was not given.
  bool stages_need_variables(int num_stages) const {
    return !options_.allow_empty_stages && variables_.back() >= num_stages;
  }

  // --- Between stages ---
  // The link from the group (d0, d1] to the group (d1, d2]. Where replicas have several devices each of these
  // sends its part, and those of the other side gather them: inside a server that takes as long as the whole over one
  // link. No other pair of groups that touch the same servers is faster than the larger groups of devices and servers;
  // for bounds: inside one server each pair of devices has pair_bytes_per_ms(server), and between servers first..last,
  // whatever the groups are, port_bytes_per_ms for each server of the one with fewer.
  Link link(int d0, int d1, int d2) const { return link(d0, d1, d1, d2); }
  // From (d0, d1] to (e0, e1], any two groups that share no device.
  Link link(int d0, int d1, int e0, int e1) const;
  // The same of groups of replicas of `width` devices, whatever the width of the problem's own: d0, d1 and d2 count
  // single devices, and `width` divides them.
  Link link_at_width(int width, int d0, int d1, int d2) const;
  double pair_bytes_per_ms(int server) const { return messages_[idx(server)].inside_bytes_per_ms; }
  double port_bytes_per_ms(int first_server, int last_server) const {
    return smallest_inter(first_server, last_server);
  }
  // The number of devices of a group that receives from another server beyond which more devices on as many servers
  // make no difference, at most the group's size. 0: none makes one, only the ports count.
  int devices_that_count(const DeviceGroup& g) const;
  // t_s of `bytes` from the group (d0, d1] to the group (d1, d2], ms one way.
  double transfer_ms(double bytes, int d0, int d1, int d2) const;
  double transfer_ms(int p, int d0, int d1, int d2) const { return transfer_ms(activation_[idx(p)], d0, d1, d2); }

 private:
  static std::size_t idx(int i) { return static_cast<std::size_t>(i); }
  std::size_t group_index(int d0, int d1) const { return idx(d0) * places_ + idx(place_of_size_[idx(d1 - d0)]); }
  Link link_of(const machine::MessageGroups& groups, int first_server, int last_server, int width) const;
  double smallest_inter(int first_server, int last_server) const {
    return inter_bytes_per_ms_[idx(first_server) * intra_bytes_per_ms_.size() + idx(last_server)];
  }
  // Gradients of a stage behind p0 up to p, to be compared with those up to another p.
  double summed_until(int p0, int p) const {
    double bytes = gradients_[idx(p)];
    for (const Exchanged& shared : exchanged_) {
      if (shared.first <= p0 && p0 < shared.position && shared.position <= p) bytes += shared.bytes;
    }
    return bytes;
  }
  // The end of the bucket that begins behind p in a stage (p0, p1]; p1 when that does not fill one.
  int bucket_end(int p0, int p, int p1) const;
  double bucket_bytes(int p0, int p1, const DeviceGroup& g) const;
  double tied_bytes(int p0, int p1, const DeviceGroup& g, int variant) const;
  // True if variant `one` takes neither longer nor more memory than `other`, whatever the stage is.
  bool makes_superfluous(const DeviceGroup& g, int one_variant, int other_variant) const;
  class Builder;
  void build(const CheckedProfile& profile, const Cluster& cluster, const TimesOfVariants* times);

  ProblemOptions options_;
  int n_ = 0;
  int num_devices_ = 0;
  double micro_batch_samples_ = 0, profile_samples_ = 1;
  double forward_fraction_ = 0;
  double idle_below_ms_ = 0;
  std::vector<double> work_, weights_, gradients_, slots_, frozen_, stash_;  // [n+1], prefix sums
  std::vector<double> activation_;                                           // [n+1]
  bool has_weights_pass_ = false;
  std::vector<int> variables_;       // [n+1], prefix counts of w > 0
  std::vector<double> last_bucket_;  // [n+1]
  // [n+1], guesses that no answer depends on: where the bucket ends that begins behind p, and the first gradient
  // stands.
  std::vector<int> next_bucket_, next_gradient_;
  std::vector<SharedWeight> shared_;
  struct Exchanged {  // all shared weights with the same uses
    int first = 0, position = 0;
    double bytes = 0;
  };
  std::vector<Exchanged> exchanged_;  // the kMostExchanged largest
  std::vector<int> sharing_class_;    // [n+1]
  std::vector<int> server_of_device_, device_numbers_, server_numbers_, servers_taken_for_one_;
  std::vector<double> device_speed_;
  std::vector<double> intra_bytes_per_ms_;       // per server
  std::vector<machine::MessageLinks> messages_;  // per server; between servers what the slowest server of all has
  std::vector<double> inter_bytes_per_ms_;       // [servers x servers], smallest over the range
  std::vector<int> group_sizes_;
  std::size_t places_ = 0;               // in group_of_ for each device
  std::vector<int> place_of_size_;       // [D+1]; 0: no stage may have it, and nothing is kept
  std::vector<std::uint32_t> group_of_;  // [D x places_], of groups_
  std::vector<DeviceGroup> groups_;      // each that differs from all others once; the first is none
  // The data that columns_ point into: shared, so that it lives as long as any copy of the problem.
  struct Storage;
  std::shared_ptr<Storage> storage_;
  std::vector<StageColumns> columns_;  // [kinds x variants]
};

}  // namespace automap::pipeline
