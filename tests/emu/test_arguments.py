"""Arguments as callers have them: arrays, tensors and scalars of every type; used in place, or refused in words."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import pytest
import torch
from llvm_tools import assembled, compiled, kernel_source

from emu.dispatch import Device, RunOptions
from emu.errors import LaunchError
from emu.geometry import Geometry

SOURCE = r"""
#define GLOBAL __attribute__((address_space(1)))
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected"))) void
#define index (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())
typedef struct { int a; short b; long c; } pair;
KERNEL flip(GLOBAL unsigned char *x, int n) { if (index < n) x[index] ^= 0xa5; }
KERNEL copy(GLOBAL unsigned *out, const GLOBAL unsigned *x) { out[index] = x[index]; }
KERNEL whole(GLOBAL int *out, int a, short b, signed char c, long d) { out[0] = a; out[1] = b; out[2] = c; out[3] = d; }
KERNEL floats(GLOBAL double *out, float a, double b, _Float16 c) { out[0] = a; out[1] = b; out[2] = c; }
KERNEL record(GLOBAL long *out, pair p) { out[0] = p.a; out[1] = p.b; out[2] = p.c; }
KERNEL is_null(GLOBAL int *out, GLOBAL int *x) { out[0] = x == 0; }
KERNEL count(GLOBAL int *out) { out[index] = __builtin_amdgcn_workgroup_size_x(); }
"""
METADATA = """
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 8
    .vgpr_count: 8
    .max_flat_workgroup_size: 64
    .args:
      - {.offset: 0, .size: 4, .value_kind: by_value, .name: scale, .type_name: float}
      - {.offset: 4, .size: 4, .value_kind: by_value, .name: n, .type_name: uint}
      - {.offset: 8, .size: 4, .value_kind: by_value, .name: other, .type_name: my_t}
