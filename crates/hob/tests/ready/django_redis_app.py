"""django-redis: cached values of several types, a version, a counter, a value without a timeout, a lock and sessions."""

import sys

from django.conf import settings

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{sys.argv[1]}/0",
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        }
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    INSTALLED_APPS=["django.contrib.sessions"],
    SECRET_KEY="test",
)

import django  # noqa: E402

django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache  # noqa: E402

cache.set("user:7", {"name": "Ann"})
cache.set("page /a b", "<html>" * 1000, timeout=60)
cache.set("hits", 1, timeout=3600)
cache.incr("hits")
cache.set("forever", [1, 2, 3], timeout=None)
cache.set("report", b"\x00\xff", version=2)
cache.set_many({"a": 1, "b": 2.5})
lock = cache.lock("nightly", timeout=60)
assert lock.acquire()
session = SessionStore()
session["user"] = 7
session.save()
print("done")
