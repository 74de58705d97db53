"""What is shown of the catalog: tasks, models, variants and the frontier of variants.

``tasks``, ``models`` and ``variants`` make it of a catalog snapshot, the last with ``frontier``
(which variants another one beats) and ``stages``. ``text_vectors`` says which tasks give vectors of
texts. ``task_schemas``, ``model_schemas``, ``variant_schemas`` and ``answer_schemas`` (how answers
are divided among the classes) are what the control API sends, and ``task_changes`` what it takes to
change a task.

Imports what ``controlplane.views`` may, and of that ``schemas``.
"""
