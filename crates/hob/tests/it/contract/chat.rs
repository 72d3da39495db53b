//! C1–C13, C16, C20: the keys and channels of the chat, as another service reads them. C14, C15 and C17 to C19 are in
//! `crate::chat`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use futures_util::{SinkExt as _, StreamExt as _};
use hob_testkit::{LIMIT, Postgres, wait_until};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::Message;

use super::{Deployment, Settings, Store, Ttl, digits, matches_form, on_every_store};
use crate::program::Server;

const USER: &str = "507f1f77bcf86cd799439011";
const ONLINE: &str = "user:507f1f77bcf86cd799439011:online";
const SOCKETS: &str = "user:507f1f77bcf86cd799439011:sockets";
const RECENT: &str = "messages:conv123:recent";
const PARTICIPANTS: &str = "conversation:conv123:participants";

/// A chat whose users may send as much as the tests need.
fn patient(store: Store) -> Deployment {
    Deployment::start_with(store, Settings::new("chat").variable("MESSAGE_RATE_LIMIT", "100000"))
}

/// The operations of the chat, through the API.
trait Chat {
    fn add_socket(&self, user: &str, socket: &str);
    fn remove_socket(&self, user: &str, socket: &str);
    /// Opens a conversation.
    fn open(&self, id: &str, members: &[&str]);
    /// Sends a message, and returns it.
    fn send(&self, conversation: &str, sender: &str, content: &str) -> Value;
    fn type_in(&self, conversation: &str, user: &str);
    fn read(&self, conversation: &str, user: &str, sequence: &Value);
}

impl Chat for Server {
    #[track_caller]
    fn add_socket(&self, user: &str, socket: &str) {
        let body = json!({ "socket_id": socket }).to_string();
        let added = self.post(&format!("/api/v1/chat/users/{user}/sockets"), &body);
        assert_eq!(added.status, 200, "{}", added.body);
        assert!(added.body.contains("\"online\":true"), "{}", added.body);
    }

    #[track_caller]
    fn remove_socket(&self, user: &str, socket: &str) {
        let removed = self.delete(&format!("/api/v1/chat/users/{user}/sockets?socket_id={socket}"));
        assert_eq!(removed.status, 200, "{}", removed.body);
    }

    #[track_caller]
    fn open(&self, id: &str, members: &[&str]) {
        let body =
            json!({ "id": id, "title": id, "created_by": members[0], "members": members[1..] }).to_string();
        let opened = self.post("/api/v1/chat/conversations", &body);
        assert_eq!(opened.status, 201, "{}", opened.body);
    }

    #[track_caller]
    fn send(&self, conversation: &str, sender: &str, content: &str) -> Value {
        let body = json!({ "sender_id": sender, "content": content }).to_string();
        let sent = self.post(&format!("/api/v1/chat/conversations/{conversation}/messages"), &body);
        assert_eq!(sent.status, 201, "{}", sent.body);
        serde_json::from_str(&sent.body).unwrap()
    }

    #[track_caller]
    fn type_in(&self, conversation: &str, user: &str) {
        let body = json!({ "user_id": user, "typing": true }).to_string();
        let typing = self.post(&format!("/api/v1/chat/conversations/{conversation}/typing"), &body);
        assert_eq!(typing.status, 204, "{}", typing.body);
    }

    #[track_caller]
    fn read(&self, conversation: &str, user: &str, sequence: &Value) {
        let body = json!({ "user_id": user, "sequence": sequence }).to_string();
        let read = self.post(&format!("/api/v1/chat/conversations/{conversation}/read"), &body);
        assert_eq!(read.status, 200, "{}", read.body);
    }
}

impl Deployment {
    /// The value of a string without a TTL.
    #[track_caller]
    fn text(&self, key: &str) -> String {
        self.assert_type(key, "string");
        assert_eq!(self.ttl(key), Ttl::None, "{key}");
        self.run(&["GET", key])
    }

    fn members(&self, key: &str) -> BTreeSet<String> {
        self.run(&["SMEMBERS", key])
    }

