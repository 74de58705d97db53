"""Views: what is shown of the catalog, the plan and the fleet, as pure functions and schemas.

In come a catalog snapshot, the newest plan, workers' reports and the numbers of workers wanted. Out
go values and Pydantic models, which the control API sends and the command line prints.

Read ``schemas`` (the bodies of the API), ``catalog_views`` (tasks, models, variants and their
frontier), ``fleet_status`` (what is wanted against what is running: the one place that compares
them) and ``plan_schemas`` (the plan and the fleet status as bodies).

It may import ``variants``, ``planner``, ``workers`` and ``profiler``, and nothing else of the
control plane. Nothing here reads a clock, a database or a socket.
"""
