"""Views: what is shown of the catalog, the plan and the fleet, as pure functions and schemas.

In come a catalog snapshot, the newest plan, workers' reports and the numbers of workers wanted. Out
go values and Pydantic models, which the control API sends and the command line prints.

Read ``schemas`` (the bodies of the API) with those of ``catalog``, ``worker_schemas``,
``peak_schemas``, ``canary_schemas``, ``rule_schemas``, ``plan_schemas`` and
``explanation_schemas``; ``catalog`` (tasks, models, variants and their frontier) with
``live_latencies``; ``service_status`` and ``history`` (what clients experience, and how the last
hour went) with ``headroom`` (how much more could be served) and ``answered_status`` (which
tasks nothing can answer); ``storage_status`` (whether what has
to be kept can be written) and ``machines`` (whether their cores suffice, and the certificate
lasts); and ``fleet_status`` (what is wanted against what is running: the one place that compares
them) with ``lack_of_room`` (why what is wanted cannot start).

It may import ``variants``, ``planner``, ``workers`` and ``profiler``, and nothing else of the
control plane but HTTP errors, ``timestamps`` and the limits of ``files``. Nothing here reads a
clock, a database or a socket.
"""
