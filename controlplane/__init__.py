"""The control plane: the shell around the planner's decisions, in processes and on sockets.

In come queries, registrations, commands, clocks and the reports of workers. Out go answers, plans
that are carried out, metrics and pages. Decisions are made in ``planner``; here they are acted on.

Read ``app`` (the processes) with ``gateway_replica``, ``settings`` with ``given_settings`` (each of
them), then ``gateway`` (queries), ``controller`` (the control loop), ``cluster`` (Ray) and
``startup`` (supervisor and doctor); ``registry``, ``building`` and ``profiling`` (the life of a
model); ``api``, ``views``, ``dashboard`` and ``plots`` (what is shown); ``residency`` (rules of
operators); ``cli``, ``client``, ``files`` (for planning) and ``backups``.

The other modules of this folder are what several of them share: ``live_state``; ``live_latency``
(the catalog as batches have it); ``machine``, ``gpus`` and ``slices`` (what this machine has, and
how it is split); ``access`` (who may ask); ``http_errors`` and ``wrong_values`` (what is said of
what is wrong); ``slo_parameters`` (what a query needs, as parameters of the Open Inference
Protocol); ``demand_counters``, ``load_specs``, ``backoff`` and ``timestamps``.

It may import everything: variants <- planner <- workers <- profiler <- controlplane.
"""
