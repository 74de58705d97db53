"""What one catalog has registered, in another one."""

from variants.catalog.protocol import Catalog
from variants.types import CatalogSnapshot, Registration


def copy_registrations(found: CatalogSnapshot, there: Catalog) -> None:
    """Register there what is registered here, with the profiles as they are."""
    tasks = {task.name: task for task in found.tasks}
    for version in found.versions:
        variants = tuple(v for v in found.variants if v.model_version == version.label)
        names = {variant.name for variant in variants}
        there.register(
            Registration(
                task=tasks[version.task],
                version=version,
                variants=variants,
                profiles=tuple(p for p in found.profiles if p.variant in names),
                device_kinds=found.device_kinds,
            )
        )
