//! Ids: the values of placeholders, and their encoding in a key.
//!
//! A byte with a special meaning (the separator, braces, glob characters, quotes, spaces, control characters and the
//! percent sign) is percent-encoded. All others keep their bytes. Each id has exactly one encoding and decoding rejects any
//! other, so two keys never contain the same ids.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::{percent_decode, percent_encode_byte};

use crate::model::Allow;
use crate::parse::source::Position;
use crate::units::format_duration;

/// The colon between the segments of a key.
pub const SEPARATOR: u8 = b':';

/// The last Unix time in milliseconds with thirteen digits, in 2286.
pub const LAST_UNIX_MS: u64 = 9_999_999_999_999;

/// One entry of `[ids]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRule {
    pub name: String,
    pub form: IdForm,
    /// The maximum length of the id in bytes, before encoding.
    pub max: usize,
    /// Reserved words that are never a value of this id.
    pub not: Vec<String>,
    /// The id of which this one is another encoding.
    pub of: Option<String>,
    pub example: String,
    pub note: Option<String>,
    pub allow: Vec<Allow>,
    pub position: Position,
}

/// The form of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdForm {
    /// Any text.
    Text(RawChars),
    /// A whole number without leading zeros, a multiple of `step`.
    Int { min: u64, max: u64, step: u64 },
    /// One of these words.
    OneOf(Vec<String>),
    /// `2024-09-17_14`, UTC.
    Hour,
    /// `GET /api/users`, with the space replaced by the given byte; or one word such as `other`.
    Endpoint { space: u8 },
    /// Any bytes, as another program wrote them: nothing is encoded.
    Verbatim { without: Without },
}

/// The characters that a verbatim id never contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Without {
    chars: String,
    /// The same characters, one bit for each ASCII code.
    bits: u128,
}

impl Without {
    /// Only punctuation and spaces separate ids from the text around them.
    pub fn new(chars: &str) -> Option<Without> {
        let separates = |char: char| char.is_ascii_punctuation() || char == ' ';
        let bits = chars.bytes().filter(u8::is_ascii).fold(0, |bits, byte| bits | 1 << byte);
        chars.chars().all(separates).then(|| Without { chars: chars.to_owned(), bits })
    }

    pub fn chars(&self) -> &str {
        &self.chars
    }

    fn contains(&self, byte: u8) -> bool {
        byte.is_ascii() && self.bits >> byte & 1 == 1
    }
}

/// Which of the characters that are encoded by default this id keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawChars {
    pub separator: bool,
    pub slash: bool,
    pub space: bool,
}

/// Why a text cannot be an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{id} is empty")]
    Empty { id: String },
    #[error("{id} is {bytes} bytes long, more than {max}")]
    TooLong { id: String, bytes: usize, max: usize },
    #[error("{word:?} is reserved and cannot be a {id}")]
    Reserved { id: String, word: String },
    #[error("{text:?} is not a {id}: expected {expected}")]
    Malformed { id: String, text: String, expected: String },
}

impl IdRule {
    /// Checks a text. The error says why it cannot be this id.
    pub fn check(&self, text: &str) -> Result<(), IdError> {
        if text.is_empty() {
            return Err(IdError::Empty { id: self.name.clone() });
        }
        if text.len() > self.max {
            return Err(IdError::TooLong { id: self.name.clone(), bytes: text.len(), max: self.max });
        }
        if self.not.iter().any(|word| word == text) {
            return Err(IdError::Reserved { id: self.name.clone(), word: text.to_owned() });
        }
        if self.form.accepts(text) {
            return Ok(());
        }
        Err(IdError::Malformed {
            id: self.name.clone(),
            text: text.chars().take(64).collect(),
            expected: self.form.describe(),
        })
    }

