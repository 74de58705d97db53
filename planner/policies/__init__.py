"""Policies: what to do with a query and with a fleet, behind one protocol, to be compared.

In: a ``Brief`` (the setting of a simulation) and its ``Fleet``. Out: a ``Policy``, which chooses a
variant and a worker for each query, makes the queues of workers, and acts at its ticks.

Read ``planner.simulation.policy`` (the protocol), ``registry`` (the names), ``modelless`` (ours:
the functions that production calls, with production's defaults) and ``several_gateways``; then
``static`` with ``allocation`` (Clipper and fixed choices), ``published`` (other systems, from their
papers) and ``autoscalers`` (what people would run instead). ``live_latency`` is ours where profiles
are wrong, ``layout_watch`` where a machine may be split in several ways.
``offers`` is what they share, ``fifo`` and ``earliest`` are their queues, both a
``limited_queue``.

May import all of ``planner`` but ``planner.simulate`` and the simulation's engine, which call them.
"""
