"""The sandbox: a child process with limits, in which models are checked, built and measured.

In: a method and its arguments as plain JSON values. Out: its result as plain JSON values, or one
sentence about why the child refused, failed, crashed or took too much.

Read ``sandbox`` (the parent's side), then ``child`` (the methods), then ``measure`` (one loaded
variant, in the child, within the ``limits``) and ``probe`` (what the parent asks of it until a
median is known).

Imports ``variants``, ``workers.runtimes`` and the other parts of ``profiler``.
"""
