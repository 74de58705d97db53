"""What things are called, each kind of name a type of its own."""

import re
from typing import NewType

TaskName = NewType("TaskName", str)
ModelName = NewType("ModelName", str)
VariantName = NewType("VariantName", str)
VariantKey = tuple[TaskName, VariantName]
"""A variant by its task and its name, which is unique in the task."""
WorkerId = NewType("WorkerId", str)
DeviceKindName = NewType("DeviceKindName", str)
Digest = NewType("Digest", str)
"""SHA-256 of an artifact's bytes, 64 lower-case hexadecimal digits."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
"""What a task, model or variant may be called; use ``NAME.fullmatch``."""
