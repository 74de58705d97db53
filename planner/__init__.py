"""Every decision of the system, as pure functions: no clock, disk, network, thread or Ray.

Values come in (what the catalog, the workers and the queries say, the time, random bits), and
values go out: a choice, a refusal, a plan, actions. ``workers`` and ``controlplane`` act on them.

Read ``types`` first, then ``selection`` (which variant and worker answer a query), ``canary``
(which queries a new version gets, and what they show of it), ``batching`` (what a worker admits and
runs next), ``forecasting`` (what demand to expect), ``reconcile`` (what a tick of the control loop
changes), ``solver`` (the planning problem behind it), ``layouts`` (how machines are split) and
``eviction`` (what leaves when memory is short). ``simulation`` and ``policies`` replay a trace
against all this, ``bounds`` says what nobody could beat on it, and ``approximate`` plays a sample
of a long one.

The package may import ``variants`` and nothing else of the project. Nothing but ``bounds``,
``policies``, ``planner.simulate`` and ``approximate`` imports ``simulation``.
"""
