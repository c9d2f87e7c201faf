"""From tokens to text: never half a character, never a piece of a stop string, and nothing held back without need."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from engine.detokenizer import REPLACEMENT, Detokenizer
from engine.scripted import EOS, byte_tokenizer
from tests.engine.harness import Harness, scripted

BYTES = byte_tokenizer()


def merged_tokenizer(*tokens: bytes) -> Tokenizer:
    """The byte tokenizer with a few tokens of several bytes, numbered from 300."""
    vocab: dict[str, int] = json.loads(BYTES.to_str())["model"]["vocab"]
    letter = {token_id: char for char, token_id in vocab.items()}
    for i, token in enumerate(tokens):
        vocab["".join(letter[byte] for byte in token)] = 300 + i
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


WORDS = ("<unk>", "▁LLMs", ".", "▁It", "▁is", "▁", "日")
FIRST_BYTE = len(WORDS)


def sentencepiece(decoder: decoders.Decoder) -> Tokenizer:
    """Words that carry their space, and single bytes for everything else."""
    vocab = {word: i for i, word in enumerate(WORDS)}
    vocab |= {f"<0x{byte:02X}>": FIRST_BYTE + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoder
    return tokenizer


LLAMA = sentencepiece(
    decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
)
METASPACE = sentencepiece(decoders.Metaspace())


def ids_of(*parts: str | bytes) -> list[int]:
    """SentencePiece ids: a known word is one token, bytes are bytes."""
    ids: list[int] = []
    for part in parts:
        ids += [WORDS.index(part)] if isinstance(part, str) else [FIRST_BYTE + byte for byte in part]
    return ids


def deltas(tokenizer: Tokenizer, prompt: list[int] | bytes, answer: list[int] | bytes, stop=()) -> list[str]:
    """What each token of the answer made visible, and last what the end did."""
    detokenizer = Detokenizer(tokenizer, list(prompt), stop)
    shown = []
    for token_id in answer:
        delta, stopped = detokenizer.feed(token_id)
        shown.append(delta)
        if stopped:
            return shown
    return [*shown, detokenizer.flush()]


def text(*args, **kwargs) -> str:
    return "".join(deltas(*args, **kwargs))


# -- plain text --------------------------------------------------------------------------------------------------


def test_ascii_shows_one_delta_per_token():
    """A3: buffering must not turn a stream into bursts."""
    assert deltas(BYTES, b"Hi", b"hello world") == [*"hello world", ""]


def test_no_delta_holds_text_of_the_prompt():
    assert text(BYTES, b"Tell me a story.", b"Once") == "Once"


def test_a_prompt_of_one_token_is_context_enough():
    assert text(BYTES, b"x", b"yz") == "yz"


def test_a_special_token_has_no_text():
    assert text(BYTES, b"Hi", [*b"ab", EOS, *b"cd"]) == "abcd"


def test_special_tokens_do_not_pile_up_in_the_window():
    """A68: what a token costs does not grow with the answer."""
    detokenizer = Detokenizer(BYTES, list(b"Hi"))
    for _ in range(100):
        detokenizer.feed(EOS)
    assert len(detokenizer._ids) < 10


# -- characters of several tokens --------------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["ď", "€", "😀"])
def test_a_character_of_several_byte_tokens_appears_whole_with_its_last_one(character):
    """A2: nothing until it is complete, then the one character, and no U+FFFD."""
    encoded = character.encode()
    assert deltas(BYTES, b"Hi ", encoded) == [""] * (len(encoded) - 1) + [character, ""]


def test_two_requests_do_not_share_half_characters():
    """A2: each has its own state."""
    first, second = (Detokenizer(BYTES, list(b"Hi ")) for _ in range(2))
    first.feed(0xC4)
    assert second.feed(ord("a")) == ("a", False)
    assert first.feed(0x8F) == ("ď", False)


def test_what_stands_before_an_incomplete_character_in_the_same_token_is_not_held_back():
    """A3: hold back only the incomplete character."""
    tokenizer = merged_tokenizer(b"ok \xf0\x9f")
    assert deltas(tokenizer, b"Hi ", [300, 0x98, 0x80]) == ["ok ", "", "😀", ""]


def test_an_incomplete_character_at_the_end_is_dropped():
    assert text(BYTES, b"Hi", b"ab\xf0\x9f") == "ab"


# -- a prompt that ends within a character -----------------------------------------------------------------------


def test_a_prompt_that_ends_within_a_character_is_not_repeated():
    """A1: no prompt text in any delta; the answer's first byte completes the character."""
    assert deltas(BYTES, b"Hello world \xe2\x82", b"\xac!") == ["€", "!", ""]


