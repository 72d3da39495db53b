//! The trace that a request belongs to, as in the header `traceparent` of W3C Trace Context.

use std::fmt;
use std::str::FromStr;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of a header of version 00. Later versions may append fields.
const LENGTH: usize = 55;
/// The lowest bit of the flags.
const SAMPLED: u8 = 1;
/// A longer `tracestate` is not kept; the specification asks for at least this length.
const MAX_STATE_BYTES: usize = 512;

/// A span of a trace. Neither id is all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    /// Whether the spans of the trace are recorded.
    pub sampled: bool,
}

/// The text is not a valid `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid traceparent; expected 00-<32 digits>-<16 digits>-<2 digits>, in lowercase hexadecimal")]
pub struct TraceContextError;

impl TraceContext {
    /// The first span of a new trace, which is sampled with the given probability.
    #[must_use]
    pub fn start(sample_ratio: f64) -> Self {
        let sampled = sample_ratio >= 1.0 || rand::random::<f64>() < sample_ratio;
        Self { trace_id: random(), span_id: random(), sampled }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span_id: random(), ..*self }
    }

    /// The context in the headers of a request. `None` if there is none, an invalid one, or more than one.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        value.to_str().ok()?.parse().ok()
    }

    /// The `tracestate` of a request. Empty if there is none, or if it is too long.
    #[must_use]
    pub fn state_of(headers: &HeaderMap) -> String {
        let values = headers.get_all(TRACESTATE).iter().map(HeaderValue::to_str);
        let state = values.collect::<Result<Vec<_>, _>>().map(|values| values.join(",")).unwrap_or_default();
        if state.len() <= MAX_STATE_BYTES { state } else { String::new() }
    }

    /// Sets `traceparent`.
    pub fn write(&self, headers: &mut HeaderMap) {
        let text = HeaderValue::try_from(self.to_string()).expect("digits are valid in a header");
        headers.insert(TRACEPARENT, text);
    }

    /// Sets `traceparent`, and removes the `tracestate` of another trace.
    pub fn replace(&self, headers: &mut HeaderMap) {
        headers.remove(TRACESTATE);
        self.write(headers);
    }
}

impl FromStr for TraceContext {
    type Err = TraceContextError;

    fn from_str(text: &str) -> Result<Self, TraceContextError> {
        Self::parse(text.as_bytes()).ok_or(TraceContextError)
    }
}

impl TraceContext {
    fn parse(text: &[u8]) -> Option<Self> {
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let [version] = bytes_of(&head[..2])?;
        let is_separated = [2, 35, 52].into_iter().all(|at| head[at] == b'-');
        let fits = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest[0] == b'-',
        };
        let (trace_id, span_id) = (bytes_of(&head[3..35])?, bytes_of(&head[36..52])?);
        let [flags] = bytes_of(&head[53..])?;
        let is_valid = is_separated && fits && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self { trace_id, span_id, sampled: flags & SAMPLED != 0 })
    }
}

/// The header of version 00, without flags that Hob does not know.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(self.sampled))
    }
}

/// Reads lowercase hexadecimal digits.
fn bytes_of<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// Random bytes that are not all zeros.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes: [u8; N] = rand::random();
    bytes[N - 1] |= u8::from(bytes == [0; N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (TRACEPARENT, HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn valid_header_is_read_and_written() {
        let context = TraceContext::of(&headers(&[VALID])).unwrap();
        assert!(context.sampled && context.to_string() == VALID);
        let unsampled = VALID.replace("-01", "-00").parse::<TraceContext>().unwrap();
        assert!(!unsampled.sampled);
    }

    #[test]
    fn fields_and_flags_of_later_versions_are_ignored() {
        for later in ["cc-…-03", "cc-…-01-what-the-future-will-be-like", "01-…-09-"] {
            let text = later.replace('…', &VALID[3..52]);
            assert_eq!(text.parse::<TraceContext>().unwrap().to_string(), VALID, "{text}");
        }
        assert_eq!(VALID.replace("-01", "-ff").parse::<TraceContext>().unwrap().to_string(), VALID);
    }

    #[test]
    fn invalid_header_is_refused() {
        for text in [
            "",
            "00",
            &VALID[1..],
            &VALID.replace("00-0a", "ff-0a"),
            &VALID.replace("00-0a", "0G-0a"),
            &VALID.to_uppercase(),
            &format!("{VALID}-"),
            &VALID.replace("-01", "-01-00"),
            &VALID.replace("-01", "-0x"),
            &VALID.replace('-', "_"),
            &VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &VALID.replace("b7ad6b7169203331", &"0".repeat(16)),
            &VALID.replace("00-0a", "cc-0a").replace("-01", "-01.x"),
            &format!("é{}", &VALID[2..]),
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(TraceContextError), "{text}");
        }
        assert_eq!(TraceContext::of(&headers(&[VALID, VALID])), None);
        assert_eq!(TraceContext::of(&headers(&[])), None);
    }

    #[test]
    fn child_is_another_span_of_the_same_trace() {
        let parent = TraceContext::start(1.0);
        let child = parent.child();
        assert_eq!((child.trace_id, child.sampled), (parent.trace_id, true));
        assert_ne!(child.span_id, parent.span_id);
        assert!(!TraceContext::start(0.0).child().sampled);
    }

    #[test]
    fn state_of_another_trace_is_removed() {
        let mut headers = headers(&["invalid"]);
        headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
        headers.append(TRACESTATE, HeaderValue::from_static("b=2"));
        assert_eq!(TraceContext::state_of(&headers), "a=1,b=2");
        TraceContext::start(0.0).replace(&mut headers);
        assert!(TraceContext::of(&headers).is_some() && !headers.contains_key(TRACESTATE));
        headers.insert(TRACESTATE, HeaderValue::from_str(&"a".repeat(513)).unwrap());
        assert_eq!(TraceContext::state_of(&headers), "");
    }
}
