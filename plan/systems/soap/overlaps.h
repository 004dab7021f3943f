// The bytes that the parts of a consumer read of the parts of a producer.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/systems/soap/machine_links.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

// A part's index along every dimension of its operator.
std::vector<std::int32_t> indices_of(const Config& config, std::int32_t part);

// All that is given must stay alive.
class Overlaps {
 public:
  Overlaps(const Edge& edge, const Config& producer, const Config& consumer, const MachineLinks& machine);

  struct Bytes {
    std::int32_t producer = 0;  // part
    double forward = 0, back = 0;
    double kept = 0;  // of `forward`: EdgeTensor::kept
  };
  // By the producer's part, ascending; valid until the next call. Where several parts hold the same slab, it comes from
  // the one on the reader's device, else from one in its server, else from the first.
  const std::vector<Bytes>& of(std::int32_t part);

 private:
  struct Tensor {
    const EdgeTensor* tensor;
    std::vector<std::int32_t> copies;  // offsets of parts that hold the same slab
  };
  struct Slab {
    std::int32_t offset = 0;  // of the producer's part
    double elements = 1;
  };

  void add(const Tensor& of, const std::vector<std::int32_t>& indices, std::int32_t device);
  std::int32_t nearest(const std::vector<std::int32_t>& copies, std::int32_t offset, std::int32_t device) const;

  const Config& producer_;
  const Config& consumer_;
  const MachineLinks& machine_;
  std::vector<std::int32_t> strides_;  // of the producer's parts
  std::vector<Tensor> tensors_;
  std::vector<double> forward_, back_, kept_;  // by part of the producer
  std::vector<std::int32_t> touched_;
  std::vector<Bytes> found_;
  std::vector<Slab> slabs_, wider_;
};

}  // namespace automap::soap
