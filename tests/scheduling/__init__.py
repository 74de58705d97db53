"""In which order and by which processes tests are run."""
