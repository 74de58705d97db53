"""Approximate simulation: long rate traces and large fleets, by playing a sample of the time.

A week at 20,000 queries per second is 12,000,000,000 queries, which nobody can play one by one. So:

* The control loop runs through all of the time: counts are drawn for every tick, and production's
  own forecast, tick and plan order devices and load variants as they do in ``planner.simulate``.
* The queries of a few seconds in each window are played one by one, by the same engine, on the
  fleet and the plan as they are then. Their outcome stands for the window.
* A fleet of more than ``planner.approximate.sample.DEVICES`` is made smaller, and the rates with
  it: each device, and each query, then stands for several.

In: a ``Setting`` and a ``RateTrace``. Out: an ``Approximation``: a ``Report``, and how far chance
may have moved it.

Read ``rates`` (what goes in), ``sample`` (what is played), ``sampled_policy`` (the control loop
between), ``sampled_tally`` (from the sample to the whole) and ``approximate``.

May import all of ``planner``. No clock, no disk, no network; randomness comes from the setting's
seed.
"""
