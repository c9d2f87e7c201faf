"""The whole engine with a real model, for tests: scheduler, block pool, runner and all, stepped by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.detokenizer import Detokenizer
from engine.draft_model import load_draft
from engine.emitter import Emitter
from engine.kv_cache import size_pool
from engine.loader import Loaded
from engine.model_runner import ModelRunner
from engine.request import Request, SamplingParams
from engine.timing import monotonic_clock


class RealEngine:
    """An EngineCore over `loaded`; `flags` are EngineConfig's fields. It keeps its prefix cache between runs."""

    def __init__(self, loaded: Loaded, **flags: Any) -> None:
        config = EngineConfig(**flags)
        draft = load_draft(config, loaded, lambda *report: None)
        self.config, _ = size_pool(config, loaded, draft)
        self.sink: list[Any] = []
        clock = monotonic_clock()
        self.core = EngineCore(
            self.config,
            ModelRunner(loaded, self.config, draft),
            Emitter("main", "epoch", clock, self.sink),
            clock,
            lambda request: Detokenizer(loaded.tokenizer, request.prompt_token_ids),
        )
        self._numbers = itertools.count()

    def request(self, prompt_token_ids: list[int], max_tokens: int, **params: Any) -> Request:
        return Request(
            request_id=f"r{next(self._numbers)}",
            prompt_token_ids=prompt_token_ids,
            sampling_params=SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **params}),
            max_tokens=max_tokens,
            seed=params.get("seed", 0),
            stop_token_ids=frozenset(),
            arrival_us=0,
        )

    def run(self, prompts: Sequence[list[int]], max_tokens: int, **params: Any) -> list[Request]:
        """Submit all prompts at once and step until all are finished."""
        requests = [self.request(prompt, max_tokens, **params) for prompt in prompts]
        for request in requests:
            refusal = self.core.add(request)
            assert refusal is None, refusal
        while self.core.has_work:
            self.core.step()
        return requests
