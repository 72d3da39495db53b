//! What every field may have wrong with it: names, times, and how a mistake is named.

use std::time::Duration;

use hob_service::Period;

use crate::plan::{Pause, Plan};

const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);
const LONGEST_NAME: usize = 100;

/// A mistake whose line is not known yet.
pub(super) type Refusal = (String, String);

pub(super) type Result<T> = std::result::Result<T, Refusal>;

pub(super) fn wrong(path: impl Into<String>, message: impl Into<String>) -> Refusal {
    (path.into(), message.into())
}

pub(super) fn at(path: &str) -> impl Fn(String) -> Refusal {
    let path = path.to_owned();
    move |message| (path.clone(), message)
}

pub(super) fn check_name(path: &str, name: &str) -> Result<()> {
    let is_plain = |name: &str| name.trim() == name && !name.chars().any(char::is_control);
    if (1..=LONGEST_NAME).contains(&name.len()) && is_plain(name) {
        return Ok(());
    }
    Err(wrong(path, format!("a name has 1 to {LONGEST_NAME} characters, no space at either end")))
}

pub(super) fn period(path: &str, text: &str) -> Result<Duration> {
    text.parse::<Period>().map(Period::get).map_err(|error| wrong(path, error.to_string()))
}

pub(super) fn timeout(path: &str, text: Option<&str>) -> Result<Option<Duration>> {
    let Some(text) = text else { return Ok(None) };
    let timeout = period(path, text)?;
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        return Err(wrong(path, format!("a timeout is at most {}s", LONGEST_TIMEOUT.as_secs())));
    }
    Ok(Some(timeout))
}

/// `100ms`, or `100ms..500ms`.
pub(super) fn pause(path: &str, text: Option<&str>) -> Result<Option<Pause>> {
    let Some(text) = text else { return Ok(None) };
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (period(path, least)?, period(path, most)?);
    if least > most || most > Plan::LONGEST {
        return Err(wrong(path, "the first time is the shorter one"));
    }
    Ok(Some(Pause { least, most }))
}
