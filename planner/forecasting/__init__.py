"""Forecasting: from counts of arrivals to the demand that is planned for.

In come rows counted by task and SLO class, and the time that the count covers; out come ``Demand``
values, rates per class: what is expected over the next minute at a quantile, and the most that was
expected lately.

Read ``demand`` first (SLO classes, and rates from counts), then ``demand_estimator`` (what the
control loop asks) with ``estimator_of`` (which one, by the settings), ``provisioning`` (how much
more to provide) and ``chance_room`` (how much room for chance beside that), ``forecast`` (the
protocol of a forecaster, and the split of totals by class), and behind it ``buckets`` with
``latest_counts`` (counts over equal spans), ``point_forecasts``, ``empirical_quantiles`` and
``calibration``. ``memory`` is how all of them are kept over a restart, ``peaks`` what operators
declare, and ``row_costs`` the unit of demand.

May import: the planner's ``types`` and ``planning_settings``, ``variants`` and NumPy. No clock:
times are arguments.
"""
