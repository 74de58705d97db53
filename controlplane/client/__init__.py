"""What users import as ``modelless``: handing in models and asking for answers, without Ray."""
