"""The tensor channel: frames between a gateway or the control loop and a worker.

In come tensors, load and unload requests, and bytes from a socket. Out go bytes, replies and
workers' reports. Both sides prove that they know the cluster secret before anything else is said.

Read ``frames`` (the bytes), ``messages`` (control messages as JSON), ``secret`` and ``handshake``,
``outbox`` (what leaves in one turn of the event loop), ``round_trip`` (how far away a worker is),
``shared_clock`` (deadlines between processes of one machine), ``extents``, ``shared_memory`` and
``lending`` (large tensors, which do not go through the socket), ``address``, ``reply``,
``queue_news`` (what a worker tells of its queue beside its replies), ``session``
(one connection: its handshake, what arrives on it, its end), ``client`` (what is asked over it) and
``pool`` (one connection to each worker that a process knows). The worker's side of the channel is
``workers.execution.listening.server``.

It may import ``variants``, the planner's ``types``, ``workers.types``, ``workers.process`` and
``workers.runtimes.protocol``.
"""
