"""What callers may give as a policy: names, specs such as `noisy-or:explore=0.02`, and `auto`.

It also checks whether a policy fits a problem. `catalog` has the names and loads the classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from bylot._text import find_similar
from bylot._windows import WINDOW_WORDS
from bylot.errors import (
    IgnoredFeedbackWarning,
    PolicyError,
    SmallerPanelsWarning,
    TooManyDraws,
)
from bylot.policies.base import Policy
from bylot.policies.catalog import POLICIES, POLICY_CLASSES, list_policies
from bylot.policies.plain import PlainPolicy, wrap_plain_policy
from bylot.policies.validation import (
    FEEDBACK_WORDS,
    FeedbackKind,
    SettingKind,
    check_at_least_one,
    check_settings,
    is_count,
)
from bylot.problem import Problem

MAX_UNDECLARED_CONTEXTS = 100_000  # of a router in memory
MAX_STORED_CONTEXTS = 1_000  # of a router in a store, if nothing is declared
CONTEXTS_SETTING = SettingKind(
    "a whole number, at least 1, or None", lambda value: value is None or is_count(value, 2**62)
)
PROPENSITIES_SETTING = SettingKind(
    "True, False or None", lambda value: value is None or isinstance(value, bool)
)
MAX_NOISY_OR_EXPERTS = 1_000  # its time grows with their pairs: about 0.4 ms a round at 1,000


@dataclass(frozen=True)
class Auto:
    """The policy that the problem calls for, by the rule in `docs/default`.

    propensities: must every decision record its propensity, so that its log can be evaluated? What
                  is not recorded when a panel is drawn cannot be recovered later. None: yes,
                  unless more than rewards is declared and a policy without them learns from it, or
                  there are budgets of the calendar, whose bounds per request change all the time
    contexts:     about how many there will be; None: as many as are declared, else 1
    """

    propensities: bool | None = None
    contexts: int | None = None

    def __post_init__(self) -> None:
        kinds = {"contexts": CONTEXTS_SETTING, "propensities": PROPENSITIES_SETTING}
        check_settings(self, kinds)

    def resolve(self, problem: Problem, feedback: FeedbackKind = "panel") -> Policy:
        """Choose the policy.

        If full panels can satisfy the limits: `distinct`, if propensities are needed or beliefs
        about pairs take too much memory, else `noisy-or`. If they cannot: `noisy-or`, if a minimum
        of members is declared and propensities are not needed, or one is above 1; else `tangent`.
        """
        kept = problem.full_conflict is None or problem.min_draws is not None
        if problem.needs_labels and kept and not self.propensities:
            return POLICIES["noisy-or"]
        if problem.full_conflict is None:
            return POLICIES["noisy-or" if self.prefers_noisy_or(problem, feedback) else "distinct"]
        fewest = problem.min_draws
        if fewest is not None and (fewest > 1 or self.prefers_noisy_or(problem, feedback)):
            return POLICIES["noisy-or"]
        return POLICIES["tangent"]

    def prefers_noisy_or(self, problem: Problem, feedback: FeedbackKind) -> bool:
        """Return whether propensities are not needed, and beliefs about pairs fit into memory."""
        recorded = self.propensities
        if recorded is None:
            totals = any(limit.is_total for limit in problem.limits)
            unused = feedback == "panel" or feedback not in POLICIES["noisy-or"].feedback
            recorded = unused and not totals
        if recorded or problem.size > MAX_NOISY_OR_EXPERTS:
            return False
        return (self.contexts or 1) <= POLICIES["noisy-or"].max_contexts(problem.size)


PolicyOrAuto = TypeVar("PolicyOrAuto", bound="Policy | Auto")
AnyPolicy = str | Policy | Auto | PlainPolicy
"""What callers may give: a name or spec, settings, or an object in plain Python."""
SettingValue = bool | int | float | str | None

SETTING_WORDS: dict[str, SettingValue] = {"true": True, "false": False, "none": None, "null": None}
POLICY_SPEC_FORM = "settings follow a colon, as in noisy-or:explore=0.02,guard=true"


def find_policy(policy: AnyPolicy) -> Policy | Auto:
    """Return the policy of this name or spec, the given settings, or an object's adapter.

    >>> find_policy("noisy-or:explore=0.02").explore
    0.02
    """
    if isinstance(policy, (Policy, Auto)):
        return policy
    if not isinstance(policy, str):
        return wrap_plain_policy(policy)
    name, colon, _ = policy.partition(":")
    names = ("auto", *POLICIES)
    if name not in names:
        close = find_similar(name, names)
        meant = f"did you mean {close!r}? The" if close else "the"
        more = f"; {POLICY_SPEC_FORM}" if set(name) & set("=(") else ""
        raise PolicyError(
            f"there is no policy {name!r}; {meant} ones there are: {', '.join(names)}{more}"
        )
    usual = Auto() if name == "auto" else POLICIES[name]
    return parse_policy_spec(usual, policy) if colon else usual


def resolve_policy(
    policy: AnyPolicy,
    problem: Problem,
    feedback: FeedbackKind = "panel",
    guard: bool | None = None,
) -> Policy:
    """Return the policy that plays on a problem with this feedback, and resolve `auto`.

    guard: switch the guard on or off; None: as the policy says
    """
    found = find_policy(policy)
    chosen = found.resolve(problem, feedback) if isinstance(found, Auto) else found
    if guard is not None:
        chosen = replace(chosen, guard=guard)
    check_kept_limits(chosen, problem)
    return chosen


def check_kept_limits(policy: Policy, problem: Problem) -> None:
    """Refuse a policy that does not keep all kinds of limits of a problem."""
    if policy.guard or not (problem.calendars or problem.needs_labels):
        return
    usual = " or ".join(list_policies(lambda other: type(other).guard))
    raise PolicyError(
        f"limits per {WINDOW_WORDS}, of some contexts or of each tenant need the guard, which is "
        f"off for {policy.name}",
        remedy=f"use {policy.name}:guard=true, or {usual}, which have it on",
    )


def check_panel_size(policy: Policy | Auto, problem: Problem) -> None:
    """Refuse more draws than experts, unless a policy that draws with replacement is named."""
    if problem.draws > problem.size and not (isinstance(policy, Policy) and policy.draws_iid):
        raise TooManyDraws(
            "draws",
            got=problem.draws,
            expected=f"at most {problem.size}, as many as there are experts",
            remedy="draw fewer, or name a policy that draws with replacement, such as 'tangent'",
        )


def describe_smaller_panels(policy: Policy | Auto, problem: Problem) -> SmallerPanelsWarning | None:
    """Return a warning if `auto` plays panels of fewer members than were declared."""
    if isinstance(policy, Policy) or problem.full_conflict is None:
        return None
    if problem.min_draws is not None:  # declared
        return None
    return SmallerPanelsWarning(
        f"panels of {problem.draws} different experts cannot keep {{limits}}, so panels may have "
        "fewer members, down to one",
        limits=problem.full_conflict.limits,
        remedy="loosen the limits, or declare with min_draws how few are enough",
    )


def describe_ignored_feedback(
    policy: Policy, feedback: FeedbackKind
) -> IgnoredFeedbackWarning | None:
    """Return a warning if a policy learns from the reward alone where more is declared."""
    if feedback in policy.feedback:
        return None
    users = list_policies(lambda other: feedback in other.feedback)
    return IgnoredFeedbackWarning(
        f"{policy.name} ignores {FEEDBACK_WORDS[feedback]}: it learns from the reward alone",
        remedy=f"policies that use them: {', '.join(users)}" if users else None,
    )


def policy_to_data(policy: Policy | Auto) -> dict[str, Any]:
    """Return the name and settings as plain data, for saved files."""
    if isinstance(policy, Auto):
        return {"name": "auto", "propensities": policy.propensities, "contexts": policy.contexts}
    return {"name": policy.name, **policy.to_settings()}


def policy_from_data(data: Mapping[str, Any]) -> Policy | Auto:
    """Return the policy that `policy_to_data` has written."""
    settings = dict(data)
    name = settings.pop("name")
    kind: type[Policy] | type[Auto] | None = Auto if name == "auto" else POLICY_CLASSES.get(name)
    if kind is None:
        raise PolicyError(f"this bylot does not know the policy {dict(data)!r}; upgrade it")
    later = "; if a later bylot wrote this, upgrade it"
    check_setting_names(name, settings, [field.name for field in fields(kind)], later)
    return Auto(**settings) if issubclass(kind, Auto) else kind.from_settings(settings)


def parse_policy_spec(usual: PolicyOrAuto, policy: str) -> PolicyOrAuto:
    """Change the default settings by those after the first colon of a spec."""
    name, _, words = policy.partition(":")
    changes: dict[str, SettingValue] = {}
    for part in words.split(","):
        setting, sign, text = (word.strip() for word in part.partition("="))
        if not (setting and sign and text):
            raise PolicyError(
                f"policy {policy!r}: {part!r} is no SETTING=VALUE; {POLICY_SPEC_FORM}"
            )
        if setting in changes:
            raise PolicyError(f"policy {policy!r} gives {setting!r} twice; give each setting once")
        changes[setting] = parse_setting_value(text)
    check_setting_names(name, changes, [field.name for field in fields(usual)])
    return replace(usual, **changes)  # type: ignore[arg-type]


def parse_setting_value(text: str) -> SettingValue:
    """Return a number, true, false or none in any case, or the text itself.

    >>> [parse_setting_value(text) for text in ("2", "1e-2", "False", "null", "sum")]
    [2, 0.01, False, None, 'sum']
    """
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return SETTING_WORDS.get(text.lower(), text)


def check_setting_names(
    policy: str, given: Iterable[str], settings: Sequence[str], otherwise: str = ""
) -> None:
    """Raise for a setting that a policy does not have, with those that it has."""
    for setting in given:
        if setting not in settings:
            close = find_similar(setting, settings)
            meant = f"did you mean {close!r}? Its" if close else "its"
            those = f"{meant} settings are {', '.join(settings)}"
            if len(settings) == 1:
                those = f"its only setting is {settings[0]}"
            more = "" if close else otherwise
            raise PolicyError(f"policy {policy!r} has no setting {setting!r}; {those}{more}")


def choose_stored_contexts(policy: Policy, size: int) -> int:
    """Return the contexts of a router in a store for which nothing is declared."""
    return max(1, min(MAX_STORED_CONTEXTS, policy.max_contexts(size)))


def fill_auto_contexts(policy: AnyPolicy, declared: int | None) -> Policy | Auto:
    """Return the policy, and give `auto` the number of declared contexts unless it has one.

    >>> fill_auto_contexts("auto:propensities=false", 4_000)
    Auto(propensities=False, contexts=4000)
    """
    found = find_policy(policy)
    if declared is None or not isinstance(found, Auto) or found.contexts is not None:
        return found
    return replace(found, contexts=check_at_least_one("max_contexts", declared))


def check_max_contexts(policy: Policy, size: int, declared: int) -> int:
    """Return the declared contexts if the policy has memory for them."""
    check_at_least_one("max_contexts", declared)
    most = max(1, policy.max_contexts(size))  # `start` raises if there is none at all
    if most < declared:
        raise PolicyError(
            f"max_contexts={declared:,} cannot be reached: with {size:,} experts there is room for "
            f"what {policy.name} remembers of {most:,} contexts; "
            f"declare at most {most:,}, or take 'distinct', which remembers less"
        )
    return declared
