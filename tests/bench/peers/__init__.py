"""Peers: us beside the model server that comes nearest, on the same models with the same client.

``make bench-peers`` installs what it needs, each in an environment of its own under ``.clients``,
and runs it. Read ``__main__`` (what is measured), ``models``, ``servers`` (starting both),
``goodput`` (the highest rate in time), ``shares`` (what is in time at each rate, pooled over
rounds), ``mosec_server`` and ``loadgen_session`` (run by environments of their own, and importing
nothing of ours).
"""
