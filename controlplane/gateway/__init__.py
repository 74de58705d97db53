"""The gateway: one process that answers queries and keeps itself informed.

In come HTTP requests, the catalog and its plan, the directory of workers in the live state, and the
workers' reports. Out go answers, frames to workers, counters for the control loop, and metrics.

Read ``gateway`` (what is started and followed), ``servers`` (what takes connections), ``knowledge``
(what is known, and how the query path is told), ``connected_workers`` with ``connected_worker``,
``meeting`` (the first moments of a process), ``listening``, ``on_demand_loads``, ``background``,
``renewal`` (how often a snapshot is made), ``looks`` (one look at what is followed, for all who
want it), ``changes`` (who has changed something waits until all gateways know it).

Then the sub-packages: ``counting`` (what is counted), ``query`` (one query, from its bytes to its
answer) with ``images``, ``texts`` and ``lengths`` (what else than numbers of one size it may
bring), ``sharing`` (one answer for equal queries), ``embeddings`` (vectors as clients of OpenAI's
API ask for them), ``canaries`` (new versions on a share of the queries, and what clients say of
answers), ``overload`` (refusals at little cost), ``protection`` (from one client, or one query),
``neighbours`` (who else answers on the port), ``reports`` (what it tells of queries and of itself,
to the control loop and as metrics), ``tracing`` (single queries, for OpenTelemetry),
``open_inference`` (what the Open Inference Protocol asks for beside inference), ``explaining`` (how
a query would be answered), ``http`` (sockets, limits and routes) and ``grpc``.

It may import ``controlplane.api`` and the modules of ``controlplane`` itself, and nothing of the
control loop, the cluster or the command line. ``query`` imports only ``counting``, ``canaries``,
``lengths``, ``overload``, ``protection``, ``texts`` and ``tracing`` of this folder, and ``http``
and ``grpc`` do not import ``gateway``.
"""
