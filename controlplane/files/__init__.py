"""Planning from files: what the CSV files of ``plan solve`` and ``simulate`` say, as values.

In: paths of CSV files (docs/reference/planning-files.md). Out: device kinds, offers, demand,
queries and declared peaks as the planner takes them; or ``InvalidInput`` that names file, line and
column.

Read ``catalog``, ``demand`` and ``peaks`` (one function for each kind of file), then ``table``
(reading a file as blocks of checked columns) and ``fields`` (what one column may hold).

Imports ``planner`` and ``variants``.
"""
