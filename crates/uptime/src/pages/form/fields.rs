//! The fields of the form, by the kind of monitor.

use askama::Template;
use hob_web::components::{Choice, Field};

use super::{MonitorForm, Trial};
use crate::incident::alert::Channel;
use crate::monitor::check::{FieldError, MonitorKind};

/// Fields that are folded.
const MORE: [&str; 6] =
    ["timeout_s", "retries", "retry_delay_s", "down_interval_s", "recoveries", "remind_s"];

const KINDS: [(MonitorKind, &str); 5] = [
    (MonitorKind::Http, "HTTP"),
    (MonitorKind::Tcp, "TCP"),
    (MonitorKind::Dns, "DNS"),
    (MonitorKind::Certificate, "Certificate"),
    (MonitorKind::Heartbeat, "Heartbeat"),
];

#[derive(Template)]
#[template(path = "uptime/form.html")]
pub(super) struct FormPage {
    action: String,
    button: &'static str,
    /// Errors that do not belong to a field.
    general: String,
    kind: MonitorKind,
    main: Vec<Field>,
    /// The fields of the kind.
    own: Vec<Field>,
    /// One of them has an error.
    open_own: bool,
    assertions: Option<Field>,
    examples: &'static [(&'static str, &'static str)],
    channels: Vec<ChannelBox>,
    /// References to channels that do not exist.
    missing_channels: String,
    channel_error: Option<String>,
    rest: Vec<Field>,
    more: Vec<Field>,
    open_more: bool,
    trial: Option<Trial>,
    /// It has entered data that is not saved.
    pub(super) is_draft: bool,
}

struct ChannelBox {
    id: String,
    name: String,
    kind: &'static str,
    /// How the monitor refers to it.
    value: String,
    checked: bool,
}

/// Assertions that a kind of check can have, with what they mean.
fn examples(kind: MonitorKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        MonitorKind::Http => &[
            ("status in 200..299", "the status means success"),
            ("latency < 500ms", "the whole request is fast"),
            ("body contains \"Welcome\"", "the page has a text"),
            ("json $.status == \"ok\"", "a member of the JSON body"),
            ("header content-type contains \"json\"", "a header of the response"),
            ("certificate days > 14", "the certificate stays valid for two weeks"),
        ],
        MonitorKind::Tcp => &[("latency < 200ms", "the connection is fast")],
        MonitorKind::Dns => &[("latency < 200ms", "the name server is fast")],
        MonitorKind::Certificate => &[("certificate days > 14", "valid for two weeks")],
        MonitorKind::Heartbeat => &[],
    }
}

impl FormPage {
    /// A heartbeat cannot be tested: it waits for the job.
    fn can_test(&self) -> bool {
        self.kind != MonitorKind::Heartbeat
    }
}

impl MonitorForm {
    pub(super) fn page(
        &self,
        action: String,
        button: &'static str,
        channels: &[Channel],
        errors: &[FieldError],
        trial: Option<Trial>,
    ) -> FormPage {
        let error = |field: &str| {
            let concerns = |one: &&FieldError| {
                one.field
                    .strip_prefix(field)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
            };
            errors.iter().find(concerns).map(|one| one.message.clone())
        };
        let general = errors.iter().filter(|one| one.field.is_empty()).map(|one| one.message.as_str());
        let kind: MonitorKind = self.kind.parse().unwrap_or(MonitorKind::Http);
        let (selected, missing) = self.channel_fields(channels);
        FormPage {
            action,
            button,
            general: general.collect::<Vec<_>>().join("; "),
            kind,
            main: self.main_fields(kind, &error),
            own: match kind {
                MonitorKind::Http => self.http_fields(&error),
                MonitorKind::Dns => self.dns_fields(&error),
                MonitorKind::Heartbeat => self.heartbeat_fields(&error),
                MonitorKind::Tcp | MonitorKind::Certificate => Vec::new(),
            },
            open_own: errors.iter().any(|one| one.field.starts_with("http")),
            assertions: self.assertions_field(kind, &error),
            examples: examples(kind),
            channels: selected,
            missing_channels: missing,
            channel_error: error("channels"),
            rest: self.rest_fields(&error),
            more: self.more_fields(&error),
            open_more: MORE.iter().any(|field| error(field).is_some()),
            trial,
            is_draft: false,
        }
    }

    /// A checkbox for each channel, and the references to channels that do not exist, separated by commas.
    fn channel_fields(&self, channels: &[Channel]) -> (Vec<ChannelBox>, String) {
        let mut missing = self.selected_channels();
        let shown = channels.iter().map(|channel| {
            let (id, name) = (channel.id.to_string(), channel.spec.name.clone());
            let known = missing.iter().find(|text| **text == id || **text == name).cloned();
            missing.retain(|text| *text != id && *text != name);
            // A reference by name stays one.
            let checked = known.is_some();
            ChannelBox {
                value: known.unwrap_or_else(|| id.clone()),
                id,
                name,
                kind: channel.spec.kind.as_str(),
                checked,
            }
        });
        let shown = shown.collect();
        (shown, missing.join(", "))
    }

