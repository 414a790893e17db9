"""The chip as facts and meanings: number formats, arithmetic models and their evidence, instructions, layouts, LDS banks."""
