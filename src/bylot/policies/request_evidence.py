"""What a report says about the class of a request, and about who missed it.

Given its class, members miss a request independently. The report has scores of members, or names
the winner, or neither; what it does not say about members is inferred. `request_classes` counts it.
"""

from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, jit

UNKNOWN_SCORE = -1.0  # in the place of 1 - score
SCORED, UNKNOWN_WINNER = -2, -1  # in the place of the winner: scores are reported; nobody is named

# Nodes and weights of Gauss and Legendre on [0, 1]: exact for panels of up to 8 members.
TIE_NODES = 0.5 + 0.5 * np.polynomial.legendre.leggauss(4)[0]
TIE_WEIGHTS = 0.5 * np.polynomial.legendre.leggauss(4)[1]


class RequestEvidence(NamedTuple):
    """What is known about a panel of one request."""

    missed: Floats  # (n,) 1 - score of each member, or UNKNOWN_SCORE
    miss: float  # 1 - reward
    winner: int  # place, or SCORED: the scores are known, or UNKNOWN_WINNER


@jit
def find_next_demand(evidence: RequestEvidence, demand: float) -> float:
    """The next demand, in [0, 1], above which another member misses; 1 after the last one."""
    after = 1.0
    if evidence.winner != SCORED:
        return 1.0 - evidence.miss if demand < 1.0 - evidence.miss else after
    for missed in evidence.missed:
        if demand < 1.0 - missed < after:
            after = 1.0 - missed
    return after


@jit
def infer_misses(missed: Floats, p: Floats, evidence: RequestEvidence, demand: float) -> float:
    """The likelihood of what is known at a demand; writes the expected misses of the members.

    p: (n,) probabilities of a miss in one class

    A winner had the best value; of several members with a hit each is as likely to be named, as if
    the first in a random order was. With t the uniform place of the winner in it, no other member
    may have a hit and an earlier place: P = (1 - p_w) int_0^1 prod_{j != w} (1 - t (1 - p_j)) dt.
    """
    n, everyone, likelihood = p.size, 1.0, 1.0
    for j in range(n):
        everyone *= p[j]
    if evidence.winner == SCORED:
        for j in range(n):
            missed[j] = 1.0 if demand >= 1.0 - evidence.missed[j] else 0.0
            if evidence.missed[j] != UNKNOWN_SCORE:
                likelihood *= p[j] if missed[j] > 0.0 else 1.0 - p[j]
    elif demand >= 1.0 - evidence.miss:
        likelihood = everyone
        missed[:n] = 1.0
    elif evidence.winner == UNKNOWN_WINNER:
        likelihood = 1.0 - everyone
        for j in range(n):
            missed[j] = (p[j] - everyone) / likelihood
    else:
        likelihood = infer_losers(missed, p, evidence.winner) * (1.0 - p[evidence.winner])
    return likelihood


@jit
def infer_losers(missed: Floats, p: Floats, winner: int) -> float:
    """The integral over t; writes the expected misses of the others, 0 for the winner."""
    total = 0.0
    missed[: p.size] = 0.0
    for k in range(TIE_NODES.size):
        t, weight = TIE_NODES[k], TIE_WEIGHTS[k]
        for j in range(p.size):
            if j != winner:
                weight *= 1.0 - t * (1.0 - p[j])
        total += weight
        for j in range(p.size):
            if j != winner:
                missed[j] += weight * p[j] / (1.0 - t * (1.0 - p[j]))
    for j in range(p.size):
        missed[j] /= total
    return total


class Assignment(NamedTuple):
    """What a request adds to the counts, by class."""

    share: Floats  # (Z,)
    known: Bools  # (n,) is anything known about a member?
    counted: Floats  # (n, Z) expected misses
    information: Floats  # (n,) about the log odds of a miss


@jit
def infer_classes(pi: Floats, p: Floats, evidence: RequestEvidence) -> Assignment:
    """The expected classes and misses of a request, over all demands.

    pi: (Z,) and p: (Z, n) probabilities of classes and of misses, before the report
    """
    Z, n = p.shape
    found = Assignment(np.zeros(Z), np.ones(n, np.bool_), np.zeros((n, Z)), np.zeros(n))
    for j in range(n):
        found.known[j] = evidence.winner != SCORED or evidence.missed[j] != UNKNOWN_SCORE
    share, missed, demand = np.empty(Z), np.empty((Z, n)), 0.0
    while demand < 1.0:
        after, total = find_next_demand(evidence, demand), 0.0
        for z in range(Z):
            share[z] = pi[z] * infer_misses(missed[z], p[z], evidence, demand)
            total += share[z]
        for z in range(Z):
            part = (after - demand) * share[z] / total
            found.share[z] += part
            for j in range(n):
                m = missed[z, j]
                if found.known[j]:
                    found.counted[j, z] += part * m
                    found.information[j] += part * (p[z, j] * (1.0 - p[z, j]) - m * (1.0 - m))
        demand = after
    return found
