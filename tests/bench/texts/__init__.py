"""Texts: what it is worth that plans know which models hold one, in virtual time (``held``), and
what vectors of texts cost as OpenAI's clients ask for them (``vectors``)."""
