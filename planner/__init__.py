"""Every decision, as pure functions: no clock, no disk, no network, no Ray."""
