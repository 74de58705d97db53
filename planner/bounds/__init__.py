"""What no policy can beat on a trace: fewest violations, highest accuracy, least cost.

In: a ``Setting``, a ``Trace`` and what each device kind can hold. Out: a ``Bound``, which says for
any number of queries in time how accurate and how cheap they can be at most. The derivation and
why it is valid: docs/decisions/0018-bound.md.

Read ``windows`` (time is cut into pieces), ``row_times`` (how little device time a query can take),
``classes`` (queries that are alike become one), ``devices`` (how much device time there is),
``program`` (a linear program finds prices of device time), ``ceilings`` (prices become a bound by
weak duality, whatever prices they are) with ``lines``, ``rent`` with ``lives`` (the same for
devices that are ordered and released), ``whole`` (the same with whole devices, by a mixed integer
program) and ``bound`` (all of it together).

May import the planner's ``types``, ``latency_table`` and ``simulation``, ``variants``, NumPy and
SciPy. No clock, no randomness: the same input gives the same bound.
"""
