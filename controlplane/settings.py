"""Settings: the one place that reads the environment and the settings file.

Each field is set by ``MODELLESS_<NAME>`` in the environment, or by the same name in lower case in
``settings.env`` in the state directory; the environment wins.
"""

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, Self

from dotenv import dotenv_values
from pydantic import ValidationError, model_validator

from controlplane.access.client_keys import FILE as FILE_OF_KEYS
from controlplane.access.exposure import is_every_address
from controlplane.given_settings import PREFIX, GivenSettings, default_state_dir
from controlplane.gpus import machine_gpus
from controlplane.slices import (
    FOUND,
    MOST_WORKERS,
    Kind,
    Slice,
    Source,
    cpu_kind,
    filled_in,
    gpu_slices,
    layouts_of,
    slices_of,
    written,
)
from controlplane.wrong_values import wrong_value
from planner.planning_settings import PlanningSettings
from planner.types import Objective
from variants.container import total_memory_mib, usable_cores
from variants.errors import InvalidInput
from variants.types import DeviceKindName

FILE = "settings.env"
"""In the state directory."""
# Of a line that it cannot read it says less than `controlplane.startup.settings_warnings`.
logging.getLogger("dotenv.main").setLevel(logging.ERROR)
ALIASES = frozenset({"REDIS_URL"})
"""Names without the prefix that are read, too."""
SECRET_FILE = "channel.secret"  # noqa: S105 - a file name
"""In the state directory."""
SECRETS = ("database_url", "redis_url", "api_token")
"""Settings that are secret, or are URLs that may hold a password: they never stand in a Serve
configuration. A new setting that may hold a secret belongs in here."""

LOOK_S = 10.0
"""How long it is taken for true how much memory a container has: its limit may change while it
runs, and gateways and the control loop ask several times a second."""

WIDE = 8
"""From so many cores on a machine has several workers, unless somebody says otherwise."""
EACH = 4
"""Cores that each of them has at least: four threads compute one row of a ResNet-18 in 0.4 of the
time of one, and more of them gain less and less (decision 34)."""
MOST_USUAL = 8
"""Each worker is a process, and has copies of its own of what it loads."""
LOCAL = ("url", "nodes", "zone")
"""Settings that are not sent: of the command line alone, or of each machine by itself."""


