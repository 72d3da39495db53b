//! An error with its causes, for a log line or a message.

use std::error::Error;

/// The message of an error, followed by those of its causes: `cannot connect: connection refused`. A cause whose message is
/// already part of the text is left out.
#[must_use]
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn every_cause_is_named_once() {
        let innermost = Layer { text: "connection refused", source: None };
        let same = Layer { text: "connection refused", source: Some(Box::new(innermost)) };
        let outer = Layer { text: "cannot connect", source: Some(Box::new(same)) };
        assert_eq!(error_text(&outer), "cannot connect: connection refused");
    }
}
