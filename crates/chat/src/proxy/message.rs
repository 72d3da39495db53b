//! Requests to the application, and its answers. The names are those of Centrifugo's documentation.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Denial, ProxyError};
use crate::keys::{NamedChannel, UserId};
use crate::session::protocol::{Disconnect, Format, ReplyError, one_line, parse};

/// The codes of errors and of disconnects that an application may choose.
const ERROR_CODES: std::ops::RangeInclusive<u32> = 400..=1999;
const DISCONNECT_CODES: std::ops::RangeInclusive<u16> = 4000..=4999;
/// The longest message of an error, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// The longest reason of a disconnect, in bytes. A close frame has no space for more.
const MAX_REASON_BYTES: usize = 123;
/// The largest data in an answer, in bytes.
const MAX_DATA_BYTES: usize = 64 * 1024;
/// The largest info in an answer, in bytes.
const MAX_INFO_BYTES: usize = 2 * 1024;

/// How a client is connected, and the headers of its request that are passed on.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) transport: TransportName,
    pub(crate) headers: HeaderMap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TransportName {
    Websocket,
    HttpStream,
    Sse,
}

/// The client in a request.
#[derive(Debug, Serialize)]
pub(crate) struct ProxyClient<'a> {
    client: &'a str,
    transport: TransportName,
    protocol: &'static str,
    /// Data is JSON in both protocols.
    encoding: &'static str,
}

impl<'a> ProxyClient<'a> {
    fn new(client: &'a str, transport: TransportName, format: Format) -> Self {
        let protocol = match format {
            Format::Json => "json",
            Format::Protobuf => "protobuf",
        };
        Self { client, transport, protocol, encoding: "json" }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct ConnectProxyRequest<'a> {
    #[serde(flatten)]
    pub(crate) client: ProxyClient<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<&'a RawValue>,
}

/// A request about a client that is connected.
#[derive(Debug, Serialize)]
pub(crate) struct ProxyRequest<'a> {
    #[serde(flatten)]
    pub(crate) client: ProxyClient<'a>,
    pub(crate) user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<&'a RawValue>,
}

impl<'a> ConnectProxyRequest<'a> {
    pub(crate) fn new(client: &'a str, transport: TransportName, format: Format) -> Self {
        Self { client: ProxyClient::new(client, transport, format), name: "", version: "", data: None }
    }
}

