"""EngineConfig: what one engine was asked to do, one field per flag, vLLM's flag names.

Invariant: a constructed config is valid by itself. What depends on the model (head counts, the context
it was trained for) or on the machine (memory) is settled once at load by `resolve`, which returns a
config without `None`s.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from engine.errors import ConfigError, shown
from engine.request import MAX_INTEGER
from engine.speculative import Speculation, parse_speculation

DEFAULT_MODEL = "smollm2-135m-instruct"
"""The embedded model: SmolLM2-135M-Instruct, fetched from the package index on first start."""

SCRIPTED_MODEL = "scripted"
"""A model without weights that answers from a script: for tests, and for trying the page."""

MAX_BLOCK_SIZE = 256

MOST = {
    "max_model_len": 2**24,
    "num_blocks": 2**18,  # a keyframe names every block, and has to fit 16 MiB
    "kv_cache_memory_bytes": 2**50,
    "max_num_seqs": 2**12,
    "max_num_batched_tokens": 2**24,
    "max_queue": 2**20,
    "long_prefill_token_threshold": 2**24,
    "seed": MAX_INTEGER,
}
"""Beyond any use: a slip of the keyboard must not eat the machine's memory, or be a number that JSON cannot carry."""

CHOICES = {
    "load_format": ("auto", "safetensors", "gguf", "dummy"),
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "kv_cache_dtype": ("auto", "int8", "fp8"),
    "batching": ("continuous", "static"),
    "scheduling_policy": ("fcfs", "priority", "shortest-first"),
}
"""Fields that take one of a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One engine's settings. `None` means "decide at load"; see `resolve`."""

    model: str = DEFAULT_MODEL
    load_format: str = "auto"  # auto | safetensors | gguf | dummy
    device: str = "auto"  # auto | cpu | cuda
    dtype: str = "auto"  # auto | float32 | bfloat16 | float16
    kv_cache_dtype: str = "auto"  # auto | int8 | fp8
    max_model_len: int | None = None  # tokens of one request, prompt and output together
    block_size: int = 16  # tokens per KV block
    num_blocks: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    max_num_seqs: int = 8  # rows of the batch: the slots on the page
    max_num_batched_tokens: int = 256  # the token budget of one step
    max_queue: int = 256  # waiting requests; one more is answered 429
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0  # most prompt tokens of one request in one step; 0 is no limit
    batching: str = "continuous"  # continuous | static
    scheduling_policy: str = "fcfs"  # fcfs | priority | shortest-first
    speculative: str = "none"  # none | ngram:K | draft:MODEL:K
    enforce_eager: bool = False  # no CUDA graphs: every step launches its kernels one by one
    watermark: float = 0.01  # share of the pool kept free at admission
    seed: int = 0
    start_paused: bool = False
    scripted_step_ms: float = 20.0  # pace of `--model scripted`
    simulate: bool = False  # no model: scripted tokens, at the pace of a cost model
    cost_model: str = "builtin"  # or a file; the pace of `simulate`

    def __post_init__(self) -> None:
        for name in ("model", "speculative", "cost_model"):
            if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in getattr(self, name)):
                raise ConfigError(f"{flag(name)} is not text: it holds a null byte or bytes that are not UTF-8.")
        if not self.model.strip():
            raise ConfigError("--model is empty; give a folder, a .gguf file or a hub id, or leave it out.")
        for name, most in MOST.items():
            if (getattr(self, name) or 0) > most:
                raise ConfigError(f"{flag(name)} is {shown(getattr(self, name))}; it must be at most {most}.")
        if self.seed < -MAX_INTEGER:
            raise ConfigError(f"--seed is {shown(self.seed)}; it must be at least {-MAX_INTEGER}.")
        for name in ("max_model_len", "num_blocks", "kv_cache_memory_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{flag(name)} is {shown(value)}; it must be at least 1, or left out to be chosen.")
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_queue"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{flag(name)} is {shown(getattr(self, name))}; it must be at least 1.")
        if not 1 <= self.block_size <= MAX_BLOCK_SIZE:
            raise ConfigError(
                f"--block-size is {shown(self.block_size)}; it must be between 1 and {MAX_BLOCK_SIZE} tokens."
            )
        if self.long_prefill_token_threshold < 0:
            raise ConfigError(
                f"--long-prefill-token-threshold is {shown(self.long_prefill_token_threshold)}; it must be at least 0."
            )
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                value = shown(getattr(self, name))
                raise ConfigError(f"{flag(name)} is {value}; it must be one of {', '.join(choices)}.")
        self._check_draft(parse_speculation(self.speculative))
        if not 0.0 <= self.watermark < 0.5:
            raise ConfigError(f"--watermark is {shown(self.watermark)}; it must be at least 0 and below 0.5.")
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise ConfigError(
                f"--gpu-memory-utilization is {shown(self.gpu_memory_utilization)}; it must be above 0 and at most 1."
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"--max-num-batched-tokens is {self.max_num_batched_tokens}, below --max-num-seqs {self.max_num_seqs}: "
                "a full batch could not decode one token each. Raise the first or lower the second."
            )
        if not 0.0 <= self.scripted_step_ms <= 60_000.0:
            raise ConfigError(f"--scripted-step-ms is {shown(self.scripted_step_ms)}; it must be between 0 and 60000.")
        self._check_unchunked()

    @property
    def scripted(self) -> bool:
        """Whether tokens come from a script, so that no model is loaded."""
        return self.simulate or self.model == SCRIPTED_MODEL

    def _check_draft(self, speculation: Speculation) -> None:
        """A draft model needs a model; a script can only be guessed from the script."""
        if speculation.kind != "draft":
            return
        if self.simulate:
            raise ConfigError("--speculative draft does not combine with --simulate: a cost model has no draft model.")
        if self.scripted != (speculation.draft_model == SCRIPTED_MODEL):
            raise ConfigError(
                f"--speculative is {shown(self.speculative)} and --model is {shown(self.model)}: the scripted model is "
                "guessed by draft:scripted:K and nothing else, and guesses for no other."
            )

    def _check_unchunked(self) -> None:
        limit = self.max_model_len
        if not self.enable_chunked_prefill and limit is not None and self.max_num_batched_tokens < limit:
            raise ConfigError(
                f"--no-enable-chunked-prefill needs --max-num-batched-tokens ({self.max_num_batched_tokens}) "
                f"of at least --max-model-len ({limit}): a whole prompt must fit one step. "
                "Raise the first or lower the second."
            )

    def resolve(self, *, max_model_len: int, num_blocks: int) -> EngineConfig:
        """Return this config with the two values that only the loaded model and the machine could settle."""
        return dataclasses.replace(self, max_model_len=max_model_len, num_blocks=num_blocks)


def flag(name: str) -> str:
    """The command-line spelling of a field's name."""
    return "--" + name.replace("_", "-")
