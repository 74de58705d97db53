"""Checks of archives that ``modelless.export`` writes with PyTorch.

``archive_check`` checks one in this order: the zip file itself (``checks.zip_layout``),
``program_check`` (the program as JSON, by the shapes of ``checks.json_shape``), with
``program_words`` and ``program_operators`` (what a program may contain) and ``tensor_layout`` (what
it says of its tensors). No code in it is run.
"""
