"""The jobs of rq_app.py."""

import time


def add(a, b):
    return a + b


def fails():
    raise ValueError("expected")


def endless():
    time.sleep(600)
