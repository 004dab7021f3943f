// The profile of a model, the input of every pipeline planner: compute, activation, weight and stash per forward
// instruction. Symbols c, a, w, k, φ and n as in docs/cost-model.md (paper 4.5.1). File forms:
// common/io/profile_file.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace automap::pipeline {

// Times on one type of device at several numbers of samples.
struct DeviceTimes {
  std::string device;  // a name of the device table
  // b, ascending and without repeats: samples that one replica computes of a micro-batch. Times between two points are
  // linear in b; below the first they are those of the first; beyond the last there are none.
  std::vector<double> samples;
  // [points][n]: forward, and the backward that belongs to it, of one micro-batch of that many samples.
  std::vector<std::vector<double>> forward_ms, backward_ms;
  // [n]: the module's own update of the variables first used here, once per step, by one device.
  std::vector<double> optimizer_ms;
};

// A variable that positions far apart use (a tied embedding): w_bytes charges it to its first use; a stage that holds
// `position` but not `first` holds a copy of it, and the gradients of the copies are added up between the two stages.
struct SharedWeight {
  std::int32_t first = 0, position = 0;  // 1-based, first < position: first use, and the last one
  double weight_bytes = 0, gradient_bytes = 0, slot_bytes = 0;
};

// A replica of `width` devices, of one server or of several whole ones, which hold its tensors in parts
// (plan/partition/widths.h): the profile's columns as they are on each of these devices, its own collectives inside the
// times.
struct WidthColumns {
  std::int32_t width = 1;
  // [n], or empty as in the profile.
  std::vector<double> w_bytes, gradient_bytes, slot_bytes, frozen_bytes, stash_bytes, workspace_bytes;
  std::vector<double> layer_entry_bytes, stage_entry_bytes;
  std::vector<DeviceTimes> times;                  // of the same devices and samples as Profile::times
  std::vector<std::vector<double>> collective_ms;  // of that, collectives: [device of `times`][n], at micro_batch_size
  std::vector<double> weight_share;                // as Profile::weight_share
  std::vector<SharedWeight> shared;
  // The partition of the tensors over the devices of a replica: a plan of the kind `operator`, as JSON
  // (docs/formats/plan.md), and in a sentence.
  std::string partition, partition_text;
  std::string servers;  // the cluster between whose devices the collectives are; its name
};

struct Profile {
  std::string model;            // a name for people
  std::string device;           // the reference device that c_ms is measured or estimated on
  double micro_batch_size = 0;  // samples per micro-batch; 0 when unknown
  // φ: the forward share of c, in (0, 1). 1 for an inference module (no backward).
  double forward_fraction = 1.0 / 3.0;
  std::string work;           // what most of its compute is, "matmul bf16", "convolution f32"; empty: unknown
  std::string source_sha256;  // of the bytes the profile was made from; empty when unknown

  // One entry per forward instruction 1..n (index i-1), in data-flow order.
  std::vector<double> c_ms;         // forward + own backward of one micro-batch on one reference device
  std::vector<double> a_bytes;      // bytes crossing the cut after the instruction, one direction, per micro-batch
  std::vector<double> w_bytes;      // trainable variables first used here = gradient bytes to all-reduce
  std::vector<double> stash_bytes;  // kept from forward to backward, per micro-batch
  // Each either empty or of size n.
  std::vector<std::string> name;     // HLO instruction name
  std::vector<std::string> op_name;  // framework name
  std::vector<std::string> layer;    // the layer a user knows, "encoder/layer/17"

  // Known when the profile comes from a module; otherwise each is empty, or as said. docs/cost-model.md.
  std::vector<DeviceTimes> times;       // one per type of device; empty: c_ms, linear in the samples
  std::vector<double> gradient_bytes;   // [n]: of the variables first used here, in the type they are reduced in
  std::vector<double> slot_bytes;       // [n]: optimizer state of those variables (moments, master copies)
  std::vector<double> frozen_bytes;     // [n]: weights and state read first here that no gradient updates
  std::vector<double> workspace_bytes;  // [n]: largest set of temporaries alive at once, forward or backward, at
                                        // micro_batch_size samples, beside what a and k count
  // [n]: the bytes that a stage that recomputes its layers keeps of a micro-batch for them. layer_entry_bytes, at the
  // first position of a layer: inputs of the layer that are not inputs of the layer in front, where they are kept
  // already (0 elsewhere). stage_entry_bytes: further inputs of a stage that begins with a position. Empty: all that
  // crosses the cut in front of it, at every layer again.
  std::vector<double> layer_entry_bytes, stage_entry_bytes;
  // [n]: of the backward at micro_batch_size samples on the first device, the share in [0, 1] that makes gradients of
  // weights alone: nothing in front waits for it.
  std::vector<double> weight_share;
  std::vector<SharedWeight> shared;
  std::vector<WidthColumns> widths;  // ascending, beyond width 1
  // Micro-batches that the module accumulates gradients over by itself (its loop is then the micro-batches, and all
  // else is of one of them); 1: none.
  std::int32_t accumulated_micro_batches = 1;
  // Parts that attention divides into by whole heads (profile/attention_heads.h), where replicas of several devices
  // were looked at; 0: not known, or no attention.
  std::int64_t attention_heads = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(c_ms.size()); }
};

// Samples of the module's own micro-batch, at least 1.
std::int64_t own_samples(const Profile& profile);
// The most samples of one replica that there are times for, on any of its devices; infinite without `times`.
double most_samples(const Profile& profile);

// The profile of replicas of so many devices: the data and compute of each of these. a_bytes stay those of the whole
// tensors. Throws Error(kInternal) for a width that it does not know.
Profile profile_at(const Profile& profile, std::int32_t width);
// True if the profile says which share of a backward makes the gradients of weights.
bool tells_weights_apart(const Profile& profile);
// 1 and the widths whose columns it has, ascending.
std::vector<int> known_widths(const Profile& profile);

// Throws Error(kData) naming `source`, the column and the row when the profile cannot be planned: fewer than two
// instructions, columns of different length, a value that is negative or not finite, all compute zero,
// φ outside (0, 1].
void check_profile(const Profile& profile, const std::string& source);

struct SharedColumns;  // shared_columns.h

// A profile that has passed check_profile, so that it is checked once for many problems. One made from a reference does
// not keep the profile alive; one made from a pointer shares it, and one made from a temporary keeps it. Throws what
// check_profile throws.
class CheckedProfile {
 public:
  CheckedProfile(const Profile& profile);  // NOLINT(google-explicit-constructor): any profile can be asked about
  CheckedProfile(Profile&& profile);       // NOLINT(google-explicit-constructor)
  explicit CheckedProfile(std::shared_ptr<const Profile> profile);
  // The same, which lives as long as `owner` of it does.
  CheckedProfile kept_by(const std::shared_ptr<const void>& owner) const;
  // The profile of replicas of `width` devices (profile_at), made and checked on the first request. Copies share it, as
  // they share the columns that problems of it have in common.
  CheckedProfile at_width(int width) const;
  const std::shared_ptr<SharedColumns>& columns() const;
  operator const Profile&() const { return *profile_; }  // NOLINT(google-explicit-constructor)
  const Profile& operator*() const { return *profile_; }
  const Profile* operator->() const { return profile_.get(); }

 private:
  struct Made;
  std::shared_ptr<const Profile> profile_;
  std::shared_ptr<Made> made_;
};

}  // namespace automap::pipeline
