"""Results of a transcendental instruction for consecutive inputs, packed as their difference to the default's.

The default is the correctly rounded result, from which a unit differs by one at times: two bits an input and zlib then
make a binade small. Whatever the results are, nothing is lost.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.capture import CaptureError
from codegen.kernels.probes.probe import Step
from codegen.kernels.probes.value_step import MODES, predicted
from gfx950.arithmetic.result_table import difference_codes, results_check
from gfx950.arithmetic.transcendental import DEFAULTS
from gfx950.lanes import LANES
from gfx950.models import Model

Words = NDArray[np.uint32]
_EXCEPTION = 3  # of `difference_codes`: neither the default nor one beside it
_STEPS = np.array([0, 1, -1 & 0xFFFFFFFF, 0], np.uint32)  # what the codes add


@dataclass(frozen=True)
class ResultsStep(Step):
    """A step whose output is an instruction's results for consecutive inputs from `first` on; a capture has them
    packed. mode: MODE's value."""

    mnemonic: str = field(kw_only=True)
    first: int = field(kw_only=True)
    mode: int = field(kw_only=True, default=MODES["default"])

    @property
    def bits(self) -> Words:
        """The inputs."""
        return np.arange(self.output[0][0], dtype=np.uint32) + np.uint32(self.first)

    def kept(self, output: NDArray[Any]) -> NDArray[np.uint8]:
        """The results packed."""
        return pack(output, default_results(self.mnemonic, self.bits))

    def unpacked(self, packed: NDArray[np.uint8]) -> Words:
        """The results of what a capture kept. Raises CaptureError where that is not of this step."""
        return unpack(self.name, packed, default_results(self.mnemonic, self.bits))

    def predicted(self, model: Model) -> Words:
        """The results under a model."""
        words = self.bits.reshape(-1, 1, LANES)
        return predicted(self.mnemonic, {}, self.mode, words, model).reshape(-1)


def default_results(mnemonic: str, bits: Words) -> Words:
    """Correctly rounded results of input bits, as many as fill waves."""
    return DEFAULTS[mnemonic](bits.reshape(-1, 1, LANES)).reshape(-1)


def pack(results: Words, plain: Words) -> NDArray[np.uint8]:
    """Results, a multiple of four, by their difference to others: check sum, number of exceptions, codes of two bits,
    places of the exceptions and their results; compressed."""
    codes = difference_codes(plain, results)
    places = np.flatnonzero(codes == _EXCEPTION).astype("<u4")
    packed = codes[0::4] | codes[1::4] << 2 | codes[2::4] << 4 | codes[3::4] << 6
    head = np.array([results_check(results), len(places)], "<u4")
    parts = head, packed, places, results[places].astype("<u4")
    return np.frombuffer(zlib.compress(b"".join(part.tobytes() for part in parts), 9), np.uint8)


def unpack(name: str, packed: NDArray[np.uint8], plain: Words) -> Words:
    """The inverse of `pack`. Raises CaptureError, naming the step, for what is not packed against these."""
    try:
        content = zlib.decompress(packed.tobytes())
        check, count = np.frombuffer(content[:8], "<u4").tolist()
        size = len(plain) // 4
        codes = np.frombuffer(content, np.uint8, size, 8)
        places, others = np.frombuffer(content, "<u4", 2 * count, 8 + size).reshape(2, count)
    except (zlib.error, ValueError) as error:
        raise CaptureError(f"{name}: the capture has no packed results: {error}") from None
    results = plain + _STEPS[np.stack([codes >> low & 3 for low in (0, 2, 4, 6)], axis=1).reshape(-1)]
    results[places] = others
    if results_check(results) != check:
        raise CaptureError(
            f"{name}: its results were packed against another version of the default, which this one cannot undo"
        )
    return results
