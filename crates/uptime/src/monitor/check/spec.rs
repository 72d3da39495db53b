//! A check as users write it, and its validation.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use hob_service::config::SecretName;
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use super::{
    Auth, Check, DnsCheck, Endpoint, FieldError, Heartbeat, HttpCheck, HttpVersion, MonitorKind, RecordType,
};

const MAX_TARGET_BYTES: usize = 2048;
const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 4096;
const MAX_BODY_BYTES: usize = 64 * 1024;
const MAX_REDIRECTS: u8 = 20;
const MAX_EXPECTED: usize = 16;
const MAX_GRACE_S: u32 = 7 * 86_400;

/// The part of a monitor that describes the check. Only the options of its kind may be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSpec {
    pub kind: MonitorKind,
    pub target: String,
    pub http: Option<HttpSpec>,
    pub dns: Option<DnsSpec>,
    pub heartbeat: Option<HeartbeatSpec>,
}

/// Options of an HTTP check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSpec {
    #[schema(max_length = 16, example = "GET")]
    pub method: String,
    /// At most 32.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, hob_web::Text4096>)]
    pub headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65536)]
    pub body: Option<String>,
    /// Redirects that are followed.
    #[schema(maximum = 20)]
    pub redirects: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,
    pub version: HttpVersion,
}

/// Credentials of an HTTP check. `password` and `token` are names of secrets under `[secrets]` in `hob.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum AuthSpec {
    Basic {
        #[schema(max_length = 256)]
        user: String,
        #[schema(max_length = 64)]
        password: String,
    },
    Bearer {
        #[schema(max_length = 64)]
        token: String,
    },
}

/// Options of a DNS check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DnsSpec {
    pub record: RecordType,
    /// Each of these must be among the answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16, value_type = Vec<hob_web::Text512>)]
    pub expected: Vec<String>,
    /// `address:port` of the name server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub server: Option<String>,
}

/// When a job is expected to call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatSpec {
    /// A cron pattern in UTC. Default: every interval of the monitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128, example = "0 3 * * *")]
    pub cron: Option<String>,
    /// How late the call may be, in seconds.
    #[schema(maximum = 604_800)]
    pub grace_s: u32,
}

impl Default for HttpSpec {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            headers: BTreeMap::new(),
            body: None,
            redirects: 5,
            auth: None,
            version: HttpVersion::Auto,
        }
    }
}

impl Default for HeartbeatSpec {
    fn default() -> Self {
        Self { cron: None, grace_s: 60 }
    }
}

impl CheckSpec {
    /// The check, or every error in the spec.
    pub fn validate(&self) -> Result<Check, Vec<FieldError>> {
        let mut errors = Vec::new();
        self.check_unused_options(&mut errors);
        if self.target.len() > MAX_TARGET_BYTES {
            errors.push(FieldError::new("target", format!("must have at most {MAX_TARGET_BYTES} bytes")));
            return Err(errors);
        }
        let check = match self.kind {
            MonitorKind::Http => {
                self.http.clone().unwrap_or_default().check(&self.target, &mut errors).map(Check::Http)
            }
            MonitorKind::Tcp => endpoint(&self.target, &mut errors).map(Check::Tcp),
            MonitorKind::Certificate => endpoint(&self.target, &mut errors).map(Check::Certificate),
            MonitorKind::Dns => {
                self.dns.clone().unwrap_or_default().check(&self.target, &mut errors).map(Check::Dns)
            }
            MonitorKind::Heartbeat => {
                if !self.target.is_empty() {
                    errors.push(FieldError::new(
                        "target",
                        "must be empty, because the job of a heartbeat monitor calls Hob",
                    ));
                }
                self.heartbeat.clone().unwrap_or_default().check(&mut errors).map(Check::Heartbeat)
            }
        };
        match check {
            Some(check) if errors.is_empty() => Ok(check),
            _ => Err(errors),
        }
    }

    fn check_unused_options(&self, errors: &mut Vec<FieldError>) {
        let given = [
            ("http", self.http.is_some(), MonitorKind::Http),
            ("dns", self.dns.is_some(), MonitorKind::Dns),
            ("heartbeat", self.heartbeat.is_some(), MonitorKind::Heartbeat),
        ];
        for (field, is_given, kind) in given {
            if is_given && kind != self.kind {
                errors.push(FieldError::new(field, format!("is only for monitors of kind {kind}")));
            }
        }
    }
}

