"""Column generation over device configurations, for plans in which memory lets few variants share.

In come the options of a problem and a plan to begin with; out come a plan and a bound on all plans
that serve everything. Read ``column`` (what one device can be), ``menus`` (what could run on one),
``rounding`` (cuts for whole devices), ``prices``, ``lagrange``, ``completion`` and ``pricing`` (the
best device of a menu at given prices), ``devices`` (of all menus), ``master`` (the relaxation that
finds the prices, and its bound) and ``dive`` (whole devices from it).

May import what stands before ``solve`` in ``planner.solver``, and NumPy.
"""
