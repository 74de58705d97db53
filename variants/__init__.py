"""What is served, where it is kept and how it is made: values, catalog, artifacts, builders.

In: model files that users hand in. Out: tasks, model versions, variants and profiles as values
(``types``), stored in a catalog and an artifact store, and variants' artifacts written by builders.

Read first ``types`` and ``errors``, which every other package uses; then ``catalog`` and
``artifacts`` (where things are kept), ``checks`` (what a model file must not contain), ``builders``
(how one model becomes several variants), ``metrics`` (what its accuracy means) and ``zoo`` (example
models). ``registry`` and ``entry_points`` are the one shape of all registries of the project;
``images`` says which tasks take pictures, ``buckets`` which take rows of several lengths, and
``texts`` which take texts. ``model_files`` finds the versions in a folder, ``foreign_files`` says
what to do with files of other tools, ``onnx_wire`` walks over
ONNX files as they lie, with ``varint`` for the numbers in them, ``onnx_halves`` knows files in half
precision, and ``working_memory`` is what a batch takes while it runs.

Of the machine, ``container``, ``core_time`` and ``disk`` say what there is. ``figures`` writes
numbers in sentences, and ``slots`` makes frozen objects quickly.

Imports no other package of the project.
"""

import os

# ONNX Runtime of PyPI sends events to Microsoft from every process that imports it, and keeps an
# identifier and a database of them below ~/.cache, unless this stands in the environment before.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
