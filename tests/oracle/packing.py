"""Whether the pods of a gang have nodes, all at a time.

Small fleets of unlike nodes, and gangs that ask for most of what there is. Whether each pod can
have a node is found by an exact solver (CP-SAT): every pod on one node, no node more than full.
Prints the cases as JSON.
"""

import json
import random

from ortools.sat.python import cp_model

WORLDS = 300


def holds(nodes, pods):
    """Whether some assignment of pods to nodes leaves no node more than full."""
    model = cp_model.CpModel()
    at = [[model.new_bool_var(f"{p}-{n}") for n in range(len(nodes))] for p in range(len(pods))]
    for choices in at:
        model.add_exactly_one(choices)
    for number, node in enumerate(nodes):
        for resource, there_is in enumerate(node):
            model.add(sum(pod[resource] * at[p][number] for p, pod in enumerate(pods)) <= there_is)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    found = solver.solve(model)
    assert found in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE), found
    return found != cp_model.INFEASIBLE


def world(seed):
    """Nodes of two shapes, the second with devices; pods of up to three costs."""
    chance = random.Random(seed)
    plain = [chance.choice([8, 16, 32]), chance.choice([16, 32, 64]), 0]
    device = [chance.choice([8, 16, 32]), chance.choice([32, 64]), chance.choice([2, 4, 8])]
    nodes = [plain] * chance.randint(1, 4) + [device] * chance.randint(0, 2)
    costs = []
    for _ in range(chance.randint(1, 3)):
        devices = chance.choice([0, 0, 1, 2]) if device in nodes else 0
        costs.append([chance.randint(1, 9), chance.randint(1, 17), devices])
    whole = [sum(node[resource] for node in nodes) for resource in range(3)]
    ask, pods = chance.uniform(0.6, 1.0), []
    while len(pods) < 40:
        pod = chance.choice(costs)
        asked = [sum(other[resource] for other in [*pods, pod]) for resource in range(3)]
        if any(amount > ask * there_is for amount, there_is in zip(asked, whole)):
            break
        pods.append(pod)
    return {"nodes": nodes, "pods": pods}


def main():
    cases, seed = [], 0
    while len(cases) < WORLDS:
        case, seed = world(seed), seed + 1
        if len(case["pods"]) > 1:
            cases.append({**case, "holds": holds(case["nodes"], case["pods"])})
    print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")


main()
