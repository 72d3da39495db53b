//! Channels: where alerts are sent.

use std::fmt;

use hob_database::{Constraint, Error as DatabaseError, Read, UnixMs, column};
use hob_service::ServiceContext;
use hob_service::config::SecretName;
use lettre::message::Mailbox;
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use crate::monitor::check::FieldError;
use crate::monitor::secrets;
use crate::status::Slug;

use crate::database::{channels, monitors};
use crate::error::{Error, Result as UptimeResult};

const MAX_NAME_BYTES: usize = 64;
const MAX_URL_BYTES: usize = 2048;
const MAX_RECIPIENTS: usize = 16;
pub const MAX_CHANNELS: u64 = 200;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct ChannelId(String);

column!(ChannelId(String));

impl ChannelId {
    /// Deliveries to the subscribers of a status page. Ids of channels have no colon.
    pub(crate) fn of_page(slug: &Slug) -> Self {
        Self(format!("page:{slug}"))
    }
}

/// A channel whose spec is valid.
#[derive(Clone, Debug)]
pub struct Channel {
    pub id: ChannelId,
    pub spec: ChannelSpec,
    pub target: ChannelTarget,
    pub created_at: UnixMs,
    pub changed_at: UnixMs,
}

/// Where a channel sends its notices.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelTarget {
    /// A `POST`, signed if there is a secret.
    Webhook {
        url: Url,
        secret: Option<SecretName>,
    },
    /// The URL is a secret: anyone who knows it can post.
    Slack {
        url: SecretName,
    },
    Discord {
        url: SecretName,
    },
    Email {
        to: Vec<Mailbox>,
    },
}

/// A channel as users write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// Unique. Monitors refer to their channels by name or id.
    #[schema(min_length = 1, max_length = 64, example = "Operations")]
    pub name: String,
    pub kind: ChannelKind,
    /// The URL of a webhook.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 2048, example = "https://example.com/hooks/hob")]
    pub url: String,
    /// The name of a secret under `[secrets]` in `hob.toml`: the signing key of a webhook, or the URL of Slack and Discord.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 64, example = "ops_hook")]
    pub secret: String,
    /// Recipients of e-mail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16, value_type = Vec<hob_web::Text512>, example = json!(["Ops <ops@example.com>"]))]
    pub to: Vec<String>,
}

/// Changes to a channel. Omitted fields keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelPatch {
    #[schema(min_length = 1, max_length = 64)]
    pub name: Option<String>,
    pub kind: Option<ChannelKind>,
    #[schema(max_length = 2048)]
    pub url: Option<String>,
    #[schema(max_length = 64)]
    pub secret: Option<String>,
    #[schema(max_items = 16, value_type = Option<Vec<hob_web::Text512>>)]
    pub to: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    Webhook,
    Slack,
    Discord,
    Email,
}

/// The outcome of a request to add or edit a channel.
#[derive(Debug)]
pub enum SaveOutcome {
    Saved(Box<Channel>),
    Invalid(Vec<FieldError>),
    NameTaken,
    /// These monitors refer to the channel by its name, which therefore cannot be changed.
    NameInUse(Vec<String>),
    LimitReached,
    NotFound,
}

impl ChannelSpec {
    /// The target of the channel, or every error in the spec.
    pub fn validate(&self) -> Result<ChannelTarget, Vec<FieldError>> {
        let mut errors = Vec::new();
        let name = self.name.trim();
        if name.is_empty()
            || self.name.len() > MAX_NAME_BYTES
            || self.name.contains(|c: char| c.is_control() || c == ',')
        {
            let message =
                format!("must have 1 to {MAX_NAME_BYTES} bytes, without commas and control characters");
            errors.push(FieldError::new("name", message));
        }
        self.check_unused_fields(&mut errors);
        let target = match self.kind {
            ChannelKind::Webhook => self.webhook(&mut errors),
            ChannelKind::Slack => self.secret(&mut errors).map(|url| ChannelTarget::Slack { url }),
            ChannelKind::Discord => self.secret(&mut errors).map(|url| ChannelTarget::Discord { url }),
            ChannelKind::Email => self.recipients(&mut errors).map(|to| ChannelTarget::Email { to }),
        };
        match target {
            Some(target) if errors.is_empty() => Ok(target),
            _ => Err(errors),
        }
    }

