"""The Python SDK against the chat. Prints each event as a line of JSON, and exits when its input ends."""

import asyncio
import json
import sys

from centrifuge import Client, SubscriptionEventHandler


def print_line(what):
    print(json.dumps(what), flush=True)


class Events(SubscriptionEventHandler):
    async def on_subscribed(self, ctx):
        print_line({"subscribed": {"wasRecovering": ctx.was_recovering, "recovered": ctx.recovered}})

    async def on_publication(self, ctx):
        if ctx.pub.data["type"] == "message":
            print_line({"message": ctx.pub.data["message"]["content"], "offset": ctx.pub.offset})

    async def on_join(self, ctx):
        print_line({"join": ctx.info.user})

    async def on_unsubscribed(self, ctx):
        print_line({"unsubscribed": ctx.code})


class Refused(SubscriptionEventHandler):
    async def on_unsubscribed(self, ctx):
        print_line({"refused": ctx.code})


async def main():
    url, token = sys.argv[1:3]
    client = Client(url, token=token, min_reconnect_delay=0.05, max_reconnect_delay=0.2, timeout=30.0, proxy=None)
    subscription = client.new_subscription("conv:r", events=Events(), join_leave=True)
    await subscription.subscribe()
    await client.connect()
    await subscription.ready()
    await subscription.publish({"content": "published", "clientId": "p1"})
    sent = await client.rpc("send", {"conversationId": "r", "content": "called", "clientId": "c1"})
    presence = await subscription.presence()
    stats = await subscription.presence_stats()
    history = await subscription.history(limit=2, reverse=True)
    print_line(
        {
            "sent": sent.data["content"],
            "present": sorted(info.user for info in presence.clients.values()),
            "stats": [stats.num_clients, stats.num_users],
            "history": [publication.data["message"]["content"] for publication in history.publications],
        }
    )
    refused = client.new_subscription("conv:other", events=Refused())
    await refused.subscribe()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await client.disconnect()


asyncio.run(main())
