//! A monitor as users write it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::monitor::assertion::{self, Assertion};
use crate::monitor::check::{Check, CheckSpec, DnsSpec, FieldError, HeartbeatSpec, HttpSpec, MonitorKind};

const MAX_NAME_BYTES: usize = 128;
const MAX_LIST: usize = 16;
const MAX_WORD_BYTES: usize = 64;
const DAY_S: u32 = 86_400;

/// What is checked, how often, and when it counts as down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MonitorSpec {
    #[schema(min_length = 1, max_length = 128, example = "Shop")]
    pub name: String,
    pub kind: MonitorKind,
    /// A URL for `http`; `host:port` for `tcp` and `certificate`; a name for `dns`; empty for `heartbeat`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 2048, example = "https://example.com/health")]
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<HeartbeatSpec>,
    /// Seconds between two checks.
    #[serde(default = "default_interval")]
    #[schema(minimum = 1, maximum = 86400)]
    pub interval_s: u32,
    /// Timeout of a check in seconds, at most the interval. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 300)]
    pub timeout_s: Option<u32>,
    /// Retries after a failed check before the monitor is down.
    #[serde(default = "default_retries")]
    #[schema(maximum = 100)]
    pub retries: u32,
    /// Seconds before each retry.
    #[serde(default = "default_retry_delay")]
    #[schema(minimum = 1, maximum = 3600)]
    pub retry_delay_s: u32,
    /// Seconds between two checks while the monitor is down. Default: the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub down_interval_s: Option<u32>,
    /// Successful checks in a row that resolve an incident.
    #[serde(default = "default_recoveries")]
    #[schema(minimum = 1, maximum = 100)]
    pub recoveries: u32,
    /// Seconds between reminders of an open incident; 0: no reminders.
    #[serde(default = "default_remind")]
    #[schema(maximum = 2592000)]
    pub remind_s: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16, value_type = Vec<hob_web::Text1000>, example = json!(["status in 200..299", "latency < 500ms"]))]
    pub assertions: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16, value_type = Vec<hob_web::Text64>)]
    pub tags: Vec<String>,
    /// Heading on the dashboard and the status page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 64)]
    pub group: String,
    /// Ids or names of the channels that receive alerts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16, value_type = Vec<hob_web::Text64>)]
    pub channels: Vec<String>,
    /// Whether the public status page shows the monitor.
    #[serde(default, skip_serializing_if = "is_false")]
    pub published: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
}

fn default_interval() -> u32 {
    60
}

fn default_retries() -> u32 {
    2
}

fn default_retry_delay() -> u32 {
    5
}

fn default_recoveries() -> u32 {
    1
}