    #[must_use]
    pub fn patched(self, patch: ChannelPatch) -> Self {
        Self {
            name: patch.name.unwrap_or(self.name),
            kind: patch.kind.unwrap_or(self.kind),
            url: patch.url.unwrap_or(self.url),
            secret: patch.secret.unwrap_or(self.secret),
            to: patch.to.unwrap_or(self.to),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("a spec is plain data: {error}"))
    }

    fn check_unused_fields(&self, errors: &mut Vec<FieldError>) {
        let kind = self.kind;
        let given = [
            ("url", !self.url.is_empty(), kind == ChannelKind::Webhook),
            ("secret", !self.secret.is_empty(), kind != ChannelKind::Email),
            ("to", !self.to.is_empty(), kind == ChannelKind::Email),
        ];
        for (field, is_given, is_known) in given {
            if is_given && !is_known {
                errors.push(FieldError::new(field, format!("is not for channels of kind {kind}")));
            }
        }
    }

    fn webhook(&self, errors: &mut Vec<FieldError>) -> Option<ChannelTarget> {
        let url = Url::parse(&self.url).ok().filter(|url| {
            let plain = url.username().is_empty() && url.password().is_none();
            matches!(url.scheme(), "http" | "https") && plain && self.url.len() <= MAX_URL_BYTES
        });
        if url.is_none() {
            errors.push(FieldError::new("url", "must be an http or https URL without credentials"));
        }
        let secret = if self.secret.is_empty() { None } else { Some(self.secret(errors)?) };
        Some(ChannelTarget::Webhook { url: url?, secret })
    }

    fn secret(&self, errors: &mut Vec<FieldError>) -> Option<SecretName> {
        self.secret.parse().map_err(|error| errors.push(FieldError::new("secret", format!("{error}")))).ok()
    }

    fn recipients(&self, errors: &mut Vec<FieldError>) -> Option<Vec<Mailbox>> {
        let parsed: Option<Vec<Mailbox>> = self.to.iter().map(|address| address.parse().ok()).collect();
        let recipients = parsed.filter(|list| (1..=MAX_RECIPIENTS).contains(&list.len()));
        if recipients.is_none() {
            errors.push(FieldError::new("to", format!("must have 1 to {MAX_RECIPIENTS} e-mail addresses")));
        }
        recipients
    }
}

pub async fn add(context: &ServiceContext, spec: &ChannelSpec) -> UptimeResult<SaveOutcome> {
    if let Err(errors) = spec.validate().and_then(|target| secrets::check_channel(&context.secrets, &target))
    {
        return Ok(SaveOutcome::Invalid(errors));
    }
    let id = &ChannelId::random();
    let added = context.database.write(|tx| async move {
        if channels::count(&tx).await? >= MAX_CHANNELS {
            return Ok(SaveOutcome::LimitReached);
        }
        channels::insert(&tx, id, spec).await?;
        saved(&tx, id).await
    });
    refuse_taken_name(added.await)
}

