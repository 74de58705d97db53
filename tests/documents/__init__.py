"""What documents say, held against the code: of its parts, of commands and of links."""
