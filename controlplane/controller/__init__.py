"""The controller: the loop that keeps the cluster as the plan has it.

In: the catalog, what Ray Serve runs, what workers report, and what gateways counted. Out: plans and
events in the catalog, the number of workers at Ray Serve, and loads, unloads and targets at the
workers.

Read ``loop`` (observe, decide, apply, record) with ``leader_writes`` (the plan that is stored, and
what gateways are told); for observing ``known_catalog``, ``fleet_targets`` (how many workers are
wanted), ``met_workers`` (which there are, and what they say), ``arrivals`` with ``outcome_counts``,
``forecaster_training`` and ``learned_state``, ``peak_calendar``, ``zone_counts``, and ``nodes``
(those that join and leave); for applying ``nodes`` again (those that are asked for, and those that
go), ``applying`` (loads, unloads and targets) and ``gateway_scaling``; for recording ``events``,
and ``profiles`` (those that are doubted, and how they are measured while it serves);
``headroom_watch`` (how much more could be served); ``canaries`` (new versions, judged by what
became of their queries), ``accuracy_watch`` (what clients say of accuracy, beside what was
measured) and ``watched_answers`` (how answers are divided among the classes), which keep
``kept_notes``; ``other_installations`` (a second one on the same catalog); ``one_task`` (what goes
on beside the turns).

May import ``planner`` for every decision, ``workers`` for the channel, ``variants``, and of the
control plane settings, live state, views, cluster, profiling and registry; never the gateway or the
API.
"""
