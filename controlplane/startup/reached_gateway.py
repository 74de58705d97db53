"""ReachedGateway: where commands find a gateway, where several machines of a cluster have one."""

from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException
from time import monotonic

from controlplane.settings import Settings
from controlplane.startup.readiness import asked

LOOK_S = 10.0
"""How often it is looked whether the gateway that commands are told of answers."""
ANSWER_S = 2.0
"""How long one may take for that: a machine that is gone answers nothing at all."""


class ReachedGateway:
    """Looks whether a gateway answers where commands ask, and where another one does if not."""

    def __init__(
        self,
        urls: Sequence[str],
        answers: Callable[[str], bool],
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        """
        Args:
            urls: where there was a gateway at the start.
        """
        self._urls = tuple(urls)
        self._answers = answers
        self._clock_s = clock_s
        self._looked_at_s = clock_s()

    def look(self, url: str) -> str:
        """Where commands shall ask from now on: there, unless another one answers alone."""
        if len(self._urls) < 2 or self._clock_s() - self._looked_at_s < LOOK_S:
            return url
        self._looked_at_s = self._clock_s()
        others = (one for one in self._urls if one != url)
        return next((one for one in (url, *others) if self._answers(one)), url)


def answering(settings: Settings) -> Callable[[str], bool]:
    """What asks whether a gateway answers at a URL."""
    return partial(_answers, settings)


def _answers(settings: Settings, url: str) -> bool:
    try:
        asked(settings, f"{url}/v2/health/ready", timeout_s=ANSWER_S)
    except (OSError, HTTPException, ValueError):
        return False
    return True
