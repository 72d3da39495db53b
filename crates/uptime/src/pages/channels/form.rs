//! The form that adds and edits channels. It shows the fields of one kind of channel; the buttons of the kinds submit it, so that
//! it works without scripts and nothing that was entered is lost.

use askama::Template;
use hob_web::components::Field;
use serde::Deserialize;

use crate::incident::alert::channel::{ChannelKind, ChannelPatch, ChannelSpec};
use crate::monitor::check::FieldError;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ChannelForm {
    #[serde(default)]
    name: String,
    pub(super) kind: ChannelKind,
    #[serde(default)]
    url: String,
    #[serde(default)]
    secret: String,
    /// Separated by commas.
    #[serde(default)]
    to: String,
    /// The kind whose button was pressed; `None` to save the channel.
    pub(super) show: Option<ChannelKind>,
}

/// The form, in a page.
#[derive(Template)]
#[template(path = "uptime/channel_form.html")]
pub(super) struct FormPart {
    /// Where it is sent.
    action: String,
    /// The label of the button that saves.
    save: &'static str,
    kind: ChannelKind,
    fields: Vec<Field>,
    /// It has entered data that is not saved.
    is_draft: bool,
}

impl ChannelForm {
    const KINDS: [(ChannelKind, &str); 4] = [
        (ChannelKind::Webhook, "Webhook"),
        (ChannelKind::Slack, "Slack"),
        (ChannelKind::Discord, "Discord"),
        (ChannelKind::Email, "E-mail"),
    ];

    pub(super) fn blank() -> Self {
        Self {
            name: String::new(),
            kind: ChannelKind::Webhook,
            url: String::new(),
            secret: String::new(),
            to: String::new(),
            show: None,
        }
    }

    /// The form of an existing channel.
    pub(super) fn of(spec: ChannelSpec) -> Self {
        let ChannelSpec { name, kind, url, secret, to } = spec;
        Self { name, kind, url, secret, to: to.join(", "), show: None }
    }

    /// Takes the kind whose button was pressed. Returns whether one was.
    pub(super) fn shows_another_kind(&mut self) -> bool {
        let shown = self.show.take();
        self.kind = shown.unwrap_or(self.kind);
        shown.is_some()
    }

    pub(super) fn part(&self, action: String, save: &'static str, errors: &[FieldError]) -> FormPart {
        FormPart { action, save, kind: self.kind, fields: self.fields(errors), is_draft: false }
    }

    /// The form with what was entered.
    pub(super) fn draft(&self, action: String, save: &'static str, errors: &[FieldError]) -> FormPart {
        FormPart { is_draft: true, ..self.part(action, save, errors) }
    }

    /// The changes that make a channel what the form describes.
    pub(super) fn patch(&self) -> ChannelPatch {
        let ChannelSpec { name, kind, url, secret, to } = self.spec();
        ChannelPatch {
            name: Some(name),
            kind: Some(kind),
            url: Some(url),
            secret: Some(secret),
            to: Some(to),
        }
    }

    /// The channel that the form describes.
    pub(super) fn spec(&self) -> ChannelSpec {
        let to = self.to.split(',').map(str::trim).filter(|address| !address.is_empty());
        ChannelSpec {
            name: self.name.trim().to_owned(),
            kind: self.kind,
            url: self.url.trim().to_owned(),
            secret: self.secret.trim().to_owned(),
            to: to.map(str::to_owned).collect(),
        }
    }

    /// The fields of the kind, with their errors.
    fn fields(&self, errors: &[FieldError]) -> Vec<Field> {
        let error =
            |name: &str| errors.iter().find(|error| error.field == name).map(|error| error.message.clone());
        let secret = |label: &str| {
            let field =
                Field::text("secret", label).value(&self.secret).error(error("secret")).max_length(64);
            field.placeholder("ops_hook").autocomplete("off")
        };
        let name = Field::text("name", "Name").value(&self.name).error(error("name"));
        let mut fields = vec![name.placeholder("Operations").required().max_length(64)];
        match self.kind {
            ChannelKind::Webhook => {
                let url = Field::text("url", "URL").value(&self.url).error(error("url")).required();
                fields.push(url.placeholder("https://example.com/hooks/hob").max_length(2048));
                fields.push(secret("Signing key").hint(
                    "Optional: the name of a secret under [secrets] in hob.toml that signs each request",
                ));
            }
            ChannelKind::Slack | ChannelKind::Discord => {
                fields.push(secret("Webhook URL").required().hint(
                    "The name of a secret under [secrets] in hob.toml that contains the URL, because anyone with the URL can post",
                ));
            }
            ChannelKind::Email => {
                let to = Field::text("to", "Recipients").value(&self.to).error(error("to")).required();
                fields.push(
                    to.placeholder("Ops <ops@example.com>").hint("Up to 16 addresses, separated by commas"),
                );
            }
        }
        fields
    }
}