class Settings(GivenSettings):
    """How one installation runs: what was set, and what follows from it."""

    @model_validator(mode="after")
    def _sliced_once(self) -> Self:
        if self.slices:
            # One worker was the default once, and is what older installations have written down.
            for name, no_others in (("workers", (0, 1)), ("cores", (0,)), ("gpus", (-1,))):
                if getattr(self, name) not in no_others:
                    raise ValueError(
                        f"MODELLESS_SLICES and MODELLESS_{name.upper()} are both set: each says "
                        "what workers there are, so unset one of them"
                    )
        if self.layouts and self.ray_address:
            raise ValueError(
                "MODELLESS_SLICES has several layouts, which are of this machine, and "
                "MODELLESS_RAY_ADDRESS names a cluster: set one layout"
            )
        if self.layouts and self.elastic:
            raise ValueError(
                "MODELLESS_SLICES has several layouts, of which plans choose one, and "
                "MODELLESS_ELASTIC has them choose any number of workers: unset one of them"
            )
        if not self.ray_address:
            for one in slices_of(self.slices):
                if one.nodes is not None:
                    raise ValueError(
                        f"MODELLESS_SLICES binds {one.name} to nodes of a cluster, and "
                        "MODELLESS_RAY_ADDRESS names none"
                    )
        _ = self.kinds  # raises where the memory of a GPU is not known
        return self

    @cached_property
    def run_dir(self) -> Path:
        """Sockets, pid files and the secret. Unix socket paths hold at most 107 bytes."""
        return self.state_dir / "run"

    @property
    def gateway_url(self) -> str:
        """Where a client on this machine reaches the gateway."""
        return self.url or self.own_url

    @property
    def own_url(self) -> str:
        """Where the gateway of these settings is reached from this machine."""
        return self.url_at("::1" if ":" in self.host else "127.0.0.1")

    def url_at(self, node: str) -> str:
        """Where a gateway of these settings is reached that runs on the machine ``node``."""
        host = node if is_every_address(self.host) else self.host
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def max_frame_mib(self) -> int:
        """Largest frame on the tensor channel: no body that was taken may break a connection.

        A number takes at least one byte, as INT8 behind the JSON, and at most eight as a tensor.
        """
        return max(64, math.ceil(8 * self.max_body_mib) + 1)

    @property
    def artifacts_dir(self) -> Path:
        return self.state_dir / "artifacts"

    @property
    def build_cache_dir(self) -> Path:
        """What registrations have built and measured on this machine."""
        return self.state_dir / "build-cache"

    @property
    def copies_dir(self) -> Path:
        """Copies of artifacts, on a machine of a cluster that does not see where they are kept."""
        return self.state_dir / "copies"

    @property
    def client_keys_path(self) -> Path:
        return Path(self.client_keys) if self.client_keys else self.state_dir / FILE_OF_KEYS

    @property
    def secret_path(self) -> Path:
        return self.state_dir / SECRET_FILE

    @property
    def catalog_url(self) -> str:
        return self.database_url or f"sqlite:///{self.state_dir / 'catalog.db'}"

    @property
    def live_url(self) -> str:
        return self.redis_url or f"unix://{self.run_dir / 'valkey.sock'}"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The device kinds that this machine is split into, with how many workers each has.

        Without ``slices`` these are the cores, divided by the number of workers, which follows from
        the cores where nobody set it (``usual_workers``), and a worker for each GPU. None where
        they are to be found on a cluster's nodes and nobody has looked.
        """
        slices = slices_of(self.slices)
        if not slices and not (self.ray_address and self.slices == FOUND):
            in_all = self.cores or usable_cores()
            workers = self.workers or (1 if self.ray_address else usual_workers(in_all))
            cores = max(1, in_all // workers)
            slices = (
                Slice(name=cpu_kind(cores), cores=cores, most=workers, source=self._source),
                *gpu_slices(machine_gpus(), self._most_gpus),
            )
        return filled_in(
            slices,
            memory_mib=self.worker_memory_mib,
            all_memory_mib=_memory_mib() / 2,
            usd_per_core_hour=self.usd_per_core_hour,
            elastic=self.elastic,
            usd_per_gpu_hour=self.usd_per_gpu_hour,
            gpus=machine_gpus() if any(one.gpu is not None for one in slices) else (),
        )

    @property
    def layouts(self) -> tuple[Mapping[DeviceKindName, int], ...]:
        """Of which plans choose how this machine is split; none where there is nothing to choose.

        Workers of two layouts run beside each other for a moment, so all kinds share the memory.
        """
        return layouts_of(self.slices)

    @property
    def begins_with(self) -> Mapping[DeviceKindName, int]:
        """How many workers of each kind there are before anything was planned."""
        first = self.layouts[0] if self.layouts else None
        return {k.name: k.most if first is None else first.get(k.name, 0) for k in self.kinds}

    @property
    def _source(self) -> Source:
        """Where a machine's own cores are the one kind, it was found."""
        return Source.SET if self.cores or self.workers > 1 else Source.FOUND

    @property
    def _most_gpus(self) -> int:
        """On a cluster none that was not asked for: applications may be made on any machine."""
        return (0 if self.ray_address else MOST_WORKERS) if self.gpus < 0 else self.gpus

    @property
    def takes_joining_nodes(self) -> bool:
        """Whether nodes that join later get workers: where no setting says which there are."""
        found = all(kind.source is Source.FOUND for kind in self.kinds)
        return bool(self.ray_address) and self.gpus < 0 and found

    def with_slices(self, text: str) -> Self:
        """The same with these device kinds in place of its own; none, where the text is empty."""
        told = {"slices": text or FOUND, "workers": 0, "cores": 0, "gpus": -1}
        return self.model_copy(update=told)

    def as_seen(self, seen: Mapping[str, Any] | None) -> Self:
        """The same with the device kinds that a control loop tells in the live state."""
        slices = None if seen is None else seen.get("slices")
        return self if slices is None else self.with_slices(str(slices))

    @property
    def sliced_by(self) -> str:
        """The setting that says what workers there are."""
        return f"{PREFIX}SLICES" if self.slices else f"{PREFIX}WORKERS"

    @property
    def all_cores(self) -> int:
        """Cores of all workers together, of those of all layouts where there are several."""
        return sum(one.cores * one.most for one in self.kinds)

    @property
    def spare_cores(self) -> int:
        """Cores that one more worker may have beside all others while these are replaced: on one
        machine, of the largest kind; of layouts none, of which plans choose one as a whole."""
        if self.ray_address:
            return 0
        several = bool(self.layouts)
        lent = (one for one in self.cpu_kinds if one.most and not (several and self._decided(one)))
        return max((one.cores for one in lent), default=0)

    @staticmethod
    def _decided(kind: Kind) -> bool:
        """Whether plans decide how many workers of a kind run."""
        return kind.least is not None

    @property
    def cpu_kinds(self) -> tuple[Kind, ...]:
        """Those without a GPU, which share this machine's cores and memory."""
        return tuple(one for one in self.kinds if one.gpu is None)

    @property
    def all_gpus(self) -> int:
        """GPUs of all workers together."""
        return sum(one.most for one in self.kinds if one.gpu is not None)

    def wanted(self, asked: Mapping[DeviceKindName, int]) -> dict[DeviceKindName, int]:
        """Workers wanted by kind: as was asked for over the control API, or else as set here."""
        return {**{kind.name: kind.most for kind in self.kinds}, **asked}

    def least(self, wanted: Mapping[DeviceKindName, int]) -> dict[DeviceKindName, int]:
        """Fewest workers of each kind that plans leave, where so many are ``wanted``."""
        known = {kind.name: kind for kind in self.kinds}
        return {
            name: known[name].least_of(count) if name in known else 0 if self.elastic else count
            for name, count in wanted.items()
        }

    @property
    def plans_decide(self) -> bool:
        """Whether plans decide of any kind how many workers of it run."""
        return any(kind.least is not None for kind in self.kinds)

    @property
    def planning(self) -> PlanningSettings:
        """What decisions go by."""
        return PlanningSettings(
            objective=Objective(self.objective),
            elastic=self.plans_decide,
            eviction=self.eviction,
            batching=self.batching,
            late_share=self.late_share,
            linger_s=self.linger_s,
        )

    @property
    def gateway_count(self) -> int:
        """How many gateways run at first. On a cluster one answers while another is replaced."""
        return self.gateways or (2 if self.ray_address else 1)

    def resolved(self) -> Self:
        """The same with what is counted on this machine written down: cores, memory.

        The process that starts an application counts once; replicas may run where there are other
        machines, and have other cores than it.
        """
        counted: dict[str, object] = {}
        if self.slices or self.all_gpus or self._source is Source.FOUND:
            text = self._written() or self.slices
            # Who reads the kinds reads no number of workers; builds before took none below 1.
            counted |= {"slices": text, "workers": 1, "cores": 0, "gpus": -1}
        else:
            counted["gpus"] = 0
            counted |= {"cores": self.all_cores, "workers": self.kinds[0].most}
            counted["worker_memory_mib"] = self.kinds[0].memory_mib
        return self.model_copy(update=counted)

    def _written(self) -> str:
        """The kinds, in each layout where there are several, with all that is known of them."""
        kinds = {kind.name: kind for kind in self.kinds}
        return "|".join(
            written(replace(kinds[name], most=count, least=None) for name, count in one.items())
            for one in self.layouts
        ) or written(self.kinds)


