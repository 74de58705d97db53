"""Settings: the one place that reads the environment and the settings file.

Each field is set by ``MODELLESS_<NAME>`` in the environment, or by the same name in lower case in
``settings.env`` in the state directory; the environment wins.
"""

import logging
import math
import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psutil
from dotenv import dotenv_values
from pydantic import (
    AliasChoices,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from controlplane.exposure import is_address_or_name, is_every_address, refusal
from controlplane.gpus import machine_gpus
from controlplane.slices import (
    MOST_WORKERS,
    Kind,
    Slice,
    cpu_kind,
    filled_in,
    gpu_slices,
    slices_of,
    written,
)
from planner.batching.registry import BATCHING
from planner.eviction.registry import RULES
from planner.planning_settings import DEFAULTS, PlanningSettings
from planner.types import Objective
from variants.errors import InvalidInput
from variants.types import DeviceKindName

PREFIX = "MODELLESS_"
FILE = "settings.env"
"""In the state directory."""
ALIASES = frozenset({"REDIS_URL"})
"""Names without the prefix that are read, too."""
CHOICES: dict[str, tuple[str, ...]] = {
    "batching": tuple(BATCHING),
    "eviction": tuple(RULES),
    "objective": tuple(Objective),
    "forecast": ("adaptive", "learned"),
}
"""Settings that are one of a few names."""

SECRETS = ("database_url", "redis_url", "api_token")
"""Settings that are secret, or are URLs that may hold a password: they never stand in a Serve
configuration. A new setting that may hold a secret belongs in here."""

LOCAL = ("url",)
"""Settings of the command line alone, which mean nothing to a replica."""


def _default_state_dir() -> Path:
    return Path(os.environ.get("MODELLESS_STATE_DIR") or Path.home() / ".modelless")


class Settings(BaseSettings):
    """How one installation runs. Everything has a default that works on a laptop."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=False)

    state_dir: Path = Field(
        default_factory=_default_state_dir, description="Where everything is kept."
    )
    host: str = Field("127.0.0.1", description="Address the gateway listens on.")
    port: int = Field(8000, ge=1, le=65535, description="Port the gateway listens on.")
    grpc_port: int = Field(
        8001,
        ge=0,
        le=65535,
        description="Port the gateway listens on for gRPC, at the same address; 0 or empty: none.",
    )
    url: str = Field(
        "",
        description="Where the command line finds the gateway; "
        "empty: what runs on the state directory.",
    )
    database_url: str = Field(
        "", description="SQLAlchemy URL of the catalog; empty: SQLite in the state directory."
    )
    redis_url: str = Field(
        "",
        validation_alias=AliasChoices("MODELLESS_REDIS_URL", "REDIS_URL", "redis_url"),
        description="URL of a Redis or Valkey; empty: the embedded Valkey.",
    )
    ray_address: str = Field("", description="A running Ray cluster; empty: one on this machine.")
    workers: int = Field(1, ge=1, le=256, description="Workers to split this machine's cores into.")
    cores: int = Field(0, ge=0, description="Cores to give to workers in all; 0: all of them.")
    slices: str = Field(
        "",
        description="Device kinds to split this machine into, instead of workers of one kind: "
        "'2xcpu-1,1xcpu-2'; empty: as MODELLESS_WORKERS says.",
    )
    gpus: int = Field(
        -1,
        ge=-1,
        le=256,
        description="GPUs to give to workers, one to each; -1: all that this machine has, and none "
        "of a cluster.",
    )
    worker_memory_mib: float = Field(
        0,
        ge=0,
        description="What variants may take on one worker without a GPU; 0: half of the memory, "
        "shared.",
    )
    usd_per_core_hour: float = Field(0.04, ge=0, description="Price of one core for an hour.")
    usd_per_gpu_hour: float = Field(2.5, ge=0, description="Price of one GPU for an hour.")
    idle_w: float = Field(0, ge=0, description="Watts of an idle worker; 0: as counters say.")
    carbon_g_per_kwh: str = Field(
        "", description="CO2 of a kWh: one number, or 24 by the hour in UTC; empty: not known."
    )
    objective: str = Field(
        DEFAULTS.objective.value,
        description="What plans optimise: 'cost', 'accuracy' of all that is served, or 'energy'.",
    )
    elastic: bool = Field(
        DEFAULTS.elastic,
        description="Whether plans decide how many workers run, up to the inventory; "
        "else the inventory runs.",
    )
    linger_s: float = Field(
        DEFAULTS.linger_s,
        ge=1,
        description="How long fewer workers must have sufficed before any goes, at most: sooner "
        "where what came so far says that this is cheaper. All that are not needed may go once "
        "demand has been watched for six times as long.",
    )
    plan_limit_s: float = Field(
        1.0, ge=0, le=60, description="Time to search for a better plan; 0: best fit alone."
    )
    forecast: str = Field(
        "adaptive",
        description="How demand is forecast: 'adaptive', or 'learned' from what was seen, hourly.",
    )
    gateways: int = Field(
        0,
        ge=0,
        le=64,
        description="Gateway processes; 0: one on this machine, two on a cluster, and more while "
        "these have too much to do, up to one for each core.",
    )
    gateway_nodes: str = Field(
        "head",
        description="Where gateways run on a cluster: 'head', where they share the port, or the "
        "name of a Ray resource, of which each takes 1.",
    )
    tick_s: float = Field(1.0, ge=0.05, le=60, description="Period of the control loop.")
    max_body_mib: float = Field(16, gt=0, le=1024, description="Largest request body.")
    max_connections: int = Field(
        16_384,
        ge=1,
        le=1_000_000,
        description="Connections that one gateway takes, of HTTP and of gRPC each; fewer where "
        "fewer files may be open.",
    )
    max_connections_per_address: int = Field(
        0,
        ge=0,
        description="Of these from one address, or one /64 of IPv6; 0: 2,048, and any number on "
        "loopback or behind a proxy that ends TLS.",
    )
    max_model_mib: float = Field(2048, gt=0, description="Largest model file in a registration.")
    api_token: str = Field(
        "",
        description="Bearer token that requests must carry; empty: none, which only loopback may "
        "do without. At least 16 characters elsewhere.",
    )
    allowed_hosts: str = Field(
        "",
        description="Extra Host names to accept, separated by commas; '*' accepts any. "
        "Needed when all addresses are listened on.",
    )
    tls_cert: str = Field(
        "", description="PEM file with the gateway's certificate and its chain; empty: no TLS."
    )
    tls_key: str = Field(
        "", description="PEM file with the certificate's private key, without a password."
    )
    behind_tls_proxy: bool = Field(
        False,
        description="Whether a proxy in front ends TLS, so that requests may come unencrypted "
        "to an address other than loopback.",
    )
    listen_channel: str = Field(
        "unix", description="Tensor channel: 'unix' on one machine, 'tcp:HOST' across machines."
    )
    batching: str = Field(
        DEFAULTS.batching,
        description="How workers batch: 'profile', by deadline; 'aimd', where profiles mislead.",
    )
    late_share: float = Field(
        DEFAULTS.late_share,
        ge=0.0001,
        le=0.5,
        description="Share of the admitted queries that may be late: the smaller, the more are "
        "refused at once.",
    )
    eviction: str = Field(
        DEFAULTS.eviction,
        description="What leaves a memory that is short, for queries and for plans: 'modelless', "
        "by expected loss; or a published rule.",
    )
    log_level: str = Field("INFO", description="Least level that is logged.")

    # What only a replica would stumble over is refused here, before anything is started.

    @field_validator("host")
    @classmethod
    def _host(cls, host: str) -> str:
        if not is_address_or_name(host):
            raise ValueError(f"{host!r} is no IP address and no host name")
        return host

    @field_validator("grpc_port", mode="before")
    @classmethod
    def _no_port(cls, port: object) -> object:
        return 0 if port == "" else port

    @field_validator("tls_cert", "tls_key")
    @classmethod
    def _file(cls, path: str) -> str:
        # Replicas have another working directory than the command that started them.
        if path and not Path(path).expanduser().is_absolute():
            raise ValueError("it must be an absolute path")
        return str(Path(path).expanduser()) if path else ""

    @model_validator(mode="after")
    def _protected(self) -> Self:
        if self.grpc_port == self.port:
            raise ValueError(
                f"MODELLESS_GRPC_PORT and MODELLESS_PORT are both {self.port}: set one of them to"
                " another port, or MODELLESS_GRPC_PORT to 0 for no gRPC"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("MODELLESS_TLS_CERT and MODELLESS_TLS_KEY must be set together")
        reason = refusal(
            host=self.host,
            token=self.api_token,
            allowed_hosts=self.allowed_hosts,
            encrypts=bool(self.tls_cert),
            behind_tls_proxy=self.behind_tls_proxy,
        )
        if reason is not None:
            raise ValueError(reason)
        return self

    @field_validator("slices")
    @classmethod
    def _slices(cls, text: str) -> str:
        slices_of(text)
        return text

    @model_validator(mode="after")
    def _sliced_once(self) -> Self:
        if self.slices:
            for name, default in (("workers", 1), ("cores", 0), ("gpus", -1)):
                if getattr(self, name) != default:
                    raise ValueError(
                        f"MODELLESS_SLICES and MODELLESS_{name.upper()} are both set: each says "
                        "what workers there are, so unset one of them"
                    )
        _ = self.kinds  # raises where the memory of a GPU is not known
        return self

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, url: str) -> str:
        if url:
            parts = urlsplit(url)
            _ = parts.port  # raises when it is no number
            if parts.scheme not in ("redis", "rediss", "unix"):
                raise ValueError("it must start with redis://, rediss:// or unix://")
        return url

    @field_validator("listen_channel")
    @classmethod
    def _channel(cls, where: str) -> str:
        if where != "unix" and not (where.startswith("tcp:") and where[4:]):
            raise ValueError("it must be 'unix' or 'tcp:HOST'")
        return where

    @field_validator("gateway_nodes")
    @classmethod
    def _resource(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name) or name in ("CPU", "GPU", "memory"):
            raise ValueError("it must be 'head' or the name of a custom resource of Ray")
        return name

    @field_validator(*CHOICES)
    @classmethod
    def _choice(cls, name: str, info: ValidationInfo) -> str:
        known = CHOICES[str(info.field_name)]
        if name not in known:
            raise ValueError(f"it must be one of {', '.join(known)}")
        return name

    @field_validator("log_level")
    @classmethod
    def _level(cls, level: str) -> str:
        known = logging.getLevelNamesMapping()
        if level.upper() not in known:
            raise ValueError(f"it must be one of {', '.join(known)}")
        return level.upper()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, dotenv_settings)

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

        A number takes at least two bytes in JSON and at most eight as a tensor.
        """
        return max(64, math.ceil(4 * self.max_body_mib) + 1)

    @property
    def artifacts_dir(self) -> Path:
        return self.state_dir / "artifacts"

    @property
    def secret_path(self) -> Path:
        return self.state_dir / "channel.secret"

    @property
    def catalog_url(self) -> str:
        return self.database_url or f"sqlite:///{self.state_dir / 'catalog.db'}"

    @property
    def live_url(self) -> str:
        return self.redis_url or f"unix://{self.run_dir / 'valkey.sock'}"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The device kinds that this machine is split into, with how many workers each has.

        Without ``slices`` these are the cores, divided by the number of workers, and a worker for
        each GPU.
        """
        slices = slices_of(self.slices)
        if not slices:
            cores = max(1, (self.cores or machine_cores()) // self.workers)
            slices = (
                Slice(name=cpu_kind(cores), cores=cores, most=self.workers),
                *gpu_slices(machine_gpus(), self._most_gpus),
            )
        return filled_in(
            slices,
            memory_mib=self.worker_memory_mib,
            all_memory_mib=psutil.virtual_memory().total / 2**20 / 2,
            usd_per_core_hour=self.usd_per_core_hour,
            elastic=self.elastic,
            usd_per_gpu_hour=self.usd_per_gpu_hour,
            gpus=machine_gpus() if any(one.gpu is not None for one in slices) else (),
        )

    @property
    def _most_gpus(self) -> int:
        """On a cluster none that was not asked for: applications may be made on any machine."""
        return (0 if self.ray_address else MOST_WORKERS) if self.gpus < 0 else self.gpus

    @property
    def sliced_by(self) -> str:
        """The setting that says what workers there are."""
        return f"{PREFIX}SLICES" if self.slices else f"{PREFIX}WORKERS"

    @property
    def all_cores(self) -> int:
        """Cores of all workers together."""
        return sum(one.cores * one.most for one in self.kinds)

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
        if self.slices or self.all_gpus:
            counted |= {"slices": written(self.kinds), "workers": 1, "cores": 0, "gpus": -1}
        else:
            counted["gpus"] = 0
            counted["cores"] = self.all_cores
            counted["worker_memory_mib"] = self.kinds[0].memory_mib
        return self.model_copy(update=counted)


def load_settings(**overrides: object) -> Settings:
    """Settings from overrides, then the environment, then the state directory's file.

    Raises:
        InvalidInput: a setting is wrong, or the file cannot be read; the sentence names it.
    """
    state_dir = Path(str(overrides.get("state_dir") or _default_state_dir())).expanduser()
    # Replicas have another working directory than the command that started them.
    overrides = {name: value for name, value in overrides.items() if value is not None}
    overrides["state_dir"] = state_dir = state_dir.absolute()
    file = state_dir / FILE
    try:
        return Settings(_env_file=file, **overrides)  # type: ignore[call-arg, arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # it is about several, and names them
            raise InvalidInput(message) from error
        name = str(first["loc"][0]).upper().removeprefix("MODELLESS_")
        raise InvalidInput(f"setting MODELLESS_{name}: {message}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"{file} cannot be read: {reason}") from error


def machine_cores() -> int:
    """Cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0))


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
