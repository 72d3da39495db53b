"""Jobs for rq, which imports them by name in its worker."""

import redis


def add(a, b):
    return a + b


def fail_twice(port):
    runs = redis.Redis(port=port).incr("runs-of-fail-twice")
    if runs < 3:
        raise ValueError(f"run {runs} fails")
    return runs
