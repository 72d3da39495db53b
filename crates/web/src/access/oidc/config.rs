//! The `[sign_in]` section of `hob.toml`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hob_net::client_tls;
use hob_service::SecretRef;
use hob_service::config::Mistakes;
use serde::{Deserialize, Serialize};
use url::Url;

use super::CALLBACK_PATH;
use crate::access::protected_url::protected_url;
use crate::access::role::Role;
use crate::access::{Scope, Scopes};

hob_service::section! {
    /// Sign-in of people to the console, besides tokens.
    pub struct SignInConfig("sign_in") {
        /// Sign-in with OpenID Connect. The groups of a user decide what the user may do. A user without a listed group
        /// cannot sign in. Requires an admin token. See docs/access.md.
        ///
        ///   [sign_in.oidc]
        ///   issuer         = "https://login.example.com"
        ///   client_id      = "hob"
        ///   client_secret  = "env:OIDC_SECRET"    # or file:/path; without it, Hob is a public client
        ///   redirect_url   = "https://hob.example.com/sign-in/oidc/callback"
        ///   name           = "Example Login"      # on the button; default: the host of the issuer
        ///   groups_claim   = "groups"
        ///   request_scopes = ["openid", "profile", "email"]
        ///   ca_file        = "/etc/ssl/ca.pem"    # default: the public certificate authorities
        ///
        ///   [[sign_in.oidc.roles]]
        ///   group = "sre"
        ///   role  = "admin"                       # viewer, editor or admin
        ///
        ///   [[sign_in.oidc.roles]]
        ///   group  = "support"
        ///   scopes = ["uptime:read", "chat:write"]
        pub oidc: Option<OidcConfig> = None,
    }
    check check;
    check_files check_files;
}

fn check(config: &SignInConfig, mistakes: &mut Mistakes) {
    let Some(oidc) = &config.oidc else { return };
    for (path, text) in [("oidc.client_id", &oidc.client_id), ("oidc.groups_claim", &oidc.groups_claim)] {
        if text.is_empty() {
            mistakes.add(path, "is empty");
        }
    }
    if !oidc.request_scopes.iter().any(|scope| scope == "openid") {
        mistakes.add(
            "oidc.request_scopes",
            "must contain \"openid\"; without it, the provider sends no ID token",
        );
    }
}

fn check_files(config: &SignInConfig, mistakes: &mut Mistakes) {
    let Some(oidc) = &config.oidc else { return };
    if let Some(secret) = &oidc.client_secret {
        mistakes.check("oidc.client_secret", secret.read());
    }
    mistakes.check("oidc.ca_file", client_tls(oidc.ca_file.as_deref()));
}

impl SignInConfig {
    /// Unknown services in the scopes of roles. Otherwise a typo would go unnoticed until a user lacks a permission.
    #[must_use]
    pub fn unknown_services(&self, known: &[&str]) -> Mistakes {
        let mut mistakes = Mistakes::default();
        let rules = self.oidc.iter().flat_map(|oidc| &oidc.roles.0);
        for (index, rule) in rules.enumerate() {
            mistakes.check_each(&format!("oidc.roles[{index}].scopes"), &rule.scopes, |scope| {
                match scope.service().filter(|service| !known.contains(service)) {
                    Some(service) => {
                        Err(format!("unknown service {service:?}; services: {}", known.join(", ")))
                    }
                    None => Ok(()),
                }
            });
        }
        mistakes
    }
}

/// An OpenID Connect provider, and what its users may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcConfig {
    pub issuer: Issuer,
    pub client_id: String,
    /// `None` makes Hob a public client, which is protected only by PKCE.
    pub client_secret: Option<SecretRef>,
    pub redirect_url: RedirectUrl,
    /// The text of the button on the sign-in page.
    pub name: Option<String>,
    /// The claim of the ID token that lists the groups of a user.
    #[serde(default = "default_groups_claim")]
    pub groups_claim: String,
    /// The scopes that are requested from the provider. They are not scopes of Hob.
    #[serde(default = "default_request_scopes")]
    pub request_scopes: Vec<String>,
    /// A PEM file with the certificate authorities of the provider.
    pub ca_file: Option<PathBuf>,
    pub roles: Roles,
}

