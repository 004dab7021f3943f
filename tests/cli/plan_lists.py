"""A pipeline plan (automap.plan/3) as versions 1 and 2 had it: lists of cuts, and stages that are a part and its group at once.

Tests compare plans by these; and what they write of them is a document of version 2, which stays readable. Devices are counted
in the plan's own order: version 2 cannot say that they are others than the first ones of the cluster.
"""


def listed(plan):
    document, plan = plan, dict(plan)
    parts, groups, schedule = plan.pop("parts"), plan.pop("groups"), plan["schedule"]
    stages = []
    for part, group, in_flight in zip(parts, groups, schedule["in_flight"]):
        devices, samples = group["devices"], set(group["samples"])
        assert len(samples) == 1 and len(group["samples"]) == group["replicas"], group
        assert part["group"] == len(stages) + 1, part
        stages.append({**{key: value for key, value in part.items() if key != "group"}, **group, "first_device": 1 + sum(stage["devices"] for stage in stages),
                       "devices": len(devices), "samples": samples.pop(), "in_flight": in_flight})
    if "work" in parts[0]:
        plan["document"] = document
    return {**plan, "schema": "automap.plan/2", "schedule": schedule["name"], "in_flight": schedule["in_flight"], "stages": stages,
            "cuts": [part["last_instruction"] for part in parts[:-1]],
            "device_cuts": [stage["first_device"] + stage["devices"] - 1 for stage in stages[:-1]]}
