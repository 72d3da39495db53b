"""cent, Centrifugo's Python client for its server API: calls every method and checks the results."""

import sys

import cent

url, key, client_id = sys.argv[1:4]
client = cent.Client(url, key)

published = client.publish(cent.PublishRequest(channel="news:a", data={"text": "hello"}))
assert published.offset == 1 and published.epoch, published
broadcast = client.broadcast(cent.BroadcastRequest(channels=["news:a", "news:b"], data={"text": "all"}))
assert [response.result.offset for response in broadcast.responses] == [2, 1], broadcast
history = client.history(cent.HistoryRequest(channel="news:a", limit=10))
assert [publication.data["text"] for publication in history.publications] == ["hello", "all"], history
assert history.epoch == published.epoch, history
since = cent.StreamPosition(offset=1, epoch=history.epoch)
history = client.history(cent.HistoryRequest(channel="news:a", limit=10, since=since))
assert [publication.offset for publication in history.publications] == [2], history

presence = client.presence(cent.PresenceRequest(channel="news:a"))
assert presence.presence[client_id].user == "anna", presence
stats = client.presence_stats(cent.PresenceStatsRequest(channel="news:a"))
assert (stats.num_clients, stats.num_users) == (1, 1), stats
channels = client.channels(cent.ChannelsRequest(pattern="news:*"))
assert channels.channels["news:a"].num_clients == 1, channels
info = client.info(cent.InfoRequest())
assert sum(node.num_clients for node in info.nodes) == 1, info

client.subscribe(cent.SubscribeRequest(user="anna", channel="news:c"))
assert client.presence_stats(cent.PresenceStatsRequest(channel="news:c")).num_clients == 1
client.unsubscribe(cent.UnsubscribeRequest(user="anna", channel="news:c"))
assert client.presence_stats(cent.PresenceStatsRequest(channel="news:c")).num_clients == 0
client.history_remove(cent.HistoryRemoveRequest(channel="news:a"))
assert client.history(cent.HistoryRequest(channel="news:a", limit=10)).publications == []

requests = [
    cent.PublishRequest(channel="news:a", data={"text": "batch"}),
    cent.PresenceStatsRequest(channel="news:a"),
]
batch = client.batch(cent.BatchRequest(requests=requests, parallel=True))
assert batch.replies[0].offset == 3 and batch.replies[1].num_clients == 1, batch

try:
    client.publish(cent.PublishRequest(channel="unknown:a", data={}))
    raise AssertionError("an unknown namespace is refused")
except cent.CentApiResponseError as error:
    assert error.code == 102, error
try:
    cent.Client(url, "wrong").info(cent.InfoRequest())
    raise AssertionError("a wrong key is refused")
except cent.CentUnauthorizedError:
    pass

client.refresh(cent.RefreshRequest(user="anna", expire_at=4102444800))
reason = cent.Disconnect(code=4001, reason="done")
client.disconnect(cent.DisconnectRequest(user="anna", disconnect=reason))
print("done")
