//! The chat's pages in the console.

mod message;

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Redirect};
use hob_database::{PageRequest, outbox};
use hob_web::components::RelativeTime;
use hob_web::{Access, AuditDetail, Audited, Console, Credential, Form, Page, Problem, Query, Routes, Scope};
use serde::Deserialize;

use crate::database::members;
use crate::hub::node::{NodeInfo, NodeLoad};
use crate::keys::UserId;
use crate::routes::{conversation_id, ok_or_problem, sequence_number, user_id};
use crate::{
    Chat, Conversation, Error, MessageRange, NewConversation, NewMessage, ReactionAction, ReceiptKind,
};
use message::{MessageRow, Quote};

/// How long the token of a page is valid. A page that stays open longer must be reloaded.
const TOKEN_TTL: Duration = Duration::from_secs(12 * 3600);
const MAX_MESSAGES: u16 = 100;
/// The most members shown beside a conversation.
const MAX_PEOPLE: u16 = 50;
const MAX_USERS: u16 = 30;

pub(crate) fn routes() -> Routes<Chat> {
    Routes::new()
        .page(Access::read("chat"), "/chat", chat)
        .page(Access::read("chat"), "/chat/operator", operator)
        .action(Access::write("chat"), Audited::No, "/chat/say", say)
        .action(Access::write("chat"), Audited::No, "/chat/react", react)
        .action(Access::write("chat"), Audited::No, "/chat/read", mark_read)
        .action(Access::write("chat"), Audited::As("chat.conversation.open"), "/chat/open", open)
        .page(Access::Public, "/chat/assets/chat.js", async || {
            asset("text/javascript", include_str!("../assets/chat.js"))
        })
        .page(Access::Public, "/chat/assets/chat.css", async || {
            asset("text/css", include_str!("../assets/chat.css"))
        })
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse + use<> {
    let headers: [(HeaderName, HeaderValue); 2] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, text)
}

#[derive(Deserialize)]
struct ChatQuery {
    #[serde(rename = "as")]
    user: Option<String>,
    conversation: Option<String>,
    /// The id of a message to reply to.
    reply: Option<String>,
}

#[derive(Template)]
#[template(path = "choose_user.html")]
struct ChooseUserPage {
    users: Vec<UserLink>,
}

struct UserLink {
    id: String,
    href: String,
}

#[derive(Template)]
#[template(path = "chat.html")]
struct ChatPage {
    me: String,
    token: Option<String>,
    conversations: Vec<ConversationLink>,
    /// Empty if no conversation is selected.
    current: String,
    title: String,
    offset: u64,
    /// The event up to which the page counts reactions.
    counted: u64,
    /// The message that the form replies to.
    reply: Option<Quote>,
    /// The address of the conversation.
    here: String,
    /// Unread messages of the conversation.
    unread: u64,
    may_write: bool,
    people: Vec<Person>,
    messages: Vec<MessageRow>,
}

struct ConversationLink {
    id: String,
    title: String,
    href: String,
    unread: u64,
    mentions: u64,
}

struct Person {
    id: String,
    online: bool,
}

async fn chat(
    State(chat): State<Chat>,
    console: Console,
    credential: Credential,
    Query(query): Query<ChatQuery>,
) -> Result<Page, Problem> {
    let Some(user) = query.user.filter(|user| !user.is_empty()) else {
        return console.page("Chat", &ChooseUserPage { users: users_to_choose(&chat).await? });
    };
    let me = user_id("as", &user)?;
    let may_write = console.may(&Scope::write("chat"));
    // A read-only operator does not get a token, because a token can act as the user.
    let token = may_write.then(|| chat.issue_token_with(&credential, &me, None, TOKEN_TTL)).flatten();
    let conversations = conversations(&chat, &me).await?;
    let mut page = ChatPage {
        me: me.to_string(),
        token,
        conversations,
        current: String::new(),
        title: String::new(),
        offset: 0,
        counted: 0,
        reply: None,
        here: String::new(),
        unread: 0,
        may_write,
        people: Vec::new(),
        messages: Vec::new(),
    };
    if let Some(id) = query.conversation.filter(|id| !id.is_empty()) {
        show(&chat, &me, &id, query.reply.as_deref(), &mut page).await?;
    }
    console.page("Chat", &page)
}

/// Adds a conversation to the page. The sequence is read first: later events are recovered over the WebSocket.
///
/// Loading the page does not mark messages as read, because a page of another site can make the browser load this page.
/// The script of the page marks them, or the user with a button.
async fn show(
    chat: &Chat,
    me: &UserId,
    id: &str,
    reply: Option<&str>,
    page: &mut ChatPage,
) -> Result<(), Problem> {
    let id = conversation_id(id)?;
    let conversation = chat.conversation(&id).await?.ok_or_else(|| Problem::not_found("conversation"))?;
    let newest = chat.list_messages(&id, Some(me), MessageRange::Newest, MAX_MESSAGES).await;
    let newest = ok_or_problem(newest)?;
    page.counted = newest.offset;
    page.here = href(me.as_str(), id.as_str());
    page.messages = message::rows(me, &page.here, newest.messages);
    page.reply = page.messages.iter().find(|row| Some(row.id.as_str()) == reply).map(MessageRow::quote);
    let members: Vec<UserId> =
        chat.members(&id, "", MAX_PEOPLE).await?.into_iter().map(|member| member.user_id).collect();
    let presences = chat.presence(&members).await?;
    page.people = presences
        .into_iter()
        .map(|presence| Person { id: presence.user_id.to_string(), online: presence.online })
        .collect();
    page.unread = page.conversations.iter().find(|link| link.id == id.as_str()).map_or(0, |link| link.unread);
    page.current = id.to_string();
    page.title = conversation.title;
    page.offset = conversation.sequence;
    Ok(())
}

