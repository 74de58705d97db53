"""Building the variants of one model version, each kind in a sandboxed process.

In: what builders may draw on (``Sources``) and the kinds that are asked for. Out: built variants
that are not measured yet, and those that were skipped, each with its reason.

Read ``types`` (what a registration takes and gives), ``edges`` (files that are to take or give
something else), ``texts`` with ``text_encoding`` (rows of texts as rows of numbers) and
``sources``, then ``family``, then ``meter`` (progress). What was built or measured before is in the
``build_cache``, under keys that say all that it depends on (``work_keys``); ``known_builds`` has
the files of one version there. All of it happens in a ``work_folder``, which a killed process
leaves to the next one to remove. ``digests`` are what files are known by, ``doubt`` tells of what
is no better than guessing, ``beside_live`` of how accurate a version is beside the live one, and
``worse_classes`` of one that is worse than that on a class.

Imports ``profiler``, ``workers.runtimes`` and ``variants``; of ``controlplane`` also timestamps.
"""
