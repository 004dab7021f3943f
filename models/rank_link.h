// Carries messages between the processes ("ranks") of one training run. Rank 0 talks with every other rank, the others
// with rank 0 only. This is the interface, without LibTorch; models/learner/gloo_link.h implements it with LibTorch.
//
// Threads of their own tell the others that a process is alive, and take what they send, while it works: a message
// arrives however busy its receiver is, and silence, however long the work is, means that a process, a machine or the
// network is gone. A process that ends is noticed at once, without a timeout.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace automap::models {

// The place of a process in its job (train/rank_place.h reads it from the environment).
struct RankPlace {
  int rank = 0, size = 1;
  std::string address;  // of rank 0: a host's name or address
  int port = 29500;     // that rank 0 listens at
};

// Not thread-safe: one thread sends and receives.
class RankLink {
 public:
  virtual ~RankLink() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // False, or nothing: that rank is gone, by its end, or because nothing was heard of it for the timeout.
  virtual bool send(int to, std::string_view bytes) = 0;
  virtual std::optional<std::string> receive(int from) = 0;
};

}  // namespace automap::models