async fn conversations(chat: &Chat, me: &UserId) -> Result<Vec<ConversationLink>, Error> {
    let (unread, _) = chat.unread(me).await?;
    let listed = chat.conversations_of(me, &PageRequest::first(100)).await?;
    let link = |row: crate::ConversationSummary| ConversationLink {
        unread: unread.iter().find(|count| count.conversation_id == row.id).map_or(0, |count| count.unread),
        mentions: unread
            .iter()
            .find(|count| count.conversation_id == row.id)
            .map_or(0, |count| count.mentions),
        href: href(me.as_str(), row.id.as_str()),
        id: row.id.to_string(),
        title: row.title,
    };
    Ok(listed.rows.into_iter().map(link).collect())
}

async fn users_to_choose(chat: &Chat) -> Result<Vec<UserLink>, Error> {
    let users = members::some_users(&chat.inner.database, MAX_USERS).await?;
    Ok(users
        .into_iter()
        .map(|user| UserLink { href: href(user.as_str(), ""), id: user.to_string() })
        .collect())
}

/// The page of a conversation, as one of its members sees it.
pub(crate) fn href(user: &str, conversation: &str) -> String {
    let encode = |text: &str| {
        text.bytes().fold(String::new(), |mut encoded, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                encoded.push(char::from(byte));
            } else {
                encoded.push_str(&format!("%{byte:02X}"));
            }
            encoded
        })
    };
    format!("/chat?as={}&conversation={}", encode(user), encode(conversation))
}

#[derive(Deserialize)]
struct SayForm {
    user: String,
    conversation: String,
    content: String,
    /// The id of a message, or empty.
    #[serde(default)]
    reply_to: String,
}

/// Sends a message from a page without JavaScript.
async fn say(State(chat): State<Chat>, Form(form): Form<SayForm>) -> Result<Redirect, Problem> {
    let (conversation, sender) = (conversation_id(&form.conversation)?, user_id("user", &form.user)?);
    let mut new = NewMessage::text(conversation, sender, form.content);
    new.reply_to = Some(form.reply_to).filter(|id| !id.is_empty());
    ok_or_problem(chat.send(&new).await)?;
    Ok(Redirect::to(&href(&form.user, &form.conversation)))
}

#[derive(Deserialize)]
struct ReactForm {
    user: String,
    conversation: String,
    message: String,
    /// The reaction to add, or empty.
    #[serde(default)]
    add: String,
    /// The reaction to remove, or empty.
    #[serde(default)]
    remove: String,
}

/// Adds or removes a reaction from a page without JavaScript.
async fn react(State(chat): State<Chat>, Form(form): Form<ReactForm>) -> Result<Redirect, Problem> {
    let (id, user) = (conversation_id(&form.conversation)?, user_id("user", &form.user)?);
    let (emoji, action) = match form.remove.as_str() {
        "" => (&form.add, ReactionAction::Add),
        _ => (&form.remove, ReactionAction::Remove),
    };
    ok_or_problem(chat.react(&id, &form.message, &user, emoji, action).await)?;
    Ok(Redirect::to(&href(&form.user, &form.conversation)))
}

#[derive(Deserialize)]
struct ReadForm {
    user: String,
    conversation: String,
    /// The last event that the page shows. Later messages stay unread.
    sequence: u64,
}

/// Marks messages as read from a page without JavaScript.
async fn mark_read(State(chat): State<Chat>, Form(form): Form<ReadForm>) -> Result<Redirect, Problem> {
    let (id, user) = (conversation_id(&form.conversation)?, user_id("user", &form.user)?);
    let up_to = sequence_number("sequence", form.sequence)?;
    ok_or_problem(chat.record_receipt(&id, &user, up_to, ReceiptKind::Read).await)?;
    Ok(Redirect::to(&href(&form.user, &form.conversation)))
}

#[derive(Deserialize)]
struct OpenForm {
    user: String,
    title: String,
    #[serde(default)]
    members: String,
}

async fn open(
    State(chat): State<Chat>,
    Form(form): Form<OpenForm>,
) -> Result<(AuditDetail, Redirect), Problem> {
    let names = form.members.split(',').map(str::trim).filter(|name| !name.is_empty());
    let members: Result<Vec<_>, _> = names.map(|name| user_id("members", name)).collect();
    let new = NewConversation {
        id: conversation_id(&format!("{:032x}", rand::random::<u128>()))?,
        title: form.title,
        created_by: user_id("user", &form.user)?,
        members: members?,
    };
    let opened = ok_or_problem(chat.open_conversation(&new).await)?;
    let page = Redirect::to(&href(&form.user, opened.id.as_str()));
    Ok((AuditDetail::Of(opened.id.to_string()), page))
}

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    total: NodeLoad,
    nodes: Vec<NodeInfo>,
    backlog: u64,
    conversations: Vec<Conversation>,
}

async fn operator(State(chat): State<Chat>, console: Console) -> Result<Page, Problem> {
    let nodes = chat.nodes().await?;
    let backlog = outbox::backlog(&chat.inner.database).await?;
    let page = NodesPage {
        total: total(&nodes),
        nodes,
        backlog: backlog.unnumbered + backlog.unpublished,
        conversations: chat.conversations(&PageRequest::first(20)).await?.rows,
    };
    console.page("Chat nodes", &page)
}

pub(crate) fn total(nodes: &[NodeInfo]) -> NodeLoad {
    nodes.iter().fold(NodeLoad::default(), |total, node| total.plus(node.load))
}
