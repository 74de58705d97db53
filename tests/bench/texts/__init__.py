"""What it is worth that plans know which models hold a text, in virtual time (``held``)."""