/// The URL that identifies the provider. It is compared as text, as the specification requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Issuer {
    text: String,
    url: Url,
}

/// The URL to which the provider sends the browser back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RedirectUrl(String);

/// What each group may do. Contains at least one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<RoleRule>", into = "Vec<RoleRule>")]
pub struct Roles(Vec<RoleRule>);

/// The scopes of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawRoleRule")]
pub struct RoleRule {
    group: String,
    scopes: Vec<Scope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoleRule {
    group: String,
    role: Option<Role>,
    scopes: Option<Vec<Scope>>,
}

/// More rules than any operator writes by hand.
const MAX_RULES: usize = 1_000;

impl OidcConfig {
    /// The text of the button on the sign-in page.
    pub(crate) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.issuer.url.host_str().unwrap_or("OIDC"))
    }

    /// The name of a user in sessions and in the audit log, which stays the same when the e-mail address changes. The
    /// subject is unique only together with the issuer.
    pub(super) fn subject(&self, sub: &str) -> String {
        format!("{} {sub}", self.issuer)
    }

    /// The scopes of a user with these groups. `None` if the user may do nothing, or is a user of another provider.
    pub(crate) fn scopes(&self, subject: &str, groups: &[String]) -> Option<Scopes> {
        let sub = subject.strip_prefix(self.issuer.as_str())?;
        if sub.starts_with(' ') { self.roles.scopes(groups) } else { None }
    }
}

impl Issuer {
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }
}

impl Roles {
    /// The groups that have a rule.
    pub(super) fn listed(&self, groups: &[String]) -> Vec<String> {
        let listed: BTreeSet<&str> = self.0.iter().map(|rule| rule.group.as_str()).collect();
        groups.iter().filter(|group| listed.contains(group.as_str())).cloned().collect()
    }

    fn scopes(&self, groups: &[String]) -> Option<Scopes> {
        let rules = self.0.iter().filter(|rule| groups.contains(&rule.group));
        Scopes::new(rules.flat_map(|rule| rule.scopes.iter().cloned()).collect())
    }
}

impl RedirectUrl {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Issuer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = protected_url(text)?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("{text:?} must not have a query or a fragment"));
        }
        Ok(Self { text: text.to_owned(), url })
    }
}

impl TryFrom<String> for Issuer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Issuer> for String {
    fn from(issuer: Issuer) -> Self {
        issuer.text
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for RedirectUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let url = protected_url(&text)?;
        if url.path() != CALLBACK_PATH || url.query().is_some() || url.fragment().is_some() {
            return Err(format!("{text:?} must end with {CALLBACK_PATH}"));
        }
        Ok(Self(text))
    }
}

impl From<RedirectUrl> for String {
    fn from(url: RedirectUrl) -> Self {
        url.0
    }
}

impl TryFrom<Vec<RoleRule>> for Roles {
    type Error = String;

    fn try_from(rules: Vec<RoleRule>) -> Result<Self, String> {
        if rules.is_empty() || rules.len() > MAX_RULES {
            return Err(format!("must have 1 to {MAX_RULES} rules; without a rule, no user can sign in"));
        }
        // A user may have all groups.
        if Scopes::new(rules.iter().flat_map(|rule| rule.scopes.iter().cloned()).collect()).is_none() {
            return Err(format!("the rules have more than {} different scopes", Scopes::MAX));
        }
        Ok(Self(rules))
    }
}

impl From<Roles> for Vec<RoleRule> {
    fn from(roles: Roles) -> Self {
        roles.0
    }
}

