"""Each setting: its name, its default, what it means and which values it takes."""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AliasChoices, Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from controlplane.access.bearer import UNSENDABLE, tidied
from controlplane.access.exposure import hosts_in, is_address_or_name, origins_in, refusal
from controlplane.slices import slices_of
from planner.batching.registry import BATCHING
from planner.eviction.registry import RULES
from planner.planning_settings import DEFAULTS
from planner.types import Objective
from variants.artifacts.s3 import parts_of
from variants.errors import InvalidInput

PREFIX = "MODELLESS_"
CHOICES: dict[str, tuple[str, ...]] = {
    "batching": tuple(BATCHING),
    "eviction": tuple(RULES),
    "objective": tuple(Objective),
    "forecast": ("adaptive", "learned"),
    "log_format": ("text", "json"),
}
"""Settings that are one of a few names."""


def grams_in(text: str) -> tuple[float, ...]:
    """CO2 of a kWh, once or by the hour of the day; nothing where it is not known."""
    parts = text.split()
    if len(parts) not in (0, 1, 24) or not all(re.fullmatch(r"\d+(\.\d+)?", one) for one in parts):
        raise ValueError("it must be one number, or 24 with spaces between them")
    return tuple(map(float, parts))


def parts_of_url(url: str) -> SplitResult:
    """The parts of a URL that may hold a password, which no error shows."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # it quotes the URL
        raise ValueError("it must be a URL, and its port a number up to 65535") from None
    return parts


WRITTEN: dict[str, Callable[[str], object]] = {
    "allowed_hosts": hosts_in,
    "carbon_g_per_kwh": grams_in,
    "cors_origins": origins_in,
    "slices": slices_of,
}
"""Settings that say more than a number or a name, and what reads them or says what is wrong."""


def default_state_dir() -> Path:
    return Path(os.environ.get("MODELLESS_STATE_DIR") or Path.home() / ".modelless")


class GivenSettings(BaseSettings):
    """How one installation runs. Everything has a default that works on a laptop."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=False, hide_input_in_errors=True
    )
    """What is refused is not shown: it may hold a password."""

    state_dir: Path = Field(
        default_factory=default_state_dir, description="Where everything is kept."
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
    nodes: int = Field(
        0,
        ge=0,
        description="Nodes of a cluster that may have workers, for which `modelless up` waits, up "
        "to 10 minutes, before it looks which kinds they are; 0: it takes those that are there.",
    )
    workers: int = Field(
        0,
        ge=0,
        le=256,
        description="Workers to split this machine's cores into; 0: one, and from 8 cores on "
        "several of 4 cores and more, 8 at most. Of a cluster's nodes each is one.",
    )
    cores: int = Field(
        0,
        ge=0,
        description="Cores to give to workers in all; 0: all of them, or those that a container's "
        "quota amounts to.",
    )
    slices: str = Field(
        "",
        description="Device kinds to split this machine into, instead of workers of one kind: "
        "'2xcpu-1,1xcpu-2', or several layouts, of which plans choose; "
        "empty: as MODELLESS_WORKERS says; 'found', on a cluster: those that "
        "its nodes are, also where no command looks at them before the start.",
    )
    gpus: int = Field(
        -1,
        ge=-1,
        le=256,
        description="GPUs to give to workers, one to each; -1: all that this machine has, or "
        "that `modelless up` finds on the nodes of a cluster.",
    )
    pin_cores: bool = Field(
        False,
        description="Whether each worker without a GPU keeps to cores of its own, all of one NUMA "
        "node where that has enough; else the system moves workers about.",
    )
    fork_workers: bool = Field(
        True,
        description="Whether Ray's processes on this machine are forked from one that has imported "
        "Ray already, which starts them sooner and shares memory; else each imports by itself.",
    )
    worker_memory_mib: float = Field(
        0,
        ge=0,
        description="What variants may take on one worker without a GPU, beside an eighth of that, "
        "and 1,024 at most, for the batch that runs; 0: half of the memory, "
        "or of a container's limit, shared.",
    )
    usd_per_core_hour: float = Field(0.04, ge=0, description="Price of one core for an hour.")
    usd_per_gpu_hour: float = Field(2.5, ge=0, description="Price of one GPU for an hour.")
    idle_w: float = Field(0, ge=0, description="Watts of an idle worker; 0: as counters say.")
    carbon_g_per_kwh: str = Field(
        "",
        description="CO2 of a kWh: one number, or 24 by the hour in UTC, with spaces between; "
        "empty: not known.",
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
        "these have too much to do, up to one for each core and 8 in all, but no more where there "
        "are two cores; fixed where each has a node of its own.",
    )
    gateway_nodes: str = Field(
        "head",
        description="Where gateways run on a cluster: 'head', where they share the port, or the "
        "name of a Ray resource, of which each takes 1.",
    )
    tick_s: float = Field(1.0, ge=0.05, le=60, description="Period of the control loop.")
    max_body_mib: float = Field(16, gt=0, le=1024, description="Largest request body.")
    shared_memory_mib: int = Field(
        128,
        ge=0,
        le=65_536,
        description="Memory in which one gateway lends large tensors to the workers of its "
        "machine, at most, for all of them together; 0: none, tensors go through the sockets.",
    )
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
    idle_connection_s: float = Field(
        75.0,
        ge=1,
        le=86_400,
        description="How long a connection without a request stays open; longer than a proxy in "
        "front keeps one, or else it sends queries on connections that are being closed.",
    )
    max_model_mib: float = Field(2048, gt=0, description="Largest model file in a registration.")
    build_cache_mib: float = Field(
        4096,
        ge=0,
        description="Most that the build cache may take: what registrations have built and "
        "measured, in `build-cache` in the state directory; 0: nothing is kept.",
    )
    artifacts_url: str = Field(
        "",
        description="Bucket that keeps the artifacts, with a prefix for each installation: "
        "'s3://bucket/prefix?endpoint=URL&region=NAME'; empty: the state directory does, on a "
        "cluster that of the head.",
    )
    artifact_cache_mib: float = Field(
        20_480,
        gt=0,
        description="Most that copies of artifacts may take on a machine that does not see where "
        "they are kept.",
    )
    api_token: str = Field(
        "",
        description="Bearer token that requests must carry; empty: none, which only loopback may "
        "do without. At least 16 characters elsewhere.",
    )
    client_keys: str = Field(
        "",
        description="File with the keys of clients, which is read again when it changes; empty: "
        "'client-keys' in the state directory.",
    )
    compress_answers: bool = Field(
        False,
        description="Compress JSON answers of 16 to 256 KiB over HTTP for clients that accept it, "
        "for slow networks: it takes the gateway 12 us per KiB.",
    )
    allowed_hosts: str = Field(
        "",
        description="Extra Host names to accept, separated by commas; '*' accepts any. "
        "Needed when all addresses are listened on.",
    )
    cors_origins: str = Field(
        "",
        description="Origins of web pages that may ask queries from a browser, separated by commas:"
        " 'https://app.example.com'; '*': any; empty: none but the gateway's own.",
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
    zone: str = Field(
        "",
        max_length=128,
        description="Zone of the machine that a gateway runs on; empty: that of its node's label "
        "`topology.kubernetes.io/zone` or `ray.io/availability-zone`, if it has one.",
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
    trust_feedback: str = Field(
        "",
        description="Tasks of which accuracy is what clients say of answers, as soon as that is "
        "something else than was measured: names with commas between, or 'all'; empty: it is told, "
        "and nothing goes by it.",
    )
    answers_span_s: float = Field(
        3_600.0,
        gt=0,
        description="Seconds of answers that are held against the first ones, and how long these "
        "are collected at least; 86400 where what is asked differs by the time of day.",
    )
    eviction: str = Field(
        DEFAULTS.eviction,
        description="What leaves a memory that is short, for queries and for plans: 'modelless', "
        "by expected loss; or a published rule.",
    )
    traces_url: str = Field(
        "",
        description="Where traces of queries are sent to, by OTLP over HTTP: "
        "'http://127.0.0.1:4318/v1/traces'; empty: nowhere.",
    )
    traces_share: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of the queries that are traced, of those whose sender says nothing "
        "about it; of what ends badly some are traced in any case.",
    )
    log_level: str = Field("INFO", description="Least level that is logged.")
    log_format: str = Field(
        "text",
        description="How gateways, control loop and workers log: 'text', or 'json', an object on "
        "each line.",
    )

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

    @field_validator(*WRITTEN)
    @classmethod
    def _readable(cls, text: str, info: ValidationInfo) -> str:
        WRITTEN[str(info.field_name)](text)
        return text

    @field_validator("api_token")
    @classmethod
    def _token_is_sendable(cls, token: str) -> str:
        try:
            return tidied(token)
        except InvalidInput:
            raise ValueError(UNSENDABLE) from None

    @field_validator("tls_cert", "tls_key", "client_keys")
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

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, url: str) -> str:
        if url:
            parts = parts_of_url(url)
            if parts.scheme not in ("redis", "rediss", "unix"):
                raise ValueError("it must start with redis://, rediss:// or unix://")
        return url

    @field_validator("traces_url")
    @classmethod
    def _collector(cls, url: str) -> str:
        if url:
            parts = parts_of_url(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("it must be an address such as 'http://127.0.0.1:4318/v1/traces'")
            if "@" in parts.netloc:  # logs show it, and Ray's configurations
                raise ValueError(
                    "it must be without a user and a password: put a key into "
                    "OTEL_EXPORTER_OTLP_HEADERS"
                )
        return url

    @field_validator("artifacts_url")
    @classmethod
    def _bucket(cls, url: str) -> str:
        if url:
            try:
                parts_of(url)
            except InvalidInput as error:
                raise ValueError(error.message) from error
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
