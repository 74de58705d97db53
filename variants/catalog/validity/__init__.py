"""What a catalog takes: every place that keeps one (memory, SQL) asks these before it writes.

``registrations`` (models, variants, profiles, plans), ``buckets``, ``canaries``, ``peaks``,
``rules``, ``sharing`` and ``texts`` raise the typed error that people read, and change nothing.
"""
