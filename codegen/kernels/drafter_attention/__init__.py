"""Attention of the DSpark drafter: split-KV partitions with fused q/k norm and RoPE, and their merge to MXFP8."""