.end_amdgpu_metadata
"""


@pytest.fixture(scope="module")
def module():
    return Device(RunOptions(engine="numpy")).load(compiled(SOURCE))


@pytest.fixture(scope="module")
def typed():
    source = kernel_source(".amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_kernarg_size 24", name="k") + METADATA
    return Device(RunOptions(engine="numpy")).load(assembled(source))["k"]


NUMPY_TYPES = [np.uint8, np.int16, np.float16, np.int64, np.float64, np.complex64, np.bool_]
NUMPY_TYPES += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu]
NUMPY_TYPES += [ml_dtypes.float4_e2m1fn, ml_dtypes.int4, ml_dtypes.float8_e4m3fnuz]
TORCH_TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64]
TORCH_TYPES += [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float8_e4m3fnuz, torch.uint16]


@pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda d: np.dtype(d).name)
def test_arrays_of_any_type_are_used_in_place(module, dtype):
    array = np.zeros((4, 5), dtype)
    before = array.view(np.uint8)
    before[:] = np.arange(before.size).reshape(before.shape)
    expected = before ^ 0xA5
    module["flip"][-(-before.size // 64), 64](array, array.nbytes)
    np.testing.assert_array_equal(array.view(np.uint8), expected)


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
def test_tensors_of_any_type_are_used_in_place(module, dtype):
    memory = torch.arange(24 * dtype.itemsize, dtype=torch.uint8)
    tensor = memory.view(dtype).reshape(4, 6)
    expected = memory.numpy() ^ 0xA5
    module["flip"][-(-memory.numel() // 64), 64](tensor, tensor.nbytes)
    np.testing.assert_array_equal(memory.numpy(), expected)


def test_the_engines_see_the_same_tensor():
    results = []
    for engine in ("numpy", "host"):
        tensor = torch.linspace(-3, 3, 64, dtype=torch.bfloat16)
        Device(RunOptions(engine=engine)).load(compiled(SOURCE))["flip"][2, 64](tensor, 128)
        results.append(tensor.view(torch.uint8))
    assert torch.equal(*results)
    assert not torch.equal(results[0], torch.linspace(-3, 3, 64, dtype=torch.bfloat16).view(torch.uint8))


def test_parameters_keep_their_gradients_and_get_new_values(module):
    parameter = torch.nn.Parameter(torch.arange(64, dtype=torch.float32))
    out = torch.zeros(64, dtype=torch.float32, requires_grad=True)
    module["copy"][1, 64](out, parameter)
    assert torch.equal(out.detach(), torch.arange(64, dtype=torch.float32))
    (out * 2).sum().backward()
    assert torch.equal(out.grad, torch.full((64,), 2.0))
    assert parameter.requires_grad


def test_a_view_of_part_of_a_tensor_is_its_own_buffer(module):
    whole = torch.zeros(3, 64, dtype=torch.int32)
    module["copy"][1, 64](whole[1], np.arange(64, dtype=np.int32))
    assert torch.equal(whole[1], torch.arange(64, dtype=torch.int32))
    assert not whole[0].any()
    assert not whole[2].any()
    with pytest.raises(Exception, match="argument 0"):  # the rows around it are not mapped
        module["flip"][8, 64](whole[1], 512)


def test_one_array_twice_is_one_buffer(module):
    x = torch.arange(64, dtype=torch.int32)
    module["copy"][1, 64](x, x)
    assert len(module.device.memory.buffers) == 1  # the code object; all arguments are unmapped after a launch


def test_read_only_arrays_may_be_read_only(module):
    source, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    source.flags.writeable = False
    module["copy"][1, 64](out, source)
    np.testing.assert_array_equal(out, source)
    with pytest.raises(Exception, match="read-only"):
        module["copy"][1, 64](source, out)


def test_one_element_buffers_have_no_dimension(module):
    for counter in (np.zeros((), np.int32), torch.zeros((), dtype=torch.int32)):
        module["is_null"][1, 1](counter, None)
        assert counter == 1
        module["is_null"][1, 1](counter, counter)
        assert counter == 0


INTEGERS = [
    (-7, -3, -128, 1 << 40),
    (np.int32(-7), np.int16(-3), np.int8(-128), np.int64(1 << 40)),
    tuple(map(torch.tensor, (np.int32(-7), np.int16(-3), np.int8(-128), np.int64(1 << 40)))),
    (np.array(-7, np.int32), np.array(-3, np.int16), np.array(-128, np.int8), np.array(1 << 40)),
    (0xFFFFFFF9, 0xFFFD, 0x80, (1 << 40) - (1 << 64) + (1 << 64)),
]


@pytest.mark.parametrize("values", INTEGERS, ids=["python", "numpy", "torch", "0-d", "unsigned"])
def test_whole_numbers_by_value(module, values):
    out = np.zeros(4, np.int32)
    module["whole"][1, 1](out, *values)
    assert out.tolist() == [-7, -3, -128, 0]


@pytest.mark.parametrize(
    "values",
    [
        (0.1, 0.1, 0.1),
        (np.float32(0.1), np.float64(0.1), np.float16(0.1)),
        (torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float16)),
    ],
    ids=["python", "numpy", "torch"],
)
def test_floats_by_value(module, values):
    out = torch.zeros(3, dtype=torch.float64)
    module["floats"][1, 1](out, *values)
    assert out.tolist() == [float(np.float32(0.1)), 0.1, float(np.float16(0.1))]


def test_a_structure_by_value_is_an_array_of_its_size(module):
    record = np.zeros((), np.dtype({"names": ["a", "b", "c"], "formats": ["i4", "i2", "i8"], "offsets": [0, 4, 8]}))
    record["a"], record["b"], record["c"] = -5, 77, 1 << 50
    out = np.zeros(3, np.int64)
    for value in (
        record,
        record.reshape(1),
        record.tobytes(),
        torch.frombuffer(bytearray(record.tobytes()), dtype=torch.uint8),
    ):
        out[:] = 0
        module["record"][1, 1](out, value)
        assert out.tolist() == [-5, 77, 1 << 50]


def strided(tensor):
    return tensor.reshape(8, 8)[:, ::2]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (strided(torch.zeros(64)), r"argument 0 is a tensor of shape \(8, 4\) and strides \(8, 2\), which is not cont"),
        (torch.zeros(1).expand(64), r"strides \(0,\), which is not contiguous\n.*\n +expected: a contig"),
        (torch.zeros(64, device="meta"), r"argument 0 is a tensor on meta\n.*\n +expected: a tensor on the CPU"),
        (torch.zeros(8, 8).to_sparse(), "argument 0 is a sparse_coo tensor"),
        (torch.zeros(64, dtype=torch.complex64).conj(), r"conjugated or negated view.*\n.*\n.*\n.*resolve_conj\(\)"),
        (np.zeros((8, 8))[:, ::2], r"'argument 0' \(shape \(8, 4\), strides \(64, 16\)\) is not C-contiguous"),
        (np.zeros(64, ">i4"), "'argument 0' is big-endian"),
        (np.zeros(4, object), "'argument 0' has dtype object"),
        ([1, 2, 3], r"argument 0 is a pointer and got list \[1, 2, 3\]\n.*\n +expected: a numpy array or a CPU tensor"),
        (1.5, "argument 0 is a pointer and got float 1.5"),
        (True, "argument 0 is a pointer and got bool True"),
        (np.float32(1), "argument 0 is a pointer and got float32"),
    ],
)
def test_what_cannot_be_a_buffer(module, value, message):
    with pytest.raises((LaunchError, ValueError, TypeError), match=message):
        module["flip"][1, 64](value, 1)
    assert len(module.device.memory.buffers) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1 << 32, 0, 0, 0), r"(?s)argument 1.*an integer of 32 bits"),
        ((np.int64(1 << 40), 0, 0, 0), r"(?s)argument 1.*an integer of 32 bits"),
        ((torch.tensor(1), 0, 0, 0), r"argument 1 takes 4 bytes by value and got 8: a Tensor of type torch.int64\n"),
        (
            (torch.zeros(4), 0, 0, 0),
            r"got 16: a Tensor of type torch.float32 and shape \(4,\)",
        ),
        ((0, 0, 0, "text"), r"(?s)argument 4.*an int, a float, a numpy scalar"),
        ((0, 0, 0), "takes 5 arguments and got 4"),
        ((0, 0, 0, 0, torch.zeros(3)), "takes 5 arguments and got 6"),
    ],
)
def test_scalars_that_do_not_fit(module, arguments, message):
    with pytest.raises(LaunchError, match=message):
        module["whole"][1, 1](np.zeros(4, np.int32), *arguments)
    assert len(module.device.memory.buffers) == 1


def test_the_metadata_s_types_are_checked_by_name(typed):
    good = {"scale": 1, "n": 2, "other": 3}
    for changed in (
        {"scale": np.float32(1)}, {"scale": np.int32(1)}, {"scale": torch.tensor(1, dtype=torch.int32)},
        {"n": np.int32(1)}, {"n": torch.tensor(2)}, {"other": np.float32(1)},
    ):  # fmt: skip
        typed.launch(Geometry.of_blocks(1, 64), good | changed)
    for name, value, message in [
        ("scale", np.complex64(1), r'argument 0 "scale" \(float, .* got complex64.*\n.*\n.*a number of type float'),
        ("scale", np.str_("a"), r"got str_ .*\n.*\n.*a number of type float"),
        ("n", np.float32(1), r"\(uint, .* got float32 np.float32\(1.0\)\n.*\n.* a whole number.*uint\n.*write 1$"),
        ("n", torch.tensor(1.0), r"\(uint, 4 bytes at offset 4\) got float32 .*\n.*\n.* a whole number"),
        (
            "n",
            1.5,
            r"\(uint, 4 bytes at offset 4\) got float 1.5\n.*\n.* a whole number.*\n.*write int\(...\) or round",
        ),
        ("n", ml_dtypes.bfloat16(1), r"got bfloat16 1\n.*\n.* a whole number"),
        ("n", 1 << 32, r"got int 4294967296\n.*\n.*32 bits, signed or unsigned: -2147483648 to 4294967295\n.*wider"),
        ("other", 1.5, "a value of type my_t; a Python float would change its meaning"),
        ("m", 1, "unknown m"),
    ]:
        with pytest.raises(LaunchError, match=message):
            typed.launch(Geometry.of_blocks(1, 64), {**good, name: value})


def test_a_grid_of_work_items_has_a_partial_workgroup(module):
    for engine in ("numpy", "host"):
        out = np.zeros(128, np.uint8)
        report = module["flip"][Geometry.of_items(100, 64)](out, 128, options=RunOptions(engine=engine))
        assert report.workgroups == 2
        assert out.tolist() == [0xA5] * 100 + [0] * 28


def test_hidden_arguments_may_be_given(module):
    out = np.zeros(64, np.int32)
    module["count"][1, 64](out)
    assert set(out.tolist()) == {64}
    module["count"][1, 64](out, hidden={"hidden_group_size_x": 7})
    assert set(out.tolist()) == {7}
    with pytest.raises(LaunchError, match=r"(?s)no hidden argument hidden_nothing\n.*some of: hidden_block_co"):
        module["count"][1, 64](out, hidden={"hidden_nothing": 7})
    with pytest.raises(LaunchError, match="given as bytes, which hold the hidden arguments"):
        module["count"].launch(Geometry.of_blocks(1, 64), bytes(256), hidden={"hidden_group_size_x": 7})
    options = RunOptions(engine="device")
    with pytest.raises(LaunchError, match="on a device HIP fills in the hidden arguments"):
        module["count"][1, 64](out, options=options, hidden={"hidden_group_size_x": 7})


@pytest.mark.parametrize("watch", [5, (1,), ("a", "b"), [1, 2]])
def test_a_watch_that_is_no_range(watch):
    with pytest.raises(LaunchError, match=r"watch is .*\n.*two device addresses"):
        RunOptions(watch=watch)


def test_a_tensor_can_be_watched(module):
    x = torch.zeros(64, dtype=torch.int32)
    report = module["copy"][1, 64](x, np.arange(64, dtype=np.int32), watch=(x, 40))
    assert report.watch.lane == 10


def test_torch_is_not_imported_by_the_emulator():
    code = (
        "import sys, numpy as np; from emu.dispatch import Device, RunOptions; data = open(sys.argv[1], 'rb').read();"
        "x = np.zeros(64, np.uint8); Device(RunOptions(engine='numpy')).load(data)['flip'][1, 64](x, 64);"
        "print('torch' in sys.modules, x[0])"
    )
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(compiled(SOURCE))
        file.flush()
        run = subprocess.run([sys.executable, "-c", code, file.name], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "165"]
