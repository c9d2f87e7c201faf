"""Who goes next and who gives way, under each policy, decided live if need be."""

from pathlib import Path

import pytest

from engine import events
from engine.errors import ConfigError
from engine.request import Request
from tests.engine.harness import Harness


def ids(requests: list[Request]) -> list[str]:
    return [request.request_id for request in requests]


def add(engine: Harness, prompt: str, max_tokens: int = 8, priority: int = 0) -> Request:
    request = engine.request(prompt, max_tokens)
    request.priority = priority
    engine.core.add(request)
    return request


def test_a_static_group_joins_at_once_and_lets_nobody_in_before_its_last_member_ends():
    engine = Harness(batching="static", max_num_seqs=3)
    short, long_, other = (engine.add("abc", n) for n in (2, 9, 4))
    late = engine.add("late", 2)
    engine.step()
    assert ids(engine.scheduler.running) == ids([short, long_, other])
    while not long_.finish_reason:
        assert late.slot is None
        engine.step()
    reasons = [
        reason for step in engine.of(events.Step) for reason in step.waiting if reason.request == late.request_id
    ]
    assert {reason.code for reason in reasons} == {"slots_full", "group_running"}
    engine.run()
    assert late.num_output_tokens == 2


def test_the_slot_of_a_finished_member_stays_empty_until_the_group_ends():
    engine = Harness(batching="static", max_num_seqs=2)
    engine.add("abc", 2)
    engine.add("abc", 6)
    engine.add("abc", 2)
    engine.run()
    rows = [len(step.rows) for step in engine.of(events.Step)]
    assert rows == [2, 2, 1, 1, 1, 1, 1, 1]


def test_a_static_group_reserves_the_blocks_of_the_whole_answer():
    engine = Harness(batching="static", num_blocks=8)
    request = engine.add("a" * 20, 40)
    engine.step()
    assert len(request.block_table) == 4  # 20 + 40 tokens in blocks of 16


def test_a_static_group_never_preempts_itself():
    engine = Harness(batching="static", num_blocks=8)
    for _ in range(4):
        engine.add("a" * 10, 50)
    engine.run()
    assert engine.of(events.Preempted) == []


def test_every_member_of_a_static_group_gets_a_token_of_a_small_budget():
    engine = Harness(batching="static", max_num_seqs=4, max_num_batched_tokens=16)
    for letter in "abcd":
        engine.add(letter * 50, 2)
    engine.step()
    assert len(engine.of(events.Step)[-1].rows) == 4


def test_priority_orders_the_queue_and_arrival_breaks_ties():
    engine = Harness(scheduling_policy="priority", max_num_seqs=1)
    running = add(engine, "x", priority=-9)
    engine.step()
    low, first, second = (add(engine, "x", priority=p) for p in (5, 1, 1))
    assert ids(engine.scheduler.waiting) == ids([first, second, low])
    assert running.slot == 0


def test_an_urgent_request_takes_a_slot_within_two_steps():
    """A40."""
    engine = Harness(scheduling_policy="priority", max_num_seqs=2)
    lazy = [add(engine, "lazy", 60, priority=5) for _ in range(2)]
    engine.step()
    urgent = add(engine, "now", 4, priority=0)
    engine.step()
    engine.step()
    assert urgent.slot is not None
    assert lazy[0].num_preemptions == 0  # the later of the two gave way
    assert lazy[1].num_preemptions == 1
    engine.check()


def test_an_urgent_request_takes_blocks():
    engine = Harness(scheduling_policy="priority", num_blocks=8, max_num_seqs=4)
    lazy = add(engine, "a" * 100, 20, priority=5)
    engine.step()
    urgent = add(engine, "b" * 60, 4, priority=0)
    engine.step()
    engine.step()
    assert urgent.slot is not None
    assert lazy.num_preemptions == 1
    engine.run()
    assert lazy.num_output_tokens == 20


@pytest.mark.parametrize("policy", ["fcfs", "priority", "shortest-first"])
@pytest.mark.parametrize("budget", [16, 200])
def test_every_running_request_is_scheduled_or_preempted_never_both_and_never_passed_over(policy, budget):
    """A41: requests are served from the front of the order and victims are taken from its end, so nobody who was
    served gives way in the same step, and no removal moves anybody past the cursor."""
    engine = Harness(scheduling_policy=policy, num_blocks=14, max_num_seqs=4, max_num_batched_tokens=budget)
    for number, priority in enumerate((2, 0, 1, 2, 0, 1)):
        add(engine, chr(ord("a") + number) * (20 + 9 * number), 60, priority=priority)
        engine.step()
    while engine.core.has_work:
        running = set(ids(engine.scheduler.running))
        engine.step()
        output = engine.runner.outputs[-1]
        admitted = {row.request.request_id for row in output.admitted}
        served = {row.request.request_id for row in output.rows} - admitted
        preempted = {facts.request.request_id for facts in output.preempted}
        assert served | preempted == running
        assert not served & preempted
        assert len(output.rows) == len(served) + len(admitted)
        engine.check()
    assert engine.of(events.Preempted)


