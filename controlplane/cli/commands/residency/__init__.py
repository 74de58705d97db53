"""Commands by which operators say what stays loaded, what may not run, and when nothing changes."""
