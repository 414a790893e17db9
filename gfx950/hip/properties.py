"""What HIP says of a device: its two property structures, whole, and the few facts of them that are used here.

The layouts are those of ROCm's public headers: `hip_runtime_api.h` for hipDeviceProp_tR0600 (ROCm 6.0 on, 1472 bytes)
and `hip_deprecated.h` for hipDeviceProp_tR0000 (before, 792 bytes).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SLACK_BYTES = 4096  # handed to HIP, so that a later, longer structure cannot be written past the end

_TYPES = {
    "int": ctypes.c_int, "unsigned": ctypes.c_uint, "size_t": ctypes.c_size_t, "pointer": ctypes.c_void_p,
    "char": ctypes.c_char,
}  # fmt: skip

# One line a run of fields of one type, in the order of the ABI; NAME*N is an array.
_R0600 = """
char name*256 uuid*16 luid*8
unsigned luidDeviceNodeMask
size_t totalGlobalMem sharedMemPerBlock
int regsPerBlock warpSize
size_t memPitch
int maxThreadsPerBlock maxThreadsDim*3 maxGridSize*3 clockRate
size_t totalConstMem
int major minor
size_t textureAlignment texturePitchAlignment
int deviceOverlap multiProcessorCount kernelExecTimeoutEnabled integrated canMapHostMemory computeMode
int maxTexture1D maxTexture1DMipmap maxTexture1DLinear maxTexture2D*2 maxTexture2DMipmap*2 maxTexture2DLinear*3
int maxTexture2DGather*2 maxTexture3D*3 maxTexture3DAlt*3 maxTextureCubemap maxTexture1DLayered*2
int maxTexture2DLayered*3 maxTextureCubemapLayered*2 maxSurface1D maxSurface2D*2 maxSurface3D*3
int maxSurface1DLayered*2 maxSurface2DLayered*3 maxSurfaceCubemap maxSurfaceCubemapLayered*2
size_t surfaceAlignment
int concurrentKernels ECCEnabled pciBusID pciDeviceID pciDomainID tccDriver asyncEngineCount unifiedAddressing
int memoryClockRate memoryBusWidth l2CacheSize persistingL2CacheMaxSize maxThreadsPerMultiProcessor
int streamPrioritiesSupported globalL1CacheSupported localL1CacheSupported
size_t sharedMemPerMultiprocessor
int regsPerMultiprocessor managedMemory isMultiGpuBoard multiGpuBoardGroupID hostNativeAtomicSupported
int singleToDoublePrecisionPerfRatio pageableMemoryAccess concurrentManagedAccess computePreemptionSupported
int canUseHostPointerForRegisteredMem cooperativeLaunch cooperativeMultiDeviceLaunch
size_t sharedMemPerBlockOptin
int pageableMemoryAccessUsesHostPageTables directManagedMemAccessFromHost maxBlocksPerMultiProcessor
int accessPolicyMaxWindowSize
size_t reservedSharedMemPerBlock
int hostRegisterSupported sparseHipArraySupported hostRegisterReadOnlySupported timelineSemaphoreInteropSupported
int memoryPoolsSupported gpuDirectRDMASupported
unsigned gpuDirectRDMAFlushWritesOptions
int gpuDirectRDMAWritesOrdering
unsigned memoryPoolSupportedHandleTypes
int deferredMappingHipArraySupported ipcEventSupported clusterLaunch unifiedFunctionPointers reserved*63
int hipReserved*32
char gcnArchName*256
size_t maxSharedMemoryPerMultiProcessor
int clockInstructionRate
unsigned arch
pointer hdpMemFlushCntl hdpRegFlushCntl
int cooperativeMultiDeviceUnmatchedFunc cooperativeMultiDeviceUnmatchedGridDim
int cooperativeMultiDeviceUnmatchedBlockDim cooperativeMultiDeviceUnmatchedSharedMem isLargeBar asicRevision
"""

_R0000 = """
char name*256
size_t totalGlobalMem sharedMemPerBlock
int regsPerBlock warpSize maxThreadsPerBlock maxThreadsDim*3 maxGridSize*3 clockRate memoryClockRate memoryBusWidth
size_t totalConstMem
int major minor multiProcessorCount l2CacheSize maxThreadsPerMultiProcessor computeMode clockInstructionRate
unsigned arch
int concurrentKernels pciDomainID pciBusID pciDeviceID
size_t maxSharedMemoryPerMultiProcessor
int isMultiGpuBoard canMapHostMemory gcnArch
char gcnArchName*256
int integrated cooperativeLaunch cooperativeMultiDeviceLaunch maxTexture1DLinear maxTexture1D maxTexture2D*2
int maxTexture3D*3
pointer hdpMemFlushCntl hdpRegFlushCntl
size_t memPitch textureAlignment texturePitchAlignment
int kernelExecTimeoutEnabled ECCEnabled tccDriver cooperativeMultiDeviceUnmatchedFunc
int cooperativeMultiDeviceUnmatchedGridDim cooperativeMultiDeviceUnmatchedBlockDim
int cooperativeMultiDeviceUnmatchedSharedMem isLargeBar asicRevision managedMemory directManagedMemAccessFromHost
int concurrentManagedAccess pageableMemoryAccess pageableMemoryAccessUsesHostPageTables
"""


def _fields(table: str) -> Iterator[tuple[str, Any]]:
    for line in table.strip().splitlines():
        kind, *names = line.split()
        for name in names:
            name, _, count = name.partition("*")
            yield name, _TYPES[kind] * int(count) if count else _TYPES[kind]


class PropertiesR0600(ctypes.Structure):
    """hipDeviceProp_tR0600. arch is the word of its 17 feature bits, uuid its 16 bytes."""

    _fields_ = tuple(_fields(_R0600))


class PropertiesR0000(ctypes.Structure):
    """hipDeviceProp_tR0000, the structure before ROCm 6.0."""

    _fields_ = tuple(_fields(_R0000))


@dataclass(frozen=True)
class Properties:
    """Of one device. architecture: gcnArchName whole, `gfx950:sramecc+:xnack-`; chip: its base. memory: bytes of global
    memory. compute_units: how many."""

    name: str
    architecture: str
    memory: int
    compute_units: int
    pci_bus: int
    revision: int

    @property
    def chip(self) -> str:
        """The architecture without its features: gfx950."""
        return self.architecture.partition(":")[0]


def read_properties(layout: type[PropertiesR0600] | type[PropertiesR0000], data: bytes) -> Properties:
    """The facts in a structure that HIP filled."""
    found = layout.from_buffer_copy(data)
    return Properties(
        name=found.name.decode(errors="replace"),
        architecture=found.gcnArchName.decode(errors="replace"),
        memory=found.totalGlobalMem,
        compute_units=found.multiProcessorCount,
        pci_bus=found.pciBusID,
        revision=found.asicRevision,
    )
