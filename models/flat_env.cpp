#include "models/flat_env.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/cost.h"

namespace automap::models {
namespace {

using pipeline::DeviceGroup;
using pipeline::Problem;

constexpr int kNumbers = 10;
constexpr int kArrays = 3 * pipeline::kGranularity;

float clamped_share(double part, double whole) {
  if (!(whole > 0)) return 0;
  return static_cast<float>(std::clamp(part / whole, 0.0, 1.0));
}

// Between two devices: the slowest link on the way between their servers.
double bytes_per_ms(const Problem& problem, int a, int b) {
  return problem.group(std::min(a, b), std::max(a, b) + 1).ring_bytes_per_ms;
}

}  // namespace

FlatEnv::FlatEnv(const PlanSpace& space, FlatInput input) : space_(space), input_(input), root_(space.root()) {
  const Problem& problem = space.problem();
  const int devices = problem.num_devices(), last = space.num_points() - 1;
  if (last - 1 > kActions || static_cast<int>(space.device_cuts().size()) > kMostDeviceCuts) {
    throw Error(ErrorKind::kUsage, std::to_string(last - 1) + " pivots and " +
                                       std::to_string(space.device_cuts().size()) +
                                       " device cuts for the flat environment; expected at most " +
                                       std::to_string(kActions) + " and " + std::to_string(kMostDeviceCuts));
  }
  speed_behind_.assign(at(devices) + 1, 0);
  for (int d = devices; d-- > 0;) speed_behind_[at(d)] = speed_behind_[at(d) + 1] + problem.device_speed(d);
  if (!problem.group_sizes().empty()) {
    state_bytes_ = problem.columns(problem.group(0, problem.group_sizes().front())).state[problem.num_instructions()];
  }
  if (input_ == FlatInput::kRaw) {
    // Every link between neighbours: the slowest one of all, as in row.h.
    double slowest = devices == 1 ? bytes_per_ms(problem, 0, 0) : kInfinity;
    double fastest = 0;
    for (int d = 0; d + 1 < devices; ++d) {
      slowest = std::min(slowest, bytes_per_ms(problem, d, d + 1));
      fastest = std::max(fastest, bytes_per_ms(problem, d, d + 1));
    }
    std::vector<double> arrays(at(kArrays));
    for (int k = 0; k < kActions; ++k) {
      const int cut = space.cut_of_point(std::min(k + 1, last));
      arrays[at(k)] = problem.work_ms(0, cut);
      arrays[at(kActions + k)] = problem.activation_bytes(cut) / slowest;
      arrays[at(2 * kActions + k)] = problem.weight_bytes(0, cut) / slowest;
    }
    const double scale = *std::max_element(arrays.begin(), arrays.end());
    for (double value : arrays) row_.push_back(clamped_share(value, scale));
    const int shown = std::min(devices, kMatrix);
    const auto device = [&](int i) { return static_cast<int>((2LL * i + 1) * devices / (2LL * shown)); };
    row_.resize(at(kArrays + kMatrix * kMatrix), 0);
    for (int i = 0; i < shown; ++i) {
      for (int j = 0; j < shown; ++j) {
        row_[at(kArrays + i * kMatrix + j)] =
            i == j ? 1 : clamped_share(bytes_per_ms(problem, device(i), device(j)), fastest);
      }
    }
  }
  reset();
}

int FlatEnv::state_size(FlatInput input) {
  return input == FlatInput::kRaw ? kArrays + kMatrix * kMatrix + 2 * kActions + kMostDeviceCuts + kNumbers
                                  : kActions * kActionFeatures;
}

void FlatEnv::reset() {
  actions_.clear();
  prefix_ = root_;
  find_legal();
}

bool FlatEnv::done() const {
  return !any_legal_;
}

bool FlatEnv::choosing_devices() const {
  return actions_.size() % 2 == 0;
}

void FlatEnv::find_legal() {
  legal_.fill(0);
  any_legal_ = false;
  if (prefix_.stages + 1 >= space_.stages() || !space_.possible()) return;
  const int last = space_.num_points() - 1;
  Prefix child;
  if (choosing_devices()) {
    for (std::size_t a = 0; a < space_.device_cuts().size(); ++a) {
      for (int point = prefix_.point + 1; point < last && !legal_[a]; ++point) {
        legal_[a] = space_.append(prefix_, point, space_.device_cuts()[a], child) ? 1 : 0;
      }
    }
  } else {
    const int cut = device_cut(actions_.back());
    for (int point = prefix_.point + 1; point < last; ++point) {
      legal_[at(point - 1)] = space_.append(prefix_, point, cut, child) ? 1 : 0;
    }
  }
  any_legal_ = std::find(legal_.begin(), legal_.end(), 1) != legal_.end();
}

void FlatEnv::legal(std::uint8_t* out) const {
  std::copy(legal_.begin(), legal_.end(), out);
}

void FlatEnv::step(int action) {
  AM_CHECK(action >= 0 && action < kActions && legal_[at(action)] == 1);
  if (!choosing_devices()) {
    Prefix child;
    AM_CHECK(space_.append(prefix_, action + 1, device_cut(actions_.back()), child));
    prefix_ = child;
  }
  actions_.push_back(action);
  find_legal();
}

double FlatEnv::value_ms() const {
  if (prefix_.stages + 1 < space_.stages()) return kInfinity;
  const pipeline::Plan complete = plan();
  return pipeline::feasible(space_.problem(), complete) ? pipeline::value_ms(space_.problem(), complete) : kInfinity;
}

pipeline::Plan FlatEnv::plan() const {
  AM_CHECK(prefix_.stages + 1 == space_.stages());
  return space_.plan_of(prefix_);
}

void FlatEnv::state(float* out) const {
  if (input_ == FlatInput::kRaw) {
    raw_state(out);
  } else {
    per_action_state(out);
  }
}

void FlatEnv::raw_state(float* out) const {
  const Problem& problem = space_.problem();
  const int devices = problem.num_devices();
  float* next = std::copy(row_.begin(), row_.end(), out);
  std::fill_n(next, 2 * kActions + kMostDeviceCuts, 0.0f);
  std::fill_n(next, std::min(prefix_.point, kActions), 1.0f);
  next += kActions;
  for (std::size_t i = 1; i < actions_.size(); i += 2) next[actions_[i]] = 1;
  next += kActions;
  for (std::size_t i = 0; i < actions_.size(); i += 2) next[actions_[i]] = 1;
  next += kMostDeviceCuts;
  double capacity = 0;
  for (int d = 0; d < devices; ++d) capacity += problem.group(d, d + 1).capacity_bytes;
  const double states = state_bytes_;
  *next++ = clamped_share(problem.micro_batches(), 64);
  *next++ = clamped_share(space_.stages(), kMaxStages);
  *next++ = clamped_share(space_.stages() - prefix_.stages, kMaxStages);
  *next++ = choosing_devices() ? 1.0f : 0.0f;
  *next++ = clamped_share(prefix_.d1, devices);
  *next++ = choosing_devices() ? 0.0f : clamped_share(device_cut(actions_.back()), devices);
  *next++ = clamped_share(problem.forward_fraction(), 1);
  *next++ = clamped_share(std::log2(devices), 10);
  *next++ =
      problem.options().memory ? clamped_share(states, capacity) : 0.0f;  // of all memory, by weights that exist once
  *next++ = space_.schedule() == pipeline::Schedule::k1f1b ? 0.0f : 1.0f;
}

void FlatEnv::action_features(const Prefix& child, float* out) const {
  const Problem& problem = space_.problem();
  const double bound = child.bound_ms, micro_batches = problem.micro_batches();
  const int cut = space_.cut_of_point(child.point), n = problem.num_instructions();
  const int start = child.stages > 1 ? space_.cut_of_point(child.points[at(child.stages - 2)]) : 0;
  const DeviceGroup& group = problem.group(child.d0, child.d1);
  const Rollouts rollouts = space_.rollouts(child);
  out[0] = 1;
  out[1] = 1 - clamped_share(root_.bound_ms, bound);
  out[2] = clamped_share(micro_batches * child.stage_ms, bound);
  out[3] = clamped_share((micro_batches + 1) * child.transfer_ms, bound);
  out[4] = clamped_share(micro_batches * problem.work_ms(cut, n) / speed_behind_[at(child.d1)], bound);
  out[5] = clamped_share(child.residue_ms, bound);
  const double bytes = problem.memory_bytes(start, cut, group, child.in_flight, child.variant);
  out[6] = problem.options().memory ? clamped_share(bytes, group.capacity_bytes) : 0.0f;
  out[7] = rollouts.best_ms == kInfinity ? 1.0f : 1 - clamped_share(bound, rollouts.best_ms);
}

void FlatEnv::per_action_state(float* out) const {
  std::fill_n(out, state_size(FlatInput::kPerAction), 0.0f);
  if (!any_legal_) return;
  Prefix child;
  if (!choosing_devices()) {
    const int cut = device_cut(actions_.back());
    for (int a = prefix_.point; a < kActions; ++a) {
      if (!legal_[at(a)]) continue;
      AM_CHECK(space_.append(prefix_, a + 1, cut, child));
      action_features(child, out + a * kActionFeatures);
    }
    return;
  }
  const int last = space_.num_points() - 1;
  for (std::size_t a = 0; a < space_.device_cuts().size(); ++a) {
    if (!legal_[a]) continue;
    Prefix best;
    best.bound_ms = kInfinity;
    for (int point = prefix_.point + 1; point < last; ++point) {
      if (space_.append(prefix_, point, space_.device_cuts()[a], child) && child.bound_ms < best.bound_ms) best = child;
    }
    if (best.stages > 0) action_features(best, out + a * kActionFeatures);
  }
}

void flat_q(const Policy& policy, const float* state, float* q) {
  policy.predict_actions(state, 1, q);
  for (int a = 0; a < policy.architecture().actions; ++a) q[a] = -q[a];
}

}  // namespace automap::models
