"""Hang-ups, bad requests and load: what one client does must not show at another."""

import concurrent.futures
import json
import random
import socket

import httpx

from conftest import MODEL_NAME

CHAT = "/v1/chat/completions"


def body(text, **options):
    options = {"max_tokens": 16, "temperature": 0} | options
    return {"model": MODEL_NAME, "messages": [{"role": "user", "content": text}]} | options


def answer(http, text, **options):
    response = http.post(CHAT, json=body(text, **options))
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def test_answers_under_load_are_those_given_alone(server):
    questions = [f"Write a short sentence about the number {number}." for number in range(8)]
    seeded = {"temperature": 0.9, "seed": 7}
    with server.http() as http:
        alone = [answer(http, question) for question in questions]
        alone_seeded = [answer(http, question, **seeded) for question in questions]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            rounds = 2
            together = list(pool.map(lambda question: answer(http, question), questions * rounds))
            mixed = list(pool.map(lambda question: answer(http, question, **seeded), questions * rounds))
    assert together == alone * rounds
    assert mixed == alone_seeded * rounds


def test_a_client_that_hangs_up_frees_its_work(server):
    long = body("Count from one to ten thousand.", max_tokens=1500, ignore_eos=True)
    with server.http() as http:
        with http.stream("POST", CHAT, json=long | {"stream": True}) as response:
            for line in response.iter_lines():
                if '"content":' in line:
                    break
        server.wait_for_metric("vllm:num_requests_running", lambda running: running == 0)

        # The same without a stream: nothing has been sent yet when the client goes.
        try:
            http.post(CHAT, json=long, timeout=httpx.Timeout(30, read=0.5))
            raise AssertionError("1500 tokens in half a second")
        except httpx.ReadTimeout:
            pass
    server.wait_for_metric("vllm:num_requests_running", lambda running: running == 0)
    server.wait_for_metric("vllm:kv_cache_usage_perc", lambda usage: usage == 0)


BAD = [
    {"temperature": -1},
    {"temperature": "hot"},
    {"top_p": 0},
    {"top_k": -7},
    {"max_tokens": 0},
    {"max_tokens": 10**12},
    {"n": 0},
    {"stop": [""]},
    {"logit_bias": {"99999999": 1}},
    {"logit_bias": {"x": 1}},
    {"messages": []},
    {"messages": "hello"},
    {"messages": [{"role": "wizard", "content": 5}]},
    {"top_logprobs": 5},
    {"stream_options": {"include_usage": True}},
    {"allowed_token_ids": []},
    {"stop_token_ids": [10**9]},
    {"tools": []},
    {"guided_regex": "x"},
    {"min_tokens": 9, "max_tokens": 3},
]
RAW = [b"", b"{", b"null", b"[1,2", b'{"model": NaN}', b"\xff\xfe", b'{"a":' * 5000, b'{"messages":"\\ud800"}']


def test_a_storm_of_bad_requests_is_answered_and_survived(server):
    rng = random.Random(1)
    storm = [json.dumps(body("hi") | bad).encode() for bad in BAD] + RAW
    storm = storm * 5
    rng.shuffle(storm)
    headers = {"content-type": "application/json"}
    with server.http() as http:
        expected = answer(http, "Say hello.")

        def send(content):
            response = http.post(CHAT, content=content, headers=headers)
            assert 400 <= response.status_code < 500, (content[:100], response.status_code, response.text)
            error = response.json()["error"]
            assert error["message"].strip() and error["type"], (content[:100], error)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            good = pool.submit(lambda: [answer(http, "Say hello.") for _ in range(3)])
            list(pool.map(send, storm))
            assert good.result() == [expected] * 3


def test_broken_connections_are_survived(server):
    for data in (b"", b"\x16\x03\x01\x02\x00", b"POST /v1/chat/completions HTTP/1.1\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(data)
    with server.http() as http:
        assert answer(http, "Say hello.")


def test_a_full_queue_says_when_to_come_back(start):
    small = start("--max-num-seqs", "1", "--max-num-queued-reqs", "1")
    with small.http() as http, concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(http.post, CHAT, json=body("Tell a story.", max_tokens=200, ignore_eos=True)) for _ in range(8)]
        responses = [job.result() for job in jobs]
    refused = [response for response in responses if response.status_code != 200]
    assert {response.status_code for response in refused} == {429}
    assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
    assert len(responses) - len(refused) >= 1
