"""Profiling variants on this machine, and knowing when a profile is not true any more.

In: built or registered variants and a device kind. Out: profiles (latency by batch size, memory,
load time) and accuracy.

Read ``workbench`` (variants loaded to be measured) with ``notebook`` (what was measured of the same
before), then ``measuring`` (all variants of one new version, in full or sampled) with
``telling`` (how far that is), ``profiles``
(which registered variants are due, and measuring them), ``orders`` (what a cluster's nodes are to
measure, and in which order) with ``places`` (on which node), ``rests`` and ``setbacks`` (for how
long what was tried is left alone), and ``staleness`` (what has changed on this machine since).

Imports ``controlplane.building``, ``controlplane.views``, ``profiler``, ``workers`` and
``variants``.
"""
