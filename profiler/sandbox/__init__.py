"""The sandbox: a child process with limits, in which models are checked, built and measured.

In: a method and its arguments as plain JSON values. Out: its result as plain JSON values, or one
sentence about why the child refused, failed, crashed or took too much.

Read ``sandbox`` (the parent's side) with ``calls`` (what travels) and ``limits``; then ``child``
(the process), ``file_methods`` (checking, changing and building) and ``held_variant`` with
``measure`` (one loaded variant); and ``probe`` with ``enough`` (what the parent asks of it until a
median is known).

Imports ``variants``, ``workers.runtimes`` and the other parts of ``profiler``.
"""
