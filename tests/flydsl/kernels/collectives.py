"""FlyDSL's own cooperative algorithms (`flydsl.expr.coop`): every algorithm over a workgroup and over a wave.

Each build loads four 32-bit keys and four values a thread, runs some calls, and stores what they return, a thread's
results one after the other.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx

BLOCK, ITEMS = 256, 4
BINS = 32
coop = fx.coop
ADD, MAX, MIN = fx.ReductionOp.ADD, fx.ReductionOp.MAX, fx.ReductionOp.MIN


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def flat(results):
    """The elements of vectors and lists, one after the other."""
    elements = []
    for result in results:
        if isinstance(result, fx.Vector):
            elements += [result[i] for i in range(result.numel)]
        else:
            elements += result if isinstance(result, (list, tuple)) else [result]
    return elements


def store_all(elements, out, thread):
    for i, element in enumerate(elements):
        (out + (thread * len(elements) + i)).store(fx.Int32(element))


def one_kernel(body):
    """A build of `body(keys, values, source) -> results`: vectors of a thread, and where all the keys lie."""

    @flyc.kernel
    def algorithm(keys: fx.Pointer, values: fx.Pointer, out: fx.Pointer):
        thread = fx.thread_idx.x
        mine = [(matrix + thread * ITEMS).load(fx.Int32x4) for matrix in (keys, values)]
        store_all(flat(body(*mine, keys)), out, thread)

    @flyc.jit
    def launch(keys: fx.Pointer, values: fx.Pointer, out: fx.Pointer):
        algorithm(keys, values, out).launch(grid=(1, 1, 1), block=(BLOCK, 1, 1))

    return lambda: launch(*[pointer(fx.Int32)] * 3)


def stages(primitive, *calls):
    """The results of calls of one primitive, with its LDS between barriers."""
    storage = fx.SharedAllocator().allocate(primitive.SharedStorage).peek()
    results = []
    for call in calls:
        result = call(primitive, storage)
        results += result if isinstance(result, tuple) else [result]
        fx.gpu.barrier()
    return results


def block_reduce(kind):
    return lambda algorithm: (
        lambda x, y, source: stages(
            kind[fx.Int32, BLOCK, algorithm],
            lambda p, s: p(x, ADD, storage=s),
            lambda p, s: p(x, MAX, storage=s),
            lambda p, s: p(x[0], MIN, storage=s, valid_items=100),
        )
    )


def block_scan(kind):
    return lambda algorithm: (
        lambda x, y, source: stages(
            kind[fx.Int32, BLOCK, algorithm],
            lambda p, s: p.inclusive(x, ADD, storage=s),
            lambda p, s: p.exclusive(x, MAX, storage=s, init=-5),
            lambda p, s: p.exclusive_with_aggregate(x, ADD, storage=s, init=0)[1],
        )
    )


def shuffle(algorithm):
    return lambda x, y, source: stages(
        coop.BlockShuffle[fx.Int32, BLOCK, algorithm],
        lambda p, s: p.up(x, storage=s, predecessor=-1),
        lambda p, s: p.down(x, storage=s, successor=-2),
        lambda p, s: p.offset(x[0], distance=70, storage=s, fill=-3),
        lambda p, s: p.rotate(x[0], distance=70, storage=s),
    )


def adjacent_difference(x, y, source):
    return stages(
        coop.BlockAdjacentDifference[fx.Int32, BLOCK, coop.BlockShuffleAlgorithm.SHARED_MEMORY],
        lambda p, s: p.subtract_left(x, storage=s),
        lambda p, s: p.subtract_right(x, storage=s),
    )


def discontinuity(x, y, source):
    return stages(
        coop.BlockDiscontinuity[fx.Int32, BLOCK, coop.BlockShuffleAlgorithm.SHARED_MEMORY],
        lambda p, s: p.flag_heads_and_tails(x & 1, storage=s),
    )


def exchange(algorithm):
    return lambda x, ranks, source: stages(
        coop.BlockExchange[fx.Int32, BLOCK, ITEMS, algorithm],
        lambda p, s: p.blocked_to_striped(x, storage=s),
        lambda p, s: p.blocked_to_warp_striped(x, storage=s),
        lambda p, s: p.striped_to_blocked(x, storage=s),
        lambda p, s: p.warp_striped_to_blocked(x, storage=s),
        lambda p, s: p.scatter_to_blocked(x, ranks, storage=s),
        lambda p, s: p.scatter_to_striped(x, ranks, storage=s),
    )


def histogram(algorithm):
    return lambda x, y, source: stages(
        coop.BlockHistogram[fx.Int32, BLOCK, BINS, algorithm],
        lambda p, s: p(x & (BINS - 1), storage=s)[fx.thread_idx.x % BINS],
    )


def load(algorithm):
    return lambda x, y, source: stages(
        coop.BlockLoad[fx.Int32, BLOCK, ITEMS, algorithm],
        lambda p, s: p(source, storage=s),
        lambda p, s: p(source, storage=s, offset=3, valid_items=501, default=-1),
    )


def store(algorithm):
    """Stores over the keys themselves, which the last of them shall see."""

    def body(x, y, source):
        primitive = coop.BlockStore[fx.Int32, BLOCK, ITEMS, algorithm]
        storage = fx.SharedAllocator().allocate(primitive.SharedStorage).peek()
        fx.gpu.barrier()
        primitive(source, y, storage=storage, offset=3, valid_items=501)
        return [x]

    return body


def merge_sort(x, y, source):
    return stages(
        coop.BlockMergeSort[(fx.Int32, fx.Int32), BLOCK, ITEMS, coop.BlockMergeSortAlgorithm.MERGE],
        lambda p, s: p.stable_sort(x & 7, y, storage=s, descending=True),
    )


def radix_sort(kind):
    return lambda algorithm: (
        lambda x, y, source: stages(
            kind[(fx.Int32, fx.Int32), BLOCK, ITEMS, algorithm],
            lambda p, s: p(x, y, storage=s),
            lambda p, s: p.sort_descending(x, y, storage=s, begin_bit=4, end_bit=12),
        )
    )


def radix_rank(algorithm):
    return lambda x, y, source: stages(
        coop.BlockRadixRank[fx.Int32, BLOCK, ITEMS, algorithm],
        lambda p, s: p(x, storage=s, begin_bit=2, end_bit=6),
    )


def run_length_decode(x, y, source):
    """The lengths of a thread's four runs, 0 to 3, are the low bits of its values."""
    return stages(
        coop.BlockRunLengthDecode[fx.Int32, BLOCK, ITEMS, coop.BlockRunLengthDecodeAlgorithm.SCAN],
        lambda p, s: p(x, y & 3, storage=s, decoded_items_per_thread=6, default=-1),
    )


