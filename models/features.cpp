#include "models/features.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/numbers.h"
#include "models/plan_space_tables.h"

namespace automap::models {

using pipeline::DeviceGroup;
using pipeline::Schedule;

// In the order they are written below. "/ bound": milliseconds divided by the prefix's bound.
const char* const kFeatureNames[kFeatures] = {
    "log2 micro-batches / 4 - 1",
    "incumbent / bound, log",
    "stages left / 8",
    "stages placed / 8",
    "forward fraction",
    "schedule is not 1f1b",
    "log2 devices left / 4",
    "log2 servers left / 4",
    "devices left / stages left, log2 / 4",
    "filled / bound",
    "drained / bound",
    "longest path so far / bound",
    "filled + steady so far + rest / bound",
    "all-reduce exposed so far / bound",
    "longest stall so far / bound",
    "rest at full speed / bound",
    "steady steps of the rest / bound",
    "steady steps of this stage / bound",
    "steady steps of the transfer into it / bound",
    "all-reduce of this stage / bound",
    "log this stage / rest per stage",
    "log this stage's share of devices x stages left",
    "growth of the bound, log x 4",
    "distance to the root bound, log",
    "least steps of the transfer out / bound",
    "steps of the transfer out over the slowest way / bound",
    "log cut's activation / mean activation behind, / 4",
    "steps of a mean transfer behind / bound",
    "steps of the least transfer behind / bound",
    "memory of this stage / capacity",
    "training state behind / capacity behind",
    "largest block of weights behind: state / capacity",
    "memory is limited",
    "all-reduce of the largest block behind on equal shares / bound",
    "where the largest block of weights stands",
    "all-reduce of the rest on equal shares / bound",
    "largest block of work behind on equal shares: steady steps / bound",
    "ends at a server boundary",
    "place inside the server",
    "this stage is inside one server",
    "best rollout / incumbent, log",
    "devices left in this server / devices per stage left",
    "log relative speed of this stage to the rest",
    "work done",
    "weights done",
    "devices used",
    "log10 inside / between bandwidth / 2",
    "latency of the way out, steps / bound",
    "rollout: equal shares, growing loads",
    "rollout: equal shares",
    "rollout: a server each, the last takes the rest",
    "rollout: whole servers",
    "rollout: one large stage, then single devices",
    "rollout: a server each, the next takes the rest",
    "rollout: half of the stages large, then single devices",
    "rollout: single devices, then one large stage",
    "rollout: two large stages, then single devices",
    "best rollout",
};

namespace {

float bounded(double value, double most = 4) {
  if (!(value > -most)) return static_cast<float>(-most);  // NaN, too
  return static_cast<float>(std::min(value, most));
}

// log of a ratio of two sizes that may be 0.
double log_ratio(double a, double b) {
  if (a <= 0 && b <= 0) return 0;
  if (a <= 0) return -4;
  if (b <= 0) return 4;
  return std::log(a / b);
}

// Memory taken and left; all 0 without memory limits. (A template because PlanSpace::Tables is the feature function's.)
template <typename Tables>
std::array<double, 4> memory_features(const Tables& t, const PlanSpace& space, const Prefix& prefix) {
  if (!t.memory) return {};
  const pipeline::Problem& problem = space.problem();
  const int devices = problem.num_devices();
  const std::size_t j = at(prefix.point), d = at(prefix.d1);
  const DeviceGroup& group = problem.group(prefix.d0, prefix.d1);
  const DeviceGroup& rest_group = problem.group(prefix.d1, devices);
  const double share = static_cast<double>(devices - prefix.d1) / (space.stages() - prefix.stages);
  const int before = prefix.stages > 1 ? prefix.points[at(prefix.stages - 2)] : 0;
  const double bytes = problem.memory_bytes(space.cut_of_point(before), space.cut_of_point(prefix.point), group,
                                            prefix.in_flight, prefix.variant);
  const double all = t.state.back() + t.stash.back() / devices;
  // Each stage keeps its training state once per device: on equal shares the rest needs the second of what is there.
  return {bytes / group.capacity_bytes, (t.state.back() - t.state[j]) * share / t.capacity_behind[d],
          t.largest_state[j] / rest_group.capacity_bytes, all > 0.25 * t.largest_capacity ? 1.0 : 0.0};
}

}  // namespace

void after_state_features(const PlanSpace& space, const Prefix& prefix, const Rollouts& rollouts, double incumbent_ms,
                          float* out) {
  const PlanSpace::Tables& t = *space.tables_;
  const pipeline::Problem& problem = space.problem();
  const int devices = problem.num_devices();
  const int stages_left = space.stages() - prefix.stages;
  const int devices_left = devices - prefix.d1;
  const std::size_t j = at(prefix.point), d = at(prefix.d1);
  const double inverse = prefix.bound_ms > 0 ? 1 / prefix.bound_ms : 0;
  const double m = t.micro_batches, steady = t.steady;
  const DeviceGroup& group = problem.group(prefix.d0, prefix.d1);
  const DeviceGroup& rest_group = problem.group(prefix.d1, devices);
  const double rest_ms = (t.work.back() - t.work[j]) / t.rate_behind[d];
  const double total = prefix.filled_ms + rest_ms;
  const double share = static_cast<double>(devices_left) / stages_left;  // devices per stage left
  const PlanSpace::Tables::WayOut way = t.way_out(prefix.d0, prefix.d1);
  const double activation = t.activation[j];
  const bool near = std::isfinite(way.near_ms_per_byte), far = std::isfinite(way.far_ms_per_byte);
  const double slow_per_byte = far ? way.far_ms_per_byte : near ? way.near_ms_per_byte : 0;
  const double slow_latency = far ? way.far_latency_ms : way.near_latency_ms;
  const double log2 = 1 / std::log(2.0);
  int i = 0;
  const auto put = [&](double value) { out[i++] = bounded(value); };
  const auto put_ms = [&](double ms) { out[i++] = bounded(ms * inverse); };

  put(std::log(m) * log2 / 4 - 1);
  put(std::isfinite(incumbent_ms) ? log_ratio(incumbent_ms, prefix.bound_ms) : 2);
  put(stages_left / 8.0);
  put(prefix.stages / 8.0);
  put(t.forward_share);
  put(space.schedule() == Schedule::k1f1b ? 0 : 1);
  put(std::log(devices_left) * log2 / 4);
  put(std::log(rest_group.servers) * log2 / 4);
  put(std::log(share) * log2 / 4);

  put_ms(prefix.filled_ms);
  put_ms(prefix.drained_ms);
  put_ms(prefix.path_ms);
  put_ms(total + prefix.steady_ms);
  put_ms(std::max(0.0, prefix.residue_ms));
  double stall = 0;
  for (int s = 0; s < prefix.stages; ++s) {
    const int laps = prefix.laps[at(s)];
    if (laps == 0) continue;
    stall = std::max(stall, stall_line(total, prefix.stall_from_ms[at(s)], prefix.stall_steady_ms[at(s)], laps));
  }
  put_ms(stall);
  put_ms(rest_ms);
  put_ms(steady * rest_ms);
  put_ms(steady * prefix.stage_ms);
  put_ms(steady * prefix.transfer_ms);
  put_ms(prefix.allreduce_ms);
  put(log_ratio(prefix.stage_ms, rest_ms));
  put(std::log(group.size / share));
  put(4 * std::log(prefix.parent_bound_ms > 0 ? prefix.bound_ms / prefix.parent_bound_ms : 1));
  const double root = (1 + steady) * t.work.back() / t.rate_behind[0];
  put(root > 0 ? std::log(prefix.bound_ms / root) : 0);

  put_ms((2 + steady) * way.least_ms(activation));
  put_ms(activation > 0 ? (2 + steady) * (slow_latency + activation * slow_per_byte) : 0);
  put(log_ratio(activation, t.mean_activation[j]) / 4);
  // The mean and the least of what may be cut behind, over the same kind of way.
  const double behind_per_byte = slow_per_byte;
  put_ms((2 + steady) * t.mean_activation[j] * behind_per_byte);
  put_ms((2 + steady) * t.least_activation[j] * behind_per_byte);

  for (const double value : memory_features(t, space, prefix)) put(value);
  // All-reduces of what is left on a group of the average size, over the slowest link it would meet.
  const double hops = rest_group.size > 1 ? rest_group.size / (rest_group.size - 1.0) : 0;
  const double ring = share <= 1 ? 0 : (share - 1) / share * hops * rest_group.all_reduce.ms_per_byte();
  put_ms(t.largest_weight[j] * ring);
  put(static_cast<double>(t.largest_weight_at[j] - prefix.point) / std::max(1, t.end - prefix.point));
  put_ms((t.weight.back() - t.weight[j]) / stages_left * ring);
  put_ms(steady * t.largest_work[j] / (t.rate_behind[d] / stages_left));

  const int server_begin = t.server_begin[d - 1], server_end = t.server_end[d - 1];
  put(server_end == prefix.d1 ? 1 : 0);
  put(static_cast<double>(prefix.d1 - server_begin) / (server_end - server_begin));
  put(group.servers == 1 ? 1 : 0);
  const bool rolled = std::isfinite(rollouts.best_ms);
  put(!rolled ? 2 : std::isfinite(incumbent_ms) ? log_ratio(rollouts.best_ms, incumbent_ms) : 0);
  put((server_end - prefix.d1) / share);
  // The speed of one of its devices; where groups differ by more than speed, the speed on the whole model.
  const double speed = t.plain ? group.speed : 1 / (t.per_work(group) * group.size);
  put(std::log(speed * devices_left / t.rate_behind[d]));
  put(t.work.back() > 0 ? t.work[j] / t.work.back() : 1);
  put(t.weight.back() > 0 ? t.weight[j] / t.weight.back() : 1);
  put(static_cast<double>(prefix.d1) / devices);
  put(near && far ? std::log10(way.far_ms_per_byte / way.near_ms_per_byte) / 2 : 0);
  put_ms((2 + steady) * slow_latency);

  const auto put_rollout = [&](double ms) {
    put(std::isfinite(ms) && inverse > 0 ? std::min(2.0, std::log(ms * inverse)) : 2);
  };
  for (const double ms : rollouts.value_ms) put_rollout(ms);
  put_rollout(rollouts.best_ms);
}

}  // namespace automap::models
