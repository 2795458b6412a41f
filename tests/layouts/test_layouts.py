"""Several processes train every head as one process does, in every layout."""

import pytest
import torch

import hf_tformer
from hf_tformer.families import FAMILIES

from .heads import HEADS
from .heads import by_name as head_by_name
from .processes import new_layouts, run_in_processes
from .table import CELLS, LAYOUTS, WHY_NOT, why_not
from .table import by_name as layout_by_name
from .training import STEPS, train, train_cells

pytestmark = new_layouts

# What has gone wrong once, or is easily wrong: tied tables, norms of single heads, unequal parts.
QUICK_STEPS = 5
QUICK = {
    "replicated by 2": ["encoder, tokens"],
    "sharded by 2": ["decoder, tied words", "seq2seq, tied words", "encoder, tied words"],
    "tensor parallel by 2": ["decoder, untied words", "mixture, untied words"],
    "sharded and tensor parallel by 2": ["decoder, tied words"],
    "replicated and sharded by 2": ["encoder, texts"],
}


def test_every_class_that_learns_is_trained_in_every_layout_or_has_a_reason():
    classes = {
        getattr(hf_tformer, name) for family in FAMILIES.values() for name in family.models.values()
    }
    assert {head.model_class for head in HEADS} == classes
    used = {why_not(layout, name) for layout, name in CELLS}
    assert used == {*WHY_NOT.values(), None}, "a reason that is no longer one"


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_train_as_one(processes, tmp_path):
    cells = [
        (layout_by_name[layout], name)
        for layout, names in QUICK.items()
        for name in names
        if layout_by_name[layout].processes == processes
    ]
    assert_trained_as_one(cells, QUICK_STEPS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_head_is_trained_as_in_one_process(layout, tmp_path):
    cells = [cell for cell in CELLS if cell[0] is layout and why_not(*cell) is None]
    assert_trained_as_one(cells, STEPS, tmp_path)


def assert_trained_as_one(cells, steps, root):
    """The same losses, norms of the gradient and weights; `cells` have one number of processes."""
    expected, folders = {}, {}
    for layout, name in cells:
        model = head_by_name[name].build(**layout.changes)
        folders[name] = root / name
        model.save_pretrained(folders[name])
        trace = train(model, head_by_name[name], steps, head_by_name[name].batches(layout.lengths))
        assert trace["losses"][-1] < trace["losses"][0]
        expected[layout.name, name] = {**trace, "weights": model.state_dict()}
    run_in_processes(cells[0][0].processes, train_cells, cells, steps, folders)
    for layout, name in cells:
        folder = folders[name] / layout.name
        found = torch.load(folder / "trace.pt")
        found["weights"] = head_by_name[name].model_class.from_pretrained(folder).state_dict()
        for part, least in {"losses": 0, "norms": 0, "weights": 1e-5}.items():
            torch.testing.assert_close(
                found[part],
                expected[layout.name, name][part],
                rtol=1e-4,
                atol=least,
                msg=lambda text, cell=f"{layout.name}, {name}, {part}": f"{cell}: {text}",
            )
