"""The right bits: cases, recorded goldens, comparison down to the first wrong lane."""