fn default_remind() -> u32 {
    6 * 3600
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_false(value: &bool) -> bool {
    !value
}

impl MonitorSpec {
    /// A monitor with all defaults.
    #[must_use]
    pub fn new(name: &str, kind: MonitorKind, target: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            target: target.to_owned(),
            http: None,
            dns: None,
            heartbeat: None,
            interval_s: default_interval(),
            timeout_s: None,
            retries: default_retries(),
            retry_delay_s: default_retry_delay(),
            down_interval_s: None,
            recoveries: default_recoveries(),
            remind_s: default_remind(),
            assertions: Vec::new(),
            tags: Vec::new(),
            group: String::new(),
            channels: Vec::new(),
            published: false,
            paused: false,
        }
    }

    #[must_use]
    pub fn timeout_s(&self) -> u32 {
        self.timeout_s.unwrap_or(10).min(self.interval_s)
    }

    #[must_use]
    pub fn down_interval_s(&self) -> u32 {
        self.down_interval_s.unwrap_or(self.interval_s)
    }

    /// The check and its assertions, or every error in the spec. A check that can never succeed is an error.
    pub fn validate(&self) -> Result<(Check, Vec<Assertion>), Vec<FieldError>> {
        let (check, assertions) = self.parse()?;
        let errors = check.impossible(&assertions);
        if errors.is_empty() { Ok((check, assertions)) } else { Err(errors) }
    }

    /// The check and its assertions, or why the spec cannot be read. Earlier versions have saved checks that can never
    /// succeed; they stay readable.
    pub fn parse(&self) -> Result<(Check, Vec<Assertion>), Vec<FieldError>> {
        let mut errors = Vec::new();
        self.check_texts(&mut errors);
        self.check_numbers(&mut errors);
        let assertions = self.read_assertions(&mut errors);
        let check = self.check_spec().validate().map_err(|more| errors.extend(more)).ok();
        match check {
            Some(check) if errors.is_empty() => Ok((check, assertions)),
            _ => Err(errors),
        }
    }

    /// Errors of those channels in the list that do not exist.
    pub(crate) fn missing_channels(&self, missing: &[String]) -> Vec<FieldError> {
        let listed = self.channels.iter().enumerate().filter(|(_, channel)| missing.contains(channel));
        let error = |(index, channel): (usize, &String)| {
            let message = format!("there is no channel with the id or name {channel}");
            FieldError::new(format!("channels[{index}]"), message)
        };
        listed.map(error).collect()
    }

    fn check_spec(&self) -> CheckSpec {
        CheckSpec {
            kind: self.kind,
            target: self.target.clone(),
            http: self.http.clone(),
            dns: self.dns.clone(),
            heartbeat: self.heartbeat.clone(),
        }
    }

    fn check_texts(&self, errors: &mut Vec<FieldError>) {
        let is_text =
            |text: &str, max_bytes: usize| text.len() <= max_bytes && !text.contains(char::is_control);
        if self.name.trim().is_empty() || !is_text(&self.name, MAX_NAME_BYTES) {
            errors.push(FieldError::new(
                "name",
                format!("must have 1 to {MAX_NAME_BYTES} bytes and no control characters"),
            ));
        }
        if !is_text(&self.group, MAX_WORD_BYTES) {
            errors.push(FieldError::new(
                "group",
                format!("must have at most {MAX_WORD_BYTES} bytes and no control characters"),
            ));
        }
        for (field, list) in [("tags", &self.tags), ("channels", &self.channels)] {
            let fits =
                |word: &String| !word.is_empty() && is_text(word, MAX_WORD_BYTES) && !word.contains(',');
            if list.len() > MAX_LIST || !list.iter().all(fits) {
                let message = format!(
                    "must have at most {MAX_LIST} entries, each of 1 to {MAX_WORD_BYTES} bytes without commas"
                );
                errors.push(FieldError::new(field, message));
            }
        }
    }

    fn check_numbers(&self, errors: &mut Vec<FieldError>) {
        let mut within = |field: &str, value: u32, min: u32, max: u32| {
            if !(min..=max).contains(&value) {
                errors.push(FieldError::new(field, format!("must be between {min} and {max}")));
            }
        };
        within("interval_s", self.interval_s, 1, DAY_S);
        within("timeout_s", self.timeout_s.unwrap_or(1), 1, self.interval_s.clamp(1, 300));
        within("retries", self.retries, 0, 100);
        within("retry_delay_s", self.retry_delay_s, 1, 3600);
        within("down_interval_s", self.down_interval_s.unwrap_or(1), 1, DAY_S);
        within("recoveries", self.recoveries, 1, 100);
        within("remind_s", self.remind_s, 0, 30 * DAY_S);
    }

    fn read_assertions(&self, errors: &mut Vec<FieldError>) -> Vec<Assertion> {
        if self.assertions.len() > MAX_LIST {
            errors.push(FieldError::new("assertions", format!("must have at most {MAX_LIST} entries")));
            return Vec::new();
        }
        let mut read = Vec::with_capacity(self.assertions.len());
        for (index, text) in self.assertions.iter().enumerate() {
            let field = format!("assertions[{index}]");
            if text.len() > assertion::MAX_BYTES {
                errors.push(FieldError::new(
                    field,
                    format!("must have at most {} bytes", assertion::MAX_BYTES),
                ));
                continue;
            }
            match text.parse() {
                Ok(assertion) => read.push(assertion),
                Err(error) => errors.push(FieldError::new(field, format!("{error}"))),
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_fields_have_defaults() {
        let spec: MonitorSpec =
            serde_json::from_str(r#"{"name":"a","kind":"tcp","target":"h:1","interval_s":5}"#).unwrap();
        assert_eq!((spec.timeout_s(), spec.retries, spec.recoveries, spec.down_interval_s()), (5, 2, 1, 5));
        assert!(spec.validate().is_ok());
    }

    #[test]
    fn every_invalid_field_is_reported() {
        let spec: MonitorSpec = serde_json::from_str(
            r#"{"name":" ","kind":"tcp","target":"h","interval_s":0,"timeout_s":400,"recoveries":0,"tags":["a,b"],
                "assertions":["status ~ 3"]}"#,
        )
        .unwrap();
        let fields: Vec<String> =
            spec.validate().unwrap_err().into_iter().map(|errors| errors.field).collect();
        assert_eq!(
            fields,
            ["name", "tags", "interval_s", "timeout_s", "recoveries", "assertions[0]", "target"]
        );
    }

    #[test]
    fn check_that_can_never_succeed_is_refused_but_stays_readable() {
        let fields = |json: &str| -> Vec<String> {
            let spec: MonitorSpec = serde_json::from_str(json).unwrap();
            assert!(spec.parse().is_ok(), "{json}");
            spec.validate().err().unwrap_or_default().iter().map(ToString::to_string).collect()
        };
        for (json, errors) in [
            (
                r#"{"name":"a","kind":"tcp","target":"h:1","assertions":["latency < 1s","status == 200","certificate days > 1"]}"#,
                vec![
                    "assertions[1]: is only for monitors of kind http",
                    "assertions[2]: is only for monitors of kind http or certificate",
                ],
            ),
            (
                r#"{"name":"a","kind":"heartbeat","assertions":["latency < 1s"]}"#,
                vec!["assertions[0]: is only for monitors of kind http, tcp, dns or certificate"],
            ),
            (
                r#"{"name":"a","kind":"certificate","target":"h:1","assertions":["certificate days > 1"]}"#,
                vec![],
            ),
            (r#"{"name":"a","kind":"dns","target":".."}"#, vec!["target: is not a domain name"]),
            (r#"{"name":"a","kind":"dns","target":"a..b"}"#, vec!["target: is not a domain name"]),
            (r#"{"name":"a","kind":"tcp","target":"..:80"}"#, vec!["target: is not a domain name"]),
            (r#"{"name":"a","kind":"http","target":"http://a..b/"}"#, vec!["target: is not a domain name"]),
            (r#"{"name":"a","kind":"dns","target":"_dmarc.example.com."}"#, vec![]),
            (r#"{"name":"a","kind":"dns","target":"bücher.example"}"#, vec![]),
            (r#"{"name":"a","kind":"dns","target":"."}"#, vec![]),
            (r#"{"name":"a","kind":"http","target":"http://example.com./"}"#, vec![]),
            (r#"{"name":"a","kind":"tcp","target":"[::1]:80"}"#, vec![]),
        ] {
            assert_eq!(fields(json), errors, "{json}");
        }
    }

    #[test]
    fn unknown_field_is_refused() {
        let typo = r#"{"name":"a","kind":"tcp","target":"h:1","intervall_s":5}"#;
        assert!(serde_json::from_str::<MonitorSpec>(typo).unwrap_err().to_string().contains("intervall_s"));
    }
}
