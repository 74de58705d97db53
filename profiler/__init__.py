"""Learning what variants cost: latency, memory, load time and accuracy, measured."""
