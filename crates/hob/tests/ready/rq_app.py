"""rq: finished, failed, scheduled, deferred, cancelled and waiting jobs; the keys stay."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import redis
from rq import Queue, Repeat

import rq_jobs

LIMIT = 120
port = int(sys.argv[1])
connection = redis.Redis(port=port)
queue = Queue("q", connection=connection)


def wait(job, wanted):
    deadline = time.time() + LIMIT
    while job.get_status(refresh=True) != wanted:
        assert time.time() < deadline, f"{job.func_name} is {job.get_status()}"
        time.sleep(0.05)


command = "from rq.cli import main; main()"
options = ["worker", "--url", f"redis://127.0.0.1:{port}/0", "--with-scheduler", "--quiet"]
options += ["--worker-class", "rq.SimpleWorker", "q"]
worker = subprocess.Popen([sys.executable, "-c", command, *options], start_new_session=True)
try:
    for n in range(5):
        wait(queue.enqueue(rq_jobs.add, n, n, meta={"n": n}, description="adds"), "finished")
    wait(queue.enqueue(rq_jobs.fails), "failed")
    queue.enqueue_in(timedelta(hours=1), rq_jobs.add, 1, 2)
    queue.enqueue(rq_jobs.add, 1, 1, repeat=Repeat(times=2, interval=3600))
    running = queue.enqueue(rq_jobs.endless, job_timeout=600)
    wait(running, "started")
    dependent = queue.enqueue(rq_jobs.add, 2, 2, depends_on=running)
    waiting = queue.enqueue(rq_jobs.add, 3, 3)
    queue.enqueue(rq_jobs.add, 4, 4).cancel()
finally:
    # Its keys stay, as after a crash. Its scheduler is another process.
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(LIMIT)
print("done")
