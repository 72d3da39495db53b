//! Pushes as WebSocket frames.

use std::cell::OnceCell;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::session::protocol::{Format, Push, Reply};

/// A message as a WebSocket frame.
#[derive(Clone, Debug)]
pub(crate) struct SocketFrame(Bytes);

/// A push to many connections. It is encoded at most once per format.
#[derive(Debug)]
pub(crate) struct SharedPush {
    push: Reply,
    json: OnceCell<SocketFrame>,
    protobuf: OnceCell<SocketFrame>,
}

impl SharedPush {
    /// The frame for connections of this format.
    pub(crate) fn frame(&self, format: Format) -> &SocketFrame {
        let frame = match format {
            Format::Json => &self.json,
            Format::Protobuf => &self.protobuf,
        };
        frame.get_or_init(|| SocketFrame::new(format, &format.encode(&self.push)))
    }
}

impl From<Push> for SharedPush {
    fn from(push: Push) -> Self {
        Self { push: push.into(), json: OnceCell::new(), protobuf: OnceCell::new() }
    }
}

impl SocketFrame {
    /// A final frame with text or with bytes.
    pub(crate) fn new(format: Format, payload: &[u8]) -> Self {
        let mut frame = BytesMut::with_capacity(payload.len() + 10);
        frame.put_u8(match format {
            Format::Json => 0x81,
            Format::Protobuf => 0x82,
        });
        match payload.len() {
            length @ ..=125 => frame.put_u8(length as u8),
            length @ ..=0xffff => {
                frame.put_u8(126);
                frame.put_u16(length as u16);
            }
            length => {
                frame.put_u8(127);
                frame.put_u64(length as u64);
            }
        }
        frame.put_slice(payload);
        Self(frame.freeze())
    }

    /// The whole frame.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn payload(&self) -> Bytes {
        let start = match self.0[1] {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        self.0.slice(start..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_encoded_with_its_length() {
        for (length, header) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            let payload = Bytes::from(vec![b'x'; length]);
            let frame = SocketFrame::new(Format::Json, &payload);
            assert_eq!(frame.0.len(), length + header);
            assert_eq!(frame.payload(), payload);
        }
    }

    #[test]
    fn push_is_encoded_once_per_format() {
        let push = SharedPush::from(Push::transient(&"news:a", "{}"));
        for format in [Format::Json, Format::Protobuf] {
            assert_eq!(push.frame(format).0.as_ptr(), push.frame(format).0.as_ptr());
        }
        assert_eq!(push.frame(Format::Json).0[0], 0x81);
        assert_eq!(push.frame(Format::Protobuf).0[0], 0x82);
    }
}
