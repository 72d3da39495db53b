//! Pub/sub.

use bytes::Bytes;

use super::{Args, CONTROL, Command, Flags, Keys, container, data, session};
use crate::core::Core;
use crate::glob;
use crate::hub::Topic;
use crate::reply::{Failure, Outcome, Reply};
use crate::turn::Turn;

const LISTEN: Flags = CONTROL.and(Flags::PUBSUB);
const TELL: Flags = Flags::PUBSUB.and(Flags::FAST);

pub(super) const COMMANDS: &[Command] = &[
    data("publish", 3, TELL, Keys::None, publish),
    session("subscribe", -2, LISTEN, Keys::None, |turn, args| subscribe(turn, args, Topic::Channel)),
    session("unsubscribe", -1, LISTEN, Keys::None, |turn, args| unsubscribe(turn, args, Topic::Channel)),
    session("psubscribe", -2, LISTEN, Keys::None, |turn, args| subscribe(turn, args, Topic::Pattern)),
    session("punsubscribe", -1, LISTEN, Keys::None, |turn, args| unsubscribe(turn, args, Topic::Pattern)),
    container(
        "pubsub",
        &[
            data("channels", -2, Flags::PUBSUB, Keys::None, channels),
            data("numsub", -2, Flags::PUBSUB, Keys::None, numsub),
            data("numpat", 2, Flags::PUBSUB, Keys::None, |core, _| Ok(Reply::len(core.hub.patterns()))),
        ],
    ),
];

fn publish(core: &mut Core, args: Args<'_>) -> Outcome {
    Ok(Reply::len(core.hub.publish(args[1], args[2])))
}

fn subscribe(turn: &mut Turn<'_>, args: Args<'_>, topic: Topic) -> Outcome {
    let kind = if topic == Topic::Channel { "subscribe" } else { "psubscribe" };
    let mailbox = turn.session.mailbox.clone();
    let mailbox = mailbox.ok_or(Failure::new("ERR this connection cannot subscribe"))?;
    let mut replies = Vec::new();
    for name in &args[1..] {
        let name = Bytes::copy_from_slice(name);
        if turn.session.topics(topic).insert(name.clone()) {
            let id = turn.session.id;
            turn.core().hub.subscribe(topic, name.clone(), id, mailbox.clone());
        }
        replies.push(confirmation(kind, Reply::bulk(&name), turn.session.subscriptions()));
    }
    mark_subscribed(turn);
    Ok(Reply::Several(replies))
}

fn unsubscribe(turn: &mut Turn<'_>, args: Args<'_>, topic: Topic) -> Outcome {
    let kind = if topic == Topic::Channel { "unsubscribe" } else { "punsubscribe" };
    let names: Vec<Bytes> = match &args[1..] {
        [] => turn.session.topics(topic).iter().cloned().collect(),
        names => names.iter().map(|name| Bytes::copy_from_slice(name)).collect(),
    };
    let mut replies = Vec::new();
    for name in &names {
        if turn.session.topics(topic).remove(name) {
            let id = turn.session.id;
            turn.core().hub.unsubscribe(topic, name, id);
        }
        replies.push(confirmation(kind, Reply::bulk(name), turn.session.subscriptions()));
    }
    if names.is_empty() {
        replies.push(confirmation(kind, Reply::Null, turn.session.subscriptions()));
    }
    mark_subscribed(turn);
    Ok(Reply::Several(replies))
}

fn mark_subscribed(turn: &mut Turn<'_>) {
    let (id, subscribed) = (turn.session.id, turn.session.subscriptions() > 0);
    if let Some(client) = turn.core().clients.connected.get_mut(&id) {
        client.subscribed = subscribed;
    }
}

fn confirmation(kind: &str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(kind), name, Reply::len(count)])
}

fn channels(core: &mut Core, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(Failure::new(
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
        ));
    }
    let wanted = |channel: &&Bytes| args.get(2).is_none_or(|pattern| glob::matches(pattern, channel));
    Ok(Reply::bulks(core.hub.channels().filter(wanted)))
}

fn numsub(core: &mut Core, args: Args<'_>) -> Outcome {
    let counts = args[2..]
        .iter()
        .flat_map(|channel| [Reply::bulk(channel), Reply::len(core.hub.subscribers(channel))]);
    Ok(Reply::Array(counts.collect()))
}
