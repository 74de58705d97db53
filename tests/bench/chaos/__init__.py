"""Faults, counted: a real installation under load, faults one kind at a time, and a ledger.

``make chaos`` starts Ray nodes and ``modelless up`` in a namespace of their own, has a client in a
process of its own send queries whatever becomes of those before, and injects each fault some times.
The client keeps a ledger: of each query when it was sent, until when it had to be answered, and
the outcome that it had. What is counted is mainly the queries that did not have exactly one typed
outcome within their deadline and 250 ms.

Read ``ledger`` (what is judged, and how), ``client``, ``installation`` (what is started, and how it
is looked at), ``faults`` (what is done to it), ``trials`` and ``__main__``.
"""
