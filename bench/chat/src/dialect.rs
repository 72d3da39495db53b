//! The two protocols, as far as a member of a room needs them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::seat::Seat;

/// What tokens are signed with.
pub(crate) const SECRET: &str = "a secret of this benchmark";

/// What a server speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dialect {
    /// The Centrifugo protocol.
    Hob,
    /// Engine.IO 4 and Socket.IO over it.
    SocketIo,
}

/// What a frame says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// One was let into the room; with what was missed of it, maybe.
    Joined(&'a str),
    /// A message of one's own was taken.
    Acknowledged(usize),
    /// A ping that needs this answer.
    Ping(&'static str),
    /// Everything else; messages, maybe.
    Text(&'a str),
    Refused,
}

/// Messages are numbered from here on: the numbers before are for getting in.
const FIRST_ID: usize = 10;

impl Dialect {
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Hob => "/connection/websocket",
            Self::SocketIo => "/socket.io/?EIO=4&transport=websocket",
        }
    }

    /// Gets a member into its room, from the event on that it has seen last, where the server can do that.
    pub(crate) fn hello(&self, seat: Seat, seen: u64) -> String {
        match self {
            Self::Hob => {
                let (token, room) = (token(&seat.user()), seat.room_name());
                format!(
                    "{{\"id\":1,\"connect\":{{\"token\":\"{token}\"}}}}\n{{\"id\":2,\"subscribe\":\
                     {{\"channel\":\"conv:{room}\",\"recover\":{},\"offset\":{seen}}}}}",
                    seen > 0
                )
            }
            Self::SocketIo => format!("40{{\"room\":\"{}\"}}", seat.room_name()),
        }
    }

    pub(crate) fn send(&self, seat: Seat, number: usize, content: &str) -> String {
        match self {
            Self::Hob => format!(
                "{{\"id\":{},\"rpc\":{{\"method\":\"send\",\"data\":{{\"conversationId\":\"{}\",\"content\":\"{content}\"}}}}}}",
                number + FIRST_ID,
                seat.room_name()
            ),
            Self::SocketIo => format!("42{number}[\"send\",\"{content}\"]"),
        }
    }

    /// The parts of a frame, in order.
    pub(crate) fn read<'a>(&self, frame: &'a str) -> impl Iterator<Item = Heard<'a>> {
        let centrifugo = matches!(self, Self::Hob);
        frame.split('\n').map(move |part| if centrifugo { hob(part) } else { socket_io(part) })
    }

    /// The place of the message whose content ends where `rest` begins; 0 where the server has no places.
    pub(crate) fn place(&self, rest: &str) -> u64 {
        match self {
            Self::Hob => number_after("\"sequence\":", rest),
            Self::SocketIo => 0,
        }
    }

    /// The stream position from which a new subscriber receives everything.
    pub(crate) fn entrance(&self, joined: &str) -> u64 {
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

/// A JSON Web Token that lasts for ever.
fn token(user: &str) -> String {
    let claims = format!(r#"{{"sub":"{user}","exp":99999999999}}"#);
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn hob(part: &str) -> Heard<'_> {
    if part == "{}" {
        return Heard::Ping("{}");
    }
    let Some(reply) = part.strip_prefix("{\"id\":") else { return Heard::Text(part) };
    let Some((id, rest)) = reply.split_once(',') else { return Heard::Refused };
    let id: usize = id.parse().unwrap_or(0);
    if rest.starts_with("\"error\"") {
        Heard::Refused
    } else if id >= FIRST_ID {
        Heard::Acknowledged(id - FIRST_ID)
    } else if rest.starts_with("\"subscribe\"") {
        Heard::Joined(part)
    } else {
        Heard::Text("")
    }
}

fn socket_io(part: &str) -> Heard<'_> {
    if part == "2" {
        return Heard::Ping("3");
    }
    if part.starts_with("42[\"joined\"") {
        return Heard::Joined("");
    }
    match part.strip_prefix("43") {
        Some(rest) => match rest.split_once('[') {
            Some((id, _)) => id.parse().map_or(Heard::Refused, Heard::Acknowledged),
            None => Heard::Refused,
        },
        None if part.starts_with("44") => Heard::Refused,
        None => Heard::Text(part),
    }
}
