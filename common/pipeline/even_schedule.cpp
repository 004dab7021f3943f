#include "common/pipeline/even_schedule.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::pipeline {
namespace {

struct Part {
  int p0 = 0, p1 = 0;
};

Part part_of(const Problem& problem, const EvenPlan& plan, int part) {
  return {part == 0 ? 0 : plan.cuts[at(part - 1)],
          part + 1 == plan.parts() ? problem.num_instructions() : plan.cuts[at(part)]};
}

const DeviceGroup& group_of(const Problem& problem, const EvenPlan& plan, int group) {
  const int size = problem.num_devices() / plan.groups;
  return problem.group(group * size, (group + 1) * size);
}

std::vector<ChunkOperation> order_of(const EvenPlan& plan, int micro_batches, int group) {
  return plan.zero_bubble ? zero_bubble_order(plan.groups, micro_batches, group)
                          : interleaved_order(plan.groups, plan.chunks, micro_batches, group);
}

}  // namespace

std::vector<ChunkOperation> zero_bubble_order(int groups, int micro_batches, int group) {
  const int warmup = std::min(micro_batches, groups - group);
  std::vector<ChunkOperation> order;
  order.reserve(at(3 * micro_batches));
  for (int m = 0; m < warmup; ++m) order.push_back({0, m, false});
  for (int m = 0; m < micro_batches; ++m) {
    order.push_back({0, m, true});
    if (m >= group) order.push_back({0, m - group, false, true});
    if (m + warmup < micro_batches) order.push_back({0, m + warmup, false});
  }
  for (int m = std::max(0, micro_batches - group); m < micro_batches; ++m) order.push_back({0, m, false, true});
  return order;
}

std::vector<ChunkOperation> interleaved_order(int groups, int chunks, int micro_batches, int group) {
  const int all = micro_batches * chunks;
  // The i-th forward or backward of a group.
  const auto operation = [&](int i, bool backward) {
    if (chunks == 1) return ChunkOperation{0, i, backward};
    const int in_round = i % (groups * chunks), chunk = in_round / groups;
    return ChunkOperation{backward ? chunks - 1 - chunk : chunk, i / (groups * chunks) * groups + i % groups, backward};
  };
  const int warmup = std::min(all, chunks == 1 ? groups - group - 1 : (groups - group - 1) * 2 + (chunks - 1) * groups);
  std::vector<ChunkOperation> order;
  order.reserve(at(2 * all));
  for (int i = 0; i < warmup; ++i) order.push_back(operation(i, false));
  for (int i = 0; warmup + i < all; ++i) {
    order.push_back(operation(warmup + i, false));
    order.push_back(operation(i, true));
  }
  for (int i = all - warmup; i < all; ++i) order.push_back(operation(i, true));
  return order;
}

double simulate_even_ms(const EvenTimes& times, int micro_batches) {
  const int groups = times.groups, parts = groups * times.chunks;
  AM_CHECK(groups > 2 || times.chunks == 1);
  constexpr double kNotYet = -1;
  struct Group {
    std::vector<ChunkOperation> order;
    std::size_t next = 0;
    double free_ms = 0;
    double forward_link_ms = 0, backward_link_ms = 0;  // when the links to the next and to the previous group are free
  };
  std::vector<Group> all(at(groups));
  const bool parted = !times.weights_ms.empty();
  for (int g = 0; g < groups; ++g) {
    all[at(g)].order = parted ? zero_bubble_order(groups, micro_batches, g)
                              : interleaved_order(groups, times.chunks, micro_batches, g);
  }
  // What gradients of weights become ready in.
  const std::vector<double>& ready_in = parted ? times.weights_ms : times.backward_ms;
  // [parts x M]: when what a forward and a backward need of another group has come.
  std::vector<double> activation(at(parts * micro_batches), kNotYet), gradient(at(parts * micro_batches), kNotYet);
  for (int m = 0; m < micro_batches; ++m) activation[at(m)] = 0;
  std::vector<double> last_start(at(parts), 0);  // of that
  const auto index = [&](int part, int m) { return at(part * micro_batches + m); };
  for (bool moved = true; moved;) {
    moved = false;
    for (int g = 0; g < groups; ++g) {
      Group& group = all[at(g)];
      while (group.next < group.order.size()) {
        const ChunkOperation& operation = group.order[group.next];
        const int part = operation.chunk * groups + g, m = operation.micro_batch;
        const bool last = part + 1 == parts;
        const double ready = operation.weights     ? 0
                             : !operation.backward ? activation[index(part, m)]
                             : last                ? 0
                                                   : gradient[index(part, m)];
        if (ready == kNotYet) break;
        const double start = std::max(group.free_ms, ready);
        if (operation.weights == parted && (operation.weights || operation.backward)) last_start[at(part)] = start;
        if (operation.weights) {
          group.free_ms = start + times.weights_ms[at(part)];
        } else if (operation.backward) {
          group.free_ms = start + times.backward_ms[at(part)];
          if (part > 0) {
            group.backward_link_ms = std::max(group.backward_link_ms, group.free_ms) + times.transfer_ms[at(part - 1)];
            gradient[index(part - 1, m)] = group.backward_link_ms;
          }
        } else {
          group.free_ms = start + times.forward_ms[at(part)];
          if (!last) {
            group.forward_link_ms = std::max(group.forward_link_ms, group.free_ms) + times.transfer_ms[at(part)];
            activation[index(part + 1, m)] = group.forward_link_ms;
          }
        }
        ++group.next;
        moved = true;
      }
    }
  }
  double length = 0;
  for (int g = 0; g < groups; ++g) {
    const Group& group = all[at(g)];
    AM_CHECK(group.next == group.order.size());
    double synced = times.sync_behind ? group.free_ms : 0;
    for (int part = parts - groups + g; part >= 0; part -= groups) {
      for (const SyncBucket& bucket : times.sync[at(part)]) {
        synced = std::max(synced, last_start[at(part)] + bucket.ready_share * ready_in[at(part)]) + bucket.ms;
      }
    }
    length = std::max(length, std::max(group.free_ms, synced) + times.behind_ms[at(g)]);
  }
  return length;
}

