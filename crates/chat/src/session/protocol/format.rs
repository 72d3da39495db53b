//! The two encodings of the protocol.
//!
//! In JSON, the messages of a frame are separated by line breaks. In Protobuf, each message follows its length as a varint.

use bytes::Bytes;
use prost::Message as _;

use super::command::Command;
use super::json::parse;
use super::reply::Reply;

/// The most commands in one frame.
const MAX_COMMANDS: usize = 256;

/// How the messages of a connection are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    Json,
    Protobuf,
}

pub(crate) use FrameFormat as Format;

impl Format {
    /// A ping of the server. A client answers with an empty command, which looks the same.
    pub(crate) fn ping(self) -> Bytes {
        self.encode(&Reply::default())
    }

    /// Encodes a reply or a push.
    pub(crate) fn encode(self, reply: &Reply) -> Bytes {
        match self {
            Self::Json => serde_json::to_vec(reply).unwrap_or_default().into(),
            Self::Protobuf => reply.encode_length_delimited_to_vec().into(),
        }
    }

    /// What separates encoded messages.
    pub(crate) fn separator(self) -> &'static [u8] {
        match self {
            Self::Json => b"\n",
            Self::Protobuf => b"",
        }
    }

    /// The commands of a frame.
    pub(crate) fn commands(self, frame: &[u8]) -> Result<Vec<Command>, String> {
        let commands = match self {
            Self::Json => {
                let lines = frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                collect(lines.map(parse))
            }
            Self::Protobuf => {
                let mut rest = frame;
                collect(std::iter::from_fn(|| {
                    let decode = |rest: &mut &[u8]| Command::decode_length_delimited(rest);
                    (!rest.is_empty()).then(|| decode(&mut rest).map_err(|error| error.to_string()))
                }))
            }
        }?;
        if commands.is_empty() { Err(wrong_number()) } else { Ok(commands) }
    }
}

fn collect(commands: impl Iterator<Item = Result<Command, String>>) -> Result<Vec<Command>, String> {
    let mut all = Vec::new();
    for command in commands {
        if all.len() == MAX_COMMANDS {
            return Err(wrong_number());
        }
        all.push(command?);
    }
    Ok(all)
}

fn wrong_number() -> String {
    format!("a frame must have 1 to {MAX_COMMANDS} commands")
}

/// Parses the commands of a frame, as a connection does before it executes them; returns how many there are. For fuzzing.
#[doc(hidden)]
pub fn parse_frame(format: FrameFormat, frame: &[u8]) -> Result<usize, String> {
    let commands = format.commands(frame)?;
    // A decoded command is the same after being encoded and decoded again.
    for command in commands.iter().filter(|_| format == Format::Protobuf) {
        let encoded = command.encode_length_delimited_to_vec();
        assert_eq!(format.commands(&encoded).as_deref(), Ok(std::slice::from_ref(command)));
    }
    Ok(commands.len())
}

#[cfg(test)]
mod tests {
    use super::super::code::ReplyError;
    use super::super::push::Push;
    use super::super::reply::{Publication, ReplyResult, SubscribeResult};
    use super::*;

    fn json(reply: &Reply) -> String {
        String::from_utf8(Format::Json.encode(reply).to_vec()).unwrap()
    }

    /// The bytes are those of the Python SDK's generated code.
    #[test]
    fn replies_have_the_tags_of_the_definition() {
        let publication = Publication { data: br#"{"a":1}"#.to_vec(), offset: 300, ..Publication::default() };
        let push = Reply::from(Push::publication(&"conv:r", publication.clone()));
        assert_eq!(json(&push), r#"{"push":{"channel":"conv:r","pub":{"data":{"a":1},"offset":300}}}"#);
        let bytes = b"\x18\x22\x16\x12\x06conv:r\x22\x0c\x22\x07{\"a\":1}\x30\xac\x02";
        assert_eq!(Format::Protobuf.encode(&push).as_ref(), bytes);

        let result = SubscribeResult { publications: vec![publication], ..SubscribeResult::default() };
        let reply = Reply::new(3, ReplyResult::Subscribe(result));
        let bytes = b"\x12\x08\x03\x32\x0e\x3a\x0c\x22\x07{\"a\":1}\x30\xac\x02";
        assert_eq!(Format::Protobuf.encode(&reply).as_ref(), bytes);

        let reply = Reply::new(7, ReplyResult::Error(ReplyError::INTERNAL));
        let expected = r#"{"id":7,"error":{"code":100,"message":"internal server error","temporary":true}}"#;
        assert_eq!(json(&reply), expected);
        let bytes = b"\x1f\x08\x07\x12\x1b\x08\x64\x12\x15internal server error\x18\x01";
        assert_eq!(Format::Protobuf.encode(&reply).as_ref(), bytes);
        assert_eq!((json(&Reply::default()).as_str(), Format::Protobuf.ping().as_ref()), ("{}", &b"\0"[..]));
    }

    #[test]
    fn commands_of_both_formats_are_the_same() {
        let lines = concat!(
            r#"{"id":1,"rpc":{"method":"send","data":{"a":1}}}"#,
            "\n",
            r#"{"id":2,"history":{"channel":"c","limit":-1,"since":{"offset":9,"epoch":"e"},"reverse":true}}"#,
            "\n{}\n",
        );
        let commands = Format::Json.commands(lines.as_bytes()).unwrap();
        assert_eq!(commands.len(), 3);
        assert!(commands[2].is_empty() && !commands[1].is_empty());
        let encoded: Vec<u8> =
            commands.iter().flat_map(prost::Message::encode_length_delimited_to_vec).collect();
        assert_eq!(Format::Protobuf.commands(&encoded).unwrap(), commands);
    }

    #[test]
    fn malformed_protobuf_is_rejected() {
        for frame in [
            &b""[..],
            b"\x05\x08\x01",                                 // longer than the frame
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a varint of eleven bytes
            b"\xff\xff\xff\xff\x7f",                         // a length of 32 GiB
            b"\x05\x08\x01\x2a\x05\x0a",                     // a nested message that ends too late
            b"\x06\x08\x01\x2a\x02\x0a\x04",                 // a string that ends too late
            b"\x07\x08\x01\x2a\x03\x0a\x01\xff",             // a string that is not UTF-8
            b"\x02\x0d\x01",                                 // another wire type
            b"\x02\x00\x01",                                 // tag 0
            br#"{"id":1,"ping":{}}"#,
        ] {
            assert!(Format::Protobuf.commands(frame).is_err(), "{}", frame.escape_ascii());
        }
        assert_eq!(Format::Protobuf.commands(&[0; 256]).unwrap().len(), 256);
        assert!(Format::Protobuf.commands(&[0; 257]).is_err());
        // Unknown fields are skipped: a newer client may send them.
        assert!(Format::Protobuf.commands(b"\x04\x08\x01\x7a\x00").is_ok());
        assert!(Format::Protobuf.commands(b"\x08\x08\x01\xaa\x01\x03abc").is_ok());
    }
}