pub async fn edit(
    context: &ServiceContext,
    id: &ChannelId,
    patch: &ChannelPatch,
) -> UptimeResult<SaveOutcome> {
    let edited = context.database.write(|tx| async move {
        let Some(channel) = channels::by_id(&tx, id).await? else { return Ok(SaveOutcome::NotFound) };
        let name = channel.spec.name.clone();
        let spec = channel.spec.patched(patch.clone());
        // An unchanged target may be saved even if its secret has been withdrawn: it is refused when it is used.
        let permitted = |target: ChannelTarget| match target == channel.target {
            true => Ok(()),
            false => secrets::check_channel(&context.secrets, &target),
        };
        if let Err(errors) = spec.validate().and_then(permitted) {
            return Ok(SaveOutcome::Invalid(errors));
        }
        if spec.name != name {
            let referring = monitors::referring_to(&tx, &name).await?;
            if !referring.is_empty() {
                return Ok(SaveOutcome::NameInUse(referring));
            }
        }
        channels::update(&tx, id, &spec).await?;
        saved(&tx, id).await
    });
    refuse_taken_name(edited.await)
}

/// Why a channel keeps its name.
pub(crate) fn name_in_use(monitors: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = monitors[..monitors.len().min(SHOWN)].join(", ");
    let rest = match monitors.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("monitors refer to the channel by this name: {shown}{rest}")
}

async fn saved(on: &impl Read, id: &ChannelId) -> UptimeResult<SaveOutcome> {
    let channel = channels::by_id(on, id).await?;
    Ok(channel.map_or(SaveOutcome::NotFound, |channel| SaveOutcome::Saved(Box::new(channel))))
}

fn refuse_taken_name(outcome: UptimeResult<SaveOutcome>) -> UptimeResult<SaveOutcome> {
    match outcome {
        Err(Error::Database(DatabaseError::Violation { constraint: Constraint::Unique, .. })) => {
            Ok(SaveOutcome::NameTaken)
        }
        outcome => outcome,
    }
}

impl ChannelId {
    #[must_use]
    pub fn random() -> Self {
        Self(format!("ch_{:016x}", rand::random::<u64>()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ChannelId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

hob_units::names!(ChannelKind { Webhook = "webhook", Slack = "slack", Discord = "discord", Email = "email" });

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_fields(json: &str) -> Vec<String> {
        let spec: ChannelSpec = serde_json::from_str(json).unwrap();
        spec.validate().err().unwrap_or_default().into_iter().map(|errors| errors.field).collect()
    }

    #[test]
    fn every_kind_is_valid() {
        for json in [
            r#"{"name":"a","kind":"webhook","url":"https://example.com/hook"}"#,
            r#"{"name":"a","kind":"webhook","url":"http://127.0.0.1:1/","secret":"hook"}"#,
            r#"{"name":"a","kind":"slack","secret":"slack_url"}"#,
            r#"{"name":"a","kind":"discord","secret":"discord_url"}"#,
            r#"{"name":"a","kind":"email","to":["Ops <ops@example.com>","b@example.com"]}"#,
        ] {
            assert_eq!(wrong_fields(json), [""; 0], "{json}");
        }
    }

    #[test]
    fn every_invalid_field_is_reported() {
        for (json, fields) in [
            (
                r#"{"name":"","kind":"webhook","url":"ftp://x","to":["a@b.example"]}"#,
                vec!["name", "to", "url"],
            ),
            (r#"{"name":"a","kind":"webhook","url":"https://u:p@x.example/"}"#, vec!["url"]),
            (
                r#"{"name":"a,b","kind":"slack","url":"https://hooks.example/T0"}"#,
                vec!["name", "url", "secret"],
            ),
            (r#"{"name":"a","kind":"slack","secret":"https://hooks.example/T0"}"#, vec!["secret"]),
            (r#"{"name":"a","kind":"email"}"#, vec!["to"]),
            (r#"{"name":"a","kind":"email","to":["not an address"]}"#, vec!["to"]),
        ] {
            assert_eq!(wrong_fields(json), fields, "{json}");
        }
    }

    #[test]
    fn error_does_not_repeat_a_secret() {
        let spec: ChannelSpec =
            serde_json::from_str(r#"{"name":"a","kind":"slack","secret":"https://hooks.example/T0"}"#)
                .unwrap();
        assert!(!format!("{:?}", spec.validate().unwrap_err()).contains("hooks.example"));
    }
}
