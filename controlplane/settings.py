"""Settings: the one place that reads the environment and the settings file.

Each field is set by ``MODELLESS_<NAME>`` in the environment, or by the same name in lower case in
``settings.env`` in the state directory; the environment wins.
"""

import logging
import math
import os
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from planner.queue import BATCHING
from planner.types import Objective
from variants.errors import InvalidInput

CHOICES: dict[str, tuple[str, ...]] = {
    "batching": tuple(BATCHING),
    "objective": tuple(Objective),
    "forecast": ("adaptive", "learned"),
}
"""Settings that are one of a few names."""


def _default_state_dir() -> Path:
    return Path(os.environ.get("MODELLESS_STATE_DIR") or Path.home() / ".modelless")


class Settings(BaseSettings):
    """How one installation runs. Everything has a default that works on a laptop."""

    model_config = SettingsConfigDict(env_prefix="MODELLESS_", extra="ignore", frozen=False)

    state_dir: Path = Field(
        default_factory=_default_state_dir, description="Where everything is kept."
    )
    host: str = Field("127.0.0.1", description="Address the gateway listens on.")
    port: int = Field(8000, ge=1, le=65535, description="Port the gateway listens on.")
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
    worker_memory_mib: float = Field(
        0, ge=0, description="What variants may take on one worker; 0: half of the memory, shared."
    )
    usd_per_core_hour: float = Field(0.04, ge=0, description="Price of one core for an hour.")
    objective: str = Field(
        "cost", description="What plans optimise: 'cost', or 'accuracy' of all that is served."
    )
    elastic: bool = Field(
        False,
        description="Whether plans decide how many workers run, up to the inventory; "
        "else the inventory runs.",
    )
    linger_s: float = Field(
        300.0, ge=1, description="How long fewer workers must have sufficed before any goes."
    )
    plan_limit_s: float = Field(
        1.0, ge=0, le=60, description="Time to search for a better plan; 0: best fit alone."
    )
    forecast: str = Field(
        "adaptive",
        description="How demand is forecast: 'adaptive', or 'learned' from what was seen, hourly.",
    )
    gateways: int = Field(1, ge=1, le=64, description="Gateway processes sharing the port.")
    tick_s: float = Field(1.0, ge=0.05, le=60, description="Period of the control loop.")
    max_body_mib: float = Field(16, gt=0, le=1024, description="Largest request body.")
    max_model_mib: float = Field(2048, gt=0, description="Largest model file in a registration.")
    api_token: str = Field("", description="Bearer token that requests must carry; empty: none.")
    allowed_hosts: str = Field(
        "", description="Extra Host names to accept, separated by commas; '*' accepts any."
    )
    listen_channel: str = Field(
        "unix", description="Tensor channel: 'unix' on one machine, 'tcp:HOST' across machines."
    )
    batching: str = Field(
        "profile",
        description="How workers batch: 'profile', by deadline; 'aimd', where profiles mislead.",
    )
    log_level: str = Field("INFO", description="Least level that is logged.")

    # What only a replica would stumble over is refused here, before anything is started.

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
        if self.url:
            return self.url
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

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
    def worker_cores(self) -> int:
        """Cores of one worker."""
        total = self.cores or len(os.sched_getaffinity(0))
        return max(1, total // self.workers)

    @property
    def device_kind(self) -> str:
        return f"cpu-{self.worker_cores}"

    @property
    def memory_mib(self) -> float:
        """What variants may take on one worker."""
        if self.worker_memory_mib:
            return self.worker_memory_mib
        return psutil.virtual_memory().total / 2**20 / 2 / self.workers

    @property
    def usd_per_hour(self) -> float:
        """Price of one worker."""
        return self.usd_per_core_hour * self.worker_cores


def load_settings(**overrides: object) -> Settings:
    """Settings from overrides, then the environment, then the state directory's file.

    Raises:
        InvalidInput: a setting is wrong, or the file cannot be read; the sentence names it.
    """
    state_dir = Path(str(overrides.get("state_dir") or _default_state_dir())).expanduser()
    # Replicas have another working directory than the command that started them.
    overrides = {name: value for name, value in overrides.items() if value is not None}
    overrides["state_dir"] = state_dir = state_dir.absolute()
    file = state_dir / "settings.env"
    try:
        return Settings(_env_file=file, **overrides)  # type: ignore[call-arg, arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).upper().removeprefix("MODELLESS_")
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"setting MODELLESS_{name}: {message}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"{file} cannot be read: {reason}") from error
