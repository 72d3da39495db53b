//! Apps with an admin token, and requests with and without credentials.

use hob_database::UnixMs;
use hob_fixtures::{Needs, TestApp, TestResponse};
use hob_service::config::LiveSender;
use hob_service::{Live, SecretRef, ServiceContext};
use hob_web::{Config, NewToken, SignInConfig, TokenCreation, Tokens, Web};
use http::header;
use tempfile::TempDir;

use crate::garden::{Garden, routes};

pub(crate) const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };
pub(crate) const ADMIN: &str = "correct horse battery staple";

/// An app that requires authentication, and the folder with its admin token.
pub(crate) struct ProtectedApp {
    pub(crate) app: TestApp,
    folder: TempDir,
    replace: LiveSender<Config>,
}

impl ProtectedApp {
    pub(crate) async fn start(context: &ServiceContext) -> Self {
        Self::with(context, Config::default()).await
    }

    pub(crate) async fn with(context: &ServiceContext, config: Config) -> Self {
        Self::with_sign_in(context, config, Live::fixed(SignInConfig::default())).await
    }

    pub(crate) async fn with_sign_in(
        context: &ServiceContext,
        config: Config,
        sign_in: Live<SignInConfig>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin");
        std::fs::write(&path, ADMIN).unwrap();
        let config = Config { admin_token: Some(SecretRef::File(path)), ..config };
        let (config, replace) = Live::new(config);
        let web = Web::open_with(context, config, sign_in).unwrap_or_else(|error| panic!("{error}"));
        let app = TestApp::start_with(web, routes(Garden::default())).await;
        Self { app, folder, replace }
    }

    /// Changes the admin token and reloads the configuration.
    pub(crate) fn replace_admin_token(&self, token: &str) {
        std::fs::write(self.folder.path().join("admin"), token).unwrap();
        self.replace.replace(Config::clone(&self.app.web().config()));
    }

    pub(crate) fn anonymous(&mut self) -> &TestApp {
        self.app.forget_headers();
        &self.app
    }

    /// A client without a token that accepts these media types.
    pub(crate) fn accepting(&mut self, types: &str) -> &TestApp {
        self.app.forget_headers();
        self.app.use_header(header::ACCEPT, types);
        &self.app
    }

    pub(crate) fn with_token(&mut self, token: &str) -> &TestApp {
        self.app.forget_headers();
        self.app.use_token(token);
        &self.app
    }

    pub(crate) fn with_cookie(&mut self, cookie: &str) -> &TestApp {
        self.app.forget_headers();
        self.app.use_header(header::COOKIE, cookie);
        &self.app
    }

    /// Signs in and returns the session cookie.
    pub(crate) async fn sign_in(&mut self, token: &str) -> String {
        let answer = self.anonymous().submit("/sign-in", &[("token", token), ("to", "/garden")]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("location")),
            (303, "/garden"),
            "{}",
            answer.text()
        );
        cookie(&answer)
    }
}

pub(crate) fn cookie(answer: &TestResponse) -> String {
    answer.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
}

/// A token with these scopes that does not expire.
pub(crate) async fn token(context: &ServiceContext, scopes: &str) -> (String, String) {
    token_until(context, scopes, None).await
}

/// The text of a token with these scopes, and its id.
pub(crate) async fn token_until(
    context: &ServiceContext,
    scopes: &str,
    expires_at: Option<UnixMs>,
) -> (String, String) {
    let new = NewToken { name: format!("gardener of {scopes}"), scopes: scopes.parse().unwrap(), expires_at };
    match Tokens::new(&context.database).create(&new, "a test").await.unwrap() {
        TokenCreation::Created { token, text } => (text, token.id.as_str().to_owned()),
        TokenCreation::TooMany => panic!("too many tokens"),
    }
}
