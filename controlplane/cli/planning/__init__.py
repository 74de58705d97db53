"""What commands that plan from files have in common: ``modelless simulate``, ``plan``, ``profile``.

Read ``planning_files`` (catalogs, devices and demand as CSV), then ``divided_machines`` (machines
that may be split), ``simulation_checks`` (options that do not go together), ``simulation_results``,
``layout_results`` and ``solution_results`` (what is printed).
"""
