"""Routers whose experts are models: their problem from the prices of models, and what is wrong.

Which models there are is in `model_list`; how a problem is read is left to `problem_files`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bylot._text import find_similar, join_words
from bylot.errors import BylotError, BylotWarning
from bylot.gateway.chat import GATEWAY_FIELDS, MEMBER_FIELDS
from bylot.gateway.config import MAX_MEMBERS, GatewayEntry, ModelEntry, name_entry
from bylot.gateway.prices import (
    CallPrice,
    TypicalTokens,
    average_typical_cost,
    find_max_cost,
    read_call_price,
)
from bylot.problem import Problem
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.document import Document, Keys

ModelPrices = Mapping[str, Sequence[CallPrice]]
"""The prices of the endpoints of each model, by its name."""

COST_UNIT = "US dollars per call"
SHORT_FIELDS = (
    *("models", "draws", "min_draws", "limits", "typical_tokens"),
    *("costs", "groups", "contexts", "period", "floor", "traffic"),
)
"""Fields of a router without `problem`: those of a problem, with models as its experts."""


def list_prices(entries: Sequence[ModelEntry]) -> dict[str, list[CallPrice]]:
    """The prices of all models; no environment variable is read."""
    found: dict[str, list[CallPrice]] = {}
    for number, entry in enumerate(entries):
        price = read_call_price(name_entry(number, entry), entry.litellm_params, entry.model_info)
        found.setdefault(entry.model_name, []).append(price)
    return found


def problem_from_models(document: Document, gateway: GatewayEntry, prices: ModelPrices) -> Document:
    """A problem whose experts are the `models` of a document.

    The cost of a model is that of a typical call, unless the document gives another. If the longest
    call of each has a price, its largest cost follows from that.
    """
    data, cost = dict(document.data), gateway.cost
    typical = read_typical_tokens(document, data.pop("typical_tokens", None))
    entries, costs = read_model_names(document, data.pop("models"), prices), data.get("costs") or {}
    declared = isinstance(costs, dict) and isinstance(costs.get(cost), list)
    known = [
        cost in entry or all(price.is_known for price in prices[entry["name"]]) for entry in entries
    ]
    if isinstance(costs, dict) and not declared and any(known):
        if not all(known):
            names = [
                one["name"] for one, has_cost in zip(entries, known, strict=True) if not has_cost
            ]
            raise document.error(
                ("models", known.index(False)),
                f"no price of {join_words(map(repr, names), 'and')}, and others have one",
                remedy="give input_cost_per_token and output_cost_per_token in model_info, 0 if it "
                f"is free; or write {{name: {names[0]}, {cost}: ...}} under models",
            )
        entries = [
            {cost: average_typical_cost(prices[one["name"]], typical), **one} for one in entries
        ]
        draws = data.get("draws")
        if isinstance(draws, int) and draws > 0:
            entries = add_max_costs(entries, gateway, prices, draws, data.get("min_draws") or draws)
        data["costs"] = {cost: COST_UNIT, **costs}
    elif isinstance(costs, dict) and cost not in costs:
        check_limited_prices(document, data.get("limits"), cost)
    lines = {rename_models(keys): line for keys, line in document.lines.items()}
    texts = {rename_models(keys): text for keys, text in document.texts.items()}
    return replace(document, data={**data, "experts": entries}, lines=lines, texts=texts)


def check_limited_prices(document: Document, limits: Any, cost: str) -> None:
    """Refuse a limit on dollars if no model has a price; price lists of LiteLLM are not read."""
    for n, one in enumerate(limits if isinstance(limits, list) else ()):
        if isinstance(one, dict) and one.get("cost") == cost:
            raise document.error(
                ("limits", n),
                f"a limit on {cost!r}, and no model has a price",
                remedy="give input_cost_per_token and output_cost_per_token in model_info",
            )


def rename_models(keys: Keys) -> Keys:
    """Where an entry of `models` is in the problem."""
    return ("experts", *keys[1:]) if keys[:1] == ("models",) else keys


def add_max_costs(
    entries: list[dict[str, Any]],
    gateway: GatewayEntry,
    prices: ModelPrices,
    draws: int,
    fewest: int,
) -> list[Any]:
    """The models with their largest costs, if the longest calls of all of them have a cost.

    A panel also pays for its judge and for calls of members that were replaced. Each member of the
    smallest panel has an equal part of that in its largest cost, so that the sum covers it.
    """
    cost = gateway.cost
    found = [find_max_cost(prices[one["name"]]) for one in entries]
    largest = [most for most in found if most is not None]
    judge = find_max_judge_cost(gateway, prices, draws)
    known = len(largest) == len(entries) and judge is not None
    if not known or any("max_costs" in one for one in entries):
        return entries
    assert judge is not None
    more = (judge + gateway.refill * max(largest)) / fewest
    if not all(
        isinstance(one[cost], int | float) and one[cost] <= most
        for one, most in zip(entries, largest, strict=True)
    ):
        return entries
    return [
        {**one, "max_costs": {cost: most + more}}
        for one, most in zip(entries, largest, strict=True)
    ]


def find_max_judge_cost(gateway: GatewayEntry, prices: ModelPrices, draws: int) -> float | None:
    """The most that a judge can cost for one request; None: that is not known.

    It is asked twice for scores if it must repair them, of each member on its own if they are asked
    in turn, and once more to write an answer.
    """
    judge = gateway.scorer and gateway.scorer.judge
    if not judge:
        return 0.0
    most = find_max_cost(prices.get(str(judge.get("model")), [CallPrice(None, None, None, None)]))
    calls = 2 * (draws if gateway.ask == "in_turn" else 1) + (gateway.answer == "synthesise")
    return None if most is None else calls * most


def read_typical_tokens(document: Document, given: Any) -> TypicalTokens:
    """Tokens of a typical call: {input: 500, output: 500}."""
    data = {} if given is None else given
    if not isinstance(data, dict) or not set(data) <= set(TypicalTokens._fields):
        raise document.error(
            ("typical_tokens",), "typical_tokens", expected="{input: TOKENS, output: TOKENS}"
        )
    for name, value in data.items():
        if type(value) is not int or not 0 <= value <= 1_000_000_000:
            raise document.error(
                ("typical_tokens", name),
                f"typical_tokens.{name}",
                expected="a whole number of 0 or more",
            )
    return TypicalTokens(**data)


def read_model_names(document: Document, given: Any, prices: ModelPrices) -> list[dict[str, Any]]:
    """The models of a router: names, or mappings as of an expert, each in `model_list`."""
    if not isinstance(given, list):
        raise document.error(
            ("models",),
            "models",
            expected="a list of models",
            remedy="write models: [small, large]",
        )
    entries: list[dict[str, Any]] = []
    for n, one in enumerate(given):
        entry = {"name": one} if isinstance(one, str) else one
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise document.error(
                ("models", n),
                f"models[{n}]",
                expected="the name of a model, or a mapping with its name",
            )
        entries.append(entry)
    for n, entry in enumerate(entries):
        if entry["name"] not in prices:
            missing = [one["name"] for one in entries if one["name"] not in prices]
            error = make_missing_error(missing, prices)
            raise document.error(("models", n), error.what, remedy=error.remedy)
    return entries


def make_missing_error(missing: Sequence[str], prices: ModelPrices) -> BylotError:
    """The error about models that are not in the list; each has a suggestion."""
    what = f"model_list has no model {join_words(map(repr, missing), 'and')}"
    meant = {name: find_similar(name, prices) for name in missing}
    advice = [f"for {name!r} did you mean {near!r}?" for name, near in meant.items() if near]
    if not advice and prices:
        advice = [f"the models are {', '.join(map(repr, prices))}"]
    return BylotError(what, remedy="; ".join([*advice, "add what is missing to model_list"]))


def list_gateway_faults(
    gateway: GatewayEntry, problem: Problem, prices: ModelPrices
) -> Iterator[tuple[Keys, BylotError]]:
    """What is wrong with the gateway of a router, and where in its entry."""
    missing = [name for name in problem.experts if name not in prices]
    if missing:
        yield (), make_missing_error(missing, prices)
    if problem.draws > MAX_MEMBERS:
        expected = f"at most {MAX_MEMBERS} members that a gateway asks"
        yield (), BylotError("draws", got=problem.draws, expected=expected)
    if gateway.quorum is not None and gateway.quorum > problem.draws:
        expected = f"at most {problem.draws}, as many as there are draws"
        yield ("quorum",), BylotError("quorum", got=gateway.quorum, expected=expected)
    known = GATEWAY_FIELDS | MEMBER_FIELDS
    own = [name for name in gateway.pass_fields if name in known]
    if own:
        expected = "fields that the gateway neither uses itself nor sends already"
        yield ("pass_fields",), BylotError("pass_fields", got=own[0], expected=expected)
    priced = [name for name in problem.experts if any(x.is_known for x in prices.get(name, ()))]
    if priced and gateway.cost not in problem.costs:
        what = f"cost {gateway.cost!r} is no cost of the problem, and {priced[0]!r} has a price"
        remedy = suggest_known_name(gateway.cost, list(problem.costs), "costs")
        yield ("cost",), BylotError(what, remedy=remedy)
    yield from list_scorer_faults(gateway, prices)


def list_scorer_faults(
    gateway: GatewayEntry, prices: ModelPrices
) -> Iterator[tuple[Keys, BylotError]]:
    """What is wrong with the scorer of a gateway, or with what needs one."""
    scorer, needy = gateway.scorer, f"answer: {gateway.answer}"
    if gateway.ask == "in_turn":
        needy = "ask: in_turn"
    elif gateway.answer not in ("pick", "synthesise"):
        needy = ""
    if scorer is None:
        if needy:
            remedy = "add one, such as scorer: {exact: {}}"
            yield (), BylotError(f"{needy} needs a scorer", remedy=remedy)
        return
    try:
        kind = scorer.kind
    except BylotError as error:
        yield ("scorer",), error
        return
    if gateway.answer == "synthesise" and kind != "judge":
        what = f"answer: synthesise needs a judge, and the scorer is {kind}"
        yield ("scorer",), BylotError(what, remedy="write scorer: {judge: {model: NAME}}")
    if scorer.judge is not None:
        model = scorer.judge.get("model")
        if not isinstance(model, str):
            yield ("scorer", "judge"), BylotError("judge: model", expected="a name of model_list")
        elif model not in prices:
            missing = make_missing_error([model], prices)
            yield (
                ("scorer", "judge", "model"),
                BylotError(f"judge: {missing.what}", remedy=missing.remedy),
            )


def describe_own_judge(gateway: GatewayEntry, experts: Sequence[str]) -> BylotWarning | None:
    """Return a warning if the judge of a gateway is one of the members whose answers it scores."""
    judge = gateway.scorer and gateway.scorer.judge
    if not judge or judge["model"] not in experts:
        return None
    what = f"the judge {judge['model']!r} is a member too, so it scores its own answers"
    return BylotWarning(what, remedy="name another model as the judge")


def list_used_models(gateway: GatewayEntry, experts: Sequence[str]) -> list[str]:
    """The models that the gateway of a router asks: its experts, and its judge."""
    judge = gateway.scorer and gateway.scorer.judge
    return [*experts, *([judge["model"]] if judge else [])]