    /// Appends the encoding of a checked id to a key.
    pub fn encode_into(&self, text: &str, key: &mut Vec<u8>) {
        let mut space_left = true;
        for byte in text.bytes() {
            match &self.form {
                IdForm::Endpoint { space } if byte == b' ' && space_left => {
                    space_left = false;
                    key.push(*space);
                }
                // The path of an endpoint is already encoded.
                IdForm::Endpoint { .. } if byte == b'%' => key.push(byte),
                IdForm::Verbatim { .. } => key.push(byte),
                form if form.stays_raw(byte) => key.push(byte),
                _ => key.extend_from_slice(percent_encode_byte(byte).as_bytes()),
            }
        }
    }

    /// Decodes an id of a key. `None` unless these bytes are the one encoding of an id that [`IdRule::check`] accepts.
    ///
    /// A verbatim id that is not UTF-8 is decoded with replacement characters, because it can only be shown.
    pub fn decode<'k>(&self, bytes: &'k [u8]) -> Option<Cow<'k, str>> {
        if let IdForm::Verbatim { without } = &self.form {
            let fits = bytes.len() <= self.max && !bytes.iter().any(|byte| without.contains(*byte));
            let reserved = self.not.iter().any(|word| word.as_bytes() == bytes);
            return (fits && !reserved && !bytes.is_empty()).then(|| String::from_utf8_lossy(bytes));
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let decoded = if text.contains('%') || matches!(self.form, IdForm::Endpoint { .. }) {
            Cow::Owned(self.unescape(bytes)?)
        } else if self.form.span(bytes) == bytes.len() {
            Cow::Borrowed(text)
        } else {
            return None;
        };
        self.check(&decoded).ok()?;
        if let Cow::Owned(id) = &decoded {
            let mut again = Vec::with_capacity(bytes.len());
            self.encode_into(id, &mut again);
            if again != bytes {
                return None;
            }
        }
        Some(decoded)
    }

    /// Whether [`decode`](Self::decode) accepts these bytes. Most ids need no decoding, so one pass over the bytes is enough.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        let raw = self.form.raw_classes();
        let is_itself = |byte: &u8| byte.is_ascii() && raw & CLASSES[usize::from(*byte)] != 0;
        match &self.form {
            IdForm::Text(_) if bytes.iter().all(is_itself) => {
                (1..=self.max).contains(&bytes.len()) && !self.not.iter().any(|word| word.as_bytes() == bytes)
            }
            _ => self.decode(bytes).is_some(),
        }
    }

    /// Whether the encoded id may contain the separator.
    pub fn holds_separator(&self) -> bool {
        match self.form {
            IdForm::Text(raw) => raw.separator,
            IdForm::Endpoint { .. } => true,
            IdForm::Verbatim { ref without } => !without.contains(SEPARATOR),
            IdForm::Int { .. } | IdForm::OneOf(_) | IdForm::Hour => false,
        }
    }

    /// Undoes [`encode_into`](Self::encode_into). Accepts more spellings than `encode_into` writes;
    /// [`decode`](Self::decode) rejects the others.
    fn unescape(&self, bytes: &[u8]) -> Option<String> {
        let IdForm::Endpoint { space } = self.form else {
            return String::from_utf8(percent_decode(bytes).collect()).ok();
        };
        let mut spelled = bytes.to_vec();
        if let Some(byte) = spelled.iter_mut().find(|byte| **byte == space) {
            *byte = b' ';
        }
        let mut text = String::from_utf8(spelled).ok()?;
        for byte in ENCODED_IN_KEYS {
            text = text.replace(percent_encode_byte(byte), &char::from(byte).to_string());
        }
        Some(text)
    }
}

impl IdForm {
    fn accepts(&self, text: &str) -> bool {
        match self {
            IdForm::Text(_) => true,
            IdForm::Int { min, max, step } => canonical_int(text)
                .is_some_and(|number| (*min..=*max).contains(&number) && number.is_multiple_of(*step)),
            IdForm::OneOf(words) => words.iter().any(|word| word == text),
            IdForm::Hour => is_hour(text),
            IdForm::Endpoint { .. } => is_endpoint(text),
            IdForm::Verbatim { without } => !text.bytes().any(|byte| without.contains(byte)),
        }
    }

