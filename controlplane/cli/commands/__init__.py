"""The commands, one module each or for each group; ``root`` lists them.

A command parses its arguments (``names``) and options, calls one function of the product, and
prints the result. ``status``, ``look``, ``tasks``, ``workers``, ``nodes``, ``events``,
``residency``, ``asking``, ``models.stage``, ``models.canary``, ``planning.export`` and
``planning.peaks`` ask a running gateway; ``lifecycle``, ``doctor``, ``keys``, ``backup`` and the
rest of ``models`` (``register``, ``build``, ``profile``, ``repair``) work on the state directory;
``planning.solve`` and ``planning.simulate`` need files only, and ``runbook`` nothing.
"""
