"""Command-line flags <-> EngineConfig, for `stepscope serve` and `python -m engine` alike. No torch."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from engine.config import CHOICES, EngineConfig, flag

_HELP = {
    "model": "folder, .gguf file, hub id, or 'scripted' (no weights: to try the page); default: the embedded model",
    "load_format": "how to read the model; dummy makes random weights for a config.json",
    "device": "where to run; auto is a GPU that can run the kernels, else the CPU",
    "dtype": "of weights and activations; auto is float32 on a CPU, bfloat16 on a GPU",
    "kv_cache_dtype": "of cached keys and values; auto is float32 on a CPU, as --dtype on a GPU; int8, fp8: a byte",
    "max_model_len": "most tokens of one request, prompt and output together",
    "block_size": "tokens per KV block",
    "num_blocks": "size of the KV pool in blocks; default from memory",
    "kv_cache_memory_bytes": "size of the KV pool in bytes; default from memory",
    "gpu_memory_utilization": "share of GPU memory to use",
    "max_num_seqs": "slots: most requests in one batch",
    "max_num_batched_tokens": "token budget of one step",
    "max_queue": "most waiting requests; one more is answered 429",
    "enable_prefix_caching": "share KV blocks between equal prefixes",
    "enable_chunked_prefill": "let a long prompt be computed over several steps",
    "long_prefill_token_threshold": "most prompt tokens of one request in one step; 0 is no limit",
    "batching": "static lets nobody join before everybody has finished",
    "scheduling_policy": "who goes next; priority preempts, shortest-first may starve",
    "speculative": "guess tokens ahead: none, ngram:K or draft:MODEL:K (first-N-layers is a MODEL too)",
    "enforce_eager": "capture no CUDA graphs, replay none: every step launches its kernels one by one",
    "watermark": "share of the pool kept free when a request is admitted",
    "seed": "of requests that bring none",
    "start_paused": "hold the gate from the start",
    "scripted_step_ms": "pace of --model scripted: milliseconds per step",
    "simulate": "load no model: scripted tokens, each step as long as a cost model predicts",
    "cost_model": "pace of --simulate: a file that python -m engine.simulator --save-cost-model wrote",
}


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag per field of EngineConfig, under vLLM's names."""
    group = parser.add_argument_group("engine")
    for field in dataclasses.fields(EngineConfig):
        default = field.default
        options: dict[str, Any] = {"dest": field.name, "help": _HELP[field.name], "default": default}
        if default is False:
            options["action"] = "store_true"
        elif default is True:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = int if default is None else type(default)
            options["choices"] = CHOICES.get(field.name)
            options["metavar"] = None if options["choices"] else {int: "N", float: "X", str: "NAME"}[options["type"]]
        if default not in (None, False):
            options["help"] += " (default: %(default)s)"
        group.add_argument(flag(field.name), **options)


def config_from_args(args: argparse.Namespace) -> EngineConfig:
    """Raises ConfigError with a sentence for values that cannot work."""
    return EngineConfig(**{field.name: getattr(args, field.name) for field in dataclasses.fields(EngineConfig)})


def config_to_argv(config: EngineConfig) -> list[str]:
    """The flags that make this config again."""
    argv: list[str] = []
    for field in dataclasses.fields(EngineConfig):
        value = getattr(config, field.name)
        if value != field.default:
            argv.append(setting_to_arg(field.name, value))
    return argv


def setting_to_arg(name: str, value: object) -> str:
    """The flag that gives one field its value."""
    if value is True:
        return flag(name)
    return "--no-" + flag(name)[2:] if value is False else f"{flag(name)}={value}"