    /// A description for messages.
    pub fn describe(&self) -> String {
        match self {
            IdForm::Text(_) => "text".to_owned(),
            IdForm::Int { min: 0, max: u64::MAX, step: 1 } => "a whole number".to_owned(),
            IdForm::Int { min, max: u64::MAX, step } => format!("a multiple of {step} from {min}"),
            IdForm::Int { min: 0, max: LAST_UNIX_MS, step: 1 } => "unix milliseconds".to_owned(),
            IdForm::Int { min: 0, max: LAST_UNIX_MS, step } => {
                format!("unix milliseconds, a multiple of {}", format_duration(Duration::from_millis(*step)))
            }
            IdForm::Int { min, max, step: 1 } => format!("a whole number from {min} to {max}"),
            IdForm::Int { min, max, step } => format!("a multiple of {step} from {min} to {max}"),
            IdForm::OneOf(words) => format!("one of {}", words.join(", ")),
            IdForm::Hour => "an hour such as 2024-09-17_14".to_owned(),
            IdForm::Endpoint { .. } => {
                "METHOD /path with a percent-encoded path, or one lowercase word".to_owned()
            }
            IdForm::Verbatim { without } if without.chars.is_empty() => "any bytes".to_owned(),
            IdForm::Verbatim { without } => format!("bytes without any of {:?}", without.chars),
        }
    }

    /// Whether the byte is not encoded.
    pub(crate) fn stays_raw(&self, byte: u8) -> bool {
        match self {
            IdForm::Verbatim { without } => !without.contains(byte),
            _ => self.raw_classes() & CLASSES[usize::from(byte)] != 0,
        }
    }

    /// Whether the encoded id may contain the byte.
    pub(crate) fn may_contain(&self, byte: u8) -> bool {
        self.span(&[byte]) == 1
    }

    /// The number of bytes at the start that the encoded id may contain.
    pub(crate) fn span(&self, bytes: &[u8]) -> usize {
        let classes = self.raw_classes() | PERCENT;
        let in_classes = |byte: u8| classes & CLASSES[usize::from(byte)] != 0;
        match self {
            IdForm::Int { .. } => span(bytes, |byte| byte.is_ascii_digit()),
            IdForm::Endpoint { space } => span(bytes, |byte| byte == *space || in_classes(byte)),
            IdForm::Verbatim { without } => span(bytes, |byte| !without.contains(byte)),
            IdForm::Text(_) | IdForm::OneOf(_) | IdForm::Hour => span(bytes, in_classes),
        }
    }

    /// The classes of bytes that are not encoded. A verbatim id has none: it depends on its own characters.
    fn raw_classes(&self) -> u8 {
        match self {
            IdForm::Text(raw) => {
                let class = |kept: bool, class: u8| if kept { class } else { 0 };
                PLAIN | class(raw.separator, COLON) | class(raw.slash, SLASH) | class(raw.space, SPACE)
            }
            IdForm::Endpoint { .. } => PLAIN | COLON | SLASH,
            IdForm::Int { .. } | IdForm::OneOf(_) | IdForm::Hour => PLAIN,
            IdForm::Verbatim { .. } => 0,
        }
    }
}

fn span(bytes: &[u8], fits: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !fits(*byte)).unwrap_or(bytes.len())
}

/// Bytes that no form encodes.
const PLAIN: u8 = 1;
const COLON: u8 = 1 << 1;
const SLASH: u8 = 1 << 2;
const SPACE: u8 = 1 << 3;
const PERCENT: u8 = 1 << 4;

/// The class of each byte, because keys are matched byte by byte. 0 if every form encodes it.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            SEPARATOR => COLON,
            b'/' => SLASH,
            b' ' => SPACE,
            b'%' => PERCENT,
            b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b'\\' | b'"' | b'\'' | 0..b' ' | 0x7f => 0,
            _ => PLAIN,
        };
        byte += 1;
    }
    classes
};

/// Characters that a path may contain, but not the key of an endpoint.
const ENCODED_IN_KEYS: [u8; 2] = [b'*', b'\''];

