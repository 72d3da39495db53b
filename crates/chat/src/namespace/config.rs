//! The options of a namespace, and what they allow a client. Everything is off unless it is set.

use std::time::Duration;

use hob_service::Period;
use hob_service::config::Mistakes;
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::keys::{Keys, NamedChannel, UserId};
use crate::store::history::Retention;

/// The first character of a channel to which clients can subscribe only with a token.
const PRIVATE: char = '$';
/// Ends the namespace in the name of a channel.
const NAMESPACE_END: char = ':';
/// Starts the list of the users who may subscribe.
const USERS: char = '#';

/// The options of a namespace, with the names that Centrifugo gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Namespace {
    /// How many publications of a channel are kept. 0: none.
    pub history_size: u32,
    /// How long they are kept after the last one.
    pub history_ttl: Period,
    /// Clients that reconnect get the publications that they missed.
    pub force_recovery: bool,
    /// Whether the subscribed clients of a channel can be listed.
    pub presence: bool,
    /// Whether subscribers can get a push when another client subscribes or unsubscribes.
    pub join_leave: bool,
    /// Whether all subscribers get these pushes, also those that did not ask for them.
    pub force_push_join_leave: bool,
    /// Whether every client can subscribe, except to channels with `$` or `#`.
    pub allow_subscribe_for_client: bool,
    /// Whether the users in the name of a channel can subscribe to it: `dialog#42,43`.
    pub allow_user_limited_channels: bool,
    /// Whether the application decides on subscriptions without a token, except to channels with `$`.
    pub proxy_subscribe: bool,
    /// Whether the application decides on publications of clients.
    pub proxy_publish: bool,
    pub allow_publish_for_client: bool,
    pub allow_publish_for_subscriber: bool,
    pub allow_history_for_client: bool,
    pub allow_history_for_subscriber: bool,
    pub allow_presence_for_client: bool,
    pub allow_presence_for_subscriber: bool,
}

/// What a client wants to do with a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Publish,
    History,
    Presence,
}

/// The channel and its namespace; `None` if the namespace is not configured, or the name is not valid.
pub(crate) fn find<'a>(config: &'a Config, channel: &str) -> Option<(NamedChannel, &'a Namespace)> {
    let name = NamedChannel::new(channel).ok().filter(|_| !channel.chars().any(char::is_control))?;
    let public = channel.strip_prefix(PRIVATE).unwrap_or(channel);
    let namespace = match public.split_once(NAMESPACE_END) {
        Some((namespace, _)) => config.namespaces.get(namespace)?,
        None => config.without_namespace.as_ref()?,
    };
    Some((name, namespace))
}

/// Whether clients can subscribe only with a token.
pub(crate) fn is_private(channel: &NamedChannel) -> bool {
    channel.as_str().starts_with(PRIVATE)
}

impl Namespace {
    /// How much history is kept. `None` if the namespace has no history.
    pub(crate) fn retention(&self) -> Option<Retention> {
        let retention = Retention { size: self.history_size, ttl: self.history_ttl.get() };
        (retention.size > 0 && !retention.ttl.is_zero()).then_some(retention)
    }

    /// Whether a user can subscribe to a channel without a token.
    pub(crate) fn admits(&self, channel: &NamedChannel, user: &UserId) -> bool {
        let name = channel.as_str();
        if is_private(channel) {
            return false;
        }
        match name.split_once(USERS) {
            Some((_, users)) => {
                self.allow_user_limited_channels && users.split(',').any(|one| one == user.as_str())
            }
            None => self.allow_subscribe_for_client,
        }
    }

    /// Whether a client may do this. A channel that only some users can subscribe to is open to its subscribers only.
    pub(crate) fn allows(&self, access: Access, channel: &NamedChannel, is_subscribed: bool) -> bool {
        let is_limited = is_private(channel) || channel.as_str().contains(USERS);
        let (for_client, for_subscriber) = match access {
            Access::Publish => (self.allow_publish_for_client, self.allow_publish_for_subscriber),
            Access::History => (self.allow_history_for_client, self.allow_history_for_subscriber),
            Access::Presence => (self.allow_presence_for_client, self.allow_presence_for_subscriber),
        };
        if is_subscribed { for_client || for_subscriber } else { for_client && !is_limited }
    }
}

/// Adds the mistakes in the namespaces of a configuration.
pub(crate) fn check(config: &Config, mistakes: &mut Mistakes) {
    for (name, namespace) in &config.namespaces {
        let path = format!("namespaces.{name}");
        let is_word = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_word) {
            mistakes.add(&path, "the name must have 1 to 64 letters, digits, '-', '_' or '.'");
        }
        if matches!(name.as_str(), "conv" | "user") {
            mistakes.add(&path, "this name is reserved for conversations and feeds; choose another one");
        }
        check_options(namespace, &path, mistakes);
    }
    if let Some(namespace) = &config.without_namespace {
        check_options(namespace, "without_namespace", mistakes);
    }
}

