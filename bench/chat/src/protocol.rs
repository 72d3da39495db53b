//! The parts of both protocols that a client in a room uses.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::member::MemberId;

/// The key that signs the tokens.
pub(crate) const SECRET: &str = "a secret of this benchmark";

/// The protocol of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// The Centrifugo protocol.
    Hob,
    /// Engine.IO 4 and Socket.IO over it.
    SocketIo,
}

/// A parsed part of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// The client has joined the room. The text may contain missed messages.
    Joined(&'a str),
    /// The server has accepted a message of this client.
    Acknowledged(usize),
    /// A ping, with the expected reply.
    Ping(&'static str),
    /// Any other text, which may contain messages.
    Text(&'a str),
    Rejected,
}

/// The request id of the first message. Lower ids are used to connect and subscribe.
const FIRST_ID: usize = 10;

impl Protocol {
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Hob => "/connection/websocket",
            Self::SocketIo => "/socket.io/?EIO=4&transport=websocket",
        }
    }

    /// The frame that joins a room. If the server supports recovery, delivery resumes after `seen`.
    pub(crate) fn join(&self, member: MemberId, seen: u64) -> String {
        match self {
            Self::Hob => {
                let (token, room) = (token(&member.user()), member.room_name());
                format!(
                    "{{\"id\":1,\"connect\":{{\"token\":\"{token}\"}}}}\n{{\"id\":2,\"subscribe\":\
                     {{\"channel\":\"conv:{room}\",\"recover\":{},\"offset\":{seen}}}}}",
                    seen > 0
                )
            }
            Self::SocketIo => format!("40{{\"room\":\"{}\"}}", member.room_name()),
        }
    }

    pub(crate) fn send(&self, member: MemberId, number: usize, content: &str) -> String {
        match self {
            Self::Hob => format!(
                "{{\"id\":{},\"rpc\":{{\"method\":\"send\",\"data\":{{\"conversationId\":\"{}\",\"content\":\"{content}\"}}}}}}",
                number + FIRST_ID,
                member.room_name()
            ),
            Self::SocketIo => format!("42{number}[\"send\",\"{content}\"]"),
        }
    }

    /// The parts of a frame, in order.
    pub(crate) fn read<'a>(&self, frame: &'a str) -> impl Iterator<Item = Event<'a>> {
        let centrifugo = matches!(self, Self::Hob);
        frame.split('\n').map(move |part| if centrifugo { hob(part) } else { socket_io(part) })
    }

    /// The offset of the message whose content ends where `rest` begins; 0 if the server has no offsets.
    pub(crate) fn offset(&self, rest: &str) -> u64 {
        match self {
            Self::Hob => number_after("\"sequence\":", rest),
            Self::SocketIo => 0,
        }
    }

    /// The offset from which a new subscriber receives all messages.
    pub(crate) fn start_offset(&self, joined: &str) -> u64 {
        match self {
            Self::Hob => number_after("\"offset\":", joined),
            Self::SocketIo => 0,
        }
    }
}

fn number_after(name: &str, text: &str) -> u64 {
    let digits = text.split_once(name).map_or("", |(_, rest)| rest);
    digits.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// A JSON Web Token that does not expire.
fn token(user: &str) -> String {
    let claims = format!(r#"{{"sub":"{user}","exp":99999999999}}"#);
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn hob(part: &str) -> Event<'_> {
    if part == "{}" {
        return Event::Ping("{}");
    }
    let Some(reply) = part.strip_prefix("{\"id\":") else { return Event::Text(part) };
    let Some((id, rest)) = reply.split_once(',') else { return Event::Rejected };
    let id: usize = id.parse().unwrap_or(0);
    if rest.starts_with("\"error\"") {
        Event::Rejected
    } else if id >= FIRST_ID {
        Event::Acknowledged(id - FIRST_ID)
    } else if rest.starts_with("\"subscribe\"") {
        Event::Joined(part)
    } else {
        Event::Text("")
    }
}

fn socket_io(part: &str) -> Event<'_> {
    if part == "2" {
        return Event::Ping("3");
    }
    if part.starts_with("42[\"joined\"") {
        return Event::Joined("");
    }
    match part.strip_prefix("43") {
        Some(rest) => match rest.split_once('[') {
            Some((id, _)) => id.parse().map_or(Event::Rejected, Event::Acknowledged),
            None => Event::Rejected,
        },
        None if part.starts_with("44") => Event::Rejected,
        None => Event::Text(part),
    }
}
