"""Saved files: all that a router is, as plain data, and back to the last bit."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bylot import codec, policies
from bylot.errors import SavedFileError
from bylot.policies.contract import Ticket
from bylot.policies.terms import at_least_one

if TYPE_CHECKING:
    from bylot.router import Router

FORM, VERSION = "bylot-router", 1


def content(router: "Router") -> dict[str, Any]:
    """What a saved file holds."""
    return {
        "form": FORM,
        "version": VERSION,
        "problem": codec.write_problem(router.problem),
        "policy": policies.write(router.policy),
        "seed": router.seed,
        "horizon": router.horizon,
        "rewards": router.rewards,
        "max_contexts": router.max_contexts,
        "memory": router.memory,
        "contexts": list(router.contexts),
        "since": router.since,
        "unused": router.unused,
        "period": router.period,
        "skipped": router.skipped,
        "state": codec.write_arrays(router.state, derived(router.policy)),
        "ledger": codec.write_arrays(router.ledger),
        "held": [write_held(t, held) for t, held in router.held.items()],
    }


def restored(make: type["Router"], data: dict[str, Any]) -> "Router":
    """A router from the content of a saved file."""
    router = make(
        codec.read_problem(data["problem"]),
        policies.read(data["policy"]),
        seed=data["seed"],
        horizon=data["horizon"],
        rewards=tuple(data["rewards"]),
        memory=data["memory"],
    )
    router.max_contexts = at_least_one("max_contexts", data["max_contexts"])
    router.contexts = {label: n for n, label in enumerate(data["contexts"])}
    lines = len(data["state"]["visits"])
    if not len(router.contexts) == len(data["contexts"]) <= lines:
        raise SavedFileError(f"{len(data['contexts'])} contexts, but {lines} lines of state")
    if not all(label is None or isinstance(label, str) for label in router.contexts):
        raise SavedFileError("a context is neither a string nor null")
    codec.read_arrays(data["ledger"], router.ledger)
    router.since = {name: int(n) for name, n in data.get("since", {}).items()}
    router.unused = {name: int(n) for name, n in data.get("unused", {}).items()}
    first, level = data.get("period", (0, 0))
    router.period = int(first), int(level)
    router.skipped = [int(n) for n in data.get("skipped", ())]
    if len(router.skipped) > len(router.contexts):
        raise SavedFileError(f"{len(router.skipped)} contexts were counted of fewer")
    blank_state = router.policy.start(router.rule, lines)
    state = codec.read_arrays(data["state"], blank_state, derived(router.policy))
    if isinstance(router.policy, policies.Derives):
        router.policy.derive(router.rule, state)
    if router.t < 0 or not router.policy.sound(router.rule, state):
        raise SavedFileError("its state is none that a router can be in")
    router.seat(state)
    router.held = dict(read_held(one, router) for one in data["held"])
    return router


def derived(policy: policies.Policy) -> tuple[str, ...]:
    """The fields of a policy's state that files do without, as they follow from the others."""
    return policy.derived if isinstance(policy, policies.Derives) else ()


def write_held(t: int, held: Ticket | float) -> dict[str, Any]:
    """A decision that waits for its reward, or the reward it got."""
    if not isinstance(held, Ticket):
        return {"t": t, "reward": held}
    arrays = {name: getattr(held, name).tolist() for name in ("draws", "odds", "up")}
    return {**held._asdict(), **arrays}


def read_held(data: dict[str, Any], router: "Router") -> tuple[int, Ticket | float]:
    """The inverse of `write_held`; a ticket must fit the router it belongs to."""
    t = data["t"]
    if type(t) is not int or not 0 <= t < router.t:
        raise SavedFileError(f"a held decision has number {t!r}, but {router.t} were made")
    if "reward" in data:
        return t, float(data["reward"])
    size = router.problem.size
    up = np.empty(size if data["up"] else 0, np.bool_)
    codec.fill("up", data["up"], up)
    M = router.problem.draws
    policy = router.policy
    chance, weight = float(data.get("chance", 0.0)), float(data.get("weight", 1.0))
    as_set = not policy.multinomial and (policy.whole or chance > 0)
    odds = np.empty(M if policy.multinomial else size if as_set else 0)
    draws = np.empty(M, np.int64)
    codec.fill("draws", data["draws"], draws)
    codec.fill("odds", data["odds"], odds)
    share, fair = float(data["share"]), (odds >= 0) & (odds <= 1 + 1e-9)
    fair &= (odds > 0) | as_set  # an expert that was down has none
    if not (draws.min() >= 0 and draws.max() < size and fair.all() and 0 < share <= 1 + 1e-9):
        raise SavedFileError(f"decision {t} has draws or odds that this pool cannot have")
    context = data["context"]
    if type(context) is not int or not 0 <= context < len(router.contexts):
        raise SavedFileError(f"decision {t} has context {context!r}, which was never seen")
    if not (0 <= chance <= 1 + 1e-9 and 0 <= weight < 1e6):
        raise SavedFileError(f"decision {t} has a chance of {chance} and a weight of {weight}")
    replaced = bool(data.get("replaced", False))
    feasible = bool(data["feasible"])
    return t, Ticket(t, context, draws, odds, up, share, feasible, chance, weight, replaced)
