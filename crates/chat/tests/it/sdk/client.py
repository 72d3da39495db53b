"""The Python SDK against the chat. Prints each event as a line of JSON, and exits when its input ends."""

import asyncio

from centrifuge import ReplyError, SubscriptionEventHandler

from connect import IS_PROTOBUF, decode, encode, end_of_input, new_client, print_line


class Events(SubscriptionEventHandler):
    async def on_subscribed(self, ctx):
        print_line({"subscribed": {"wasRecovering": ctx.was_recovering, "recovered": ctx.recovered}})

    async def on_publication(self, ctx):
        data = decode(ctx.pub.data)
        if data["type"] == "message":
            print_line({"message": data["message"]["content"], "offset": ctx.pub.offset})

    async def on_join(self, ctx):
        print_line({"join": ctx.info.user})

    async def on_unsubscribed(self, ctx):
        print_line({"unsubscribed": ctx.code})


class Feed(SubscriptionEventHandler):
    async def on_subscribed(self, ctx):
        print_line({"feed": decode(ctx.data)["total"]})

    async def on_publication(self, ctx):
        print_line({"update": decode(ctx.pub.data)["type"]})


class Refused(SubscriptionEventHandler):
    async def on_unsubscribed(self, ctx):
        print_line({"refused": ctx.code})


async def error_of(call):
    try:
        await call
        return 0
    except ReplyError as error:
        return error.code


async def main():
    client = new_client()
    subscription = client.new_subscription("conv:r", events=Events(), join_leave=True)
    await subscription.subscribe()
    await client.connect()
    await subscription.ready()
    await subscription.publish(encode({"content": "published", "clientId": "p1"}))
    sent = await client.rpc("send", encode({"conversationId": "r", "content": "called", "clientId": "c1"}))
    presence = await subscription.presence()
    stats = await subscription.presence_stats()
    history = await subscription.history(limit=2, reverse=True)
    print_line(
        {
            "sent": decode(sent.data)["content"],
            "present": sorted(info.user for info in presence.clients.values()),
            "stats": [stats.num_clients, stats.num_users],
            "history": [
                decode(publication.data)["message"]["content"] for publication in history.publications
            ],
        }
    )
    errors = [
        await error_of(client.rpc("unknown", encode({}))),
        await error_of(client.rpc("send", encode({"conversationId": "r"}))),
        await error_of(client.rpc("send", b"\xff" if IS_PROTOBUF else None)),
    ]
    print_line({"errors": errors})
    feed = client.new_subscription("user:anna", events=Feed())
    await feed.subscribe()
    await feed.ready()
    refused = client.new_subscription("conv:other", events=Refused())
    await refused.subscribe()
    await end_of_input()
    await client.disconnect()


asyncio.run(main())
