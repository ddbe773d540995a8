"""A language model's HTTP API on a free port of 127.0.0.1. The body of a request selects the response; reported tokens are counted.

A POST has a JSON body of `max_tokens`, `stream`, `cost` ([prompt, completion] tokens) and `end`:

  usage   a complete response with its usage (the default)
  slow    the same after 20 ms
  silent  a complete response without usage
  busy    503 in JSON
  plain   503 in text
  wait    the beginning of a response; the rest, with usage, after POST /go
  reset   the beginning of a response; then the connection is reset

GET /ledger returns the counts, and the hold ID and body of each request. Prints its port on standard error.
"""

import asyncio
import json
import socket
import struct
import sys


class Ledger:
    def __init__(self):
        # Of complete responses.
        self.tokens = 0
        # In progress, and the maximum so far.
        self.open = 0
        self.most = 0
        self.requests = []
        self.go = asyncio.Event()

    def release(self):
        # Of those in progress, also those that do not wait yet.
        self.go.set()
        self.go = asyncio.Event()

    def report(self):
        return {"tokens": self.tokens, "open": self.open, "most": self.most, "requests": self.requests}


class Response:
    def __init__(self, writer):
        self.writer = writer

    async def begin(self, status, kind):
        head = f"HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        self.writer.write(head.encode())
        await self.writer.drain()

    async def send(self, text):
        data = text.encode()
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def end(self):
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def whole(self, status, kind, text):
        await self.begin(status, kind)
        await self.send(text)
        await self.end()

    def reset(self):
        # Without lingering, a close is a reset.
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def read(reader):
    """Returns method, path, headers and body of a request."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ")
    headers = {}
    for name, _, value in (line.partition(":") for line in lines[1:] if line):
        headers.setdefault(name.lower(), []).append(value.strip())
    if "transfer-encoding" not in headers:
        return method, path, headers, await reader.readexactly(int(headers.get("content-length", ["0"])[0]))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return method, path, headers, body


async def answer(ledger, wanted, go, response):
    end, streams = wanted.get("end", "usage"), wanted.get("stream", False)
    if end == "busy":
        return await response.whole(503, "application/json", '{"error": {"message": "busy"}}')
    if end == "plain":
        return await response.whole(503, "text/plain", "busy\n")
    if end == "slow":
        await asyncio.sleep(0.02)
    prompt, completion = wanted.get("cost", [0, 0])
    usage = json.dumps({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
    if streams:
        await response.begin(200, "text/event-stream; charset=utf-8")
        # Every event has a usage, as OpenAI's API sends it: null except in the last one.
        await response.send('data: {"choices": [{"delta": {"content": "hello"}}], "usage": null}\n\n')
    else:
        await response.begin(200, "application/json")
        await response.send('{"choices": [{"message": {"content": "hello"}}]')
    if end == "wait":
        await go.wait()
    if end == "reset":
        return response.reset()
    if streams:
        if end != "silent":
            await response.send(f'data: {{"choices": [], "usage": {usage}}}\n\n')
        await response.send("data: [DONE]\n\n")
    else:
        await response.send("}" if end == "silent" else f', "usage": {usage}}}')
    await response.end()
    if end != "silent":
        ledger.tokens += prompt + completion


async def serve(ledger, reader, writer):
    response = Response(writer)
    try:
        _, path, headers, body = await read(reader)
        if path == "/ledger":
            await response.whole(200, "application/json", json.dumps(ledger.report()))
        elif path == "/go":
            ledger.release()
            await response.whole(200, "text/plain", "")
        else:
            wanted = json.loads(body)
            ledger.requests.append({"ids": headers.get("x-hold-id"), "encoding": headers.get("accept-encoding"), "body": wanted})
            ledger.open += 1
            ledger.most = max(ledger.most, ledger.open)
            try:
                # A client that closes its connection ends a response that waits.
                done = asyncio.ensure_future(answer(ledger, wanted, ledger.go, response))
                gone = asyncio.ensure_future(reader.read())
                await asyncio.wait([done, gone], return_when=asyncio.FIRST_COMPLETED)
                for task in (done, gone):
                    task.cancel()
            finally:
                ledger.open -= 1
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main():
    ledger = Ledger()
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = await asyncio.start_server(lambda reader, writer: serve(ledger, reader, writer), "127.0.0.1", port)
    print(f"listening on {server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


asyncio.run(main())
