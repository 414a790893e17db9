"""What devices, launches and memory say about arguments without sense, and that nothing stays mapped after them."""

import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.language import U64, Pointer, kernel, load, store, thread_id, trace
from emu.code_object import load as load_code_object
from emu.dispatch import Device, RunOptions
from emu.errors import CodeObjectError, LaunchError
from emu.geometry import Geometry
from emu.memory import Memory
from emu.run_arguments import parse_argument


@kernel(block=64)
def increment(x: Pointer) -> None:
    at = x + thread_id().to(U64) * 4
    store(at, load(at) + 1)


@pytest.fixture(scope="module")
def module():
    return Device().load(compile_kernels([trace(increment)]).object)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (lambda k, x: k[1, 64](x, options="host"), "the options are 'host'"),
        (lambda k, x: k.launch((1, 64), [x]), r"the geometry is \(1, 64\)(.|\n)*expected: a Geometry"),
        (lambda k, x: k.launch(Geometry.of_blocks(1, 64), None), "the arguments are a NoneType"),
        (lambda k, x: k.launch(Geometry.of_blocks(1, 64), "x"), "the arguments are a str"),
        (lambda k, x: k[1, 64](x, dynamic_lds="all"), r"asks for 0 \+ 'all' bytes of LDS"),
        (lambda k, x: k[1, 64](x, dynamic_lds=1.5), r"asks for 0 \+ 1\.5 bytes of LDS"),
        (lambda k, x: k[1, 64](x, watch=5), "5 cannot be watched"),
        (lambda k, x: k[1, 64](x, hidden=5), "the hidden arguments are 5"),
        (
            lambda k, x: k[1, 64](x, hidden={"hidden_grid_dims": "1"}),
            r"the hidden arguments are \{'hidden_grid_dims': '1'",
        ),
        (lambda k, x: k[1, 64](x, hidden={1: 1}), "the kernel has no hidden argument 1"),
        (lambda k, x: k[b"12", 64](x), r"the grid \(workgroups\) is b'12'"),
        (lambda k, x: k[True, 64](x), r"the grid \(workgroups\) is True"),
        (lambda k, x: k[1, np.timedelta64(64)](x), "the block is .*timedelta"),
        (lambda k, x: k[1, 64](x, watch=(x, "a")), "byte 'a' of the watched array cannot be watched"),
        (lambda k, x: k[1, 64](x, watch=(None, 0)), "cannot be watched"),
        (lambda k, x: k[1, 64]([1]), r"got list \[1\]"),
    ],
)
def test_launches_without_sense(module, launch, message):
    before = module.device.memory.buffers
    x = np.zeros(64, np.uint32)
    with pytest.raises(LaunchError, match=message):
        launch(module["increment"], x)
    assert module.device.memory.buffers == before
    assert not x.any()


@pytest.mark.parametrize(
    ("grid", "block"),
    [((0, 1, 1), (64, 1, 1)), ((64, 1), (64, 1, 1)), ((64, 1, 1), (0, 1, 1)), ((64.5, 1, 1), (1, 1, 1))],
)
def test_a_geometry_is_checked_however_it_is_made(grid, block):
    with pytest.raises(LaunchError, match=r"the (grid|block).* is "):
        Geometry(grid, block)


@pytest.mark.parametrize("name", [[], {}, 5, ("increment",)])
def test_a_kernel_is_asked_for_by_its_name(module, name):
    with pytest.raises(CodeObjectError, match=r"no kernel .* in the code object\n  expected: one of: "):
        module[name]


def test_whatever_stops_a_launch_unmaps_its_blocks(module, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("emu.launch._packet", fails)
    before = module.device.memory.buffers
    with pytest.raises(ZeroDivisionError):
        module["increment"][1, 64](np.zeros(64, np.uint32))
    assert module.device.memory.buffers == before


def test_a_device_takes_options():
    with pytest.raises(LaunchError, match=r"the options are 5\n  expected: a RunOptions"):
        Device(5)
    assert Device(RunOptions(engine="numpy")).options.engine == "numpy"


def test_sources_that_hold_no_code_object(tmp_path, monkeypatch):
    for source in (None, 5, [1]):
        with pytest.raises(TypeError, match="a code object is given by its bytes or its path, not by a"):
            load_code_object(source)
    with pytest.raises(FileNotFoundError, match="the path of the code object is empty"):
        load_code_object("")
    monkeypatch.setattr("emu.code_object.LARGEST_IMAGE", 1 << 20)
    with pytest.raises(CodeObjectError, match="not an ELF file: it starts with 00 00 00 00"):
        load_code_object("/dev/zero")  # which has no end
    large = tmp_path / "large.o"
    large.write_bytes(b"\x7fELF" + bytes(1 << 21))
    with pytest.raises(CodeObjectError, match=r"large\.o has more than 1048576 bytes"):
        load_code_object(large)


def test_a_file_that_cannot_be_read_is_named(monkeypatch):
    class Broken:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def read(self, _):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("emu.code_object.Path.open", lambda *_: Broken())
    with pytest.raises(OSError, match=r"Input/output error: 'k\.o'"):
        load_code_object("k.o")


def test_memory_names_what_it_cannot_take():
    memory = Memory()
    with pytest.raises(TypeError, match=r"'m' is a masked array, whose mask a kernel does not see"):
        memory.map(np.ma.masked_array([1.0, 2.0], [1, 0]), name="m")
    with pytest.raises(ValueError, match="big-endian"):
        memory.map(np.zeros(2, [("a", ">i4"), ("b", "u1")]))
    for call in (lambda: memory.unmap(1.5), lambda: memory.unmap(None), lambda: memory.view("a", 1)):
        with pytest.raises(TypeError, match="addresses and lengths are whole numbers"):
            call()
    with pytest.raises(ValueError, match=r"allocate\(1\.5\): a buffer has a whole number of bytes"):
        memory.allocate(1.5)
    for size in (1 << 60, 1 << 70):
        with pytest.raises(LaunchError, match="this machine has not so much memory"):
            memory.allocate(size)
    assert memory.buffers == ()


def test_array_arguments_that_no_machine_holds(tmp_path):
    for shape in ("99999999999999999", "9223372036854775807x9", "x".join(["1"] * 70)):
        with pytest.raises(ValueError, match="cannot make an array of shape"):
            parse_argument(f"zeros:f32:{shape}:y.npy")
    with pytest.raises(ValueError, match="is no shape"):
        parse_argument(f"zeros:f32:{'9' * 400}:y.npy")
    with pytest.raises(ValueError, match="has 5000 characters, more than 4096") as refused:
        parse_argument("1" * 5000)
    assert len(str(refused.value)) < 200
    head = b"{'descr': '<u4', 'fortran_order': False, 'shape': (999999999999999,), }".ljust(117) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + head)
    with pytest.raises(ValueError, match="states an array that does not fit in memory"):
        parse_argument(f"{tmp_path / 'x.npy'}:y.npy")
