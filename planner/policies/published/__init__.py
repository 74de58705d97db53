"""Policies of published systems, each written from its paper.

In and out as in ``planner.policies``. Where a paper is silent, the module's docstring says what was
assumed; what helps the system was chosen.

Read ``infaas`` with ``infaas_rules``, ``infaas_offers`` and ``infaas_workers``; ``proteus`` with
``proteus_plan``; ``loki`` with ``loki_plan``, by the same authors; ``superserve`` with
``slack_fit``; ``hadis`` with ``hadis_table``. How some of them watch demand is in ``demand_watch``.
Clipper, which leaves the choice of models to its operator, is in ``planner.policies.static``.
"""
