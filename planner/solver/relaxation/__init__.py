"""Plans for large problems from programs that forget which device is which, with their bounds.

In come the options of a problem; out come a plan and what no plan can beat. Read ``bound`` (one
large device of each kind) with ``useful_options`` (what of the options that leaves out),
``aggregate`` (plans packed from it) and ``interference`` (devices that a variant has alone, and
shared ones).

May import what stands before ``solve`` in ``planner.solver``, without ``columns``.
"""
