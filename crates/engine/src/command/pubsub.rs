//! Pub/sub.

use bytes::Bytes;

use hob_commands::PubSubCommand;

use super::{Args, Handler};
use crate::dispatch::CommandContext;
use crate::engine::Core;
use crate::glob;
use crate::hub::SubscriptionKind;
use crate::reply::{CommandResult, Failure, Reply};

pub(super) fn handler(id: PubSubCommand) -> Handler {
    match id {
        PubSubCommand::Publish => Handler::Data(publish),
        PubSubCommand::Subscribe => {
            Handler::Session(|context, args| subscribe(context, args, SubscriptionKind::Channel))
        }
        PubSubCommand::Unsubscribe => {
            Handler::Session(|context, args| unsubscribe(context, args, SubscriptionKind::Channel))
        }
        PubSubCommand::PSubscribe => {
            Handler::Session(|context, args| subscribe(context, args, SubscriptionKind::Pattern))
        }
        PubSubCommand::PUnsubscribe => {
            Handler::Session(|context, args| unsubscribe(context, args, SubscriptionKind::Pattern))
        }
        PubSubCommand::Channels => Handler::Data(channels),
        PubSubCommand::NumSub => Handler::Data(numsub),
        PubSubCommand::NumPat => Handler::Data(|core, _| Ok(Reply::len(core.hub.patterns()))),
    }
}

fn publish(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(core.hub.publish(args[1], args[2])))
}

fn subscribe(context: &mut CommandContext<'_>, args: Args<'_>, kind: SubscriptionKind) -> CommandResult {
    let message = if kind == SubscriptionKind::Channel { "subscribe" } else { "psubscribe" };
    let sender = context.session.sender.clone();
    let sender = sender.ok_or(Failure::new("ERR this connection cannot subscribe"))?;
    if context.session.subscriptions() + args.len() - 1 > context.core().settings.max_subscriptions {
        return Err(Failure::new("ERR too many subscriptions on this connection"));
    }
    let mut replies = Vec::new();
    for name in &args[1..] {
        let name = Bytes::copy_from_slice(name);
        if context.session.names_of(kind).insert(name.clone()) {
            let id = context.session.id;
            context.core().hub.subscribe(kind, name.clone(), id, sender.clone());
        }
        replies.push(confirmation(message, Reply::bulk(&name), context.session.subscriptions()));
    }
    mark_subscribed(context);
    Ok(Reply::Several(replies))
}

fn unsubscribe(context: &mut CommandContext<'_>, args: Args<'_>, kind: SubscriptionKind) -> CommandResult {
    let message = if kind == SubscriptionKind::Channel { "unsubscribe" } else { "punsubscribe" };
    let names: Vec<Bytes> = match &args[1..] {
        [] => context.session.names_of(kind).iter().cloned().collect(),
        names => names.iter().map(|name| Bytes::copy_from_slice(name)).collect(),
    };
    let mut replies = Vec::new();
    for name in &names {
        if context.session.names_of(kind).remove(name) {
            let id = context.session.id;
            context.core().hub.unsubscribe(kind, name, id);
        }
        replies.push(confirmation(message, Reply::bulk(name), context.session.subscriptions()));
    }
    if names.is_empty() {
        replies.push(confirmation(message, Reply::Null, context.session.subscriptions()));
    }
    mark_subscribed(context);
    Ok(Reply::Several(replies))
}

fn mark_subscribed(context: &mut CommandContext<'_>) {
    let (channels, patterns) = (context.session.channels.len(), context.session.patterns.len());
    context.update_client(|client| (client.channels, client.patterns) = (channels, patterns));
}

fn confirmation(message: &str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(message), name, Reply::len(count)])
}

fn channels(core: &mut Core, args: Args<'_>) -> CommandResult {
    if args.len() > 3 {
        return Err(Failure::new(
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
        ));
    }
    let wanted = |channel: &&Bytes| args.get(2).is_none_or(|pattern| glob::matches(pattern, channel));
    Ok(Reply::bulks(core.hub.channels().filter(wanted)))
}

fn numsub(core: &mut Core, args: Args<'_>) -> CommandResult {
    let counts = args[2..]
        .iter()
        .flat_map(|channel| [Reply::bulk(channel), Reply::len(core.hub.subscribers(channel))]);
    Ok(Reply::Array(counts.collect()))
}
