"""Routes that change nothing: ``catalog`` (what is registered) and ``running`` (what goes on).

They may import what ``controlplane.api`` may, and its modules but ``routes``.
"""
