"""The chip as facts and meanings: formats, arithmetic models and their evidence, instructions, layouts, LDS banks."""
