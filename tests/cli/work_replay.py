"""Replays a plan of an ordered schedule (automap.plan/3) from its file alone: a slow, obvious twin of the simulator.

Every group does its list of work in order. A forward needs the activations of the part in front, a backward the gradients
of the part behind; messages from one group to another go one after the other. Buckets of a part's gradients are reduced
on the group's own channel from when its last backward (its last pass for the weights, where that is one) has gone
ready_share of its time, later parts first; behind all of them come the exchange of shared gradients and the optimizer.
"""


def interleaved(groups, chunks, count):
    """Megatron's order: micro-batches go through a part `groups` at a time."""
    lists = []
    for g in range(groups):
        rounds = [(chunk, base + i) for base in range(0, count, groups) for chunk in range(chunks) for i in range(groups)]
        forwards = [("F", chunk * groups + g, m) for chunk, m in rounds]
        backwards = [("B", (chunks - 1 - chunk) * groups + g, m) for chunk, m in rounds]
        ahead = min(len(forwards), 2 * (groups - g - 1) + (chunks - 1) * groups)
        turns = [one for pair in zip(forwards[ahead:], backwards) for one in pair]
        lists.append(forwards[:ahead] + turns + backwards[len(forwards) - ahead:])
    return lists


def zero_bubble(groups, count):
    lists = []
    for g in range(groups):
        ahead = min(count, groups - g)
        order = [("F", g, m) for m in range(ahead)]
        for m in range(count):
            order += [("B", g, m)] + [("W", g, m - g)] * (m >= g) + [("F", g, m + ahead)] * (m + ahead < count)
        lists.append(order + [("W", g, m) for m in range(max(0, count - g), count)])
    return lists


class Step:
    """A step that goes on one piece of work at a time."""

    def __init__(self, plan):
        self.parts, self.groups, self.count = plan["parts"], plan["groups"], plan["micro_batches"]
        self.split = plan["schedule"].get("split_backward", False)
        self.free = [0.0] * len(self.groups)
        self.link, self.here, self.last = {}, {}, {}
        for m in range(self.count):
            self.here["F", 0, m] = self.here["B", len(self.parts) - 1, m] = 0.0

    def start(self, kind, part, m):
        """When it could begin; None: what it needs is not on its way yet."""
        ready = 0.0 if kind == "W" else self.here.get((kind, part, m))
        return None if ready is None else max(self.free[self.parts[part]["group"] - 1], ready)

    def do(self, kind, part, m):
        group = self.parts[part]["group"] - 1
        begun = self.start(kind, part, m)
        takes = self.parts[part]["work"][{"F": "forward_ms", "B": "backward_ms", "W": "weights_ms"}[kind]]
        self.free[group] = end = begun + takes
        if kind == ("W" if self.split else "B"):
            self.last[part] = (begun, takes)
        to = part + 1 if kind == "F" else part - 1
        if kind == "W" or not 0 <= to < len(self.parts):
            return
        other = self.parts[to]["group"] - 1
        if other != group:
            end = self.link[group, other] = max(self.link.get((group, other), 0.0), end) + self.parts[min(part, to)]["transfer_ms"]
        self.here[kind, to, m] = end

    def length(self):
        longest = 0.0
        for g, group in enumerate(self.groups):
            channel = 0.0
            for part in reversed(range(len(self.parts))):
                if self.parts[part]["group"] - 1 != g:
                    continue
                begun, takes = self.last[part]
                for bucket in self.parts[part]["work"]["sync"]:
                    channel = max(channel, begun + bucket["ready_share"] * takes) + bucket["ms"]
            longest = max(longest, max(channel, self.free[g]) + group["shared_gradients_ms"] + group["optimizer_ms"])
        return longest


def zero_bubble_v(groups, count):
    """Two parts for each group as a V: counts of passes by the paper's phases, then each kind in order of its micro-batches."""
    lists = []
    for g in range(groups):
        a, b = g, 2 * groups - 1 - g
        warm = [("F", a)] * (2 * (groups - g) - 1) + [("F", b), ("F", a)] * g + [("F", b), ("B", b), ("W", b)] * (groups - g)
        steady = [("F", a), ("B", a), ("W", a), ("F", b), ("B", b), ("W", b)] * (count - groups)
        behind = [("B", a), ("B", b)] * g + [("B", a), ("W", a)] * (groups - g) + [("W", b)] * g + [("W", a)] * g
        order, done = [], {}
        for kind, part in warm + steady + behind:
            m = done.get((kind, part), 0)
            if m < count:
                order.append((kind, part, m))
                done[kind, part] = m + 1
        lists.append(order)
    return lists


def eager_ms(plan):
    """Whoever can begin first does: a backward where one can, else a forward while fewer than K are in flight."""
    step, limits = Step(plan), plan["schedule"]["in_flight"]
    done = [[0, 0] for _ in limits]
    while any(backwards < step.count for _, backwards in done):
        best = None
        for g, (forwards, backwards) in enumerate(done):
            could = []
            if backwards < forwards:
                could.append((step.start("B", g, backwards), 0, g, "B", backwards))
            if forwards < step.count and forwards - backwards < limits[g]:
                could.append((step.start("F", g, forwards), 1, g, "F", forwards))
            could = [one for one in could if one[0] is not None]
            if could:
                first = min(could)
                best = first if best is None or first[0] < best[0] else best
        _, _, g, kind, m = best
        step.do(kind, g, m)
        done[g][kind == "B"] += 1
    return step.length()


def work_ms(plan):
    schedule, groups = plan["schedule"], len(plan["groups"])
    if schedule["name"] == "eager":
        return eager_ms(plan)
    if schedule["name"] == "interleaved":
        lists = interleaved(groups, schedule["chunks"], plan["micro_batches"])
    elif schedule["name"] == "zb-h1":
        lists = zero_bubble(groups, plan["micro_batches"])
    elif schedule["name"] == "zb-v":
        lists = zero_bubble_v(groups, plan["micro_batches"])
    else:
        lists = [[(word[0], *(int(number) - 1 for number in word[1:].split("."))) for word in text.split()] for text in schedule["order"]]
    step = Step(plan)
    while any(lists):
        moved = False
        for order in lists:
            while order and step.start(*order[0]) is not None:
                step.do(*order.pop(0))
                moved = True
        if not moved:
            raise ValueError("the plan deadlocks")
    return step.length()
