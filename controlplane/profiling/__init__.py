"""Profiling variants on this machine, and knowing when a profile is not true any more.

In: built or registered variants and a device kind. Out: profiles (latency by batch size, memory,
load time) and accuracy.

Read ``workbench`` (variants loaded to be measured) with ``notebook`` (what was measured of the same
before), then ``measuring`` (all variants of one new version, in full or sampled) with
``configurations`` (kinds of variants, and numbers of threads) and ``telling`` (how far that is),
``profiles`` (which registered variants are due) with ``remeasuring`` and, before anything is
served, ``first_profiles``; ``orders`` (what a cluster's nodes are to measure, and in which order)
with ``unanswered`` (what no query is answered without) and ``places`` (on which node), ``rests``
and ``setbacks`` (for how long what was tried is left alone), ``staleness`` (what has changed on
this machine since), ``measuring_lock`` (who measures now) and ``judging`` (accuracy by other rows).

Imports ``controlplane.building``, ``controlplane.views``, settings, and packages on the left of
``controlplane``.
"""
