"""The chip as a machine: lanes, waves, LDS, memory, translation to host code, code objects, dispatch."""
