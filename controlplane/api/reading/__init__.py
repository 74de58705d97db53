"""Routes that change nothing: ``catalog`` (what is registered), ``running`` (what goes on) and
``events`` (what happened, each of one of the ``event_kinds``).

They may import what ``controlplane.api`` may, and its modules but ``routes``.
"""
