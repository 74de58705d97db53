"""Bad artefacts, each made by a small function: ``python -m tests.corpus.make DIR`` writes them."""
