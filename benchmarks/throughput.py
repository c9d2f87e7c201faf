"""Output throughput of our engine and of transformers' static `generate`, same model, same prompts, same run.

Eight prompts of equal length are answered greedily with a fixed number of tokens each, so that static batching wastes
nothing: no padding, nobody finishes early. Throughput is all output tokens over the time from handing over the
prompts to the last token, prefill included. Each side runs in a process of its own, in turn, several rounds;
the best round of each counts, since on a shared machine noise only ever slows one down.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

RESULT_FILE = Path(__file__).parent / "throughput.out.json"
PROMISED_RATIO = 1.0
SIDES = ("stepscope", "transformers")


@dataclass(frozen=True, slots=True)
class Workload:
    concurrent: int = 8
    prompt_tokens: int = 128
    output_tokens: int = 64

    def prompts(self, vocab_size: int) -> list[list[int]]:
        """Different prompts of arbitrary tokens: what they say does not change how long they take."""
        return [
            [3 + (7919 * (i * self.prompt_tokens + j) + 104_729) % (vocab_size - 3) for j in range(self.prompt_tokens)]
            for i in range(self.concurrent)
        ]


DEFAULT = Workload()


def run_stepscope(work: Workload) -> float:
    """Seconds for the whole workload through scheduler, block pool and model; loading and warm-up not counted."""
    from engine.threads import wait_politely

    wait_politely()  # as the engine process does, before torch is loaded

    from engine.config import EngineConfig
    from engine.core import EngineCore
    from engine.detokenizer import Detokenizer
    from engine.emitter import Emitter
    from engine.kv_cache import size_pool
    from engine.loader import load
    from engine.model_runner import ModelRunner
    from engine.request import Request, SamplingParams
    from engine.timing import monotonic_clock

    loaded = load(EngineConfig(device="cpu"), lambda *report: None)
    config, _ = size_pool(EngineConfig(max_num_seqs=work.concurrent), loaded)
    runner, clock = ModelRunner(loaded, config), monotonic_clock()
    runner.warm_up(lambda *report: None)
    events: list[object] = []
    core = EngineCore(
        config,
        runner,
        Emitter("bench", "epoch", clock, events),
        clock,
        lambda request: Detokenizer(loaded.tokenizer, request.prompt_token_ids),
    )
    start = time.perf_counter()
    for number, prompt in enumerate(work.prompts(loaded.facts.vocab_size)):
        core.add(
            Request(
                request_id=str(number),
                prompt_token_ids=prompt,
                sampling_params=SamplingParams(temperature=0.0, ignore_eos=True),
                max_tokens=work.output_tokens,
                seed=0,
                stop_token_ids=frozenset(),
                arrival_us=clock(),
            )
        )
    while core.has_work:
        core.step()
    return time.perf_counter() - start


def run_transformers(work: Workload) -> float:
    """Seconds for one static batch; loading and a short warm-up not counted."""
    import torch
    from transformers import AutoModelForCausalLM

    from engine.config import EngineConfig
    from engine.loader import load

    loaded = load(EngineConfig(device="cpu"), lambda *report: None)  # the same weights, converted once by us
    model = AutoModelForCausalLM.from_pretrained(loaded.folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    prompts = torch.tensor(work.prompts(loaded.facts.vocab_size))
    del loaded
    model.generate(prompts, do_sample=False, max_new_tokens=2)
    start = time.perf_counter()
    out = model.generate(prompts, do_sample=False, max_new_tokens=work.output_tokens)
    seconds = time.perf_counter() - start
    assert out.shape[1] == work.prompt_tokens + work.output_tokens
    return seconds


def measure(side: str, work: Workload) -> float:
    """Seconds of one side in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.throughput", "--side", side]
    for name, value in asdict(work).items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


@dataclass(frozen=True, slots=True)
class Result:
    """What every round took, in seconds, by side."""

    work: Workload
    seconds: dict[str, list[float]]

    def tokens_per_second(self, side: str) -> float:
        return self.work.concurrent * self.work.output_tokens / min(self.seconds[side])

    @property
    def ratio(self) -> float:
        return self.tokens_per_second("stepscope") / self.tokens_per_second("transformers")

    def as_json(self) -> str:
        value = {
            "benchmark": "output throughput",
            "workload": asdict(self.work),
            "seconds": self.seconds,
            "output_tokens_per_second": {side: self.tokens_per_second(side) for side in SIDES},
            "ratio": self.ratio,
            "promised_ratio": PROMISED_RATIO,
        }
        return json.dumps(value, indent=1) + "\n"

    def __str__(self) -> str:
        work = self.work
        rows = [
            ("", "tok/s"),
            ("stepscope", f"{self.tokens_per_second('stepscope'):.1f}"),
            ("transformers generate", f"{self.tokens_per_second('transformers'):.1f}"),
            (f"ratio (at least {PROMISED_RATIO})", f"{self.ratio:.2f}"),
        ]
        title = (
            f"Output throughput: {work.concurrent} concurrent requests, {work.prompt_tokens} prompt tokens, "
            f"{work.output_tokens} output tokens, greedy, fp32"
        )
        return "\n".join([title, *(f"{name:<30}{value:>10}" for name, value in rows)])


def compare(work: Workload, rounds: int) -> Result:
    """Both sides in turn, `rounds` times."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            seconds[side].append(measure(side, work))
    return Result(work, seconds)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--concurrent", type=int, default=DEFAULT.concurrent)
    parser.add_argument("--prompt-tokens", type=int, default=DEFAULT.prompt_tokens)
    parser.add_argument("--output-tokens", type=int, default=DEFAULT.output_tokens)
    parser.add_argument("--rounds", type=int, default=2, help="times each side runs; the best counts (default: 2)")
    parser.add_argument("--json", type=Path, default=RESULT_FILE, help="where to write the result")
    parser.add_argument("--side", choices=SIDES, help="run one side here and print its seconds")
    args = parser.parse_args(argv)
    work = Workload(args.concurrent, args.prompt_tokens, args.output_tokens)
    if args.side:
        print(run_stepscope(work) if args.side == "stepscope" else run_transformers(work))
        return 0
    result = compare(work, args.rounds)
    args.json.write_text(result.as_json())
    print(result)
    print(f"written to {args.json}")
    return 0 if result.ratio >= PROMISED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
