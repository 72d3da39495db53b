//! Demo data: two conversations with messages of the last days, and bots that continue them.

use std::time::Duration;

use hob_database::{Isolation, Transaction};
use hob_service::{Task, noise};

use crate::conversation::event::{Event, EventPayload, NextSequence, Timestamp};
use crate::conversation::message::Message;
use crate::database::{conversations, events, members, messages};
use crate::error::Rollback;
use crate::keys::{ConversationId, SocketId, UserId};
use crate::{Chat, Error, NewConversation, NewMessage, ReactionAction, ReceiptKind, TypingState};

/// A conversation and what the bots say in it.
struct Script {
    id: &'static str,
    title: &'static str,
    bots: &'static [&'static str],
    lines: &'static [&'static str],
}

const CONVERSATIONS: [Script; 2] = [
    Script {
        id: "kitchen",
        title: "Kitchen",
        bots: &["anna", "bert", "carl"],
        lines: &[
            "The soup is on the hob.",
            "Who has seen the big ladle?",
            "Second drawer, under the whisk.",
            "Ten minutes, then we eat.",
            "It needs salt. It always needs salt.",
            "The kettle is free again.",
            "The last of the bread is gone again.",
            "That was me. There is more in the oven.",
        ],
    },
    Script {
        id: "garden",
        title: "Garden",
        bots: &["dora", "emil"],
        lines: &[
            "The tomatoes want water.",
            "It will rain at four.",
            "It said that yesterday.",
            "Then both of us will look at the sky.",
            "A robin sits on the spade.",
            "Leave it there, I do not need it today.",
        ],
    },
];

/// The pause between two messages, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 2_000..7_000;

/// Messages per second before the demo started: as many as the bots send.
const PAST_RATE: f64 = 0.37;

/// Messages of each conversation before the demo started, the average time between two, and how many of them `you` have not
/// read.
const PAST_MESSAGES: u64 = 60;
const PAST_INTERVAL: Duration = Duration::from_secs(47 * 60);
const PAST_UNREAD: u64 = 7;

/// Starts the bots. The user `you` is a member of both conversations.
pub(crate) fn start(chat: &Chat) {
    chat.inner.hub.node.history.lock().fill(|step| PAST_RATE * (0.7 + 0.6 * noise(step)));
    for script in &CONVERSATIONS {
        let bots = chat.clone();
        chat.inner.tasks.spawn_demo(format!("chat demo {}", script.id), move |task| {
            let chat = bots.clone();
            async move {
                if let Err(error) = play(&chat, script, &task).await {
                    tracing::debug!(%error, "demo bots of the chat failed, restarting them");
                }
            }
        });
    }
}

/// Writes the messages of the last days, which the bots have read and `you` have not read to the end.
async fn write_past(
    chat: &Chat,
    script: &Script,
    id: &ConversationId,
    bots: &[UserId],
    you: &UserId,
) -> Result<(), Error> {
    let work = |tx: Transaction| async move {
        let advanced = conversations::advance(&tx, id, PAST_MESSAGES, PAST_MESSAGES).await?;
        let Some((last_sequence, last_number)) = advanced else { return Ok(()) };
        let mut sent: Vec<(Message, Event)> = Vec::new();
        for turn in 0..PAST_MESSAGES {
            let before = PAST_MESSAGES - 1 - turn;
            let line = turn as usize % script.lines.len();
            let sender = bots[turn as usize % bots.len()].clone();
            let new = NewMessage::text(id.clone(), sender, script.lines[line]);
            let next = NextSequence { sequence: last_sequence - before, newest: last_number - before };
            let ago = PAST_INTERVAL.mul_f64(before as f64 + 0.2 + 0.6 * noise(turn));
            let message =
                Message { timestamp: Timestamp(tx.now().minus(ago)), ..Message::new(&tx, &new, next, None) };
            let payload = EventPayload::Message { message: message.clone() }.to_json()?;
            let event = Event { sequence: message.sequence, actor: message.sender_id.clone(), payload };
            sent.push((message, event));
        }
        let all: Vec<&Message> = sent.iter().map(|(message, _)| message).collect();
        messages::insert_all(&tx, &all).await?;
        events::insert_messages(&tx, sent.iter()).await?;
        for bot in bots {
            members::advance(&tx, id, bot, last_sequence, ReceiptKind::Read).await?;
        }
        members::advance(&tx, id, you, last_sequence - PAST_UNREAD, ReceiptKind::Read).await?;
        Ok::<_, Rollback>(())
    };
    match chat.inner.database.write_with(Isolation::ReadCommitted, work).await {
        Ok(()) | Err(Rollback::Refused(_)) => {}
        Err(Rollback::Failed(error)) => return Err(error),
    }
    chat.recount_member(id, you).await
}

async fn play(chat: &Chat, script: &Script, task: &Task) -> Result<(), Error> {
    let id = ConversationId::new(script.id).map_err(|error| Error::Config(error.to_string()))?;
    let bots: Vec<UserId> = script.bots.iter().filter_map(|bot| UserId::new(bot).ok()).collect();
    let you = UserId::new("you").map_err(|error| Error::Config(error.to_string()))?;
    let members = bots.iter().skip(1).cloned().chain([you.clone()]).collect();
    let new = NewConversation {
        id: id.clone(),
        title: script.title.to_owned(),
        created_by: bots[0].clone(),
        members,
    };
    // Another node may have opened it already.
    let opened = chat.open_conversation(&new).await?.is_ok();
    if opened {
        write_past(chat, script, &id, &bots, &you).await?;
    }
    for bot in &bots {
        if let Ok(socket) = SocketId::new(format!("demo-{}-{bot}", chat.node_name())) {
            chat.add_user_socket(bot, &socket).await?;
        }
    }
    let mut last = None;
    for (turn, line) in script.lines.iter().cycle().enumerate() {
        let bot = &bots[turn % bots.len()];
        if !task.pause(Duration::from_millis(rand::random_range(PAUSE_MS))).await {
            break;
        }
        let _ = chat.typing(&id, bot, TypingState::Typing).await?;
        if !task.pause(Duration::from_millis(800)).await {
            break;
        }
        let mut new = NewMessage::text(id.clone(), bot.clone(), *line);
        // Every other line answers the one before.
        new.reply_to = last.take().filter(|_| turn % 2 == 1);
        if let Ok(message) = chat.send(&new).await? {
            if turn % 4 == 1 {
                let other = &bots[(turn + 1) % bots.len()];
                let _ = chat.react(&id, &message.id, other, "👍", ReactionAction::Add).await?;
            }
            last = Some(message.id.clone());
            for reader in &bots {
                let _ = chat.record_receipt(&id, reader, message.sequence, ReceiptKind::Read).await?;
            }
        }
        task.heartbeat();
    }
    Ok(())
}
