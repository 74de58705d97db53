"""The commands, one module each or for each group; ``controlplane.cli.main`` lists them.

A command parses its options, calls one function of the product, and prints the result. ``look``,
``workers``, ``peaks``, ``stage`` and ``query`` ask a running gateway; ``lifecycle``, ``doctor``,
``register``, ``build``, ``profile``, ``keys`` and ``repair`` work on the state directory; ``solve``
and ``simulate`` need files only.
"""
