"""The simulator: it plays the hardware, its clock and the thin shell around the decisions.

In: a ``Setting`` (catalog, devices, rules), a ``Trace`` of queries and a policy. Out: a ``Report``,
with totals and a timeline. ``planner.simulate.simulate`` runs one from these.

Read ``setting``, ``trace`` and ``queries`` (what goes in), ``policy`` (the protocol), ``fleet``
(devices and replicas), ``memory`` (what leaves a full one) with ``loads`` (what comes), ``devices``
(they come, go and fail), ``played_latencies`` (they take other times than profiles say) with
``shared_cores`` and ``energy_meter``, ``engine`` (arrivals, batches and ticks, one event after the
other), ``tally`` and ``results`` (what comes out) with ``impossible`` (what no policy could have
answered).

May import all of ``planner`` but ``planner.policies``: policies import this package. No clock, no
disk, no network; randomness comes from the setting's seed.
"""
