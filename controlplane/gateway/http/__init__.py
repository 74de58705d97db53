"""The HTTP side of the gateway: from bytes on a socket to a query, and from an answer to bytes.

In come connections of clients. Out go calls of the query path for the inference routes, requests to
an ASGI application for everything else, and the bytes of the answers.

Read ``client_connection`` (what is due on one connection, and its end), ``http_protocol`` (what is
read of it: the short way for queries, the ordinary way for the rest) with ``breaking_off`` (what
gets another answer than it has asked for), ``exchange``, ``known_head`` and ``turn_clock``;
``access`` with ``followed_keys``, ``cross_origin`` and
``client_limits`` (what is refused), ``returning`` (who comes back too soon); ``http_server`` (all
connections of the process); then ``asgi`` (the application) with ``guarded``, ``query_routes`` and
``taken_up`` (what is changed is known everywhere before that is answered).

It may import ``controlplane.api``, ``controlplane.gateway.query`` and what the routes show
(``reports.metrics``, ``open_inference``), but not ``controlplane.gateway.gateway``.
"""
