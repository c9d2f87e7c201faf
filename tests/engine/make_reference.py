"""Write the fixture of the greedy equality test: what transformers answers, and how sure it was of each token.

    python -m tests.engine.make_reference

Per prompt, 64 greedy tokens in fp32 and, for each, the gap between the two highest logits. The weights are those that
our converter wrote from the embedded model's file; the fixture carries that file's sha256, so that it can never
be compared with another model.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from engine.config import EngineConfig
from engine.loader import Loaded, load
from engine.model_cache import EMBEDDED

NUM_TOKENS = 64
FIXTURE = Path(__file__).parent / "fixtures" / f"greedy-{EMBEDDED.sha256[:12]}.json"

TUTOR = (
    "You are a patient tutor for beginners. You explain one idea at a time, you give a short example after each idea, "
    "you never use a word that you have not explained before, and you end every answer with one question."
)
STORY = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the storm came. It began in the "
    "west, as storms there always did, with a line of cloud so dark and so straight that it looked drawn with "
    "a ruler. By noon the gulls had gone. By three the sea had turned the colour of slate, and the wind had "
    "found the one loose shutter on the north side and was worrying it like a dog. He climbed the hundred and "
    "twelve steps with a can of oil in each hand, trimmed the wick, wiped the great lens with a chamois, and "
    "wound the clockwork that turned the lamp. Then he sat down with his logbook and wrote the date, the "
    "height of the barometer, and the direction of the wind. He was about to add that there was nothing else "
    "to report when he heard, quite clearly and quite close, somebody knocking at the door."
)

CHATS: list[list[tuple[str, str]]] = [
    [("user", "What is the capital of France?")],
    [("user", "Hi")],
    [("user", "Write a haiku about the sea.")],
    [("user", "Explain photosynthesis to a child of six.")],
    [("user", "List five animals that live in the desert, one per line.")],
    [("user", "What is 17 + 25? Think step by step.")],
    [("user", "Translate into French: The cat sleeps on the red chair.")],
    [("user", "Give me a recipe for pancakes.")],
    [("user", "My name is Ada."), ("assistant", "Nice to meet you, Ada!"), ("user", "What is my name?")],
    [("system", TUTOR), ("user", "What is a variable?")],
    [("system", TUTOR), ("user", "What is a variable in mathematics?")],
    [("system", TUTOR), ("user", "How does a loop work?")],
    [("system", TUTOR), ("user", "Why is the sky blue?")],
    [("user", f"{STORY}\n\nWho was at the door? Continue the story.")],
]
TEXTS = [
    "Once upon a time, in a small village at the foot of a mountain,",
    "def fibonacci(n):\n    ",
    "The three primary colours are",
    "1, 1, 2, 3, 5, 8, 13,",
    "In 1969, the first human",
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer",
]


@dataclass(frozen=True, slots=True)
class Reference:
    """One prompt and transformers' answer to it."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    gaps: list[float]  # per token: highest logit minus second highest


def prompts(loaded: Loaded) -> list[list[int]]:
    """The twenty prompts as token ids: chats through the model's own template, and bare texts to go on with."""
    import jinja2

    assert loaded.chat_template is not None
    template = jinja2.Environment().from_string(loaded.chat_template)
    rendered = [
        template.render(messages=[{"role": r, "content": c} for r, c in chat], add_generation_prompt=True)
        for chat in CHATS
    ]
    return [loaded.tokenizer.encode(text, add_special_tokens=False).ids for text in rendered + TEXTS]


def transformers_model(folder: Path) -> Any:
    """transformers' own model over the same weights, in fp32."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def answer(model: Any, prompt_token_ids: list[int]) -> Reference:
    """transformers' greedy `generate`; an end token does not end it."""
    model.generation_config.eos_token_id = None
    out = model.generate(
        torch.tensor([prompt_token_ids]),
        do_sample=False,
        max_new_tokens=NUM_TOKENS,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best_two = torch.cat(out.logits).topk(2).values  # [NUM_TOKENS, 2]
    gaps = [round(float(best - second), 6) for best, second in best_two]
    return Reference(prompt_token_ids, out.sequences[0, len(prompt_token_ids) :].tolist(), gaps)


def read_fixture() -> list[Reference]:
    """The recorded answers. A missing file means that the embedded model changed: run this module again."""
    recorded = json.loads(FIXTURE.read_text())
    assert recorded["model_sha256"] == EMBEDDED.sha256
    return [Reference(**entry) for entry in recorded["references"]]


def main() -> None:
    loaded = load(EngineConfig(), lambda *report: None)
    model = transformers_model(loaded.folder)
    references = []
    for prompt in prompts(loaded):
        references.append(answer(model, prompt))
        text = loaded.tokenizer.decode(references[-1].token_ids)
        print(f"{len(prompt):4} tokens  least gap {min(references[-1].gaps):.4f}  {text[:80]!r}", flush=True)
    entries = ",\n".join(json.dumps(asdict(reference)) for reference in references)
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_text(f'{{"model_sha256": "{EMBEDDED.sha256}", "references": [\n{entries}\n]}}\n')


if __name__ == "__main__":
    main()
