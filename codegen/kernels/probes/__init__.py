"""Probes: kernels that ask an MI355X what nobody has published, a capture of the answers, and the fit of models to it."""
