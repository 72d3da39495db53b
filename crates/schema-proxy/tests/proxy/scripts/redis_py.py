"""redis-py over RESP2 and RESP3: values, pipelines, transactions, scripts, pub/sub, a blocking pop."""

import sys
import threading

import redis

for protocol in (2, 3):
    store = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True, client_name="py")
    assert store.set("session:1", "v", ex=100) and store.get("session:1") == "v"
    store.hset("cart:1", mapping={"owner": 1, "7": 2})
    assert store.hgetall("cart:1") == {"owner": "1", "7": "2"}
    store.delete("count:1")
    with store.pipeline() as pipeline:
        pipeline.watch("count:1")
        pipeline.multi()
        pipeline.incr("count:1")
        pipeline.incr("count:1")
        assert pipeline.execute() == [1, 2]
    add = store.register_script('return redis.call("INCRBY", KEYS[1], ARGV[1])')
    assert add(keys=["count:1"], args=[5]) == 7
    with store.pipeline(transaction=False) as pipeline:
        for n in range(500):
            pipeline.set(f"blob:{n}", "x" * n)
        assert all(pipeline.execute())
    try:
        store.set("other", 1)
        assert False
    except redis.ResponseError as error:
        assert str(error).startswith("SCHEMA undeclared-key"), error
    pubsub = store.pubsub()
    pubsub.subscribe("c")
    assert pubsub.get_message(timeout=10)["type"] == "subscribe"
    assert store.publish("c", "hi") == 1
    assert pubsub.get_message(timeout=10)["data"] == "hi"
    pubsub.close()
    other = redis.Redis(port=int(sys.argv[1]), protocol=protocol)
    threading.Timer(0.05, lambda: other.rpush("queue:1", '{"id":1}')).start()
    assert store.blpop(["queue:1"], timeout=30)[1] == '{"id":1}'
print("done")