def load_settings(**overrides: object) -> Settings:
    """Settings from overrides, then the environment, then the state directory's file.

    Raises:
        InvalidInput: a setting is wrong, or the file cannot be read; the sentence names it.
    """
    state_dir = Path(str(overrides.get("state_dir") or default_state_dir())).expanduser()
    # Replicas have another working directory than the command that started them.
    overrides = {name: value for name, value in overrides.items() if value is not None}
    overrides["state_dir"] = state_dir = state_dir.absolute()
    file = state_dir / FILE
    try:
        return Settings(_env_file=file, **overrides)  # type: ignore[call-arg, arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        message = wrong_value(first)
        if not first["loc"]:  # it is about several, and names them
            raise InvalidInput(message) from error
        name = str(first["loc"][0]).upper().removeprefix("MODELLESS_")
        raise InvalidInput(f"setting MODELLESS_{name}: {message}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"{file} cannot be read: {reason}") from error


def usual_workers(cores: int) -> int:
    """How many workers a machine of so many cores has where nobody set it.

    One batch has all threads of its worker, and a worker computes one batch at a time.
    """
    return 1 if cores < WIDE else min(cores // EACH, MOST_USUAL)


def _memory_mib() -> float:
    """Of this machine, or its container."""
    return _memory_found_in(int(monotonic() // LOOK_S))


@lru_cache(maxsize=1)
def _memory_found_in(_period: int) -> float:
    return total_memory_mib()


def known_names() -> frozenset[str]:
    """The name of every setting in the environment."""
    return ALIASES | {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}


def names_given(state_dir: Path) -> dict[str, list[str]]:
    """Where to what is set there: names with our prefix in the environment, and all in the file."""
    file = state_dir / FILE
    try:
        written = list(dotenv_values(file))
    except (OSError, UnicodeDecodeError):
        written = []
    return {
        "the environment": [name for name in os.environ if name.upper().startswith(PREFIX)],
        str(file): written,
    }