fn check_options(namespace: &Namespace, path: &str, mistakes: &mut Mistakes) {
    let max_ttl = Period::from_secs(Keys::HISTORY_TTL_MAX.as_secs());
    mistakes.check_range(&format!("{path}.history_size"), &namespace.history_size, &(0..=MAX_HISTORY));
    mistakes.check_range(
        &format!("{path}.history_ttl"),
        &namespace.history_ttl,
        &(Period::default()..=max_ttl),
    );
    if (namespace.history_size > 0) != (namespace.history_ttl.get() > Duration::ZERO) {
        mistakes.add(path, "a history needs both history_size and history_ttl");
    }
    let Namespace { force_recovery, allow_history_for_client, allow_history_for_subscriber, .. } = namespace;
    if (*force_recovery || *allow_history_for_client || *allow_history_for_subscriber)
        && namespace.retention().is_none()
    {
        mistakes.add(path, "force_recovery and allow_history_… need history_size and history_ttl");
    }
    if (namespace.allow_presence_for_client || namespace.allow_presence_for_subscriber) && !namespace.presence
    {
        mistakes.add(path, "allow_presence_… needs presence = true");
    }
    if namespace.force_push_join_leave && !namespace.join_leave {
        mistakes.add(path, "force_push_join_leave needs join_leave = true");
    }
}

const MAX_HISTORY: u32 = Keys::HISTORY_MAX_LEN as u32;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::default();
        let open = Namespace { allow_subscribe_for_client: true, ..Namespace::default() };
        config.namespaces.insert("news".to_owned(), open);
        config.namespaces.insert(
            "dialog".to_owned(),
            Namespace {
                allow_user_limited_channels: true,
                allow_publish_for_client: true,
                ..Namespace::default()
            },
        );
        config
    }

    fn user(id: &str) -> UserId {
        UserId::new(id).unwrap()
    }

    #[test]
    fn channel_belongs_to_a_configured_namespace_or_is_unknown() {
        let mut config = config();
        for known in ["news:a", "$news:a", "news:", "news:a:b", "dialog:x#42"] {
            assert!(find(&config, known).is_some(), "{known}");
        }
        for unknown in ["", "news", "$news", "other:a", "News:a", "user#42", "news:a\nb", ":a"] {
            assert!(find(&config, unknown).is_none(), "{unknown:?}");
        }
        assert!(find(&config, &format!("news:{}", "x".repeat(251))).is_none());
        config.without_namespace = Some(Namespace::default());
        for known in ["news", "$news", "user#42"] {
            assert!(find(&config, known).is_some(), "{known}");
        }
    }

    #[test]
    fn private_and_user_limited_channels_are_not_open() {
        let config = config();
        let admits = |channel: &str, who: &str| {
            let (channel, namespace) = find(&config, channel).unwrap();
            namespace.admits(&channel, &user(who))
        };
        assert!(admits("news:a", "anna"));
        assert!(!admits("$news:a", "anna"), "only with a token");
        assert!(!admits("news:a#anna", "anna"), "the namespace has no user-limited channels");
        assert!(admits("dialog:a#anna,bert", "bert"));
        assert!(!admits("dialog:a#anna,bert", "carl"));
        assert!(!admits("dialog:a#anna,bert", "ann"));
        assert!(!admits("dialog:a", "anna"));
    }

    #[test]
    fn limited_channel_is_open_to_its_subscribers_only() {
        let config = config();
        let allows = |channel: &str, is_subscribed| {
            let (channel, namespace) = find(&config, channel).unwrap();
            namespace.allows(Access::Publish, &channel, is_subscribed)
        };
        assert!(allows("dialog:a", false) && allows("dialog:a#anna", true) && allows("$dialog:a", true));
        assert!(!allows("dialog:a#anna", false) && !allows("$dialog:a", false));
        assert!(!allows("news:a", true), "off by default");
    }

    #[test]
    fn options_that_contradict_each_other_are_mistakes() {
        let found = |name: &str, namespace: Namespace| {
            let mut config = Config::default();
            config.namespaces.insert(name.to_owned(), namespace);
            let mut mistakes = Mistakes::default();
            check(&config, &mut mistakes);
            mistakes.into_vec().len()
        };
        let history = Namespace {
            history_size: 10,
            history_ttl: Period::from_secs(60),
            force_recovery: true,
            ..Namespace::default()
        };
        assert_eq!(found("news", history.clone()), 0);
        assert_eq!(found("conv", history.clone()), 1);
        assert_eq!(found("a b", history.clone()), 1);
        assert_eq!(found("news", Namespace { history_size: 10_001, ..history.clone() }), 1);
        assert_eq!(found("news", Namespace { history_ttl: Period::default(), ..history }), 2);
        assert_eq!(found("news", Namespace { allow_presence_for_client: true, ..Namespace::default() }), 1);
        assert_eq!(found("news", Namespace { force_push_join_leave: true, ..Namespace::default() }), 1);
    }
}