def top_k(algorithm):
    return lambda x, y, source: stages(
        coop.BlockTopK[(fx.Int32, fx.Int32), BLOCK, ITEMS, algorithm],
        lambda p, s: p(x, 37, y, storage=s, largest=True),
    )


def each(name, builder, algorithms):
    """The builds of one primitive, one for each member of its enumeration."""
    return {f"{name}_{member.value}": builder(member) for member in algorithms}


def warp_reduce(space, width):
    return lambda x, y, source: [
        space.warp_reduce(x[0], ADD, width=width),
        space.warp_reduce(x, MAX, width=width),
        space.warp_sum(x[1], width=width),
        space.warp_max(x[2], width=width),
        space.warp_min(x[3], width=width),
        space.warp_reduce(x[0], ADD, width=width, valid_items=5),
    ]


def warp_scan(space, width):
    return lambda x, y, source: [
        space.warp_inclusive_scan(x[0], ADD, width=width),
        space.warp_exclusive_scan(x[1], MAX, width=width, init=-7),
        space.warp_inclusive_sum(x[2], width=width),
        space.warp_exclusive_sum(x[3], width=width),
        space.warp_broadcast(x[0], 3, width=width),
        space.warp_broadcast(x[1], y[0] & (width - 1), width=width),
    ]


