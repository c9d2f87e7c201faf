"""The draft model of `--speculative draft:MODEL:K`: loaded like any other, or cut out of the target.

Contract. What cannot guess for the target is refused with a sentence: guesses are token ids, so both need the same
vocabulary. A draft model made of the target's own first layers shares their weights and costs only its cache; it was
never trained to speak after so few layers, so it shows the mechanism rather than a gain.
"""

from __future__ import annotations

import dataclasses

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.loader import Loaded, load, model_facts
from engine.model_cache import Progress
from engine.model_source import draft_config, naming_the_draft_model
from engine.speculative import check_num_layers, check_vocab_size, parse_speculation


def load_draft(config: EngineConfig, target: Loaded, progress: Progress) -> Loaded | None:
    """The draft model that `config` asks for, if any. Raises ConfigError or LoadError."""
    speculation = parse_speculation(config.speculative)
    if speculation.num_draft_layers is not None:
        return first_layers(target, speculation.num_draft_layers)
    own = draft_config(config)
    if own is None:
        return None
    with naming_the_draft_model():
        draft = load(own, progress)
    _check_vocabulary(draft, target)
    return draft


def first_layers(target: Loaded, count: int) -> Loaded:
    """The target cut off after `count` layers, head and all."""
    facts = target.facts
    check_num_layers(count, facts.name, facts.num_layers)
    model = target.model.first_layers(count)
    name = f"{facts.name}, first {count} layers"
    dtype = model.embed_tokens.dtype
    return dataclasses.replace(
        target,
        model=model,
        facts=model_facts(name, model.config, dtype, has_chat_template=facts.has_chat_template),
    )


def _check_vocabulary(draft: Loaded, target: Loaded) -> None:
    ours, theirs = target.facts, draft.facts
    check_vocab_size(theirs.name, theirs.vocab_size, ours.name, ours.vocab_size)
    if draft.tokenizer.get_vocab() != target.tokenizer.get_vocab():
        raise ConfigError(
            f"--speculative: the tokens of {theirs.name} mean other text than those of {ours.name}; a draft model "
            "must have the same tokenizer."
        )