    fn main_fields(&self, kind: MonitorKind, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        let mut fields =
            vec![Field::text("name", "Name").value(&self.name).max_length(128).error(error("name"))];
        let target = |label: &str, example: &str| {
            Field::text("target", label).value(&self.target).placeholder(example).error(error("target"))
        };
        match kind {
            MonitorKind::Http => fields.push(target("URL", "https://shop.example/health")),
            MonitorKind::Tcp => fields.push(target("Host and port", "db.example:5432")),
            MonitorKind::Dns => fields.push(target("Domain name", "shop.example")),
            MonitorKind::Certificate => fields.push(target("Host and port", "shop.example:443")),
            MonitorKind::Heartbeat => {}
        }
        let interval = Field::number("interval_s", "Interval (s)").value(&self.interval_s).between(1, 86_400);
        fields.push(interval.error(error("interval_s")));
        fields
    }

    fn assertions_field(&self, kind: MonitorKind, error: &dyn Fn(&str) -> Option<String>) -> Option<Field> {
        let field =
            Field::lines("assertions", "Assertions").value(&self.assertions).error(error("assertions"));
        (kind != MonitorKind::Heartbeat)
            .then(|| field.hint("One per line. The check fails if one of them does not hold."))
    }

    fn rest_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        vec![
            Field::text("group", "Group").value(&self.group).max_length(64).error(error("group")),
            Field::text("tags", "Tags").value(&self.tags).hint("Separated by commas").error(error("tags")),
            Field::checkbox("published", "Show on the public status page").value(&self.published),
            Field::checkbox("paused", "Paused").value(&self.paused),
        ]
    }

    fn more_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        let seconds =
            |name: &str, label: &str, value: &str| Field::number(name, label).value(value).error(error(name));
        vec![
            seconds("timeout_s", "Timeout (s)", &self.timeout_s).hint("Default: 10"),
            seconds("retries", "Retries", &self.retries).between(0, 100),
            seconds("retry_delay_s", "Retry delay (s)", &self.retry_delay_s).between(1, 3600),
            seconds("down_interval_s", "Interval while down (s)", &self.down_interval_s)
                .hint("Default: the interval"),
            seconds("recoveries", "Successful checks that resolve an incident", &self.recoveries)
                .between(1, 100),
            seconds("remind_s", "Reminder interval (s)", &self.remind_s).hint("0: no reminders"),
        ]
    }

    fn http_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        vec![
            Field::text("method", "Method").value(&self.method).max_length(16).error(error("http.method")),
            Field::lines("headers", "Headers")
                .value(&self.headers)
                .hint("One per line: Name: value")
                .error(error("http.headers")),
            Field::lines("body", "Body").value(&self.body).error(error("http.body")),
            Field::number("redirects", "Maximum redirects")
                .value(&self.redirects)
                .between(0, 20)
                .error(error("http.redirects")),
            Field::choice("version", "HTTP version", choices(&["auto", "1.1", "2"])).value(&self.version),
            Field::text("user", "User").value(&self.user).autocomplete("off").hint("For basic authentication"),
            Field::text("secret", "Secret")
                .value(&self.secret)
                .autocomplete("off")
                .hint("Name of a secret under [secrets] in hob.toml: a password, or a bearer token if there is no user")
                .error(error("http.auth")),
        ]
    }

    fn dns_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        let records = ["A", "AAAA", "CNAME", "MX", "NS", "TXT"];
        vec![
            Field::choice("record", "Record", choices(&records)).value(&self.record),
            Field::lines("expected", "Expected answers")
                .value(&self.expected)
                .hint("One per line; if empty, any answer is good")
                .error(error("dns.expected")),
            Field::text("server", "Name server")
                .value(&self.server)
                .placeholder("9.9.9.9:53")
                .error(error("dns.server")),
        ]
    }

    fn heartbeat_fields(&self, error: &dyn Fn(&str) -> Option<String>) -> Vec<Field> {
        vec![
            Field::text("cron", "Cron pattern (UTC)")
                .value(&self.cron)
                .placeholder("0 3 * * *")
                .hint("Default: every interval")
                .error(error("heartbeat.cron")),
            Field::number("grace_s", "Grace (s)").value(&self.grace_s).error(error("heartbeat.grace_s")),
        ]
    }
}

fn choices(values: &[&str]) -> Vec<Choice> {
    values.iter().map(|value| Choice { value: (*value).to_owned(), label: (*value).to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::MonitorSpec;

    #[test]
    fn every_example_is_a_valid_assertion() {
        for (kind, _) in KINDS {
            for (text, _) in examples(kind) {
                let target =
                    if kind == MonitorKind::Http { "https://shop.example/" } else { "shop.example:443" };
                let target = if kind == MonitorKind::Dns { "shop.example" } else { target };
                let mut spec = MonitorSpec::new("a", kind, target);
                spec.assertions = vec![(*text).to_owned()];
                assert!(spec.validate().is_ok(), "{kind}: {text}: {:?}", spec.validate().err());
            }
        }
    }
}
