"""The Python SDK on channels of a namespace. Prints each event as a line of JSON, and exits when its input ends."""

import asyncio
import os

from centrifuge import SubscriptionEventHandler

from connect import decode, encode, end_of_input, new_client, print_line


class Events(SubscriptionEventHandler):
    async def on_subscribed(self, ctx):
        print_line({"subscribed": {"wasRecovering": ctx.was_recovering, "recovered": ctx.recovered}})

    async def on_publication(self, ctx):
        print_line({"publication": decode(ctx.pub.data), "offset": ctx.pub.offset})

    async def on_join(self, ctx):
        print_line({"join": ctx.info.user})

    async def on_leave(self, ctx):
        print_line({"leave": ctx.info.user})

    async def on_unsubscribed(self, ctx):
        print_line({"unsubscribed": ctx.code})


class Secret(SubscriptionEventHandler):
    async def on_subscribed(self, ctx):
        print_line({"secret": "subscribed"})


async def subscription_token(channel):
    return os.environ["SUBSCRIPTION_TOKEN"]


async def main():
    client = new_client()
    subscription = client.new_subscription("news:a", events=Events(), join_leave=True)
    await subscription.subscribe()
    await client.connect()
    await subscription.ready()
    await subscription.publish(encode({"n": 1}))
    presence = await subscription.presence()
    stats = await subscription.presence_stats()
    history = await subscription.history(limit=10)
    print_line(
        {
            "present": sorted(info.user for info in presence.clients.values()),
            "stats": [stats.num_clients, stats.num_users],
            "history": [decode(publication.data) for publication in history.publications],
        }
    )
    secret = client.new_subscription("$news:secret", events=Secret(), get_token=subscription_token)
    await secret.subscribe()
    await end_of_input()
    await client.disconnect()


asyncio.run(main())
