"""Back ends, one file each; ``workers.runtime.RUNTIMES`` names them."""
