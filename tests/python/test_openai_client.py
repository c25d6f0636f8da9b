"""The `openai` package, unchanged, against the server."""

import math

import openai
import pytest

from conftest import MODEL_NAME

QUESTION = [{"role": "user", "content": "Name three rivers in Europe."}]


def ask(client, **options):
    options = {"model": MODEL_NAME, "messages": QUESTION, "max_tokens": 24, "temperature": 0} | options
    return client.chat.completions.create(**options)


def test_models_are_listed(client):
    ids = [model.id for model in client.models.list()]
    assert ids == [MODEL_NAME, "smollm2"]


def test_chat_completes(client):
    answer = ask(client)
    choice = answer.choices[0]
    assert answer.object == "chat.completion"
    assert answer.model == MODEL_NAME
    assert choice.message.role == "assistant"
    assert choice.message.content.strip()
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0


def test_the_second_name_is_good_too(client):
    assert ask(client, model="smollm2").model == MODEL_NAME


def test_stream_equals_plain(client):
    plain = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert finishes == [plain.choices[0].finish_reason]
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == 1 and not chunks[-1].choices
    assert usages[0].completion_tokens == plain.usage.completion_tokens


def test_no_usage_chunk_unless_asked(client):
    assert all(chunk.usage is None for chunk in ask(client, stream=True))


def test_characters_are_never_cut(client):
    say = [{"role": "user", "content": "Repeat exactly: 你好，世界 🌍🚀"}]
    plain = ask(client, messages=say, max_tokens=40).choices[0].message.content
    chunks = list(ask(client, messages=say, max_tokens=40, stream=True))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(pieces) == plain
    # Only the very end may be half a character: the answer was cut there.
    assert "\ufffd" not in "".join(pieces)[:-1]


def test_log_probabilities(client):
    answer = ask(client, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert 0 < len(entries) <= 24
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob <= 0 and math.isfinite(entry.logprob)
        likeliest = max(entry.top_logprobs, key=lambda top: top.logprob)
        assert likeliest.token == entry.token and likeliest.logprob == entry.logprob, "temperature 0 takes the likeliest"
    text = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
    assert text.startswith(answer.choices[0].message.content)


def test_two_choices_differ_and_repeat_with_a_seed(client):
    options = {"n": 2, "temperature": 1.0, "seed": 11, "max_tokens": 16}
    first, again = ask(client, **options), ask(client, **options)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1]
    assert texts[0] != texts[1]
    assert texts == [choice.message.content for choice in again.choices]
    other = ask(client, **(options | {"seed": 12}))
    assert texts != [choice.message.content for choice in other.choices]


def test_streamed_choices_equal_plain_ones(client):
    options = {"n": 2, "temperature": 1.0, "seed": 3, "max_tokens": 12}
    texts = ["", ""]
    for chunk in ask(client, stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in ask(client, **options).choices]


def test_stop_strings_end_and_are_left_out(client):
    whole = ask(client, max_tokens=32).choices[0].message.content
    stop = whole[5:9]
    answer = ask(client, max_tokens=32, stop=[stop]).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.message.content == whole[: whole.index(stop)]
    streamed = "".join(
        chunk.choices[0].delta.content or "" for chunk in ask(client, max_tokens=32, stop=[stop], stream=True)
    )
    assert streamed == answer.message.content


def test_completions(client):
    answer = client.completions.create(
        model=MODEL_NAME, prompt=["The sea is", "One, two,"], max_tokens=8, temperature=0, logprobs=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.text
        assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) <= 8
    echoed = client.completions.create(model=MODEL_NAME, prompt="The sea is", max_tokens=4, temperature=0, echo=True)
    assert echoed.choices[0].text.startswith("The sea is")
    pieces = client.completions.create(model=MODEL_NAME, prompt="The sea is", max_tokens=8, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == answer.choices[0].text


def test_the_second_time_comes_from_the_cache(client):
    long_question = [{"role": "user", "content": "Tell me about the history of tea. " * 12}]
    first = ask(client, messages=long_question, max_tokens=4)
    second = ask(client, messages=long_question, max_tokens=4)
    assert second.usage.prompt_tokens_details.cached_tokens > 0
    assert second.choices[0].message.content == first.choices[0].message.content


def test_errors_have_their_types(client):
    with pytest.raises(openai.NotFoundError) as wrong_model:
        ask(client, model="gpt-17")
    assert MODEL_NAME in str(wrong_model.value), "the message names what there is"
    with pytest.raises(openai.BadRequestError):
        ask(client, temperature=-1)
    with pytest.raises(openai.BadRequestError) as too_long:
        ask(client, messages=[{"role": "user", "content": "word " * 20_000}])
    assert "context length" in str(too_long.value)
    with pytest.raises(openai.BadRequestError) as unknown:
        ask(client, extra_body={"guided_json": {"type": "object"}})
    assert "guided_json" in str(unknown.value)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=MODEL_NAME, input="x")


def test_a_wrong_key_is_an_authentication_error(start):
    guarded = start(key="right-key")
    with pytest.raises(openai.AuthenticationError) as refused:
        guarded.openai(api_key="wrong-key").models.list()
    assert refused.value.status_code == 401
    assert "authorization" in str(refused.value).lower()
    assert "right-key" not in str(refused.value)
    assert [model.id for model in guarded.openai().models.list()] == [MODEL_NAME]
    with guarded.http() as http:
        bare = {"authorization": ""}
        for path in ("/health", "/ready", "/ping", "/version"):
            assert http.get(path, headers=bare).status_code == 200, path
        for path in ("/metrics", "/tokenize", "/load", "/openapi.json"):
            assert http.get(path, headers=bare).status_code == 401, path
