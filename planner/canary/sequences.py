"""How sure a share is: a confidence sequence, which holds however often it is looked at.

An interval of the usual kind holds at one look that was planned beforehand. Who looks each second
and acts on the first that excludes the truth is nearly sure to meet one. A confidence sequence
holds at all looks at once: with probability ``1 - alpha`` the truth is never outside.

This one inverts the ratio of prior to posterior, which is a martingale at the true share: with a
prior ``Beta(a, b)``, ``s`` of ``n`` and ``B`` the beta function,

    R(p) = p^s (1-p)^(n-s) B(a, b) / B(a+s, b+n-s)

is above ``alpha`` at all times with probability ``1 - alpha`` (Ville, 1939; Robbins, 1970,
"Statistical methods related to the law of the iterated logarithm", section 2, with a beta mixture;
Waudby-Smith and Ramdas, 2020, "Confidence sequences for sampling without replacement", section 2).
What is inside are the shares ``p`` of which it is above ``alpha`` now.
"""

from math import inf, lgamma, log

PRIOR = (0.5, 0.5)
"""Any prior keeps the error; this one is narrow for small shares."""
_HALVINGS = 60


def bounds(count: int, of: int, alpha: float) -> tuple[float, float]:
    """The least and the largest share that ``count`` of ``of`` do not exclude.

    Args:
        alpha: how probable it is that the truth is ever outside.
    """
    if of <= 0:
        return 0.0, 1.0
    seen = count / of
    least = log(alpha)
    low = _edge(count, of, least, 0.0, seen) if count else 0.0
    high = _edge(count, of, least, 1.0, seen) if count < of else 1.0
    return low, high


def _edge(count: int, of: int, least: float, outside: float, inside: float) -> float:
    """The share between one that is outside and one that is inside, where that changes."""
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        if _log_ratio(count, of, middle) > least:
            inside = middle
        else:
            outside = middle
    return outside


def _log_ratio(count: int, of: int, share: float) -> float:
    a, b = PRIOR
    likelihood = 0.0
    if count:
        likelihood += count * log(share) if share > 0.0 else -inf
    if of > count:
        likelihood += (of - count) * log(1.0 - share) if share < 1.0 else -inf
    return likelihood + _log_beta(a, b) - _log_beta(a + count, b + of - count)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)
