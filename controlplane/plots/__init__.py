"""Drawings of simulations and of a task's variants, for ``--plot FILE``.

In come the reports of a simulation, or a catalog snapshot; out goes one file: a page (``.html``)
that draws itself in a browser, or a picture (``.png``, ``.svg``) by matplotlib.

Read ``drawing`` first: it is the plain data that everything else makes or draws. ``simulation`` and
``family`` make it. ``page`` puts it into a page as JSON, ``figures`` is the only module that knows
matplotlib, and ``plot_file`` chooses between the two by the file's name and is what commands call.

These modules may import ``controlplane.dashboard.pages`` (the page, the style sheet and its
colours), ``controlplane.views`` and whatever lies left of the control plane. matplotlib is the
optional extra ``plot`` and is imported only when a picture is drawn.
"""
