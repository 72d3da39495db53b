"""rq: results, a retry and a scheduled job, with a worker in a process of its own."""

import subprocess
import sys
import time
from datetime import timedelta

import redis
from rq import Queue, Retry

import jobs

LIMIT = 120
port = int(sys.argv[1])
queue = Queue("q", connection=redis.Redis(port=port))


def result(job):
    deadline = time.time() + LIMIT
    while time.time() < deadline:
        status = job.get_status()
        if status == "finished":
            return job.return_value()
        assert status != "failed", job.latest_result().exc_string
        time.sleep(0.05)
    raise TimeoutError(f"{job.func_name} is {job.get_status()}")


command = "from rq.cli import main; main()"
options = ["worker", "--url", f"redis://127.0.0.1:{port}/0", "--with-scheduler", "--quiet"]
worker = subprocess.Popen([sys.executable, "-c", command, *options, "--worker-class", "rq.SimpleWorker", "q"])
try:
    sums = [queue.enqueue(jobs.add, n, n) for n in range(10)]
    assert [result(job) for job in sums] == [2 * n for n in range(10)]
    assert result(queue.enqueue(jobs.fail_twice, port, retry=Retry(max=3))) == 3
    begun = time.time()
    scheduled = queue.enqueue_in(timedelta(seconds=2), jobs.add, 1, 2)
    # rq schedules by whole seconds.
    assert result(scheduled) == 3 and time.time() >= begun + 1
finally:
    worker.terminate()
    worker.wait(LIMIT)
print("done")