def test_half_a_character_of_the_prompt_that_is_never_completed_is_not_shown_either():
    """A1."""
    assert deltas(BYTES, b"Hello world \xe2\x82", b"abc") == [*"abc", ""]


def test_a_prompt_that_is_nothing_but_half_a_character():
    assert text(BYTES, b"\xf0\x9f\x98", b"\x80") == "😀"
    assert text(BYTES, b"\xf0\x9f\x98", b"a") == "a"


def test_what_stands_before_half_a_character_in_the_prompts_last_token_is_not_shown():
    """A1."""
    assert text(merged_tokenizer(b"ok \xe2\x82"), [*b"Hi ", 300], b"\xac!") == "€!"


def test_a_prompt_of_stray_bytes_is_not_shown():
    assert text(BYTES, b"\x80" * 9, b"abc") == "abc"


# -- bytes that are no character ---------------------------------------------------------------------------------


def test_a_stray_byte_shows_as_a_replacement_character_and_the_text_goes_on():
    """A18: text that is not valid UTF-8 ends nothing."""
    assert text(BYTES, b"Hi", b"a\xffb") == f"a{REPLACEMENT}b"


def test_a_character_after_a_stray_byte_is_not_lost():
    assert text(BYTES, b"Hi", b"\xff" + "😀 ok".encode()) == f"{REPLACEMENT}😀 ok"


def test_stray_bytes_without_end_are_not_held_back_without_end():
    shown = deltas(BYTES, b"Hi", b"\xc4" * 20)
    assert all("".join(shown[i : i + 4]) for i in range(17))


INTERESTING = st.sampled_from([*b"a ", *"ď€😀".encode(), 0xFF, 0xC4, 0x80])


def whole_characters(text: str) -> str:
    return text.replace(REPLACEMENT, "")


@given(prompt=st.text("aď€😀", min_size=1, max_size=6), answer=st.lists(INTERESTING, max_size=24))
def test_any_bytes_give_the_text_of_the_whole_answer(prompt, answer):
    """A2, A18: streamed or decoded at once, it is the same text, but for an incomplete end."""
    expected = bytes(answer).decode(errors="replace")
    assert text(BYTES, prompt.encode(), answer).rstrip(REPLACEMENT) == expected.rstrip(REPLACEMENT)


@given(prompt=st.lists(INTERESTING, min_size=1, max_size=12), answer=st.lists(INTERESTING, max_size=24))
def test_after_any_prompt_the_answer_is_what_the_whole_says_more(prompt, answer):
    """A1: a prompt may end anywhere."""
    before = whole_characters(bytes(prompt).decode(errors="replace"))
    both = whole_characters(bytes(prompt + answer).decode(errors="replace"))
    assert before + whole_characters(text(BYTES, prompt, answer)) == both


@given(st.text(max_size=30))
def test_valid_text_comes_through_unchanged_however_it_is_cut(answer):
    """A2."""
    shown = deltas(BYTES, b"Hi ", answer.encode())
    assert "".join(shown) == answer
    assert all(delta == "" or delta in answer for delta in shown)


# -- tokens that carry their space (SentencePiece) ---------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [LLAMA, METASPACE], ids=["llama", "metaspace"])
def test_the_space_after_a_full_stop_is_kept(tokenizer):
    """A4: identical to decoding the whole list at once."""
    answer = ids_of("▁LLMs", ".", "▁It", "▁is")
    assert text(tokenizer, ids_of("▁It"), answer) == " LLMs. It is"
    assert text(tokenizer, ids_of("▁It"), answer).strip() == tokenizer.decode(answer)


def test_byte_fallback_makes_whole_characters_one_after_the_other():
    """A2."""
    answer = ids_of("▁It", "😀ď€".encode(), ".", "▁is")
    assert text(LLAMA, ids_of("▁LLMs"), answer) == " It😀ď€. is"


def test_a_space_after_bytes_that_are_no_character_is_kept():
    assert text(LLAMA, ids_of("▁LLMs"), ids_of("▁It", b"\xff\xff\xff\xff", "▁is")).endswith(" is")


