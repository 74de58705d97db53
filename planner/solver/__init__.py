"""The solver: which devices to open, and which variants run there, for a given demand.

In comes a ``Problem`` (offers, available device kinds, demand) with an objective and a time limit;
out comes a ``Solution`` with a bound that says how much better any plan could be. ``power`` asks
for least power.

Read ``problem`` first (the model), then ``solve`` (the steps), ``capacity`` and ``options`` (what
may serve a class), ``device``, ``partial_solution``, ``best_fit`` and ``greedy`` (a plan at once),
``least_devices``, ``packing`` and ``relaxation`` (large problems), ``columns`` (large ones where
memory lets few variants share a device), ``configurations`` and ``exact`` (small ones).
``milp`` alone knows OR-tools; ``check`` verifies a solution and shares no code with the rest.

May import: the planner's ``types``, ``latency_curve``, ``upper_hull`` and ``energy``, the rule of
``selection.eligibility``, ``variants``, NumPy, and OR-tools lazily. Array lengths: "per class",
"per kind" and "per option" follow the order of ``Problem.demand``, ``Problem.kinds`` and
``Options.all``. No clock: the time that is left comes in as a function.
"""
