"""Small problems on torch tensors for the backend's tests, and plain torch attention to hold the results to."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import torch

from codegen.kernels.sparse_attention.sparse_pa import aiter_sparse_pa_kv_cache

FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16
GARBAGE = (-7, 2**31 - 1, -(2**31), 123456)


@dataclass
class Problem:
    """Requests of these lengths in a cache whose other slots are all `poison` bytes, in shuffled blocks.

    block_table: int32 [requests][columns], wider than any request, garbage in the columns that no token is in.
    """

    seq_lens: list[int]
    kv_heads: int = 1
    dtype: torch.dtype = FP8
    packed: bool = True
    poison: int = 0xFF
    spare_columns: int = 3
    seed: int = 1
    kv_cache: torch.Tensor = field(init=False)
    block_table: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(self.seed)
        blocks = [-(-n // 128) for n in self.seq_lens]
        count = sum(blocks) + 3
        columns = max(blocks) + self.spare_columns
        order = (torch.randperm(count - 1, generator=self.random) + 1).tolist()
        self.block_table = torch.tensor([GARBAGE[i % 4] for i in range(len(blocks) * columns)], dtype=torch.int32)
        self.block_table = self.block_table.reshape(len(blocks), columns)
        for request, n in enumerate(blocks):
            self.block_table[request, :n] = torch.tensor([order.pop() for _ in range(n)])
        shape = (count, 2, 128, self.kv_heads * 128) if self.packed else (2, count, 128, self.kv_heads * 128)
        memory = torch.full(shape, self.poison, dtype=torch.uint8)
        if self.dtype is BF16:
            memory = torch.full((*shape[:3], 2 * shape[3]), self.poison, dtype=torch.uint8)
        self.kv_cache = memory.view(self.dtype) if self.packed else memory.view(self.dtype).transpose(0, 1)
        self.k, self.v = aiter_sparse_pa_kv_cache(self.kv_cache, self.kv_heads)
        for request, n in enumerate(self.seq_lens):
            for position in range(n):
                self._write(request, position)

    @property
    def lens(self) -> torch.Tensor:
        return torch.tensor(self.seq_lens, dtype=torch.int32)

    @property
    def stride(self) -> int:
        return 16 if self.packed else 8

    def numbers(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.random)

    def query(self, rows: int) -> torch.Tensor:
        return self.numbers(rows, self.kv_heads * 16, 128).to(BF16)

    def place(self, request: int, position: int) -> tuple[int, int]:
        """The page of a token, and its place there."""
        return int(self.block_table[request, position // 128]) * self.stride + position % 128 // 16, position % 16

    def _write(self, request: int, position: int) -> None:
        page, token = self.place(request, position)
        x = self.k.shape[4]
        key, value = (self.numbers(self.kv_heads, 128).to(self.dtype) for _ in range(2))
        bits = torch.uint8 if self.dtype is FP8 else torch.int16
        self.k.view(bits)[page, :, :, token, :] = key.view(bits).reshape(self.kv_heads, 128 // x, x)
        self.v.view(bits)[page, :, token // x, :, token % x] = value.view(bits)

    def tokens(self, request: int, blocks: list[int], length: int) -> list[int]:
        """Positions that a row sees of blocks, in their order."""
        return [p for b in blocks for p in range(128 * b, min(128 * b + 128, length))]

    def read(self, request: int, positions: list[int], head: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of tokens as float64, through the 5-D views."""
        keys, values = [], []
        for position in positions:
            page, token = self.place(request, position)
            x = self.k.shape[4]
            keys.append(self.k.view(self.dtype)[page, head, :, token, :].to(torch.float64).reshape(128))
            values.append(self.v.view(self.dtype)[page, head, token // x, :, token % x].to(torch.float64))
        return torch.stack(keys), torch.stack(values)

    def attend(
        self, q: torch.Tensor, request: int, blocks: list[int], length: int, scale: float, scales: tuple = (1.0, 1.0)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One row in float64, and how far the roundings of P and of the output are expected to take it at most.

        q: [heads][128]. scales: of K and V, numbers or per-token [heads][tokens] in the order of pages.
        """
        out, width = [], []
        for head in range(self.kv_heads):
            positions = self.tokens(request, blocks, length)
            keys, values = self.read(request, positions, head)
            factors = [self._factors(s, request, positions, head) for s in scales]
            own = q[16 * head : 16 * head + 16]
            own = (own.to(FP8) if self.dtype is FP8 else own).to(torch.float64)
            s = own @ (keys * factors[0][:, None]).T * scale
            p = torch.exp(s - s.max(1, keepdim=True).values)
            v = values * factors[1][:, None]
            total, exact = p.sum(1, keepdim=True), p @ v / p.sum(1, keepdim=True)
            out.append(exact)
            width.append(_width(p, v, self.dtype) / total + 2.0**-7 * exact.abs() + 2.0**-9)
        return torch.cat(out), torch.cat(width)

    def _factors(self, scale: object, request: int, positions: list[int], head: int) -> torch.Tensor:
        if not isinstance(scale, torch.Tensor) or scale.numel() == 1:
            return torch.full((len(positions),), float(scale), dtype=torch.float64)  # type: ignore[arg-type]
        slots = [16 * page + token for page, token in (self.place(request, p) for p in positions)]
        return scale[head, slots].to(torch.float64)


def _width(p: torch.Tensor, v: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Seven standard deviations of the sum of P's roundings, and what P loses below its smallest subnormal."""
    relative, least = (2.0**-4, 2.0**-10) if dtype is FP8 else (2.0**-9, 0.0)
    rounding = torch.clamp(p * relative, min=least).square() @ v.square() / 3
    lost = torch.where(p < 2 * least, p, torch.zeros_like(p)) @ v.abs()
    return 7 * rounding.sqrt() + lost


def padded(rows: list[list[int]], width: int = 16) -> torch.Tensor:
    """Selections of one head, -1 past their end: int32 [1][rows][16]."""
    return torch.tensor([[row + [-1] * (width - len(row)) for row in rows]], dtype=torch.int32)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool((a.view(torch.int16) == b.view(torch.int16)).all())


def common(query_lens: list[int], seq_lens: list[int], block_table: torch.Tensor) -> SimpleNamespace:
    """The fields of vLLM's CommonAttentionMetadata."""
    offsets = torch.tensor([sum(query_lens[:i]) for i in range(len(query_lens) + 1)], dtype=torch.int32)
    return SimpleNamespace(
        num_reqs=len(query_lens),
        num_actual_tokens=sum(query_lens),
        query_start_loc=offsets,
        query_start_loc_cpu=offsets.clone(),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        block_table_tensor=block_table,
        slot_mapping=torch.full((sum(query_lens),), -1, dtype=torch.int64),
        max_query_len=max(query_lens),
        max_seq_len=max(seq_lens),
    )


def config(max_num_seqs: int = 8, max_model_len: int = 1024, **speculative: object) -> SimpleNamespace:
    """The fields of vLLM's VllmConfig; keywords are those of its speculative_config."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
        model_config=SimpleNamespace(max_model_len=max_model_len),
        speculative_config=SimpleNamespace(**speculative) if speculative else None,
    )