EvenTimes even_times(const Problem& problem, const EvenPlan& plan) {
  EvenTimes times;
  times.groups = plan.groups;
  times.chunks = plan.chunks;
  times.sync_behind = problem.options().gradient_sync == GradientSync::kAfter;
  times.behind_ms.assign(at(plan.groups), 0);
  times.sync.resize(at(plan.parts()));
  for (int part = 0; part < plan.parts(); ++part) {
    const auto [p0, p1] = part_of(problem, plan, part);
    const int g = part % plan.groups;
    const DeviceGroup& group = group_of(problem, plan, g);
    const double both = problem.compute_ms(p0, p1, group, plan.variant);
    const double backward = problem.backward_ms(p0, p1, group, plan.variant);
    times.forward_ms.push_back(both - backward);
    const double weights = plan.zero_bubble ? problem.weight_share(p0, p1) * backward : 0;
    times.backward_ms.push_back(backward - weights);
    if (plan.zero_bubble) times.weights_ms.push_back(weights);
    problem.sync_buckets(p0, p1, group, plan.variant, times.sync[at(part)]);
    times.behind_ms[at(g)] += problem.exchange_ms(p0, p1, group) + problem.optimizer_ms(p0, p1, group, plan.variant);
    if (part + 1 < plan.parts()) {
      const Link link = problem.link(group, group_of(problem, plan, (g + 1) % plan.groups));
      times.transfer_ms.push_back(link.ms(problem.activation_bytes(p1)));
    }
  }
  return times;
}

double even_memory_bytes(const Problem& problem, const EvenPlan& plan, int g) {
  const DeviceGroup& group = group_of(problem, plan, g);
  double state = 0, workspace = 0, buckets = 0;
  std::vector<double> stash;  // of one micro-batch, by chunk
  for (int part = g; part < plan.parts(); part += plan.groups) {
    const auto [p0, p1] = part_of(problem, plan, part);
    const MemoryParts parts = problem.memory_parts(p0, p1, group, 1, plan.variant);
    state += parts.weights + parts.gradients + parts.slots + parts.frozen;
    workspace = std::max(workspace, parts.workspace);
    buckets = std::max(buckets, parts.buckets);
    stash.push_back(parts.stash);
  }
  double kept = 0, most = 0;
  // With passes for the weights, what those read is kept until then: counted is all.
  for (const ChunkOperation& operation : order_of(plan, problem.micro_batches(), g)) {
    const bool done = plan.zero_bubble ? operation.weights : operation.backward;
    if (done) {
      kept -= stash[at(operation.chunk)];
    } else if (!operation.backward) {
      kept += stash[at(operation.chunk)];
    }
    most = std::max(most, kept);
  }
  return state + most + workspace + buckets;
}

bool even_feasible(const Problem& problem, const EvenPlan& plan) {
  if (plan.groups < (plan.chunks > 1 ? 3 : 2) || plan.chunks < 1 || problem.num_devices() % plan.groups != 0)
    return false;
  if (plan.chunks > 1 && problem.micro_batches() % plan.groups != 0) return false;
  if (plan.zero_bubble) {
    if (plan.chunks != 1 || !zero_bubble_allows(problem.variant(plan.variant))) return false;
    if (problem.weight_share(0, problem.num_instructions()) <= 0) return false;
  }
  if (plan.cuts.size() + 1 != at(plan.parts())) return false;
  int before = 0;
  for (const int cut : plan.cuts) {
    if (cut <= before || cut >= problem.num_instructions()) return false;
    before = cut;
  }
  for (int g = 0; g < plan.groups; ++g) {
    const DeviceGroup& group = group_of(problem, plan, g);
    if (!group.valid) return false;
    int variables = 0;
    for (int part = g; part < plan.parts(); part += plan.groups) {
      const auto [p0, p1] = part_of(problem, plan, part);
      variables += problem.variables(p0, p1);
    }
    if (variables == 0 && problem.stages_need_variables(plan.groups)) return false;
    if (problem.options().memory && even_memory_bytes(problem, plan, g) > group.capacity_bytes) return false;
  }
  return true;
}

}  // namespace automap::pipeline
