"""What documents say, held against the code: ``test_documented`` and ``test_links``."""
