"""What one catalog has registered, in another one."""

from variants.catalog.protocol import Catalog
from variants.types import CatalogSnapshot, Registration


def copy_registrations(found: CatalogSnapshot, there: Catalog) -> None:
    """Register there what is registered here, with the profiles as they are."""
    tasks = {task.name: task for task in found.tasks}
    for version in found.versions:
        of_it = (version.task, version.label)
        variants = tuple(v for v in found.variants if (v.task, v.model_version) == of_it)
        keys = {variant.key for variant in variants}
        there.register(
            Registration(
                task=tasks[version.task],
                version=version,
                variants=variants,
                profiles=tuple(p for p in found.profiles if (p.task, p.variant) in keys),
                device_kinds=found.device_kinds,
            )
        )