/// `METHOD /path` with a percent-encoded path, or one lowercase word (the place where the rest is counted).
fn is_endpoint(text: &str) -> bool {
    match text.split_once(' ') {
        Some((method, path)) => {
            !method.is_empty()
                && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
                && path.starts_with('/')
                && is_encoded_path(path)
        }
        None => text.bytes().all(|byte| byte.is_ascii_lowercase()),
    }
}

/// Whether every character of a path that must be encoded is, and none that must not be: then different paths have
/// different keys, although the escapes of a path stay as they are.
fn is_encoded_path(path: &str) -> bool {
    let mut parts = path.split('%');
    let is_plain = |part: &str| {
        part.bytes()
            .all(|byte| ENCODED_IN_KEYS.contains(&byte) || IdForm::Endpoint { space: b' ' }.stays_raw(byte))
    };
    let is_escaped = |part: &str| {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| {
            percent_encode_byte(byte).get(1..) == part.get(..2) && !ENCODED_IN_KEYS.contains(&byte)
        }) && is_plain(&part[2..])
    };
    parts.next().is_some_and(is_plain) && parts.all(is_escaped)
}

fn is_hour(text: &str) -> bool {
    // A year before 0 starts with a sign.
    text.len() == 13
        && text.starts_with(|char: char| char.is_ascii_digit())
        && jiff::civil::DateTime::strptime("%Y-%m-%d_%H", text)
            .is_ok_and(|hour| hour.strftime("%Y-%m-%d_%H").to_string() == text)
}