    /// Waits until a string has this value; `None` if there is none.
    #[track_caller]
    fn wait_for_text(&self, key: &str, value: Option<&str>) {
        wait_until(format!("{key} to be {value:?}"), || {
            let found: Option<String> = self.run(&["GET", key]);
            if found.as_deref() == value { Ok(()) } else { Err(found) }
        });
    }

    fn recent(&self) -> Vec<String> {
        self.run(&["LRANGE", RECENT, "0", "-1"])
    }

    /// The contents of a page of messages from the API, oldest first.
    fn contents(&self, limit: usize) -> Vec<String> {
        let page =
            self.server.get(&format!("/api/v1/chat/conversations/conv123/messages?limit={limit}")).body;
        let page: Value = serde_json::from_str(&page).unwrap();
        let content = |message: &Value| message["content"].as_str().unwrap().to_owned();
        page["messages"].as_array().unwrap().iter().map(content).collect()
    }
}

/// A client with a WebSocket, as a browser has one.
struct Client {
    runtime: Runtime,
    socket: tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>,
}

impl Client {
    /// Connects a user, and subscribes to a conversation.
    fn connect(server: &Server, user: &str, conversation: &str) -> Self {
        let token = server.post(&format!("/api/v1/chat/users/{user}/token"), "{}").body;
        let token: Value = serde_json::from_str(&token).unwrap();
        let runtime = Runtime::new().expect("cannot start a runtime");
        let url = format!("ws://{}/connection/websocket", server.listen);
        let (socket, _) = runtime.block_on(tokio_tungstenite::connect_async(url)).expect("cannot connect");
        let mut client = Self { runtime, socket };
        let connect = json!({ "id": 1, "connect": { "token": token["token"] } });
        let subscribe = json!({ "id": 2, "subscribe": { "channel": format!("conv:{conversation}") } });
        client.send(&format!("{connect}\n{subscribe}"));
        client.wait_for("the subscription", |frame| frame["id"] == 2 && frame["subscribe"].is_object());
        client
    }

    fn send(&mut self, text: &str) {
        self.runtime.block_on(self.socket.send(Message::text(text))).expect("the connection is closed");
    }

    /// Waits for a frame.
    fn wait_for(&mut self, what: &str, is_expected: impl Fn(&Value) -> bool) {
        loop {
            let next = self.socket.next();
            let next = self.runtime.block_on(async { tokio::time::timeout(LIMIT, next).await });
            let Ok(Some(Ok(Message::Text(text)))) = next else { panic!("waiting for {what}: {next:?}") };
            for line in text.split('\n') {
                if line == "{}" {
                    self.send("{}");
                } else if is_expected(&serde_json::from_str(line).expect("JSON")) {
                    return;
                }
            }
        }
    }

    /// Waits until a user starts or stops typing.
    fn wait_for_typing(&mut self, user: &str, typing: bool) {
        self.wait_for("a typing event", |frame| {
            let data = &frame["push"]["pub"]["data"];
            data["type"] == "typing" && data["userId"] == user && data["typing"] == typing
        });
    }
}

/// An ISO 8601 time, such as those of `Date.toISOString()`.
fn is_time(text: &str) -> bool {
    matches_form(text, "0000-00-00T00:00:00.000Z")
}

/// The time and the version of a presence event of a user.
#[track_caller]
fn presence_event(payload: &str, user: &str) -> (String, u64) {
    let rest = payload.strip_prefix(&format!("{{\"userId\":\"{user}\",\"timestamp\":\""));
    let (time, rest) = rest.and_then(|rest| rest.split_once('"')).unwrap_or_else(|| panic!("{payload}"));
    assert!(is_time(time), "{payload}");
    let version = rest.strip_prefix(",\"version\":").and_then(|rest| rest.strip_suffix('}'));
    (time.to_owned(), digits(version.unwrap_or_else(|| panic!("{payload}"))))
}

