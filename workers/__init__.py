"""Running variants: runtimes, the tensor channel, the executor, the Ray Serve deployment."""
