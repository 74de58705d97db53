"""What a rule of an operator, and their word on answers, may be."""

from variants.catalog.protocol import MOST_RULES
from variants.catalog.validity.peaks import LATEST_S
from variants.catalog.validity.plain_values import check_name
from variants.errors import Conflict, InvalidInput
from variants.types import AcceptedAnswers, Rule, RuleKind

MOST_REPLICAS = 10_000
MOST_WHY = 200
"""Characters of a reason."""
MOST_BY = 100
"""Characters that name an operator."""


def check_rule(rule: Rule) -> None:
    """Refuse a rule that cannot be followed, or says more than its kind has.

    Raises:
        InvalidInput: the first thing found wrong, in one sentence.
    """
    freezes = rule.kind is RuleKind.FREEZE
    if freezes and (rule.task or rule.variant or rule.device_kind):
        raise InvalidInput("a freeze is of the whole plan: it names no task, variant or kind")
    if not freezes:
        for what, name in (("a task", rule.task), ("a variant", rule.variant)):
            if not name:
                raise InvalidInput(
                    f"a {rule.kind.value} is of a variant of a task: {what.split()[1]!r} is missing"
                )
            check_name(name, what)
    if rule.device_kind:
        check_name(rule.device_kind, "a device kind")
    if not 1 <= rule.replicas <= MOST_REPLICAS:
        raise InvalidInput(f"a pin is of 1 to {MOST_REPLICAS:,} replicas, not {rule.replicas:,}")
    if rule.replicas != 1 and rule.kind is not RuleKind.PIN:
        raise InvalidInput(f"only a pin has a number of replicas, and a {rule.kind.value} is none")
    if not 0.0 <= rule.at_s <= LATEST_S:  # neither is it when it is not a number
        raise InvalidInput(f"a rule cannot begin at {rule.at_s!r} s of Unix time")
    if rule.until_s is not None:
        if not freezes:
            raise InvalidInput(f"only a freeze ends by itself, and a {rule.kind.value} is none")
        if not rule.at_s < rule.until_s <= LATEST_S:
            raise InvalidInput(
                "a freeze must end after it begins, and before 2100; in Unix time it begins at"
                f" {rule.at_s:,.0f} s and ends at {rule.until_s:,.0f} s"
            )
    _check_words("a rule", rule.by, rule.why)


def check_accepted(accepted: AcceptedAnswers) -> None:
    """Refuse a word on answers that cannot be kept.

    Raises:
        InvalidInput: the first thing found wrong, in one sentence.
    """
    for at_s in (accepted.at_s, accepted.since_s):
        if not 0.0 <= at_s <= LATEST_S:  # neither is it when it is not a number
            raise InvalidInput(f"answers cannot be accepted at {at_s!r} s of Unix time")
    _check_words("an acceptance", accepted.by, accepted.why)


def _check_words(of: str, by: str, why: str) -> None:
    for what, text, most in (("reason", why, MOST_WHY), ("operator", by, MOST_BY)):
        if len(text) > most or not text.isprintable():
            raise InvalidInput(
                f"the {what} of {of} must be at most {most} printable characters, not {len(text)}"
                f" that begin with {text[:40]!r}"
            )


def check_rule_room(count: int) -> None:
    """Refuse another rule where there are ``count``.

    Raises:
        Conflict: that is as many as a catalog holds.
    """
    if count >= MOST_RULES:
        raise Conflict(f"there are {MOST_RULES:,} rules, the most possible: remove some")
