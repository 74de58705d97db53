"""Routes of a version's life: ``registering`` (an upload, and how far it is), ``stages`` (what it
may answer), ``canaries`` (its share of the queries while it proves itself, and the way back) and
``removal`` (of a retired one, or of a task with all its models).

They may import what ``controlplane.api`` may, and its modules but ``routes``.
"""
