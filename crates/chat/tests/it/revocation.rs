//! Connections and event streams end when the token or the credential behind them is revoked.

use futures_util::future::join_all;
use hob_fixtures::{Layout, TestApp, TestContext, every_service};
use hob_service::{Live, SecretRef, ServiceContext};
use hob_testkit::{LIMIT, wait_for};
use hob_web::{Config, NewToken, Service as _, TokenCreation, Tokens};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::harness::{NEEDS, config, start};

const ADMIN: &str = "correct horse battery staple";
const CHAT_SECRET: &str = "a secret that both nodes know";

/// A node that requires authentication, and the folder with its secrets.
struct ProtectedChat {
    app: TestApp,
    _folder: TempDir,
}

impl ProtectedChat {
    async fn start(context: &ServiceContext) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(SecretRef::File(path))
        };
        let chat =
            start(context, hob_chat::Config { token_secret: secret("chat", CHAT_SECRET), ..config() }).await;
        let config = Config { admin_token: secret("admin", ADMIN), ..Config::default() };
        let app = TestApp::start_with_config(context, Live::fixed(config), |_| chat.routes()).await;
        Self { app, _folder: folder }
    }

    /// A token for a user, issued with an API token.
    async fn issue(&mut self, api_token: &str, user: &str) -> String {
        self.app.use_token(api_token);
        let path = format!("/api/v1/chat/users/{user}/token");
        let issued: Value = self.app.post(&path, &json!({"ttl": 3600})).await.json();
        issued["token"].as_str().unwrap_or_else(|| panic!("{issued}")).to_owned()
    }
}

async fn api_token(context: &ServiceContext, scopes: &str) -> (String, hob_web::TokenId) {
    let new = NewToken { name: "back end".to_owned(), scopes: scopes.parse().unwrap(), expires_at: None };
    match Tokens::new(&context.database).create(&new, "a test").await.unwrap() {
        TokenCreation::Created { token, text } => (text, token.id),
        TokenCreation::TooMany => panic!("too many tokens"),
    }
}

/// A connection, or the code of the error.
async fn connect(app: &TestApp, token: &str) -> Result<Client, Value> {
    let mut client = Client::open(app).await;
    let reply = client.call(json!({ "connect": { "token": token } })).await;
    if reply["connect"].is_object() { Ok(client) } else { Err(reply["error"]["code"].clone()) }
}

every_service! {
    NEEDS;

    async fn revoked_tokens_of_a_user_close_its_connections_on_every_node(context: TestContext) {
        let other = context.another_node().await;
        let (mut here, there) = (ProtectedChat::start(&context).await, ProtectedChat::start(&other).await);
        let (anna, bert) = (here.issue(ADMIN, "anna").await, here.issue(ADMIN, "bert").await);
        let mut connected = [connect(&here.app, &anna).await.unwrap(), connect(&there.app, &anna).await.unwrap()];
        let mut kept = connect(&there.app, &bert).await.unwrap();

        assert_eq!(here.app.delete("/api/v1/chat/users/anna/tokens").await.status, 204);
        for client in &mut connected {
            assert_eq!(client.end().await, 3005);
        }
        for app in [&here.app, &there.app] {
            assert_eq!(connect(app, &anna).await.err(), Some(json!(109)), "a client requests a new token");
        }
        assert!(kept.call(json!({ "ping": {} })).await["ping"].is_object(), "other users stay connected");
        // Tokens that are issued in the same millisecond are revoked as well.
        wait_for("a new token to be accepted", LIMIT, async || {
            let token = here.issue(ADMIN, "anna").await;
            connect(&there.app, &token).await.is_ok()
        })
        .await;
        other.tasks.stop(LIMIT).await;
    }

    /// A banned user is disconnected on every node, and cannot connect with a new token.
    async fn banned_user_cannot_connect_until_the_ban_ends(context: TestContext) {
        let other = context.another_node().await;
        let (mut here, there) = (ProtectedChat::start(&context).await, ProtectedChat::start(&other).await);
        let (anna, bert) = (here.issue(ADMIN, "anna").await, here.issue(ADMIN, "bert").await);
        let mut connected = [connect(&here.app, &anna).await.unwrap(), connect(&there.app, &anna).await.unwrap()];
        let mut kept = connect(&there.app, &bert).await.unwrap();
        let path = "/api/v1/chat/users/anna/ban";
        let banned = async |app: &TestApp| app.get(path).await.json::<Value>()["banned"].clone();
        assert_eq!(banned(&here.app).await, false);
        assert_eq!(here.app.put(path, &json!({})).await.status, 204);
        for client in &mut connected {
            assert_eq!(client.end().await, 3507);
        }
        // To revoke the tokens does not end the ban.
        assert_eq!(here.app.delete("/api/v1/chat/users/anna/tokens").await.status, 204);
        assert_eq!(banned(&here.app).await, true);
        let new = here.issue(ADMIN, "anna").await;
        for app in [&here.app, &there.app] {
            let mut client = Client::open(app).await;
            client.send(json!({ "id": 1, "connect": { "token": new } }).to_string()).await;
            assert_eq!(client.end().await, 3507, "the client does not try again");
        }
        assert!(kept.call(json!({ "ping": {} })).await["ping"].is_object(), "other users stay connected");

        assert_eq!(here.app.delete(path).await.status, 204);
        assert_eq!(here.app.delete(path).await.status, 404);
        assert_eq!(banned(&here.app).await, false);
        assert_eq!(connect(&here.app, &new).await.err(), Some(json!(109)), "tokens from before stay revoked");
        wait_for("a new token to be accepted", LIMIT, async || {
            let token = here.issue(ADMIN, "anna").await;
            connect(&there.app, &token).await.is_ok()
        })
        .await;
        other.tasks.stop(LIMIT).await;
    }

    async fn tokens_of_many_users_are_revoked_at_the_same_time(context: TestContext) {
        let mut protected = ProtectedChat::start(&context).await;
        protected.app.use_token(ADMIN);
        let paths: Vec<String> = (0..20).map(|user| format!("/api/v1/chat/users/user{user}/tokens")).collect();
        let revoked = join_all(paths.iter().map(|path| protected.app.delete(path))).await;
        let statuses: Vec<_> = revoked.iter().map(|response| response.status.as_u16()).collect();
        assert_eq!(statuses, vec![204; 20]);
    }
}

