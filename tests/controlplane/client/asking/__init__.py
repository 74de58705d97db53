"""``modelless.Client`` against a real gateway with a real worker."""
