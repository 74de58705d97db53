"""Workloads that look for what our policy does badly: ``traits`` says what is drawn of one, and
``drawn`` makes its catalog, fleet and load. Each kind is odd in one way, and the rest of it is
drawn from wide ranges, so that no constant of a policy was chosen on it."""
