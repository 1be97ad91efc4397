"""How many pods queues side by side get of several resources, if pods could be cut.

Each queue has pods of one cost. First, as docs/fairness.md says, everybody rises up to what it is
entitled to, for each resource the level of water among the queues that ask for it; then who can
use what is left borrows. In both the lowest dominant share by weight rises first. Worked out twice:
by exact fractions, where a level rises and who is stopped stays, and by linear programs (HiGHS),
the lexicographic max-min of shares. Where the two differ nothing is written. Prints the cases as
JSON; a pod is counted in thousandths, rounded down.
"""

import json
import random
from fractions import Fraction

from scipy.optimize import linprog

from entitlements import divide

WORLDS = 40


def most(queue, entitled):
    """The pods that a queue may have, of what it asks, within its entitlements."""
    ends = [Fraction(part, amount) for part, amount in zip(entitled, queue["cost"]) if amount]
    return min([Fraction(queue["pods"]), *ends])


def rise(capacity, queues, begin, ends):
    """From what everybody has up to its end, the lowest share first."""
    have, paces = list(begin), [pace(capacity, queue) for queue in queues]
    active = [index for index in range(len(queues)) if begin[index] < ends[index]]
    while active:
        level = min(paces[index] * have[index] for index in active)
        moving = [index for index in active if paces[index] * have[index] == level]
        stops = [paces[index] * ends[index] for index in moving]
        stops += [paces[index] * have[index] for index in active if index not in moving]
        for resource, free in enumerate(left(capacity, queues, have)):
            speed = sum(queues[index]["cost"][resource] / paces[index] for index in moving)
            stops += [level + free / speed] if speed else []
        for index in moving:
            have[index] = min(stops) / paces[index]
        free = left(capacity, queues, have)
        active = [index for index in active if have[index] < ends[index] and fits(queues[index], free)]
    return have


def left(capacity, queues, have):
    used = [sum(queue["cost"][r] * part for queue, part in zip(queues, have)) for r in range(len(capacity))]
    return [there_is - part for there_is, part in zip(capacity, used)]


def fits(queue, free):
    """Whether some of all it asks for is left."""
    return all(rest > 0 for rest, amount in zip(free, queue["cost"]) if amount)


def pace(capacity, queue):
    """The dominant share by weight of one pod."""
    return max(Fraction(a, c) for a, c in zip(queue["cost"], capacity)) / queue["weight"]


def by_program(capacity, queues, begin, ends):
    """Raise the least share, freeze who cannot rise, and again."""
    count, frozen = len(queues), {}
    paces = [float(pace(capacity, queue)) for queue in queues]
    while len(frozen) < count:
        free = [index for index in range(count) if index not in frozen]

        def best(goal, level):
            rows = [[float(q["cost"][r]) for q in queues] + [0.0] for r in range(len(capacity))]
            limits = [float(there_is) for there_is in capacity]
            for index in free:
                rows.append([-paces[index] if at == index else 0.0 for at in range(count)] + [1.0])
                limits.append(0.0)
            bounds = [(float(low), float(high)) for low, high in zip(begin, ends)]
            for index, part in frozen.items():
                bounds[index] = (part, part)
            found = linprog(goal, A_ub=rows, b_ub=limits, bounds=[*bounds, level], method="highs")
            assert found.success, found.message
            return -found.fun

        level = best([0.0] * count + [-1.0], (0.0, None))
        stuck = {}
        for index in free:
            goal = [-1.0 if at == index else 0.0 for at in range(count + 1)]
            reach = best(goal, (level * (1 - 1e-12), level * (1 - 1e-12)))
            if reach <= max(level / paces[index], float(begin[index])) + 1e-6:
                stuck[index] = reach
        assert stuck
        frozen.update(stuck)
    return [frozen[index] for index in range(count)]


def both(capacity, queues, begin, ends):
    exact = rise(capacity, queues, begin, ends)
    for part, other in zip(exact, by_program(capacity, queues, begin, ends)):
        assert abs(float(part) - other) < 1e-3, (capacity, queues, begin, ends, exact)
    return exact


def world(seed):
    chance = random.Random(seed)
    capacity = [chance.randint(200, 600) for _ in range(chance.choice([2, 3]))]
    queues = []
    for _ in range(chance.randint(2, 6)):
        cost = [chance.choice([0, 1, 2, 3, 5, 8]) for _ in capacity]
        cost[chance.randrange(len(cost))] = chance.randint(1, 9)
        queues.append({"weight": chance.randint(1, 4), "pods": chance.choice([20, 60, 200]), "cost": cost})
    entitled = [
        divide(there_is, [(q["weight"], 0, q["pods"] * q["cost"][resource]) for q in queues])
        for resource, there_is in enumerate(capacity)
    ]
    nothing, asked = [Fraction(0)] * len(queues), [Fraction(queue["pods"]) for queue in queues]
    ends = [most(queue, [part[index] for part in entitled]) for index, queue in enumerate(queues)]
    due = both(capacity, queues, nothing, ends)
    gets = both(capacity, queues, due, asked)
    for queue, part in zip(queues, gets):
        queue["gets"] = int(part * 1000)
    return {"capacity": capacity, "queues": queues}


def main():
    worlds = [json.dumps(world(seed)) for seed in range(WORLDS)]
    print("[\n" + ",\n".join(worlds) + "\n]")


if __name__ == "__main__":
    main()
