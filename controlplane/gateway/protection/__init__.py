"""Protection: what keeps one client, or one query, from taking the gateway away from all others.

In come addresses of connections and contents of queries; out go typed refusals. Best read in this
order: ``connections`` (how many there may be), ``turned_away`` (the answer of one too many),
``grpc_connections`` (the same where another library holds the sockets), ``compression`` (what a
body may unpack to), ``body_reader`` (long bodies elsewhere) and ``text_reader`` (texts) with
``fair_queue`` (clients take turns), ``body_frames`` and ``read_bodies`` (the process there), and
``lethal_queries`` (what was run when a worker ended).
"""
