"""What a gateway tells of the queries that it took: to the control loop, and to people.

In come the counters of the query path (``controlplane.gateway.counting``), which only grow; out go
plain numbers for the live state. Read ``recent_outcomes`` (how the queries of the last minute
ended), ``demand_report`` (what the control loop is told once a second, and ``GET /v1/slo`` shows),
then ``history_samples`` (how ten seconds went, which ``GET /v1/history`` puts together) and
``unanswered_tasks`` (what the next query of each task would be refused for). ``slow_warnings`` says
which workers that are slow are worth a line in the log. Of what is not counted here,
``control_loop``, ``fleet_metrics`` (workers), ``core_metrics`` and ``process_metrics`` make
metrics, and ``metrics`` puts all of them together for Prometheus.
"""