def test_nobody_is_preempted_in_vain():
    engine = Harness(scheduling_policy="priority", num_blocks=8, max_num_seqs=4)
    equal = add(engine, "a" * 60, 8, priority=0)
    lazy = add(engine, "b" * 30, 8, priority=5)
    engine.step()
    add(engine, "c" * 100, 4, priority=0)  # needs 7 of 8 blocks; the lazy one holds but 2
    engine.step()
    assert equal.num_preemptions == lazy.num_preemptions == 0


def test_equal_urgency_preempts_nobody():
    engine = Harness(scheduling_policy="priority", max_num_seqs=1)
    add(engine, "a", 20, priority=1)
    engine.step()
    second = add(engine, "b", 2, priority=1)
    engine.step()
    engine.step()
    assert second.slot is None


def test_without_the_priority_policy_priority_is_ignored():
    engine = Harness(max_num_seqs=1)
    add(engine, "a", 20, priority=5)
    engine.step()
    second = add(engine, "b", 2, priority=0)
    engine.step()
    assert second.slot is None


def test_shortest_first_orders_by_the_most_tokens_that_may_come():
    engine = Harness(scheduling_policy="shortest-first", max_num_seqs=1)
    engine.add("x", 1)
    long_, short = engine.add("x" * 10, 50), engine.add("x" * 20, 2)
    assert ids(engine.scheduler.waiting)[1:] == ids([short, long_])


def test_a_preempted_request_returns_to_its_place_in_policy_order():
    """A42."""
    engine = Harness(scheduling_policy="priority", num_blocks=6, max_num_seqs=3)
    first = add(engine, "a" * 40, 60, priority=1)
    second = add(engine, "b" * 30, 60, priority=1)
    engine.step()
    later = add(engine, "c" * 30, 4, priority=1)
    while not second.num_preemptions:
        engine.step()
    assert ids(engine.scheduler.waiting) == ids([second, later])
    assert first.num_preemptions == 0
    engine.check()


def test_a_long_prompt_is_cut_to_the_threshold():
    engine = Harness(long_prefill_token_threshold=10, max_num_batched_tokens=64)
    engine.add("a" * 35, 1)
    engine.run()
    assert [step.num_prefill_tokens for step in engine.of(events.Step)] == [10, 10, 10, 5]


def test_a_policy_changed_live_sorts_the_queue_and_says_so():
    engine = Harness(max_num_seqs=1)
    add(engine, "x", 20)
    engine.step()
    low, high = add(engine, "x", priority=5), add(engine, "x", priority=0)
    engine.core.configure({"scheduling_policy": "priority"})
    assert ids(engine.scheduler.waiting) == ids([high, low])
    assert engine.of(events.Config)[-1].waiting == ids([high, low])
    engine.check()


def test_fewer_slots_take_effect_as_requests_end():
    engine = Harness(max_num_seqs=3)
    requests = [engine.add("x", n) for n in (3, 5, 9, 4)]
    engine.step()
    engine.core.configure({"max_num_seqs": 1})
    assert len(engine.scheduler.running) == 3
    while not requests[2].finish_reason:
        assert requests[3].slot is None
        engine.step()
    engine.run()
    engine.check()


def test_more_slots_take_effect_in_the_next_step():
    engine = Harness(max_num_seqs=1)
    for _ in range(3):
        engine.add("x", 5)
    engine.step()
    engine.core.configure({"max_num_seqs": 3})
    engine.step()
    assert [request.slot for request in engine.scheduler.running] == [0, 1, 2]


def test_a_change_is_made_whole_or_not_at_all():
    engine = Harness()
    before = engine.core.config
    with pytest.raises(ConfigError, match="--max-num-seqs is 0"):
        engine.core.configure({"watermark": 0.2, "max_num_seqs": 0})
    assert engine.core.config == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_blocks": 8}, "restart it with --num-blocks"),
        ({"max_num_sequences": 8}, "no setting"),
        ({"max_num_seqs": "8"}, "max_num_seqs is '8'; it must be int"),
        ({"max_num_seqs": True}, "it must be int"),
        ({"watermark": float("nan")}, "--watermark is nan"),
        ({"batching": "magic"}, "continuous, static"),
        ({"max_num_batched_tokens": 2}, "Raise the first or lower the second"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_name(changes, said):
    with pytest.raises(ConfigError, match=said):
        Harness().core.configure(changes)


def test_a_reason_names_the_line_that_decided_it():
    engine = Harness(max_num_seqs=1)
    engine.add("x")
    engine.add("y")
    engine.step()
    source = engine.of(events.Step)[-1].waiting[0].source
    path, _, line = source.partition(":")
    assert "slots_full" in Path(path).read_text().splitlines()[int(line) - 1]


def test_nobody_is_preempted_for_one_that_would_wait_for_its_prefix():
    engine = Harness(
        scheduling_policy="priority",
        num_blocks=200,
        max_model_len=2048,
        max_num_seqs=2,
        max_num_batched_tokens=64,
        long_prefill_token_threshold=16,
    )
    victim = add(engine, "v" * 8, 200, priority=5)
    engine.step()
    add(engine, "p" * 600, 20, priority=1)
    engine.step()
    urgent = add(engine, "p" * 600, 20, priority=0)
    engine.run()
    assert victim.num_preemptions <= 1
    assert urgent.num_cached_tokens == 592
