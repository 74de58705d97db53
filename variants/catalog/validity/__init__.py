"""What a catalog takes: every place that keeps one (memory, SQL) asks these before it writes.

``registrations`` (versions and variants), ``tasks``, ``profiles``, ``plans``, ``buckets``,
``canaries``, ``promoting``, ``peaks``, ``rules``, ``sharing``, ``spaces`` and ``texts`` raise the
typed error that people read, and change nothing. ``plain_values`` is what names, numbers and texts
may be, and ``absent`` what is said of names that are not there.
"""
