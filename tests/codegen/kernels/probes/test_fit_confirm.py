"""Which captured steps are confirmed, and what is told of one that differs."""

from codegen.kernels.probes.capture import Origin, entry_of, make
from codegen.kernels.probes.fit import Evidence
from codegen.kernels.probes.fit_confirm import ConfirmFamily
from codegen.kernels.probes.lane_forms import Form, forms_step, lane_ids, under_patterns
from codegen.kernels.probes.probe import Step
from codegen.kernels.probes.run import Runner, run_steps
from emu.dispatch import RunOptions
from gfx950.models import DEFAULT

ORIGIN = Origin("device", "made up")


def rows_step(name):
    return forms_step(name, [Form("v_mov_b32", (), "row_mirror")], under_patterns([lane_ids(0x100), lane_ids(0x200)]))


def captured(steps, change=lambda name, output: output):
    """A capture of steps as a device might give it, and the evidence in it."""
    made = [(entry, change(entry.name, output.copy())) for entry, output in run_steps(Runner(RunOptions()), steps)]
    entries = [(entry_of(e.name, e.inputs, e.code, output), output) for e, output in made]
    return Evidence(make(ORIGIN, "quick", entries), {step.name: step for step in steps})


def changed_at(*index):
    def change(name, output):
        output[index] ^= 1
        return output

    return change


def test_confirmed_steps_have_no_difference():
    family = ConfirmFamily("confirm", ("T1/",))
    found = family.fit(captured([rows_step("T1/mirror")]), DEFAULT)
    assert (found.steps, found.unexplained, found.answers) == (1, [], {})
    assert ConfirmFamily("confirm", ("T2/",)).fit(captured([rows_step("T1/mirror")]), DEFAULT) is None


def test_an_unexplained_step_tells_item_register_and_lane():
    found = ConfirmFamily("confirm", ("T1/",)).fit(captured([rows_step("T1/mirror")], changed_at(2, 0, 37)), DEFAULT)
    (one,) = found.unexplained
    assert (one.step, one.count, one.index) == ("T1/mirror", 1, (2, 0, 37))
    assert one.captured == one.predicted ^ 1


def test_steps_that_are_not_exact_are_not_compared():
    given = rows_step("T1/mirror")
    inexact = Step("T1/clock", given.kernel, given.grid, given.inputs, given.output, given.scalars, exact=False)
    evidence = captured([inexact], changed_at(0, 0, 0))
    assert ConfirmFamily("confirm", ("T1/",)).fit(evidence, DEFAULT) is None
    both = captured([inexact, given], changed_at(0, 0, 0))
    assert [d.step for d in ConfirmFamily("confirm", ("T1/",)).fit(both, DEFAULT).unexplained] == ["T1/mirror"]
