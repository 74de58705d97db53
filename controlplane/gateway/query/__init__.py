"""One query, from its bytes to its answer. Every query of the gateway takes this way.

In come a body in one of two dialects and a function to answer with. Out go one frame to a worker
and exactly one call of that function. There is no SQL, no Redis, no task and no timer per query:
what is known lies in memory, and ``QueryContext.update`` replaces it as a whole.

Read ``query_path`` (the entrance), ``parsing`` and the folder ``v2`` with ``query_fields``,
``lean_json`` and ``json_tensors`` (bytes in either dialect to a query), ``skimming`` (what is asked
for, found without reading the numbers) with ``early_refusals``, ``query_context`` (what all queries
share) with ``demand`` (what is counted for plans), ``in_flight`` (choosing, sending, retrying),
``one_answer`` (how it ends), ``replies`` and ``query_errors`` (the answer's bytes),
``deadline_guard``, ``waiting`` and ``departures`` (clients that go before their answers).

It may import ``planner``, ``workers`` and ``variants``, of ``controlplane`` HTTP errors and the
limits of ``files``, and of the gateway ``counting``, ``canaries``, ``lengths``, ``overload``,
``protection`` and ``texts``.
"""
