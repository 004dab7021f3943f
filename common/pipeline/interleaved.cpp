#include "common/pipeline/interleaved.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace automap::pipeline {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

struct Part {
  int p0 = 0, p1 = 0;
};

Part part_of(const Problem& problem, const InterleavedPlan& plan, int part) {
  return {part == 0 ? 0 : plan.cuts[at(part - 1)],
          part + 1 == plan.parts() ? problem.num_instructions() : plan.cuts[at(part)]};
}

const DeviceGroup& group_of(const Problem& problem, const InterleavedPlan& plan, int group) {
  const int size = problem.num_devices() / plan.groups;
  return problem.group(group * size, (group + 1) * size);
}

}  // namespace

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

double simulate_interleaved_ms(const InterleavedTimes& times, int micro_batches) {
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
  for (int g = 0; g < groups; ++g) all[at(g)].order = interleaved_order(groups, times.chunks, micro_batches, g);
  // [parts x M]: when what a forward and a backward need of another group has come.
  std::vector<double> activation(at(parts * micro_batches), kNotYet), gradient(at(parts * micro_batches), kNotYet);
  for (int m = 0; m < micro_batches; ++m) activation[at(m)] = 0;
  std::vector<double> last_backward_start(at(parts), 0);
  const auto index = [&](int part, int m) { return at(part * micro_batches + m); };
  for (bool moved = true; moved;) {
    moved = false;
    for (int g = 0; g < groups; ++g) {
      Group& group = all[at(g)];
      while (group.next < group.order.size()) {
        const ChunkOperation& operation = group.order[group.next];
        const int part = operation.chunk * groups + g, m = operation.micro_batch;
        const bool last = part + 1 == parts;
        const double ready = !operation.backward ? activation[index(part, m)] : last ? 0 : gradient[index(part, m)];
        if (ready == kNotYet) break;
        const double start = std::max(group.free_ms, ready);
        if (operation.backward) {
          group.free_ms = start + times.backward_ms[at(part)];
          last_backward_start[at(part)] = start;
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
        synced = std::max(synced, last_backward_start[at(part)] + bucket.ready_share * times.backward_ms[at(part)]) +
                 bucket.ms;
      }
    }
    length = std::max(length, std::max(group.free_ms, synced) + times.behind_ms[at(g)]);
  }
  return length;
}

InterleavedTimes interleaved_times(const Problem& problem, const InterleavedPlan& plan) {
  InterleavedTimes times;
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
    times.backward_ms.push_back(backward);
    problem.sync_buckets(p0, p1, group, plan.variant, times.sync[at(part)]);
    times.behind_ms[at(g)] += problem.exchange_ms(p0, p1, group) + problem.optimizer_ms(p0, p1, group, plan.variant);
    if (part + 1 < plan.parts()) {
      const Link link = problem.link(group, group_of(problem, plan, (g + 1) % plan.groups));
      times.transfer_ms.push_back(link.ms(problem.activation_bytes(p1)));
    }
  }
  return times;
}

double interleaved_memory_bytes(const Problem& problem, const InterleavedPlan& plan, int g) {
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
  for (const ChunkOperation& operation : interleaved_order(plan.groups, plan.chunks, problem.micro_batches(), g)) {
    kept += (operation.backward ? -1 : 1) * stash[at(operation.chunk)];
    most = std::max(most, kept);
  }
  return state + most + workspace + buckets;
}

bool interleaved_feasible(const Problem& problem, const InterleavedPlan& plan) {
  if (plan.groups < (plan.chunks > 1 ? 3 : 2) || plan.chunks < 1 || problem.num_devices() % plan.groups != 0)
    return false;
  if (plan.chunks > 1 && problem.micro_batches() % plan.groups != 0) return false;
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
    if (problem.options().memory && interleaved_memory_bytes(problem, plan, g) > group.capacity_bytes) return false;
  }
  return true;
}

}  // namespace automap::pipeline
