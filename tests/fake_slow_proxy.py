"""A fake slow server: a proxy before a real one, through which all takes so many times as long.

What the real server says after t seconds passes on after `slower` times t, piece by piece. As a
program: `python -m tests.fake_slow_proxy PORT UPSTREAM_PORT SLOWER`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PIECE = 65536


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: int, slower: float
) -> None:
    """One request of a connection that ends with it, as those of a bench do."""
    try:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", upstream)
    except OSError:
        writer.close()
        return
    loop = asyncio.get_running_loop()
    asking = asyncio.ensure_future(_copy(reader, to_server))
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    began = loop.time()

    async def receive() -> None:
        while True:
            data = await from_server.read(_PIECE)
            queue.put_nowait((loop.time() - began, data))
            if not data:
                return

    receiving = asyncio.ensure_future(receive())
    try:
        while True:
            after, data = await queue.get()
            await asyncio.sleep(began + after * slower - loop.time())
            if not data:
                return
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
    finally:
        asking.cancel()
        receiving.cancel()
        to_server.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)


async def serve(port: int, upstream: int, slower: float) -> asyncio.Server:
    """The proxy on `port` of 127.0.0.1 (0: one that is free), before `upstream` there."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _pass(reader, writer, upstream, slower)

    return await asyncio.start_server(handle, "127.0.0.1", port)


@contextmanager
def fake_slow_proxy(upstream: int, slower: float) -> Iterator[int]:
    """The port of a proxy in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(serve(0, upstream, slower), loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _main(port: int, upstream: int, slower: float) -> None:
    await (await serve(port, upstream, slower)).serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
