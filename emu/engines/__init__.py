"""The engines behind lane values: numpy arrays (to look, step and explain) and host LLVM (to run)."""

ENGINES = ("host", "numpy", "device")  # what runs a launch; device is a real MI355X
ORDERS = ("ascending", "reversed")  # of waves and workgroups: the first one begins, or the last one
