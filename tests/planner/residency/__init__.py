"""What operators said of what is loaded, as decisions go by it."""
