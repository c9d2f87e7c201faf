"""How the engine's worker threads behave on a machine they share. No torch here: call before it is imported or used.

Torch and numba both run their loops on OpenMP threads. A step is some two hundred parallel loops, and after each the
threads wait for the last one. By default they wait by spinning; when anything else wants a core (the app,
a browser), the spinning thread keeps the very core the late one needs, and a step of 70 ms was seen to take
200 to 1,400.
"""

from __future__ import annotations

import os


def wait_politely() -> None:
    """Let waiting threads sleep instead of spin, unless the environment says otherwise.

    OpenMP reads this once, when its library is loaded: call before the first import of torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def share_one_pool() -> None:
    """Make numba's parallel loops run on the OpenMP threads that torch has, not on a second pool beside them.

    Two pools on the same cores wait for each other at every switch. Where numba has no OpenMP, its own choice stays.
    """
    import numba

    try:
        from numba.np.ufunc import omppool  # type: ignore[attr-defined] # noqa: F401
    except ImportError:
        return
    numba.config.THREADING_LAYER = "omp"  # type: ignore[attr-defined]
