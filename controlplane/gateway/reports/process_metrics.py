"""What the gateway's process takes, as ``prometheus_client`` reads it from the operating system.

Of several gateways that share a port one answers: each names itself, so that no series jumps from
one process to another.
"""

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric


def process_metrics(gateway: str) -> list[Metric]:
    """``process_*`` of this process, with the gateway's id; nothing where there is no ``/proc``."""
    found = []
    for family in ProcessCollector(registry=None).collect():
        named = Metric(family.name, family.documentation, family.type)
        for sample in family.samples:
            named.add_sample(sample.name, {"gateway": gateway}, sample.value)
        found.append(named)
    return found
