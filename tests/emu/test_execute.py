"""How control leaves an instruction."""

from filled_wave import make_wave, run

from gfx950.isa.encoding import decode


def test_branch_targets_count_dwords_from_the_next_instruction():
    for immediate, target in [(0, 0x1004), (1, 0x1008), (0xFFFF, 0x1000), (0x8000, 0x1004 - 0x20000)]:
        transfer = make_wave().step(decode((0xBF820000 | immediate).to_bytes(4, "little"), 0x1000, 0x1000))
        assert (transfer.kind, transfer.target, transfer.condition) == ("branch", target, None)


def test_flow_instructions_change_no_register(assemble):
    wave = make_wave()
    vgprs, sgprs = wave.vgprs.copy(), wave.sgprs.copy()
    run(wave, assemble, "s_nop 3\ns_waitcnt vmcnt(0)\ns_barrier\ns_sleep 1\ns_branch 4\ns_dcache_inv\nds_nop\ns_endpgm")
    assert (wave.vgprs == vgprs).all()
    assert (wave.sgprs == sgprs).all()


def test_a_loop_runs(assemble):
    """Sums 1..10 with a backward branch: the numpy wave moved by hand."""
    start = "s_mov_b32 s0, 0\ns_mov_b32 s1, 10\n"
    body = "s_add_u32 s0, s0, s1\ns_sub_u32 s1, s1, 1\ns_cmp_lg_u32 s1, 0\ns_cbranch_scc1 65532\n"
    code = assemble(f"{start}{body}s_endpgm")
    wave, pc = make_wave(), 0
    while True:
        decoded = decode(code, pc)
        transfer = wave.step(decoded)
        if transfer is not None and transfer.kind == "end":
            break
        taken = transfer is not None and bool(transfer.condition[0])
        pc = transfer.target if taken else pc + decoded.nbytes
    assert wave.sgprs[0] == 55
