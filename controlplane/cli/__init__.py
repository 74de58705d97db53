"""The command line ``modelless``.

In: arguments and ``MODELLESS_*`` variables. Out: tables for people or JSON and YAML for machines on
standard output, progress and errors on standard error, and an exit code (``outcome``).

Read ``main`` (the entry), ``commands.root`` (all commands in one table) with ``lazy`` (a command is
imported when it runs), then ``commands``, a module for each. Shared by several commands:
``planning`` (files and results of those that plan), ``asking`` (options, rows and connections of
those that ask), ``replaying`` and ``batching`` (what ``modelless replay`` and ``batch`` do),
``screen`` (that of ``modelless top``), ``option_groups`` (options that go together, declared once)
with ``model_options``, ``state_settings`` (of an installation), ``starting`` (what `modelless up`
does in its own process) with ``start_lines`` (what it says), ``progress``, ``outcome``, ``render``,
``event_lines`` and ``registration_results`` (what is printed), ``confirmation`` (what is asked
before), ``lasting_output`` (who no longer reads), ``watching`` (``register --watch``),
``upgrading`` and ``gateway_client`` (requests to a running gateway).

Imports the rest of ``controlplane`` and the packages on its left, most of it inside of commands.
"""
