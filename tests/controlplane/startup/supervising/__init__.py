"""The supervisor: its state directory, what it ends, and how it is ended. Ray has no part in it."""
