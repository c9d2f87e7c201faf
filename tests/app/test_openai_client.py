"""The official OpenAI client against a served scripted model."""

from __future__ import annotations

import json
import threading
import time

import openai
import pytest

from tests.app.processes import Served

BODY = {"prompt": "x", "stream": True, "stepscope": True}


def test_ten_streams_of_the_official_client_equal_the_whole_answers(shared: Served) -> None:
    client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)
    prompts = [f"question number {number}" for number in range(10)]
    results: dict[str, tuple[str, openai.types.CompletionUsage]] = {}

    def stream(prompt: str) -> None:
        chunks = client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, usage = "", None
        for chunk in chunks:
            assert chunk.object == "chat.completion.chunk"
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            usage = chunk.usage or usage
        assert usage is not None
        results[prompt] = (text, usage)

    threads = [threading.Thread(target=stream, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for prompt in prompts:
        whole = client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": prompt}], max_tokens=40
        )
        text, usage = results[prompt]
        assert text == whole.choices[0].message.content
        assert usage.completion_tokens == len(text) == 40
        assert whole.usage is not None
        assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_a_clients_first_token_is_never_earlier_than_the_engines(shared: Served) -> None:
    shares, left = [], []
    for _ in range(9):
        began = time.monotonic()
        with shared.client.stream("POST", "/v1/completions", json=BODY) as response:
            lines = response.iter_lines()
            first = next(line for line in lines if '"text":"' in line)
            seen_us = (time.monotonic() - began) * 1e6
            last = next(line for line in lines if '"stepscope"' in line)
        timings = json.loads(last.removeprefix("data: "))["stepscope"]
        assert first
        assert seen_us >= timings["ttft_us"]
        heard_us = timings["ingress_us"] + timings["ttft_us"]
        assert seen_us >= heard_us - 1  # rounded
        left.append(seen_us - heard_us - timings["egress_us"])
        assert left[-1] >= -50_000  # the server may wake up after its client, now and then
        shares.append(seen_us - timings["ttft_us"])
    assert sorted(shares)[4] < 500_000
    assert sorted(left)[4] >= -1000


def test_errors_are_those_that_the_client_knows(shared: Served) -> None:
    client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="default", prompt="x", temperature=9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-4", prompt="x")


def test_completions_and_models(shared: Served) -> None:
    client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["scripted"]
    whole = client.completions.create(model="scripted", prompt="x", max_tokens=12)
    chunks = list(client.completions.create(model="scripted", prompt="x", max_tokens=12, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stop", ["hands every", ["not there", "every request"]])
def test_a_stop_string_ends_a_stream_where_it_ends_a_whole_answer(shared: Served, stop: str | list[str]) -> None:
    """A6: every character is a token of its own, so the stop string comes over many; none of it is sent."""
    client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)
    body = {"model": "default", "prompt": "x", "max_tokens": 200, "stop": stop}
    whole = client.completions.create(**body)  # type: ignore[call-overload]
    chunks = list(client.completions.create(**body, stream=True))  # type: ignore[call-overload]
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert text == whole.choices[0].text
    assert text.endswith("step " if isinstance(stop, str) else "step hands ")
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"


def test_a_stop_string_that_never_comes_makes_no_empty_chunk(shared: Served) -> None:
    """A7: only the first chunk, the role, and the last, the reason, have no content."""
    client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "x"}],
        max_tokens=10,
        stop=["zzzz"],
        stream=True,
    )
    first, *middle, last = stream
    assert first.choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.content for chunk in middle)
    assert len("".join(chunk.choices[0].delta.content or "" for chunk in middle)) == 10
    assert last.choices[0].finish_reason == "length"


def generated(shared: Served) -> float:
    """The counter of output tokens on /metrics."""
    lines = shared.client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("stepscope:generation_tokens_total"))


@pytest.mark.parametrize("max_tokens", [1, 5, 20])
def test_max_tokens_is_one_number_wherever_it_is_told(shared: Served, max_tokens: int) -> None:
    """A10: in the usage, in the state that the page draws, in its totals and on /metrics."""
    before, counted = shared.state()["totals"]["output_tokens"], generated(shared)
    body = {"prompt": "x", "max_tokens": max_tokens, "ignore_eos": True}
    answer = shared.client.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(answer["choices"][0]["text"]) == answer["usage"]["completion_tokens"] == max_tokens
    state = shared.state()
    assert state["requests"][answer["id"].removeprefix("cmpl-")]["num_output_tokens"] == max_tokens
    assert state["totals"]["output_tokens"] - before == generated(shared) - counted == max_tokens


def test_an_aborted_stream_ends_without_an_exception(shared: Served) -> None:
    client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)
    stream = client.completions.create(
        model="default", prompt="x", max_tokens=500, stream=True, extra_body={"ignore_eos": True}
    )
    first = next(stream)
    shared.client.delete(f"/api/requests/{first.id}")
    assert list(stream)[-1].choices[0].finish_reason == "abort"


def test_a_killed_engine_is_an_api_error(served: Served) -> None:
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    stream = client.completions.create(
        model="default", prompt="x", max_tokens=500, stream=True, extra_body={"ignore_eos": True}
    )
    next(stream)
    served.engine_process().kill()
    with pytest.raises(openai.APIError, match="The engine is gone"):
        list(stream)
