"""Prompt lookup: answers are those of a server without it, and the counters say what it was good for."""

import concurrent.futures
import json

from conftest import MODEL_NAME
from test_lifecycle import refusal

DRAFTS = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
VERSE = "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream. "
PREFIX = "vllm:spec_decode_num_"


def requests():
    """Greedy and seeded; with penalties, stop strings and log-probabilities; repetitive and not."""
    plain = {"model": MODEL_NAME, "prompt": VERSE * 3, "max_tokens": 40, "temperature": 0}
    return [
        plain,
        plain | {"ignore_eos": True, "logprobs": 2},
        plain | {"temperature": 0.7, "seed": 7, "logprobs": 1},
        plain | {"temperature": 1.0, "seed": 8, "top_p": 0.9, "frequency_penalty": 0.4},
        plain | {"stop": ["merrily, merrily, merrily"]},
        plain | {"stop": ["stream."], "include_stop_str_in_output": True},
        plain | {"prompt": VERSE + VERSE[:30], "repetition_penalty": 1.2, "presence_penalty": 0.3},
        plain | {"prompt": "A list of rivers:", "n": 2, "temperature": 0.8, "seed": 3},
    ]


def answers(server):
    def ask(body):
        with server.http() as http:
            response = http.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        details = answer["usage"].pop("prompt_tokens_details", None)
        del details  # What comes from the cache depends on what ran before.
        return answer["choices"], answer["usage"]

    bodies = requests()
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(ask, bodies))


def streamed(server, body):
    text, finish = "", None
    with server.openai() as client:
        for chunk in client.completions.create(**body, stream=True):
            for choice in chunk.choices:
                text += choice.text
                finish = choice.finish_reason or finish
    return text, finish


def test_answers_are_those_without_drafts_and_drafts_are_counted(start, server):
    drafting = start("--speculative-config", json.dumps(DRAFTS), "--kv-cache-memory-bytes", "1GiB")
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        assert drafting.metric(f"{PREFIX}{name}_total") == 0
        assert server.metric(f"{PREFIX}{name}_total") is None
    expected = answers(server)
    assert answers(drafting) == expected
    drafted = drafting.metric(f"{PREFIX}draft_tokens_total")
    accepted = drafting.metric(f"{PREFIX}accepted_tokens_total")
    assert drafted >= accepted > 20, (drafted, accepted)
    assert drafting.metric(f"{PREFIX}drafts_total") <= drafted
    assert drafting.metric(f"{PREFIX}accepted_tokens_per_pos_total") == accepted
    places = [drafting.metric(f"{PREFIX}accepted_tokens_per_pos_total", position=place) for place in range(4)]
    assert places == sorted(places, reverse=True) and None not in places, places
    # Again, from the prefix cache, and as streams.
    assert answers(drafting) == expected
    body = requests()[4]
    choice = expected[4][0][0]
    assert streamed(drafting, body) == streamed(server, body) == (choice["text"], choice["finish_reason"])
    assert drafting.metric(f"{PREFIX}draft_tokens_total") > drafted


def test_a_child_process_checks_drafts_too(start, server):
    drafting = start("-sc", json.dumps(DRAFTS), "--executor-isolation", "process", "--kv-cache-memory-bytes", "1GiB")
    assert answers(drafting) == answers(server)
    assert drafting.metric(f"{PREFIX}accepted_tokens_total") > 20


def test_other_methods_are_refused_with_a_sentence(model):
    message = refusal("serve", model, "-sc", '{"method": "eagle", "model": "x", "num_speculative_tokens": 2}', code=2)
    assert 'the only one is "ngram"' in message, message