impl HttpSpec {
    fn check(self, target: &str, errors: &mut Vec<FieldError>) -> Option<HttpCheck> {
        let url = url(target).map_err(|message| errors.push(FieldError::new("target", message))).ok();
        let method =
            http::Method::from_bytes(self.method.as_bytes()).ok().filter(|_| self.method.len() <= 16);
        if method.is_none() {
            errors.push(FieldError::new("http.method", "is not an HTTP method"));
        }
        if self.redirects > MAX_REDIRECTS {
            errors.push(FieldError::new("http.redirects", format!("must be at most {MAX_REDIRECTS}")));
        }
        if self.body.as_ref().is_some_and(|body| body.len() > MAX_BODY_BYTES) {
            errors.push(FieldError::new("http.body", format!("must have at most {MAX_BODY_BYTES} bytes")));
        }
        let headers = headers(&self.headers, errors);
        let auth = self.auth.map(|auth| auth.check(errors));
        Some(HttpCheck {
            method: method?,
            url: url?,
            headers,
            body: self.body,
            redirects: self.redirects,
            auth: auth.flatten(),
            version: self.version,
        })
    }
}

impl AuthSpec {
    fn check(self, errors: &mut Vec<FieldError>) -> Option<Auth> {
        match self {
            Self::Basic { user, password } => {
                if user.len() > 256 || user.contains(':') || user.contains(char::is_control) {
                    errors.push(FieldError::new(
                        "http.auth.basic.user",
                        "must have at most 256 bytes, without colons and control characters",
                    ));
                }
                Some(Auth::Basic { user, password: secret("http.auth.basic.password", &password, errors)? })
            }
            Self::Bearer { token } => {
                Some(Auth::Bearer { token: secret("http.auth.bearer.token", &token, errors)? })
            }
        }
    }
}

impl DnsSpec {
    fn check(self, target: &str, errors: &mut Vec<FieldError>) -> Option<DnsCheck> {
        let named = !target.is_empty() && target.len() <= 253 && !target.contains(char::is_whitespace);
        if !named {
            errors.push(FieldError::new("target", "is not a domain name"));
        }
        if self.expected.len() > MAX_EXPECTED || self.expected.iter().any(|answer| answer.len() > 512) {
            errors.push(FieldError::new(
                "dns.expected",
                format!("must have at most {MAX_EXPECTED} answers of at most 512 bytes each"),
            ));
        }
        let server = match self.server.as_deref().map(SocketAddr::from_str) {
            Some(Err(_)) => {
                errors
                    .push(FieldError::new("dns.server", "must be an address and a port, such as 9.9.9.9:53"));
                None
            }
            Some(Ok(server)) => Some(server),
            None => None,
        };
        named.then(|| DnsCheck {
            name: target.to_owned(),
            record: self.record,
            expected: self.expected,
            server,
        })
    }
}

impl HeartbeatSpec {
    fn check(self, errors: &mut Vec<FieldError>) -> Option<Heartbeat> {
        if self.grace_s > MAX_GRACE_S {
            errors.push(FieldError::new("heartbeat.grace_s", format!("must be at most {MAX_GRACE_S}")));
        }
        let cron = match self.cron {
            None => None,
            Some(text) if text.len() > 128 => {
                errors.push(FieldError::new("heartbeat.cron", "must have at most 128 bytes"));
                return None;
            }
            Some(text) => match croner::Cron::from_str(&text) {
                Ok(cron) => Some(cron),
                Err(error) => {
                    errors.push(FieldError::new("heartbeat.cron", error.to_string()));
                    return None;
                }
            },
        };
        Some(Heartbeat { cron, grace_s: self.grace_s })
    }
}

fn url(target: &str) -> Result<Url, String> {
    let url = Url::parse(target).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" if url.username().is_empty() && url.password().is_none() => Ok(url),
        "http" | "https" => Err("must not contain credentials; use http.auth".to_owned()),
        other => Err(format!("has the scheme {other}; use http or https")),
    }
}

fn endpoint(target: &str, errors: &mut Vec<FieldError>) -> Option<Endpoint> {
    target.parse().map_err(|message: &str| errors.push(FieldError::new("target", message))).ok()
}

fn secret(field: &str, text: &str, errors: &mut Vec<FieldError>) -> Option<SecretName> {
    text.parse().map_err(|error| errors.push(FieldError::new(field, format!("{error}")))).ok()
}

