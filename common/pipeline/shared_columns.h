// Columns that problems of one profile share, whatever their splits of the batch and their clusters. Each column is
// made when the first problem needs it (problem_builder.cpp), and lives as long as the profile and all users of the
// column.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/pipeline/problem.h"

namespace automap::pipeline {

// Values by their keys, kept for good (std::shared_ptr) or while somebody has them (std::weak_ptr). Two threads that
// miss the same one both make it: they are equal.
template <class Key, class Value, template <class> class Kept = std::shared_ptr>
class MadeOnce {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, const Make& make) {
    if (std::shared_ptr<const Value> known = find(key)) return known;
    auto value = std::make_shared<const Value>(make());
    const std::lock_guard<std::mutex> lock(mutex_);
    made_[key] = value;
    return value;
  }

 private:
  std::shared_ptr<const Value> find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = made_.find(key);
    if (found == made_.end()) return nullptr;
    if constexpr (std::is_same_v<Kept<const Value>, std::weak_ptr<const Value>>) {
      return found->second.lock();
    } else {
      return found->second;
    }
  }

  std::mutex mutex_;
  std::map<Key, Kept<const Value>> made_;
};

struct SharedColumns {
  // Times of a device (null: linear in c_ms), the speed they are divided by, and the samples on it.
  using TimesKey = std::tuple<const DeviceTimes*, double, double>;
  struct Times {
    std::vector<double> forward, backward;  // [n], ms
  };
  MadeOnce<TimesKey, Times> times;
  // The same, and whether the forward pass is run again.
  struct Sums {
    std::vector<double> backward, both;  // [n+1]
    std::vector<double> weights;         // [n+1], or empty: the backward is one pass
  };
  MadeOnce<std::tuple<TimesKey, bool>, Sums> sums;
  // Times, speed, shards of the update, and ms per byte of gathered weights.
  MadeOnce<std::tuple<const DeviceTimes*, double, int, double>, std::vector<double>> optimizers;
  // The state factor (negative: the module's own state), and the shards of weights, gradients and slots.
  MadeOnce<std::tuple<double, int, int, int>, std::vector<double>> states;
  // Key: whether the forward pass is run again.
  struct Stash {
    std::vector<double> stash, entry, least_entry, layer_before;  // [n+1]; layer_before: with recomputation
    std::vector<int> layer_end;                                   // likewise
    RangeMax peak;
  };
  MadeOnce<bool, Stash> stashes;
  // The same with weights that are gathered: over how many devices, at which scale, and which share of them is kept.
  // They do not shrink with the samples, so that every split has its own: too many to be kept.
  MadeOnce<std::tuple<bool, int, double, double>, Stash, std::weak_ptr> gathered;
};

}  // namespace automap::pipeline
