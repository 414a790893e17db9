from translations import translations_apart  # noqa: F401
