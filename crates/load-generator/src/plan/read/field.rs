//! Checks that many fields share: names and periods.

use std::time::Duration;

use hob_units::Period;

use crate::plan::{Plan, ThinkTime};

const MAX_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_NAME_LEN: usize = 100;

/// The path of a field and what is wrong with it; the line is found later.
pub(super) type FieldError = (String, String);

pub(super) type Result<T> = std::result::Result<T, FieldError>;

pub(super) fn wrong(path: impl Into<String>, message: impl Into<String>) -> FieldError {
    (path.into(), message.into())
}

pub(super) fn at<E: ToString>(path: &str) -> impl Fn(E) -> FieldError {
    let path = path.to_owned();
    move |error| (path.clone(), error.to_string())
}

pub(super) fn check_name(path: &str, name: &str) -> Result<()> {
    let is_plain = |name: &str| name.trim() == name && !name.chars().any(char::is_control);
    if (1..=MAX_NAME_LEN).contains(&name.len()) && is_plain(name) {
        return Ok(());
    }
    Err(wrong(path, format!("a name has 1 to {MAX_NAME_LEN} bytes, without leading or trailing spaces")))
}

pub(super) fn period(path: &str, text: &str) -> Result<Duration> {
    text.parse::<Period>().map(Period::get).map_err(|error| wrong(path, error.to_string()))
}

pub(super) fn timeout(path: &str, text: Option<&str>) -> Result<Option<Duration>> {
    let Some(text) = text else { return Ok(None) };
    let timeout = period(path, text)?;
    if timeout.is_zero() || timeout > MAX_TIMEOUT {
        return Err(wrong(
            path,
            format!("a timeout is longer than 0 and at most {}s", MAX_TIMEOUT.as_secs()),
        ));
    }
    Ok(Some(timeout))
}

/// Parses `100ms` or `100ms..500ms`.
pub(super) fn think_time(path: &str, text: Option<&str>) -> Result<Option<ThinkTime>> {
    let Some(text) = text else { return Ok(None) };
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (min, max) = (period(path, min)?, period(path, max)?);
    if min > max || max > Plan::MAX_DURATION {
        return Err(wrong(path, "the first period must not be longer than the second"));
    }
    Ok(Some(ThinkTime { min, max }))
}
