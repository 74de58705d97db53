"""Planning from files: what the CSV files of ``plan solve`` and ``simulate`` say, as values."""
