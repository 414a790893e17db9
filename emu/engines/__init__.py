"""The engines behind lane values: numpy arrays (to look, step and explain) and host LLVM (to run)."""
