"""The control loop over real worker processes, a real Valkey and a catalog in memory."""
