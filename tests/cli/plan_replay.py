"""Replays a plan (as plan_lists.py lists it) as its format describes, from the file alone: a slow, obvious twin of the simulator.

Stage s starts in_flight[s] forwards, then one backward and one forward in turn, then the rest. A forward needs the
activations of the stage in front, a backward the gradients of the stage behind; messages of one direction between two
stages go one after the other. The buckets of gradients are reduced one at a time on the stage's own channel, bucket j
from when the last backward has gone ready_share of its time; then gradients of shared variables are exchanged, then the
optimizer runs. The step ends with the last stage.
"""

from work_replay import work_ms

ALTERNATING = ("1f1b", "1f1b-overlap", "adaptive", "gpipe")


def operations(micro_batches, in_flight):
    """What a stage does, in order: ("F" or "B", micro-batch from 0)."""
    order = [("F", m) for m in range(min(in_flight, micro_batches))]
    forward, backward = len(order), 0
    while backward < micro_batches:
        order.append(("B", backward))
        backward += 1
        if forward < micro_batches:
            order.append(("F", forward))
            forward += 1
    return order


def replay_ms(plan):
    if plan["schedule"] not in ALTERNATING:
        return work_ms(plan["document"])
    stages, count = plan["stages"], plan["micro_batches"]
    todo = [operations(count, stage["in_flight"]) for stage in stages]
    done = {}     # (stage, kind, micro-batch) -> when its result has arrived where it is needed
    free = [0.0] * len(stages)
    link = {}     # (from, to) -> when the link is free
    last_backward = [None] * len(stages)
    while any(todo):
        moved = False
        for s, stage in enumerate(stages):
            if not todo[s]:
                continue
            kind, m = todo[s][0]
            if kind == "F":
                ready = 0.0 if s == 0 else done.get((s - 1, "F", m))
            else:
                ready = 0.0 if s + 1 == len(stages) else done.get((s + 1, "B", m))
            if ready is None:
                continue
            todo[s].pop(0)
            moved = True
            start = max(free[s], ready)
            end = start + (stage["forward_ms"] if kind == "F" else stage["backward_ms"])
            free[s] = end
            if kind == "B":
                last_backward[s] = (start, end)
            to = s + 1 if kind == "F" else s - 1
            if 0 <= to < len(stages):
                way = stages[min(s, to)]["transfer_ms"]
                link[s, to] = max(link.get((s, to), 0.0), end) + way
                done[s, kind, m] = link[s, to]
        if not moved:
            raise ValueError("the plan deadlocks")
    length = 0.0
    for s, stage in enumerate(stages):
        start, end = last_backward[s]
        channel = start
        for bucket in stage["sync"]:
            channel = max(channel, start + bucket["ready_share"] * (end - start)) + bucket["ms"]
        length = max(length, max(channel, end) + stage["shared_gradients_ms"] + stage["optimizer_ms"])
    return length
