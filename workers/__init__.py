"""Workers: one process for each slice of hardware, which holds variants and answers queries.

In come, over the tensor channel, queries (tensors with a deadline) and orders to load and unload
variants (``LoadSpec``); out go replies, refusals, and once a second a ``WorkerStatus``.

Read ``types`` first (what travels), then ``host`` (what one worker consists of), then the rooms:
``channel`` (frames, the client's side, the secret), ``execution`` (queueing, running, loading),
``runtimes`` (the back ends) and ``process`` (crashes, priority, output streams). ``finite`` is
asked of every tensor. ``deployment``
puts a host into a replica of Ray Serve; it and ``replica`` (what every replica of ours is to Serve)
are the only files here that know Ray.

May import: ``planner`` and ``variants``.
"""
