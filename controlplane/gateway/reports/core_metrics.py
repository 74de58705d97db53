"""How the cores of machines are used, as metrics: what gateways and workers say of it."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from controlplane.views.machines.core_shortage import machines
from variants.core_time import CoreTime

_OF_NODES = {
    "cores": ("modelless_node_cores", "Cores that gateways and workers may run on"),
    "used": ("modelless_node_cores_used", "Cores that gateways and workers keep busy"),
    "busy": ("modelless_node_cores_busy", "Cores that any program keeps busy"),
    "stolen": ("modelless_node_cores_stolen", "Cores that a hypervisor gives to other machines"),
    "waited": (
        "modelless_node_cores_waited_ratio",
        "Share of the time in which something waited for a core",
    ),
    "delayed": (
        "modelless_node_cores_delayed_ratio",
        "Share of its time with something to do in which a gateway or worker had no core",
    ),
    "throttled": (
        "modelless_node_cores_throttled_ratio",
        "Share of the time in which a quota held processes back",
    ),
}
"""By field of ``CoreTime``."""


def core_metrics(readings: Iterable[CoreTime]) -> Iterator[Metric]:
    """One series for each machine; none of what its kernel does not tell."""
    found = machines(readings)
    for field, (name, meaning) in _OF_NODES.items():
        family = GaugeMetricFamily(name, meaning, labels=["host"])
        for one in found:
            value = getattr(one, field)
            if value is not None:
                family.add_metric([one.host], value)
        yield family
