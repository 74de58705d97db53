"""Zones: near workers before far ones, for a query and for the demand.

``rings`` orders the workers of a gateway by zone and round trip and chooses for a query among them;
``division`` divides the demand of each zone over the workers of that zone first, ``leaving`` says
what a full one sends away, and ``zone_parts`` has what each of them serves meanwhile.

It may import ``planner.types``, ``planner.zone_demand``, ``planner.sentences``,
``planner.selection`` and ``variants``.
"""
