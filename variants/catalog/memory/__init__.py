"""A catalog in the memory of one process: for tests, simulations and trying things out.

``records`` (plans, ticks, events and the like), ``operators`` (what they say), ``canaries``,
``tasks`` (what is changed, and what leaves) and ``catalog`` (what is registered) stand on one
another, as the parts of the catalog in a database do.
"""

from variants.catalog.memory.catalog import MemoryCatalog

__all__ = ["MemoryCatalog"]
