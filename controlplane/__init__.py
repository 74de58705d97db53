"""The control plane: the shell around the planner's decisions, in processes and on sockets.

In come queries, registrations, commands, clocks and the reports of workers. Out go answers, plans
that are carried out, metrics and pages. Decisions are made in ``planner``; here they are acted on.

Read ``app`` (the processes), ``settings``, then ``gateway`` (queries), ``controller`` (the control
loop), ``cluster`` (Ray) and ``startup`` (supervisor and doctor); ``registry``, ``building`` and
``profiling`` (the life of a model); ``api``, ``views``, ``dashboard`` and ``plots`` (what is
shown); ``cli``, ``client`` and ``files``. The modules of this folder are what several of them
share: ``live_state``, ``http_errors``, ``demand_counters``, ``load_specs``, ``exposure``, ``tls``.

It may import everything: variants <- planner <- workers <- profiler <- controlplane.
"""
