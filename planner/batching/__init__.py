"""Batching: what one slice admits, and which batch it runs next.

In comes a query with its variant, its rows and its deadline; out come a ``Verdict`` on it and, each
time the slice is free, the ``Batch`` to run. Workers and the simulator drive the same queues.

Read ``protocol`` first (what any queue answers), then ``variant_queues`` (what waits for one
variant, and how long it takes) and ``waiting_queries`` (what waits on the slice, and what it adds
up to). ``deadline_queue`` is the product's rule; behind it stand ``feasible_schedule`` with
``planned_batches`` (the proof that every query is in time), ``schedule_search`` (how such a
schedule is found), ``tight_budgets``, ``fairness``, ``refusal_order`` and ``queue_room`` (who is
refused first), and ``live_costs`` (what its batches were seen to take). ``aimd``, with
``waiting_deadlines``, is the rule that needs no profile. ``registry`` names the rules.

May import: the planner's ``types``, ``planning_settings`` and what knows how long batches take, and
``variants``. No clock: times are arguments, in ms.
"""
