//! An app with an OpenID Connect provider, and sign-ins like those of a browser.

use hob_fixtures::{TestIssuer, TestResponse};
use hob_service::config::LiveSender;
use hob_service::{Live, ServiceContext};
use hob_web::{Config, SignInConfig};
use http::header::SET_COOKIE;
use serde_json::{Value, json};

use crate::protected::ProtectedApp;

/// What the redirect URL of the tests starts with. A test follows it by its path.
const HERE: &str = "http://127.0.0.1:7070";

/// The settings for a provider, with these changes.
pub(super) fn settings(issuer: &TestIssuer, changes: Value) -> SignInConfig {
    let mut oidc = json!({
        "issuer": issuer.url(),
        "client_id": TestIssuer::CLIENT,
        "redirect_url": format!("{HERE}/sign-in/oidc/callback"),
        "roles": [
            {"group": "readers", "role": "viewer"},
            {"group": "writers", "role": "editor"},
            {"group": "owners", "role": "admin"},
            {"group": "gardeners", "scopes": ["garden:write"]},
        ],
    });
    let Value::Object(changes) = changes else { panic!("not an object: {changes}") };
    oidc.as_object_mut().unwrap().extend(changes);
    serde_json::from_value(json!({"oidc": oidc})).unwrap()
}

/// An app with a provider.
pub(super) struct Site {
    pub(super) issuer: TestIssuer,
    pub(super) app: ProtectedApp,
    pub(super) replace: LiveSender<SignInConfig>,
}

impl Site {
    pub(super) async fn start(context: &ServiceContext) -> Self {
        Self::with(context, TestIssuer::start().await, json!({})).await
    }

    pub(super) async fn with(context: &ServiceContext, issuer: TestIssuer, changes: Value) -> Self {
        let (sign_in, replace) = Live::new(settings(&issuer, changes));
        let app = ProtectedApp::with_sign_in(context, Config::default(), sign_in).await;
        Self { issuer, app, replace }
    }

    /// Signs in with these claims, like a browser, and returns the last response.
    pub(super) async fn sign_in(&mut self, claims: Value) -> TestResponse {
        self.issuer.set_claims(claims);
        let login = begin(&mut self.app, "/garden").await;
        let back = self.issuer.sign_in(&login.url);
        finish(&mut self.app, &back, &login.cookie).await
    }

    /// Signs in as a member of a group and returns the session cookie.
    pub(super) async fn session_of(&mut self, group: &str) -> String {
        let answer = self.sign_in(json!({"groups": [group]})).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("location")),
            (303, "/garden"),
            "{}",
            answer.text()
        );
        session(&answer).expect("a session")
    }
}

/// A sign-in that has started.
pub(super) struct Login {
    /// Where the provider signs the user in.
    pub(super) url: String,
    pub(super) cookie: String,
}

pub(super) async fn begin(app: &mut ProtectedApp, to: &str) -> Login {
    let query = serde_json::json!({"to": to});
    let query = serde_urlencoded::to_string(query.as_object().unwrap()).unwrap();
    let answer = app.anonymous().get(&format!("/sign-in/oidc?{query}")).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie");
    assert!(
        cookie.starts_with("hob_sign_in=") && cookie.contains("; HttpOnly; SameSite=Lax; Max-Age=600"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap().to_owned();
    Login { url: answer.header("location").to_owned(), cookie }
}

/// Goes back from the provider to the app.
pub(super) async fn finish(app: &mut ProtectedApp, back: &str, cookie: &str) -> TestResponse {
    let path = back.strip_prefix(HERE).unwrap_or_else(|| panic!("{back}"));
    app.with_cookie(cookie).get(path).await
}

/// The session cookie that a response sets.
pub(super) fn session(answer: &TestResponse) -> Option<String> {
    let cookies = answer.headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.filter_map(|cookie| cookie.split(';').next());
    pairs.find(|pair| pair.starts_with("hob_session=")).map(str::to_owned)
}

#[track_caller]
pub(super) fn assert_refused(answer: &TestResponse, status: u16, says: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert!(answer.text().contains(says), "{says}: {}", answer.text());
    assert_eq!(session(answer), None, "no session");
}
