// What problems of one profile have in common, whatever their splits of the batch and their clusters are: each column
// is made when the first of them needs it (problem_builder.cpp), and lives as long as one that points at it, or the
// profile.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "common/pipeline/problem.h"

namespace automap::pipeline {

// Values by their keys. Two threads that miss the same one both make it, and the first one's is kept: they are equal.
template <class Key, class Value>
class MadeOnce {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, const Make& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = made_.find(key);
      if (found != made_.end()) return found->second;
    }
    auto value = std::make_shared<const Value>(make());
    const std::lock_guard<std::mutex> lock(mutex_);
    return made_.emplace(key, std::move(value)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Value>> made_;
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
  };
  MadeOnce<std::tuple<TimesKey, bool>, Sums> sums;
  // Times, speed, shards of the update, and ms per byte of gathered weights.
  MadeOnce<std::tuple<const DeviceTimes*, double, int, double>, std::vector<double>> optimizers;
  // The state factor (negative: the module's own state), and the shards of weights, gradients and slots.
  MadeOnce<std::tuple<double, int, int, int>, std::vector<double>> states;
  // Recomputation; where weights are gathered, over how many devices, at which scale, and which share of them is kept.
  struct Stash {
    std::vector<double> stash, entry, least_entry, layer_before;  // [n+1]; layer_before: with recomputation
    std::vector<int> layer_end;                                   // likewise
    RangeMax peak;
  };
  MadeOnce<std::tuple<bool, int, double, double>, Stash> stashes;
};

}  // namespace automap::pipeline