impl TryFrom<RawRoleRule> for RoleRule {
    type Error = String;

    fn try_from(raw: RawRoleRule) -> Result<Self, String> {
        let scopes = match (raw.role, raw.scopes) {
            (Some(role), None) => vec![role.scope()],
            (None, Some(scopes)) if !scopes.is_empty() => scopes,
            _ => return Err("set either `role` (viewer, editor or admin) or `scopes`".to_owned()),
        };
        if raw.group.is_empty() {
            return Err("`group` is empty".to_owned());
        }
        Ok(Self { group: raw.group, scopes })
    }
}

fn default_groups_claim() -> String {
    "groups".to_owned()
}

fn default_request_scopes() -> Vec<String> {
    ["openid", "profile", "email"].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(text: &str) -> Result<Issuer, String> {
        text.parse()
    }

    #[test]
    fn plain_http_is_for_loopback_only() {
        for text in
            ["https://login.example.com", "https://10.0.0.1:8443/realms/a", "http://localhost:5556/dex"]
        {
            assert_eq!(issuer(text).unwrap().as_str(), text);
        }
        for text in [
            "http://login.example.com",
            "http://10.0.0.1",
            "http://localhost.example.com",
            "ftp://localhost",
            "login.example.com",
            "https://user:password@login.example.com",
            "https://login.example.com?a=b",
            "",
        ] {
            assert!(issuer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn redirect_url_is_the_callback() {
        let check = |text: &str| RedirectUrl::try_from(text.to_owned()).map(|url| url.as_str().to_owned());
        assert!(check("https://hob.example.com/sign-in/oidc/callback").is_ok());
        for text in ["https://hob.example.com/", "http://hob.example.com/sign-in/oidc/callback"] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    fn config(roles: &serde_json::Value) -> Result<OidcConfig, serde_json::Error> {
        serde_json::from_value(serde_json::json!({
            "issuer": "https://login.example.com",
            "client_id": "hob",
            "redirect_url": "https://hob.example.com/sign-in/oidc/callback",
            "roles": roles,
        }))
    }

    #[test]
    fn groups_are_mapped_to_the_union_of_their_scopes() {
        let config = config(&serde_json::json!([
            {"group": "dev", "role": "viewer"},
            {"group": "support", "scopes": ["chat:write", "uptime:read"]},
            {"group": "sre", "role": "admin"},
        ]))
        .unwrap();
        let scopes = |subject: &str, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            config.scopes(subject, &groups).map(|scopes| scopes.to_string())
        };
        let ada = config.subject("ada");
        assert_eq!(scopes(&ada, &["dev"]).as_deref(), Some("*:read"));
        assert_eq!(scopes(&ada, &["support", "dev"]).as_deref(), Some("*:read uptime:read chat:write"));
        assert_eq!(scopes(&ada, &["sre", "other"]).as_deref(), Some("admin"));
        assert_eq!(scopes(&ada, &["other", "Sre"]), None);
        assert_eq!(scopes(&ada, &[]), None);
        assert_eq!(scopes("https://other.example.com ada", &["sre"]), None, "a user of another provider");
        assert_eq!(scopes("https://login.example.com.evil.example ada", &["sre"]), None);
    }

    #[test]
    fn rules_are_checked() {
        for roles in [
            serde_json::json!([]),
            serde_json::json!([{"group": "a"}]),
            serde_json::json!([{"group": "a", "role": "viewer", "scopes": ["admin"]}]),
            serde_json::json!([{"group": "a", "scopes": []}]),
            serde_json::json!([{"group": "a", "scopes": ["everything"]}]),
            serde_json::json!([{"group": "a", "role": "root"}]),
            serde_json::json!([{"group": "", "role": "viewer"}]),
            serde_json::json!([{"group": "a", "rol": "viewer"}]),
        ] {
            assert!(config(&roles).is_err(), "{roles}");
        }
    }
}
