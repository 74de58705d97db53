"""The process of a worker: what outlives its crash, its priority, and its output streams.

In come the ids of the variants that run or load now; out comes which variants crashed earlier
processes, so that they are kept out. The rest is set once, when a process starts.

Read ``quarantine`` first (evidence about crashes, and when it leads to quarantine), then ``slot``
(the page of a file that still holds the last entry when the process dies), and ``core_choice`` and
``own_cores`` (cores of its own). Of a process that is gone, ``last_batch`` says what it ran, and
``ending`` with ``memory_kills`` how it ended. ``release`` (which code runs), ``niceness``,
``streams``, ``ordered_thread`` (a thread that takes the most urgent call first) and ``line`` (one
look for all that wait) and ``sparing_log`` (failures that come with queries, counted in the log)
stand alone.

May import: ``variants``. Nothing here knows queries, queues or Ray.
"""
