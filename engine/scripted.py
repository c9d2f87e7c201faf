"""A model without weights: it answers from a script, at a steady pace. No torch.

For tests, for trying the page, and as the smallest example of a Runner. Tokens are bytes. What comes next is a
function of the prompt and the output index alone, so any schedule gives the same answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.config import EngineConfig
from engine.events import DeviceFacts, MemoryFacts, ModelFacts
from engine.request import Request
from engine.runner import ScheduledRow, SchedulerOutput, until_wrong
from engine.speculative import TO_BE_DRAFTED

Script = Callable[[Request, int], int]
"""(request, output index) -> the token id that comes next."""

EOS = 256
VOCAB_SIZE = 257
CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"

_PROSE = (
    " A step hands every request some tokens. A prompt is read in chunks, as many tokens at once as the budget allows;"
    " an answer is written one token a step. Keys and values of every token stay in pages of the cache, so nothing is"
    " computed twice unless its pages had to be given away."
)
_PREFILL_TOKENS_PER_STEP_MS = 8  # how many more prompt tokens make a step as long again as a millisecond


def byte_tokenizer() -> Tokenizer:
    """One token per byte of UTF-8, and an end token."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    # The byte-level alphabet of GPT-2: bytes that do not print get the code points from 256 on.
    vocab = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def echo_script(request: Request, index: int) -> int:
    """Repeat the last thing that the user said, add some prose, and end."""
    prompt = bytes(token for token in request.prompt_token_ids if token < EOS)
    said = prompt.rpartition(b"<user>")[2].removesuffix(b"<assistant>").strip()
    answer = b"You said: " + said + b"." + _PROSE.encode()
    return answer[index] if index < len(answer) else EOS


class ScriptedRunner:
    """Follows `script`; each step takes `step_ms`, and longer the more prompt tokens it computes."""

    def __init__(self, script: Script = echo_script, step_ms: float = 0.0) -> None:
        self._script = script
        self._step_ms = step_ms

    def draft(self, output: SchedulerOutput) -> bool:
        """Guess from the script itself, and wrong at every fifth place."""
        drafting = [row for row in output.rows if TO_BE_DRAFTED in row.draft_token_ids]
        for row in drafting:
            first = row.num_output_before
            row.draft_token_ids[:] = [
                EOS if index % 5 == 4 else self._script(row.request, index)
                for index in range(first, first + len(row.draft_token_ids))
            ]
        return bool(drafting)

    def prepare(self, output: SchedulerOutput) -> SchedulerOutput:
        return output

    def forward(self, batch: SchedulerOutput) -> SchedulerOutput:
        if self._step_ms:
            prefill = sum(row.num_scheduled_tokens for row in batch.rows if not row.is_decode)
            time.sleep((self._step_ms + prefill / _PREFILL_TOKENS_PER_STEP_MS) / 1000)
        return batch

    def sample(self, batch: SchedulerOutput, logits: SchedulerOutput) -> list[list[int]]:
        return [self._answer(row) if row.samples else [] for row in batch.rows]

    def device_us(self) -> dict[str, int] | None:
        return None

    def _answer(self, row: ScheduledRow) -> list[int]:
        indices = range(row.num_output_before, row.num_output_before + len(row.draft_token_ids) + 1)
        return until_wrong((self._script(row.request, index) for index in indices), row.draft_token_ids)


@dataclass(frozen=True, slots=True)
class ScriptedFacts:
    """What a scripted engine says of itself in `hello`."""

    config: EngineConfig  # resolved
    model: ModelFacts
    device: DeviceFacts
    memory: MemoryFacts


def scripted_facts(config: EngineConfig) -> ScriptedFacts:
    """Settle what is open, as a small model on a small machine would."""
    num_blocks = config.num_blocks or 256
    max_model_len = config.max_model_len or 2048
    bytes_per_token = 1024
    return ScriptedFacts(
        config=config.resolve(max_model_len=max_model_len, num_blocks=num_blocks),
        model=ModelFacts(
            name="scripted",
            architecture="Scripted",
            num_layers=1,
            num_attention_heads=1,
            num_kv_heads=1,
            head_dim=64,
            hidden_size=64,
            vocab_size=VOCAB_SIZE,
            num_parameters=0,
            weight_bytes=0,
            dtype="none",
            max_position_embeddings=max_model_len,
            has_chat_template=True,
        ),
        device=DeviceFacts(type="scripted", name="scripted", num_threads=1, total_bytes=None),
        memory=MemoryFacts(
            weights=0,
            kv_pool=num_blocks * config.block_size * bytes_per_token,
            bytes_per_token=bytes_per_token,
            bytes_per_block=config.block_size * bytes_per_token,
            kv_dtype="none",
            available=None,
            sum_text=f"No weights; {num_blocks} KV blocks of {config.block_size} tokens, as if of 1 KiB a token.",
        ),
    )
