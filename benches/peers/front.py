"""A thin HTTP front for peers that are libraries without a server: streaming completions, no more.

  front.py {mistralrs|openvino} --model PATH --port N

It runs in the peer's own environment. Text is passed on as it comes; usage is told at the end, as the load
generator wants it.
"""

import argparse
import asyncio
import json
import os
import threading

from aiohttp import web

# Largest request body.
BODY_BYTES_MAX = 1 << 24
# Prompt tokens that OpenVINO computes between two decode steps.
CHUNK_TOKENS = 512


class MistralRs:
    """Streams chat requests only, so a prompt goes in as one message of a user."""

    def __init__(self, options):
        import mistralrs

        self.library = mistralrs
        folder, file = os.path.split(options.model)
        if file.endswith(".gguf"):
            which = mistralrs.Which.GGUF(quantized_model_id=folder, quantized_filename=file)
        else:
            which = mistralrs.Which.Plain(model_id=options.model)
        self.runner = mistralrs.Runner(which=which, max_seqs=options.sequences)

    def stream(self, body, put):
        request = self.library.ChatCompletionRequest(
            model="default",
            messages=[{"role": "user", "content": body["prompt"]}],
            max_tokens=body.get("max_tokens", 16),
            temperature=0.0,
            top_k=1,
            stream=True,
            ignore_eos=bool(body.get("ignore_eos")),
        )
        usage = None
        for chunk in self.runner.send_chat_completion_request(request):
            delta = chunk.choices[0].delta
            text = delta.content or getattr(delta, "reasoning_content", None)
            if text:
                put(text)
            usage = getattr(chunk, "usage", None) or usage
        if usage is None:
            return None
        return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}


class OpenVino:
    """Continuous batching: one thread steps the pipeline and hands out what each request has got."""

    def __init__(self, options):
        import openvino_genai

        self.library = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = options.kv_gib
        scheduler.max_num_seqs = options.sequences
        scheduler.enable_prefix_caching = True
        scheduler.dynamic_split_fuse = True
        scheduler.max_num_batched_tokens = CHUNK_TOKENS
        properties = {"INFERENCE_NUM_THREADS": options.threads}
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(options.model, scheduler, "CPU", properties)
        self.tokenizer = self.pipeline.get_tokenizer()
        self.lock = threading.Lock()
        self.running, self.last_id, self.failure = {}, 0, None
        self.work = threading.Event()
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        try:
            while True:
                if self.pipeline.has_non_finished_requests():
                    self.pipeline.step()
                    self.hand_out()
                else:
                    self.work.wait()
                    self.work.clear()
        except Exception as error:
            self.failure = error
            for _, _, _, done in list(self.running.values()):
                done.set()

    def hand_out(self):
        for number, (handle, put, ids, done) in list(self.running.items()):
            while handle.can_read():
                for output in handle.read().values():
                    for token in output.generated_ids:
                        ids.append(token)
                        put(self.tokenizer.decode([token]) or " ")
            if handle.get_status() != self.library.GenerationStatus.RUNNING:
                del self.running[number]
                done.set()

    def stream(self, body, put):
        config = self.library.GenerationConfig()
        config.max_new_tokens = body.get("max_tokens", 16)
        config.ignore_eos = bool(body.get("ignore_eos"))
        config.do_sample = False
        config.apply_chat_template = False
        prompt = self.tokenizer.encode(body["prompt"]).input_ids
        ids, done = [], threading.Event()
        with self.lock:
            self.last_id += 1
            handle = self.pipeline.add_request(self.last_id, prompt, config)
            self.running[self.last_id] = (handle, put, ids, done)
        self.work.set()
        done.wait()
        if self.failure:
            raise self.failure
        return {"prompt_tokens": int(prompt.shape[1]), "completion_tokens": len(ids)}


def application(engine, name):
    async def completions(request):
        body = await request.json()
        loop, queue = asyncio.get_running_loop(), asyncio.Queue()

        def send(item):
            loop.call_soon_threadsafe(queue.put_nowait, item)

        def work():
            try:
                usage = engine.stream(body, lambda text: send({"choices": [{"index": 0, "text": text}]}))
                send({"choices": [], "usage": usage, "last": True})
            except Exception as error:
                send({"choices": [], "error": f"{type(error).__name__}: {error}", "last": True})

        threading.Thread(target=work, daemon=True).start()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        is_last = False
        while not is_last:
            item = await queue.get()
            is_last = item.pop("last", False)
            await response.write(b"data: " + json.dumps(item).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def models(_):
        return web.json_response({"data": [{"id": name, "object": "model"}]})

    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.add_routes(
        [web.post("/v1/completions", completions), web.get("/v1/models", models), web.get("/health", models)]
    )
    return app


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engine", choices=["mistralrs", "openvino"])
    parser.add_argument("--model", required=True, help="a .gguf file, or a folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--kv-gib", type=int, default=2)
    options = parser.parse_args()
    engine = {"mistralrs": MistralRs, "openvino": OpenVino}[options.engine](options)
    web.run_app(
        application(engine, os.path.basename(options.model)), host="127.0.0.1", port=options.port, print=None
    )


if __name__ == "__main__":
    main()
