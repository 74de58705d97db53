"""How results and progress are printed."""
