"""Each fault that others met, and that this engine could have, is named by a test that shows the right answer here.

The numbers are those of the project's list of such faults, by kind. A test names a fault in its docstring, or says
there why it cannot happen; so whoever reads the list finds its answer by searching for the number.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FAULTS = {
    "stopping": range(6, 12),
    "bad or extreme input": range(12, 21),
    "prefix cache": range(23, 30),
    "blocks come back": range(30, 36),
    "preemption": range(36, 40),
    "priority": range(40, 43),
    "same input, same output": range(43, 48),
    "quantised KV": range(48, 49),
}


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Every A-number in any other file of tests/."""
    own = Path(__file__).resolve()
    texts = [path.read_text(encoding="utf-8") for path in own.parent.rglob("*.py") if path.resolve() != own]
    return set(re.findall(r"\bA\d+\b", "\n".join(texts)))


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_of_a_kind_is_named_by_a_test(kind: str, named: set[str]) -> None:
    assert [f"A{number}" for number in FAULTS[kind] if f"A{number}" not in named] == []
