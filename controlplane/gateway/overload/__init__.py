"""Overload: saying no at little cost, where more is asked than can be served.

In come refusals that were made and what was asked; out go the same refusals for those who ask for
the same. Best read in this order: ``recent_refusals`` (what a worker would say, by what it has just
said), ``repeated_refusals`` (what was refused a moment ago is refused unread), ``retry_advice``
(when to come back), ``held_answers`` (refusals for those who came back sooner), ``refused_tasks``
(who was refused lately).

It imports ``planner``, ``variants`` and ``controlplane.http_errors``, and nothing of the gateway.
"""
