// Proposes configurations to a search, and the strategies where it starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

enum class Placement : std::uint8_t {
  kRange,  // an operator's parts stand on devices in a row, from any one on (FlexFlow's code since 2020)
  kAny,    // each part on any device (the paper, and its script of 2018)
  kMesh,   // all operators on all devices, in as many parts as there are devices: what XLA can have as one mesh
};
const char* to_string(Placement placement);                         // "range"
std::optional<Placement> parse_placement(const std::string& name);  // the inverse

// Every configuration of every operator of a space over so many devices. With kRange they are numbered, and drawn with
// equal chances; with kAny the degrees are drawn first, with equal chances, then a device for every part. A draw does
// not depend on the present configuration, so that a proposal is as likely as its way back.
//
// kMesh: an operator has as many parts as the largest divisor of the number of all devices that it can be split into,
// in every way; its part i stands on device i N / parts.
class Proposals {
 public:
  Proposals(const Space& space, int devices, Placement placement);

  int devices() const { return devices_; }
  Placement placement() const { return placement_; }
  // For kRange and kMesh: the number of configurations, and one of them.
  std::int64_t count(OperatorId op) const { return of(op).first.back(); }
  Config config(OperatorId op, std::int64_t number) const;
  // There is but one.
  bool fixed(OperatorId op) const { return devices_ == 1 || (placement_ != Placement::kAny && count(op) == 1); }
  Config draw(OperatorId op, Rng* rng) const;
  // The strategy itself; of kMesh the configurations whose degrees are nearest to its own, in the sum of the logarithms
  // of their ratios, the first of several.
  Strategy nearest(const Strategy& strategy) const;

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  int devices_ = 1;
  Placement placement_ = Placement::kRange;
  struct Choices {
    std::vector<std::vector<std::int32_t>> degrees;  // degree_vectors
    std::vector<std::int64_t> first;                 // the number of the first configuration of each; one more
  };
  const Choices& of(OperatorId op) const { return choices_[choices_of_[at(op)]]; }
  std::vector<Choices> choices_;         // shared by operators of equal extents
  std::vector<std::size_t> choices_of_;  // by operator
};

// Every operator split along its samples, over as many of the first devices as divide them; an operator without samples
// stands on the first device.
Strategy data_parallel(const Space& space, int devices);
// The strategy of experts (A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014,
// which the paper compares with for convolutional networks): operators whose weights are larger than their operands and
// results are split along a parameter dimension, all others as data parallel.
Strategy expert(const Space& space, int devices);
Strategy random_start(const Space& space, const Proposals& proposals, Rng* rng);

}  // namespace automap::soap
