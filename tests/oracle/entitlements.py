"""What every queue of small random trees is entitled to, worked out twice.

Once by the definition as a linear program: among siblings, the lexicographic max-min of part by
weight between floor and cap, by repeated runs of HiGHS (Nace and Pioro 2008 describe the method).
Once by exact fractions. Where the two differ by more than rounding nothing is written. Prints the
cases as JSON; amounts are whole units, rounded down from the root on, as the rule says.
"""

import json
import random
from fractions import Fraction

from scipy.optimize import linprog

WORLDS = 60


def by_program(whole, claims):
    """The lexicographic max-min: raise the least, freeze who cannot rise, and again."""
    frozen = {}
    free = list(range(len(claims)))
    while free:
        level = optimum(whole, claims, frozen, free, None)
        stuck = []
        for index in free:
            most = optimum(whole, claims, frozen, free, (index, level))
            if most <= max(level * claims[index][0], claims[index][1]) + 1e-7:
                stuck.append(index)
        for index in stuck or free:
            weight, floor, cap = claims[index]
            frozen[index] = min(max(level * weight, floor), cap)
            free.remove(index)
    return [frozen[index] for index in range(len(claims))]


def optimum(whole, claims, frozen, free, one):
    """The highest level for all that are free, or the most that one of them gets at a level."""
    count = len(claims)
    bounds = [(claim[1], claim[2]) for claim in claims]
    for index, part in frozen.items():
        bounds[index] = (part, part)
    rows, most = [[1.0] * count + [0.0]], [whole]
    for index in free:
        weight, floor, cap = claims[index]
        # Who is at its cap holds nobody down.
        rows.append([-1.0 if at == index else 0.0 for at in range(count)] + [float(weight)])
        most.append(0.0)
    if one is None:
        goal = [0.0] * count + [-1.0]
        bounds = bounds + [(0.0, None)]
    else:
        index, level = one
        goal = [-1.0 if at == index else 0.0 for at in range(count)] + [0.0]
        bounds = bounds + [(level, level)]
    found = linprog(goal, A_ub=rows, b_ub=most, bounds=bounds, method="highs")
    assert found.success, (found.message, whole, claims, frozen, free, one)
    return -found.fun


def by_fractions(whole, claims):
    """The level at which the vessels hold what there is, among the places where slopes change."""
    def held(level):
        return [min(max(level * weight, floor), cap) for weight, floor, cap in claims]

    ends = sorted({Fraction(end, claim[0]) for claim in claims for end in claim[1:]})
    below = Fraction(0)
    for end in ends:
        if sum(held(end)) >= whole:
            slope = sum(w for w, floor, cap in claims if floor <= below * w < cap and cap > floor)
            rest = whole - sum(held(below))
            return held(below + Fraction(rest, slope)) if rest and slope else held(end if rest else below)
        below = end
    return held(below)


def divide(whole, claims):
    if sum(cap for _, _, cap in claims) <= whole:
        return [Fraction(cap) for _, _, cap in claims]
    floors = sum(floor for _, floor, _ in claims)
    if floors > whole:
        return [Fraction(floor * whole, floors) for _, floor, _ in claims]
    exact = by_fractions(whole, claims)
    assert abs(sum(exact) - whole) < Fraction(1, 10**9), (whole, claims, exact)
    for part, other in zip(exact, by_program(float(whole), claims)):
        assert abs(float(part) - other) < 1e-4, (whole, claims, exact, by_program(whole, claims))
    return exact


def children(queues, above):
    return [index for index, queue in enumerate(queues) if queue["parent"] == above]


def given(queues, index):
    """What is a queue's own; None where nobody said so."""
    own = queues[index]["guaranteed"]
    below = [given(queues, child) for child in children(queues, index)]
    said = [part for part in below if part is not None]
    return own if own is not None else sum(said) if said else None


def demand(queues, index):
    return queues[index]["demand"] + sum(cap(queues, child) for child in children(queues, index))


def cap(queues, index):
    """What a queue demands, as far as its limit lets it."""
    asks, limit = demand(queues, index), queues[index]["limit"]
    return asks if limit is None else min(asks, limit)


def share_out(queues, above, whole):
    below = children(queues, above)
    claims = []
    for index in below:
        most = cap(queues, index)
        claims.append((queues[index]["weight"], min(given(queues, index) or 0, most), most))
    if above is not None:
        own = (given(queues, above) or 0) - sum(given(queues, index) or 0 for index in below)
        asks = queues[above]["demand"]
        claims.append((1, min(max(own, 0), asks), asks))
    parts = divide(whole, claims)
    for index, part in zip(below, parts):
        queues[index]["entitled"] = int(part)
        share_out(queues, index, int(part))


def world(seed):
    """Every other one is flat."""
    chance = random.Random(seed)
    capacity = chance.randint(5, 1000)
    queues = []
    for index in range(chance.randint(2, 9)):
        parent = chance.choice([None, None, *range(index)]) if index and seed % 2 else None
        guaranteed = chance.choice([None, chance.randint(0, capacity // 2)])
        limit = chance.choice([None, None, chance.randint(1, capacity)])
        if guaranteed is not None and limit is not None:
            guaranteed = min(guaranteed, limit)
        queues.append({
            "parent": parent, "weight": chance.randint(1, 7), "guaranteed": guaranteed,
            "limit": limit, "demand": chance.choice([0, chance.randint(1, capacity), capacity]),
        })
    share_out(queues, None, capacity)
    return {"capacity": capacity, "queues": queues}


def main():
    worlds = [json.dumps(world(seed)) for seed in range(WORLDS)]
    print("[\n" + ",\n".join(worlds) + "\n]")


if __name__ == "__main__":
    main()
