//! Demo data: bots that chat in two conversations.

use std::time::Duration;

use hob_service::Task;

use crate::keys::{ConversationId, SocketId, UserId};
use crate::{Chat, Error, NewConversation, NewMessage, ReceiptKind, TypingState};

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

/// Starts the bots. The user `you` is a member of both conversations.
pub(crate) fn start(chat: &Chat) {
    for script in &CONVERSATIONS {
        let bots = chat.clone();
        chat.inner.tasks.spawn(format!("chat demo {}", script.id), move |task| {
            let chat = bots.clone();
            async move {
                if let Err(error) = play(&chat, script, &task).await {
                    tracing::debug!(%error, "demo bots of the chat failed, restarting them");
                }
            }
        });
    }
}

async fn play(chat: &Chat, script: &Script, task: &Task) -> Result<(), Error> {
    let id = ConversationId::new(script.id).map_err(|error| Error::Config(error.to_string()))?;
    let bots: Vec<UserId> = script.bots.iter().filter_map(|bot| UserId::new(bot).ok()).collect();
    let you = UserId::new("you").map_err(|error| Error::Config(error.to_string()))?;
    let members = bots.iter().skip(1).cloned().chain([you]).collect();
    let new = NewConversation {
        id: id.clone(),
        title: script.title.to_owned(),
        created_by: bots[0].clone(),
        members,
    };
    // Another node may have opened it already.
    let _ = chat.open_conversation(&new).await?;
    for bot in &bots {
        if let Ok(socket) = SocketId::new(format!("demo-{}-{bot}", chat.node_name())) {
            chat.add_user_socket(bot, &socket).await?;
        }
    }
    for (turn, line) in script.lines.iter().cycle().enumerate() {
        let bot = &bots[turn % bots.len()];
        if !task.pause(Duration::from_millis(rand::random_range(PAUSE_MS))).await {
            break;
        }
        let _ = chat.typing(&id, bot, TypingState::Typing).await?;
        if !task.pause(Duration::from_millis(800)).await {
            break;
        }
        let content = (*line).to_owned();
        let new = NewMessage { conversation: id.clone(), sender: bot.clone(), content, client_id: None };
        if let Ok(message) = chat.send(&new).await? {
            for reader in &bots {
                let _ = chat.record_receipt(&id, reader, message.sequence, ReceiptKind::Read).await?;
            }
        }
        task.heartbeat();
    }
    Ok(())
}
