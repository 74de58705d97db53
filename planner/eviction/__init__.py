"""Eviction: what leaves when memory is short, and how popular each variant is.

In come the loaded variants of one worker as ``Resident`` values (memory, load time, popularity,
last use) and the memory that is needed; out come the keys of those that leave, or None when none
may. Workers, the plan's placement and the simulator ask here.

Read ``rules`` first (what a variant is worth keeping), then ``registry`` (the rules by name: adding
one is one function and one line), then ``victims`` (which variants leave) and ``displacement``
(what a worker would lose by that, told to those who look for a host) with ``churn`` (how long what
is loaded there will stay). ``turns`` says whose load comes first where a worker loads one after the
other. ``popularity`` learns from queries what the rule ``modelless`` needs to know, the queries per
second to expect, and ``urgency`` which of them cannot wait for a load; ``query_rates`` asks both
for all that one gateway sees, and ``expected`` says what follows for what is held. ``load_pace`` is
what loads take in parts of what profiles say.

May import: ``variants``. No clock: times are arguments, in seconds.
"""
