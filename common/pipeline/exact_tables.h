// Tables of stage costs between points, for the exact program: Problem's columns at the points, memory, and the inputs
// of bounds. Where a point is a run of cuts, every answer is the most favourable one. docs/exact-solver.md.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/pipeline/exact_program.h"

namespace automap::pipeline::internal {

// Prefix columns of one kind of group and variant at the first (low) and last (high) cut of every point.
struct PointColumns {
  std::vector<double> both_low, both_high, backward_low, backward_high, optimizer_low, optimizer_high;
};

class StageTables {
 public:
  // Keeps references to both.
  StageTables(const Problem& problem, const Points& points);

  bool relaxed() const { return relaxed_; }
  // All columns that problems of the papers' form have: nothing to update, one share of backward everywhere, one sync
  // behind the step.
  bool plain() const { return plain_; }
  const PointColumns& columns(const DeviceGroup& group, int variant);

  // The stage from point i to a point j behind it. For one i all of these are monotone in j.
  bool fits(std::size_t i, std::size_t j, const DeviceGroup& group, int variant, int in_flight) const;
  int most_in_flight(std::size_t i, std::size_t j, const DeviceGroup& group, int variant) const;
  bool idles(std::size_t i, std::size_t j, const DeviceGroup& group) const {
    return problem_.idles(points_.first_cut[i], points_.last_cut[j], group);
  }
  // Shared gradients and the time of their exchange.
  SharedGradients shared_gradients(std::size_t i, std::size_t j) const {
    return problem_.shared_gradients(points_.first_cut[i], points_.last_cut[i], points_.first_cut[j],
                                     points_.last_cut[j]);
  }
  // Those of points of one class are alike, beside any other point.
  std::pair<int, int> sharing_class(std::size_t i) const {
    return {problem_.sharing_class(points_.first_cut[i]), problem_.sharing_class(points_.last_cut[i])};
  }
  // The same from below (above) for any stage that holds the instructions between the two points, monotone in both.
  bool may_fit(std::size_t i, std::size_t j, const DeviceGroup& group, int variant, int in_flight) const {
    return may_fit_cuts(points_.last_cut[i], points_.first_cut[j], group, variant, in_flight);
  }
  int may_be_in_flight(std::size_t i, std::size_t j, const DeviceGroup& group, int variant) const;
  bool may_fit_cuts(int p0, int p1, const DeviceGroup& group, int variant, int in_flight) const;
  // False: no stage of the group has trouble with memory with so many in flight.
  bool memory_binds(const DeviceGroup& group, int variant, int in_flight) const;

  // min(F, B) of no stage is more than this share of its F + B.
  double small_share() const { return small_share_; }
  // F of no stage is less than this share of its F + B.
  double forward_share() const { return forward_share_; }
  // Backward share of a plain problem.
  double backward_share() const { return backward_share_; }
  // Least ms that the group takes for a unit of Problem::work_ms, wherever.
  double ms_per_work(const DeviceGroup& group);
  void find_shares(bool closely);
  std::int64_t take_units() { return std::exchange(units_, 0); }  // of work since the last call

 private:
  std::size_t place(const DeviceGroup& group, int variant) const;
  template <typename Visit>
  bool for_each_cut(const Visit& visit) const;

  const Problem& problem_;
  const Points& points_;
  bool relaxed_ = false, plain_ = false;
  double small_share_ = 0.5, forward_share_ = 0, backward_share_ = 0;
  std::int64_t units_ = 0;
  std::vector<std::unique_ptr<PointColumns>> columns_;
  std::vector<double> ms_per_work_;
};

}  // namespace automap::pipeline::internal
