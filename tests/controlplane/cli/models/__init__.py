"""Commands that read and write planning files."""
