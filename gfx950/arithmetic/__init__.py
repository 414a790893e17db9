"""Arithmetic models of the chip, each a named rule with its evidence."""