fn canonical_int(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(form: IdForm) -> IdRule {
        IdRule {
            name: "id".into(),
            form,
            max: 64,
            not: vec!["total".into()],
            of: None,
            example: "x".into(),
            note: None,
            allow: vec![],
            position: Position { line: 1, column: 1 },
        }
    }

    fn encode(rule: &IdRule, text: &str) -> String {
        let mut key = Vec::new();
        rule.encode_into(text, &mut key);
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn plain_ids_keep_their_bytes() {
        let text = rule(IdForm::Text(RawChars::default()));
        for id in ["507f1f77bcf86cd799439011", "monitor_123", "a.b-c~d@e+f", "사용자"] {
            assert_eq!(encode(&text, id), id);
            assert_eq!(text.decode(id.as_bytes()).as_deref(), Some(id));
        }
    }

    #[test]
    fn special_characters_are_encoded_and_decoded() {
        let text = rule(IdForm::Text(RawChars::default()));
        assert_eq!(encode(&text, "a:b"), "a%3Ab");
        assert_eq!(encode(&text, "{x}*\n%"), "%7Bx%7D%2A%0A%25");
        for id in ["a:b", "{x}*\n%", "%3A", "a b/c"] {
            assert_eq!(text.decode(encode(&text, id).as_bytes()).as_deref(), Some(id));
        }
    }

    #[test]
    fn only_the_canonical_encoding_is_decoded() {
        let text = rule(IdForm::Text(RawChars::default()));
        for spelled in ["%61", "a%3a", "a%", "a%4", "a:b", "a b", "%FF", "", "total"] {
            assert_eq!(text.decode(spelled.as_bytes()), None, "{spelled:?}");
        }
        assert_eq!(text.decode(b"\xff"), None);
    }

    /// G18
    #[test]
    fn endpoint_has_two_encodings() {
        let spaced = rule(IdForm::Endpoint { space: b' ' });
        let joined = rule(IdForm::Endpoint { space: b'_' });
        for (id, plain, under) in [
            ("GET /api/users", "GET /api/users", "GET_/api/users"),
            ("PUT /a_b/:id", "PUT /a_b/:id", "PUT_/a_b/:id"),
            ("GET /a%20b/%7Bx%7D", "GET /a%20b/%7Bx%7D", "GET_/a%20b/%7Bx%7D"),
            ("GET /static/*", "GET /static/%2A", "GET_/static/%2A"),
            ("GET /%25", "GET /%25", "GET_/%25"),
            ("other", "other", "other"),
        ] {
            assert_eq!(encode(&spaced, id), plain);
            assert_eq!(encode(&joined, id), under);
            assert_eq!(spaced.decode(plain.as_bytes()).as_deref(), Some(id));
            assert_eq!(joined.decode(under.as_bytes()).as_deref(), Some(id));
        }
        assert_eq!(joined.decode(b"GET /api/users"), None);
        assert_eq!(spaced.decode(b"GET_/api/users"), None);
        for text in ["GET /a b", "GET /{x}", "GET /%", "GET /%7b", "GET /%2A", "GET /%zz", "GET /?"] {
            assert!(spaced.check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn verbatim_id_is_not_encoded() {
        let id = rule(IdForm::Verbatim { without: Without::new(":.").unwrap() });
        for text in ["%61", "a b/c", "{x}*\n", "사용자"] {
            assert_eq!(encode(&id, text), text);
            assert_eq!(id.decode(text.as_bytes()).as_deref(), Some(text));
        }
        for refused in ["a:b", "a.b", "", "total"] {
            assert_eq!(id.decode(refused.as_bytes()), None, "{refused:?}");
            assert!(id.check(refused).is_err(), "{refused:?}");
        }
        assert_eq!(id.decode(b"\xff").as_deref(), Some("\u{fffd}"));
        assert_eq!(Without::new("x"), None);
    }

    #[test]
    fn bytes_match_if_they_can_be_decoded() {
        let raw = RawChars { separator: true, slash: true, space: true };
        let long = "x".repeat(65);
        let ids = ["a", "", "total", "a:b", "a/b c", "a%3Ab", "a%", "사용자", "7", "07", "{", &long];
        for form in [
            IdForm::Text(RawChars::default()),
            IdForm::Text(raw),
            IdForm::Int { min: 0, max: 9, step: 1 },
            IdForm::Verbatim { without: Without::new(":").unwrap() },
        ] {
            let rule = rule(form);
            for bytes in ids.iter().map(|id| id.as_bytes()).chain([&b"a\xff"[..]]) {
                assert_eq!(rule.matches(bytes), rule.decode(bytes).is_some(), "{rule:?} {bytes:?}");
            }
        }
    }

    #[test]
    fn span_ends_before_a_byte_that_must_be_encoded() {
        let raw = RawChars { separator: true, slash: true, space: true };
        for (form, text, length) in [
            (IdForm::Text(RawChars::default()), "a%3A\u{e9}:b", 6),
            (IdForm::Text(RawChars::default()), "a/b", 1),
            (IdForm::Text(RawChars::default()), "a b", 1),
            (IdForm::Text(raw), "a:/ b*", 5),
            (IdForm::Int { min: 0, max: 9, step: 1 }, "12a", 2),
            (IdForm::Endpoint { space: b'_' }, "GET_/a:b ", 8),
            (IdForm::Verbatim { without: Without::new(":").unwrap() }, "{*\n\u{e9}:", 5),
            (IdForm::Verbatim { without: Without::default() }, "a:b", 3),
            (IdForm::Hour, "", 0),
        ] {
            assert_eq!(form.span(text.as_bytes()), length, "{form:?} {text:?}");
        }
    }

    #[test]
    fn numbers_and_hours_have_one_form() {
        let status = rule(IdForm::Int { min: 400, max: 599, step: 1 });
        assert!(status.check("404").is_ok());
        assert!(status.check("0404").is_err());
        assert!(status.check("200").is_err());
        let hour = rule(IdForm::Hour);
        assert!(hour.check("2024-09-17_14").is_ok());
        for text in ["-001-01-01_00", "2024-09-17_24", "2024-02-30_01", "2024-9-17_14", "2024-09-17 14"] {
            assert!(hour.check(text).is_err(), "{text}");
        }
        assert!(matches!(rule(IdForm::Hour).check("total"), Err(IdError::Reserved { .. })));
    }
}
