//! What clients do by calling: send, edit, delete, read, delivered, typing, block, unblock.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chat::conversations::Typist;
use crate::conversation::block::Wish;
use crate::conversation::member::Progress;
use crate::conversation::message::NewMessage;
use crate::keys::{ConversationId, UserId};
use crate::session::internal;
use crate::session::protocol::Code;
use crate::{Answer, Chat, Refusal};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Send {
    conversation_id: ConversationId,
    content: String,
    #[serde(default)]
    client_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edit {
    conversation_id: ConversationId,
    message_id: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delete {
    conversation_id: ConversationId,
    message_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpTo {
    conversation_id: ConversationId,
    sequence: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Typing {
    conversation_id: ConversationId,
    typing: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whom {
    user_id: UserId,
}

/// A publication of a client: a message in plain words, or with an id of the client's own.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Words(String),
    #[serde(rename_all = "camelCase")]
    Message {
        content: String,
        #[serde(default)]
        client_id: Option<String>,
    },
}

#[derive(Serialize)]
struct Done {}

/// Carries out a call of a user.
pub(crate) async fn call(
    chat: &Chat,
    user: &UserId,
    method: &str,
    data: Option<&RawValue>,
) -> Result<Box<RawValue>, Code> {
    match method {
        "send" => {
            let Send { conversation_id: conversation, content, client_id } = read(data)?;
            let new = NewMessage { conversation, sender: user.clone(), content, client_id };
            write(chat.send(&new).await)
        }
        "edit" => {
            let Edit { conversation_id, message_id, content } = read(data)?;
            write(chat.edit(&conversation_id, &message_id, user, &content).await)
        }
        "delete" => {
            let Delete { conversation_id, message_id } = read(data)?;
            write(chat.delete(&conversation_id, &message_id, user).await)
        }
        "read" | "delivered" => {
            let UpTo { conversation_id, sequence } = read(data)?;
            let progress = if method == "read" { Progress::Read } else { Progress::Delivered };
            write(chat.progress(&conversation_id, user, sequence, progress).await)
        }
        "typing" => {
            let Typing { conversation_id, typing } = read(data)?;
            let typist = if typing { Typist::Typing } else { Typist::Stopped };
            write(chat.typing(&conversation_id, user, typist).await.map(|done| done.map(|()| Done {})))
        }
        "block" | "unblock" => {
            let Whom { user_id } = read(data)?;
            let wish = if method == "block" { Wish::Block } else { Wish::Unblock };
            write(chat.block(user, &user_id, wish).await.map(|done| done.map(|_| Done {})))
        }
        _ => Err(Code::METHOD_NOT_FOUND),
    }
}

/// Sends what a client has published to a conversation.
pub(crate) async fn publish(
    chat: &Chat,
    user: &UserId,
    conversation: ConversationId,
    data: &RawValue,
) -> Result<(), Code> {
    let (content, client_id) = match read(Some(data))? {
        Said::Words(content) => (content, None),
        Said::Message { content, client_id } => (content, client_id),
    };
    let new = NewMessage { conversation, sender: user.clone(), content, client_id };
    write(chat.send(&new).await).map(drop)
}

/// How a refusal is told to a client. Whether a conversation exists is nobody's business but its members'.
pub(crate) fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::NoConversation | Refusal::NotMember | Refusal::NotYours | Refusal::Blocked => {
            Code::PERMISSION_DENIED
        }
        Refusal::NoMessage => Code::NOT_FOUND,
        Refusal::Taken => Code::CONFLICT,
        Refusal::TooOften { .. } => Code::TOO_MANY_REQUESTS,
        Refusal::TooMany { .. } => Code::LIMIT_EXCEEDED,
        Refusal::Bad { .. } => Code::BAD_REQUEST,
    }
}

fn read<T: for<'de> Deserialize<'de>>(data: Option<&RawValue>) -> Result<T, Code> {
    serde_json::from_str(data.ok_or(Code::BAD_REQUEST)?.get()).map_err(|_| Code::BAD_REQUEST)
}

fn write<T: Serialize>(answer: Answer<T>) -> Result<Box<RawValue>, Code> {
    let done = answer.map_err(internal)?.map_err(|refusal| code(&refusal))?;
    serde_json::value::to_raw_value(&done).map_err(|error| internal(error.into()))
}
