"""Making kernels: the kernel language, tracing, IR, LLVM AMDGPU emission, code objects."""
