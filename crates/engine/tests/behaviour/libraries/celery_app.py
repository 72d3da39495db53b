"""Celery: results, a retry, a delayed task and a chord, with the store as broker and as result backend."""

import sys
import time

from celery import Celery, chord
from celery.contrib.testing.worker import start_worker

LIMIT = 120
url = f"redis://127.0.0.1:{sys.argv[1]}/0"
app = Celery("test", broker=url, backend=url)
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def fail_twice(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task
def clock():
    return time.time()


with start_worker(app, pool="solo", concurrency=1, perform_ping_check=False, shutdown_timeout=LIMIT):
    sums = [add.delay(n, n) for n in range(20)]
    assert [one.get(timeout=LIMIT) for one in sums] == [2 * n for n in range(20)]
    assert fail_twice.delay().get(timeout=LIMIT) == 2
    begun = time.time()
    assert clock.apply_async(countdown=1).get(timeout=LIMIT) >= begun + 1
    assert chord([add.s(n, 1) for n in range(5)])(total.s()).get(timeout=LIMIT) == 15
print("done")
