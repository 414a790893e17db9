"""One folder a kernel."""
