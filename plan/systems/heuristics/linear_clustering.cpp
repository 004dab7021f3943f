// H2: linear clustering (Kim and Browne), then the longest processing time first.
#include <algorithm>

#include "plan/systems/heuristics/heuristics.h"

namespace automap::heuristics {

namespace {

// Limit on the steps over tasks and edges while the longest paths of the rest are found; then the lengths are kept.
constexpr std::int64_t kMostSteps = 100'000'000;

class PathClusters {
 public:
  explicit PathClusters(const Question& question) : q_(question), g_(question.work) {
    for (const Value& value : g_.values) {
      message_ms_.push_back(q_.machine.mean_message_ms(value.bytes));
      edges_ += static_cast<std::int64_t>(value.consumers.size());
    }
    cluster_.assign(at(g_.units()), kNone);
    length_.assign(g_.tasks.size(), 0);
    next_.assign(g_.tasks.size(), kNone);
  }

  std::vector<std::int32_t> run(std::int32_t* count) {
    for (;;) {
      if (steps_ < kMostSteps) measure();
      const TaskId first = longest();
      if (first == kNone) break;
      take_path(first);
    }
    *count = clusters_;
    return std::move(cluster_);
  }

 private:
  bool is_free(TaskId t) const { return cluster_[at(g_.tasks[at(t)].unit)] == kNone; }

  // Lengths of the longest paths through tasks that are free, and where they go on.
  void measure() {
    steps_ += g_.size() + edges_;
    for (TaskId t = g_.size() - 1; t >= 0; --t) {
      if (!is_free(t)) continue;
      double after = 0;
      next_[at(t)] = kNone;
      for (const ValueId v : g_.made[at(t)]) {
        for (const TaskId c : g_.values[at(v)].consumers) {
          if (!is_free(c)) continue;
          const double length = message_ms_[at(v)] + length_[at(c)];
          if (length <= after && next_[at(t)] != kNone) continue;
          after = length;
          next_[at(t)] = c;
        }
      }
      length_[at(t)] = g_.tasks[at(t)].ms + after;
    }
  }

  TaskId longest() const {
    TaskId best = kNone;
    for (TaskId t = 0; t < g_.size(); ++t) {
      if (is_free(t) && (best == kNone || length_[at(t)] > length_[at(best)])) best = t;
    }
    return best;
  }

  // A path is cut where a device would have more than its share.
  void take_path(TaskId t) {
    const double most = (1 + kSlack) * q_.mean_share_ms();
    double ms = 0;
    for (bool first = true; t != kNone; t = next_[at(t)]) {
      if (!is_free(t)) {
        if (steps_ < kMostSteps) continue;  // a later task of a unit that the path has
        break;
      }
      const UnitId unit = g_.tasks[at(t)].unit;
      if (first || ms + q_.graph.ms[at(unit)] > most) {
        ++clusters_;
        ms = 0;
        first = false;
      }
      cluster_[at(unit)] = clusters_ - 1;
      ms += q_.graph.ms[at(unit)];
    }
  }

  const Question& q_;
  const WorkGraph& g_;
  std::vector<double> message_ms_, length_;
  std::vector<TaskId> next_;
  std::vector<std::int32_t> cluster_;
  std::int32_t clusters_ = 0;
  std::int64_t edges_ = 0, steps_ = 0;
};

}  // namespace

Devices linear_clustering(const Question& question) {
  std::int32_t count = 0;
  const std::vector<std::int32_t> cluster = PathClusters(question).run(&count);
  return map_clusters(question.graph, question.machine, cluster, count);
}

}  // namespace automap::heuristics
