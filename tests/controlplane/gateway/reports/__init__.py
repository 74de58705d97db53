"""What a gateway tells of itself."""
