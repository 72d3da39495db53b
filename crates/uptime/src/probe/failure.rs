//! Failures from errors of hyper and the system.

use std::error::Error;
use std::io;

use crate::monitor::check::{Failure, FailureClass};

pub(super) fn from_hyper(error: &hyper::Error) -> Failure {
    let closed = |message: String| Failure::new(FailureClass::Closed, message);
    if let Some(io) = io_error(error) {
        let is_tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some();
        return match io.kind() {
            _ if is_tls => Failure::new(FailureClass::Tls, io.to_string()),
            // Malformed chunks.
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Failure::new(FailureClass::Protocol, format!("not HTTP: {io}"))
            }
            io::ErrorKind::UnexpectedEof => {
                closed("the connection was closed during the response".to_owned())
            }
            _ => closed(without_os_code(io)),
        };
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return closed("the connection was closed before the response was complete".to_owned());
    }
    if error.is_parse_too_large() {
        return Failure::new(FailureClass::Protocol, "the response head is too large");
    }
    let mut message = error.to_string();
    if let Some(cause) = error.source() {
        message = format!("{message}: {cause}");
    }
    Failure::new(FailureClass::Protocol, format!("not HTTP: {message}"))
}

/// The message of a system error without its number.
pub(super) fn without_os_code(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref() {
            return Some(io);
        }
        next = cause.source();
    }
    None
}