on_every_store! {
    /// C1 C2 C3 C11 C12 C16: the sockets of a user on two devices. One event when the first opens, one when the last closes.
    fn presence_is_in_the_documented_keys(store: Store) {
        let deployment = Deployment::start(store, "chat");
        let events = deployment.subscribe(&["events:user.online", "events:user.offline"]);
        let server = &deployment.server;
        server.add_socket(USER, "abc123socketId");
        assert_eq!(deployment.text(ONLINE), "true");
        server.add_socket(USER, "def456socketId");
        deployment.assert_type(SOCKETS, "set");
        assert_eq!(deployment.ttl(SOCKETS), Ttl::None);
        assert_eq!(deployment.members(SOCKETS), ["abc123socketId", "def456socketId"].map(str::to_owned).into());
        assert_eq!(deployment.text("socket:abc123socketId:user"), USER);
        assert_eq!(deployment.text("socket:def456socketId:user"), USER);

        server.remove_socket(USER, "abc123socketId");
        assert_eq!(deployment.text(ONLINE), "true");
        assert_eq!(deployment.members(SOCKETS), ["def456socketId".to_owned()].into());
        assert!(!deployment.exists("socket:abc123socketId:user"));
        server.remove_socket(USER, "def456socketId");
        assert_eq!(deployment.text(ONLINE), "false");
        assert!(!deployment.exists(SOCKETS) && !deployment.exists("socket:def456socketId:user"));
        let last_seen = deployment.text(&format!("lastseen:{USER}"));
        assert!(is_time(&last_seen), "{last_seen}");

        server.add_socket("user123", "s1");
        let (channel, payload) = events.next();
        assert_eq!(channel, "events:user.online");
        let (came, first) = presence_event(&payload, USER);
        let (channel, payload) = events.next();
        assert_eq!(channel, "events:user.offline");
        let (left, second) = presence_event(&payload, USER);
        assert!(first < second && came <= left && left <= last_seen, "{came} {left} {last_seen}");
        // Nothing else was published about the first user.
        let (channel, payload) = events.next();
        assert_eq!(channel, "events:user.online");
        presence_event(&payload, "user123");
        deployment.assert_audit_is_clean();
    }

    /// C12: the time when a user was last seen does not go back, and comes back from the database.
    fn last_seen_never_moves_backwards(store: Store) {
        let deployment = Deployment::start(store, "chat");
        let (server, key) = (&deployment.server, format!("lastseen:{USER}"));
        let visit = || {
            server.add_socket(USER, "s1");
            server.remove_socket(USER, "s1");
            deployment.text(&key)
        };
        let (first, second) = (visit(), visit());
        assert!(first <= second, "{first} {second}");
        deployment.run::<()>(&["SET", &key, "2999-01-01T00:00:00.000Z"]);
        assert_eq!(visit(), "2999-01-01T00:00:00.000Z");
        deployment.run::<()>(&["FLUSHALL"]);
        let presence: Value =
            serde_json::from_str(&server.get(&format!("/api/v1/chat/users/{USER}/presence")).body).unwrap();
        assert_eq!(presence["online"], false);
        let restored = deployment.text(&key);
        assert!(is_time(&restored) && second <= restored && *restored < *"2999", "{restored}");
    }

    /// C1 C2 C3: a client over WebSocket is online while it is connected.
    fn connected_client_is_online(store: Store) {
        let deployment = Deployment::start(store, "chat");
        deployment.server.open("conv123", &[USER]);
        let client = Client::connect(&deployment.server, USER, "conv123");
        deployment.wait_for_text(ONLINE, Some("true"));
        let sockets = deployment.members(SOCKETS);
        let [socket] = &sockets.iter().collect::<Vec<_>>()[..] else { panic!("{sockets:?}") };
        deployment.wait_for_text(&format!("socket:{socket}:user"), Some(USER));
        drop(client);
        deployment.wait_for_text(ONLINE, Some("false"));
        assert!(!deployment.exists(SOCKETS));
        deployment.wait_for_text(&format!("socket:{socket}:user"), None);
    }

    /// C1 C2 C3 C11: the users of a killed node go offline, except those who are also connected to another one.
    fn users_of_a_killed_node_go_offline(store: Store) {
        let postgres = Postgres::start();
        let settings = || Settings::new("chat").variable("DATABASE_URL", &postgres.url());
        let deployment = Deployment::start_with(store, settings());
        let mut second = deployment.another_node(&settings());
        second.add_socket(USER, "s1");
        second.add_socket("both", "s2");
        deployment.server.add_socket("both", "s3");
        let events = deployment.subscribe(&["events:user.offline"]);
        second.kill();
        deployment.wait_for_text(ONLINE, Some("false"));
        presence_event(&events.next().1, USER);
        assert!(!deployment.exists(SOCKETS));
        deployment.wait_for_text("socket:s1:user", None);
        deployment.wait_for_text("socket:s2:user", None);
        assert_eq!(deployment.text("user:both:online"), "true");
        assert_eq!(deployment.members("user:both:sockets"), ["s3".to_owned()].into());
        deployment.assert_audit_is_clean();
    }

    /// C4 C5: a flag for five seconds. The others are notified when it is set and when it expires.
    fn typing_is_a_flag_that_expires(store: Store) {
        let deployment = Deployment::start(store, "chat");
        deployment.server.open("conv123", &["user1", "user456"]);
        let mut client = Client::connect(&deployment.server, "user1", "conv123");
        let key = "typing:conv123:user456";
        // Both in one transaction, since the flag may expire in between; again if the machine stalled for so long.
        let read = "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}";
        let left = wait_until("the typing flag", || {
            deployment.server.type_in("conv123", "user456");
            let (flag, left): (Option<String>, i64) = deployment.run(&["EVAL", read, "1", key]);
            (flag.as_deref() == Some("1")).then_some(left)
        });
        assert!((1..=5000).contains(&left), "{left}");
        client.wait_for_typing("user456", true);
        client.wait_for_typing("user456", false);
        deployment.wait_for_text(key, None);
    }

    /// C6 C16: the counter of the window, with the limit and the window of the document.
    fn messages_are_limited_per_window(store: Store) {
        let deployment = Deployment::start(store, "chat");
        deployment.server.open("conv123", &["user1", "user2"]);
        let (key, mut sent) = ("rate:message:user1", 0);
        // A store that does not answer in time allows a message, and may not have counted it.
        wait_until("a counted message", || {
            deployment.server.send("conv123", "user1", "Hello");
            sent += 1;
            deployment.exists(key)
        });
        deployment.assert_type(key, "string");
        deployment.assert_ttl(key, 60);
        assert!((1..=sent).contains(&digits(deployment.run::<Vec<u8>>(&["GET", key]))));
        let take = || {
            let taken = deployment.server.post("/api/v1/chat/users/user1/limit", "{}").body;
            serde_json::from_str::<Value>(&taken).unwrap()["allowed"].as_bool().unwrap()
        };
        assert!((0..100).any(|_| !take()), "the limit is not enforced");
        assert_eq!(deployment.run::<Vec<u8>>(&["GET", key]), b"20");
        let body = json!({ "sender_id": "user1", "content": "one too many" }).to_string();
        let refused = deployment.server.post("/api/v1/chat/conversations/conv123/messages", &body);
        assert_eq!(refused.status, 429, "{}", refused.body);
        // A refused message does not extend the window, and does not affect other users.
        deployment.assert_ttl(key, 60);
        deployment.server.send("conv123", "user2", "Hello");
        deployment.assert_audit_is_clean();
    }

    /// C7: the newest 100 messages, newest first, as the document writes them; dropped by an edit, and never served with a gap.
    fn recent_messages_are_cached(store: Store) {
        let deployment = patient(store);
        let server = &deployment.server;
        server.open("conv123", &["user1", "user2"]);
        let first = server.send("conv123", "user1", "Hello");
        assert_eq!(deployment.contents(50), ["Hello"]);
        deployment.assert_type(RECENT, "list");
        deployment.assert_ttl(RECENT, 3600);
        let id = first["id"].as_str().unwrap();
        let (start, form) = (format!("{{\"id\":\"{id}\",\"content\":\"Hello\",\"senderId\":\"user1\",\"timestamp\":\""), "0000-00-00T00:00:00.000Z");
        let [item] = &deployment.recent()[..] else { panic!("{:?}", deployment.recent()) };
        let rest = item.strip_prefix(&start).unwrap_or_else(|| panic!("{item}"));
        assert!(is_time(&rest[..form.len()]) && rest[form.len()..].starts_with("\","), "{item}");

        for number in 0..104 {
            server.send("conv123", "user2", &number.to_string());
        }
        wait_until("the newest 100", || {
            let recent = deployment.recent();
            if recent.len() == 100 && recent[0].contains("\"content\":\"103\"") { Ok(()) } else { Err(recent) }
        });
        deployment.assert_ttl(RECENT, 3600);
        let all: Vec<String> = ["Hello".to_owned()].into_iter().chain((0..104).map(|number| number.to_string())).collect();
        assert_eq!(deployment.contents(200), all);
        assert_eq!(deployment.contents(2), ["102", "103"]);
        // A list that another client has cut.
        deployment.run::<()>(&["LTRIM", RECENT, "0", "2"]);
        assert_eq!(deployment.contents(50), all[all.len() - 50..]);

        let edit = json!({ "user_id": "user1", "content": "Good morning" }).to_string();
        let path = format!("/api/v1/chat/conversations/conv123/messages/{id}");
        assert_eq!(server.patch(&path, &edit).status, 200);
        assert_eq!(deployment.contents(200)[0], "Good morning");
        wait_until("no message of before the edit", || !deployment.recent().iter().any(|item| item.contains("Hello")));
        deployment.assert_audit_is_clean();
    }

    /// C8 C9: the counters of two conversations and their sum, moved by messages, reading and deleting.
    fn unread_counters_agree_with_their_total(store: Store) {
        let deployment = patient(store);
        let server = &deployment.server;
        for conversation in ["conv123", "conv456"] {
            server.open(conversation, &["user1", "user2"]);
        }
        server.send("conv123", "user2", "one");
        let deleted = server.send("conv123", "user2", "two");
        let last = server.send("conv123", "user2", "three");
        server.send("conv456", "user2", "four");
        server.send("conv456", "user1", "mine");
        let (one, other, total) = ("unread:user1:conv123", "unread:user1:conv456", "unread:user1:total");
        deployment.wait_for_text(one, Some("3"));
        deployment.wait_for_text(other, Some("1"));
        deployment.wait_for_text(total, Some("4"));
        for key in [one, other, total] {
            digits(deployment.text(key));
        }
        let path = format!("/api/v1/chat/conversations/conv123/messages/{}", deleted["id"].as_str().unwrap());
        assert_eq!(server.delete(&format!("{path}?user_id=user2")).status, 204);
        deployment.wait_for_text(one, Some("2"));
        deployment.wait_for_text(total, Some("3"));
        server.read("conv123", "user1", &last["sequence"]);
        deployment.wait_for_text(one, None);
        deployment.wait_for_text(total, Some("1"));

        // A conversation with this id would have the key of the total.
        let body = json!({ "id": "total", "title": "Total", "created_by": "user1" }).to_string();
        assert_eq!(server.post("/api/v1/chat/conversations", &body).status, 422);
        deployment.assert_audit_is_clean();
    }

    /// C8 C9 C20: a message between two users is not counted if one has blocked the other.
    fn blocked_users_do_not_count(store: Store) {
        let deployment = patient(store);
        let server = &deployment.server;
        server.open("conv123", &["user1", "user2", "user3"]);
        let block = json!({ "user_id": "user2" }).to_string();
        assert_eq!(server.post("/api/v1/chat/users/user1/blocks", &block).status, 204);
        server.send("conv123", "user2", "not for user1");
        server.send("conv123", "user3", "for all");
        deployment.wait_for_text("unread:user1:conv123", Some("1"));
        deployment.wait_for_text("unread:user3:conv123", Some("1"));
        deployment.wait_for_text("unread:user1:total", Some("1"));
    }

    /// C10 C13: the event of a message has the documented fields in their order, and a service that was away reads the same
    /// event from the stream.
    fn new_messages_are_published(store: Store) {
        let deployment = Deployment::start(store, "chat");
        let events = deployment.subscribe(&["events:message.created"]);
        deployment.server.open("conv123", &["user1", "user2"]);
        let message = deployment.server.send("conv123", "user1", "Hello");
        let (_, payload) = events.next();
        let id = message["id"].as_str().unwrap();
        let documented = format!(
            "{{\"conversationId\":\"conv123\",\"messageId\":\"{id}\",\"senderId\":\"user1\",\"participantIds\":[\"user1\",\"user2\"],\"eventId\":\""
        );
        assert!(payload.starts_with(&documented), "{payload}");
        let event: Value = serde_json::from_str(&payload).unwrap();
        assert!(is_time(event["timestamp"].as_str().unwrap()), "{payload}");
        digits(event["eventId"].as_str().unwrap());
        assert_eq!(event.as_object().unwrap().len(), 6, "{payload}");

        let listen = deployment.server.listen;
        let mut stream = TcpStream::connect(listen).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "GET /api/v1/chat/events?after=0 HTTP/1.1\r\nHost: {listen}\r\n\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        let event = lines.find(|line| line.starts_with("event: ")).unwrap();
        assert_eq!(event, "event: message.created");
        let data = lines.find(|line| line.starts_with("data: ")).unwrap();
        assert_eq!(data["data: ".len()..], payload);
    }

    /// C13: all members or none; not what permissions are decided on.
    fn participants_are_complete(store: Store) {
        let deployment = patient(store);
        let server = &deployment.server;
        server.open("conv123", &["user1", "user2"]);
        server.send("conv123", "user1", "Hello");
        let members = |users: &[&str]| {
            let expected: BTreeSet<String> = users.iter().map(|&user| user.to_owned()).collect();
            wait_until(format!("the members {users:?}"), || {
                let found = deployment.members(PARTICIPANTS);
                if found == expected { Ok(()) } else { Err(found) }
            });
        };
        members(&["user1", "user2"]);
        deployment.assert_type(PARTICIPANTS, "set");
        deployment.assert_ttl(PARTICIPANTS, 3600);
        let add = json!({ "user_id": "user3" }).to_string();
        assert_eq!(server.post("/api/v1/chat/conversations/conv123/members", &add).status, 204);
        server.send("conv123", "user1", "Welcome");
        members(&["user1", "user2", "user3"]);
        assert_eq!(server.delete("/api/v1/chat/conversations/conv123/members?user_id=user2").status, 204);
        server.send("conv123", "user1", "Goodbye");
        members(&["user1", "user3"]);
        deployment.run::<u8>(&["SADD", PARTICIPANTS, "user2"]);
        let body = json!({ "sender_id": "user2", "content": "still here?" }).to_string();
        let refused = server.post("/api/v1/chat/conversations/conv123/messages", &body);
        assert_eq!(refused.status, 403, "{}", refused.body);
        deployment.assert_audit_is_clean();
    }

    /// C1 C2 C3 C8 C9: after the loss of all keys, presence and counters return, without events.
    fn lost_store_is_rebuilt(store: Store) {
        let deployment = Deployment::start(store, "chat");
        let server = &deployment.server;
        server.open("conv123", &["user1", "user2"]);
        server.send("conv123", "user2", "Hello");
        server.add_socket(USER, "s1");
        deployment.wait_for_text("unread:user1:total", Some("1"));
        let events = deployment.subscribe(&["events:user.online", "events:user.offline"]);
        deployment.run::<()>(&["FLUSHALL"]);
        deployment.wait_for_text(ONLINE, Some("true"));
        deployment.wait_for_text("socket:s1:user", Some(USER));
        assert_eq!(deployment.members(SOCKETS), ["s1".to_owned()].into());
        deployment.wait_for_text("unread:user1:conv123", Some("1"));
        deployment.wait_for_text("unread:user1:total", Some("1"));
        server.remove_socket(USER, "s1");
        let (channel, payload) = events.next();
        assert_eq!(channel, "events:user.offline");
        presence_event(&payload, USER);
        deployment.assert_audit_is_clean();
    }
}
