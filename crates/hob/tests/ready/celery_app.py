"""Celery: results, errors, a delayed task, a chord, a group, events and remote control; the keys stay."""

import os
import subprocess
import sys
import time

import redis
from celery import Celery, chord, group
from celery.contrib.testing.worker import start_worker

LIMIT = 120
url = f"redis://127.0.0.1:{sys.argv[1]}/0"
app = Celery("test", broker=url, backend=url)
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_send_task_events = True
app.conf.task_send_sent_event = True
app.conf.task_track_started = True


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def fails():
    raise ValueError("expected")


def worker():
    return start_worker(app, pool="solo", concurrency=1, perform_ping_check=False, shutdown_timeout=LIMIT)


def crash_with_a_task():
    """Ends without a shutdown, so that the task stays with the lost worker."""
    with worker():
        add.apply_async((1, 2), countdown=3600)
        store = redis.Redis.from_url(url)
        deadline = time.time() + LIMIT
        while not store.hlen("unacked"):
            assert time.time() < deadline
            time.sleep(0.05)
        os._exit(0)


if len(sys.argv) > 2:
    crash_with_a_task()
with worker():
    assert [add.delay(n, n).get(timeout=LIMIT) for n in range(5)] == [0, 2, 4, 6, 8]
    fails.delay().get(timeout=LIMIT, propagate=False)
    assert chord([add.s(n, 1) for n in range(3)])(total.s()).get(timeout=LIMIT) == 6
    result = group(add.s(n, n) for n in range(3)).apply_async()
    result.save()
    assert result.get(timeout=LIMIT) == [0, 2, 4]
    app.control.ping(timeout=1)
subprocess.run([sys.executable, __file__, sys.argv[1], "crash"], check=True, timeout=LIMIT)
# Without a worker, tasks wait in the queue, by priority.
add.delay(3, 4)
add.apply_async((5, 6), priority=6)
print("done")