#[tokio::test]
async fn refresh_does_not_accept_a_revoked_token() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedChat::start(&context).await;
    let old = protected.issue(ADMIN, "anna").await;
    protected.app.delete("/api/v1/chat/users/anna/tokens").await;
    let mut client = wait_for("a new token to be accepted", LIMIT, async || {
        let token = protected.issue(ADMIN, "anna").await;
        connect(&protected.app, &token).await.ok()
    })
    .await;
    client.send(json!({ "id": 9, "refresh": { "token": old } }).to_string()).await;
    assert_eq!(client.end().await, 3005);
}

/// A token that an API token has issued ends with the API token, on every node.
#[tokio::test]
async fn connection_ends_with_the_api_token_that_issued_its_token() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let other = context.another_node().await;
    let (mut here, there) = (ProtectedChat::start(&context).await, ProtectedChat::start(&other).await);
    let (secret, id) = api_token(&context, "chat:write").await;
    let token = here.issue(&secret, "anna").await;
    let mut connected =
        [connect(&here.app, &token).await.unwrap(), connect(&there.app, &token).await.unwrap()];
    let by_admin = here.issue(ADMIN, "anna").await;
    let mut kept = connect(&there.app, &by_admin).await.unwrap();
    here.app.use_token(ADMIN);
    assert_eq!(here.app.delete(&format!("/api/v1/tokens/{id}")).await.status, 204);
    for client in &mut connected {
        assert_eq!(client.end().await, 3005);
    }
    assert_eq!(connect(&here.app, &token).await.err(), Some(json!(109)));
    assert!(kept.call(json!({ "ping": {} })).await["ping"].is_object());
    other.tasks.stop(LIMIT).await;
}

#[tokio::test]
async fn connection_of_a_page_ends_with_the_session() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedChat::start(&context).await;
    let signed_in = protected.app.submit("/sign-in", &[("token", ADMIN)]).await;
    let cookie = signed_in.header("set-cookie").split(';').next().unwrap().to_owned();
    protected.app.use_header(axum::http::header::COOKIE, &cookie);
    let page = protected.app.get("/chat?as=anna").await.text();
    let (_, rest) = page.split_once("data-token=\"").expect("the page has a token");
    let token = rest.split('"').next().unwrap();
    let mut client = connect(&protected.app, token).await.unwrap();
    assert_eq!(protected.app.submit("/sign-out", &[]).await.status, 303);
    assert_eq!(client.end().await, 3005);
}

#[tokio::test]
async fn event_stream_ends_when_its_token_is_revoked() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedChat::start(&context).await;
    let (secret, id) = api_token(&context, "chat:read").await;
    protected.app.use_token(&secret);
    let response = protected.app.open("/api/v1/chat/events").await;
    assert_eq!(response.status(), 200);
    protected.app.use_token(ADMIN);
    assert_eq!(protected.app.delete(&format!("/api/v1/tokens/{id}")).await.status, 204);
    let ended = tokio::time::timeout(LIMIT, response.into_body().collect()).await;
    ended.expect("the stream ends in time").expect("the stream ends without an error");
}
