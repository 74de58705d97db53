"""The package that users import as modelless."""
