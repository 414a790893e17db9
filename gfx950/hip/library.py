"""Finding libamdhip64 and declaring the calls of it that are used."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gfx950.hip.errors import NoDevice

LIBRARY = "libamdhip64.so"
NAMES = (LIBRARY, f"{LIBRARY}.7", f"{LIBRARY}.6")

_int, _unsigned, _size, _pointer, _text = (
    ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
)  # fmt: skip
_out_int, _out_pointer, _out_size = (ctypes.POINTER(kind) for kind in (_int, _pointer, _size))

# Parameters by call, of ROCm's hip_runtime_api.h; each gives a hipError_t, an int, unless RESULTS says otherwise.
CALLS: dict[str, tuple[type, ...]] = {
    "hipGetDeviceCount": (_out_int,),
    "hipSetDevice": (_int,),
    "hipGetErrorName": (_int,),
    "hipGetErrorString": (_int,),
    "hipGetLastError": (),
    "hipModuleLoadData": (_out_pointer, _pointer),
    "hipModuleUnload": (_pointer,),
    "hipModuleGetFunction": (_out_pointer, _pointer, _text),
    "hipModuleLaunchKernel": (_pointer, *[_unsigned] * 7, _pointer, _pointer, _pointer),
    "hipMalloc": (_out_pointer, _size),
    "hipFree": (_pointer,),
    "hipMemcpy": (_pointer, _pointer, _size, _int),
    "hipMemcpyAsync": (_pointer, _pointer, _size, _int, _pointer),
    "hipMemset": (_pointer, _int, _size),
    "hipDeviceSynchronize": (),
    "hipStreamCreate": (_out_pointer,),
    "hipStreamSynchronize": (_pointer,),
    "hipStreamDestroy": (_pointer,),
    "hipEventCreate": (_out_pointer,),
    "hipEventRecord": (_pointer, _pointer),
    "hipEventSynchronize": (_pointer,),
    "hipEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _pointer, _pointer),
    "hipEventDestroy": (_pointer,),
}
PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")  # one of them: since ROCm 6.0, and before
# Calls that a library may lack: what they tell is then unknown.
OPTIONAL: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(PROPERTIES, (_pointer, _int)),
    "hipGetDevice": (_out_int,),
    "hipMemGetInfo": (_out_size, _out_size),
    "hipRuntimeGetVersion": (_out_int,),
    "hipDriverGetVersion": (_out_int,),
}
RESULTS = {"hipGetErrorName": _text, "hipGetErrorString": _text}


def find_library() -> ctypes.CDLL:
    """The HIP library with its calls declared.

    Looked for at GFX950_HIP (then nowhere else); in this process, where torch or another has loaded one, for two
    runtimes do not know each other's memory; in $ROCM_PATH/lib, /opt/rocm/lib, on the loader's path, and in installed
    Python packages: a ROCm build of torch, which is not imported for that, and ROCm's own.
    Raises NoDevice that says what was wrong with each place.
    """
    said = []
    for place in dict.fromkeys(_places()):
        if os.path.exists(place) and not os.path.isfile(place):  # a pipe would keep the loader waiting
            said.append(f"{place} (it is no file)")
            continue
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            said.append(f"{place} ({str(error).removeprefix(f'{place}: ')})")
            continue
        missing = _missing(library)
        if missing is None:
            return _declared(library)
        said.append(f"{place} (it has no {missing})")
    raise NoDevice(
        f"no HIP library: tried {', '.join(said)}; on a machine with an MI355X install ROCm, or name the library in"
        " GFX950_HIP",
        "; without a device use the engines host or numpy",
    )


def _missing(library: ctypes.CDLL) -> str | None:
    """What keeps a library from being used."""
    missing = [call for call in CALLS if not hasattr(library, call)]
    if not any(hasattr(library, call) for call in PROPERTIES):
        missing.append(PROPERTIES[0])
    return missing[0] if missing else None


def _places() -> Iterator[str]:
    chosen = os.environ.get("GFX950_HIP")
    if chosen:  # the loader looks for a name without a slash elsewhere than in this folder
        yield os.path.abspath(chosen) if os.path.exists(chosen) else chosen
        return
    yield from _loaded()
    for root in (os.environ.get("ROCM_PATH"), "/opt/rocm"):
        if root:
            yield str(Path(root) / "lib" / LIBRARY)
    yield from NAMES
    for package, name in (("torch", LIBRARY), ("_rocm_sdk_core", f"{LIBRARY}.7")):
        folder = _package(package)
        if folder is not None:
            yield str(folder / "lib" / name)


def _loaded(maps: Path = Path("/proc/self/maps")) -> Iterator[str]:
    """The HIP library that this process has loaded already."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        path = line[line.find("/") :]
        if Path(path).name.startswith(LIBRARY) and not path.endswith(" (deleted)"):
            yield path
            return


def _package(name: str) -> Path | None:
    """The folder of an installed Python package, which is not imported."""
    try:
        found = find_spec(name)
    except ValueError:  # a module of that name that says nothing of itself
        return None
    return Path(found.origin).parent if found is not None and found.origin else None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, parameters in (CALLS | OPTIONAL).items():
        if hasattr(library, name):
            call = getattr(library, name)
            call.argtypes, call.restype = parameters, RESULTS.get(name, _int)
    return library
