"""What users import as ``modelless``: handing in models and asking for answers, without Ray."""

from controlplane.client.exported import Exported, ExportError
from controlplane.client.exporting import export

__all__ = ["ExportError", "Exported", "export"]
