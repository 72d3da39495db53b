"""python-redis-lock: contention, a timeout, renewal, and a lock that was not released."""

import sys
import threading
import time

import redis
import redis_lock

client = redis.Redis(port=int(sys.argv[1]))
client.set("counter", 0)


def count():
    for _ in range(20):
        with redis_lock.Lock(redis.Redis(port=int(sys.argv[1])), "lock", expire=60):
            value = int(client.get("counter"))
            time.sleep(0.001)
            client.set("counter", value + 1)


threads = [threading.Thread(target=count) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert client.get("counter") == b"80", client.get("counter")

held, other = redis_lock.Lock(client, "held", expire=60), redis_lock.Lock(client, "held", expire=60)
assert held.acquire() and not other.acquire(blocking=False) and not other.acquire(timeout=1)
assert held.extend(90) is None and held.locked() and held.get_owner_id() == held.id
waiting = threading.Thread(target=other.acquire)
waiting.start()
held.release()
waiting.join(120)
assert not waiting.is_alive() and other.get_owner_id() == other.id
redis_lock.reset_all(client)
assert not other.locked()
try:
    other.release()
    raise AssertionError("a lock that is not held was released")
except redis_lock.NotAcquired:
    pass
with redis_lock.Lock(client, "renewed", expire=2, auto_renewal=True):
    time.sleep(3)
    assert client.exists("lock:renewed")
print("done")
