//! JSON in commands and replies.

use std::borrow::Cow;

use hob_units::plain_serde_error;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::code::ReplyError;

/// Parses JSON of a client. The error names the field.
pub(crate) fn parse<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, String> {
    // serde also reads an array as an object, by the order of the fields.
    if json.trim_ascii_start().starts_with(b"[") {
        return Err("expected an object".to_owned());
    }
    // Tracking the field costs time, so it is only done for the message of an error.
    serde_json::from_slice(json).map_err(|error| {
        let tracked: Result<T, _> =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json));
        let message = plain_serde_error(&error.to_string());
        match tracked.as_ref().map_err(|error| error.path().to_string()).err().as_deref() {
            None | Some(".") => message,
            Some(field) => format!("{field}: {message}"),
        }
    })
}

/// Valid JSON without line breaks, which separate the messages of a frame. In JSON they occur only between values.
pub(crate) fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ").into() } else { json.into() }
}

/// Wraps JSON text. Text that is not valid JSON would break the frame, and becomes `null`.
pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The data of a command. In Protobuf, it can be something other than JSON.
pub(crate) fn client_json(data: &[u8]) -> Result<&RawValue, ReplyError> {
    serde_json::from_slice(data).map_err(|_| ReplyError::BAD_REQUEST.with_detail("data: must be JSON"))
}

/// A field with JSON of the application. Empty if it is missing.
pub(super) mod embedded {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use serde_json::value::RawValue;

    #[allow(clippy::ptr_arg, reason = "the signature that serde requires")]
    pub(crate) fn serialize<S: Serializer>(json: &Vec<u8>, serializer: S) -> Result<S::Ok, S::Error> {
        let json: Result<&RawValue, _> = serde_json::from_slice(json);
        // Anything else would break the frame.
        json.unwrap_or(RawValue::NULL).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(bytes)
    }

    /// The same, and `null` counts as missing.
    pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        Option::<Box<RawValue>>::deserialize(deserializer).map(|json| json.map(bytes).unwrap_or_default())
    }

    fn bytes(json: Box<RawValue>) -> Vec<u8> {
        Box::<str>::from(json).into_boxed_bytes().into_vec()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
pub(super) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