impl<'a> ProxyRequest<'a> {
    pub(crate) fn new(client: &'a str, transport: TransportName, format: Format, user: &'a str) -> Self {
        let client = ProxyClient::new(client, transport, format);
        Self { client, user, channel: None, method: None, data: None }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConnectGrant {
    pub(crate) user: UserId,
    /// In Unix seconds. 0: the connection does not expire.
    #[serde(default)]
    pub(crate) expire_at: i64,
    #[serde(default, deserialize_with = "json::<_, MAX_DATA_BYTES>")]
    data: Vec<u8>,
    #[serde(default, deserialize_with = "base64_json::<_, MAX_DATA_BYTES>")]
    b64data: Vec<u8>,
    /// The channels to which the client is subscribed.
    #[serde(default)]
    pub(crate) channels: Vec<NamedChannel>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RefreshGrant {
    #[serde(default)]
    pub(crate) expired: bool,
    #[serde(default)]
    pub(crate) expire_at: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SubscribeGrant {
    #[serde(default)]
    pub(crate) expire_at: i64,
    #[serde(default, deserialize_with = "json::<_, MAX_DATA_BYTES>")]
    data: Vec<u8>,
    #[serde(default, deserialize_with = "base64_json::<_, MAX_DATA_BYTES>")]
    b64data: Vec<u8>,
    /// What other clients see of the client.
    #[serde(default, deserialize_with = "json::<_, MAX_INFO_BYTES>")]
    info: Vec<u8>,
    #[serde(default, deserialize_with = "base64_json::<_, MAX_INFO_BYTES>")]
    b64info: Vec<u8>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PublishGrant {
    #[serde(default, deserialize_with = "json::<_, MAX_DATA_BYTES>")]
    data: Vec<u8>,
    #[serde(default, deserialize_with = "base64_json::<_, MAX_DATA_BYTES>")]
    b64data: Vec<u8>,
    #[serde(default)]
    pub(crate) skip_history: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RpcGrant {
    #[serde(default, deserialize_with = "json::<_, MAX_DATA_BYTES>")]
    data: Vec<u8>,
    #[serde(default, deserialize_with = "base64_json::<_, MAX_DATA_BYTES>")]
    b64data: Vec<u8>,
}

/// An answer of the application.
#[derive(Debug, Deserialize)]
pub(super) struct Response {
    result: Option<Box<RawValue>>,
    error: Option<ErrorAnswer>,
    disconnect: Option<DisconnectAnswer>,
}

#[derive(Debug, Deserialize)]
struct ErrorAnswer {
    code: u32,
    #[serde(default)]
    message: String,
    #[serde(default)]
    temporary: bool,
}

#[derive(Debug, Deserialize)]
struct DisconnectAnswer {
    code: u16,
    #[serde(default)]
    reason: String,
}

impl Response {
    pub(super) fn into_answer<G: DeserializeOwned>(self) -> Result<Result<G, Denial>, ProxyError> {
        let malformed = |reason: String| Err(ProxyError::Malformed(reason));
        match (self.disconnect, self.error, self.result) {
            (Some(DisconnectAnswer { code, reason }), ..) => {
                if !DISCONNECT_CODES.contains(&code) || reason.len() > MAX_REASON_BYTES {
                    let expected = format!("disconnect: the code must be in {DISCONNECT_CODES:?}");
                    return malformed(format!("{expected}, the reason at most {MAX_REASON_BYTES} bytes"));
                }
                Ok(Err(Denial::Disconnected(Disconnect { code, reason: reason.into() })))
            }
            (None, Some(ErrorAnswer { code, message, temporary }), _) => {
                if !ERROR_CODES.contains(&code) || message.len() > MAX_MESSAGE_BYTES {
                    let expected = format!("error: the code must be in {ERROR_CODES:?}");
                    return malformed(format!("{expected}, the message at most {MAX_MESSAGE_BYTES} bytes"));
                }
                Ok(Err(Denial::Refused(ReplyError::of_application(code, message, temporary))))
            }
            (None, None, Some(result)) => match parse(result.get().as_bytes()) {
                Ok(result) => Ok(Ok(result)),
                Err(reason) => malformed(format!("result: {reason}")),
            },
            (None, None, None) => malformed("it has no result, error or disconnect".to_owned()),
        }
    }
}

/// A grant with data of the application, as JSON or in base64.
macro_rules! data {
    ($($grant:ident)*) => {$(
        impl $grant {
            /// The data as JSON in one line; empty if there is none.
            pub(crate) fn take_data(&mut self) -> Vec<u8> {
                std::mem::take(if self.b64data.is_empty() { &mut self.data } else { &mut self.b64data })
            }
        }
    )*};
}

data! { ConnectGrant SubscribeGrant PublishGrant RpcGrant }

impl SubscribeGrant {
    /// What other clients see of the client, as JSON in one line; empty if there is nothing.
    pub(crate) fn take_info(&mut self) -> Vec<u8> {
        std::mem::take(if self.b64info.is_empty() { &mut self.info } else { &mut self.b64info })
    }
}

fn json<'de, D: Deserializer<'de>, const MAX: usize>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let json = Option::<Box<RawValue>>::deserialize(deserializer)?;
    json.map_or(Ok(Vec::new()), |json| bounded(&json, MAX))
}

fn base64_json<'de, D: Deserializer<'de>, const MAX: usize>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let base64 = String::deserialize(deserializer)?;
    if base64.is_empty() {
        return Ok(Vec::new());
    }
    let decoded = STANDARD.decode(base64).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let json = decoded.and_then(|json| RawValue::from_string(json).ok());
    bounded(&json.ok_or_else(|| D::Error::custom("must be JSON in base64"))?, MAX)
}

/// JSON in one line.
fn bounded<E: serde::de::Error>(json: &RawValue, max: usize) -> Result<Vec<u8>, E> {
    if json.get().len() > max {
        return Err(E::custom(format_args!("data or info has more than {max} bytes")));
    }
    Ok(one_line(json.get()).into_owned().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &str) -> Result<Result<PublishGrant, Denial>, ProxyError> {
        parse(json.as_bytes()).map_err(ProxyError::Malformed).and_then(Response::into_answer)
    }

    #[test]
    fn answer_is_a_grant_an_error_or_a_disconnect() {
        let mut grant = answer("{\"result\":{\"data\":{\"a\":\n1}},\"error\":null}").unwrap().unwrap();
        assert_eq!(grant.take_data(), br#"{"a": 1}"#);
        let mut grant =
            answer(r#"{"result":{"b64data":"eyJhIjoxfQ==","skip_history":true}}"#).unwrap().unwrap();
        assert!(grant.skip_history);
        assert_eq!(grant.take_data(), br#"{"a":1}"#);
        let refused = answer(r#"{"error":{"code":1000,"message":"no"}}"#).unwrap().unwrap_err();
        assert!(matches!(refused, Denial::Refused(error) if error.code == 1000 && error.message == "no"));
        let closed = answer(r#"{"result":{},"disconnect":{"code":4501,"reason":"x"}}"#).unwrap().unwrap_err();
        assert!(matches!(closed, Denial::Disconnected(reason) if reason.code == 4501));
    }

    /// Nothing is granted by mistake.
    #[test]
    fn malformed_answer_is_an_error() {
        for json in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"result":null}"#,
            r#"{"result":[]}"#,
            r#"{"result":{"b64data":"???"}}"#,
            r#"{"result":{"b64data":"/w=="}}"#,
            r#"{"result":{"skip_history":"yes"}}"#,
            r#"{"error":{"code":100}}"#,
            r#"{"error":{}}"#,
            r#"{"disconnect":{"code":3000}}"#,
            r#"{"disconnect":{"code":65536}}"#,
        ] {
            assert!(answer(json).is_err(), "{json}");
        }
        let large = format!(r#"{{"result":{{"data":"{}"}}}}"#, "x".repeat(MAX_DATA_BYTES));
        assert!(answer(&large).is_err());
    }
}
