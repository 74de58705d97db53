"""The page at ``/`` over the control API with a catalog in memory, for a browser to open."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.settings import load_settings
from tests.controlplane.api.served_api import ServedApi
from tests.controlplane.builders import CPU, DIGITS, DictLive, digits_catalog, worker
from tests.controlplane.dashboard.browser import show
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import DeviceKind, LatencyPoint, Placement, Plan, Profile, VariantName, WorkerId

INT8 = VariantName("mlp-v1-onnx-int8")
FP32 = VariantName("mlp-v1-onnx-fp32")


class Page:
    """A control API of four-core workers, and its page as a browser shows it."""

    def __init__(self, folder: Path) -> None:
        settings = load_settings(state_dir=folder, cores=4)
        self.catalog: MemoryCatalog = digits_catalog()
        self.live = DictLive(worker("w1", INT8))
        self.folder = folder
        context = self.context = ApiContext(
            catalog=self.catalog,
            store=FileArtifactStore(settings.artifacts_dir),
            settings=settings,
            live=self.live,
        )
        self.api = build_api(context)
        self._served = ServedApi(self.api)

    def __enter__(self) -> "Page":
        self._served.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._served.__exit__()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nothing answers at the page's address meanwhile."""
        self.__exit__()
        yield
        self._served = ServedApi(self.api, self._served.port)
        self.__enter__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._served.port}/"

    def plan(self, share: float = 0.0, others: float | None = None) -> None:
        """The only worker holds the int8 variant, with a share of its time; and maybe another."""
        shares = {INT8: share} if others is None else {INT8: share, FP32: others}
        self.catalog.put_plan(
            Plan(
                version=0,
                epoch=self.catalog.acquire_leadership("test"),
                placements=tuple(
                    Placement(worker=WorkerId("w1"), task=DIGITS.name, variant=variant, share=part)
                    for variant, part in shares.items()
                ),
                workers={CPU.name: 1},
                explanation=("w1 holds 1 of 4 variants.",),
                created_at="2026-01-01T00:00:00+00:00",
            )
        )

    def measure(self, kind: DeviceKind, p95_ms: float) -> None:
        """Every variant takes as long on a kind."""
        point = LatencyPoint(batch_size=1, p50_ms=p95_ms, p95_ms=p95_ms, p99_ms=p95_ms)
        profiles = tuple(
            Profile(
                task=one.task,
                variant=one.name,
                device_kind=kind.name,
                points=(point,),
                memory_mib=10.0,
                load_s=0.5,
            )
            for one in self.catalog.snapshot().variants
        )
        self.catalog.put_profiles(profiles, (kind,))

    def shown(self) -> dict[str, str]:
        """The text of each part of the page, and the class of the banner and the health."""
        page = show(self.url, self.folder)
        assert page.console == []
        body = page.body
        found = {}
        for tag, attributes, id_ in re.findall(r'<(\w+)([^>]*\bid="([\w-]+)"[^>]*)>', body):
            inner = re.search(rf'<{tag}[^>]*id="{id_}"[^>]*>(.*?)(?=<\w+[^>]*\bid=|</main>)', body,
                              re.DOTALL)  # fmt: skip
            text = re.sub(r"<[^>]+>", " ", inner[1] if inner else "")
            found[id_] = " ".join(unescape(text).split())
            found[f"{id_}.is"] = attributes
        return found
