"""From a config to a runner that is ready to step, and all that `hello` says of it. No torch without a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from tokenizers import Tokenizer

from engine import events
from engine.config import EngineConfig
from engine.core import no_cost
from engine.model_cache import Progress
from engine.reporter import StepCost
from engine.runner import Runner
from engine.switched_off import switched_off, why_no_graphs
from engine.threads import wait_politely


@dataclass(frozen=True, slots=True)
class Built:
    """A loaded model with everything that the engine needs to know about it."""

    config: EngineConfig  # resolved
    runner: Runner
    tokenizer: Tokenizer
    chat_template: str | None
    special_tokens: dict[str, str]
    eos_token_ids: frozenset[int]
    model: events.ModelFacts
    device: events.DeviceFacts
    memory: events.MemoryFacts
    cost: StepCost
    draft: events.ModelFacts | None = None
    disabled: list[dict[str, str]] = field(default_factory=list)


def build(config: EngineConfig, progress: Progress) -> Built:
    """Load what `config` names. Raises StepscopeError with one sentence."""
    return _build_scripted(config) if config.scripted else _build_real(config, progress)


def _build_scripted(config: EngineConfig) -> Built:
    from engine import scripted

    facts = scripted.scripted_facts(config)
    runner = scripted.ScriptedRunner(step_ms=config.scripted_step_ms)
    if config.simulate:
        from engine.virtual_time import paced_runner  # numpy: only where it is needed

        runner = paced_runner(config.cost_model)
    return Built(
        config=facts.config,
        runner=runner,
        tokenizer=scripted.byte_tokenizer(),
        chat_template=scripted.CHAT_TEMPLATE,
        special_tokens={},
        eos_token_ids=frozenset({scripted.EOS}),
        model=facts.model,
        device=facts.device,
        memory=facts.memory,
        cost=no_cost,
        disabled=switched_off(config, facts.device.type),
    )


def _build_real(config: EngineConfig, progress: Progress) -> Built:
    wait_politely()
    from engine import device, draft_model, kv_cache, loader, model_runner, roofline  # torch: only where it is needed

    chosen = device.choose_device(config.device)
    with device.naming_memory():
        loaded = loader.load(config, progress)
        draft = draft_model.load_draft(config, loaded, progress)
        # Before the pool takes all the memory there is.
        device_facts = device.device_facts(chosen.device, loaded.model.embed_tokens.dtype, chosen.why)
        resolved, memory = kv_cache.size_pool(config, loaded, draft)
        draft_facts = draft.facts if draft else None
        runner = model_runner.ModelRunner(loaded, resolved, draft)
        runner.warm_up(progress)
        if why_no_graphs(config, chosen.device.type) is None:
            from engine.graphs import CudaCapture

            runner.capture(CudaCapture(), progress)
    return Built(
        config=resolved,
        runner=runner,
        tokenizer=loaded.tokenizer,
        chat_template=loaded.chat_template,
        special_tokens=loaded.special_tokens,
        eos_token_ids=loaded.eos_token_ids,
        model=loaded.facts,
        device=device_facts,
        memory=memory,
        cost=partial(roofline.total_cost, loaded.facts, draft_facts, memory),
        draft=draft_facts,
        disabled=switched_off(config, chosen.device.type, chosen.passed_over),
    )
