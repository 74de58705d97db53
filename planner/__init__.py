"""Every decision of the system, as pure functions: no clock, disk, network, thread or Ray.

Values come in (what the catalog, the workers and the queries say, the time, random bits), and
values go out: a choice, a refusal, a plan, actions. ``workers`` and ``controlplane`` act on them.

Read ``types`` first, then ``selection`` (which variant and worker answer a query), ``canary``
(which queries a new version gets, and what they show of it), ``feedback`` (what clients say of
accuracy, beside what was measured), ``batching`` (what a worker admits and runs next),
``forecasting`` (what demand to expect), ``reconcile`` (what a tick of the control loop changes),
``solver`` (the planning problem behind it), ``layouts`` (how machines are split), ``eviction``
(what leaves when memory is short), ``residency`` (what operators said of that), ``zones`` with
``zone_demand`` (near workers first) and ``headroom`` (how much more could be served).
``simulation`` and ``policies`` replay a trace against all this (``simulate``), ``bounds`` says what
nobody could beat on it, and ``approximate`` plays a sample of a long one.

How long batches take stands in ``latency_curve`` (a profile) and ``latency_table`` (for each number
of rows); ``live_model`` and ``rhythms`` learn it from batches, ``interference`` what variants cost
each other, ``slow_workers`` which workers are left out, and ``profile_drift`` and
``doubtful_profiles`` which profiles are in doubt. ``planning_settings`` is what operators set of
all this, ``energy`` what it takes of it, ``sentences`` its reasons in words; ``worker_starts``,
``upper_hull`` and ``steps`` are tools of several.

The package may import ``variants`` and nothing else of the project. Nothing but ``bounds``,
``policies``, ``planner.simulate`` and ``approximate`` imports ``simulation``.
"""
