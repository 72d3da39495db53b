//! The checked configuration: rules, allow and deny lists, trusted proxies, and route templates.

use std::fmt::Display;

use hob_net::{ClientAddress, TrustedProxies};
use http::HeaderMap;

use crate::config::{PolicyConfig, PolicyMistake};
use crate::identity::{CallerList, CountBy, Identity};
use crate::limiter::rule::{BadRule, Keyspace, Rule};
use crate::path::{PathReading, RouteCase};
use crate::route::{IdDetection, RouteTemplate};

const MAX_RULES: usize = 100;

/// A checked configuration, replaced as a whole on reload.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) allow: CallerList,
    deny: CallerList,
    /// How the rules name callers. A denied caller is refused also where no rule applies.
    names: Vec<CountBy>,
    pub(crate) templates: Vec<RouteTemplate>,
    pub(crate) path_reading: PathReading,
    pub(crate) id_detection: IdDetection,
    pub(crate) count_loopback: bool,
    pub(crate) x_ratelimit: bool,
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error(transparent)]
    Rule(#[from] BadRule),
    #[error("routes: {0}")]
    Route(#[from] crate::route::BadTemplate),
    #[error("{0} rules; at most {MAX_RULES} are allowed")]
    TooManyRules(usize),
    #[error("two rules have the name {0:?}; names must be unique")]
    DuplicateName(String),
    #[error("rules {0:?} and {1:?} are public and have the same algorithm; only one of them can be public")]
    TwoPublic(String, String),
}

impl Policy {
    pub fn new(config: &PolicyConfig) -> Result<Self, BadPolicy> {
        if config.rules.len() > MAX_RULES {
            return Err(BadPolicy::TooManyRules(config.rules.len()));
        }
        let rules = config.rules.iter().map(Rule::new).collect::<Result<Vec<_>, _>>()?;
        check_distinct(&rules)?;
        let mut names: Vec<CountBy> = Vec::new();
        for rule in &rules {
            if rule.count_by != CountBy::Address && !names.contains(&rule.count_by) {
                names.push(rule.count_by.clone());
            }
        }
        let templates =
            config.routes.iter().map(|route| RouteTemplate::new(route)).collect::<Result<_, _>>()?;
        Ok(Self {
            rules,
            trusted_proxies: TrustedProxies {
                networks: config.trusted_proxies.iter().map(|network| (*network).into()).collect(),
                header: config.forwarded_header,
            },
            allow: CallerList::new(&config.allow),
            deny: CallerList::new(&config.deny),
            names,
            templates,
            path_reading: PathReading {
                ambiguous: config.ambiguous_paths,
                case: if config.case_sensitive_routes {
                    RouteCase::Sensitive
                } else {
                    RouteCase::Insensitive
                },
            },
            id_detection: if config.learn_routes { IdDetection::On } else { IdDetection::Off },
            count_loopback: config.count_loopback,
            x_ratelimit: config.x_ratelimit,
        })
    }

    /// Whether the caller is on the deny list, by its address or by a name that a rule counts by.
    pub(crate) fn is_denied(&self, client: ClientAddress, headers: &HeaderMap) -> bool {
        self.deny.contains_address(client.address)
            || self.deny.has_names()
                && self.names.iter().any(|by| self.deny.contains_identity(&Identity::of(by, client, headers)))
    }

    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.name.as_str() == name)
    }
}

impl PolicyConfig {
    /// Everything for which [`Policy::new`] fails, and what it would ignore.
    #[must_use]
    pub fn mistakes(&self) -> Vec<PolicyMistake> {
        let mut mistakes = Vec::new();
        let mut add = |field: String, message: &dyn Display| {
            mistakes.push(PolicyMistake { field, message: message.to_string() });
        };
        for (index, route) in self.routes.iter().enumerate() {
            RouteTemplate::new(route).err().iter().for_each(|error| add(format!("routes[{index}]"), error));
        }
        for (field, entries) in [("allow", &self.allow), ("deny", &self.deny)] {
            for (index, entry) in entries.iter().enumerate() {
                CallerList::check(entry)
                    .err()
                    .iter()
                    .for_each(|error| add(format!("{field}[{index}]"), error));
            }
        }
        if self.rules.len() > MAX_RULES {
            add("rules".to_owned(), &BadPolicy::TooManyRules(self.rules.len()));
        }
        let mut rules = Vec::new();
        for (index, rule) in self.rules.iter().enumerate().take(MAX_RULES) {
            match Rule::new(rule) {
                Ok(rule) => {
                    if let Err(error) = check_against(&rule, &rules) {
                        let field = if matches!(error, BadPolicy::TwoPublic(..)) { "public" } else { "name" };
                        add(format!("rules[{index}].{field}"), &error);
                    }
                    rules.push(rule);
                }
                Err(error) => add(format!("rules[{index}].{}", error.field), &error),
            }
        }
        mistakes
    }
}

/// Checks that no two rules share state.
fn check_distinct(rules: &[Rule]) -> Result<(), BadPolicy> {
    rules.iter().enumerate().try_for_each(|(index, rule)| check_against(rule, &rules[..index]))
}

/// Checks that a rule shares its state with none of the rules before it.
fn check_against(rule: &Rule, before: &[Rule]) -> Result<(), BadPolicy> {
    if before.iter().any(|other| other.name == rule.name) {
        return Err(BadPolicy::DuplicateName(rule.name.to_string()));
    }
    let same = |other: &&Rule| {
        other.keyspace == Keyspace::Public && other.limit.algorithm() == rule.limit.algorithm()
    };
    match before.iter().find(same) {
        Some(other) if rule.keyspace == Keyspace::Public => {
            Err(BadPolicy::TwoPublic(other.name.to_string(), rule.name.to_string()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(toml: &str) -> Result<Policy, BadPolicy> {
        Policy::new(&toml::from_str(toml).unwrap())
    }

    #[test]
    fn rules_that_share_state_are_refused() {
        let twice =
            "[[rules]]\nname = \"a\"\nwindows = \"1/1s\"\n[[rules]]\nname = \"a\"\nwindows = \"2/1s\"";
        assert_eq!(policy(twice).unwrap_err(), BadPolicy::DuplicateName("a".into()));
        let public = |name| {
            format!(
                "[[rules]]\nname = \"{name}\"\nwindows = \"1/1s\"\npublic = true\nalgorithm = \"fixed_log\"\n"
            )
        };
        let two = format!("{}{}", public("a"), public("b"));
        assert_eq!(policy(&two).unwrap_err(), BadPolicy::TwoPublic("a".into(), "b".into()));
    }

    #[test]
    fn empty_section_has_no_rules() {
        assert!(policy("").unwrap().rules.is_empty());
    }
}
