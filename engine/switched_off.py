"""What an engine switched off, and why: for `hello`, the terminal and `stepscope doctor`. No torch."""

from __future__ import annotations

from engine.config import EngineConfig


def why_no_graphs(config: EngineConfig, device: str) -> str | None:
    """Why decode steps are launched kernel by kernel on this type of device; None if CUDA graphs replay them."""
    if device != "cuda":
        return f"there are none on {_place(device)}" + ("; --enforce-eager changes nothing" * config.enforce_eager)
    return "--enforce-eager: every step launches its kernels one by one" if config.enforce_eager else None


def _place(device: str) -> str:
    return "a CPU" if device == "cpu" else "an engine without a model"


def switched_off(config: EngineConfig, device: str, passed_over: str | None = None) -> list[dict[str, str]]:
    """`hello.disabled`: what was asked for, or could have been used, and is not. `passed_over`: a GPU, and why."""
    off = [] if passed_over is None else [{"feature": "cuda", "reason": passed_over}]
    no_graphs = why_no_graphs(config, device)
    if config.enforce_eager and no_graphs is not None:
        off.append({"feature": "cuda_graphs", "reason": no_graphs})
    return off
