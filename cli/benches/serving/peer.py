"""The same model behind aiohttp, batched as people write it with PyTorch: peer.py MODEL.safetensors. Prints `serving ADDRESS`."""
import asyncio, json, sys
import numpy, torch
from aiohttp import web
from safetensors.torch import load_file

torch.set_num_threads(1)
weights, queue = load_file(sys.argv[1]), asyncio.Queue(100)

async def batches():
    while True:
        batch = [await queue.get()]
        end = asyncio.get_running_loop().time() + 0.01
        while len(batch) < 32:
            try:
                batch.append(queue.get_nowait() if queue.qsize() else await asyncio.wait_for(queue.get(), end - asyncio.get_running_loop().time()))
            except asyncio.TimeoutError:
                break
        with torch.inference_mode():
            rows = torch.from_numpy(numpy.stack([row for row, _ in batch]))
            hidden = torch.relu(torch.nn.functional.linear(rows, weights["fc1.weight"], weights["fc1.bias"]))
            scores = torch.nn.functional.linear(hidden, weights["fc2.weight"], weights["fc2.bias"]).numpy()
        for (_, answer), row in zip(batch, scores):
            answer.set_result(row)

async def infer(request):
    body, size = await request.read(), int(request.headers["inference-header-content-length"])
    json.loads(body[:size])
    answer = asyncio.get_running_loop().create_future()
    await queue.put((numpy.frombuffer(body[size:], numpy.float32), answer))
    scores = (await answer).tobytes()
    head = json.dumps({"model_name": "digits", "outputs": [{"name": "scores", "shape": [1, 10], "datatype": "FP32", "parameters": {"binary_data_size": len(scores)}}]}).encode()
    return web.Response(body=head + scores, headers={"inference-header-content-length": str(len(head))})

async def main():
    app = web.Application()
    app.router.add_post("/v2/models/digits/infer", infer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print("serving 127.0.0.1:%d" % site._server.sockets[0].getsockname()[1], flush=True)
    await batches()

asyncio.run(main())
