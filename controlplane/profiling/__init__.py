"""Profiling variants on this machine, and knowing when a profile is not true any more.

In: built or registered variants and a device kind. Out: profiles (latency by batch size, memory,
load time) and accuracy.

Read ``workbench`` (variants loaded to be measured) with ``notebook`` (what was measured of the same
before), then ``measuring`` (all variants of one new version, in full or sampled) with
``configurations`` (kinds of variants, and numbers of threads) and ``telling`` (how far that is),
the folder ``due`` (which registered variants are due, in which order, and where) with
``remeasuring`` and, before anything is served, ``first_profiles``; ``measuring_lock`` (who measures
now) and ``judging`` (accuracy by other rows).

Imports ``controlplane.building``, ``controlplane.views``, settings, and packages on the left of
``controlplane``.
"""
