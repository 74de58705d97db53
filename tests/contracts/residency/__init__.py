"""What operators say of what is loaded, in every catalog."""
