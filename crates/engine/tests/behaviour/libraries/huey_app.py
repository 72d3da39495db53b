"""Huey: results, a retry, a scheduled task and a lock, with a consumer in threads."""

import sys
import time

from huey import RedisHuey
from huey.exceptions import TaskLockedException

LIMIT = 120
huey = RedisHuey("test", port=int(sys.argv[1]))
attempts = []


@huey.task()
def add(a, b):
    return a + b


@huey.task(retries=3)
def fail_twice():
    attempts.append(1)
    if len(attempts) < 3:
        raise ValueError(f"attempt {len(attempts)} fails")
    return len(attempts)


def get(result):
    return result.get(blocking=True, timeout=LIMIT, preserve=True)


consumer = huey.create_consumer(workers=2, worker_type="thread", periodic=False, scheduler_interval=1)
consumer.start()
sums = [add(n, n) for n in range(20)]
assert [get(one) for one in sums] == [2 * n for n in range(20)]
retried = fail_twice()
deadline = time.time() + LIMIT
while len(attempts) < 3:
    assert time.time() < deadline, attempts
    time.sleep(0.05)
begun = time.time()
assert get(add.schedule((1, 2), delay=1)) == 3 and time.time() >= begun + 1
with huey.lock_task("lock"):
    try:
        with huey.lock_task("lock"):
            raise AssertionError("the lock was acquired twice")
    except TaskLockedException:
        pass
consumer.stop(graceful=True)
print("done")
