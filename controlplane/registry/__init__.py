"""Registering models, adding variants to them, and repairing what is damaged in the store.

In: a model's file, labelled rows and options, from the command line or over REST. Out: a version
with measured variants in catalog and store, whole or absent; progress on the way.

Read ``registration`` (a new version; with ``buckets``, one for each of several lengths), with
``new_versions`` (which files become one, and which number and stage it gets), and ``extension``
(more variants of a known one); both go through ``preparation`` (check, with
``joined_task``, build, measure) and ``storing`` (write all or nothing). ``damage``, ``repairing``
and ``rebuilds`` restore artifacts, and ``leftover_artifacts`` frees those that nothing registered
uses. ``watch`` follows a folder of versions; ``over_rest`` serves REST by running the command line
in a ``child_process``; ``example_models`` registers the digits family, and ``example_progress``
says how far that is.

Imports ``controlplane.building``, ``controlplane.profiling`` and packages on the left of
``controlplane``; of ``controlplane`` also settings, views and HTTP errors.
"""
