"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.gpu import MigInstance
from pytest_llmperf.gpu.nvml.visible import select
from tests.gpu.devices import board

UUIDS = ("GPU-8932f937-d72c", "GPU-8932f000-aaaa", "GPU-11112222-3333", "GPU-44445555-6666")
BOARDS = [board(i, uuid=uuid, pci_bus_id=f"00000000:{i + 1:02X}:00.0") for i, uuid in enumerate(UUIDS)]


def seen(visible, boards=BOARDS, order=None):
    return [b.index for b in select(boards, visible, order).boards]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("  ", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("all", []),
        ("2", [2]),
        ("1,0", [1, 0]),
        (" 0 , 1 ", [0, 1]),
        ("\t3", [3]),
        ("0,junk,1", [0]),
        ("0,2,-1,1", [0, 2]),
        ("0,,1", [0]),
        (",0", []),
        ("0,", [0]),
        ("0,9,1", [0]),
        ("4", []),
        ("99999999999999999999", []),
        ("1abc,2", [1, 2]),
        ("0x3", [0]),
        ("+1", [1]),
        ("+-1", []),
        ("1.9", [1]),
        ("007", []),
        ("003", [3]),
        ("0-3", [0]),
        ("1 2", [1]),
        ("0,0", []),
        ("0,1,0,2", []),
        ("0,-1,0", [0]),
        ("0,00", []),
        ("²", []),
        ("\N{ARABIC-INDIC DIGIT ONE}", []),
        (UUIDS[2], [2]),
        (f"{UUIDS[3]},{UUIDS[0]}", [3, 0]),
        (f" {UUIDS[3]} , {UUIDS[0]} ", [3, 0]),
        ("GPU-1", [2]),
        ("GPU-8932f9", [0]),
        ("GPU-8932f", []),
        ("GPU-4,GPU-8932f,GPU-1", [3]),
        ("GPU-ffff", []),
        ("GPU-", []),
        ("gpu-1111", []),
        ("GPU-1,GPU-11112222", []),
        ("GPU-1,0", [2]),
        ("0,GPU-1", [0]),
        ("MIG-c7384736", []),
    ],
)
def test_the_boards_that_cuda_would_use(visible, indices):
    assert seen(visible) == indices


def test_without_boards_there_are_none():
    assert seen("0", []) == seen(None, []) == []


def test_the_only_board_may_be_named_by_any_beginning():
    assert seen("GPU-", BOARDS[:1]) == [0]


def test_indices_count_by_the_bus_and_not_as_nvml_does():
    crossed = [
        board(0, uuid="GPU-a", pci_bus_id="00000000:C1:00.0"),
        board(1, uuid="GPU-b", pci_bus_id="00000000:0A:00.0"),
    ]
    assert seen("0", crossed, "PCI_BUS_ID") == [1]
    assert seen(None, crossed, "PCI_BUS_ID") == [1, 0]
    assert seen("GPU-a", crossed, "PCI_BUS_ID") == [0]


class TestDifferentProducts:
    slow = board(0, name="NVIDIA T4", uuid="GPU-a", cores=2560, max_sm_clock_mhz=1590, pci_bus_id="0:1")
    fast = board(1, name="NVIDIA L40", uuid="GPU-b", cores=18176, max_sm_clock_mhz=2490, pci_bus_id="0:2")

    def test_the_fastest_comes_first_unless_the_bus_is_asked_for(self):
        assert seen("0", [self.slow, self.fast]) == seen("0", [self.slow, self.fast], "FASTEST_FIRST") == [1]
        assert seen("0", [self.slow, self.fast], "PCI_BUS_ID") == [0]

    def test_and_that_this_is_a_guess_is_said(self):
        assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in select([self.slow, self.fast], "0").doubt
        assert select([self.slow, self.fast], "0", "PCI_BUS_ID").doubt is None
        assert select([self.slow, self.fast], "GPU-a").doubt is None
        assert select([self.slow, self.fast], None).doubt is None
        assert select(BOARDS, "0").doubt is None

    def test_boards_that_do_not_tell_their_speed_are_in_the_order_of_the_bus(self):
        unknown = board(2, name="NVIDIA X", uuid="GPU-c", pci_bus_id="0:3")
        assert seen(None, [self.slow, self.fast, unknown]) == [0, 1, 2]


class TestMig:
    parts = (MigInstance("MIG-aaaa", 1, 0), MigInstance("MIG-abbb", 2, 0))
    cut = board(1, uuid="GPU-cut", mig_mode=True, mig_instances=parts, pci_bus_id="0:2")
    whole = board(0, uuid="GPU-whole", pci_bus_id="0:1")
    uncut = board(2, uuid="GPU-uncut", mig_mode=True, pci_bus_id="0:3")

    def used(self, visible, *boards):
        return [(b.index, b.mig and b.mig.uuid) for b in select(boards or (self.whole, self.cut), visible).boards]

    @pytest.mark.parametrize(
        ("visible", "used"),
        [
            ("MIG-abbb", [(1, "MIG-abbb")]),
            ("MIG-ab", [(1, "MIG-abbb")]),
            ("MIG-a", []),
            ("MIG-GPU-cut/2/0", [(1, "MIG-abbb")]),
            ("MIG-GPU-cut/3/0", []),
            ("MIG-abbb,MIG-aaaa", [(1, "MIG-abbb")]),
            ("MIG-abbb,MIG-abbb", []),
            ("MIG-zzzz,MIG-aaaa", []),
            # One instance is all that a process sees, and beside it no whole board.
            ("0,1", [(1, "MIG-aaaa")]),
            ("1", [(1, "MIG-aaaa")]),
            ("GPU-cut", [(1, "MIG-aaaa")]),
            ("0", [(0, None)]),
            (None, [(1, "MIG-aaaa")]),
        ],
    )
    def test_one_instance_at_most(self, visible, used):
        assert self.used(visible) == used

    def test_a_board_that_nobody_has_cut_yet_cannot_be_used(self):
        assert self.used(None, self.whole, self.uncut) == [(0, None)]
        assert self.used("0,1", self.whole, self.uncut) == [(0, None)]


@given(st.text(st.sampled_from("0123456789,- +abGPU-xMI\t"), max_size=20), st.integers(0, 4))
def test_whatever_the_list_each_board_appears_once(visible, count):
    indices = seen(visible, BOARDS[:count])
    assert len(set(indices)) == len(indices)
    assert set(indices) <= set(range(count))


@given(st.permutations(range(4)), st.integers(0, 4))
def test_a_valid_list_is_kept_as_it_is_by_index_and_by_uuid(indices, length):
    wanted = list(indices)[:length]
    assert seen(",".join(map(str, wanted))) == wanted
    assert seen(",".join(UUIDS[i] for i in wanted)) == wanted


@given(st.lists(st.sampled_from(["0", "1", "2", "3", "junk", "-1", ""]), max_size=6))
def test_what_follows_an_invalid_entry_does_not_matter(entries):
    before = next((entries[:i] for i, entry in enumerate(entries) if not entry.isdigit()), entries)
    assert seen(",".join(entries)) == (seen(",".join(before)) if before else [])