def warp_segments(x, y, source):
    """Segments begin where the lowest bits of the value are 0, or end there."""
    flag = fx.Int32((y[0] & 3) == 0)
    return [
        coop.warp_head_segmented_reduce(x[0], flag, ADD, width=32),
        coop.warp_tail_segmented_reduce(x[1], flag, MAX, width=32),
    ]


def warp_batches(x, y, source):
    return [
        coop.warp_reduce_batched(x, ADD, width=16),
        coop.warp_reduce_batched_to_blocked(x, MAX, width=2),
        coop.warp_reduce_batched_to_striped(x, ADD, width=2),
    ]


def warp_sorts(x, y, source):
    return [
        coop.warp_bitonic_sort(x, width=8),
        *coop.warp_merge_sort(x & 7, y, width=8),
    ]


def warp_exchange(algorithm):
    width = ITEMS if algorithm is coop.WarpExchangeAlgorithm.SHUFFLE else 16  # it asks for a square
    primitive = coop.WarpExchange[fx.Int32, width, ITEMS, algorithm]

    def body(x, ranks, source):
        storage = None
        if algorithm is coop.WarpExchangeAlgorithm.SHARED:
            slots = fx.Array[primitive.SharedStorage, BLOCK // width]
            storage = fx.SharedAllocator().allocate(slots).peek()[fx.thread_idx.x // width]
        results = [primitive.blocked_to_striped(x, storage=storage)]
        fx.gpu.barrier()
        results.append(primitive.striped_to_blocked(x, storage=storage))
        fx.gpu.barrier()
        return results

    return body


def warp_load_and_store(x, y, source):
    group = fx.thread_idx.x // 16
    read = coop.WarpLoad[fx.Int32, 16, ITEMS, coop.WarpLoadAlgorithm.STRIPED].load(source, offset=group * 64)
    fx.gpu.barrier()
    coop.WarpStore[fx.Int32, 16, ITEMS, coop.WarpStoreAlgorithm.VECTORIZE].store(source, y, offset=group * 64)
    return [read]


BODIES = {
    **each("reduce", block_reduce(coop.BlockReduce), coop.BlockReduceAlgorithm),
    **each("universal_reduce", block_reduce(coop.universal.BlockReduce), coop.BlockReduceAlgorithm),
    **each("scan", block_scan(coop.BlockScan), coop.BlockScanAlgorithm),
    **each("universal_scan", block_scan(coop.universal.BlockScan), coop.BlockScanAlgorithm),
    **each("shuffle", shuffle, coop.BlockShuffleAlgorithm),
    "adjacent_difference": adjacent_difference,
    "discontinuity": discontinuity,
    **each("exchange", exchange, coop.BlockExchangeAlgorithm),
    **each("histogram", histogram, coop.BlockHistogramAlgorithm),
    **each("load", load, coop.BlockLoadAlgorithm),
    **each("store", store, coop.BlockStoreAlgorithm),
    "merge_sort": merge_sort,
    **each("radix_sort", radix_sort(coop.BlockRadixSort), coop.BlockRadixSortAlgorithm),
    **each("radix_rank", radix_rank, coop.BlockRadixRankAlgorithm),
    "run_length_decode": run_length_decode,
    **each("top_k", top_k, coop.BlockTopKAlgorithm),
    **{f"warp_reduce_{width}": warp_reduce(coop, width) for width in (64, 16)},
    **{f"warp_scan_{width}": warp_scan(coop, width) for width in (64, 16)},
    "universal_warp_reduce_32": warp_reduce(coop.universal, 32),
    "universal_warp_scan_32": warp_scan(coop.universal, 32),
    "warp_segments": warp_segments,
    "warp_batches": warp_batches,
    "warp_sorts": warp_sorts,
    **each("warp_exchange", warp_exchange, coop.WarpExchangeAlgorithm),
    "warp_load_and_store": warp_load_and_store,
}
BUILDS = {name: one_kernel(body) for name, body in BODIES.items()}