fn headers(
    written: &BTreeMap<String, String>,
    errors: &mut Vec<FieldError>,
) -> Vec<(http::HeaderName, http::HeaderValue)> {
    let size: usize = written.iter().map(|(name, value)| name.len() + value.len()).sum();
    if written.len() > MAX_HEADERS || size > MAX_HEADER_BYTES {
        errors.push(FieldError::new(
            "http.headers",
            format!("must have at most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes"),
        ));
        return Vec::new();
    }
    let mut headers = Vec::with_capacity(written.len());
    for (name, value) in written {
        match (http::HeaderName::from_str(name), http::HeaderValue::from_str(value)) {
            // These frame the message and are set by the client.
            (
                Ok(http::header::CONTENT_LENGTH | http::header::TRANSFER_ENCODING | http::header::CONNECTION),
                _,
            ) => {
                errors.push(FieldError::new(format!("http.headers.{name}"), "is set by the check itself"));
            }
            (Ok(name), Ok(value)) => headers.push((name, value)),
            _ => errors.push(FieldError::new(format!("http.headers.{name}"), "is not a valid header")),
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::MonitorSpec;

    /// The check of a monitor with this JSON and a name.
    fn check(json: &str) -> Result<Check, Vec<FieldError>> {
        let mut monitor: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap();
        monitor.insert("name".to_owned(), "x".into());
        let monitor: MonitorSpec = serde_json::from_value(monitor.into()).unwrap();
        monitor.validate().map(|(check, _)| check)
    }

    fn fields(json: &str) -> Vec<String> {
        check(json).unwrap_err().into_iter().map(|errors| errors.field).collect()
    }

    #[test]
    fn every_option_of_a_check_is_read() {
        let http = check(
            r#"{"kind":"http","target":"https://example.com/","http":{"method":"POST","headers":{"x-a":"b"},"body":"{}",
                "redirects":0,"auth":{"basic":{"user":"ann","password":"db_password"}},"version":"2"}}"#,
        );
        let Ok(Check::Http(http)) = http else { panic!("{http:?}") };
        assert_eq!((http.method, http.url.as_str()), (http::Method::POST, "https://example.com/"));
        assert_eq!((http.headers[0].0.as_str(), http.headers[0].1.as_bytes()), ("x-a", &b"b"[..]));
        assert_eq!((http.body.as_deref(), http.redirects, http.version), (Some("{}"), 0, HttpVersion::Http2));
        let Some(Auth::Basic { user, password }) = http.auth else { panic!("{:?}", http.auth) };
        assert_eq!((user.as_str(), password.as_str()), ("ann", "db_password"));

        let host = |host| url::Host::parse(host).unwrap();
        let tcp = check(r#"{"kind":"tcp","target":"[::1]:5432"}"#);
        assert_eq!(tcp, Ok(Check::Tcp(Endpoint { host: host("[::1]"), port: 5432 })));
        let certificate = check(r#"{"kind":"certificate","target":"example.com:443"}"#);
        assert_eq!(certificate, Ok(Check::Certificate(Endpoint { host: host("example.com"), port: 443 })));
        let dns = check(
            r#"{"kind":"dns","target":"example.com","dns":{"record":"MX","expected":["a"],"server":"9.9.9.9:53"}}"#,
        );
        let asked = DnsCheck {
            name: "example.com".to_owned(),
            record: RecordType::Mx,
            expected: vec!["a".to_owned()],
            server: Some(([9, 9, 9, 9], 53).into()),
        };
        assert_eq!(dns, Ok(Check::Dns(asked)));
        let heartbeat = check(r#"{"kind":"heartbeat","heartbeat":{"cron":"0 3 * * *","grace_s":300}}"#);
        let Ok(Check::Heartbeat(heartbeat)) = heartbeat else { panic!("{heartbeat:?}") };
        let pattern = heartbeat.cron.unwrap().pattern.to_string();
        assert_eq!((pattern.as_str(), heartbeat.grace_s), ("0 3 * * *", 300));
    }

    #[test]
    fn every_invalid_field_is_reported() {
        let http = r#"{"kind":"http","target":"ftp://u:p@x","dns":{},"http":{"method":"G T","redirects":21,
            "headers":{"Content-Length":"3","a b":"c"},"auth":{"bearer":{"token":"hunter 2"}}}}"#;
        assert_eq!(
            fields(http),
            [
                "dns",
                "target",
                "http.method",
                "http.redirects",
                "http.headers.Content-Length",
                "http.headers.a b",
                "http.auth.bearer.token"
            ]
        );
        assert_eq!(fields(r#"{"kind":"tcp","target":"nowhere"}"#), ["target"]);
        assert_eq!(
            fields(r#"{"kind":"heartbeat","target":"x","heartbeat":{"cron":"nope"}}"#),
            ["target", "heartbeat.cron"]
        );
        assert_eq!(fields(r#"{"kind":"dns","target":"","dns":{"server":"ns1"}}"#), ["target", "dns.server"]);
    }

    #[test]
    fn error_does_not_repeat_a_secret() {
        for token in ["env:HOB_ADMIN_TOKEN", "file:/etc/shadow", "hunter 2"] {
            let json = format!(
                r#"{{"kind":"http","target":"http://x/","http":{{"auth":{{"bearer":{{"token":"{token}"}}}}}}}}"#
            );
            let errors = check(&json).unwrap_err();
            assert!(!errors[0].message.contains(token), "{errors:?}");
        }
    }
}
