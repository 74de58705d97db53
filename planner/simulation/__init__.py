"""The simulator: discrete events over the production functions themselves."""
