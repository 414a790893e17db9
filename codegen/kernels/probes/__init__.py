"""Probes: kernels that ask an MI355X what nobody has published, captures of the answers, and the fit of models."""