def test_a_prompt_whose_tail_begins_within_a_character_is_context_all_the_same():
    """A4: the space before the answer's first word depends on it."""
    prompt = ids_of("▁It", "本語é".encode())
    assert text(LLAMA, prompt, ids_of("▁LLMs", ".")) == " LLMs."


@given(st.lists(st.sampled_from([*WORDS[1:], "😀".encode(), "ď".encode()]), max_size=12))
def test_sentencepiece_text_equals_decoding_at_once(parts):
    """A4."""
    prompt, answer = ids_of("▁It", "."), ids_of(*parts)
    assert LLAMA.decode(prompt) + text(LLAMA, prompt, answer) == LLAMA.decode(prompt + answer)


# -- stop strings ------------------------------------------------------------------------------------------------


def test_a_stop_string_over_several_tokens_is_never_shown():
    """A6: DEFGHIJ arriving as DEF, G, HI, J."""
    tokenizer = merged_tokenizer(b"ABC", b"DEF", b"HI")
    assert deltas(tokenizer, b"-", [300, 301, ord("G"), 302, ord("J")], ["DEFGHIJ"]) == ["ABC", "", "", "", ""]


def test_text_before_a_stop_string_in_the_same_token_is_shown():
    tokenizer = merged_tokenizer(b"abcSTOPdef")
    assert deltas(tokenizer, b"-", [300], ["STOP"]) == ["abc"]


def test_the_earliest_of_several_stop_strings_counts():
    tokenizer = merged_tokenizer(b"one two three")
    assert text(tokenizer, b"-", [300], ["three", "two"]) == "one "


def test_only_the_possible_beginning_of_a_stop_string_is_held_back():
    """A7: a stop string that never comes delays nothing else."""
    assert deltas(BYTES, b"-", b"hello", ["zzzz"]) == [*"hello", ""]


def test_what_was_held_back_is_shown_as_soon_as_it_cannot_be_the_stop_string():
    """A7: the delay is at most len(stop) - 1 characters."""
    assert deltas(BYTES, b"-", b"azzzb", ["zzzz"]) == ["a", "", "", "", "zzzb", ""]


def test_what_is_held_back_at_the_end_is_shown():
    assert deltas(BYTES, b"-", b"azz", ["zzzz"]) == ["a", "", "", "zz"]


def test_a_stop_string_that_begins_within_a_false_start_is_found():
    assert text(BYTES, b"-", b"xaab!", ["ab"]) == "xa"
    assert text(BYTES, b"-", b"xababac!", ["abac"]) == "xab"


def test_a_stop_string_may_hold_characters_of_several_bytes():
    assert text(BYTES, b"-", "ab😀c".encode(), ["😀"]) == "ab"


def test_the_prompt_cannot_complete_a_stop_string():
    assert text(BYTES, b"ST", b"OP it", ["STOP"]) == "OP it"


@given(
    answer=st.text("abc", max_size=40),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=3),
)
def test_the_answer_ends_before_the_first_stop_string(answer, stops):
    """A6: stream and whole agree."""
    cuts = [(answer.find(stop) + len(stop), answer.find(stop)) for stop in stops if stop in answer]
    expected = answer[: min(at for end, at in cuts if end == min(cuts)[0])] if cuts else answer
    assert text(BYTES, b"-", answer.encode(), stops) == expected


# -- in the engine -----------------------------------------------------------------------------------------------


def test_the_last_text_of_a_request_comes_before_its_end():
    engine = Harness(scripted([*b"azz"]))
    request = engine.add("x", stop=("zzzz",))
    engine.run()
    last = [event for event in engine.sink if getattr(event, "request", None) == request.request_id][-2:]
    assert [(event.kind, getattr(event, "done", None)) for event in last] == [("text", True), ("request", None)]
    assert engine.text(request) == "azz"


def test_a_stop_string_ends_the_request_with_stop():
    """A6."""
    engine = Harness(scripted([*b"ABCDEFGHIJKL"]))
    request = engine.add("alphabet", max_tokens=30, stop=("DEFGHIJ",))
    engine.run()
    assert engine.text(request) == "ABC"
    assert (request.finish_reason.value, request.finish_detail) == ("stop", "stop_string")
    assert request.num_output_tokens == 10


def test_text_messages_carry_every_token_once():
    engine = Harness(scripted([*"a😀b".encode()]))
    request = engine.add("x")
    engine.run()
    sent = [token for event in engine.sink if event.kind == "text" for token in event.token_ids]
    assert sent == request.output_token_ids
