"""Tasks of other kinds than the example: registered while it runs, asked and removed again."""
